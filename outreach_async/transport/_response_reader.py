"""Read and decompress a response body within a size limit, in the same way for every backend."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from outreach_async.errors import TransportError

MAX_ANSWER: Final = 16 * 1024 * 1024
"""Default maximum size of a decoded response body, in bytes. It is ten times the size of the largest page of mailboxes.

Parsed JSON takes at most about twenty times as much memory as the body. The worst case is JSON that consists only of brackets.
"""

ACCEPT_ENCODING: Final = "gzip, deflate"
"""The `accept-encoding` of every request: the encodings that this module can decode."""

_MAX_MEMBERS: Final = 1024
"""Maximum number of gzip members in one response. Decoding takes time even for an empty member, which has only 20 bytes."""

_MAX_PIECES: Final = 4096
"""Number of pieces of a body to collect before joining them. Each piece has a memory overhead."""

_MIN_FINAL_STATUS: Final = 200

_CONTENT_LENGTH: Final = re.compile(r"[0-9]{1,18}")


@lru_cache(maxsize=64)
def _decode_name(name: bytes) -> str:
    return name.decode("latin-1").lower()


def decode_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return response header fields as strings by lower-case name. Repeated fields are joined with a comma."""
    # Values are decoded as UTF-8, or as Latin-1 if they are not valid UTF-8, in the same way for every backend. The backends
    # themselves decode values in different ways, and aiohttp produces lone surrogates.
    fields: dict[str, str] = {}
    for name, value in raw:
        key = _decode_name(name)
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        fields[key] = f"{fields[key]}, {text}" if key in fields else text
    return fields


def require_final_status(status: int) -> int:
    if status < _MIN_FINAL_STATUS:
        raise TransportError(f"the response has an invalid status: expected 200 or more, got {status:03}", maybe_sent=True)
    return status


class BodyReader:
    """Collects a response body piece by piece, and rejects a body whose stated or actual size exceeds the limit."""

    def __init__(self, headers: Mapping[str, str], limit: int, *, decoded: bool = False) -> None:
        self._limit = self._decoded_left = limit
        # Encoded bytes need a limit of their own, because any number of encoded bytes may decode to nothing. The limit exceeds
        # the overhead of every supported encoding.
        self._encoded_left = 2 * limit + 65_536
        self._pieces: list[bytes] = []
        self._joined = bytearray()
        self._decompressor = None if decoded else _make_decompressor(headers.get("content-encoding", ""))
        if not decoded and "transfer-encoding" in headers and "content-length" in headers:
            # RFC 9112, section 6.3: this may be request smuggling. httpx would use one of the two fields; aiohttp ignores both.
            raise TransportError(
                "the response has an ambiguous length: both transfer-encoding and content-length", maybe_sent=True
            )
        stated = headers.get("content-length", "0")
        if not _CONTENT_LENGTH.fullmatch(stated) or int(stated) > limit:
            if not (stated.isascii() and stated.isdecimal()):
                text = f"the response has an invalid content-length: expected a whole number, got {stated[:20]!r}"
                raise TransportError(text, maybe_sent=True)
            self._raise_too_large(f"its content-length is {stated[:20]},")

    def feed(self, piece: bytes) -> None:
        if self._decompressor is not None:
            self._encoded_left -= len(piece)
            piece = self._decompressor.feed(piece, self._decoded_left + 1)
        self._decoded_left -= len(piece)
        if self._decoded_left < 0 or self._encoded_left < 0:
            self._raise_too_large("its body has")
        self._pieces.append(piece)
        if len(self._pieces) == _MAX_PIECES:
            self._joined += b"".join(self._pieces)
            self._pieces.clear()

    def finish(self) -> bytes:
        if self._decompressor is not None:
            self._decompressor.finish()
        return b"".join([self._joined, *self._pieces] if self._joined else self._pieces)

    def _raise_too_large(self, how: str) -> None:
        text = f"the response is too large: {how} more than max_answer={self._limit} bytes; pass a larger max_answer"
        raise TransportError(text, maybe_sent=True)


class _Decompressor:
    """Decompresses gzip or deflate up to a given size, because a small piece can decompress to a thousand times its size."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._stream: zlib._Decompress | None = None
        self._members = 0

    def feed(self, piece: bytes, limit: int) -> bytes:
        decoded = b""
        try:
            while piece and len(decoded) < limit:
                if self._stream is None or self._stream.eof:  # a gzip body may have several members
                    self._members += 1
                    if self._members > _MAX_MEMBERS:
                        raise self._build_error(f"has more than {_MAX_MEMBERS} gzip members")
                    bits = 16 + zlib.MAX_WBITS  # gzip
                    if self._coding == "deflate":  # the zlib format, but some servers omit its header
                        bits = zlib.MAX_WBITS if piece[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
                    self._stream = zlib.decompressobj(bits)
                decoded += self._stream.decompress(piece, limit - len(decoded))
                piece = self._stream.unused_data
        except zlib.error:
            raise self._build_error("is not valid") from None
        return decoded

    def finish(self) -> None:
        if self._stream is not None and not self._stream.eof:
            raise self._build_error("is truncated")

    def _build_error(self, fault: str) -> TransportError:
        return TransportError(f"the response body with content-encoding {self._coding!r} {fault}", maybe_sent=True)


def _make_decompressor(stated: str) -> _Decompressor | None:
    coding = stated.strip().lower()
    if coding in {"", "identity"}:
        return None
    if coding not in {"gzip", "x-gzip", "deflate"}:
        text = f"the response has an unsupported content-encoding: expected one of {ACCEPT_ENCODING}, got {coding[:20]!r}"
        raise TransportError(text, maybe_sent=True)
    return _Decompressor(coding)
