"""Look into ZIP archives, which workbooks also are, without unpacking them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from outreach_async.errors import InvalidRequest, format_count, shorten
from outreach_async.importer._source import ByteSource

_WORKBOOK_PARTS: Final = (b"xl/workbook.", b"xl/worksheets/", b"content.xml")
_DOCUMENTS: Final = {
    "Index/Document.iwa": "a document of Apple Numbers; export it as CSV or XLSX",
    "word/document.xml": "a Word document; copy its table into a spreadsheet, and save it as XLSX",
}
_BLOCK_SIZE: Final = 1 << 18
_OVERLAP: Final = 512  # bytes; longer than the name of a part
_MAX_DIRECTORY: Final = 1 << 16  # bytes of the directory that are read: it may list a million names
_MAX_SHOWN: Final = 5
_MAX_NAME: Final = 60  # characters
_END: Final = struct.Struct("<4s6xHLL2x")  # of the directory: its signature, the number of files, its size and its place
_MAX_COMMENT: Final = 1 << 16
_ENTRY: Final = struct.Struct("<4s4xH18xHHH12x")  # a signature, flags, and the lengths of a name, extra data and a comment
_UTF_8: Final = 1 << 11  # the flag of a name in UTF-8


def is_workbook(source: ByteSource) -> bool:
    """Return whether a ZIP archive contains the names of parts of a Microsoft or OpenDocument workbook."""
    names, count = _list_names(source)
    if names and len(names) == count:
        return any(name.startswith(part.decode()) for part in _WORKBOOK_PARTS for name in names)
    last = b""  # the archive is damaged, or its directory is huge
    with source.open_raw() as file:
        while block := file.read(_BLOCK_SIZE):
            if any(name in last + block for name in _WORKBOOK_PARTS):
                return True
            last = block[-_OVERLAP:]
    return False


def describe_archive(source: ByteSource) -> str:
    """Return what an archive is, the first names in it, and what to do with it."""
    names, count = _list_names(source)
    if known := next((_DOCUMENTS[name] for name in names if name in _DOCUMENTS), None):
        return known
    files = [name for name in names if not name.endswith("/") and not name.startswith("__MACOSX/")]
    more = max(count, len(names)) - len(names) + len(files) - _MAX_SHOWN
    shown = [repr(shorten(name, _MAX_NAME)) for name in files[:_MAX_SHOWN]]
    shown += [format_count(more, "more file")] if more > 0 and shown else []
    return f"a ZIP archive{' with ' if shown else ''}{', '.join(shown)}; unpack it, and import the table in it"


def _list_names(source: ByteSource) -> tuple[list[str], int]:
    """Return names of files in an archive, and the number of all; nothing if its directory cannot be read."""
    try:
        return _read_names(source)
    except (struct.error, InvalidRequest, OverflowError):
        return [], 0


def _read_names(source: ByteSource) -> tuple[list[str], int]:
    with source.open_raw() as file:
        size = file.seek(0, 2)
        file.seek(max(size - _END.size - _MAX_COMMENT, 0))
        tail = file.read()
        found = tail.rfind(b"PK\5\6")
        if found < 0:
            return [], 0
        _, count, length, place = _END.unpack_from(tail, found)
        file.seek(place)
        return [*_parse_names(file.read(min(length, _MAX_DIRECTORY)))], count


def _parse_names(directory: bytes) -> Iterator[str]:
    at = 0
    while at + _ENTRY.size <= len(directory):
        signature, flags, name, extra, comment = _ENTRY.unpack_from(directory, at)
        start = at + _ENTRY.size
        if signature != b"PK\1\2" or start + name > len(directory):
            return
        yield directory[start : start + name].decode("utf-8" if flags & _UTF_8 else "cp437", "replace")
        at = start + name + extra + comment
