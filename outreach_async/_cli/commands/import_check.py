"""The input and options of an import, and the check of its file, which sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs

from outreach_async._cli import files
from outreach_async._cli.commands.import_report import FailedRows, print_columns, print_findings, print_ledger
from outreach_async._cli.commands.results import open_outcomes
from outreach_async._cli.output import Screen, show_progress
from outreach_async._cli.process import INCOMPLETE, OK
from outreach_async._cli.values import MAX_IN_FLIGHT, Options
from outreach_async._files.atomic import atomic_write
from outreach_async._service.contacts import Target
from outreach_async._service.validation import TARGET_FIELDS
from outreach_async._vocabulary import DuplicatePolicy, Outcome
from outreach_async.bulk._outcomes import BulkReport, ContactOutcome, LedgerCounts, unsent_outcome
from outreach_async.bulk._rows import WHOLE_INPUT
from outreach_async.bulk._targets import Targets
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.importer import Columns, File, RejectsFile, Row, columns_for, is_reject, reject
from outreach_async.importer._checks import CheckPolicy, Checks
from outreach_async.importer._columns import can_map_all
from outreach_async.importer._mapping_file import mapping_text
from outreach_async.importer._preflight import OnRejected, Preflight, run_preflight
from outreach_async.importer._rejects import FindNumber
from outreach_async.importer._source import InputChanged
from outreach_async.importer._table import RowUnit
from outreach_async.importer._target_columns import REASON, recognise_targets, with_ids

if TYPE_CHECKING:
    from outreach_async.bulk import Journal, ObjectJournal, Repeats
    from outreach_async.bulk.journal import JournalReport
    from outreach_async.bulk.journal._identity import Earlier
    from outreach_async.bulk.ledger import Changed
    from outreach_async.client import OutreachClient

# A dry run imports neither journals nor the client, so that it starts fast.

WriteOutcome: TypeAlias = Callable[[ContactOutcome], object]


@attrs.frozen(kw_only=True)
class ImportJob:
    """The input and the options of an import."""

    file: File
    overrides: Mapping[str, str] = attrs.field(factory=dict)
    ignore_unknown: bool = False
    duplicates: DuplicatePolicy = "skip"
    campaign: str | None = None
    workspaces: Mapping[str, str] = attrs.field(factory=dict)
    refused: Mapping[str, str] = attrs.field(factory=dict)
    strict: bool = True
    concurrency: int = MAX_IN_FLIGHT
    repeats: Repeats = "serial"
    journal: files.JournalLocation | None = None
    ledger: files.JournalLocation | None = None
    max_age: float | None = None
    changed: Changed = "send"
    resume: bool = False
    earlier: Earlier = "known"
    rejects: Path | None = None
    results: Path | None = None
    checks: CheckPolicy | None = None
    save_mapping: Path | None = None
    notes: tuple[str, ...] = ()
    spooled: bool = False
    fingerprint: str | None = attrs.field(init=False)

    @fingerprint.default
    def _compute_fingerprint(self) -> str | None:
        return None if self.file.path is None else self.file.fingerprint()

    @property
    def spools(self) -> bool:
        """True if the journal stores the rows, because the input is a stream that can be read only once."""
        return self.journal is not None and self.file.path is None

    @property
    def stores_rows(self) -> bool:
        """True if the journal stores all rows before the first one is sent, so that they are not read from the file again."""
        return self.spools or (self.journal is not None and self.repeats in WHOLE_INPUT)

    @property
    def unit(self) -> RowUnit:
        """The unit of row numbers in messages."""
        return "record" if self.spools else "line"

    def create_journal(self, mapping: Mapping[str, str] | None = None) -> Journal | ObjectJournal | None:
        """Create the journal of the import, if it has one. Standard input is identified by its rows."""
        from outreach_async.bulk.journal import journal_at

        if self.journal is None:
            return None
        source = self.file.name if self.file.path is None else str(self.file.path.resolve())
        mapping = self.overrides if mapping is None else mapping
        return journal_at(self.journal, source=source, fingerprint=self.fingerprint, mapping=mapping)

    def find_journal(self) -> Journal | ObjectJournal | None:
        """Return the journal; `None` if the import has none, or if it was removed, renamed or unmounted."""
        journal = self.create_journal()
        return journal if journal is not None and journal.exists() else None

    def find_content_change(self) -> InputChanged | None:
        """Return an error if the bytes of the input file are not those that were opened."""
        if self.fingerprint is None:
            return None
        try:
            self.file.source.require_content(self.fingerprint)
        except InvalidRequest as error:  # also if the file can no longer be read
            return InputChanged(str(error).partition("; ")[0])
        return None

    def read_earlier_report(self) -> JournalReport | None:
        """Return the report of the run to resume, unless there is none, or it is damaged and `earlier` is `unknown`."""
        journal = self.find_journal() if self.resume else None
        try:
            return None if journal is None else journal.report()
        except (InvalidRequest, JournalError):
            if self.earlier == "known":
                raise
            return None

    def is_settled(self, report: JournalReport) -> bool:
        """Return whether the results of an earlier run can be printed again without reading the input."""
        if report.state != "finished" or self.save_mapping is not None or self.earlier == "unknown":
            return False
        return self.spooled or (report.fingerprint is not None and self.file.path is not None)

    def guard(self, columns: Columns, targets: Targets) -> Iterable[Row]:
        """Return the rows of the file, with ids of campaigns; those with an error of a check have a fault."""
        rows = with_ids(self.file.rows(columns), columns, targets)
        return rows if self.checks is None else Checks(columns, self.checks).guarded(rows)

    @property
    def needs_service(self) -> bool:
        """True if columns or campaigns can be found only with the service."""
        return not can_map_all(self.file.headers, self.overrides) or not {*TARGET_FIELDS}.isdisjoint(self.overrides.values())


async def prepare(
    client: OutreachClient | None,
    job: ImportJob,
    screen: Screen,
    on_rejected: OnRejected = lambda _row, _error: None,
    unit: RowUnit = "line",
) -> tuple[Columns, Preflight, Targets]:
    """Map the columns, check the whole file and print the findings. Return the targets that its rows name, too."""
    for note in job.notes:  # before the columns are mapped, because a note may explain why this fails
        screen.print_line(f"note: {note}")
    samples = job.file.samples()
    if client is None:
        targets = Targets(Target(campaign=job.campaign), None, job.workspaces, job.refused)
    else:
        from outreach_async.resources import targets_of

        targets = targets_of(client.contacts, job.campaign, job.workspaces, job.refused)
    if job.resume and job.earlier == "known" and (journal := job.find_journal()) is not None:
        from outreach_async.bulk.journal._store import recorded_names

        targets.names.update(recorded_names(journal))  # a campaign may have got another name since the run began
    recognised = await recognise_targets(job.file, job.overrides, targets)
    overrides = {**job.overrides, **recognised}
    columns = await columns_for(client, job.file.headers, overrides, ignore_unknown=job.ignore_unknown, samples=samples)
    if recognised:
        pairs = zip(columns.headers, columns.reasons, strict=True)
        columns = attrs.evolve(columns, reasons=tuple(REASON if name.strip() in recognised else old for name, old in pairs))
    if job.save_mapping is not None:
        with files.explain_write_errors("--save-mapping", job.save_mapping):
            atomic_write(job.save_mapping, mapping_text(columns, job.file.name))
    if job.checks is not None:
        print_columns(screen, columns)
    policy = job.checks or CheckPolicy.of(["off"])
    with show_progress(screen, "Checking", None) as bar:

        def show(rows: int) -> None:
            bar(rows, f"{rows:,} rows")

        preflight = await run_preflight(
            job.file, columns, policy, repeats=job.repeats, unit=unit, tell=on_rejected, show=show, targets=targets
        )
        show(preflight.rows)
    print_findings(screen, preflight)
    return columns, preflight, targets


async def check_file(options: Options, job: ImportJob) -> int:
    """Check the whole file without creating anything, and return the exit code."""
    screen, started_at = options.screen(), monotonic()
    async with AsyncExitStack() as stack:
        client = None
        if options.base_url and job.needs_service:
            from outreach_async._cli.connection import open_client

            client = await stack.enter_async_context(open_client(options))
        with FailedRows(screen, screen.few) as failed, open_rejects(job.rejects, job.file) as write_reject:

            def reject_row(row: Row, error: InvalidRequest) -> None:
                outcome = unsent_outcome(0, row, Outcome.REJECTED, error)
                failed.add(outcome)
                write_reject(outcome)

            columns, preflight, targets = await prepare(client, job, screen, reject_row)
    rows, refused = preflight.rows, preflight.refused
    screen.print_line(f"{preflight.sent:,} of {rows:,} rows can be sent; nothing was created")
    outcomes = dict.fromkeys(Outcome, 0) | {Outcome.REJECTED: refused, Outcome.NOT_APPLIED: rows - refused}
    report = BulkReport(rows, outcomes, 0, monotonic() - started_at, preflight.superseded)
    if job.ledger is not None:
        with open_job_results(job) as write_result:
            report = attrs.evolve(report, ledger=_compare(job, options, columns, targets, write_result))
        print_ledger(screen, report.ledger)
    details = {"dry_run": True, "warnings": preflight.counts(), "columns": mapping_of(columns), "failures": failed.failures}
    screen.print_result({**report.to_dict(), **details})
    return INCOMPLETE if refused else OK


def _compare(job: ImportJob, shared: Options, columns: Columns, targets: Targets, write_result: WriteOutcome) -> LedgerCounts:
    from outreach_async._cli.connection import workspaces_of
    from outreach_async.bulk._run.comparing import count_changes
    from outreach_async.bulk.journal import Identity
    from outreach_async.bulk.ledger import Ledger, LedgerOptions

    workspace = workspaces_of(shared)[0]
    ledger, policies = Ledger(str(job.ledger)), {"duplicates": job.duplicates, "strict_validation": job.strict}
    ignore = job.changed == "ignore"
    options = LedgerOptions(ledger, Identity(workspace, {}), job.repeats, policies, job.max_age, ignore_changes=ignore)
    return count_changes(job.guard(columns, targets), options, Targets(Target(workspace, job.campaign)), write_result)


def mapping_of(columns: Columns) -> dict[str, str]:
    return {column: code for column, code, _ in columns.decisions()}


@contextmanager
def open_job_results(job: ImportJob) -> Iterator[WriteOutcome]:
    """Yield a function that writes an outcome to the results file. With a journal, the file is written at the end instead."""
    if job.results is None or job.journal is not None:
        yield lambda _outcome: None
        return
    with files.explain_write_errors("--results", job.results), open_outcomes(job.results, job.file) as write:
        yield write


@contextmanager
def open_rejects(
    path: Path | None,
    file: File,
    find_number: FindNumber = lambda _index: None,
    complete: Callable[[RejectsFile], None] = lambda _rejects: None,
) -> Iterator[WriteOutcome]:
    """Yield a function that writes failed rows to the rejects file. The file appears at its path even if the block raises."""
    if path is None:
        yield lambda _outcome: None
        return
    rejects = RejectsFile(path, file.headers)

    def write_reject(outcome: ContactOutcome) -> None:
        row = cast("Row", outcome.contact)
        if is_reject(outcome):
            with files.explain_write_errors("--rejects", path):
                rejects.add(reject(row.line, row.cells, outcome, find_number))

    with files.explain_write_errors("--rejects", path):
        rejects.__enter__()
    try:
        complete(rejects)
        yield write_reject
    finally:
        with files.explain_write_errors("--rejects", path), ExitStack() as stack:  # an error of the block is none of this file
            stack.push(rejects)
            complete(rejects)
