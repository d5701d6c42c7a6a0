"""A look at the whole file before anything is sent: how many rows can be, and what is found in them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import attrs
from anyio.lowlevel import checkpoint

from outreach_async.bulk.repeats import WHOLE_INPUT, Recent, Repeats, refused_as, same_as
from outreach_async.errors import InvalidRequest
from outreach_async.importer.checks.checker import Checks, Finding
from outreach_async.importer.checks.policy import Level, Policy
from outreach_async.importer.checks.repeats import Seen
from outreach_async.importer.columns import Columns
from outreach_async.importer.file import File
from outreach_async.importer.rows import Row

FEW: Final = 3
"""Findings of each kind that are kept with their line."""

_AT_A_TIME: Final = 1000

Tell = Callable[[Row, InvalidRequest], None]
Show = Callable[[int], None]


@attrs.define
class Kind:
    """What one check found in a file.

    Attributes:
        check: The check.
        level: What it counts for.
        count: How often it found something.
        first: The first lines of them, with what was found.
    """

    check: str
    level: Level
    count: int = 0
    first: list[tuple[int, str]] = attrs.Factory(list)

    def add(self, line: int, message: str) -> None:
        """Count a finding."""
        self.count += 1
        if len(self.first) < FEW:
            self.first.append((line, message))


@attrs.frozen(kw_only=True)
class Survey:
    """What was found in a file. The rows are those that can be sent, those that cannot, and those that others stand for.

    Attributes:
        rows: How many there are.
        refused: How many can never be sent.
        stood_for: In how many rows' stead another with the same e-mail is sent, as the policy over repeats has it.
        kinds: What the checks found, by check.
        lines: The line of each row, where repeats are refused and so have to be named.
    """

    rows: int
    refused: int
    stood_for: int
    kinds: dict[str, Kind]
    lines: array[int]

    @classmethod
    def unseen(cls, rows: int) -> Survey:
        """Return what stands for a look at a file that nobody needs: so many rows, and nothing found."""
        return cls(rows=rows, refused=0, stood_for=0, kinds={}, lines=array("Q"))

    @property
    def sent(self) -> int:
        """How many rows will be sent."""
        return self.rows - self.refused - self.stood_for

    def line_of(self, index: int) -> int | None:
        """Return the line of a row, if it was kept."""
        return self.lines[index] if index < len(self.lines) else None

    def counts(self) -> dict[str, int]:
        """Return how often each check found something, as JSON values."""
        return {name: kind.count for name, kind in self.kinds.items()}


async def survey(
    file: File,
    columns: Columns,
    policy: Policy,
    *,
    repeats: Repeats = "serial",
    tell: Tell = lambda _row, _error: None,
    show: Show = lambda _rows: None,
) -> Survey:
    """Read the whole file once.

    Args:
        file: The file.
        columns: Where the fields are.
        policy: What each check counts for.
        repeats: What becomes of an e-mail that comes again, as in `create_many`.
        tell: Takes each row that can never be sent, and why.
        show: Is told from time to time how many rows were read.

    Raises:
        InvalidRequest: A part of the file cannot be read at all.
    """
    surveyor = _Surveyor(Checks(columns, policy), policy, repeats)
    rows = file.rows(columns)
    while some := list(islice(rows, _AT_A_TIME)):
        show(surveyor.rows)
        await checkpoint()
        for row, refusal in surveyor.refusals(some):
            tell(row, refusal)
    return surveyor.result()


class _Surveyor:
    def __init__(self, checks: Checks, policy: Policy, repeats: Repeats) -> None:
        self._checks = checks
        self._seen = Seen()
        self._repeats = repeats
        self._told = policy.levels["repeat"] != "off"
        self._recent = Recent() if repeats == "error" else None
        self._lines = array("Q")
        self._kinds: dict[str, Kind] = {}
        self._refused = 0
        self.rows = 0

    def refusals(self, rows: Sequence[Row]) -> Iterator[tuple[Row, InvalidRequest]]:
        """Look at rows, and yield those that can never be sent, and why."""
        findings = self._checks.findings(rows)
        for at, row in enumerate(rows):
            found = findings.get(at, ())
            for each in found:
                self._count(row.line, each)
            if refusal := self._refusal(row, found):
                self._refused += 1
                yield row, refusal
            self.rows += 1

    def result(self) -> Survey:
        """Return what was found."""
        again = self._seen.count()
        if again and self._told and self._repeats != "error":
            first = [(line, same_as(f"line {earlier}")) for line, earlier in self._seen.first(FEW)]
            self._kinds["repeat"] = Kind("repeat", "warn", again, first)
        return Survey(
            rows=self.rows,
            refused=self._refused,
            stood_for=again if self._repeats in WHOLE_INPUT else 0,
            kinds=self._kinds,
            lines=self._lines,
        )

    def _refusal(self, row: Row, found: Iterable[Finding]) -> InvalidRequest | None:
        if self._recent is not None:
            self._lines.append(row.line)
        fault = next((each.message for each in found if each.level == "error"), None)
        refusal = InvalidRequest(fault) if fault else _refusal(row)
        return refusal or self._repeat(self.rows, row)

    def _repeat(self, index: int, row: Row) -> InvalidRequest | None:
        email: str = row.members["email"]
        if self._recent is None:
            # The service finds duplicates by e-mail, hardly by its case; rows that others stand for have the very same.
            self._seen.add(row.line, email if self._repeats in WHOLE_INPUT else email.strip().casefold())
            return None
        if (earlier := self._recent.earlier(index, email)) is None:
            return None
        return InvalidRequest(refused_as(f"line {self._lines[earlier]}"))

    def _count(self, line: int, found: Finding) -> None:
        if found.check not in self._kinds:
            self._kinds[found.check] = Kind(found.check, found.level)
        self._kinds[found.check].add(line, found.message)


def _refusal(row: Row) -> InvalidRequest | None:
    """Return why a row would be refused; one that could be read, and has an e-mail, never is: its codes are known."""
    return None if row.fault is None and row.members["email"].strip() else row.refusal()
