"""Read a whole file before anything is sent: count rows, and collect findings and duplicate e-mails."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Final

import attrs
from anyio.lowlevel import checkpoint

from outreach_async._service.contacts import Target
from outreach_async._service.validation import TARGET_FIELDS
from outreach_async.bulk._contact_keys import contact_key
from outreach_async.bulk._rows import WHOLE_INPUT, RecentEmails, Repeats, rejection_message, same_address_message
from outreach_async.bulk._targets import Targets
from outreach_async.errors import InvalidRequest
from outreach_async.importer._checks import CheckPolicy, Level
from outreach_async.importer._columns import Columns
from outreach_async.importer._rows import Block, Row, RowFinding, RowNumber, RowReader, RowUnit
from outreach_async.importer._table import File, read_blocks
from outreach_async.importer._target_columns import find_unknown_targets, named_target

_BUCKET_COUNT: Final = 256


class EmailIndex:
    """Finds rows with the same e-mail and target. These are stored as a hash of eight bytes."""

    # In a million rows, the probability of a collision is one in thirty million. It only causes a finding that is wrong.
    def __init__(self) -> None:
        self._keys = [array("q") for _ in range(_BUCKET_COUNT)]
        self._lines = [array("Q") for _ in range(_BUCKET_COUNT)]

    def add(self, lines: Iterable[int], emails: Iterable[Hashable]) -> None:
        all_keys, all_lines = self._keys, self._lines
        for line, key in zip(lines, map(hash, emails), strict=True):
            bucket = key % _BUCKET_COUNT
            all_keys[bucket].append(key)
            all_lines[bucket].append(line)

    def count(self) -> int:
        return sum(len(keys) - len(set(keys)) for keys in self._keys)

    def first_repeats(self, few: int) -> list[tuple[int, int]]:
        """Return the first `few` lines whose e-mail occurs in an earlier line, each with the first line that has it."""
        pairs: list[tuple[int, int]] = []
        for keys, lines in zip(self._keys, self._lines, strict=True):
            first: dict[int, int] = {}
            repeats = ((line, first.setdefault(key, line)) for key, line in zip(keys, lines, strict=True))
            pairs = nsmallest(few, (*pairs, *(pair for pair in repeats if pair[0] != pair[1])))
        return pairs


MAX_EXAMPLES: Final = 3  # findings of each check that are stored with their lines
_BLOCK_SIZE: Final = 500  # more rows leave the caches of the processor

OnRejected = Callable[[Row, InvalidRequest], None]


@attrs.define
class CheckFindings:
    """The number of findings of one check in a file, and the first of them with their lines."""

    check: str
    level: Level
    count: int = 0
    first: list[tuple[int, str]] = attrs.Factory(list)


@attrs.define(kw_only=True)
class Preflight:
    rows: int = 0
    refused: int = 0
    excluded: int = 0
    superseded: int = 0
    repeated: int = 0
    """Number of rows with the e-mail and the target of an earlier row."""
    kinds: dict[str, CheckFindings] = attrs.Factory(dict)
    unit: RowUnit = "line"
    lines: array[int] = attrs.Factory(lambda: array("Q"))

    @property
    def sent(self) -> int:
        return self.rows - self.refused - self.excluded - self.superseded

    def find_number(self, index: int) -> RowNumber | None:
        return RowNumber(self.unit, self.lines[index]) if index < len(self.lines) else None

    def counts(self) -> dict[str, int]:
        return {name: kind.count for name, kind in self.kinds.items()}

    def add(self, finding: RowFinding, number: int) -> None:
        kind = self.kinds.setdefault(finding.check, CheckFindings(finding.check, finding.level))
        kind.count += 1
        if kind.count <= MAX_EXAMPLES:
            kind.first.append((number, finding.message))


async def run_preflight(
    file: File,
    columns: Columns,
    policy: CheckPolicy,
    *,
    repeats: Repeats = "serial",
    by_contact: bool = False,
    unit: RowUnit = "line",
    tell: OnRejected = lambda _row, _error: None,
    show: Callable[[int], None] = lambda _rows: None,
    targets: Targets | None = None,
) -> Preflight:
    """Read a whole file once, and return the counts and the findings. `targets` finds the targets that its rows name.

    With `by_contact`, as in runs with a ledger, all rows of a contact are repeats, also under the policies that store the input.
    """
    run = _PreflightRun(columns, policy, repeats, unit, targets or Targets(), by_contact=by_contact)
    for block in read_blocks(file, columns, _BLOCK_SIZE):
        show(run.found.rows)
        await checkpoint()  # the checks are CPU-bound: let other tasks run, and allow cancellation
        for row, refusal in await run.check(block):
            tell(row, refusal)
    return run.finish(reports_repeats=policy.levels["repeat"] != "off")


class _PreflightRun:
    """Counts what becomes of the rows of blocks, most of which need no `Row`."""

    def __init__(
        self, columns: Columns, policy: CheckPolicy, repeats: Repeats, unit: RowUnit, targets: Targets, *, by_contact: bool
    ) -> None:
        self.found = Preflight(unit=unit)
        self._reader = RowReader(columns, policy, finds_all=True)
        self._email_at = columns.sources["email"][0]
        self._names_targets = not {*columns.codes}.isdisjoint(TARGET_FIELDS)
        self._targets = targets
        self._repeats = repeats
        self._recent_emails = RecentEmails() if repeats == "error" else None
        self._emails = EmailIndex()
        self._key = str if repeats in WHOLE_INPUT and not by_contact else contact_key

    async def check(self, block: Block) -> list[tuple[Row, InvalidRequest]]:
        """Check the next records, and return each row that can never be sent, with the reason."""
        found, count = self.found, len(block.lines)
        numbers = block.lines if found.unit == "line" else range(found.rows + 1, found.rows + count + 1)
        if self._repeats != "serial":
            found.lines.extend(numbers)
        read = self._reader.read(block)
        refusals = {at: InvalidRequest(row.fault) for at, row in read.odd.items() if row.fault is not None}
        excluded = {at for at, row in read.odd.items() if row.excluded is not None}
        targets: dict[int, Target] = {}
        findings: Mapping[int, Sequence[RowFinding]] = read.findings
        if self._names_targets:
            named = {at: named_target(read.row(at)) for at in range(count) if at not in refusals and at not in excluded}
            unknown = await find_unknown_targets(named.values(), self._targets)
            findings = {**findings, **{at: [unknown[to], *findings.get(at, ())] for at, to in named.items() if to in unknown}}
            refusals |= {at: InvalidRequest(unknown[to].message) for at, to in named.items() if to in unknown}
            targets = {at: self._targets.find(to) for at, to in named.items() if to not in unknown}
        for at in sorted(findings):
            for finding in findings[at]:
                found.add(finding, numbers[at])
        emails = {at: cells[self._email_at] for at, cells in enumerate(block.cells) if at not in refusals and at not in excluded}
        emails |= {at: row.email for at, row in read.odd.items() if at in emails}
        refusals |= self._find_repeats(emails, targets, numbers)
        found.rows += count
        found.refused += len(refusals)
        found.excluded += len(excluded)
        return [(read.row(at), refusals[at]) for at in sorted(refusals)]

    def _find_repeats(
        self, emails: Mapping[int, str], targets: Mapping[int, Target], numbers: Sequence[int]
    ) -> dict[int, InvalidRequest]:
        """Store the e-mails of rows to send. Return the refusals of repeats."""
        found, default = self.found, self._targets.default
        # The service detects duplicates by e-mail, probably regardless of case. Without a ledger, a row supersedes only identical
        # e-mails.
        keys: Iterable[Hashable] = map(self._key, emails.values())
        self._emails.add([numbers[at] for at in emails], zip(keys, targets.values(), strict=True) if targets else keys)
        if self._recent_emails is None:
            return {}
        find = self._recent_emails.find_earlier
        earlier = {at: find(found.rows + at, email, targets.get(at, default)) for at, email in emails.items()}
        return {
            at: InvalidRequest(rejection_message(f"{found.unit} {found.lines[index]}"))
            for at, index in earlier.items()
            if index is not None
        }

    def finish(self, *, reports_repeats: bool) -> Preflight:
        found, count = self.found, self._emails.count()
        found.repeated = count
        if count and reports_repeats and self._repeats != "error":
            pairs = self._emails.first_repeats(MAX_EXAMPLES)
            first = [(line, same_address_message(f"{found.unit} {earlier}")) for line, earlier in pairs]
            found.kinds["repeat"] = CheckFindings("repeat", "warn", count, first)
        found.superseded = count if self._repeats in WHOLE_INPUT else 0
        return found
