"""Which encoding a text file is in: what it says itself, else UTF-8, else what the caller says; and where it is not."""

from __future__ import annotations

import codecs
from importlib.util import find_spec
from io import IncrementalNewlineDecoder
from typing import BinaryIO, Final, NamedTuple

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.importer.source import Source

UTF_8: Final = "utf-8-sig"

# The longer marks first: that of UTF-32 begins with that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF8, UTF_8, "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
_HEAD: Final = 512
_BLOCK: Final = 1 << 16
_AROUND: Final = 1 << 14
"""Bytes before and after one that cannot be read from which its encoding is guessed."""

_LIKELY: Final = ("cp1252", "cp1251", "cp1253", "cp1255", "cp932", "gb18030", "euc_kr", "big5", "mac_roman")
"""Encodings that can be told apart, one a script: among several of the Latin script, statistics mislead."""

_ASCII, _ENOUGH = 0x7F, 8
"""Fewer bytes beyond ASCII prove nothing."""


@attrs.frozen
class Encoding:
    """How bytes become text.

    Attributes:
        codec: As Python calls it.
        notes: What a person should know of it.
    """

    codec: str
    notes: tuple[str, ...] = ()


def encoding_of(source: Source, asked: str | None) -> Encoding:
    """Decide how to read a file.

    Args:
        source: The file.
        asked: What the caller said.

    Raises:
        InvalidRequest: What the caller said is no encoding, or not what the file says itself.
    """
    codec = _codec(asked) if asked is not None else None
    with source.plain() as file:
        head = file.read(_HEAD)
    for mark, own, name in _MARKS:
        if head.startswith(mark):
            if codec is not None and not codec.startswith(name.lower()):
                raise InvalidRequest(
                    f"{source.name}: begins with the byte order mark of {name}, not {asked!r}; leave the encoding out"
                )
            return Encoding(own, () if own == UTF_8 else (f"read as {name}, as its byte order mark says",))
    if codec is None:
        _refuse_wide(source, head)
    if codec is None or codec == "utf-8":
        return Encoding(UTF_8)
    return Encoding(codec, (f"read as {asked}, as you asked",))


def _codec(asked: str) -> str:
    try:
        "".encode(asked)  # which only a text encoding does, unlike codecs.lookup: base64 is a codec too
        return codecs.lookup(asked).name
    except (LookupError, ValueError):
        raise InvalidRequest(
            f"encoding: {asked!r} is none that is known; write for example 'cp1252', 'latin-1' or 'utf-16'"
        ) from None


def _refuse_wide(source: Source, head: bytes) -> None:
    """Refuse UTF-16 without a byte order mark, which would be read as UTF-8 with a NUL beside each letter."""
    if is_wide(head):
        guess = "utf-16-be" if head.startswith(b"\0") else "utf-16-le"
        raise InvalidRequest(
            f"{source.name}: every other byte is zero, as in UTF-16; say so, as in --encoding {guess} (encoding={guess!r})"
        )


def is_wide(head: bytes) -> bool:
    """Whether a file that begins so, without a byte order mark, looks like UTF-16: about every other byte is zero."""
    return head.count(b"\0") * 3 > len(head) and b"\0\0" not in head


def undecodable(source: Source, codec: str) -> InvalidRequest:
    """Say where a file cannot be read as text, and what to do; the file is read up to there."""
    with source.plain() as file:
        place = _fault(file, codec)
    if place is None:  # what a codec says that looks for a mark and finds none
        little = f"{codec}-le"
        return InvalidRequest(
            f"{source.name}: begins with no byte order mark, so say which: --encoding {little} (encoding={little!r}), or -be"
        )
    what = f"{source.name}: line {place.line} is not {_called(codec)} text (byte 0x{place.byte:02x})"
    if place.mixed:
        return InvalidRequest(f"{what}, but lines before it are; mend that line: it was probably put in from another file")
    guess = _guess(place.around)
    return InvalidRequest(
        f"{what}; save it in UTF-8, or say what it is in, which is probably {guess}: --encoding {guess} (encoding={guess!r})"
    )


def _called(codec: str) -> str:
    return "UTF-8" if codec == UTF_8 else codec


class _Place(NamedTuple):
    """The first byte that cannot be read: its line, itself, those around it, and whether others beyond ASCII could be read."""

    line: int
    byte: int
    around: bytes
    mixed: bool


def _fault(file: BinaryIO, codec: str) -> _Place | None:
    decoder, newlines = codecs.getincrementaldecoder(codec)(), IncrementalNewlineDecoder(None, translate=True)
    line, mixed = 1, False
    try:
        while block := file.read(_BLOCK):
            text = decoder.decode(block)
            line, mixed = line + newlines.decode(text).count("\n"), mixed or not text.isascii()
        decoder.decode(b"", final=True)
    except UnicodeError as error:
        # No mark: a bare UnicodeError until Python 3.13, which names the codec that looked for one.
        if isinstance(error, UnicodeDecodeError) and error.encoding not in {"utf-16", "utf-32"}:
            start, read = error.start, error.object
            text = read[:start].decode(codec, "ignore")
            around = read[max(start - _AROUND, 0) : start + _AROUND]
            line += newlines.decode(text, final=True).count("\n")
            return _Place(line, read[start], around, mixed or not text.isascii())
    return None


def _guess(sample: bytes) -> str:
    """Return the encoding that a text is probably in; without charset-normalizer, what most programs of Windows write."""
    if find_spec("charset_normalizer") is None or sum(byte > _ASCII for byte in sample) < _ENOUGH:
        return _LIKELY[0]
    from charset_normalizer import from_bytes

    found = from_bytes(sample, cp_isolation=list(_LIKELY)).best()
    return found.encoding if found else _LIKELY[0]
