"""Detect the format of a file, and open it."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final, Literal, TypeAlias, get_args

import attrs

from outreach_async._files.optional import require_module
from outreach_async._service.validation import require_number
from outreach_async.errors import InvalidRequest
from outreach_async.importer._csv_file import CsvFile
from outreach_async.importer._jsonl import JsonLinesFile
from outreach_async.importer._source import ByteSource, FileInput, is_utf16_like
from outreach_async.importer._table import File

Format: TypeAlias = Literal["csv", "jsonl", "parquet", "xlsx"]
r"""A file format; `xlsx` means any kind of workbook.

Example:
    ```python
    Path("people.txt").write_text("E-mail\nann@company.example\n")
    print(open_file("people.txt", format="csv").headers)  # -> ('E-mail',)
    ```
"""

FORMATS: Final[tuple[str, ...]] = get_args(Format)
"""The formats that `open_file` accepts.

Example:
    ```python
    print(FORMATS)  # -> ('csv', 'jsonl', 'parquet', 'xlsx')
    ```
"""

_SUFFIXES: Final[dict[Format, tuple[str, ...]]] = {
    "csv": (".csv", ".tsv", ".tab", ".txt"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet", ".pq"),
    "xlsx": (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
}
_TEXT_FORMATS: Final = frozenset({"csv", "jsonl"})
_HEADED_FORMATS: Final = frozenset({"csv", "xlsx"})
_HEAD_SIZE: Final = 512
_OBJECT: Final = re.compile(rb'\s*\[?\s*\{\s*["}]')
_BYTE_ORDER_MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_WORKBOOK_PARTS: Final = (b"xl/workbook.", b"xl/worksheets/", b"content.xml")
_BLOCK_SIZE: Final = 1 << 18
_OTHER_KINDS: Final = {
    "a PDF document": rb"%PDF-",
    "an image": rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|II\*\0|MM\0\*|RIFF....WEBP|....ftyp(?:heic|heix|mif1|avif)",
    "an HTML page": rb"(?i:\s*<(?:!doctype html|html|head|body|table)[\s>])",
    "a vCard file": rb"(?i:BEGIN:VCARD\b)",
    "an RTF document": rb"\{\\rtf",
}


def open_file(
    path: FileInput,
    *,
    encoding: str | None = None,
    sheet: str | None = None,
    header_row: int | None = None,
    format: str | None = None,  # noqa: A002 - the usual name of such an argument
) -> File:
    r"""Open a file of rows and read its header.

    Args:
        path: Path of the file, `"-"` for standard input, or a binary stream. A stream is copied to a temporary file.
        encoding: Encoding of a text file. By default, the file must be UTF-8 or begin with a byte order mark.
        sheet: Name of the sheet of a workbook; by default, the first visible sheet.
        header_row: Line of a CSV file, or row of a workbook, with the column names, from 1; by default, the first row that is not
            blank. Rows above it, such as a title, are skipped.
        format: One of `FORMATS`; by default, the suffix determines it or, if that is unknown, the first bytes.

    Raises:
        InvalidRequest: The file is unreadable or of an unknown format, an option does not fit the format, or an extra is missing.

    Example:
        ```python
        Path("people.csv").write_text("E-mail;City\nann@company.example;Lyon\n")
        file = open_file("people.csv")
        print(file.headers, file.count())  # -> ('E-mail', 'City') 1
        ```
    """
    source = ByteSource.of(path)
    if format is not None and format not in FORMATS:
        raise InvalidRequest(f"format: expected one of {', '.join(FORMATS)}, got {format!r}; pass one of them")
    with source.open_unpacked() as stream:
        head = stream.read(_HEAD_SIZE)
    for kind, pattern in _OTHER_KINDS.items():
        if re.match(pattern, head.removeprefix(_BYTE_ORDER_MARKS[0]), re.DOTALL):
            raise InvalidRequest(f"{source.name}: expected a table, got {kind}; export the contacts as CSV or XLSX")
    chosen, notes = (format, ()) if format is not None else _detect_format(source, head)
    if sheet is not None and chosen != "xlsx":
        raise InvalidRequest(f"sheet: expected a workbook, got {source.name}, which is read as {chosen}; omit --sheet")
    if encoding is not None and chosen not in _TEXT_FORMATS:
        raise InvalidRequest(f"encoding: {source.name} is read as {chosen}, which states its own encoding; omit --encoding")
    if header_row is not None:
        require_number("header_row", header_row, least=1)
        if chosen not in _HEADED_FORMATS:
            raise InvalidRequest(f"header_row: expected csv or xlsx, got {source.name}, read as {chosen}; omit --header-row")
    file = _open_as(source, chosen, encoding, sheet, header_row or 1)
    return attrs.evolve(file, notes=(*notes, *file.notes))


def _open_as(source: ByteSource, chosen: str, encoding: str | None, sheet: str | None, header_row: int) -> File:
    if chosen == "csv":
        return CsvFile.of(source, encoding, header_row)
    if chosen == "jsonl":
        return JsonLinesFile.of(source, encoding)
    if source.is_gzip:
        raise InvalidRequest(f"{source.name}: expected csv or jsonl in a gzip file, got {chosen}; unpack the file first")
    if chosen == "parquet":
        require_module("pyarrow", "outreach_async[parquet]")
        from outreach_async.importer._parquet import ParquetFile

        return ParquetFile.of(source)
    require_module("python_calamine", "outreach_async[xlsx]")
    from outreach_async.importer._workbook import WorkbookFile

    return WorkbookFile.of(source, sheet, header_row)


def _detect_format(source: ByteSource, head: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the format of a file by its suffix or, if that is unknown, by its first bytes, and notes for the user."""
    name = PurePath(source.name)
    suffix = (PurePath(name.stem) if name.suffix.lower() == ".gz" else name).suffix.lower()
    named = next((known for known, suffixes in _SUFFIXES.items() if suffix in suffixes), None)
    looks = _detect_by_content(source, head)
    if named is None and looks is None:
        *others, last = (f"{known} ({' '.join(suffixes)})" for known, suffixes in _SUFFIXES.items())
        expected = f"expected {', '.join(others)} or {last}, the first two also as gzip (.gz)"
        raise InvalidRequest(f"{source.name}: unknown format; {expected}; convert the file, or pass --format")
    if named is None:
        return str(looks), (f"format {looks}, detected from the content",)
    if head and looks not in {None, named} and not {looks, named} <= _TEXT_FORMATS:  # some programs save text files as .xls
        raise InvalidRequest(f"{source.name}: expected {named} by its suffix, got {looks} by its content; pass --format {looks}")
    return named, ()


def _detect_by_content(source: ByteSource, head: bytes) -> str | None:
    """Return the format that the first bytes of a file indicate; `None` for unknown binary data."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"\xd0\xcf\x11\xe0"):  # the container format of Microsoft Office before 2007
        return "xlsx"
    if head.startswith(b"PK"):
        return "xlsx" if _is_workbook(source) else None
    if b"\0" in head and not head.startswith(_BYTE_ORDER_MARKS) and not is_utf16_like(head):
        return None
    return "jsonl" if _OBJECT.match(head.removeprefix(_BYTE_ORDER_MARKS[0])) else "csv"


def _is_workbook(source: ByteSource) -> bool:
    """Return whether a zip archive contains the names of parts of a Microsoft or OpenDocument workbook."""
    # The directory of the archive is not read, because it may be huge.
    if source.is_gzip:
        return True  # gzip is rejected later; unpacking it here might never end
    last = b""
    with source.open_raw() as file:
        while block := file.read(_BLOCK_SIZE):
            if any(name in last + block for name in _WORKBOOK_PARTS):
                return True
            last = block[-_HEAD_SIZE:]
    return False
