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
from outreach_async._cli.commands.import_check import ImportJob, check_file
from outreach_async._cli.commands.import_report import max_listed_rows
from outreach_async._cli.commands.results import is_results_file
from outreach_async._cli.messages import count_noun
from outreach_async._cli.options import MAX_IN_FLIGHT
from outreach_async._cli.output import Screen
from outreach_async._cli.process import run_async
from outreach_async._cli.values import Options
from outreach_async._service.validation import require_id
from outreach_async.bulk import Repeats
from outreach_async.bulk._rows import WHOLE_INPUT
from outreach_async.importer import open_file, parse_overrides
from outreach_async.importer._checks import CheckPolicy, Level
from outreach_async.importer._mapping_file import apply_mapping, is_mapping, read_mapping
from outreach_async.importer._rejects import is_rejects_file
from outreach_async.importer._source import STDIN

_LEVELS: Final = get_args(Level)


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
    """Create a contact for each row of a file. The file is CSV, JSON Lines, Parquet or a workbook; '-' is standard input."""
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
        from outreach_async._cli.connection import require_credentials

        require_credentials(options)
        _require_fitting_journal(settings["journal"], settings["repeats"], resume=settings["resume"])
    if options.config.names:
        from outreach_async._cli.connection import refused_workspaces

        names = {name: id_ for id_, name in options.config.names.items()}
        settings |= {"workspaces": names, "refused": refused_workspaces(options)}
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
    from outreach_async.bulk.journal import journal_at

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
    from outreach_async._cli.commands.import_run import run_import
    from outreach_async._cli.connection import open_client

    screen = Screen.of(as_json=options.as_json, quiet=options.quiet)
    async with open_client(options, max_in_flight=max(job.concurrency, MAX_IN_FLIGHT), writes=True) as client:
        few = max_listed_rows(screen)
        return await run_import(
            client, job, screen, few, lambda report, failures: screen.print_result({**report.to_dict(), "failures": failures})
        )
