"""Read HTTP/1.1 responses without I/O.

A parser reads the header fields of each head: llhttp if the extra `httptools` is installed, or else h11. h11 decodes all chunked
bodies. This module finds the ends of heads and of other bodies, which httptools does not report.

Both parsers accept more than a client should, and each accepts responses that the other refuses. This module and
`parse_by_h11` refuse whatever one of them refuses, so that the result never depends on the parser. They also refuse HTTP/0.9 and
HTTP/2.0, statuses below 100, and heads and trailers of more than `MAX_HEAD` bytes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Final, TypeAlias

import h11

from outreach_async.errors import TransportError
from outreach_async.transport._backends import parse_version
from outreach_async.transport._response_reader import BodyReader, decode_headers, require_final_status
from outreach_async.transport._wire import Response

HeadParser: TypeAlias = Callable[[bytes], list[tuple[bytes, bytes]]]
"""Returns the header fields of a complete head of a final response, and raises `ValueError` if the head is not valid."""

MAX_HEAD: Final = 64 * 1024
"""Maximum size of a response head including interim responses, in bytes. It also limits trailers and chunk extensions."""

_VERSIONS: Final = (b"HTTP/1.1 ", b"HTTP/1.0 ")
LEAST_HTTPTOOLS: Final = (0, 7)  # as in the extra; earlier versions accept more
_TEXT: Final = rb"\t\x20-\x7e\x80-\xff"  # what a line may contain; llhttp accepts more in the reason, and h11 everywhere
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([0-9]{3})(?: [" + _TEXT + rb"]*)?\r\n")
_FIELD_LINES: Final = re.compile(rb"(?:[" + _TEXT + rb"]+\r\n)*\r\n")
_LENGTH_LINE: Final = re.compile(rb"\ncontent-length:[\t ]*[0-9]+[\t ]*\r", re.IGNORECASE)
_END_OF_HEAD: Final = b"\r\n\r\n"
_CHUNKED_HEAD: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
_EXPECTED_LINE: Final = "expected a status line of HTTP/1.0 or HTTP/1.1"
_EXPECTED_FIELDS: Final = "expected header fields, with at most one content-length or one transfer-encoding: chunked"
_MAX_LENGTH_DIGITS: Final = 18  # as in `BodyReader`
_MIN_STATUS: Final = 100
_MIN_FINAL_STATUS: Final = 200
_SWITCHING_PROTOCOLS: Final = 101
_BODILESS: Final = frozenset({204, 304})


def parse_by_h11(head: bytes) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a response head; see `HeadParser`."""
    # A connection for each head costs less than one for each socket, which would have to follow every request.
    connection = h11.Connection(h11.CLIENT)
    connection.receive_data(head)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise ValueError from error
    assert isinstance(event, h11.Response)  # noqa: S101 - for the type checker: the head is complete
    fields = list(event.headers)
    # h11 joins the lines of a field, and drops a repeated length. It returns the length `5` for `5, 5`.
    if len(fields) != head.count(b"\n") - 2 or not _FIELD_LINES.fullmatch(head, head.index(b"\n") + 1):
        raise ValueError
    if any(name == b"content-length" for name, _ in fields) and not _LENGTH_LINE.search(head):
        raise ValueError
    return fields


def choose_parser() -> HeadParser:
    """Return the parser of llhttp if a supported version of httptools is installed, or else that of h11."""
    try:
        from outreach_async.transport._socket_llhttp import VERSION, parse_by_llhttp
    except ImportError:
        return parse_by_h11
    return parse_by_llhttp if parse_version(VERSION) >= LEAST_HTTPTOOLS else parse_by_h11


