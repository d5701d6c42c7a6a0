"""Read a whole file before anything is sent: count rows, and collect findings and duplicate e-mails."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Final

import attrs
from anyio.lowlevel import checkpoint

from outreach_async import Target
from outreach_async._plumbing import (
    TARGET_FIELDS,
    WHOLE_INPUT,
    RecentEmails,
    Targets,
    contact_key,
    rejection_message,
)
from outreach_async.bulk import Repeats
from outreach_async.errors import Excluded, InvalidRequest, OutreachError
from outreach_async.importer._checks import CheckPolicy
from outreach_async.importer._columns import Columns
from outreach_async.importer._groups import MAX_EXAMPLES, FindingKey, Groups
from outreach_async.importer._rows import Block, Row, RowFinding, RowNumber, RowReader, RowUnit
from outreach_async.importer._table import File, read_blocks, scan_people
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

    def repeats(self) -> Iterator[tuple[int, int]]:
        """Yield the lines whose e-mail occurs in an earlier line, each with the first line that has it."""
        found = [(array("Q"), array("Q")) for _ in self._keys]
        for keys, lines, (repeated, earlier) in zip(self._keys, self._lines, found, strict=True):
            first: dict[int, int] = {}
            for key, line in zip(keys, lines, strict=True):
                if (at := first.setdefault(key, line)) != line:
                    repeated.append(line)
                    earlier.append(at)
        return merge(*(zip(*pair, strict=True) for pair in found))


_BLOCK_SIZE: Final = 500  # more rows leave the caches of the processor

OnRejected = Callable[[Row, OutreachError], None]
NoteFinding = Callable[[RowNumber, RowFinding, Sequence[str]], object]
"""A function that receives each finding, with the number and the cells of its row, which are empty for a repeated e-mail."""


@attrs.define(kw_only=True)
class Preflight:
    rows: int = 0
    refused: int = 0
    excluded: int = 0
    superseded: int = 0
    repeated: int = 0
    """Number of rows with the e-mail and the target of an earlier row."""
    findings: Groups[FindingKey] = attrs.Factory(Groups)
    unit: RowUnit = "line"
    lines: array[int] = attrs.Factory(lambda: array("Q"))
    people: dict[int, str] = attrs.Factory(dict)
    """The people whom one of the rows excludes."""

    @property
    def sent(self) -> int:
        return self.rows - self.refused - self.excluded - self.superseded

    def find_number(self, index: int) -> RowNumber | None:
        return RowNumber(self.unit, self.lines[index]) if index < len(self.lines) else None

    def add(self, finding: RowFinding, number: int) -> None:
        group = self.findings.add(FindingKey(*finding[:4]), finding.message, number)
        if group is not None:
            group.keep(number, {self.unit: number, "message": finding.message})


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
    note: NoteFinding | None = None,
    people: dict[int, str] | None = None,
) -> Preflight:
    """Read a whole file, and return the counts and the findings. `targets` finds the targets that its rows name.

    A file with columns that say who must not be written to is read twice: a later row of a person may exclude an earlier one.
    These people are added to `people` before any row is checked.

    With `by_contact`, as in runs with a ledger, all rows of a contact are repeats, also under the policies that store the input.
    """
    found = Preflight(unit=unit, people={} if people is None else people)
    for _ in scan_people(file, columns, policy, found.people, unit=unit):
        await checkpoint()
    run = _PreflightRun(found, columns, policy, repeats, targets or Targets(), by_contact=by_contact)
    run.note = note
    for block in read_blocks(file, columns, _BLOCK_SIZE):
        show(run.found.rows)
        await checkpoint()  # the checks are CPU-bound: let other tasks run, and allow cancellation
        for row, refusal in await run.check(block):
            tell(row, refusal)
    return run.finish(reports_repeats=policy.levels["repeat"] != "off")


class _PreflightRun:
    """Counts what becomes of the rows of blocks, most of which need no `Row`."""

    def __init__(
        self, found: Preflight, columns: Columns, policy: CheckPolicy, repeats: Repeats, targets: Targets, *, by_contact: bool
    ) -> None:
        self.found = found
        self._reader = RowReader(columns, policy, found.people, finds_all=True)
        self._email_at = columns.sources["email"][0]
        self._names_targets = not {*columns.codes}.isdisjoint(TARGET_FIELDS)
        self._targets = targets
        self._repeats = repeats
        self._recent_emails = RecentEmails() if repeats == "error" else None
        self._emails = EmailIndex()
        self._key = str if repeats in WHOLE_INPUT and not by_contact else contact_key
        self.note: NoteFinding | None = None

    async def check(self, block: Block) -> list[tuple[Row, OutreachError]]:
        """Check the next records, and return each row that is never sent, with the reason."""
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
            # Those of excluded rows, too, because a ledger has entries for each target.
            named = {at: named_target(read.row(at)) for at in range(count) if at not in refusals}
            unknown = await find_unknown_targets(named.values(), self._targets)
            wrong = {at: unknown[to] for at, to in named.items() if to in unknown and at not in excluded}
            findings = {**findings, **{at: [finding, *findings.get(at, ())] for at, finding in wrong.items()}}
            refusals |= {at: InvalidRequest(finding.message) for at, finding in wrong.items()}
            targets = {at: self._targets.find(to) for at, to in named.items() if to not in unknown and at not in excluded}
        for at in sorted(findings):
            for finding in findings[at]:
                found.add(finding, numbers[at])
        self._note_all(block, numbers, findings, refusals)
        emails = {at: cells[self._email_at] for at, cells in enumerate(block.cells) if len(cells) > self._email_at}
        emails |= {at: row.email for at, row in read.odd.items()}
        for at in excluded | refusals.keys():
            emails.pop(at, None)
        refusals |= self._find_repeats(emails, targets, numbers)
        found.rows += count
        found.refused += len(refusals)
        found.excluded += len(excluded)
        unsent: dict[int, OutreachError] = {**refusals, **{at: Excluded(str(read.odd[at].excluded)) for at in excluded}}
        return [(read.row(at), unsent[at]) for at in sorted(unsent)]

    def _note_all(
        self,
        block: Block,
        numbers: Sequence[int],
        findings: Mapping[int, Sequence[RowFinding]],
        refusals: Mapping[int, InvalidRequest],
    ) -> None:
        """Note every finding of a block, and the faults of rows that no check has found."""
        if self.note is None:
            return
        for at in sorted({*findings, *refusals}):
            noted = [*findings.get(at, ())]
            if at in refusals and not any(finding.level == "error" for finding in noted):
                noted.append(RowFinding("row", "error", "", "", str(refusals[at])))
            for finding in noted:
                self.note(RowNumber(self.found.unit, numbers[at]), finding, block.cells[at])

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
        earlier = {at: find(found.rows + at, email, targets.get(at, default)) for at, email in sorted(emails.items())}
        return {
            at: InvalidRequest(rejection_message(f"{found.unit} {found.lines[index]}"))
            for at, index in earlier.items()
            if index is not None
        }

    def finish(self, *, reports_repeats: bool) -> Preflight:
        found, count = self.found, self._emails.count()
        found.repeated = count
        if count and reports_repeats and self._repeats != "error":
            noted = count if self.note else min(count, MAX_EXAMPLES)
            for line, earlier in islice(self._emails.repeats(), noted):
                message = rejection_message(f"{found.unit} {earlier}", remedy=False)
                finding = RowFinding("repeat", "warn", "email", "same address as an earlier row", message)
                found.add(finding, line)
                if self.note is not None:
                    self.note(RowNumber(found.unit, line), finding, ())
            if count > noted:
                found.findings.add(FindingKey(*finding[:4]), "", count=count - noted)
        if self._repeats in WHOLE_INPUT:
            found.superseded = count
        return found
