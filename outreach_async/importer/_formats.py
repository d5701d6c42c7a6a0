"""Detect the format of a file, and open it."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from outreach_async._plumbing import require_module, require_number, require_types, show_name
from outreach_async.errors import InvalidRequest, format_count, shorten
from outreach_async.importer._csv_file import CsvFile, parse_delimiter
from outreach_async.importer._jsonl import JsonLinesFile
from outreach_async.importer._source import ByteSource, FileInput, is_utf16_like
from outreach_async.importer._table import File
from outreach_async.importer._workbook_reader import SheetOptions

_Format: TypeAlias = Literal["csv", "jsonl", "parquet", "xlsx"]
FORMATS: Final[tuple[str, ...]] = get_args(_Format)
"""The formats that `open_file` accepts; `xlsx` means any kind of workbook.

Example:
    ```python
    print(FORMATS)  # -> ('csv', 'jsonl', 'parquet', 'xlsx')
    ```
"""

_SUFFIXES: Final[dict[_Format, tuple[str, ...]]] = {
    "csv": (".csv", ".tsv", ".tab", ".txt"),
    "jsonl": (".jsonl", ".ndjson", ".json"),
    "parquet": (".parquet", ".pq"),
    "xlsx": (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"),
}
_TEXT_FORMATS: Final = frozenset({"csv", "jsonl"})
SHORT_ROWS: Final = ("reject", "pad")
HIDDEN: Final = ("send", "skip")
_FORMATS_OF_OPTIONS: Final = {
    "sheet": ("xlsx",),
    "header_row": ("csv", "xlsx"),
    "delimiter": ("csv",),
    "short_rows": ("csv",),
    "hidden": ("xlsx",),
}
_HEAD_SIZE: Final = 512
_OBJECT: Final = re.compile(rb'\s*\[?\s*\{\s*["}]')
_MEMBER: Final = re.compile(rb'\s*\{\s*"[^"]*"\s*:')  # the begin of an object, which no header of a table has
_BYTE_ORDER_MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_ARCHIVE: Final = (b"PK\3\4", b"PK\5\6")
_EXPORT: Final = "export the contacts as CSV or XLSX"
_SAVE: Final = "open it in a spreadsheet program, and save it as XLSX"
_UNPACK: Final = "unpack it, and import the table in it"
_OTHER_KINDS: Final = {
    "a PDF document": (rb"%PDF-", _EXPORT),
    "an image": (rb"\x89PNG\r\n|\xff\xd8\xff|GIF8[79]a|II\*\0|MM\0\*|RIFF....WEBP|....ftyp(?:heic|heix|mif1|avif)", _EXPORT),
    "an HTML page": (rb"(?i:\s*(?:<\?xml[^>]*>\s*)?<(?:!--|!doctype html|html|head|body|table|meta|style)[\s>])", _SAVE),
    "an XML spreadsheet": (rb"(?i:\s*(?:<\?xml[^>]*>\s*)?<(?:\?mso-application|(?:ss:)?workbook|office:document)[\s>])", _SAVE),
    "an XML document": (rb"\s*<\?xml\s", _EXPORT),
    "a MIME message": (rb"(?i:MIME-Version:\s)", _SAVE),
    "a symbolic link file (SYLK)": (rb"ID;P(?:WXL|S?CALC)", _SAVE),
    "a vCard file": (rb"(?i:BEGIN:VCARD\b)", _EXPORT),
    "an LDIF file": (rb"(?i:version: *1\r?\n|dn::? )", _EXPORT),
    "an RTF document": (rb"\{\\rtf", _EXPORT),
    "a SQLite database": (rb"SQLite format 3\0", _EXPORT),
    "an Outlook data file": (rb"!BDN", _EXPORT),
    "an Arrow file": (rb"ARROW1", "save it as Parquet"),
    "an Avro file": (rb"Obj\x01", _EXPORT),
    "a 7-Zip archive": (rb"7z\xbc\xaf\x27\x1c", _UNPACK),
    "a RAR archive": (rb"Rar!\x1a\x07", _UNPACK),
    "a bzip2 file": (rb"BZh[1-9]1AY&SY", _UNPACK),
    "an xz file": (rb"\xfd7zXZ\0", _UNPACK),
    "a Zstandard file": (rb"\x28\xb5\x2f\xfd", _UNPACK),
    "a tar archive": (rb".{257}ustar", _UNPACK),
}
"""The first bytes of other kinds of files, and what to do with them."""


def open_file(
    path: FileInput,
    *,
    encoding: str | None = None,
    sheet: str | None = None,
    header_row: int | None = None,
    format: str | None = None,  # noqa: A002 - the usual name of such an argument
    delimiter: str | None = None,
    short_rows: str | None = None,
    hidden: str | None = None,
    keys: Sequence[str] = (),
) -> File:
    r"""Open a file of rows and read its header.

    Args:
        path: Path of the file, `"-"` for standard input, a binary stream,
            or a `StoredFile`. A stream is copied to a temporary file.
        encoding: Encoding of a text file. By default, the file must be
            UTF-8 or begin with a byte order mark.
        sheet: Name of the sheet of a workbook; by default, the first
            visible sheet.
        header_row: Line of a CSV file, or row of a workbook, with the
            column names, from 1; by default, the first row that is not
            blank. Rows above it, such as a title, are skipped.
        format: One of `FORMATS`; by default, the suffix determines it or,
            if that is unknown, the first bytes.
        delimiter: Character between the cells of a CSV file, or its name,
            such as `"tab"`; by default, it is detected.
        short_rows: What becomes of a row of a CSV file with fewer cells
            than the header: `"reject"`, the default, or `"pad"`, which
            adds empty cells, whose fields are not sent, and not cleared by
            `blank="clear"`. Some programs omit blank cells at the end of a
            row, but a line break within a cell without quotes also makes a
            row short.
        hidden: What becomes of the hidden rows of a workbook, such as
            those that a filter hides: `"send"`, the default, or `"skip"`,
            which needs XLSX or XLSM.
        keys: The keys of a JSON Lines file, if they are known. Otherwise,
            the whole file is read to collect them.

    Raises:
        InvalidRequest: The file is unreadable or of an unknown format, an
            option does not fit the format, or an extra is missing.

    Example:
        ```python
        Path("people.csv").write_text("E-mail;City\nann@company.example;Lyon\n")
        file = open_file("people.csv")
        print(file.headers, file.count())  # -> ('E-mail', 'City') 1
        ```
    """
    require_types(open_file, locals())
    source = ByteSource.of(path)
    for name, value, choices in ("format", format, FORMATS), ("short_rows", short_rows, SHORT_ROWS), ("hidden", hidden, HIDDEN):
        if value is not None and value not in choices:
            raise InvalidRequest(f"{name}: expected one of {', '.join(choices)}, got {show_name(value)}; pass one of them")
    with source.open_unpacked() as stream:
        head = stream.read(_HEAD_SIZE)
    _require_table(source, head)
    chosen, notes = (format, ()) if format is not None else _detect_format(source, head)
    if encoding is not None and chosen not in _TEXT_FORMATS:
        raise InvalidRequest(f"encoding: {source.name} is read as {chosen}, which states its own encoding; omit --encoding")
    given = {"sheet": sheet, "header_row": header_row, "delimiter": delimiter, "short_rows": short_rows, "hidden": hidden}
    for name, requested in given.items():
        if requested is not None and chosen not in _FORMATS_OF_OPTIONS[name]:
            expected, flag = " or ".join(_FORMATS_OF_OPTIONS[name]), name.replace("_", "-")
            raise InvalidRequest(f"{name}: expected {expected}, got {source.name}, which is read as {chosen}; omit --{flag}")
    if header_row is not None:
        require_number("header_row", header_row, least=1)
    file = _open_as(source, chosen, {**given, "encoding": encoding, "keys": keys})
    return attrs.evolve(file, notes=(*notes, *file.notes))


def _open_as(source: ByteSource, chosen: str, options: Mapping[str, Any]) -> File:
    if chosen == "csv":
        delimiter = None if options["delimiter"] is None else parse_delimiter(options["delimiter"])
        pads = options["short_rows"] == "pad"
        return CsvFile.of(source, options["encoding"], options["header_row"], delimiter, pads=pads)
    if chosen == "jsonl":
        return JsonLinesFile.of(source, options["encoding"], options["keys"])
    if source.is_gzip:
        raise InvalidRequest(f"{source.name}: expected csv or jsonl in a gzip file, got {chosen}; unpack the file first")
    if chosen == "parquet":
        require_module("pyarrow", "outreach_async[parquet]")
        from outreach_async.importer._parquet import ParquetFile

        return ParquetFile.of(source)
    require_module("python_calamine", "outreach_async[xlsx]")
    from outreach_async.importer._workbook import WorkbookFile

    asked = SheetOptions(options["sheet"], options["header_row"], skips_hidden=options["hidden"] == "skip")
    return WorkbookFile.of(source, asked)


def _require_table(source: ByteSource, head: bytes) -> None:
    """Check that a file is of no kind that people take for a table."""
    text = head.removeprefix(_BYTE_ORDER_MARKS[0])
    if head.startswith(_BYTE_ORDER_MARKS[1:]):
        text = head.decode("utf-16", "replace").encode()
    for kind, (pattern, remedy) in _OTHER_KINDS.items():
        if re.match(pattern, text, re.DOTALL):
            raise InvalidRequest(f"{source.name}: expected a table, got {kind}; {remedy}")
    if head.startswith(_ARCHIVE) and not source.is_gzip and not _is_workbook(source):
        raise InvalidRequest(f"{source.name}: expected a table, got {_describe_archive(source)}")


def _detect_format(source: ByteSource, head: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the format of a file by its suffix or, if that is unknown, by its first bytes, and notes for the user."""
    name = PurePath(source.name)
    suffix = (PurePath(name.stem) if name.suffix.lower() == ".gz" else name).suffix.lower()
    named = next((known for known, suffixes in _SUFFIXES.items() if suffix in suffixes), None)
    looks = detect_by_content(head)
    if named is None and looks is None:
        *others, last = (f"{known} ({' '.join(suffixes)})" for known, suffixes in _SUFFIXES.items())
        expected = f"expected {', '.join(others)} or {last}, the first two also as gzip (.gz)"
        raise InvalidRequest(f"{source.name}: unknown format; {expected}; convert the file, or pass --format")
    if named is None:
        return str(looks), (f"format {looks}, detected from the content",)
    are_texts = {looks, named} <= _TEXT_FORMATS and not _MEMBER.match(head)
    if head and looks not in {None, named} and not are_texts:  # some programs save text files as .xls
        raise InvalidRequest(f"{source.name}: expected {named} by its suffix, got {looks} by its content; pass --format {looks}")
    return named, ()


