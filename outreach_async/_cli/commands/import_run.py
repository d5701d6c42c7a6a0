"""The run of an import: check the file, create the contacts, and print what became of every row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeAlias, cast

import attrs

from outreach_async._cli import files
from outreach_async._cli.commands.import_report import (
    FailedRows,
    max_listed_rows,
    name_outcomes,
    print_columns,
    print_findings,
    print_ledger,
    print_report,
)
from outreach_async._cli.commands.results import open_outcomes, write_results
from outreach_async._cli.connection import MAX_IN_FLIGHT, open_client, workspaces_of
from outreach_async._cli.output import Screen, follow_progress, show_current, show_progress
from outreach_async._cli.process import (
    DRAIN_TIMEOUT,
    INCOMPLETE,
    INTERRUPTED,
    OK,
    PAUSED_DRAIN_TIMEOUT,
    InterruptHandler,
    exit_code_of_rows,
    handle_interrupts,
)
from outreach_async._cli.values import Options
from outreach_async._files.atomic import atomic_write
from outreach_async._service.contacts import Target
from outreach_async._vocabulary import DuplicatePolicy, Outcome
from outreach_async.bulk import BulkReport, BulkRun, ContactOutcome, Journal, ObjectJournal, Outcomes, Repeats
from outreach_async.bulk._outcomes import LedgerCounts, unsent_outcome
from outreach_async.bulk._rows import WHOLE_INPUT
from outreach_async.bulk._run.bulk_run import with_names
from outreach_async.bulk._run.comparing import count_changes
from outreach_async.bulk._targets import Targets
from outreach_async.bulk.journal import Identity, JournalReport, journal_at
from outreach_async.bulk.journal._identity import Earlier
from outreach_async.bulk.journal._reader import recorded_names
from outreach_async.bulk.ledger import Changed, Ledger, LedgerOptions
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.importer import Columns, File, RejectsFile, Row, columns_for, is_reject, reject
from outreach_async.importer._checks import CheckPolicy, Checks
from outreach_async.importer._mapping_file import mapping_text
from outreach_async.importer._preflight import OnRejected, Preflight, run_preflight
from outreach_async.importer._rejects import FindNumber, export_rejects, number_record, rejects_of
from outreach_async.importer._results import describe_outcomes
from outreach_async.importer._source import InputChanged
from outreach_async.importer._table import RowUnit
from outreach_async.importer._target_columns import REASON, recognise_targets, with_ids
from outreach_async.resources import targets_of

OnClose: TypeAlias = Callable[[BulkReport, list[dict[str, Any]]], None]
"""A function that receives the final report and the first failed rows of an import."""
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
        """Create the journal of the import, if it has one."""
        if self.journal is None:
            return None
        mapping = self.overrides if mapping is None else mapping
        if self.file.path is None:  # standard input is identified by its rows
            return journal_at(self.journal, source=self.file.name, mapping=mapping)
        return journal_at(self.journal, source=str(self.file.path.resolve()), fingerprint=self.fingerprint, mapping=mapping)

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
        if not self.resume or self.journal is None or not (journal := journal_at(self.journal)).exists():
            return None
        try:
            return journal.report()
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


async def _prepare(
    client: OutreachClient | None,
    job: ImportJob,
    screen: Screen,
    on_rejected: OnRejected = lambda _row, _error: None,
    unit: RowUnit = "line",
) -> tuple[Columns, Preflight, Targets]:
    """Map the columns, check the whole file and print the findings. Return the targets that its rows name, too."""
    if job.checks is not None:
        for note in job.notes:  # before the columns are mapped, because a note may explain why this fails
            screen.print_line(f"note: {note}")
    samples = job.file.samples()
    if client is None:
        targets = Targets(Target(campaign=job.campaign), None, job.workspaces, job.refused)
    else:
        targets = targets_of(client.contacts, job.campaign, job.workspaces, job.refused)
    if job.resume and job.earlier == "known" and (journal := job.find_journal()) is not None:
        targets.names.update(recorded_names(journal))  # a campaign may have got another name since the run began
    recognised = await recognise_targets(job.file, job.overrides, targets)
    overrides = {**job.overrides, **recognised}
    columns = await columns_for(client, job.file.headers, overrides, ignore_unknown=job.ignore_unknown, samples=samples)
    if recognised:
        reasons = [
            REASON if name.strip() in recognised else old for name, old in zip(columns.headers, columns.reasons, strict=True)
        ]
        columns = attrs.evolve(columns, reasons=tuple(reasons))
    if job.save_mapping is not None:
        with files.explain_write_errors("--save-mapping", job.save_mapping):
            atomic_write(job.save_mapping, mapping_text(columns, job.file.name))
    if job.checks is None:
        checks = CheckPolicy.of(["off"])
        return columns, await run_preflight(job.file, columns, checks, repeats=job.repeats, targets=targets), targets
    print_columns(screen, columns)
    with show_progress(screen, "Checking", None) as show:
        preflight = await run_preflight(
            job.file,
            columns,
            job.checks,
            repeats=job.repeats,
            unit=unit,
            tell=on_rejected,
            show=lambda rows: show(rows, f"{rows:,} rows"),
            targets=targets,
        )
        show(preflight.rows, f"{preflight.rows:,} rows")
    print_findings(screen, preflight)
    return columns, preflight, targets


async def check_file(options: Options, job: ImportJob) -> int:
    """Check the whole file without creating anything, and return the exit code."""
    screen, started_at = Screen.of(as_json=options.as_json, quiet=options.quiet), monotonic()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client(options)) if options.base_url else None
        with FailedRows(screen, max_listed_rows(screen)) as failed, _open_rejects(job.rejects, job.file) as write_reject:

            def reject_row(row: Row, error: InvalidRequest) -> None:
                outcome = unsent_outcome(0, row, Outcome.REJECTED, error)
                failed.add(outcome)
                write_reject(outcome)

            columns, preflight, targets = await _prepare(client, job, screen, reject_row)
    rows, refused = preflight.rows, preflight.refused
    screen.print_line(f"{preflight.sent:,} of {rows:,} rows can be sent; nothing was created")
    outcomes = dict.fromkeys(Outcome, 0) | {Outcome.REJECTED: refused, Outcome.NOT_APPLIED: rows - refused}
    report = BulkReport(rows, outcomes, 0, monotonic() - started_at, preflight.superseded)
    if job.ledger is not None:
        with _open_results(job) as write_result:
            report = attrs.evolve(report, ledger=_compare(job, workspaces_of(options)[0], columns, targets, write_result))
        print_ledger(screen, report.ledger)
    details = {"dry_run": True, "warnings": preflight.counts(), "columns": _mapping_of(columns), "failures": failed.failures}
    screen.print_result({**report.to_dict(), **details})
    return INCOMPLETE if refused else OK


def _compare(job: ImportJob, workspace: str, columns: Columns, targets: Targets, write_result: WriteOutcome) -> LedgerCounts:
    options = LedgerOptions(
        Ledger(str(job.ledger)),
        Identity(workspace, {}),
        job.repeats,
        {"duplicates": job.duplicates, "strict_validation": job.strict},
        job.max_age,
        ignore_changes=job.changed == "ignore",
    )
    return count_changes(job.guard(columns, targets), options, Targets(Target(workspace, job.campaign)), write_result)


def _mapping_of(columns: Columns) -> dict[str, str]:
    return {column: code for column, code, _ in columns.decisions()}


async def run_import(client: OutreachClient, job: ImportJob, screen: Screen, few: int | None, closing: OnClose) -> int:
    """Create the contacts of a file, print the results and return the exit code."""
    earlier, heading, mapping, rows = job.read_earlier_report(), "", None, cast("Iterable[Row]", ())
    names: Mapping[tuple[str, str], str] = {}
    if earlier is not None and earlier.state == "finished":
        heading = f"The run in {job.journal} had already finished, so nothing was sent. Its results:"
    if earlier is not None and job.is_settled(earlier):
        preflight = Preflight(rows=earlier.rows)
    else:
        checked = attrs.evolve(job, overrides={}) if job.spooled else job
        columns, preflight, targets = await _prepare(client, checked, screen, unit=job.unit)
        rows, mapping = job.guard(columns, targets), None if job.spooled else _mapping_of(columns)
        names = targets.names
    total = preflight.rows if earlier is None or earlier.spooled is None else earlier.spooled  # the input may be another one
    find_number = number_record if job.spools else preflight.find_number
    failed = FailedRows(screen, few, find_number)
    end = RunEnd(job, screen, total, find_number, heading, lambda report: closing(report, failed.failures))
    with end.handled() as on_start, _open_results(job) as write_result:
        run = with_names(_create_run(client, job, rows, total, mapping), names)
        async with handle_interrupts(screen) as interrupts, run as outcomes:
            write_reject = on_start(outcomes)
            interrupts.drain = partial(drain_run, outcomes)
            with failed, show_progress(screen, "Importing", total) as show:
                interrupts.group.start_soon(follow_progress, lambda: outcomes.progress, show, screen.warn)
                async for outcome in outcomes:
                    failed.add(outcome)
                    write_reject(outcome)
                    write_result(outcome)
                show_current(outcomes.progress, show)
    return _exit_code(interrupts, outcomes, screen)  # pragma: no cover - run, but coverage loses track after a cancelled group


def _create_run(
    client: OutreachClient, job: ImportJob, rows: Iterable[Row], total: int | None, mapping: Mapping[str, str] | None
) -> BulkRun:
    return client.contacts.create_many(
        rows,
        duplicates=job.duplicates,
        strict_validation=job.strict,
        campaign=job.campaign,
        concurrency=job.concurrency,
        repeats=job.repeats,
        journal=job.create_journal(mapping),
        ledger=job.ledger,
        max_age=job.max_age,
        changed=job.changed,
        order="completion" if job.rejects is None and job.results is None else "input",
        resume=job.resume,
        earlier=job.earlier,
        spool=job.spools,
        total=total,
    )


def drain_run(outcomes: Outcomes) -> float:
    """Stop a run from starting further rows, and return the number of seconds to wait for the requests in flight."""
    paused = outcomes.progress.state == "paused"
    outcomes.drain()
    return PAUSED_DRAIN_TIMEOUT if paused else DRAIN_TIMEOUT


def _exit_code(interrupts: InterruptHandler, outcomes: Outcomes, screen: Screen) -> int:
    if interrupts.count:
        screen.warn("interrupted")
        return INTERRUPTED
    return exit_code_of_rows(outcomes.report.outcomes, outcomes.report.repeats)


@contextmanager
def _open_results(job: ImportJob) -> Iterator[WriteOutcome]:
    """Yield a function that writes an outcome to the results file. With a journal, the file is written at the end instead."""
    if job.results is None or job.journal is not None:
        yield lambda _outcome: None
        return
    with files.explain_write_errors("--results", job.results), open_outcomes(job.results, job.file) as write:
        yield write


@contextmanager
def _open_rejects(
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


@attrs.frozen
class RunEnd:
    """Writes the rejects and prints the numbers of a run at its end, however it ends."""

    job: ImportJob
    screen: Screen
    total: int | None
    find_number: FindNumber
    heading: str
    closing: Callable[[BulkReport], None]

    @contextmanager
    def handled(self) -> Iterator[Callable[[Outcomes], WriteOutcome]]:
        """Yield a function to call when the run has started. For a resumed run, the numbers include the earlier rows."""
        job, started, reports = self.job, list[Outcomes](), list[BulkReport]()
        change: InputChanged | None = None

        def complete(rejects: RejectsFile) -> None:
            # The journal also has the failed rows of earlier processes, but only the file has their cells. They are written
            # before the first row is sent. If the file changes later, rows that fail in this process follow as they were sent.
            if change is None and (journal := job.find_journal()) is not None:
                rejects.clear()
                for row in rejects_of(job.file, journal.outcomes(), job.unit):
                    rejects.add(row)

        with ExitStack() as rejects:

            def start(outcomes: Outcomes) -> WriteOutcome:
                started.append(outcomes)
                if job.resume and (found := job.find_content_change()):  # before the rejects of the earlier run are replaced
                    raise found
                path = None if job.stores_rows else job.rejects
                return rejects.enter_context(_open_rejects(path, job.file, self.find_number, complete))

            try:
                yield start
            except InputChanged as error:  # raised below, with what was sent
                change = error
            finally:
                for outcomes in started:
                    change = change or job.find_content_change()
                    rejects.close()
                    reports.append(self._report(outcomes, change))
        for report in reports:
            self._require_same_file(report, change)

    def _report(self, outcomes: Outcomes, change: InputChanged | None) -> BulkReport:
        """Print the numbers of the whole run. If the journal has all rows, also write the rejects and the results."""
        job = self.job
        if (journal := job.find_journal()) is not None:
            if job.stores_rows and job.rejects is not None:
                with files.explain_write_errors("--rejects", job.rejects):
                    export_rejects(job.rejects, None if job.spooled or change else job.file, journal, job.unit)
            recorded = journal.report()
            if job.results is not None:
                known = None if job.spools or change else job.file
                rows = describe_outcomes(journal.outcomes(), known, recorded.mapping or {})
                with files.explain_write_errors("--results", job.results):
                    write_results(job.results, [(known, rows)])
            total = self.total
            report = BulkReport(recorded.rows, recorded.outcomes, recorded.uncertain, recorded.seconds, recorded.repeats)
        else:  # if a journal is gone, an offer to resume would begin a new run, without the rows that were sent
            total, report = self.total if job.journal is None else None, outcomes.report
        if self.heading:
            self.screen.print_line(self.heading)
        print_report(self.screen, report, total, job.journal, job.file.path)
        self.closing(report)
        return report

    def _require_same_file(self, report: BulkReport, change: InputChanged | None) -> None:
        """Check that the input file is still the one that was opened."""
        try:
            if change is not None:
                raise change
            self.job.file.source.require_path()
        except InputChanged as error:
            outcomes = ", ".join(f"{count:,} {outcome}" for outcome, count in name_outcomes(report.outcomes))
            sent = f"rows of the file that was opened have outcomes: {outcomes or 'none'}"
            remedy = "import the new file" if change is None else "import a copy that no program changes"
            journal = "" if self.job.journal is None else " with another --journal and --earlier unknown"
            told = InputChanged(f"{error.what}; {sent}", remedy + journal)
            told.maybe_sent = told.maybe_applied = report.rows > 0
            raise told from None
