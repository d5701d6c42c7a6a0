"""Check the values of a file row by row, at the level that a policy sets for each check."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args

import attrs

from outreach_async.errors import InvalidRequest, shorten
from outreach_async.importer import value_checks
from outreach_async.importer.columns import Columns
from outreach_async.importer.table import Row
from outreach_async.validation import masked_repr

Level = Literal["error", "warn", "off"]

CHECKS: Final[Mapping[str, str]] = {
    "email": "a valid address",
    "role": "an address of a role, such as info@",
    "typo": "a domain that is probably a mistyped domain of a large provider",
    "phone": "a valid number of its country",
    "country": "a two-letter code or an English name",
    "state": "a state of the United States, Canada or Australia, by code or name",
    "timezone": "a name of the time zone database, or UTC+hh:mm",
    "date": "an existing date as YYYY-MM-DD, YYYY-MM or YYYY",
    "website": "an http or https URL, or a host",
    "cells": "a cell that a spreadsheet or a wrong encoding has changed",
    "repeat": "an e-mail that occurs earlier in the file",
}
"""For each check, the values that pass; for `role`, `typo`, `cells` and `repeat`, the values that the check reports."""

LINTS: Final = frozenset({"role", "typo", "timezone", "date", "cells", "repeat"})
"""Checks that become errors only if a setting names them.

Their findings may be intended, or the service does not document which values it accepts.
"""

REQUIRED_MODULES: Final[Mapping[str, str]] = {"email": "email_validator", "phone": "phonenumbers"}
"""Modules that checks need. The extra `validate` installs them."""


@attrs.frozen
class CheckPolicy:
    """The level of each check.

    Attributes:
        levels: Levels by check.
        missing: Checks that are off because a library is not installed.
    """

    levels: Mapping[str, Level]
    missing: tuple[str, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str] = (), *, has: Callable[[str], object] = find_spec) -> CheckPolicy:
        """Parse settings: `error`, `warn` or `off` for all checks, and `check=level` for one. Later settings take precedence.

        Checks warn by default. The checks in `LINTS` become errors only if a setting names them.

        Args:
            texts: The settings.
            has: Function that returns whether a module is installed.

        Raises:
            InvalidRequest: A check or a level is unknown, or a check requested here needs a library that is not installed.
        """
        levels: dict[str, Level] = dict.fromkeys(CHECKS, "warn")
        requested: set[str] = set()
        for text in texts:
            name, sign, level = _parse_setting(text)
            names = {name} if sign else set(CHECKS)
            requested = requested | names if level != "off" else requested - names
            levels |= {check: "warn" if level == "error" and not sign and check in LINTS else level for check in names}
        lacking = tuple(check for check, module in REQUIRED_MODULES.items() if levels[check] != "off" and not has(module))
        if wanted := " and ".join(sorted(requested & set(lacking))):
            raise InvalidRequest(f"check: extra 'validate' is required for {wanted}; run pip install 'outreach_async[validate]'")
        return cls({**levels, **dict.fromkeys(lacking, "off")}, lacking)

    @property
    def note(self) -> str | None:
        """A note on the checks that are off because a library is missing; `None` if there are none."""
        if not self.missing:
            return None
        return f"not checked: {' and '.join(sorted(self.missing))}; to enable, run pip install 'outreach_async[validate]'"


def _parse_setting(text: str) -> tuple[str, str, Level]:
    """Return the check, the sign `=`, and the level. Check and sign are empty if the setting is for all checks."""
    check, sign, level = map(str.strip, text.rpartition("="))
    if level not in get_args(Level):
        raise InvalidRequest(f"check: expected error, warn or off, got {text!r}; write, for example, --check email=error")
    if sign and check not in CHECKS:
        raise InvalidRequest(f"check: unknown check in {text!r}; use one of {', '.join(CHECKS)}")
    # The check for duplicates only warns: the option `repeats` of `create_many` determines what happens to duplicates.
    if check == "repeat" and level == "error":
        raise InvalidRequest("check: expected repeat=warn or repeat=off, got repeat=error; pass --repeats error instead")
    return check, sign, cast("Level", level)


ValueCheck: TypeAlias = Callable[[Any], str | None]
"""A function that checks a cell, or a pair of a cell and the row's two-letter country code. It returns the problem or `None`."""

_MAX_VALUE_LENGTH: Final = 60
_CHUNK_SIZE: Final = 250


