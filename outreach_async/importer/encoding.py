"""Determine the encoding of a text file, and read its lines with a limit on their length."""

from __future__ import annotations

import codecs
from collections.abc import Generator
from importlib.util import find_spec
from io import IncrementalNewlineDecoder, TextIOWrapper
from typing import BinaryIO, Final

from outreach_async.errors import InvalidRequest
from outreach_async.importer.source import ByteSource

UTF_8: Final = "utf-8-sig"

# UTF-32 comes before UTF-16, because the UTF-32 mark begins with the UTF-16 mark.
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, UTF_8, "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
_HEAD_SIZE: Final = 512
_BLOCK_SIZE: Final = 1 << 16
_CONTEXT_SIZE: Final = 1 << 14
"""Number of bytes before and after an undecodable byte from which the encoding is guessed."""

_CANDIDATES: Final = ("cp1252", "cp1251", "cp1253", "cp1255", "cp932", "gb18030", "euc_kr", "big5", "mac_roman")
"""Encodings that can be guessed, generally one per script, because statistics cannot distinguish encodings of one script."""

_MAX_ASCII, _MIN_NON_ASCII = 0x7F, 8
"""Largest ASCII byte, and the minimum number of non-ASCII bytes needed to guess the encoding."""


def detect_encoding(source: ByteSource, requested: str | None) -> tuple[str, tuple[str, ...]]:
    """Return Python's name for the encoding of a file, and notes on how it was determined.

    Args:
        source: The file.
        requested: The encoding that the caller specified; `None` to detect the encoding.

    Raises:
        InvalidRequest: The specified encoding is unknown, or contradicts the file's byte order mark.
    """
    codec = _find_codec(requested) if requested is not None else None
    with source.open_unpacked() as file:
        head = file.read(_HEAD_SIZE)
    for mark, own, name in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            if codec is not None and not codec.startswith(name.lower()):
                raise InvalidRequest(f"{source.name}: expected {requested!r}, got the byte order mark of {name}; omit --encoding")
            return own, () if own == UTF_8 else (f"encoding {name}, from the byte order mark",)
    if codec is None and is_utf16_like(head):  # no byte order mark: decoded as UTF-8, each letter would be next to a NUL
        guess = "utf-16-be" if head.startswith(b"\0") else "utf-16-le"
        raise InvalidRequest(f"{source.name}: every other byte is zero, as in UTF-16; pass its encoding: --encoding {guess}")
    if codec is None or codec == "utf-8":
        return UTF_8, ()
    return codec, (f"encoding {requested}, as specified",)


def _find_codec(requested: str) -> str:
    try:
        "".encode(requested)  # fails for codecs that are not text encodings, such as base64, which codecs.lookup accepts
        return codecs.lookup(requested).name
    except (LookupError, ValueError):
        remedy = "use, for example, cp1252, latin-1 or utf-16"
        raise InvalidRequest(f"encoding: expected a text encoding, got {requested!r}; {remedy}") from None


def is_utf16_like(head: bytes) -> bool:
    """Return whether a file without a byte order mark looks like UTF-16: about every other byte is zero."""
    return head.count(b"\0") * 3 > len(head) and b"\0\0" not in head


def undecodable_error(source: ByteSource, codec: str) -> InvalidRequest:
    """Return an error that locates the first undecodable byte and contains a remedy. The file is read up to that byte."""
    with source.open_unpacked() as file:
        fault = _find_fault(file, codec)
    if fault is None:  # the codec expects a byte order mark and finds none
        return InvalidRequest(f"{source.name}: expected a byte order mark, got none; pass --encoding {codec}-le or {codec}-be")
    line, byte, around, mixed = fault
    what = f"{source.name}: line {line} is not {'UTF-8' if codec == UTF_8 else codec} text (byte 0x{byte:02x})"
    if mixed:
        return InvalidRequest(f"{what}, but earlier lines are; fix that line: it was probably copied from another file")
    guess = _guess_encoding(around)
    return InvalidRequest(f"{what}; save the file as UTF-8, or pass its encoding, probably --encoding {guess}")


def _find_fault(file: BinaryIO, codec: str) -> tuple[int, int, bytes, bool] | None:
    """Return the line and value of the first undecodable byte, the bytes around it, and whether non-ASCII bytes precede it."""
    decoder, newlines = codecs.getincrementaldecoder(codec)(), IncrementalNewlineDecoder(None, translate=True)
    line, mixed = 1, False
    try:
        while block := file.read(_BLOCK_SIZE):
            text = decoder.decode(block)
            line, mixed = line + newlines.decode(text).count("\n"), mixed or not text.isascii()
        decoder.decode(b"", final=True)
    except UnicodeError as error:
        # A missing byte order mark is a plain UnicodeError up to Python 3.13; later, the error names the codec that expected it.
        if isinstance(error, UnicodeDecodeError) and error.encoding not in {"utf-16", "utf-32"}:
            start, read = error.start, error.object
            text = read[:start].decode(codec, "ignore")
            around = read[max(start - _CONTEXT_SIZE, 0) : start + _CONTEXT_SIZE]
            line += newlines.decode(text, final=True).count("\n")
            return line, read[start], around, mixed or not text.isascii()
    return None


def _guess_encoding(sample: bytes) -> str:
    """Return the probable encoding. Without charset-normalizer, or for a small sample, this is Windows-1252."""
    if find_spec("charset_normalizer") is None or sum(byte > _MAX_ASCII for byte in sample) < _MIN_NON_ASCII:
        return _CANDIDATES[0]
    from charset_normalizer import from_bytes

    best = from_bytes(sample, cp_isolation=list(_CANDIDATES)).best()
    return best.encoding if best else _CANDIDATES[0]


MAX_LINE_LENGTH: Final = 1 << 24
"""Maximum number of characters in a line. A file without line breaks would have to be held in memory as a whole."""


def read_lines(source: ByteSource, codec: str) -> Generator[str]:
    """Yield the lines with their line endings, which may be LF, CR LF, or CR (classic Mac OS).

    Raises:
        InvalidRequest: The file is unreadable, not in that encoding, or has a line that is too long.
    """
    number = 0
    try:
        with source.open_unpacked() as file, TextIOWrapper(file, encoding=codec, newline="") as text:
            while line := text.readline(MAX_LINE_LENGTH):
                number += 1
                if len(line) == MAX_LINE_LENGTH:
                    limit = f"{MAX_LINE_LENGTH:,} characters"
                    raise InvalidRequest(f"{source.name}: line {number} is longer than {limit}; check that the file is a table")
                yield line
    except UnicodeError:
        raise undecodable_error(source, codec) from None
