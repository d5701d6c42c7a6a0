"""Read HTTP/1.1 responses without I/O. Importing this module imports httptools, which parses with llhttp.

This module passes only heads and chunked bodies to llhttp, each head to a new parser. It determines the length of other bodies
itself, because httptools lacks three functions: it does not report the position at which a response ends, has no method to signal
the end of the connection, and has no setting for `HEAD`.

llhttp accepts more than a client should. This module also rejects HTTP/0.9 and HTTP/2.0, statuses below 100, transfer codings
other than `chunked`, and heads and trailers of more than `MAX_HEAD` bytes. llhttp skips line breaks before a response. This
module treats them as an invalid start, or as unexpected bytes after the previous response.
"""

from __future__ import annotations

from typing import Final

import httptools

from outreach_async.errors import TransportError
from outreach_async.transport._response_reader import BodyReader, decode_headers, require_final_status
from outreach_async.transport._wire import Response

MAX_HEAD: Final = 64 * 1024
"""Maximum size of a response head including interim responses, in bytes. It also limits trailers and chunk extensions."""

_HTTP_1_0: Final = b"HTTP/1.0 "
_VERSIONS: Final = (b"HTTP/1.1 ", _HTTP_1_0)
_END_OF_HEAD: Final = b"\r\n\r\n"
_CHUNKED_HEAD: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_MAX_LENGTH_DIGITS: Final = 18  # as in `BodyReader`
_MIN_STATUS: Final = 100
_MIN_FINAL_STATUS: Final = 200
_SWITCHING_PROTOCOLS: Final = 101
_BODILESS: Final = frozenset({204, 304})


