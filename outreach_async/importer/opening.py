"""Which format a file is in, and the file opened as such."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final, Literal, TypeAlias, get_args

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.importer.file import File, Table
from outreach_async.importer.formats.csv_file import CsvFile
from outreach_async.importer.formats.encoding import is_wide
from outreach_async.importer.formats.json_lines import JsonLinesFile
from outreach_async.importer.source import Given, Source
from outreach_async.transport.arguments import require

Format: TypeAlias = Literal["csv", "jsonl", "parquet", "xlsx"]
r"""A format: `xlsx` stands for all workbooks.

Example:
    ```python
    Path("people.txt").write_text("E-mail\nann@company.example\n")
    print(open_file("people.txt", format="csv").headers)  # -> ('E-mail',)
    ```
"""

FORMATS: Final[tuple[str, ...]] = get_args(Format)
"""What `open_file` takes as `format`.

Example:
    ```python
    print(FORMATS)  # -> ('csv', 'jsonl', 'parquet', 'xlsx')
    ```
"""

_SUFFIXES: Final[dict[str, Format]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".txt": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
    ".xlsm": "xlsx",
    ".xlsb": "xlsx",
    ".xls": "xlsx",
    ".ods": "xlsx",
}
_TEXTS: Final = frozenset({"csv", "jsonl"})
_HEAD: Final = 512
_OBJECT: Final = re.compile(rb'\s*\[?\s*\{\s*["}]')
_MARKS: Final = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_PARTS: Final = (b"xl/workbook.", b"xl/worksheets/", b"content.xml")
_BLOCK: Final = 1 << 18
_KNOWN: Final = (
    "known are csv (.csv .tsv .tab .txt), jsonl (.jsonl .ndjson .json), parquet (.parquet .pq)"
    " and xlsx (.xlsx .xlsm .xlsb .xls .ods), the first two as gzip (.gz) too"
)


def open_file(
    path: Given,
    *,
    encoding: str | None = None,
    sheet: str | None = None,
    format: str | None = None,  # noqa: A002 - what everybody calls it
) -> File:
    r"""Open a file of rows, and read its header.

    The suffix says which format it is in; where it says nothing, the first bytes do.

    Args:
        path: Where the file is; `"-"` is standard input, and a stream of bytes will do. A stream is kept in a temporary file.
        encoding: How to read a text; without, it has to be UTF-8, or begin with a byte order mark.
        sheet: Name of the sheet of a workbook; without, the first that can be seen.
        format: `"csv"`, `"jsonl"`, `"parquet"` or `"xlsx"`, whatever the file looks like.

    Raises:
        InvalidRequest: Not readable, of no format that is known, an option that the format does not have, or an extra is missing.

    Example:
        ```python
        Path("people.csv").write_text("E-mail;City\nann@company.example;Lyon\n")
        file = open_file("people.csv")
        print(file.headers, file.count())  # -> ('E-mail', 'City') 1
        ```
    """
    source = Source.of(path)
    chosen, notes = (_asked(format), ()) if format is not None else _found(source)
    if sheet is not None and chosen != "xlsx":
        raise InvalidRequest(f"sheet: {source.name} is read as {chosen}, and only a workbook has sheets; leave it out")
    if encoding is not None and chosen not in _TEXTS:
        raise InvalidRequest(f"encoding: {source.name} is read as {chosen}, which says itself how to read it; leave it out")
    file = _opened(source, chosen, encoding, sheet)
    return attrs.evolve(file, notes=(*notes, *file.notes))


def _opened(source: Source, chosen: str, encoding: str | None, sheet: str | None) -> Table:
    if chosen == "csv":
        return CsvFile.of(source, encoding)
    if chosen == "jsonl":
        return JsonLinesFile.of(source, encoding)
    if source.zipped:
        raise InvalidRequest(f"{source.name}: gzip, which can hold csv and jsonl only; unpack it first")
    if chosen == "parquet":
        require("pyarrow", "outreach_async[parquet]")
        from outreach_async.importer.formats.parquet import ParquetFile

        return ParquetFile.of(source)
    require("python_calamine", "outreach_async[xlsx]")
    from outreach_async.importer.formats.workbook import WorkbookFile

    return WorkbookFile.of(source, sheet)


def _asked(asked: str) -> str:
    if asked not in FORMATS:
        raise InvalidRequest(f"format: expected one of {', '.join(FORMATS)}, got {asked!r}; pass one of them")
    return asked


def _found(source: Source) -> tuple[str, tuple[str, ...]]:
    """Return the format by the suffix, else by the first bytes and with a note.

    Raises:
        InvalidRequest: Neither tells, or they contradict each other.
    """
    with source.plain() as file:
        head = file.read(_HEAD)
    named, looks = _SUFFIXES.get(_suffix(source)), _looks(source, head)
    if named is None and looks is None:
        raise InvalidRequest(f"{source.name}: of no format that is known; {_KNOWN}")
    if named is None:
        return str(looks), (f"read as {looks}, which is what it looks like",)
    if head and looks not in {None, named} and not {looks, named} <= _TEXTS:  # some programs call a text .xls
        raise InvalidRequest(
            f"{source.name}: is called {named} but looks like {looks}; say which, as in --format {looks} (format={looks!r})"
        )
    return named, ()


def _suffix(source: Source) -> str:
    name = PurePath(source.name)
    return (PurePath(name.stem) if name.suffix.lower() == ".gz" else name).suffix.lower()


def _looks(source: Source, head: bytes) -> str | None:
    """Return the format that the first bytes tell; `None` for bytes of a kind that is not known."""
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"\xd0\xcf\x11\xe0"):  # what Microsoft kept its documents in before 2007
        return "xlsx"
    if head.startswith(b"PK"):
        return "xlsx" if _is_workbook(source) else None
    if b"\0" in head and not head.startswith(_MARKS) and not is_wide(head):
        return None
    return "jsonl" if _OBJECT.match(head.removeprefix(_MARKS[0])) else "csv"


def _is_workbook(source: Source) -> bool:
    """Whether a zip archive has the parts of a workbook: of Microsoft's kind, or of OpenDocument's.

    Names stand in an archive as they are. They are looked for without reading its directory, which may be enormous.
    """
    if source.zipped:
        return True  # gzip is refused later, and might unpack without end
    last = b""
    with source.raw() as file:
        while block := file.read(_BLOCK):
            if any(name in last + block for name in _PARTS):
                return True
            last = block[-_HEAD:]
    return False
