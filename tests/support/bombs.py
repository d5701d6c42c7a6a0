"""Decompression bombs: small workbook files with enormous sheets, some of them damaged."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from typing import Final

from support.files import MAIN, at, old_workbook, opendocument_of, text, workbook

SHEET: Final = "xl/worksheets/sheet1.xml"
HEADER: Final = f'<row r="1">{at("A1", text("email"))}</row>'


def pack_archive(content: bytes, extra: bytes = b"") -> bytes:
    """Return an archive with the parts compressed; `extra` is the content of one more part."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as plain, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in plain.namelist():
            archive.writestr(name, plain.read(name))
        archive.writestr("xl/media/image.bin", extra)
    return file.getvalue()


def xlsx_with(sheet: Callable[[], Iterator[bytes]], extra: bytes = b"") -> bytes:
    """Return an XLSX file whose sheet is generated piece by piece, because it may not fit in memory."""
    file = io.BytesIO(pack_archive(workbook({"A": ""}, leave_out=[SHEET]), extra))
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive, archive.open(SHEET, "w", force_zip64=True) as part:
        part.write(f'<worksheet xmlns="{MAIN}"><sheetData>{HEADER}'.encode())
        for piece in sheet():
            part.write(piece)
        part.write(b"</sheetData></worksheet>")
    return file.getvalue()


def a_cell_of(megabytes: int, extra: bytes = b"") -> bytes:
    """Return an XLSX file with one cell of `megabytes` million characters."""

    def sheet() -> Iterator[bytes]:
        yield b'<row r="2"><c r="A2" t="inlineStr"><is><t>'
        for _ in range(megabytes):
            yield b"a" * 1_000_000
        yield b"</t></is></c></row>"

    return xlsx_with(sheet, extra)


def understated_archive(content: bytes, size: int) -> bytes:
    """Return an archive that declares `size` as the uncompressed size of its last part."""
    changed = bytearray(content)
    struct.pack_into("<I", changed, content.rindex(b"PK\1\2") + 24, size)
    return bytes(changed)


def a_cell_at(row: int, column: int) -> bytes:
    """Return an XLS file whose number is in another cell; `row` and `column` start at 0."""
    content = bytearray(old_workbook())
    struct.pack_into("<HH", content, content.index(struct.pack("<d", 41791234567.0)) - 6, row, column)
    return bytes(content)


def repeated_cell(rows: int, columns: int) -> bytes:
    """Return an ODS file with one cell that is repeated over `rows` rows and `columns` columns."""
    cell = f'<table:table-cell table:number-columns-repeated="{columns}" office:value-type="string"><text:p>x</text:p>'
    return opendocument_of(f'<table:table-row table:number-rows-repeated="{rows}">{cell}</table:table-cell></table:table-row>')


def noise(size: int) -> bytes:
    """Return incompressible bytes."""
    return random.Random(1).randbytes(size)  # noqa: S311 - the same on each run


LAST_CELL: Final = pack_archive(workbook({"A": f'{HEADER}<row r="1048576">{at("XFD1048576", text("x"))}</row>'}))
"""An XLSX file with two cells, in the first and the last cell of the largest sheet: 16,384 columns and 1,048,576 rows."""

FAR_ROWS: Final = pack_archive(workbook({"A": f'{HEADER}<row r="1048576">{at("A1048576", text("x"))}</row>'}))
"""An XLSX file with one column and about a million blank rows between two cells."""

BOMBS: Final[dict[str, Callable[[], bytes]]] = {
    "xlsx, last cell": lambda: LAST_CELL,
    "xlsx, long cell": lambda: a_cell_of(100),
    "xlsx, long cell beside an image": lambda: a_cell_of(200, noise(1_200_000)),
    "xls, last cell": lambda: a_cell_at(65535, 255),
    "xls, a column beyond": lambda: a_cell_at(65535, 65535),
    "ods, repeated cells": lambda: repeated_cell(65536, 256),
    "ods, repeated columns": lambda: repeated_cell(1000, 16384),
    "ods, as many as there can be": lambda: repeated_cell(1048576, 16384),
}
"""Functions that create files of at most 2 MB whose content needs at least 0.4 GB of memory."""
