"""A row as a format reads it, before its columns are mapped."""

from __future__ import annotations

from typing import Final, NamedTuple

from outreach_async.importer.columns import Columns
from outreach_async.importer.rows import Remark, Row
from outreach_async.importer.suspects import Flaw, suspects_of

_DIGITS: Final = frozenset({"mobile_phone", "work_phone", "home_phone", "voip_phone", "other_phone", "zip"})
"""Fields whose digits are not a number: a program that treats them as one drops leading zeros and the plus sign."""

_PHONE: Final = 11
"""Fewest digits with which a spreadsheet shows a whole number as 4.1E+11."""


class Record(NamedTuple):
    """A row as read from a file.

    Attributes:
        line: The line on which it begins, from 1.
        cells: Its cells, as strings.
        fault: Why it cannot be read; `None` if it can.
        flaws: Problems of single cells that the format found.
    """

    line: int
    cells: tuple[str, ...]
    fault: str | None = None
    flaws: tuple[Flaw, ...] = ()


def row_of(record: Record, columns: Columns) -> Row:
    """Return the row of a record. A flaw that destroys a cell to send becomes the row's fault, other flaws become warnings."""
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
    remedy = "name every column, and quote cells that contain the delimiter"
    return f"expected {len(columns.headers)} cells, as in the header, got {len(cells)}; {remedy}"


def _concerns(flaw: Flaw, code: str, cells: tuple[str, ...]) -> bool:
    """Return whether a flaw matters. A number does in a phone or a postal code, and if it is as long as a phone number."""
    return flaw.kind != "number" or code in _DIGITS or len(cells[flaw.column].lstrip("-")) >= _PHONE


def _costs(flaw: Flaw, code: str) -> bool:
    return flaw.fatal or (flaw.kind == "scientific" and code in _DIGITS)