class ResponseReader:
    # Initial values are attributes of the class, because a reader is made for every request.
    keeps_alive = has_leftovers = False
    _head = b""
    _head_left = MAX_HEAD
    _status = 0
    _body: BodyReader | None = None
    _is_chunked = _is_complete = False
    _tail = b""
    _overhead = 0
    _parser: httptools.HttpResponseParser | None = None

    def __init__(self, method: str, limit: int) -> None:
        self._method = method
        self._limit = limit
        self._raw_headers: list[tuple[bytes, bytes]] = []

    def feed(self, data: bytes) -> Response | None:
        """Add the next bytes. Return the response once it is complete, otherwise `None`."""
        if self._body is not None:
            return self._feed_body(self._body, data)
        if self._head:
            data = self._head + data
        while (end := data.find(_END_OF_HEAD)) >= 0:
            end += len(_END_OF_HEAD)
            self._parse_head(data[:end])
            data = data[end:]
            if self._status >= _MIN_FINAL_STATUS:
                return self._start_body(data)
        self._check_start(data)
        self._head = data
        return None

    def finish(self) -> Response | None:
        """Handle the end of the connection. Return the response if this end completes the body, otherwise `None`."""
        if self._body is None or self._is_chunked or self._left is not None:
            return None
        return self._build_response(self._body.finish())

    def _check_start(self, head: bytes) -> None:
        """Check the start of an incomplete head. A server that uses another protocol may never send a complete head."""
        if not (head.startswith(_VERSIONS) or any(version.startswith(head) for version in _VERSIONS)):
            raise _build_invalid_error("expected a status line of HTTP/1.0 or HTTP/1.1")
        if len(head) > self._head_left:
            raise _build_too_large_error("head")

    def _parse_head(self, head: bytes) -> None:
        if len(head) > self._head_left or not head.startswith(_VERSIONS):
            self._check_start(head)
        parser = self._parser = httptools.HttpResponseParser(self)
        try:
            parser.feed_data(head)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if parser.get_status_code() != _SWITCHING_PROTOCOLS:  # refused below, with the message of the other transports
                raise _build_invalid_error(str(error)) from None
        if head.startswith(_HTTP_1_0):  # llhttp would reuse the connection even after `connection: keep-alive, close`
            self.keeps_alive = False
        status = self._status = parser.get_status_code()
        if status < _MIN_STATUS:
            require_final_status(status)
        if status == _SWITCHING_PROTOCOLS:
            raise TransportError("the response switches to a protocol that was not requested", maybe_sent=True)
        if status < _MIN_FINAL_STATUS:  # an interim response: prepare for the next head
            self._head_left -= len(head)
            self._raw_headers = []
            self._is_complete = False

    def _start_body(self, data: bytes) -> Response | None:
        headers = self._headers = decode_headers(self._raw_headers)
        stated = headers.get("content-length")
        left = None
        if stated is not None:
            # llhttp has checked that these are digits, stated once. But it accepts any number of leading zeros, and `int` raises
            # an error for more than 4,300 digits. `BodyReader` refuses any length above the limit.
            left = int(stated) if len(stated) <= _MAX_LENGTH_DIGITS else self._limit + 1
        coding = headers.get("transfer-encoding")
        if coding is not None and coding.lower() != "chunked":
            text = f"the response has an unsupported transfer-encoding: expected chunked, got {coding[:20]!r}"
            raise TransportError(text, maybe_sent=True)
        if self._status in _BODILESS or self._method == "HEAD":
            left = 0
        elif coding is not None:
            # The parser that read the head would not decode the chunks if a space follows `chunked` in this header.
            keeps_alive, self._is_chunked = self.keeps_alive, True
            self._parser = httptools.HttpResponseParser(self)
            self._parser.feed_data(_CHUNKED_HEAD)
            self.keeps_alive = keeps_alive
        if left is not None and len(data) >= left <= self._limit and "content-encoding" not in headers:
            if len(data) > left:
                self.has_leftovers = True
                data = data[:left]
            return self._build_response(data)  # the usual case, without the cost of a `BodyReader`
        self._left = left
        self._body = BodyReader(headers, self._limit)
        return self._feed_body(self._body, data)

    def _feed_body(self, body: BodyReader, data: bytes) -> Response | None:
        if self._is_chunked:
            return self._feed_chunks(body, data)
        if self._left is None:  # the body ends with the connection
            body.feed(data)
            return None
        body.feed(data[: self._left])
        self.has_leftovers = len(data) > self._left
        self._left = max(0, self._left - len(data))
        return None if self._left else self._build_response(body.finish())

    def _feed_chunks(self, body: BodyReader, data: bytes) -> Response | None:
        assert self._parser is not None, "the response is already complete"  # noqa: S101 - for the type checker
        self._pieces: list[bytes] = []
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self._is_complete:
                raise _build_invalid_error(str(error)) from None
            self.has_leftovers = True
        for piece in self._pieces:
            body.feed(piece)
        self._overhead = 0 if self._pieces else self._overhead + len(data)
        if self._overhead > MAX_HEAD:
            raise _build_too_large_error("trailer or chunk extension")
        self._tail = (self._tail + data[-5:])[-5:]
        if not self._is_complete:
            return None
        # llhttp silently skips line breaks after a response. The last line break of the body, or of its trailers, and the empty
        # line are the only line breaks that belong to the response. Part of another head ends in other bytes, and after a
        # complete head, the parser raises an error.
        self.has_leftovers |= self._tail[-4:] != _END_OF_HEAD or self._tail[0] in b"\r\n"
        return self._build_response(body.finish())

    def _build_response(self, body: bytes) -> Response:
        self._parser = None  # breaks the reference cycle with the parser, which only the garbage collector would free
        return Response(self._status, self._headers, body)

    # Called by the parser.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header field. The parser also calls this method for trailers, after the headers were read."""
        self._raw_headers.append((name, value.rstrip()))

    def on_headers_complete(self) -> None:
        """Store whether the server keeps the connection open. At the end of a second head, raise an error to stop the parser."""
        if self._is_complete:
            raise ValueError
        assert self._parser is not None, "the parser is running"  # noqa: S101 - for the type checker
        self.keeps_alive = self._parser.should_keep_alive()

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        self._is_complete = True


def _build_invalid_error(reason: str) -> TransportError:
    return TransportError(f"the response is not valid HTTP: {reason}", maybe_sent=True)


def _build_too_large_error(part: str) -> TransportError:
    return TransportError(f"the response is too large: its {part} has more than {MAX_HEAD} bytes", maybe_sent=True)
