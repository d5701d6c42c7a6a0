"""The command `import`: check the whole file, then create its contacts. The command `demo` uses this module too."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias, cast, get_args

import attrs
import click

from outreach_async._cli import files
from outreach_async._cli.app import create_completer
from outreach_async._cli.commands.import_end import end_run, open_rejects
from outreach_async._cli.commands.import_job import ImportJob
from outreach_async._cli.commands.import_report import (
    FailedRows,
    find_email,
    max_listed_rows,
    print_columns,
    print_findings,
    print_ledger,
)
from outreach_async._cli.commands.results import RESULTS_HELP, describe_outcome, is_results_file, open_results
from outreach_async._cli.connection import MAX_IN_FLIGHT, open_client, require_credentials, workspaces_of
from outreach_async._cli.messages import count_noun
from outreach_async._cli.options import WRITING, AgeType, Options, shared_options
from outreach_async._cli.output import Screen, follow_progress, format_progress, show_progress
from outreach_async._cli.process import (
    DRAIN_TIMEOUT,
    INCOMPLETE,
    INTERRUPTED,
    OK,
    PAUSED_DRAIN_TIMEOUT,
    InterruptHandler,
    exit_code_of_rows,
    handle_interrupts,
    run_async,
)
from outreach_async._files.atomic import atomic_write
from outreach_async._service.validation import require_id
from outreach_async._vocabulary import DUPLICATE_POLICIES, Outcome
from outreach_async.bulk import BulkReport, BulkRun, ContactOutcome, Outcomes, Repeats
from outreach_async.bulk._comparing import count_changes
from outreach_async.bulk._outcomes import LedgerCounts, unsent_outcome
from outreach_async.bulk._rows import WHOLE_INPUT
from outreach_async.bulk.journal import Identity, JournalReport, journal_at
from outreach_async.bulk.journal._identity import Earlier
from outreach_async.bulk.ledger import Changed, Ledger, LedgerOptions
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest
from outreach_async.importer import Columns, Row, columns_for, open_file, parse_overrides
from outreach_async.importer._checks import CHECKS, CheckPolicy, Checks, Level
from outreach_async.importer._mapping_file import apply_mapping, is_mapping, mapping_text, read_mapping
from outreach_async.importer._preflight import OnRejected, Preflight, estimate_duration, run_preflight
from outreach_async.importer._rejects import is_rejects_file, number_record
from outreach_async.importer._source import STDIN
from outreach_async.importer._table import RowUnit

OnClose: TypeAlias = Callable[[BulkReport, list[dict[str, Any]]], None]
"""A function that receives the final report and the first failed rows of an import."""


def _needs_no_input(job: ImportJob, report: JournalReport) -> bool:
    """Return whether an import from standard input resumes with the rows of its journal. If the journal has them, say so."""
    if report.spooled is None:
        return False
    text = f"{job.journal} contains the {count_noun(report.spooled, 'row')} of this run, which resumes with them"
    # Said before the next line, which waits until standard input has data or ends.
    Screen.of(as_json=True).warn(f"{text}; standard input must be empty or contain the same rows")
    return sys.stdin is None or sys.stdin.isatty() or not cast("io.BufferedReader", sys.stdin.buffer).peek(1)


async def prepare(
    client: OutreachClient | None,
    job: ImportJob,
    screen: Screen,
    on_rejected: OnRejected = lambda _row, _error: None,
    unit: RowUnit = "line",
) -> tuple[Columns, Preflight]:
    """Map the columns, check the whole file and print the findings. Return the mapping and the findings."""
    if job.checks is not None:
        for note in job.notes:  # before the columns are mapped, because a note may explain why this fails
            screen.print_line(f"note: {note}")
    samples = job.file.samples()
    columns = await columns_for(client, job.file.headers, job.overrides, ignore_unknown=job.ignore_unknown, samples=samples)
    if job.save_mapping is not None:
        with files.explain_write_errors("--save-mapping", job.save_mapping):
            atomic_write(job.save_mapping, mapping_text(columns, job.file.name))
    if job.checks is None:
        return columns, await run_preflight(job.file, columns, CheckPolicy.of(["off"]), repeats=job.repeats)
    print_columns(screen, columns)
    with show_progress("Checking", None) as show:
        preflight = await run_preflight(
            job.file, columns, job.checks, repeats=job.repeats, unit=unit, tell=on_rejected, show=lambda rows: show(rows, "")
        )
        show(preflight.rows, "")
    print_findings(screen, preflight, estimate_duration(preflight, job.rate, job.read_earlier_report()))
    return columns, preflight


async def check_file(options: Options, job: ImportJob) -> int:
    """Check the whole file without creating anything, and return the exit code."""
    screen, started_at = Screen.of(as_json=options.as_json), monotonic()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_client(options)) if options.base_url else None
        failed = FailedRows(screen, max_listed_rows(screen))
        with failed, open_rejects(job.rejects, job.file) as write_reject:

            def reject_row(row: Row, error: InvalidRequest) -> None:
                outcome = unsent_outcome(0, row, Outcome.REJECTED, error)
                failed.add(outcome)
                write_reject(outcome)

            columns, preflight = await prepare(client, job, screen, reject_row)
    rows, refused = preflight.rows, preflight.refused
    screen.print_line(f"{preflight.sent:,} of {rows:,} rows can be sent; nothing was created")
    outcomes = dict.fromkeys(Outcome, 0) | {Outcome.REJECTED: refused, Outcome.NOT_APPLIED: rows - refused}
    report = BulkReport(rows, outcomes, 0, monotonic() - started_at, preflight.superseded)
    if job.ledger is not None:
        report = attrs.evolve(report, ledger=_compare(job, options, columns))
        print_ledger(screen, report.ledger)
    details = {
        "dry_run": True,
        "warnings": preflight.counts(),
        "columns": _mapping_of(columns),
        "failures": failed.failures,
    }
    screen.print_result({**report.to_dict(), **details})
    return INCOMPLETE if refused else OK


def _compare(job: ImportJob, options: Options, columns: Columns) -> LedgerCounts:
    """Compare the rows with the ledger, without changing it."""
    workspace = workspaces_of(options)[0]
    request = {"duplicates": job.duplicates, "strict_validation": job.strict}
    return count_changes(
        _guard(job, columns),
        LedgerOptions(
            Ledger(str(job.ledger)),
            Identity(workspace, {}),
            job.repeats,
            (workspace, job.campaign),
            request,
            job.max_age,
            ignore_changes=job.changed == "ignore",
        ),
    )


def _guard(job: ImportJob, columns: Columns) -> Iterable[Row]:
    rows = job.file.rows(columns)
    return rows if job.checks is None else Checks(columns, job.checks).guarded(rows)


def _mapping_of(columns: Columns) -> dict[str, str]:
    return {column: code for column, code, _ in columns.decisions()}


async def run_import(client: OutreachClient, job: ImportJob, screen: Screen, few: int | None, closing: OnClose) -> int:
    """Create the contacts of a file, print the results and return the exit code."""
    earlier = job.read_earlier_report()
    preflight, rows, mapping = await _prepare_rows(client, job, screen, earlier)
    total = preflight.rows if earlier is None or earlier.spooled is None else earlier.spooled  # the input may be another one
    find_number = number_record if job.spools else preflight.find_number
    failed = FailedRows(screen, few, find_number)
    if_finished = "" if earlier is None or earlier.state != "finished" else _ALREADY_FINISHED.format(journal=job.journal)
    end = end_run(
        job,
        screen,
        total=total,
        find_number=find_number,
        heading=if_finished,
        closing=lambda report: closing(report, failed.failures),
    )
    with end as on_start, _open_results(job) as write_result:
        async with handle_interrupts(screen) as interrupts, _create_run(client, job, rows, total, mapping) as outcomes:
            write_reject = on_start(outcomes)
            interrupts.drain = partial(drain_run, outcomes)
            with failed, show_progress("Importing", total) as show:
                interrupts.group.start_soon(follow_progress, lambda: outcomes.progress, show, screen.warn)
                async for outcome in outcomes:
                    failed.add(outcome)
                    write_reject(outcome)
                    write_result(outcome)
                show(outcomes.report.rows, format_progress(outcomes.progress))
    return _exit_code(interrupts, outcomes, screen)  # pragma: no cover - run, but coverage loses track after a cancelled group


@contextmanager
def _open_results(job: ImportJob) -> Iterator[Callable[[ContactOutcome], None]]:
    """Yield a function that writes an outcome to the results file. With a journal, the file is written at the end instead."""
    if job.results is None or job.journal is not None:
        yield lambda _outcome: None
        return
    file = {"file": str(job.file.path)} if job.file.path else {}
    with files.explain_write_errors("--results", job.results), open_results(job.results) as write:

        def write_result(outcome: ContactOutcome) -> None:
            row = cast("Row", outcome.contact)
            write({**file, "line": row.line, "email": find_email(outcome), **describe_outcome(outcome)})

        yield write_result


def drain_run(outcomes: Outcomes) -> float:
    """Stop a run from starting further rows, and return the number of seconds to wait for the requests in flight."""
    paused = outcomes.progress.state == "paused"
    outcomes.drain()
    return PAUSED_DRAIN_TIMEOUT if paused else DRAIN_TIMEOUT


async def _prepare_rows(
    client: OutreachClient, job: ImportJob, screen: Screen, earlier: JournalReport | None
) -> tuple[Preflight, Iterable[Row], Mapping[str, str] | None]:
    """Check the file, and return the findings, the rows and the mapping."""
    # If the results of an earlier run can be printed again, the file is not checked, and only the number of rows is returned.
    if earlier is not None and job.is_settled(earlier):
        return Preflight(rows=earlier.rows), (), None
    columns, preflight = await prepare(client, attrs.evolve(job, overrides={}) if job.spooled else job, screen, unit=job.unit)
    return preflight, _guard(job, columns), None if job.spooled else _mapping_of(columns)


def _exit_code(interrupts: InterruptHandler, outcomes: Outcomes, screen: Screen) -> int:
    if interrupts.count:
        screen.warn("interrupted")
        return INTERRUPTED
    return exit_code_of_rows(outcomes.report.outcomes, outcomes.report.repeats)


_ALREADY_FINISHED: Final = "The run in {journal} had already finished, so nothing was sent. Its results:"


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


_LEVELS: Final = get_args(Level)


@click.command("import")
@click.argument("file", type=files.JournalType())
@click.option(
    "--duplicates",
    type=click.Choice(DUPLICATE_POLICIES),
    default="skip",
    help="Policy for e-mails that are already in the workspace.",
)
@click.option("--campaign", metavar="ID", help="Add the contacts to this campaign.")
@click.option("--strict/--no-strict", default=True, help="Let the service validate the standard fields.")
@click.option("--concurrency", type=int, default=MAX_IN_FLIGHT, metavar="N", help="Maximum number of concurrent requests.")
@click.option(
    "--repeats",
    type=click.Choice(get_args(Repeats)),
    default="serial",
    help="Policy for duplicates within the file; first, last and coalesce need --journal.",
)
@click.option(
    "--journal",
    metavar="PATH|URL",
    type=files.JournalType(),
    help="Record the run in this file, or at this URL of an object store (s3://bucket/prefix), so that it can be resumed.",
)
@click.option(
    "--ledger",
    metavar="PATH|URL",
    type=files.JournalType(),
    help="Send only new, changed and uncertain rows, according to this file or object store, which remembers every run. Needs "
    "--duplicates overwrite or update_missing_fields, or --changed ignore.",
)
@click.option(
    "--max-age",
    metavar="AGE",
    type=AgeType(),
    help="With --ledger, also send rows that were last sent this long ago, such as 30d.",
)
@click.option(
    "--changed",
    type=click.Choice(get_args(Changed)),
    default="send",
    help="With --ledger: send changed rows, or ignore them and send only new ones.",
)
@click.option("--resume", is_flag=True, help="Resume the run in --journal. If the journal does not exist, start a new run.")
@click.option(
    "--earlier",
    type=click.Choice(get_args(Earlier)),
    default="known",
    help="With 'unknown', the run continues even if the journal was damaged or lost; every row without an outcome counts as "
    "possibly sent.",
)
@files.rejects_option
@click.option("--results", metavar="PATH", type=files.OutputPath(), help=RESULTS_HELP)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only check the file, without creating contacts. To map columns, the command may read the workspace's fields.",
)
@click.option(
    "--map",
    "maps",
    metavar="'COLUMN=CODE'",
    multiple=True,
    help="Send a column as the field with this code; the code 'ignore' skips the column; repeatable.",
)
@click.option(
    "--mapping", metavar="PATH", type=files.PATH, help="Read the column mapping from this TOML file; --map overrides it."
)
@click.option("--save-mapping", metavar="PATH", type=files.OutputPath(), help="Write the column mapping to this TOML file.")
@files.force_option
@click.option("--ignore-unknown", is_flag=True, help="Skip columns that match no field. An ambiguous column is still an error.")
@click.option(
    "--check",
    "checks",
    metavar="[CHECK=]error|warn|off",
    multiple=True,
    shell_complete=create_completer(lambda: [*_LEVELS, *(f"{check}={level}" for check in CHECKS for level in _LEVELS)]),
    help=f"Level of all checks, or of a single check ({', '.join(CHECKS)}); repeatable.  [default: warn]",
)
@click.option(
    "--dask",
    "scheduler",
    metavar="ADDRESS|local",
    help="Import on a Dask cluster. FILE may be a URL or a quoted pattern; --journal must be a URL. Workers need the owner key.",
)
@files.file_options
@shared_options(*WRITING)
def import_(
    *,
    options: Options,
    open_input: files.OpenInput,
    file: Path | str,
    dry_run: bool,
    force: bool,
    scheduler: str | None,
    **settings: Any,
) -> int:
    """Create a contact for each row of a file. The file is CSV, JSON Lines, Parquet or a workbook; '-' is standard input.

    Columns are matched to fields by name, regardless of case, accents and punctuation ("First Name", "E-mail"). The name of
    a column can be the code of a field (such as first_name) or the label of a workspace field. Common names in English, German,
    French, Spanish, Portuguese, Dutch, Italian, Polish and Czech also match. Exports of Apollo, Google Contacts, HubSpot, Outlook
    and Salesforce are recognised. If a column matches no field, nothing is sent, and the error shows the --map options to add.
    With --ignore-unknown, such a column is skipped instead. A column name that may mean several fields is ambiguous, and always
    needs --map.

    The whole file is checked before the first row is sent. By default, the checks only print warnings: the rows are sent, and the
    service accepts or rejects them. With --check error, rows with invalid values are rejected instead of sent. With --check
    cells=off, texts such as NULL and #N/A are sent as they are.

    With --journal you can resume a run after a crash, Ctrl-C or exit code 75: run the same command with --resume to process the
    remaining rows. Every row gets exactly one outcome. After the first Ctrl-C, the import waits up to 30 seconds for requests in
    flight, or one second if the run is paused. The second Ctrl-C cancels these requests. Use one journal per file: resuming with
    a file that has other rows is an error. If the run in the journal is finished, --resume prints its results again.

    With --ledger, only new, changed and uncertain rows are sent. The ledger remembers every run, so run the same command every
    night, and after a crash. With --dry-run, the command only counts what it would send.

    With --dask, the input is divided into parts, and the workers of a Dask cluster import them. Set OUTREACH_OWNER_KEY in the
    environment of the workers. To resume after a crash, run the same command again. Without --rate, the total rate of all workers
    starts at 10 requests per second, and adapts to the service's limit.

    \b
    outreach-async import 'lake/*.parquet' --journal s3://bucket/june \\
      --dask tcp://host:8786
    """  # noqa: D301 - click keeps the lines of a paragraph after a backspace character
    if scheduler is not None:
        from outreach_async._cli.commands.spreading import import_in_parts  # imported on demand: few imports need it

        return import_in_parts(options, file, scheduler, open_input.keywords, {**settings, "dry_run": dry_run})
    if not isinstance(file, Path):
        raise click.UsageError("FILE: a URL requires --dask; pass --dask local, or download the file first.")
    if settings["campaign"] is not None:
        require_id("--campaign", settings["campaign"], "campaign", "pass the id of a campaign, or omit the option")
    _require_fitting_ledger(settings)
    if settings["earlier"] == "unknown" and settings["journal"] is None:
        raise click.UsageError("--earlier unknown: needs --journal; pass the path of the damaged or lost journal.")
    if settings["resume"] and settings["journal"] is None:
        raise click.UsageError("--resume: needs the journal of the run; pass --journal PATH.")
    settings["resume"] |= settings["earlier"] == "unknown"
    files.require_writable(
        files.FileUse.for_reading("FILE", file),
        files.FileUse.for_reading("--mapping", settings["mapping"]),
        files.FileUse.for_journal("--journal", settings["journal"], written=True),
        files.FileUse.for_journal("--ledger", settings["ledger"], written=not dry_run),
        files.FileUse.for_writing("--rejects", settings["rejects"], is_rejects_file),
        files.FileUse.for_writing("--results", settings["results"], is_results_file),
        files.FileUse.for_writing("--save-mapping", settings["save_mapping"], is_mapping),
        force=force,
    )
    if dry_run and settings["results"] is not None:
        raise click.UsageError("--results: conflicts with --dry-run, which creates nothing; omit --results.")
    if not dry_run:  # a dry run creates and records nothing
        require_credentials(options)
        _require_fitting_journal(settings["journal"], settings["repeats"], resume=settings["resume"])
    job = _create_job(open_input, file, rate=options.rate, **settings)
    return run_async(partial(check_file if dry_run else _import_file, options, job))


def _require_fitting_ledger(settings: Mapping[str, Any]) -> None:
    if settings["ledger"] is None:
        for flag, given in ("--max-age", settings["max_age"] is not None), ("--changed", settings["changed"] != "send"):
            if given:
                raise click.UsageError(f"{flag}: needs a ledger; pass --ledger PATH.")
        return
    if settings["duplicates"] == "skip" and settings["changed"] == "send":
        raise click.UsageError(
            "--duplicates skip: with --ledger, the service would ignore each changed row; pass --duplicates overwrite or"
            " --duplicates update_missing_fields, or --changed ignore to send only new contacts."
        )
    for flag in "journal", "resume":
        if settings[flag]:
            raise click.UsageError(f"--{flag}: conflicts with --ledger, which has a journal of its own; omit --{flag}.")
    if settings["earlier"] == "unknown":
        raise click.UsageError("--earlier unknown: conflicts with --ledger; to send every row again, pass --max-age 0.")
    if settings["repeats"] in WHOLE_INPUT:
        raise click.UsageError(f"--repeats {settings['repeats']}: conflicts with --ledger; pass --repeats serial or error.")


def _require_fitting_journal(journal: files.JournalLocation | None, repeats: Repeats, *, resume: bool) -> None:
    """Check that `--journal` is given if `--repeats` requires it, and that an existing journal is used only with `--resume`."""
    if repeats in WHOLE_INPUT and journal is None:
        raise click.UsageError(f"--repeats {repeats}: needs a journal to store all rows before sending; pass --journal PATH.")
    if journal is not None and not resume and journal_at(journal).exists():
        other = "pass another journal, with --earlier unknown if some of the rows may have been sent"
        raise click.UsageError(f"--journal {journal}: the journal exists; resume its run with --resume, or {other}.")


def _create_job(
    open_input: files.OpenInput,
    path: Path,
    *,
    maps: tuple[str, ...],
    mapping: Path | None,
    checks: tuple[str, ...],
    **settings: Any,
) -> ImportJob:
    """Open the input file, and create an `ImportJob` from the options."""
    policy, overrides, saved = CheckPolicy.of(checks), parse_overrides(maps), read_mapping(mapping) if mapping else {}
    # The job begins with an empty file. Its input is opened below, unless the rows are already in the journal.
    job = ImportJob(file=open_file(io.BytesIO(b"email\n"), format="csv"), **settings)
    report = job.read_earlier_report() if str(path) == STDIN and job.earlier == "known" else None
    if report is not None and _needs_no_input(job, report):
        applicable, _ = apply_mapping(saved, [*(report.mapping or ())])
        return attrs.evolve(job, overrides={**applicable, **overrides}, spooled=True)
    file = open_input(path)
    applicable, lacking = apply_mapping(saved, file.headers)
    notes = [*file.notes, *(f"--mapping: the input file has no column {column!r}" for column in lacking)]
    notes += [policy.note] if policy.note else []
    return attrs.evolve(job, file=file, overrides={**applicable, **overrides}, checks=policy, notes=tuple(notes))


async def _import_file(options: Options, job: ImportJob) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options, max_in_flight=max(job.concurrency, MAX_IN_FLIGHT)) as client:
        few = max_listed_rows(screen)
        return await run_import(
            client, job, screen, few, lambda report, failures: screen.print_result({**report.to_dict(), "failures": failures})
        )
