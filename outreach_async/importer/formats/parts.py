"""What an XLSX file knows of its cells beyond their values: which are errors, and which show zeros before their number.

python-calamine reads values only: an error comes as a blank, and 00123 as 123. Both stand in the parts of the file, which are
XML in a zip archive and are read here as they stream by.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, BinaryIO, Final, NamedTuple
from xml.parsers import expat

from outreach_async.errors import InvalidRequest

_WORKBOOK: Final = "xl/workbook.xml"
_RELATIONS: Final = "xl/_rels/workbook.xml.rels"
_STYLES: Final = "xl/styles.xml"
_RELATION: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships id"
_STRICT_RELATION: Final = "http://purl.oclc.org/ooxml/officeDocument/relationships id"

_BLOCK: Final = 1 << 16
_ZEROS: Final = re.compile(r"0{2,}")


class Mark(NamedTuple):
    """What is special about a cell.

    Attributes:
        row: From 0.
        column: From 0.
        width: Digits that its number is shown with at least; 0 for a cell that shows an error.
    """

    row: int
    column: int
    width: int


def is_xlsx(file: BinaryIO) -> bool:
    """Whether the parts of a file can be read here."""
    try:
        with zipfile.ZipFile(file) as archive:
            return _WORKBOOK in archive.namelist()
    except zipfile.BadZipFile:
        return False


def marks_of(file: BinaryIO, sheet: str) -> Iterator[Mark]:
    """Yield the marks of a sheet, in the order of its cells.

    Raises:
        InvalidRequest: The parts of the file do not hang together.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            widths = _widths(archive)
            with archive.open(_part(archive, sheet)) as part:
                yield from _marks(part, widths)
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, RuntimeError, expat.ExpatError) as error:
        raise InvalidRequest(f"sheet {sheet!r} cannot be read ({error}); save the workbook anew") from error


def _part(archive: zipfile.ZipFile, sheet: str) -> str:
    """Return the path of a sheet's part."""
    with archive.open(_WORKBOOK) as file:
        found = [attributes for _, attributes in _elements(file, "sheet") if attributes.get("name") == sheet]
    relation = found[0].get(_RELATION) or found[0][_STRICT_RELATION] if found else ""
    with archive.open(_RELATIONS) as file:
        targets = {attributes.get("Id"): attributes.get("Target", "") for _, attributes in _elements(file, "Relationship")}
    target = targets[relation]
    return target.removeprefix("/") if target.startswith("/") else f"xl/{target}"


def _widths(archive: zipfile.ZipFile) -> dict[str, int]:
    """Return by style how many digits it shows at least, for the styles that are nothing but zeros."""
    if _STYLES not in archive.namelist():
        return {}
    formats: dict[str | None, int] = {}
    widths: dict[str, int] = {}
    kind, style = "", 0
    with archive.open(_STYLES) as file:
        for name, attributes in _elements(file, "numFmt", "cellXfs", "cellStyleXfs", "dxfs", "xf"):
            if name == "numFmt":
                code = attributes.get("formatCode", "")
                formats[attributes.get("numFmtId")] = len(code) if _ZEROS.fullmatch(code) else 0
            elif name != "xf":
                kind = name
            elif kind == "cellXfs":
                if width := formats.get(attributes.get("numFmtId")):
                    widths[str(style)] = width
                style += 1
    return widths


def _marks(file: IO[bytes], widths: dict[str, int]) -> Iterator[Mark]:
    row, column = -1, -1
    for name, attributes in _elements(file, "row", "c"):
        if name == "row":
            row, column = int(attributes.get("r", row + 2)) - 1, -1
            continue
        column = _column(attributes["r"]) if "r" in attributes else column + 1
        if attributes.get("t") == "e":
            yield Mark(row, column, 0)
        elif width := widths.get(attributes.get("s", "")):
            yield Mark(row, column, width)


def _column(place: str) -> int:
    """Return the column of a place such as `B3`, from 0."""
    column = 0
    for letter in place.rstrip("0123456789"):
        column = column * 26 + ord(letter) - ord("A") + 1
    return column - 1


def _elements(file: IO[bytes], *wanted: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the local name and the attributes of each element of these names as it begins."""
    found: list[tuple[str, dict[str, str]]] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def begin(name: str, attributes: dict[str, str]) -> None:
        if (local := name.rpartition(" ")[2]) in wanted:
            found.append((local, attributes))

    parser.StartElementHandler = begin
    while block := file.read(_BLOCK):
        parser.Parse(block, False)
        yield from found
        found.clear()
