"""What a format gives for one row, before anybody knows what its columns mean."""

from __future__ import annotations

from typing import Final, NamedTuple

from outreach_async.importer.columns import Columns
from outreach_async.importer.rows import Remark, Row
from outreach_async.importer.suspects import Flaw, suspects_of

_DIGITS: Final = frozenset({"mobile_phone", "work_phone", "home_phone", "voip_phone", "other_phone", "zip"})
"""Fields whose digits are no number: a program that takes them for one drops the zeros and the plus sign they begin with."""

_PHONE: Final = 11
"""Digits from which on a spreadsheet shows a whole number as 4.1E+11."""


class Record(NamedTuple):
    """A row as it stands in a file.

    Attributes:
        line: Where it begins, from 1.
        cells: Its cells as texts.
        fault: Why it cannot be read at all; `None` if it can.
        flaws: What the format knows to be wrong with single cells.
    """

    line: int
    cells: tuple[str, ...]
    fault: str | None = None
    flaws: tuple[Flaw, ...] = ()


def row_of(record: Record, columns: Columns) -> Row:
    """Return the row of a record: a flaw that makes a cell that is sent worthless costs the row, others are its warnings."""
    line, cells, fault, flaws = record
    fault = fault or _misfit(cells, columns)
    if fault:
        return Row(line, cells, {}, fault)
    if not (flaws := flaws + suspects_of(cells)):
        return Row(line, cells, columns.members(cells))
    sent = [(flaw, code) for flaw in flaws if (code := columns.codes[flaw.column]) and _concerns(flaw, code, cells)]
    if worthless := [f"{code}: {flaw.message}" for flaw, code in sent if _costs(flaw, code)]:
        return Row(line, cells, {}, worthless[0])
    warnings = tuple(Remark(flaw.kind, columns.headers[flaw.column], code, flaw.message) for flaw, code in sent)
    return Row(line, cells, columns.members(cells), None, warnings)


def _misfit(cells: tuple[str, ...], columns: Columns) -> str | None:
    if len(cells) == len(columns.headers):
        return None
    remedy = "each cell needs a column with a name, and quotes if it holds the delimiter"
    return f"the row has {len(cells)} cells, the header {len(columns.headers)}; {remedy}"


def _concerns(flaw: Flaw, code: str, cells: tuple[str, ...]) -> bool:
    """Whether it matters where the cell goes: a number is one, but for a phone or a postal code, or something as long."""
    return flaw.kind != "number" or code in _DIGITS or len(cells[flaw.column].lstrip("-")) >= _PHONE


def _costs(flaw: Flaw, code: str) -> bool:
    return flaw.fatal or (flaw.kind == "scientific" and code in _DIGITS)
