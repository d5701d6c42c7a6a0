"""Apply the checks to the columns of a file, row by row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from outreach_async.checks import shown
from outreach_async.importer.checks import emails, moments, phones, places, websites
from outreach_async.importer.checks.policy import Level, Policy
from outreach_async.importer.columns import Columns
from outreach_async.importer.rows import Row

Look: TypeAlias = Callable[[Any], str | None]
"""Takes a cell, or a cell and the row's two-letter country code, and returns the problem; `None` if there is none."""

_LONGEST: Final = 60
_AT_A_TIME: Final = 250


class Finding(NamedTuple):
    """A problem that a check found in a row.

    Attributes:
        check: Name of the check.
        level: Level of the check.
        code: Code of the field.
        message: The problem, beginning with the field.
    """

    check: str
    level: Level
    code: str
    message: str


class _Check(NamedTuple):
    at: int
    name: str
    level: Level
    code: str
    look: Look
    abroad: bool


_PHONES: Final = ("mobile_phone", "work_phone", "home_phone", "voip_phone", "other_phone")
_LOOKS: Final[dict[str, tuple[tuple[str, ...], Look]]] = {
    "email": (("email",), emails.complaint),
    "role": (("email",), emails.role_complaint),
    "typo": (("email",), emails.typo_complaint),
    "phone": (_PHONES, phones.complaint),
    "country": (("country",), places.country_complaint),
    "state": (("state",), places.state_complaint),
    "timezone": (("timezone",), moments.timezone_complaint),
    "date": (("job_start_date", "graduation_date"), moments.date_complaint),
    "website": (("website", "website_2", "website_3"), websites.complaint),
}
"""For each check, the fields it covers and the function that looks at a cell."""

_ABROAD: Final = frozenset({"phone", "state"})
"""Checks that need the country."""


class Checks:
    """Checks many rows at a time. Most columns have few distinct values, and each value is checked once.

    Args:
        columns: The mapped columns.
        policy: The level of each check.
    """

    def __init__(self, columns: Columns, policy: Policy) -> None:
        self._cells = policy.levels["cells"]
        self._checks = tuple(
            _Check(at, name, policy.levels[name], code, look, name in _ABROAD)
            for name, (codes, look) in _LOOKS.items()
            for code in codes
            if policy.levels[name] != "off" and (at := columns.cell(code)) is not None
        )
        self._errors = tuple(check for check in self._checks if check.level == "error")
        self._country = columns.cell("country")

    def findings(self, rows: Sequence[Row]) -> dict[int, list[Finding]]:
        """Return the findings by index of the row. Rows with a fault have none."""
        found = self._found(rows, self._checks)
        if self._cells != "off":
            self._remark(rows, found)
        return found

    def guarded(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows. A finding of level `error` becomes the fault of its row, which is then never sent."""
        if not self._errors and self._cells != "error":
            yield from rows
            return
        many = iter(rows)
        while some := list(islice(many, _AT_A_TIME)):
            found = self._found(some, self._errors)
            if self._cells == "error":
                self._remark(some, found)
            for at, row in enumerate(some):
                yield attrs.evolve(row, fault=found[at][0].message) if at in found else row

    def _found(self, rows: Sequence[Row], checks: Iterable[_Check]) -> dict[int, list[Finding]]:
        places_of = [at for at, row in enumerate(rows) if row.fault is None]
        found: dict[int, list[Finding]] = {}
        if not places_of:
            return found
        columns = list(zip(*(rows[at].cells for at in places_of), strict=True))
        countries = self._countries(columns, len(places_of))
        for check in checks:
            texts = [cell.strip() for cell in columns[check.at]]
            keys = list(zip(texts, countries, strict=True)) if check.abroad else texts
            for at, complaint in _wrong(texts, keys, check.look):
                finding = Finding(check.name, check.level, check.code, _message(check.code, texts[at], complaint))
                found.setdefault(places_of[at], []).append(finding)
        return found

    def _countries(self, columns: Sequence[Sequence[str]], rows: int) -> list[str | None]:
        if self._country is None:
            return [None] * rows
        cells = columns[self._country]
        codes = {cell: places.country_code(cell) for cell in set(cells)}
        return [codes[cell] for cell in cells]

    def _remark(self, rows: Sequence[Row], found: dict[int, list[Finding]]) -> None:
        for at, row in enumerate(rows):
            if row.warnings:
                told = [Finding("cells", self._cells, each.code, f"{each.code}: {each.message}") for each in row.warnings]
                found.setdefault(at, []).extend(told)


def _wrong(texts: Sequence[str], keys: Sequence[Hashable], look: Look) -> list[tuple[int, str]]:
    """Return the indexes of the cells with a problem, and the problems."""
    wrong = {key: complaint for key in set(keys) if key != "" and (complaint := look(key))}
    return [(at, wrong[key]) for at, key in enumerate(keys) if key in wrong and texts[at]] if wrong else []


def _message(code: str, text: str, complaint: str) -> str:
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return f"{code}: {shown(cut)}: {complaint}"
