"""Workbooks, XLSX above all, by python-calamine; the sheet is held whole, as a workbook has to be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import attrs
from python_calamine import (
    CalamineError,
    CalamineWorkbook,
    SheetTypeEnum,
    SheetVisibleEnum,
)

from outreach_async.errors import InvalidRequest
from outreach_async.importer.file import Heading, Table
from outreach_async.importer.formats.parts import Mark, is_xlsx, marks_of
from outreach_async.importer.formats.values import number_flaw, text_of
from outreach_async.importer.record import Record
from outreach_async.importer.source import Source
from outreach_async.importer.suspects import Flaw

_ENCRYPTED: Final = "EncryptedPackage".encode("utf-16-le")
_ERROR: Final = "the cell shows an error such as #N/A; mend its formula, or clear it"
_BLIND: Final = "cells that show an error such as #N/A are read as blank in this kind of workbook; save it as XLSX to find them"


@attrs.frozen(kw_only=True)
class WorkbookFile(Table):
    """One sheet of a workbook: XLSX and XLSM, and as far as they tell, XLSB, XLS and ODS.

    Attributes:
        sheet: Its name.
        marked: Whether the file tells which cells show an error or zeros before their number.
    """

    sheet: str
    marked: bool

    @classmethod
    def of(cls, source: Source, sheet: str | None = None) -> WorkbookFile:
        """Read the header: the first row that is not blank.

        Args:
            source: The workbook.
            sheet: Name of the sheet; without, the first that can be seen.

        Raises:
            InvalidRequest: Not readable, shut by a password, without that sheet, or empty.
        """
        with _opened(source) as book:
            name, notes = _choice(source, book, sheet)
        with source.raw() as file:
            marked = is_xlsx(file)
        bare = cls(source=source, heading=Heading((), rejects=False, notes=()), sheet=name, marked=marked)
        heading = Heading.of(source.name, next((record.cells for record in bare._all()), ()))
        return attrs.evolve(bare, heading=heading, notes=(*notes, *([] if marked else [_BLIND]), *heading.notes))

    def _read(self) -> Iterator[Record]:
        return islice(self._all(), 1, None)

    def _all(self) -> Iterator[Record]:
        """Yield the rows that are not blank, the header first."""
        with _opened(self.source) as book, self.source.raw() as file:
            sheet = book.get_sheet_by_name(self.sheet)
            left = sheet.start[1] if sheet.start else 0  # columns before the first that is used are not given
            marks = _Marks(marks_of(file, self.sheet) if self.marked else iter(()))
            for row, values in enumerate(sheet.iter_rows()):
                record = _record(row, values, left, marks.up_to(row))
                if record.flaws or any(map(str.strip, record.cells)):
                    yield record


class _Marks:
    """The marks of a sheet, taken row by row."""

    def __init__(self, marks: Iterator[Mark]) -> None:
        self._marks = marks
        self._next = next(marks, None)

    def up_to(self, row: int) -> dict[int, int]:
        """Return the widths of the marks by column that come before the end of a row."""
        found: dict[int, int] = {}
        while self._next is not None and self._next.row <= row:
            found[self._next.column] = self._next.width
            self._next = next(self._marks, None)
        return found


def _record(row: int, values: Sequence[Any], left: int, widths: dict[int, int]) -> Record:
    cells = tuple(value if isinstance(value, str) else text_of(value) for value in values)
    if not widths and not any(isinstance(value, int | float) for value in values):
        return Record(row + 1, cells)
    shown = tuple(_shown(cell, widths.get(at + left, 0)) for at, cell in enumerate(cells))
    flaws = (_flaw(at, value, shown[at], widths.get(at + left)) for at, value in enumerate(values))
    return Record(row + 1, shown, None, tuple(flaw for flaw in flaws if flaw is not None))


def _shown(cell: str, width: int) -> str:
    """Return a whole number with the zeros that its format shows."""
    return cell.zfill(width) if cell.isdigit() else cell


def _flaw(at: int, value: Any, cell: str, width: int | None) -> Flaw | None:
    if width == 0:
        return Flaw(at, "error", _ERROR, fatal=True)
    if isinstance(value, int | float) and width is None and cell.lstrip("-").isdigit():
        return number_flaw(at, cell)
    return None


def _choice(source: Source, book: CalamineWorkbook, asked: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the name of the sheet to read, and what to say of it."""
    names = [sheet.name for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
    if asked is not None:
        if asked not in names:
            raise InvalidRequest(f"{source.name}: no sheet {asked!r}; its sheets are {', '.join(map(repr, names))}")
        return asked, ()
    hidden = [sheet.name for sheet in book.sheets_metadata if sheet.visible != SheetVisibleEnum.Visible]
    name = next((name for name in names if name not in hidden), None)
    if name is None:
        raise InvalidRequest(f"{source.name}: no sheet that can be seen; name one of {', '.join(map(repr, names)) or 'none'}")
    others = [repr(each) for each in names if each != name]
    return name, (f"sheet {name!r} is read, and not {', '.join(others)}",) if others else ()


@contextmanager
def _opened(source: Source) -> Iterator[CalamineWorkbook]:
    try:
        with source.raw() as file, CalamineWorkbook.from_filelike(file) as book:
            yield book
    except CalamineError as error:
        if _is_shut(source):
            raise InvalidRequest(f"{source.name}: shut by a password; save it without one") from error
        raise InvalidRequest(f"{source.name}: no workbook that can be read ({error}); save it anew, or as CSV") from error


def _is_shut(source: Source) -> bool:
    """Whether a workbook is encrypted, which python-calamine takes for no workbook if it is not given a path."""
    with source.raw() as file:
        return _ENCRYPTED in file.read()
