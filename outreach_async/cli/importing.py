"""The command `import`: check the whole file, then create its contacts. `demo` shares the second part."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, cast, get_args

import attrs
import click

from outreach_async.atomic import atomic_write
from outreach_async.bulk import BulkReport, BulkRun, ContactOutcome, Journal, Outcomes, Repeats
from outreach_async.bulk.journal import JournalReport
from outreach_async.bulk.journal.identity import Earlier
from outreach_async.bulk.outcomes import unsent_outcome
from outreach_async.bulk.rows import WHOLE_INPUT
from outreach_async.cli.app import create_completer
from outreach_async.cli.connection import open_client
from outreach_async.cli.exits import INCOMPLETE, INTERRUPTED, OK, exit_code_of_rows
from outreach_async.cli.files import STDIN, ReadOptions, file_options
from outreach_async.cli.import_report import (
    FailedRows,
    max_listed_rows,
    print_columns,
    print_estimate,
    print_findings,
    print_report,
)
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.output import Screen, follow_progress, format_progress, show_progress
from outreach_async.cli.process import DRAIN_TIMEOUT, PAUSED_DRAIN_TIMEOUT, InterruptHandler, handle_interrupts, run_async
from outreach_async.cli.writing import (
    FileUse,
    OutputPath,
    explain_write_errors,
    force_option,
    open_rejects_file,
    require_writable,
)
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.importer import (
    Columns,
    File,
    Row,
    columns_for,
    is_reject,
    open_file,
    parse_overrides,
    reject,
    rejects_of,
    spooled_rejects,
)
from outreach_async.importer.checks import CHECKS, CheckPolicy, Checks, Level
from outreach_async.importer.mapping_file import apply_mapping, is_mapping, mapping_text, read_mapping
from outreach_async.importer.preflight import OnRejected, Preflight, estimate_duration, require_rate, run_preflight
from outreach_async.importer.rejects import Reject, is_rejects_file
from outreach_async.validation import require_id
from outreach_async.vocabulary import DUPLICATE_POLICIES, DuplicatePolicy, Outcome

DEFAULT_CONCURRENCY: Final = 64


@attrs.frozen(kw_only=True)
class ImportJob:
    """The input and the options of an import.

    Attributes:
        file: The input.
        overrides: Field codes by column name.
        ignore_unknown: Whether to skip columns that match no field.
        duplicates: What to do with an e-mail that is already in the workspace.
        campaign: Campaign to add the contacts to.
        strict: Whether the service validates the standard fields.
        concurrency: Maximum number of concurrent requests.
        repeats: What to do with duplicates within the file.
        journal: File that records the run.
        resume: Whether to resume the run of an existing journal.
        earlier: `unknown` marks every row without an outcome as possibly sent.
        rejects: File for rows that were rejected, not applied or unknown.
        checks: Levels of the checks; `None` to check nothing and print no findings.
        save_mapping: File for the mapping.
        rate: Quota in requests per second, as the user gave it.
        notes: Remarks to print before the run.
        spooled: Whether the rows are in the journal only, because they came from standard input.
    """

    file: File
    overrides: Mapping[str, str] = attrs.field(factory=dict)
    ignore_unknown: bool = False
    duplicates: DuplicatePolicy = "skip"
    campaign: str | None = None
    strict: bool = True
    concurrency: int = DEFAULT_CONCURRENCY
    repeats: Repeats = "serial"
    journal: Path | None = None
    resume: bool = False
    earlier: Earlier = "known"
    rejects: Path | None = None
    checks: CheckPolicy | None = None
    save_mapping: Path | None = None
    rate: float | None = None
    notes: tuple[str, ...] = ()
    spooled: bool = False

    def create_journal(self, mapping: Mapping[str, str] | None = None) -> Journal | None:
        """Return the journal, with the path and fingerprint of the input; standard input has only its rows to identify it.

        Args:
            mapping: Final field codes by column; `None` for those of `overrides`.
        """
        if self.journal is None:
            return None
        known = self.overrides if mapping is None else mapping
        if self.file.path is None:
            return Journal(self.journal, source=self.file.name, mapping=known)
        source = str(self.file.path.resolve())
        return Journal(self.journal, source=source, fingerprint=self.file.fingerprint(), mapping=known)

    def read_earlier_report(self) -> JournalReport | None:
        """Return the report of the run to resume; `None` if there is none."""
        return read_report(self.journal, self.earlier) if self.resume else None

    def is_settled(self, report: JournalReport) -> bool:
        """Return whether a run is finished and need not read its rows: the journal has them or the fingerprint."""
        if report.state != "finished" or self.save_mapping is not None or self.earlier == "unknown":
            return False
        return self.spooled or (report.fingerprint is not None and self.file.path is not None)


def read_report(journal: Path | None, earlier: Earlier = "known") -> JournalReport | None:
    """Return the report of an existing journal; `None` if it is damaged and `earlier` allows to replace it."""
    if journal is None or not journal.exists():
        return None
    try:
        return Journal(journal).report()
    except (InvalidRequest, JournalError):
        if earlier == "known":
            raise
        return None


def is_spooled(report: JournalReport | None) -> bool:
    """Return whether a run from standard input can be resumed from its journal alone."""
    if report is None or report.source is None or report.fingerprint is not None:  # the input was a file, or not this command's
        return False
    # The first row is marked only after the whole input is in the journal.
    return report.marked > 0 or report.state == "finished"


def create_empty_file() -> File:
    """Return a file without rows, in place of an input that no longer exists."""
    return open_file(io.BytesIO(b"email\n"), format="csv")


def require_journal(*, resume: bool, earlier: Earlier, journal: Path | None) -> None:
    """Check that a journal is given where one is needed.

    Raises:
        click.UsageError: No journal is given.
    """
    if earlier == "unknown" and journal is None:
        raise click.UsageError("--earlier unknown: needs the journal that was damaged or lost; pass --journal PATH.")
    if resume and journal is None:
        raise click.UsageError("--resume: needs the journal of the run; pass --journal PATH.")


def require_fitting_journal(*, resume: bool, repeats: Repeats, journal: Path | None) -> None:
    """Check that a run can be recorded as its options demand; a dry run records nothing.

    Raises:
        click.UsageError: No journal is given where one is needed, or the journal of another run exists.
    """
    if repeats in WHOLE_INPUT and journal is None:
        raise click.UsageError(f"--repeats {repeats}: needs a journal, to store the whole input first; pass --journal PATH.")
    if journal is not None and not resume and os.path.lexists(journal):
        raise click.UsageError(f"--journal {journal}: the file exists; resume its run with --resume, or pass another path.")


@attrs.frozen
class PreparedImport:
    """The result of the first pass.

    Attributes:
        columns: The mapping of columns to fields.
        preflight: The findings in the file.
    """

    columns: Columns
    preflight: Preflight


async def prepare(
    client: OutreachClient | None, job: ImportJob, screen: Screen, tell: OnRejected | None = None
) -> PreparedImport:
    """Map the columns, check the whole file and print the findings.

    Args:
        client: Client for the workspace's fields; `None` to map columns without them.
        job: The import.
        screen: Where to print.
        tell: Called with each invalid row and its error.

    Raises:
        InvalidRequest: A column matches no field, or the file cannot be read.
    """
    columns = await columns_for(client, job.file.headers, job.overrides, ignore_unknown=job.ignore_unknown)
    if job.save_mapping is not None:
        with explain_write_errors("--save-mapping", job.save_mapping):
            atomic_write(job.save_mapping, mapping_text(columns, job.file.name))
    if job.checks is None:
        return PreparedImport(columns, await run_preflight(job.file, columns, CheckPolicy.of(["off"]), repeats=job.repeats))
    print_columns(screen, columns, job.notes)
    with show_progress("Checking", None) as show:
        found = await run_preflight(
            job.file, columns, job.checks, repeats=job.repeats, tell=tell or _ignore_row, show=lambda rows: show(rows, "")
        )
    print_findings(screen, found)
    print_estimate(screen, estimate_duration(found.sent, job.rate, job.read_earlier_report()))
    return PreparedImport(columns, found)


async def check_file(options: Options, job: ImportJob) -> int:
    """Check the whole file without creating anything, and return the exit code."""
    screen, began = Screen.of(as_json=options.as_json), monotonic()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client(options)) if options.base_url else None
        undone = FailedRows(screen, max_listed_rows(screen))
        with undone, _open_rejects(job) as keep:
            prepared = await prepare(client, job, screen, lambda row, error: _reject_row(undone, keep, row, error))
    found = prepared.preflight
    screen.print_line(f"{found.sent:,} of {found.rows:,} rows can be sent; nothing was created")
    screen.print_result({**_create_report(found, monotonic() - began).to_dict(), "dry_run": True, **_result_details(prepared)})
    return INCOMPLETE if found.refused else OK


def _create_report(found: Preflight, seconds: float) -> BulkReport:
    outcomes = dict.fromkeys(Outcome, 0) | {Outcome.REJECTED: found.refused, Outcome.NOT_APPLIED: found.rows - found.refused}
    return BulkReport(found.rows, outcomes, 0, seconds, found.superseded)


def _result_details(prepared: PreparedImport) -> dict[str, object]:
    columns = {column: code for column, code, _ in prepared.columns.decisions()}
    return {"warnings": prepared.preflight.counts(), "columns": columns}


@contextmanager
def _open_rejects(job: ImportJob) -> Iterator[Callable[[Row, InvalidRequest], None]]:
    """Write the invalid rows to the rejects file, if one is requested."""
    if job.rejects is None:
        yield _ignore_row
        return
    with open_rejects_file(job.rejects, job.file.headers) as add:
        yield lambda row, error: add(reject(row.line, row.cells, unsent_outcome(0, row, Outcome.REJECTED, error)))


def _reject_row(undone: FailedRows, keep: OnRejected, row: Row, error: InvalidRequest) -> None:
    undone.add(unsent_outcome(0, row, Outcome.REJECTED, error))
    keep(row, error)


def _ignore_row(_row: Row, _error: InvalidRequest) -> None:
    """Ignore an invalid row."""


async def run_import(
    client: OutreachClient, job: ImportJob, screen: Screen, few: int | None, closing: Callable[[BulkReport], None]
) -> int:
    """Create the contacts of a file, print the results and return the exit code.

    Args:
        client: The client.
        job: The import.
        screen: Where to print.
        few: Maximum number of failed rows to list; `None` for all of them.
        closing: Called with the final counts, however the run ends.
    """
    found, rows, mapping = await _prepare_rows(client, job, screen)
    total = None if job.spooled else found.rows
    undone = FailedRows(screen, few, found.line_of)
    with _print_counts_at_end(job, screen, total, closing) as tell:
        async with handle_interrupts(screen) as interrupts, _create_run(client, job, rows, total, mapping) as outcomes:
            tell(outcomes)
            interrupts.drain = partial(drain_run, outcomes)
            with undone, show_progress("Importing", total) as show, _open_rejects_during_run(job, found) as keep:
                interrupts.group.start_soon(follow_progress, outcomes, show, screen.warn)
                async for outcome in outcomes:
                    undone.add(outcome)
                    keep(outcome)
                show(outcomes.report.rows, format_progress(outcomes.progress))
    return _exit_code(interrupts, outcomes, screen)  # pragma: no cover - run, but coverage loses sight after a cancelled group


def drain_run(outcomes: Outcomes) -> float:
    """Stop starting rows, and return the time to wait for the requests in flight, in seconds."""
    paused = outcomes.progress.state == "paused"
    outcomes.drain()
    return PAUSED_DRAIN_TIMEOUT if paused else DRAIN_TIMEOUT


async def _prepare_rows(
    client: OutreachClient, job: ImportJob, screen: Screen
) -> tuple[Preflight, Iterable[Row], Mapping[str, str] | None]:
    """Check the file; return the findings, the rows and the mapping. A finished run needs none of them."""
    before = job.read_earlier_report()
    if before is not None and job.is_settled(before) and job.save_mapping is None:
        return Preflight.for_unread(before.rows), (), None
    prepared = await prepare(client, attrs.evolve(job, overrides={}) if job.spooled else job, screen)
    rows = job.file.rows(prepared.columns)
    mapping = None if job.spooled else {column: code for column, code, _ in prepared.columns.decisions()}
    return prepared.preflight, rows if job.checks is None else Checks(prepared.columns, job.checks).guarded(rows), mapping


def _exit_code(interrupts: InterruptHandler, outcomes: Outcomes, screen: Screen) -> int:
    if interrupts.count:
        screen.warn("interrupted")
        return INTERRUPTED
    return exit_code_of_rows(outcomes.report.outcomes, outcomes.report.repeats)


@contextmanager
def _print_counts_at_end(
    job: ImportJob, screen: Screen, total: int | None, closing: Callable[[BulkReport], None]
) -> Iterator[Callable[[Outcomes], None]]:
    """Print the counts of a run that has started, however it ends. With a journal they cover all of its sessions."""
    begun: list[Outcomes] = []
    try:
        yield begun.append
    finally:
        for outcomes in begun:
            report = outcomes.report if job.journal is None else _read_report(Journal(job.journal))
            if job.journal is not None and job.rejects is not None:
                export_rejects(job.rejects, None if job.spooled else job.file, Journal(job.journal))
            print_report(screen, report, total, job.journal)
            closing(report)


def _read_report(journal: Journal) -> BulkReport:
    kept = journal.report()
    return BulkReport(kept.rows, kept.outcomes, kept.uncertain, kept.seconds, kept.repeats)


@contextmanager
def _open_rejects_during_run(job: ImportJob, found: Preflight) -> Iterator[Callable[[ContactOutcome], None]]:
    """Write rejects as outcomes arrive, if a rejects file is requested. With a journal, it is written from that at the end."""
    if job.rejects is None or job.journal is not None:
        yield lambda _outcome: None
        return
    with open_rejects_file(job.rejects, job.file.headers) as add:
        yield lambda outcome: _write_reject(add, outcome, found)


def _write_reject(add: Callable[[Reject], None], outcome: ContactOutcome, found: Preflight) -> None:
    row = cast("Row", outcome.contact)
    if is_reject(outcome):
        add(reject(row.line, row.cells, outcome, found.line_of))


def export_rejects(path: Path, file: File | None, journal: Journal) -> int:
    """Write the rejects of a run from its journal, and return their number.

    Args:
        path: The rejects file.
        file: The input; `None` if it came from standard input, so that the rows are in the journal only.
        journal: The journal.
    """
    headers, found = spooled_rejects(journal) if file is None else (file.headers, rejects_of(file, journal.outcomes()))
    rows = 0
    with open_rejects_file(path, headers) as add:
        for rows, each in enumerate(found, 1):  # noqa: B007 - it is counted
            add(each)
    return rows


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
        order="completion" if job.rejects is None else "input",
        resume=job.resume,
        earlier=job.earlier,
        spool=job.journal is not None and job.file.path is None,
        total=total,
    )


__all__ = ["ImportJob", "export_rejects", "import_", "run_import"]

LEVELS: Final = get_args(Level)

_PATH_TYPE = click.Path(path_type=Path)


@click.command("import")
@click.argument("file", type=_PATH_TYPE)
@click.option(
    "--duplicates",
    type=click.Choice(DUPLICATE_POLICIES),
    default="skip",
    show_default=True,
    help="What to do with an e-mail that is already in the workspace.",
)
@click.option("--campaign", metavar="ID", help="Add the contacts to this campaign.")
@click.option("--strict/--no-strict", default=True, show_default=True, help="Let the service validate the standard fields.")
@click.option(
    "--concurrency", type=int, default=DEFAULT_CONCURRENCY, show_default=True, metavar="N", help="Maximum concurrent requests."
)
@click.option(
    "--repeats",
    type=click.Choice(get_args(Repeats)),
    default="serial",
    show_default=True,
    help="What to do with duplicates within the file; first, last and coalesce need --journal.",
)
@click.option("--journal", metavar="PATH", type=_PATH_TYPE, help="Record the run in this file, so that it can be resumed.")
@click.option("--resume", is_flag=True, help="Resume the run in --journal, if the file exists.")
@click.option(
    "--earlier",
    type=click.Choice(get_args(Earlier)),
    default="known",
    show_default=True,
    help="'unknown' continues after the journal was damaged or lost, and marks every row as possibly sent.",
)
@click.option("--rejects", metavar="PATH", type=OutputPath(), help="CSV file for rejected, not_applied and unknown rows.")
@click.option("--dry-run", is_flag=True, help="Only check the file; at most the workspace's fields are requested.")
@click.option(
    "--map",
    "maps",
    metavar="'COLUMN=CODE'",
    multiple=True,
    help="Send a column as a field, given by its code, or skip it with the code 'ignore'; repeatable.",
)
@click.option(
    "--mapping", metavar="PATH", type=_PATH_TYPE, help="Read the column mapping from this TOML file; --map overrides it."
)
@click.option("--save-mapping", metavar="PATH", type=OutputPath(), help="Write the column mapping to this TOML file.")
@force_option
@click.option("--ignore-unknown", is_flag=True, help="Skip columns that match no field.")
@click.option(
    "--check",
    "checks",
    metavar="[CHECK=]error|warn|off",
    multiple=True,
    shell_complete=create_completer(lambda: [*LEVELS, *(f"{check}={level}" for check in CHECKS for level in LEVELS)]),
    help=f"Level of all checks, or of one: {', '.join(CHECKS)}; repeatable.  [default: warn]",
)
@click.option("--rate", type=float, metavar="N", help="Your quota in requests per second, to estimate the duration.")
@file_options
@shared_options
def import_(*, options: Options, reading: ReadOptions, file: Path, dry_run: bool, force: bool, **given: Any) -> int:
    """Create a contact for each row of a file. The file is CSV, JSON Lines, Parquet or a workbook; '-' is standard input.

    Columns are matched to fields by name: by codes such as first_name, in any case and punctuation ("First Name", "E-mail"), and
    by the labels of the workspace's own fields. Exports of Apollo, Google Contacts, HubSpot, Outlook and Salesforce are
    recognised. A column that matches no field is an error, before anything is sent; use --map or --ignore-unknown.

    The whole file is checked before the first row is sent. Findings are warnings, and the service decides; with --check error,
    rows with invalid values are rejected instead of sent.

    With --journal you can resume a run after a crash, Ctrl-C or exit code 75: run the same command with --resume to process the
    remaining rows. Every row gets exactly one outcome. The first Ctrl-C waits for requests in flight, up to 30 seconds, or one
    second while the run is paused; the second Ctrl-C cancels them. Use one journal per file: once its run is finished, --resume
    prints the results again, and a file with other rows is an error.
    """
    if given["campaign"] is not None:
        require_id("--campaign", given["campaign"], "campaign", "pass the id of a campaign, or omit the option")
    require_journal(resume=given["resume"], earlier=given["earlier"], journal=given["journal"])
    given["resume"] |= given["earlier"] == "unknown"
    require_writable(
        FileUse.for_reading("FILE", file),
        FileUse.for_reading("--mapping", given["mapping"]),
        FileUse.for_journal("--journal", given["journal"], written=True),
        FileUse.for_writing("--rejects", given["rejects"], is_rejects_file),
        FileUse.for_writing("--save-mapping", given["save_mapping"], is_mapping),
        force=force,
    )
    if not dry_run:
        require_fitting_journal(resume=given["resume"], repeats=given["repeats"], journal=given["journal"])
    job = _create_job(reading, file, **given)
    return run_async(partial(check_file if dry_run else _import_file, options, job))


def _create_job(
    reading: ReadOptions,
    path: Path,
    *,
    maps: tuple[str, ...],
    mapping: Path | None,
    checks: tuple[str, ...],
    rate: float | None,
    **given: Any,
) -> ImportJob:
    """Return the import that the options describe, with its file opened.

    Raises:
        InvalidRequest: An option has an invalid value, or the file cannot be read.
    """
    policy, asked, saved = CheckPolicy.of(checks), parse_overrides(maps), read_mapping(mapping) if mapping else {}
    job = ImportJob(file=create_empty_file(), rate=require_rate(rate), **given)
    if str(path) == STDIN and job.earlier == "known" and is_spooled(before := job.read_earlier_report()):
        known, _ = apply_mapping(saved, [*(before.mapping or ())] if before else ())
        return attrs.evolve(job, overrides={**known, **asked}, spooled=True)
    file = reading.open(path)
    known, lacking = apply_mapping(saved, file.headers)
    notes = [*file.notes, *(f"--mapping has a column that is not in the file: {column!r}" for column in lacking)]
    notes += [policy.note] if policy.note else []
    return attrs.evolve(job, file=file, overrides={**known, **asked}, checks=policy, notes=tuple(notes))


async def _import_file(options: Options, job: ImportJob) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options, max_in_flight=max(job.concurrency, DEFAULT_CONCURRENCY)) as client:
        return await run_import(
            client, job, screen, max_listed_rows(screen), lambda report: screen.print_result(report.to_dict())
        )
