"""The command `import`: its options, the check of a file, which sends nothing, and the run."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import attrs
import click

from outreach_async import Outcome, Target
from outreach_async._cli import files
from outreach_async._cli.commands.import_job import ImportJob
from outreach_async._cli.commands.import_options import FileRows, read_campaign, require_files, require_fitting
from outreach_async._cli.commands.import_report import (
    FailedRows,
    list_outcomes,
    note_report,
    print_columns,
    print_findings,
    print_ledger,
    print_notes,
    print_report,
)
from outreach_async._cli.commands.remedies import Remedy, print_remedies
from outreach_async._cli.commands.results import write_results
from outreach_async._cli.commands.run_files import (
    RunState,
    WriteOutcome,
    open_findings,
    open_rejects,
    open_run_results,
    settle_partial_files,
    settled,
)
from outreach_async._cli.output import Screen, follow_progress, show_current, show_progress
from outreach_async._cli.process import (
    DRAIN_TIMEOUT,
    INCOMPLETE,
    INTERRUPTED,
    OK,
    PAUSED_DRAIN_TIMEOUT,
    exit_code_of_rows,
    handle_interrupts,
    run_async,
)
from outreach_async._cli.settings import ImportSettings
from outreach_async._cli.values import MAX_IN_FLIGHT, Options
from outreach_async._plumbing import TARGET_FIELDS, WHOLE_INPUT, Targets, atomic_write, partial_path, show_name, unsent_outcome
from outreach_async.bulk import BulkReport, ContactOutcome, LedgerCounts
from outreach_async.errors import BulkStopped, Excluded, InvalidRequest, OutreachError, format_count
from outreach_async.importer import Columns, File, RejectsFile, Row, columns_for, open_file, parse_overrides, rejects_of
from outreach_async.importer._checks import CheckPolicy
from outreach_async.importer._columns import can_map_all
from outreach_async.importer._consent import CONSENT_CODES
from outreach_async.importer._known_exports import clean_name
from outreach_async.importer._mapping_file import (
    apply_mapping,
    decisions_in_order,
    draft_text,
    mapping_text,
    merge_mappings,
    read_mapping,
)
from outreach_async.importer._preflight import OnRejected, Preflight, run_preflight
from outreach_async.importer._rejects import FindNumber, describe_outcomes, export_rejects, locate_outcomes, number_record
from outreach_async.importer._rows import RowUnit
from outreach_async.importer._source import STDIN, InputChanged
from outreach_async.importer._target_columns import REASON, recognise_targets
from outreach_async.importer._unmapped import UnmappedColumns

if TYPE_CHECKING:
    from outreach_async.bulk import Outcomes
    from outreach_async.client import OutreachClient

_AFTER_FINDINGS: Final = 18  # lines that may follow the findings
_AFTER_DRY_RUN: Final = 8
_MAX_FINDINGS: Final = 7  # lines of findings, and of what is printed below them, for which the list of columns leaves room
_FAILED_ROWS: Final = 8  # lines of failed and excluded rows for which the remedies leave room

# A dry run imports neither journals nor the client, so that it starts fast. Functions import them when they run.

OnClose: TypeAlias = Callable[[BulkReport, FailedRows, Mapping[str, Any]], None]
"""A function that receives the final report of an import, its failed rows, and the groups and remedies of its JSON result."""


def import_(options: Options, file: Path | str, settings: ImportSettings) -> int:
    open_input, dry_run = files.input_opener(settings), settings["dry_run"]
    settings["campaign"] = read_campaign(settings["campaign"])
    if settings["blank"] == "clear" and settings["duplicates"] != "overwrite":
        raise click.UsageError(
            "--blank clear: with another policy than overwrite, the service clears nothing; pass --duplicates overwrite, too."
        )
    if settings["dask"] is not None:
        from outreach_async._cli.commands.import_parts import import_in_parts

        return import_in_parts(options, file, settings["dask"], open_input.keywords, settings)
    if not isinstance(file, Path):
        raise click.UsageError("FILE: a URL requires --dask; pass --dask local, or download the file first.")
    require_fitting(settings)
    settings["resume"] |= settings["earlier"] == "unknown"
    require_files(file, settings)
    if not dry_run:  # a dry run creates and records nothing
        from outreach_async._cli.connection import require_credentials
        from outreach_async.store.journal import journal_at

        require_credentials(options)
        journal = settings["journal"]
        if journal is not None and not settings["resume"] and journal_at(journal).exists():
            other = "pass another journal, with --earlier unknown if some of the rows may have been sent"
            raise click.UsageError(f"--journal {journal}: the journal exists; resume its run with --resume, or {other}.")
    names, refused = {name: id_ for id_, name in options.config.names.items()}, dict[str, str]()
    if names:
        from outreach_async._cli.connection import refused_workspaces

        refused = refused_workspaces(options)
    job = _create_job(open_input, file, settings, names, refused)
    return run_async(partial(_check_file if dry_run else _import_file, options, job))


def _create_job(
    open_input: files.OpenInput,
    path: Path,
    settings: ImportSettings,
    workspaces: Mapping[str, str],
    refused: Mapping[str, str],
) -> ImportJob:
    policy, overrides, keeps = CheckPolicy.of(settings["checks"]), parse_overrides(settings["maps"]), settings["keeps"]
    saved = read_mapping(settings["mapping"]) if settings["mapping"] else {}
    # The job begins with an empty file. Its input is opened below, unless the rows are already in the journal.
    job = ImportJob(
        file=open_file(io.BytesIO(b"email\n"), format="csv"),
        ignore_unknown=settings["ignore_unknown"],
        duplicates=settings["duplicates"],
        campaign=settings["campaign"],
        workspaces=workspaces,
        refused=refused,
        strict=settings["strict"],
        concurrency=settings["concurrency"],
        repeats=settings["repeats"],
        journal=settings["journal"],
        ledger=settings["ledger"],
        max_age=settings["max_age"],
        changed=settings["changed"],
        blank=settings["blank"],
        stop_after_rejects=settings["stop_after_rejects"],
        resume=settings["resume"],
        earlier=settings["earlier"],
        rejects=settings["rejects"],
        results=settings["results"],
        findings=settings["findings"],
        save_mapping=settings["save_mapping"],
    )
    report = job.read_earlier_report() if str(path) == STDIN and job.earlier == "known" else None
    if report is not None and report.spooled is not None:
        text = f"{job.journal} contains the {format_count(report.spooled, 'row')} of this run, which resumes with them"
        # Said before the next line, which waits until standard input has data or ends.
        Screen.of(as_json=True).warn(f"{text}; standard input must be empty or contain the same rows")
        if sys.stdin is None or sys.stdin.isatty() or not cast("io.BufferedReader", sys.stdin.buffer).peek(1):
            if keeps or job.findings:
                flag = "--keep" if keeps else "--findings"
                remedy = "pass the same rows to standard input again, or omit the option"
                raise click.UsageError(f"{flag}: {job.journal} contains the fields of each row, but not its columns; {remedy}.")
            applicable, _ = apply_mapping(saved, [*(report.mapping or ())])
            return attrs.evolve(job, overrides=merge_mappings(overrides, applicable), spooled=True)
    file = open_input(path)
    applicable, lacking = apply_mapping(saved, file.headers)
    notes = [*file.notes, *(f"--mapping: the input file has no column {column!r}" for column in lacking)]
    notes += [policy.note] if policy.note else []
    return attrs.evolve(
        job,
        file=file,
        keeps=keeps,
        overrides=merge_mappings(overrides, applicable),
        checks=policy,
        missing_consent=tuple(column for column in lacking if saved[column] in CONSENT_CODES),
        notes=tuple(notes),
    )


def _create_targets(client: OutreachClient | None, job: ImportJob) -> Targets:
    """Return the targets that rows may name."""
    if client is None:
        targets = Targets(Target(campaign=job.campaign), None, job.workspaces, job.refused)
    else:
        from outreach_async.resources import targets_of

        targets = targets_of(client.contacts, job.campaign, job.workspaces, job.refused)
    if job.resume and job.earlier == "known" and (journal := job.find_journal()) is not None:
        from outreach_async._plumbing import recorded_names

        targets.names.update(recorded_names(journal))  # a campaign may have got another name since the run began
    targets.names.update(job.campaign_names)
    return targets


async def find_campaign(client: OutreachClient | None, job: ImportJob) -> ImportJob:
    """Return the job with the id of its campaign, whose name the command may have."""
    if not job.names_campaign:
        return job
    if client is None:
        got = show_name(job.campaign)
        raise InvalidRequest(f"campaign: expected an id, because no service is given, got {got}; also pass --base-url URL")
    targets = _create_targets(client, attrs.evolve(job, campaign=None))
    found = await targets.apply(targets.find, Target(campaign=job.campaign))
    return attrs.evolve(job, campaign=found.campaign, campaign_names=targets.names)


async def prepare(
    client: OutreachClient | None,
    job: ImportJob,
    screen: Screen,
    *,
    on_rejected: OnRejected = lambda _row, _error: None,
    unit: RowUnit = "line",
    on_columns: Callable[[Columns, dict[int, str]], object] = lambda _columns, _people: None,
) -> tuple[Columns, Preflight, Targets]:
    """Map the columns, check the whole file and print the findings. Return the targets that its rows name, too."""
    print_notes(screen, job.notes)  # before the columns are mapped, because a note may explain why this fails
    samples = job.file.samples()
    targets = _create_targets(client, job)
    recognised, doubts = await recognise_targets(job.file, job.overrides, targets)
    overrides = {**job.overrides, **recognised}
    try:
        columns = await columns_for(client, job.file.headers, overrides, ignore_unknown=job.ignore_unknown, samples=samples)
    except UnmappedColumns as error:
        error.explain(doubts)
        if job.save_mapping is not None:
            _save_draft(job.save_mapping, error, job.file)
        raise
    if job.missing_consent and not columns.consent and job.checks.levels["consent"] == "error":
        what = f"the file has no column {job.missing_consent[0]!r}, nor another one that says who must not be written to"
        raise InvalidRequest(f"--mapping: {what}; export the file with it, or remove the column from the mapping")
    if recognised:
        pairs = zip(columns.headers, columns.reasons, strict=True)
        columns = attrs.evolve(columns, reasons=tuple(REASON if clean_name(name) in recognised else old for name, old in pairs))
    if job.save_mapping is not None:
        with files.explain_write_errors("--save-mapping", job.save_mapping):
            atomic_write(job.save_mapping, mapping_text(columns, job.file.name))
    people: dict[int, str] = {}
    on_columns(columns, people)
    preflight = await _check_rows(job, columns, screen, on_rejected, unit, targets, people)
    if not job.spooled:
        print_columns(screen, columns, _AFTER_FINDINGS + min(len(preflight.findings.ordered()), _MAX_FINDINGS))
    print_findings(screen, preflight, _AFTER_FINDINGS, job.findings)
    return columns, preflight, targets


def _save_draft(path: Path, error: UnmappedColumns, file: File) -> None:
    """Write the mapping of a file with unknown columns, for the user to complete. A file that exists may have been completed."""
    error.draft_existed = path.is_file() and path.stat().st_size > 0
    if not error.draft_existed:
        with files.explain_write_errors("--save-mapping", path):
            atomic_write(path, draft_text(error, file.headers, file.name))
    error.draft = path


async def _check_rows(  # noqa: PLR0917 - what `prepare` has found out
    job: ImportJob,
    columns: Columns,
    screen: Screen,
    on_rejected: OnRejected,
    unit: RowUnit,
    targets: Targets,
    people: dict[int, str],
) -> Preflight:
    """Check the whole file, and write the findings."""
    with (
        settled(screen, {"--findings": job.findings}) as state,
        open_findings(job.findings, job.file, columns, state) as note,
        show_progress(screen, "Checking", None) as bar,
    ):

        def show(rows: int) -> None:
            bar(rows, f"{rows:,} rows")

        preflight = await run_preflight(
            job.file,
            columns,
            job.checks,
            repeats=job.repeats,
            by_contact=job.ledger is not None,
            unit=unit,
            tell=on_rejected,
            show=show,
            targets=targets,
            note=note,
            people=people,
        )
        show(preflight.rows)
        state.is_finished = True
    return preflight


async def _check_file(options: Options, job: ImportJob) -> int:
    screen, started_at = options.screen(), monotonic()
    async with AsyncExitStack() as stack:
        client = None
        # Only the service knows the fields of the workspace, and the ids of its campaigns.
        known = can_map_all(job.file.headers, job.overrides) and {*TARGET_FIELDS}.isdisjoint(job.overrides.values())
        if options.base_url and (job.names_campaign or not known):
            from outreach_async._cli.connection import open_client

            client = await stack.enter_async_context(open_client(options))
        job, failed = await find_campaign(client, job), FailedRows()
        with settled(screen, {"--rejects": job.rejects}) as end, open_rejects(job.rejects, job.file, end) as write_reject:

            def reject_row(row: Row, error: OutreachError) -> None:
                status = Outcome.EXCLUDED if isinstance(error, Excluded) else Outcome.REJECTED
                outcome = unsent_outcome(0, row, status, error)
                failed.add(outcome)
                write_reject(outcome)

            columns, preflight, targets = await prepare(
                client, job, screen, on_rejected=reject_row, on_columns=failed.read_with(job.checks)
            )
            end.is_finished = True
    rows, refused = preflight.rows, preflight.refused
    failed.print(screen, _AFTER_DRY_RUN, rejects=job.rejects, findings=job.findings)
    screen.print_line(f"{preflight.sent:,} of {rows:,} rows can be sent; nothing was created")
    outcomes = dict.fromkeys(Outcome, 0) | {Outcome.REJECTED: refused, Outcome.EXCLUDED: preflight.excluded}
    outcomes[Outcome.NOT_APPLIED] = rows - refused - preflight.excluded
    report = BulkReport(rows, outcomes, 0, monotonic() - started_at, preflight.superseded)
    if job.ledger is not None:
        with (
            settled(screen, {"--results": job.results}) as compared,
            open_run_results(job.results, job.file, compared, job.kept) as write_result,
        ):
            read = partial(job.guard, columns, targets, preflight.people)
            report = attrs.evolve(report, ledger=_compare(job, options, read, write_result))
            compared.is_finished = True
        print_ledger(screen, report.ledger, job.repeats)
    print_remedies(screen, remedies := failed.remedies(job.rejects, None), 0)
    found = {"columns": _mapping_of(columns), **failed.to_dict(preflight, remedies)}
    screen.print_result({**report.to_dict(), "dry_run": True, **found})
    return INCOMPLETE if refused else OK


def _compare(job: ImportJob, shared: Options, read: Callable[[], Iterable[Row]], write_result: WriteOutcome) -> LedgerCounts:
    from outreach_async._cli.connection import workspaces_of
    from outreach_async._plumbing import count_changes
    from outreach_async.store.journal import Identity
    from outreach_async.store.ledger import Ledger, LedgerOptions

    workspace = workspaces_of(shared)[0]
    ledger, policies = Ledger(str(job.ledger)), {"duplicates": job.duplicates, "strict_validation": job.strict}
    ignore = job.changed == "ignore"
    options = LedgerOptions(ledger, Identity(workspace, {}), job.repeats, policies, job.max_age, ignore_changes=ignore)
    return count_changes(read, options, Targets(Target(workspace, job.campaign)), write_result)


def _mapping_of(columns: Columns) -> dict[str, str]:
    return {column: code for column, code, _ in decisions_in_order(columns)}


async def _import_file(options: Options, job: ImportJob) -> int:
    from outreach_async._cli.connection import open_client

    screen = options.screen()
    async with open_client(options, max_in_flight=max(job.concurrency, MAX_IN_FLIGHT), writes=True) as client:
        job = await find_campaign(client, job)
        return await run_import(
            client, job, screen, lambda report, _, details: screen.print_result({**report.to_dict(), **details})
        )


async def run_import(client: OutreachClient, job: ImportJob, screen: Screen, closing: OnClose, *, lists_rows: bool = True) -> int:
    from outreach_async._plumbing import with_names

    earlier, heading, mapping, rows = job.read_earlier_report(), "", None, cast("Iterable[Row]", ())
    names = job.campaign_names
    failed = FailedRows()
    if earlier is not None and earlier.state == "finished":
        heading = f"The run in {job.journal} had already finished, so nothing was sent. Its results:"
    if earlier is not None and job.is_settled(earlier):
        preflight = Preflight(rows=earlier.rows)
    else:
        checked = attrs.evolve(job, overrides={}) if job.spooled else job
        columns, preflight, targets = await prepare(
            client, checked, screen, unit=job.unit, on_columns=failed.read_with(job.checks)
        )
        read, mapping = partial(job.guard, columns, targets, preflight.people), None if job.spooled else _mapping_of(columns)
        names_targets = not {*columns.codes}.isdisjoint(TARGET_FIELDS)
        rows = FileRows(read, may_repeat=preflight.repeated > 0 or names_targets or job.repeats in WHOLE_INPUT)
        names = targets.names
    total = preflight.rows if earlier is None or earlier.spooled is None else earlier.spooled  # the input may be another one
    find_number = number_record if job.spools else preflight.find_number
    failed.find_number = find_number
    end = RunEnd(job, screen, total, find_number, heading, failed, preflight, closing, lists_rows=lists_rows)
    run = client.contacts.create_many(
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
        blank="clear" if job.blank == "clear" else None,  # the rows of a file have no blank values to keep
        stop_after_rejects=job.stop_after_rejects,
        order="completion" if job.rejects is None and job.results is None else "input",
        resume=job.resume,
        earlier=job.earlier,
        spool=job.spools,
        total=total,
    )
    with end.handled() as on_start:
        async with handle_interrupts(screen) as interrupts, with_names(run, names) as outcomes:
            write_outcome = on_start(outcomes)
            interrupts.drain = partial(drain_run, outcomes)
            with show_progress(screen, "Importing", total) as show:
                interrupts.group.start_soon(follow_progress, lambda: outcomes.progress, show, screen.warn)
                async for outcome in outcomes:
                    failed.add(outcome)
                    write_outcome(outcome)
                end.state.is_finished = not interrupts.count
                show_current(outcomes.progress, show)
    if interrupts.count:  # pragma: no cover - run, but coverage loses track after a cancelled group
        screen.warn("interrupted")
        return INTERRUPTED
    return exit_code_of_rows(outcomes.report.outcomes, outcomes.report.repeats)  # pragma: no cover - as above


def drain_run(outcomes: Outcomes) -> float:
    """Stop a run from starting further rows, and return the number of seconds to wait for the requests in flight."""
    paused = outcomes.progress.state == "paused"
    outcomes.drain()
    return PAUSED_DRAIN_TIMEOUT if paused else DRAIN_TIMEOUT


@attrs.frozen
class RunEnd:
    """Writes the rejects and prints the numbers of a run at its end, however it ends."""

    job: ImportJob
    screen: Screen
    total: int | None
    find_number: FindNumber
    heading: str
    failed: FailedRows
    preflight: Preflight
    closing: OnClose
    lists_rows: bool = True
    state: RunState = attrs.field(factory=RunState)

    @contextmanager
    def handled(self) -> Iterator[Callable[[Outcomes], WriteOutcome]]:
        """Yield a function to call when the run has started. For a resumed run, the numbers include the earlier rows."""
        job = self.job
        change: InputChanged | None = None
        started: list[Outcomes] = []
        stopped = False
        reports: list[BulkReport] = []

        def complete(rejects: RejectsFile) -> None:
            # The journal also has the failed rows of earlier processes, but only the file has their cells. They are written
            # before the first row is sent. If the file changes later, rows that fail in this process follow as they were sent.
            if change is None and (journal := job.find_journal()) is not None:
                rejects.clear()
                for row in rejects_of(job.file, journal.outcomes(), job.unit, journal.report().mapping):
                    rejects.add(row)

        with ExitStack() as written:

            def start(outcomes: Outcomes) -> WriteOutcome:
                started.append(outcomes)
                return self._open_files(written, complete)

            try:
                yield start
            except InputChanged as error:  # raised below, with what was sent
                change = error
            except BulkStopped:
                stopped = True
                raise
            finally:
                for outcomes in started:
                    change = change or job.find_content_change()
                    self._find_state()
                    note_report(outcomes.report)  # before a file that cannot be written raises
                    written.close()
                    reports.append(self._report(outcomes, change, stopped=stopped))
        for report in reports:
            self._require_same_file(report, change)

    def _open_files(self, written: ExitStack, complete: Callable[[RejectsFile], None]) -> WriteOutcome:
        job = self.job
        if job.resume and (found := job.find_content_change()):  # before the rejects of the earlier run are replaced
            raise found
        path = None if job.stores_rows else job.rejects
        results = None if job.journal is not None else job.results  # with a journal, the results are written at the end
        write_result = written.enter_context(open_run_results(results, job.file, self.state, job.kept))
        write_reject = written.enter_context(open_rejects(path, job.file, self.state, self.find_number, complete))

        def write(outcome: ContactOutcome) -> None:
            write_reject(outcome)
            write_result(outcome)

        return write

    def _find_state(self) -> None:
        """Find out from the journal whether the run has finished, which an interrupted run may have, too."""
        if (journal := self.job.find_journal()) is not None:
            self.state.is_finished = journal.report().state == "finished"

    def _report(self, outcomes: Outcomes, change: InputChanged | None, *, stopped: bool) -> BulkReport:
        """Print the numbers of the whole run. If the journal has all rows, also write the rejects and the results."""
        job, total, failed, is_complete = self.job, self.total, self.failed, self.state.is_finished
        if (journal := job.find_journal()) is not None:
            recorded = journal.report()
            known = None if job.spools or change else job.file
            if job.resume:  # the rows of earlier processes failed, too
                failed = FailedRows(self.find_number)
                for outcome, number, email, _ in locate_outcomes(journal.outcomes(), known, recorded.mapping or {}):
                    failed.add(outcome, number, email)
            if job.stores_rows and job.rejects is not None:
                with files.explain_write_errors("--rejects", job.rejects):
                    known_file = None if job.spooled or change else job.file
                    export_rejects(job.rejects, known_file, journal, job.unit, is_finished=self.state.is_finished)
            if job.results is not None:
                read = job.file if job.keeps and not change else known
                rows = describe_outcomes(journal.outcomes(), read, recorded.mapping or {}, job.kept, job.unit)
                # The cells of an input that has changed are unknown, so the kept columns are incomplete.
                is_complete = is_complete and not (job.keeps and change)
                with files.explain_write_errors("--results", job.results):
                    write_results(job.results, [(known, rows)], lambda: is_complete, job.kept)
            report = BulkReport(recorded.rows, recorded.outcomes, recorded.uncertain, recorded.seconds, recorded.repeats)
        else:  # if a journal is gone, an offer to resume would begin a new run, without the rows that were sent
            total, report = total if job.journal is None else None, outcomes.report
        note_report(report)
        if self.heading:
            self.screen.print_line(self.heading)
        rejects = _written(job.rejects, is_complete=self.state.is_finished)
        remedies = failed.remedies(rejects, job.journal)
        release = self.screen.hold(lambda: self._print_figures(report, total, remedies, stopped=stopped, is_complete=is_complete))
        if self.lists_rows:
            failed.print(self.screen, 0, rejects=rejects, findings=job.findings)
        release()
        self.closing(report, failed, failed.to_dict(self.preflight, remedies))
        return report

    def _print_figures(
        self, report: BulkReport, total: int | None, remedies: Sequence[Remedy], *, stopped: bool, is_complete: bool
    ) -> None:
        job, screen = self.job, self.screen
        results = _written(job.results, is_complete=is_complete)
        print_report(screen, report, total, job.journal, job.file.path, repeats=job.repeats, results=results, stopped=stopped)
        settle_partial_files(screen, {"--results": job.results}, is_finished=is_complete)
        settle_partial_files(screen, {"--rejects": job.rejects}, is_finished=self.state.is_finished)
        print_remedies(screen, remedies, _FAILED_ROWS)

    def _require_same_file(self, report: BulkReport, change: InputChanged | None) -> None:
        """Check that the input file is still the one that was opened."""
        try:
            if change is not None:
                raise change
            self.job.file.source.require_path()
        except InputChanged as error:
            sent = f"rows of the file that was opened have outcomes: {list_outcomes(report.outcomes) or 'none'}"
            remedy = "import the new file" if change is None else "import a copy that no program changes"
            journal = "" if self.job.journal is None else " with another --journal and --earlier unknown"
            told = InputChanged(f"{error.what}; {sent}", remedy + journal)
            told.maybe_sent = told.maybe_applied = report.rows > 0
            raise told from None


def _written(path: Path | None, *, is_complete: bool) -> Path | None:
    return path if path is None or is_complete else partial_path(path)
