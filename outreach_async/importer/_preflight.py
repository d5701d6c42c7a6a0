"""Read a whole file before anything is sent: count rows, and collect findings and duplicate e-mails."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import Final

import attrs
from anyio.lowlevel import checkpoint

from outreach_async._service.contacts import Target
from outreach_async._service.validation import TARGET_FIELDS
from outreach_async.bulk._rows import WHOLE_INPUT, RecentEmails, Repeats, rejection_message, same_address_message
from outreach_async.bulk._targets import Targets
from outreach_async.errors import InvalidRequest
from outreach_async.importer._checks import CheckPolicy, Checks, Level, RowFinding, split_rows
from outreach_async.importer._columns import Columns
from outreach_async.importer._table import File, Row, RowNumber, RowUnit
from outreach_async.importer._target_columns import find_unknown_targets, named_target

_BUCKET_COUNT: Final = 256


class EmailIndex:
    """Finds rows with the same e-mail and target in a file. These are stored as a hash of eight bytes."""

    # In a million rows, the probability of a collision is one in thirty million. It only causes a finding that is wrong.

    def __init__(self) -> None:
        self._keys = [array("q") for _ in range(_BUCKET_COUNT)]
        self._lines = [array("Q") for _ in range(_BUCKET_COUNT)]

    def add(self, line: int, email: Hashable) -> None:
        """Add the e-mail of a line to the index, with its target."""
        key = hash(email)
        self._keys[key % _BUCKET_COUNT].append(key)
        self._lines[key % _BUCKET_COUNT].append(line)

    def count(self) -> int:
        """Return the number of lines whose e-mail occurs in an earlier line."""
        return sum(len(keys) - len(set(keys)) for keys in self._keys)

    def first_repeats(self, few: int) -> list[tuple[int, int]]:
        """Return the first `few` lines whose e-mail occurs in an earlier line, each with the first line that has it."""
        return nsmallest(few, self._pairs())

    def _pairs(self) -> Iterator[tuple[int, int]]:
        for keys, lines in zip(self._keys, self._lines, strict=True):
            earlier: dict[int, int] = {}
            for key, line in zip(keys, lines, strict=True):
                first = earlier.setdefault(key, line)
                if first != line:
                    yield line, first


MAX_EXAMPLES: Final = 3  # findings of each check that are stored with their lines
_CHUNK_SIZE: Final = 1000

OnRejected = Callable[[Row, InvalidRequest], None]


@attrs.define
class CheckFindings:
    """The findings of one check in a file."""

    check: str
    level: Level
    count: int = 0
    first: list[tuple[int, str]] = attrs.Factory(list)

    def add(self, line: int, message: str) -> None:
        """Count a finding, and store the first findings with their lines."""
        self.count += 1
        if len(self.first) < MAX_EXAMPLES:
            self.first.append((line, message))


@attrs.define(kw_only=True)
class Preflight:
    """The result of a preflight: how many rows will be sent, and the findings of the checks."""

    rows: int = 0
    refused: int = 0
    superseded: int = 0
    kinds: dict[str, CheckFindings] = attrs.Factory(dict)
    unit: RowUnit = "line"
    lines: array[int] = attrs.Factory(lambda: array("Q"))

    @property
    def sent(self) -> int:
        """Number of rows that will be sent."""
        return self.rows - self.refused - self.superseded

    def find_number(self, index: int) -> RowNumber | None:
        """Return the number of a row by its index, if numbers were stored."""
        return RowNumber(self.unit, self.lines[index]) if index < len(self.lines) else None

    def counts(self) -> dict[str, int]:
        """Return the number of findings of each check, by check name."""
        return {name: kind.count for name, kind in self.kinds.items()}


async def run_preflight(
    file: File,
    columns: Columns,
    policy: CheckPolicy,
    *,
    repeats: Repeats = "serial",
    unit: RowUnit = "line",
    tell: OnRejected = lambda _row, _error: None,
    show: Callable[[int], None] = lambda _rows: None,
    targets: Targets | None = None,
) -> Preflight:
    """Read a whole file once, and return the counts and the findings. `targets` finds the targets that its rows name."""
    targets = targets or Targets()
    run = _PreflightRun(columns, policy, repeats, unit, targets)
    for chunk in split_rows(file.rows(columns), _CHUNK_SIZE):
        show(run.found.rows)
        await checkpoint()  # the checks are CPU-bound: let other tasks run, and allow cancellation
        unknown = await find_unknown_targets(chunk, targets) if run.names_targets else {}
        for row, refusal in run.check_rows(chunk, unknown):
            tell(row, refusal)
    return run.finish(reports_repeats=policy.levels["repeat"] != "off")


class _PreflightRun:
    def __init__(self, columns: Columns, policy: CheckPolicy, repeats: Repeats, unit: RowUnit, targets: Targets) -> None:
        self.found = Preflight(unit=unit)
        self.names_targets = not {*columns.codes}.isdisjoint(TARGET_FIELDS)
        self._targets = targets
        self._checks = Checks(columns, policy)
        self._repeats = repeats
        self._recent_emails = RecentEmails() if repeats == "error" else None
        self._emails = EmailIndex()

    def check_rows(
        self, rows: Sequence[Row], unknown_targets: Mapping[Target, RowFinding]
    ) -> Iterator[tuple[Row, InvalidRequest]]:
        """Check rows, and yield each row that can never be sent, with the reason."""
        found, findings_by_row = self.found, self._checks.findings(rows)
        for at, row in enumerate(rows):
            number = row.line if found.unit == "line" else found.rows + 1
            findings = findings_by_row.get(at, ())
            if unknown_targets and row.fault is None and (unknown := unknown_targets.get(named_target(row))):
                findings = [unknown, *findings]
            for finding in findings:
                found.kinds.setdefault(finding.check, CheckFindings(finding.check, finding.level)).add(number, finding.message)
            if refusal := self._check_row(row, number, findings):
                found.refused += 1
                yield row, refusal
            found.rows += 1

    def finish(self, *, reports_repeats: bool) -> Preflight:
        """Return the result of the preflight, with the repeated e-mails of the rows checked so far."""
        found, count = self.found, self._emails.count()
        if count and reports_repeats and self._repeats != "error":
            pairs = self._emails.first_repeats(MAX_EXAMPLES)
            first = [(line, same_address_message(f"{found.unit} {earlier}")) for line, earlier in pairs]
            found.kinds["repeat"] = CheckFindings("repeat", "warn", count, first)
        found.superseded = count if self._repeats in WHOLE_INPUT else 0
        return found

    def _check_row(self, row: Row, number: int, findings: Iterable[RowFinding]) -> InvalidRequest | None:
        found, email = self.found, row.email
        if self._repeats != "serial":
            found.lines.append(number)
        if fault := next((finding.message for finding in findings if finding.level == "error"), None):
            return InvalidRequest(fault)
        # A readable row with an e-mail can always be sent, because its codes are known. Only the other rows need the check.
        if (row.fault is not None or not email.strip()) and (refusal := row.refusal()):
            return refusal
        target = self._targets.find(named_target(row)) if self.names_targets else self._targets.default
        if self._recent_emails is None:
            # The service detects duplicates by e-mail, probably regardless of case. A row supersedes only identical e-mails.
            key = email if self._repeats in WHOLE_INPUT else email.strip().casefold()
            self._emails.add(number, (key, *target))
            return None
        earlier = self._recent_emails.find_earlier(found.rows, email, target)
        return None if earlier is None else InvalidRequest(rejection_message(f"{found.unit} {found.lines[earlier]}"))