def detect_by_content(head: bytes) -> str | None:
    """Return the format that the first bytes of a file indicate; `None` for unknown binary data."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"\xd0\xcf\x11\xe0"):  # the container format of Microsoft Office before 2007
        return "xlsx"
    if head.startswith(_ARCHIVE):
        return "xlsx"  # gzip is rejected later
    head = head.rstrip(b"\0") or head  # a crash may leave NUL bytes after the text
    if b"\0" in head and not head.startswith(_BYTE_ORDER_MARKS) and not is_utf16_like(head):
        return None
    return "jsonl" if _OBJECT.match(head.removeprefix(_BYTE_ORDER_MARKS[0])) else "csv"


# Archives, which workbooks also are. They are not unpacked.

_WORKBOOK_PARTS: Final = (b"xl/workbook.", b"xl/worksheets/", b"content.xml")
_DOCUMENTS: Final = {
    "Index/Document.iwa": "a document of Apple Numbers; export it as CSV or XLSX",
    "word/document.xml": "a Word document; copy its table into a spreadsheet, and save it as XLSX",
}
_BLOCK_SIZE: Final = 1 << 18
_OVERLAP: Final = 512  # bytes; longer than the name of a part
_MAX_DIRECTORY: Final = 1 << 20  # bytes of the list of names: it may have millions
_MAX_TAIL: Final = (1 << 16) + 22  # bytes of the end of an archive, which has the size of the list, and a comment
_MAX_SHOWN: Final = 5
_MAX_NAME: Final = 60  # characters


def _is_workbook(source: ByteSource) -> bool:
    """Return whether a ZIP archive contains the names of parts of a Microsoft or OpenDocument workbook."""
    if names := _list_names(source):
        return any(name.startswith(part.decode()) for part in _WORKBOOK_PARTS for name in names)
    last = b""
    with source.open_raw() as file:
        while block := file.read(_BLOCK_SIZE):
            if any(name in last + block for name in _WORKBOOK_PARTS):
                return True
            last = block[-_OVERLAP:]
    return False


def _describe_archive(source: ByteSource) -> str:
    """Return what an archive is, the first names in it, and what to do with it."""
    names = _list_names(source)
    if known := next((_DOCUMENTS[name] for name in names if name in _DOCUMENTS), None):
        return known
    files = [name for name in names if not name.endswith("/") and not name.startswith("__MACOSX/")]
    shown = [repr(shorten(name, _MAX_NAME)) for name in files[:_MAX_SHOWN]]
    shown += [format_count(len(files) - _MAX_SHOWN, "more file")] if len(files) > _MAX_SHOWN else []
    return f"a ZIP archive{' with ' if shown else ''}{', '.join(shown)}; unpack it, and import the table in it"


def _list_names(source: ByteSource) -> list[str]:
    """Return the names of the files in an archive; none if its directory is damaged or very long."""
    with suppress(zipfile.BadZipFile, NotImplementedError, ValueError, InvalidRequest), source.open_raw() as file:
        file.seek(max(file.seek(0, io.SEEK_END) - _MAX_TAIL, 0))
        end = (tail := file.read()).rfind(b"PK\5\6")
        if int.from_bytes(tail[end + 12 : end + 16], "little") <= _MAX_DIRECTORY:
            return zipfile.ZipFile(file).namelist()
    return []
