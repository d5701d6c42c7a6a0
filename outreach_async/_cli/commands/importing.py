"""The command `import`: its options, and the input that they describe."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, cast, get_args

import attrs
import click

from outreach_async._cli import files
from outreach_async._cli.app import create_completer
from outreach_async._cli.commands.import_report import max_listed_rows
from outreach_async._cli.commands.import_run import ImportJob, check_file, run_import
from outreach_async._cli.commands.results import is_results_file
from outreach_async._cli.connection import MAX_IN_FLIGHT, open_client, refused_workspaces, require_credentials
from outreach_async._cli.messages import count_noun
from outreach_async._cli.options import WRITING, AgeType, Options, shared_options
from outreach_async._cli.output import Screen
from outreach_async._cli.process import run_async
from outreach_async._service.validation import require_id
from outreach_async._vocabulary import DUPLICATE_POLICIES
from outreach_async.bulk import Repeats
from outreach_async.bulk._rows import WHOLE_INPUT
from outreach_async.bulk.journal import journal_at
from outreach_async.bulk.journal._identity import Earlier
from outreach_async.bulk.ledger import Changed
from outreach_async.importer import open_file, parse_overrides
from outreach_async.importer._checks import CHECKS, CheckPolicy, Level
from outreach_async.importer._mapping_file import apply_mapping, is_mapping, read_mapping
from outreach_async.importer._rejects import is_rejects_file
from outreach_async.importer._source import STDIN

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
@files.results_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only check the file, without creating contacts. To map columns, the command may read the workspace's fields.",
)
@files.mapping_options
@click.option("--save-mapping", metavar="PATH", type=files.OutputPath(), help="Write the column mapping to this TOML file.")
@files.force_option
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
    night, and after a crash. With --dry-run, the command only counts what it would send; --results then shows what the ledger
    knows about each row, such as its contact id.

    With --dask, the input is divided into parts, and the workers of a Dask cluster import them. Set OUTREACH_OWNER_KEY in the
    environment of the workers. To resume after a crash, run the same command again. Without --rate, the total rate of all workers
    starts at 10 requests per second, and adapts to the service's limit.

    \b
    outreach-async import 'lake/*.parquet' --journal s3://bucket/june \\
      --dask tcp://host:8786
    """  # noqa: D301 - click keeps the lines of a paragraph after a backspace character
    if scheduler is not None:
        from outreach_async._cli.commands.spreading import import_in_parts  # imported on demand: few imports need it

        return import_in_parts(options, file, scheduler, open_input.keywords, {**settings, "dry_run": dry_run, "force": force})
    if not isinstance(file, Path):
        raise click.UsageError("FILE: a URL requires --dask; pass --dask local, or download the file first.")
    if settings["campaign"] is not None:
        require_id("--campaign", settings["campaign"], "campaign", "pass the id of a campaign, or omit the option")
    _require_fitting_ledger(settings)
    if settings["journal"] is None and settings["earlier"] == "unknown":
        raise click.UsageError("--earlier unknown: needs --journal; pass the path of the damaged or lost journal.")
    if settings["journal"] is None and settings["resume"]:
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
    if dry_run and settings["results"] is not None and settings["ledger"] is None:
        raise click.UsageError(
            "--results: with --dry-run, the only results are those of a ledger; pass --ledger, or omit --results."
        )
    if not dry_run:  # a dry run creates and records nothing
        require_credentials(options)
        _require_fitting_journal(settings["journal"], settings["repeats"], resume=settings["resume"])
    settings |= {"workspaces": {name: id_ for id_, name in options.config.names.items()}, "refused": refused_workspaces(options)}
    job = _create_job(open_input, file, **settings)
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
    policy, overrides, saved = CheckPolicy.of(checks), parse_overrides(maps), read_mapping(mapping) if mapping else {}
    # The job begins with an empty file. Its input is opened below, unless the rows are already in the journal.
    job = ImportJob(file=open_file(io.BytesIO(b"email\n"), format="csv"), **settings)
    report = job.read_earlier_report() if str(path) == STDIN and job.earlier == "known" else None
    if report is not None and report.spooled is not None:
        text = f"{job.journal} contains the {count_noun(report.spooled, 'row')} of this run, which resumes with them"
        # Said before the next line, which waits until standard input has data or ends.
        Screen.of(as_json=True).warn(f"{text}; standard input must be empty or contain the same rows")
        if sys.stdin is None or sys.stdin.isatty() or not cast("io.BufferedReader", sys.stdin.buffer).peek(1):
            applicable, _ = apply_mapping(saved, [*(report.mapping or ())])
            return attrs.evolve(job, overrides={**applicable, **overrides}, spooled=True)
    file = open_input(path)
    applicable, lacking = apply_mapping(saved, file.headers)
    notes = [*file.notes, *(f"--mapping: the input file has no column {column!r}" for column in lacking)]
    notes += [policy.note] if policy.note else []
    return attrs.evolve(job, file=file, overrides={**applicable, **overrides}, checks=policy, notes=tuple(notes))


async def _import_file(options: Options, job: ImportJob) -> int:
    screen = Screen.of(as_json=options.as_json, quiet=options.quiet)
    async with open_client(options, max_in_flight=max(job.concurrency, MAX_IN_FLIGHT), writes=True) as client:
        few = max_listed_rows(screen)
        return await run_import(
            client, job, screen, few, lambda report, failures: screen.print_result({**report.to_dict(), "failures": failures})
        )