class ResponseReader:
    # Initial values are attributes of the class, because a reader is made for every request.
    keeps_alive = has_leftovers = False
    _head = b""
    _head_left = MAX_HEAD
    _status = 0
    _body: BodyReader | None = None
    _left: int | None = None
    _chunks: h11.Connection | None = None
    _overhead = 0

    def __init__(self, method: str, limit: int, parse: HeadParser) -> None:
        self._method = method
        self._limit = limit
        self._parse = parse

    def feed(self, data: bytes) -> Response | None:
        """Add the next bytes. Return the response once it is complete, otherwise `None`."""
        if self._body is not None:
            return self._feed_body(self._body, data)
        if self._head:
            data = self._head + data
        while (end := data.find(_END_OF_HEAD)) >= 0:
            end += len(_END_OF_HEAD)
            head, data = data[:end], data[end:]
            headers = self._read_head(head)
            if self._status >= _MIN_FINAL_STATUS:
                return self._start_body(headers, data)
            self._head_left -= end  # an interim response
        self._check_start(data)
        self._head = data
        return None

    def finish(self) -> Response | None:
        """Handle the end of the connection. Return the response if this end completes the body, otherwise `None`."""
        if self._body is None or self._chunks is not None or self._left is not None:
            return None
        return Response(self._status, self._headers, self._body.finish())

    def _check_start(self, head: bytes) -> None:
        """Check the start of an incomplete head. A server that uses another protocol may never send a complete head."""
        if not (head.startswith(_VERSIONS) or any(version.startswith(head) for version in _VERSIONS)):
            raise _build_invalid_error(_EXPECTED_LINE)
        if len(head) > self._head_left:
            raise _build_too_large_error("head")

    def _read_head(self, head: bytes) -> dict[str, str]:
        if len(head) > self._head_left or not head.startswith(_VERSIONS):
            self._check_start(head)
        line = _STATUS_LINE.match(head)
        if line is None:
            raise _build_invalid_error(_EXPECTED_LINE)
        status = self._status = int(line[2])
        if status < _MIN_FINAL_STATUS:
            if status < _MIN_STATUS:
                require_final_status(status)
            if status == _SWITCHING_PROTOCOLS:
                raise TransportError("the response switches to a protocol that was not requested", maybe_sent=True)
            head = b"HTTP/1.1 200\r\n" + head[line.end() :]  # checked like a final one
        try:
            headers = decode_headers(self._parse(head))
        except ValueError:
            raise _build_invalid_error(_EXPECTED_FIELDS) from None
        stated = headers.get("content-length")
        if stated is not None and len(stated) > _MAX_LENGTH_DIGITS:  # h11 refuses more than 20 digits, even zeros
            raise _build_invalid_error(_EXPECTED_FIELDS)
        if (coding := headers.get("transfer-encoding")) is not None:
            if coding.lower() != "chunked" or stated is not None:
                raise _build_invalid_error(_EXPECTED_FIELDS)
            headers["transfer-encoding"] = "chunked"  # h11 returns it in lower case
        connection = headers.get("connection")
        is_closing = connection is not None and "close" in connection.lower().replace(",", " ").split()
        self.keeps_alive = line[1] == b"1" and not is_closing
        return headers

    def _start_body(self, headers: dict[str, str], data: bytes) -> Response | None:
        self._headers = headers
        stated = headers.get("content-length")
        left = None if stated is None else int(stated)
        if self._status in _BODILESS or self._method == "HEAD":
            left = 0
        elif "transfer-encoding" in headers:
            self._chunks = h11.Connection(h11.CLIENT, max_incomplete_event_size=sys.maxsize)  # the limit is `_overhead`
            self._chunks.receive_data(_CHUNKED_HEAD)
            self._chunks.next_event()
        if left is not None and len(data) >= left <= self._limit and "content-encoding" not in headers:
            if len(data) > left:
                self.has_leftovers = True
                data = data[:left]
            return Response(self._status, headers, data)  # the usual case, without the cost of a `BodyReader`
        self._left = left
        self._body = BodyReader(headers, self._limit)
        return self._feed_body(self._body, data)

    def _feed_body(self, body: BodyReader, data: bytes) -> Response | None:
        if self._chunks is not None:
            return self._feed_chunks(self._chunks, body, data)
        if self._left is None:  # the body ends with the connection
            body.feed(data)
            return None
        body.feed(data[: self._left])
        self.has_leftovers = len(data) > self._left
        self._left = max(0, self._left - len(data))
        return None if self._left else Response(self._status, self._headers, body.finish())

    def _feed_chunks(self, chunks: h11.Connection, body: BodyReader, data: bytes) -> Response | None:
        if data:  # h11 takes an empty piece for the end of the connection
            chunks.receive_data(data)
        self._overhead += len(data)
        try:
            while isinstance(event := chunks.next_event(), h11.Data):
                body.feed(bytes(event.data))
                self._overhead = 0
        except h11.RemoteProtocolError:
            raise _build_invalid_error("expected chunks, as its transfer-encoding states") from None
        if self._overhead > MAX_HEAD:
            raise _build_too_large_error("trailer or chunk extension")
        if not isinstance(event, h11.EndOfMessage):
            return None
        self.has_leftovers = bool(chunks.trailing_data[0])
        return Response(self._status, self._headers, body.finish())


def _build_invalid_error(reason: str) -> TransportError:
    return TransportError(f"the response is not valid HTTP: {reason}", maybe_sent=True)


def _build_too_large_error(part: str) -> TransportError:
    return TransportError(f"the response is too large: its {part} has more than {MAX_HEAD} bytes", maybe_sent=True)
