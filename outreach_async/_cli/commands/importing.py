"""The command `import`: its options, and the input that they describe."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import attrs
import click

from outreach_async._cli import files
from outreach_async._cli.commands.import_check import ImportJob, check_file
from outreach_async._cli.commands.results import is_results_file
from outreach_async._cli.messages import count_noun
from outreach_async._cli.output import Screen
from outreach_async._cli.process import run_async
from outreach_async._cli.values import MAX_IN_FLIGHT, Options
from outreach_async._service.validation import require_id
from outreach_async.bulk._rows import WHOLE_INPUT
from outreach_async.importer import open_file, parse_overrides
from outreach_async.importer._checks import CheckPolicy
from outreach_async.importer._mapping_file import apply_mapping, is_mapping, read_mapping
from outreach_async.importer._rejects import is_rejects_file
from outreach_async.importer._source import STDIN


def import_(*, options: Options, file: Path | str, dry_run: bool, force: bool, dask: str | None, **settings: Any) -> int:
    """Create a contact for each row of a file."""
    open_input = files.pop_open_input(settings)
    if dask is not None:
        from outreach_async._cli.commands.spreading import import_in_parts  # imported on demand: few imports need it

        return import_in_parts(options, file, dask, open_input.keywords, {**settings, "dry_run": dry_run, "force": force})
    if not isinstance(file, Path):
        raise click.UsageError("FILE: a URL requires --dask; pass --dask local, or download the file first.")
    if settings["campaign"] is not None:
        require_id("--campaign", settings["campaign"], "campaign", "pass the id of a campaign, or omit the option")
    _require_fitting(settings, dry_run=dry_run)
    settings["resume"] |= settings["earlier"] == "unknown"
    files.require_writable(
        files.FileUse.of("FILE", file),
        files.FileUse.of("--mapping", settings["mapping"]),
        files.FileUse.of_journal("--journal", settings["journal"], written=True),
        files.FileUse.of_journal("--ledger", settings["ledger"], written=not dry_run),
        files.FileUse.of("--rejects", settings["rejects"], is_rejects_file),
        files.FileUse.of("--results", settings["results"], is_results_file),
        files.FileUse.of("--save-mapping", settings["save_mapping"], is_mapping),
        force=force,
    )
    if not dry_run:  # a dry run creates and records nothing
        from outreach_async._cli.connection import require_credentials

        require_credentials(options)
        _require_fitting_journal(settings)
    if options.config.names:
        from outreach_async._cli.connection import refused_workspaces

        names = {name: id_ for id_, name in options.config.names.items()}
        settings |= {"workspaces": names, "refused": refused_workspaces(options)}
    job = _create_job(open_input, file, **settings)
    return run_async(partial(check_file if dry_run else _import_file, options, job))


def _require_fitting(settings: Mapping[str, Any], *, dry_run: bool) -> None:
    """Check that no option conflicts with another, and that each has those that it needs."""
    journal, ledger, repeats = (settings[name] for name in ("journal", "ledger", "repeats"))
    unknown, ignores, no_ledger = settings["earlier"] == "unknown", settings["changed"] == "ignore", settings["ledger"] is None
    policies = "pass --duplicates overwrite or --duplicates update_missing_fields, or --changed ignore to send only new contacts"
    of_results = "with --dry-run, the only results are those of a ledger; pass --ledger, or omit --results"
    faults = {
        "--max-age: needs a ledger; pass --ledger PATH": no_ledger and settings["max_age"] is not None,
        "--changed: needs a ledger; pass --ledger PATH": no_ledger and ignores,
        f"--results: {of_results}": no_ledger and dry_run and settings["results"] is not None,
        f"--duplicates skip: with --ledger, the service would ignore each changed row; {policies}": (
            ledger and settings["duplicates"] == "skip" and not ignores
        ),
        "--journal: conflicts with --ledger, which has a journal of its own; omit --journal": ledger and journal,
        "--resume: conflicts with --ledger, which has a journal of its own; omit --resume": ledger and settings["resume"],
        "--earlier unknown: conflicts with --ledger; to send every row again, pass --max-age 0": ledger and unknown,
        f"--repeats {repeats}: conflicts with --ledger; pass --repeats serial or error": ledger and repeats in WHOLE_INPUT,
        "--earlier unknown: needs --journal; pass the path of the damaged or lost journal": journal is None and unknown,
        "--resume: needs the journal of the run; pass --journal PATH": journal is None and settings["resume"],
    }
    for text in (text for text, found in faults.items() if found):
        raise click.UsageError(f"{text}.")


def _require_fitting_journal(settings: Mapping[str, Any]) -> None:
    """Check that `--journal` is given if `--repeats` requires it, and that an existing journal is used only with `--resume`."""
    journal, repeats = settings["journal"], settings["repeats"]
    if repeats in WHOLE_INPUT and journal is None:
        raise click.UsageError(f"--repeats {repeats}: needs a journal to store all rows before sending; pass --journal PATH.")
    from outreach_async.bulk.journal import journal_at

    if journal is not None and not settings["resume"] and journal_at(journal).exists():
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

    screen = options.screen()
    async with open_client(options, max_in_flight=max(job.concurrency, MAX_IN_FLIGHT), writes=True) as client:
        return await run_import(
            client, job, screen, screen.few, lambda report, failed: screen.print_result({**report.to_dict(), "failures": failed})
        )
