"""Reading an answer to its end, within a bound, with its content encoding undone: the same for every backend."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from outreach_async.errors import TransportError

MAX_ANSWER: Final = 16 * 1024 * 1024
"""Bytes that an answer's decoded body may have, unless a transport is told otherwise: ten times the largest page of mailboxes.
JSON of nothing but brackets takes some twenty times as much in memory."""

ACCEPTED: Final = "gzip, deflate"
"""The `accept-encoding` of every request: what can be undone here."""

_MEMBERS: Final = 1024
"""Parts at most of an answer in gzip: a part that holds nothing takes 20 bytes, and time."""

_PIECES: Final = 4096
"""Pieces that are kept one by one: each takes memory of its own, however small it is."""

_FINAL: Final = 200

_STATED: Final = re.compile(r"[0-9]{1,18}")
_GZIP: Final = 16 + zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS


def fields_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return an answer's header fields as text, by lower-case name, alike for every backend; those that are repeated joined.

    Values are UTF-8, and Latin-1 if they are not. The backends' own reading differs, and aiohttp's leaves lone surrogates.
    """
    fields: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1").lower()
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        fields[key] = f"{fields[key]}, {text}" if key in fields else text
    return fields


def accepted(status: int) -> int:
    """Return the status of a final response.

    Raises:
        TransportError: It is below 200: not every backend refuses a status such as 000, and 100 to 199 end no exchange.
    """
    if status < _FINAL:
        raise TransportError(f"the answer has no valid status: expected 200 or more, got {status:03}", maybe_sent=True)
    return status


class Intake:
    """Takes in an answer's body piece by piece and refuses one beyond the limit, stated or real.

    Args:
        headers: The answer's header fields by lower-case name.
        limit: Bytes of the decoded body at most.
        decoded: The pieces come with the encoding undone.

    Raises:
        TransportError: The body is too large, in an encoding that was not asked for, or its end is ambiguous.
    """

    def __init__(self, headers: Mapping[str, str], limit: int, *, decoded: bool = False) -> None:
        self._limit = self._room = limit
        self._intake = 2 * limit + 65_536  # encoded bytes: encoding adds less than that, and may hold nothing at all
        self._pieces: list[bytes] = []
        self._before = bytearray()
        self._inflater = None if decoded else _inflater(headers.get("content-encoding", ""))
        if not decoded and "transfer-encoding" in headers and "content-length" in headers:
            # RFC 9112, section 6.3: an attempt to be read in two ways; httpx would go by one of them, aiohttp by neither.
            raise TransportError("the answer states its length in two ways", maybe_sent=True)
        stated = headers.get("content-length", "0")
        if not _STATED.fullmatch(stated) or int(stated) > limit:
            self._refuse(f"states a length of {stated[:20]} bytes")

    def feed(self, piece: bytes) -> None:
        """Take in the next piece.

        Raises:
            TransportError: The body grows too large, or is not in its stated encoding.
        """
        if self._inflater is not None:
            self._intake -= len(piece)
            piece = self._inflater.feed(piece, self._room + 1)
        self._room -= len(piece)
        if self._room < 0 or self._intake < 0:
            self._refuse("goes on")
        self._pieces.append(piece)
        if len(self._pieces) == _PIECES:
            self._before += b"".join(self._pieces)
            self._pieces.clear()

    def whole(self) -> bytes:
        """Return the body.

        Raises:
            TransportError: It ends within its encoding.
        """
        if self._inflater is not None:
            self._inflater.finish()
        return b"".join([self._before, *self._pieces] if self._before else self._pieces)

    def _refuse(self, how: str) -> None:
        raise TransportError(
            f"the answer is too large: its body {how}, more than max_answer={self._limit} bytes", maybe_sent=True
        )


class _Inflater:
    """Undoes gzip or deflate, never beyond what is asked for: a small piece can hold a thousand times its size."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._stream: zlib._Decompress | None = None
        self._members = 0

    def feed(self, piece: bytes, most: int) -> bytes:
        decoded = b""
        try:
            while piece and len(decoded) < most:
                if self._stream is None or self._stream.eof:  # gzip may come in several members
                    self._count()
                    self._stream = zlib.decompressobj(self._window(piece))
                decoded += self._stream.decompress(piece, most - len(decoded))
                piece = self._stream.unused_data
        except zlib.error:
            raise self._broken("is not in") from None
        return decoded

    def finish(self) -> None:
        if self._stream is not None and not self._stream.eof:
            raise self._broken("ends within")

    def _count(self) -> None:
        self._members += 1
        if self._members > _MEMBERS:
            raise self._broken(f"has more than {_MEMBERS} parts in")

    def _window(self, piece: bytes) -> int:
        # "deflate" means the zlib format, but some servers send it without its header.
        if self._coding == "deflate":
            return zlib.MAX_WBITS if piece[0] & 0x0F == zlib.DEFLATED else _RAW
        return _GZIP

    def _broken(self, how: str) -> TransportError:
        return TransportError(f"the answer's body {how} its stated content-encoding {self._coding!r}", maybe_sent=True)


def _inflater(stated: str) -> _Inflater | None:
    coding = stated.strip().lower()
    if coding in {"", "identity"}:
        return None
    if coding not in {"gzip", "x-gzip", "deflate"}:
        raise TransportError(f"the answer's content-encoding {coding[:20]!r} was not asked for; {ACCEPTED} was", maybe_sent=True)
    return _Inflater(coding)
