"""Import a file: map its columns, check it whole before anything is sent, and read its rows as the check has judged them."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, MutableSequence, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
from anyio.lowlevel import checkpoint

from outreach_async import Target, store
from outreach_async._plumbing import (
    WHOLE_INPUT,
    RecentEmails,
    RowIndex,
    Targets,
    atomic_write,
    contact_key,
    rejection_message,
    require_types,
    show_name,
)
from outreach_async.bulk import Exclusions, Repeats
from outreach_async.client import OutreachClient
from outreach_async.errors import Excluded, InvalidRequest, OutreachError
from outreach_async.importer._checks import CheckPolicy
from outreach_async.importer._columns import (
    Columns,
    can_map_all,
    decisions_in_order,
    map_columns,
    recognise_targets,
)
from outreach_async.importer._consent import CONSENT_CODES, find_exclusion
from outreach_async.importer._gate import Gate, GateReport, domain_of, read_verdict
from outreach_async.importer._groups import MAX_EXAMPLES, FindingKey, Groups, excluded_reason
from outreach_async.importer._known_exports import clean_name
from outreach_async.importer._mapping import UnmappedColumns, apply_mapping, clean_names, mapping_text, number_codes
from outreach_async.importer._rows import Block, ReadBlock, Row, RowFinding, RowReader
from outreach_async.importer._table import File, read_blocks, scan_people
from outreach_async.models import RUN_TARGET, WorkspaceField

_BLOCK_SIZE: Final = 500  # more rows leave the caches of the processor
_RECOGNISED: Final = "every value is known"  # the reason for the code of a column that was recognised by its values


@attrs.frozen(kw_only=True)
class ImportJob:
    r"""An import of a file: how its columns are mapped and values checked.

    Attributes:
        file: The file.
        overrides: Codes by column name, as for `map_columns`.
        mapping: Codes by column name of a mapping file, which may have
            columns that the file does not have. `overrides` precede.
        ignore_unknown: Ignore columns that match no field, as for
            `map_columns`.
        checks: The levels of the checks.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,Plan\nann@company.example,gold\n,basic\n")
        job = ImportJob(file=open_file("people.csv"), checks=CheckPolicy.of(["phone=error"]))
        mapped = await job.map(client)
        found = await mapped.check()  # reads the file, sends nothing
        print(mapped.mapping, found.sent)  # -> {'E-mail': 'email', 'Plan': 'custom_1'} 1
        report = await client.contacts.create_many(mapped.rows())
        ```
    """

    file: File
    overrides: Mapping[str, str] = attrs.field(factory=dict)
    mapping: Mapping[str, str] = attrs.field(factory=dict, converter=clean_names)
    ignore_unknown: bool = False
    checks: CheckPolicy = attrs.field(factory=CheckPolicy.of)

    def __attrs_post_init__(self) -> None:
        require_types(ImportJob, attrs.asdict(self, recurse=False))

    @property
    def lacking(self) -> list[str]:
        """The columns of the mapping, but ignored ones, that the file lacks."""
        return apply_mapping(self.mapping, self.file.headers)[1]

    @property
    def notes(self) -> list[str]:
        """What to know about the file, the mapping and the checks."""
        lacking = (f"--mapping: the input file has no column {show_name(column)}" for column in self.lacking)
        return [*self.file.notes, *lacking, *filter(None, (self.checks.note,))]

    @property
    def decided(self) -> dict[str, str]:
        """Codes of overrides, then of the mapping, in order of preference."""
        saved = apply_mapping(self.mapping, self.file.headers)[0]
        return {**self.overrides, **{column: code for column, code in saved.items() if column not in self.overrides}}

    @property
    def needs_client(self) -> bool:
        """Whether only the service knows a field or campaign that is named."""
        decided = self.decided
        return not can_map_all(self.file.headers, decided) or not {*Target._fields}.isdisjoint(decided.values())

    async def map(
        self, client: OutreachClient | None = None, *, targets: Targets | None = None, fields: Iterable[WorkspaceField] = ()
    ) -> MappedFile:
        r"""Map the columns; values decide about names such as "Campaign".

        Args:
            client: The client that lists the workspace's fields, if a
                column needs them; without one, `fields` are used.
            targets: Finds the targets that rows name; by default, only ids
                are known.
            fields: The workspace's fields.

        Raises:
            UnmappedColumns: A column is unknown or ambiguous.
            InvalidRequest: As `map_columns` does, or the file has no
                column of consent that the mapping has.
            OutreachError: The workspace's fields, or its campaigns, could
                not be read.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,Campaign\nann@company.example,camp_1\n")
            mapped = await ImportJob(file=open_file("people.csv")).map()
            print(mapped.columns.codes)  # -> ('email', 'campaign')
            ```
        """
        require_types(ImportJob.map, locals())
        targets, decided, headers = targets or Targets(), self.decided, self.file.headers
        samples = self.file.samples()
        recognised, doubts = await recognise_targets(self.file.headers, self.file.records, decided, targets)
        overrides = {**decided, **recognised}
        try:
            if client is not None and not can_map_all(headers, overrides):
                fields = await client.workspaces.fields()
            columns = map_columns(headers, overrides, fields, ignore_unknown=self.ignore_unknown, samples=samples)
        except UnmappedColumns as error:
            error.columns = tuple(attrs.evolve(each, doubt=doubts.get(clean_name(each.header), "")) for each in error.columns)
            raise
        lost = [column for column in self.lacking if self.mapping[column] in CONSENT_CODES]
        if lost and not columns.consent and self.checks.levels["consent"] == "error":
            what = f"the file has no column {lost[0]!r}, nor another one that says who must not be written to"
            raise InvalidRequest(f"mapping: {what}; export the file with it, or remove the column from the mapping")
        if recognised:
            pairs = zip(columns.headers, columns.reasons, strict=True)
            reasons = tuple(_RECOGNISED if clean_name(name) in recognised else old for name, old in pairs)
            columns = attrs.evolve(columns, reasons=reasons)
        return MappedFile(self.file, columns, self.checks, targets)

    def create_journal(
        self, location: str | Path, mapping: Mapping[str, str] | None = None, fingerprint: str | None = None
    ) -> store.Store:
        r"""Return a journal that records the file, its content and columns.

        Args:
            location: The path or URL.
            mapping: The codes of the columns, as `MappedFile.mapping`; by
                default, those that are decided without the file.
            fingerprint: The fingerprint of the file, if it is known; by
                default, the file is read.

        Raises:
            InvalidRequest: An argument is of another type.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            print(ImportJob(file=open_file("people.csv")).create_journal("run.db").exists())  # -> False
            ```
        """
        require_types(ImportJob.create_journal, locals())
        from outreach_async.store import Store  # imported on demand: a check of a file needs no journal

        file, source, known = self.file, self.file.name, None  # a stream is identified by its rows
        if file.path is not None:
            source, known = str(file.path.resolve()), fingerprint or file.fingerprint()
        recorded = number_codes(self.decided if mapping is None else mapping)
        return Store(location, source=source, fingerprint=known, mapping=recorded)


@attrs.define
class MappedFile:
    r"""A file whose columns are mapped.

    Attributes:
        file: The file.
        columns: Its columns.
        checks: The levels of the checks.
        targets: Finds the targets that its rows name.
        people: The people whom a row excludes, as `File.find_people`
            returns them; `None` until `check` has found them.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,Unsubscribed\nann@company.example,yes\nANN@company.example,\n")
        mapped = await ImportJob(file=open_file("people.csv")).map()
        found = await mapped.check()
        print(found.excluded, [row.excluded for row in mapped.rows()][0])  # -> 2 column 'Unsubscribed' says 'yes'
        ```
    """

    file: File
    columns: Columns
    checks: CheckPolicy
    targets: Targets = attrs.field(factory=Targets, repr=False)
    people: dict[int, str] | None = attrs.field(default=None, repr=False)

    @property
    def mapping(self) -> dict[str, str]:
        """The code, or `ignore`, by column name, preferred columns first."""
        return {column: code for column, code, _ in decisions_in_order(self.columns)}

    @property
    def names_targets(self) -> bool:
        """Whether a column names the campaign or the workspace of each row."""
        return not {*self.columns.codes}.isdisjoint(Target._fields)

    def save(self, path: Path) -> None:
        r"""Write the mapping to a file that `read_mapping` reads.

        Raises:
            OSError: The file cannot be written.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            mapped = await ImportJob(file=open_file("people.csv")).map()
            mapped.save(Path("mapping.toml"))
            print(read_mapping("mapping.toml"))  # -> {'E-mail': 'email'}
            ```
        """
        export = self.columns.export
        notes = [f"The file was recognised as an export from {export}."] if export else []
        atomic_write(path, mapping_text(self.file.name, notes, decisions_in_order(self.columns)))

    def rows(self, *, clear_blanks: bool = False) -> Iterable[Row]:
        r"""Return the rows as `check` judged them, with ids of their targets.

        With `clear_blanks`, each field whose cells are blank is `None`, as
        for `blank="clear"` of `create_many`.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,\n")
            mapped = await ImportJob(file=open_file("people.csv")).map()
            print([dict(row) for row in mapped.rows()])  # -> [{'email': 'ann@company.example'}]
            ```
        """
        rows: Iterable[Row] = self.file.rows(self.columns, checks=self.checks, people=self.people)
        if self.names_targets:
            rows = (_with_ids(row, self.targets) for row in rows)
        return map(Row.clear_blanks, rows) if clear_blanks else rows

    async def check(self, found: Preflight | None = None, *, gate: Gate | None = None) -> Preflight:
        r"""Read the whole file, and return the counts and the findings.

        Nothing is sent.

        A file with columns that say who must not be written to is read
        twice: a later row of a person may exclude an earlier one. `found`
        receives them; it has the options of the check. `gate` judges the
        addresses of the rows that can be sent; see `Preflight`.

        Raises:
            InvalidRequest: The file can no longer be read.
            OutreachError: The campaigns that rows name could not be
                listed.

        Example:
            ```python
            Path("people.csv").write_text('E-mail\nann@company.example\n""\n')
            mapped = await ImportJob(file=open_file("people.csv")).map()
            found = await mapped.check(Preflight(on_unsent=lambda row, error: print(row.line, error)))
            print(found.rows, found.sent)  # -> 1 1
            ```
        """
        self.people = {}
        for _ in scan_people(self.file, self.columns, self.checks, self.people):
            await checkpoint()
        found = Preflight() if found is None else found
        found.gate = gate or found.gate
        await found.add(self)
        return await found.finish()


OnUnsent: TypeAlias = Callable[[Row, OutreachError], object]
OnFinding: TypeAlias = Callable[["MappedFile", int, RowFinding, Sequence[str]], object]
_FILE_BITS: Final = 40  # of the number of a row, below those of its file
_LINE: Final = (1 << _FILE_BITS) - 1
_JUDGED: Final = {("email", "warn"), ("role", "warn")}  # findings of which those of a gate are


@attrs.define(kw_only=True)
class Preflight:
    r"""The check of an input: `add` its files in order, and `finish`.

    Attributes:
        rows: Number of rows.
        refused: Number of rows that are rejected.
        excluded: Number of rows of people who must not be written to.
        exclude: The lists of other people who must not be written to.
        superseded: Number of rows that are not sent because another row
            with their e-mail counts.
        repeated: Number of rows with e-mail and target of an earlier one.
        findings: The findings, in groups with a count and a few examples.
        unit: What the number of a row counts, as for `File.unit`.
        repeats: Policy for e-mails that occur more than once, as for
            `create_many`.
        by_contact: Whether all rows of a contact are repeats, as in runs
            with a ledger, also under the policies that store the input.
        on_unsent: Function that receives each row that is never sent, with
            the reason.
        on_progress: Function that receives the number of rows so far.
        on_finding: Function that receives each finding, with the file, and
            the number and the cells of its row; no cells for a repeat.
        gate: What judges the addresses of the rows that can be sent.
        judged: The report of the gate; `None` if there is none. Pass its
            `exclusions` to `create_many`; `excluded` counts these rows.

    Example:
        ```python
        check = Preflight()
        for name in "may.csv", "june.csv":
            Path(name).write_text("E-mail\nann@company.example\n")
            mapped = await ImportJob(file=open_file(name)).map()
            mapped.people = {}
            await check.add(mapped, name=name)
        print([group.examples[0]["message"] for group in (await check.finish()).findings])
        # -> ['email: same address as may.csv: line 2']
        ```
    """

    rows: int = 0
    refused: int = 0
    excluded: int = 0
    exclude: Sequence[Exclusions] = ()
    superseded: int = 0
    repeated: int = 0
    findings: Groups[FindingKey] = attrs.Factory(Groups)
    unit: Literal["line", "record"] = "line"
    repeats: Repeats = "serial"
    by_contact: bool = False
    on_unsent: OnUnsent | None = None
    on_progress: Callable[[int], object] | None = None
    on_finding: OnFinding | None = None
    gate: Gate | None = None
    judged: GateReport | None = attrs.field(default=None, init=False)
    _judging: tuple[MutableSequence[int], list[str], list[str]] = attrs.Factory(lambda: (array("Q"), [], []))  # columns of these
    _withheld: list[tuple[int, str, str]] = attrs.Factory(list)  # the number, the e-mail and the status of rows that are not sent
    _people: dict[str, bool] = attrs.Factory(dict)  # of these rows: whether the address is bad, and the person has not opted out
    _lines: MutableSequence[int] = attrs.Factory(lambda: array("Q"))
    _names: list[str] = attrs.Factory(list)
    _files: list[MappedFile] = attrs.Factory(list)
    _emails: RowIndex = attrs.Factory(RowIndex)
    _recent_emails: RecentEmails = attrs.Factory(RecentEmails)

    def __attrs_post_init__(self) -> None:
        require_types(Preflight, attrs.asdict(self, recurse=False))

    @property
    def sent(self) -> int:
        """Number of rows that can be sent."""
        return self.rows - self.refused - self.excluded - self.superseded

    def find_number(self, index: int) -> int | None:
        """Return the number of the row with an index; `None` if unknown.

        Example:
            ```python
            print(Preflight(unit="record").find_number(0))  # -> 1
            ```
        """
        if self.unit == "record":
            return index + 1
        return self._lines[index] & _LINE if index < len(self._lines) else None

    def find_place(self, index: int) -> str | None:
        """Return in words where the row with an index is; `None` if unknown.

        Example:
            ```python
            print(Preflight(unit="record").find_place(0))  # -> record 1
            ```
        """
        if index < len(self._lines):
            return self._place(self._lines[index])
        return None if (number := self.find_number(index)) is None else f"{self.unit} {number}"

    def _place(self, number: int) -> str:
        return f"{self._names[number >> _FILE_BITS]}{self.unit} {number & _LINE}"

    async def add(
        self, file: MappedFile, *, name: str | None = None, chosen: Sequence[int] = b"", distinct: bool = False
    ) -> None:
        r"""Check the rows of a file.

        Args:
            file: The file, whose `people` are known.
            name: The name of the file for messages, if the input has
                several files.
            chosen: For each row, whether it belongs to the input; by
                default, all do.
            distinct: True if the e-mails of these rows are known to occur
                once in the input, and need not be stored.

        Raises:
            InvalidRequest: The file can no longer be read.
            OutreachError: The campaigns that rows name could not be
                listed.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\nbo@company.example\n")
            mapped = await ImportJob(file=open_file("people.csv")).map()
            mapped.people = {}
            check = Preflight()
            await check.add(mapped, chosen=[1, 0])
            print((await check.finish()).rows)  # -> 1
            ```
        """
        require_types(Preflight.add, locals())
        self.unit = file.file.unit
        self._files.append(file)
        self._names.append(f"{name}: " if name else "")
        reader, start = RowReader(file.columns, file.checks, file.people, finds_all=True), 0
        for block in read_blocks(file.file, file.columns, _BLOCK_SIZE):
            if self.on_progress is not None:
                self.on_progress(self.rows)
            await checkpoint()  # the checks are CPU-bound: let other tasks run, and allow cancellation
            end = start + len(block.lines)
            part = block.choose(chosen[start:end]) if chosen else block
            start = end
            for row, refusal in await self._check(file, reader.read(part), distinct=distinct) if part.lines else ():
                if self.on_unsent is not None:
                    self.on_unsent(row, refusal)

    async def _check(self, file: MappedFile, read: ReadBlock, *, distinct: bool) -> list[tuple[Row, OutreachError]]:
        """Check the next records, and return each row that is never sent, with the reason."""
        block, count, targets_of_file = read.block, len(read.block.lines), file.targets
        base = (len(self._files) - 1) << _FILE_BITS
        numbers = [base + line for line in block.lines] if base else block.lines
        if self.repeats != "serial":
            self._lines.extend(numbers)
        refusals = {at: InvalidRequest(row.fault) for at, row in read.odd.items() if row.fault is not None}
        excluded = {at for at, row in read.odd.items() if row.excluded is not None}
        targets: dict[int, Target] = {}
        findings: Mapping[int, Sequence[RowFinding]] = read.findings
        if self.gate is not None:  # which says the same about the rows that can be sent
            findings = {
                at: [each for each in found if at in refusals or each[:2] not in _JUDGED] for at, found in findings.items()
            }
        if file.names_targets:
            # Those of excluded rows, too, because a ledger has entries for each target.
            named = {at: _named_target(read.row(at)) for at in range(count) if at not in refusals}
            unknown = await _find_unknown_targets(named.values(), targets_of_file)
            wrong = {at: unknown[to] for at, to in named.items() if to in unknown and at not in excluded}
            findings = {**findings, **{at: [finding, *findings.get(at, ())] for at, finding in wrong.items()}}
            refusals |= {at: InvalidRequest(finding.message) for at, finding in wrong.items()}
            targets = {at: targets_of_file.find(to) for at, to in named.items() if to not in unknown and at not in excluded}
        for at in sorted(findings):
            for finding in findings[at]:
                self._add(finding, numbers[at])
        self._note_all(block, numbers, findings, refusals)
        email_at = file.columns.sources["email"][0]
        emails = {at: cells[email_at] for at, cells in enumerate(block.cells) if len(cells) > email_at}
        emails |= {at: row.email for at, row in read.odd.items()}
        addresses = {at: (numbers[at], email) for at, email in emails.items()} if self.gate is not None else {}
        emails = {at: email for at, email in emails.items() if at not in excluded and at not in refusals}
        listed = self._take_listed(emails, targets, numbers, block)
        if not distinct:
            refusals |= self._find_repeats(emails, targets, numbers, targets_of_file.default)
        self.rows += count
        self.refused += len(refusals)
        self.excluded += len(excluded) + len(listed)
        unsent: dict[int, OutreachError] = {**refusals, **{at: Excluded(str(read.odd[at].excluded)) for at in excluded}, **listed}
        self._take_addresses(file, read, addresses, unsent)
        return [(read.row(at), unsent[at]) for at in sorted(unsent)]

    def _take_listed(
        self, emails: dict[int, str], targets: dict[int, Target], numbers: Sequence[int], block: Block
    ) -> dict[int, Excluded]:
        """Remove the rows that a list has, and return their errors."""
        places, found = [*emails], dict[int, Excluded]()
        for each in self.exclude:
            found = {places[at]: error for at, error in each.find([*emails.values()]).items()} | found
        for at, error in found.items():
            del emails[at]
            targets.pop(at, None)
            finding = RowFinding("exclude", "error", "email", "excluded by a list", str(error))
            self._note(numbers[at], finding, block.cells[at])
        return found

    def _take_addresses(
        self, file: MappedFile, read: ReadBlock, addresses: Mapping[int, tuple[int, str]], unsent: Collection[int]
    ) -> None:
        """Keep the addresses for the gate: a list is judged by its bad addresses, whatever else forbids their rows."""
        places = [place for place, code in file.columns.consent if code == "email_status"]
        for at, (number, email) in addresses.items():
            texts = [read.block.cells[at][place] for place in places] if email.strip() else []
            verdicts = {read_verdict(text): text for text in texts}
            status = verdicts.get("invalid") or next((text for verdict, text in verdicts.items() if verdict), "")
            address = number, email, sys.intern(status)
            if at not in unsent:
                self._take(address)
                continue
            self._withheld.append(address)
            found, key = read.findings.get(at, ()), contact_key(email)
            says_no = any(each.check == "consent" and each.code in {"opt_out", "opt_in"} for each in found)
            if says_no or any(read_verdict(text) != "invalid" and find_exclusion("email_status", "", text) for text in texts):
                self._people[key] = False
            elif "invalid" in verdicts or any(each.check == "email" for each in found):
                self._people.setdefault(key, True)

    def _take(self, address: tuple[int, str, str]) -> None:
        columns: tuple[Any, ...] = self._judging
        for column, value in zip(columns, address, strict=True):
            column.append(value)

    def _add(self, finding: RowFinding, number: int) -> None:
        name = self._names[number >> _FILE_BITS].removesuffix(": ")
        place = {"file": name} if name else {}
        example = {**place, self.unit: number & _LINE, "message": finding.message}
        self.findings.add(FindingKey(*finding[:4]), finding.message, number, lambda: example)

    def _note(self, number: int, finding: RowFinding, cells: Sequence[str]) -> None:
        if self.on_finding is not None:
            self.on_finding(self._files[number >> _FILE_BITS], number & _LINE, finding, cells)

    def _note_all(
        self,
        block: Block,
        numbers: Sequence[int],
        findings: Mapping[int, Sequence[RowFinding]],
        refusals: Mapping[int, InvalidRequest],
    ) -> None:
        """Note every finding of a block, and the faults of rows that no check has found."""
        if self.on_finding is None:
            return
        for at in sorted({*findings, *refusals}):
            noted = [*findings.get(at, ())]
            if at in refusals and not any(finding.level == "error" for finding in noted):
                noted.append(RowFinding("row", "error", "", "", str(refusals[at])))
            for finding in noted:
                self._note(numbers[at], finding, block.cells[at])

    def _find_repeats(
        self, emails: Mapping[int, str], targets: Mapping[int, Target], numbers: Sequence[int], default: Target
    ) -> dict[int, InvalidRequest]:
        """Store the e-mails of rows to send. Return the refusals of repeats."""
        # The service detects duplicates by e-mail, probably regardless of case. Without a ledger, a row supersedes only identical
        # e-mails.
        key = str if self.repeats in WHOLE_INPUT and not self.by_contact else contact_key
        keys: Iterable[Hashable] = map(key, emails.values())
        keys = zip(keys, targets.values(), strict=True) if targets else keys
        self._emails.add(zip(map(hash, keys), map(numbers.__getitem__, emails), strict=True))
        if self.repeats != "error":
            return {}
        find = self._recent_emails.find_earlier
        earlier = {at: find(self.rows + at, email, targets.get(at, default)) for at, email in sorted(emails.items())}
        return {
            at: InvalidRequest(rejection_message(self._place(self._lines[index])))
            for at, index in earlier.items()
            if index is not None
        }

    async def finish(self) -> Preflight:
        """Return what was found in all files, with what the gate has found.

        Raises:
            InvalidRequest: As `Gate.assess` does.

        Example:
            ```python
            print((await Preflight(gate=Gate()).finish()).judged.rows)  # -> 0
            ```
        """
        self.repeated = count = self._emails.count()
        reports = any(file.checks.levels["repeat"] != "off" for file in self._files)
        if count and reports and self.repeats != "error":
            noted = count if self.on_finding is not None else min(count, MAX_EXAMPLES)
            for number, earlier in islice(self._emails.ordered_repeats(), noted):
                message = rejection_message(self._place(earlier), remedy=False)
                finding = RowFinding("repeat", "warn", "email", "same address as an earlier row", message)
                self._add(finding, number)
                self._note(number, finding, ())
            if count > noted:
                self.findings.add(FindingKey(*finding[:4]), "", count=count - noted)
        superseded: Collection[int] = ()
        if self.repeats in WHOLE_INPUT:
            self.superseded = count
            superseded = {number for number, _ in self._emails.repeats()} if self.gate is not None else ()
        self._emails, self._recent_emails = RowIndex(), RecentEmails()  # a run keeps what was found while it sends the rows
        if self.gate is not None:
            await self._judge(self.gate, superseded)
        return self

    async def _judge(self, gate: Gate, superseded: Collection[int]) -> None:
        columns = (
            file.columns.headers[at] for file in self._files for at, code in file.columns.consent if code == "email_status"
        )
        withheld = [each for each in self._withheld if self._people.get(contact_key(each[1]))]
        for each in withheld:
            self._take(each)
        numbers, emails, statuses = self._judging
        self.judged = await gate.assess(emails, statuses, " or ".join(dict.fromkeys(columns)))
        self.excluded -= len(withheld)
        for at, level, reason in self.judged.findings:
            number, email, text = numbers[at], emails[at], reason.removeprefix("gate: ")
            self.excluded += level == "error" and number not in superseded
            finding = RowFinding("gate", level, "email", excluded_reason(text, [domain_of(email)]), f"email: {text}")
            self._add(finding, number)
            (email_at, *_) = self._files[number >> _FILE_BITS].columns.sources["email"]
            self._note(number, finding, [""] * email_at + [email])
        self._judging, self._withheld, self._people = (array("Q"), [], []), [], {}


def _named_target(row: Row) -> Target:
    """Return the target that a row names; `RUN_TARGET` itself if it names none."""
    members = row.members
    if "campaign" not in members and "workspace" not in members:
        return RUN_TARGET
    return Target(*map(members.get, Target._fields))


async def _find_unknown_targets(named: Iterable[Target], targets: Targets) -> dict[Target, RowFinding]:
    """Return a finding for each target that is unknown. The campaigns of the workspaces of rows are listed."""
    findings: dict[Target, RowFinding] = {}
    for each in {*named} - {RUN_TARGET}:
        try:
            await targets.apply(targets.find, each)
        except InvalidRequest as error:
            field = str(error).partition(":")[0]
            findings[each] = RowFinding(field, "error", field, f"an unknown {field}", str(error))
    return findings


def _with_ids(row: Row, targets: Targets) -> Row:
    if row.fault is not None or (named := _named_target(row)) is RUN_TARGET:
        return row
    try:
        found = targets.find_listed(named)
    except InvalidRequest as error:
        return attrs.evolve(row, fault=str(error)) if row.excluded is None else row
    if found is None:  # the file has changed since it was checked; the run finds this out
        return row
    return attrs.evolve(row, members={**row.members, **found._asdict()})