class RowFinding(NamedTuple):
    """A problem that a check found in a row.

    Attributes:
        check: Name of the check.
        level: Level of the check.
        code: Code of the field.
        message: The problem, beginning with the code of the field.
    """

    check: str
    level: Level
    code: str
    message: str


class _ColumnCheck(NamedTuple):
    at: int
    name: str
    level: Level
    code: str
    find_problem: ValueCheck


_PHONE_FIELDS: Final = ("mobile_phone", "work_phone", "home_phone", "voip_phone", "other_phone")
_VALUE_CHECKS: Final[dict[str, tuple[tuple[str, ...], ValueCheck]]] = {
    "email": (("email",), value_checks.check_email),
    "role": (("email",), value_checks.check_role),
    "typo": (("email",), value_checks.check_typo),
    "phone": (_PHONE_FIELDS, value_checks.check_phone),
    "country": (("country",), value_checks.check_country),
    "state": (("state",), value_checks.check_state),
    "timezone": (("timezone",), value_checks.check_timezone),
    "date": (("job_start_date", "graduation_date"), value_checks.check_date),
    "website": (("website", "website_2", "website_3"), value_checks.check_website),
}
"""For each check, the fields that it covers and the function that checks a cell."""

_COUNTRY_CHECKS: Final = frozenset({"phone", "state"})
"""Checks that need the country of the row."""


class Checks:
    """Checks many rows at a time. Most columns have few distinct values, so each distinct value is checked only once.

    Args:
        columns: The mapped columns.
        policy: The level of each check.
    """

    def __init__(self, columns: Columns, policy: CheckPolicy) -> None:
        self._cells_level = policy.levels["cells"]
        self._checks = tuple(
            _ColumnCheck(at, name, policy.levels[name], code, find_problem)
            for name, (codes, find_problem) in _VALUE_CHECKS.items()
            for code in codes
            if policy.levels[name] != "off" and (at := columns.cell(code)) is not None
        )
        self._error_checks = tuple(check for check in self._checks if check.level == "error")
        self._country_column = columns.cell("country")

    def findings(self, rows: Sequence[Row]) -> dict[int, list[RowFinding]]:
        """Return the findings by index in `rows`. Rows with a fault have no findings."""
        return self._find(rows, self._checks, with_cells=self._cells_level != "off")

    def guarded(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows. A finding of level `error` becomes the fault of its row, which is then never sent."""
        with_cells = self._cells_level == "error"
        if not self._error_checks and not with_cells:
            yield from rows
            return
        rows = iter(rows)
        while chunk := list(islice(rows, _CHUNK_SIZE)):
            findings = self._find(chunk, self._error_checks, with_cells=with_cells)
            for at, row in enumerate(chunk):
                yield attrs.evolve(row, fault=findings[at][0].message) if at in findings else row

    def _find(self, rows: Sequence[Row], checks: Iterable[_ColumnCheck], *, with_cells: bool) -> dict[int, list[RowFinding]]:
        findings: defaultdict[int, list[RowFinding]] = defaultdict(list)
        readable = [at for at, row in enumerate(rows) if row.fault is None]
        columns = list(zip(*(rows[at].cells for at in readable), strict=True))
        countries = self._country_codes(columns, len(readable))
        for check in checks if readable else ():
            texts = [cell.strip() for cell in columns[check.at]]
            keys = list(zip(texts, countries, strict=True)) if check.name in _COUNTRY_CHECKS else texts
            for at, problem in _find_problems(texts, keys, check.find_problem):
                message = f"{check.code}: {masked_repr(shorten(texts[at], _MAX_VALUE_LENGTH))}: {problem}"
                findings[readable[at]].append(RowFinding(check.name, check.level, check.code, message))
        for at, row in enumerate(rows) if with_cells else ():
            for remark in row.warnings:
                findings[at].append(RowFinding("cells", self._cells_level, remark.code, f"{remark.code}: {remark.message}"))
        return findings

    def _country_codes(self, columns: Sequence[Sequence[str]], rows: int) -> list[str | None]:
        if self._country_column is None or not rows:
            return [None] * rows
        cells = columns[self._country_column]
        codes = {cell: value_checks.find_country_code(cell) for cell in set(cells)}
        return [codes[cell] for cell in cells]


def _find_problems(texts: Sequence[str], keys: Sequence[Hashable], find_problem: ValueCheck) -> list[tuple[int, str]]:
    """Return the index and the problem of each cell with a problem."""
    problems = {key: problem for key in set(keys) if key != "" and (problem := find_problem(key))}
    return [(at, problems[key]) for at, key in enumerate(keys) if key in problems and texts[at]] if problems else []
