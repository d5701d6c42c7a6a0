"""The command `import`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

import attrs
import click

from outreach_async.bulk import Repeats
from outreach_async.bulk.journal.values import Earlier
from outreach_async.checks import require_id
from outreach_async.cli.checking import check
from outreach_async.cli.completion import of_words
from outreach_async.cli.connection import open_client
from outreach_async.cli.creating import create, export_rejects
from outreach_async.cli.files import STDIN, Reading, file_options
from outreach_async.cli.job import IN_FLIGHT, Job, gone, is_spooled, require_fitting_journal, require_journal
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.running import run_async
from outreach_async.cli.screen import Screen
from outreach_async.cli.tally import listed
from outreach_async.cli.writing import FileUse, OutputPath, force_option, require_writable
from outreach_async.importer import parse_overrides
from outreach_async.importer.checks import CHECKS, Level, Policy
from outreach_async.importer.estimate import require_rate
from outreach_async.importer.mapping import apply_mapping, is_mapping, read_mapping
from outreach_async.importer.rejects import begins_as_rejects
from outreach_async.vocabulary import DUPLICATE_POLICIES

__all__ = ["Job", "create", "export_rejects", "import_"]

LEVELS: Final = get_args(Level)

_PATH = click.Path(path_type=Path)


@click.command("import")
@click.argument("file", type=_PATH)
@click.option(
    "--duplicates",
    type=click.Choice(DUPLICATE_POLICIES),
    default="skip",
    show_default=True,
    help="What to do with an e-mail that is already in the workspace.",
)
@click.option("--campaign", metavar="ID", help="Add the contacts to this campaign.")
@click.option("--strict/--no-strict", default=True, show_default=True, help="Let the service validate the standard fields.")
@click.option("--concurrency", type=int, default=IN_FLIGHT, show_default=True, metavar="N", help="Maximum concurrent requests.")
@click.option(
    "--repeats",
    type=click.Choice(get_args(Repeats)),
    default="serial",
    show_default=True,
    help="What to do with duplicates within the file; first, last and coalesce need --journal.",
)
@click.option("--journal", metavar="PATH", type=_PATH, help="Record the run in this file, so that it can be resumed.")
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
@click.option("--mapping", metavar="PATH", type=_PATH, help="Read the column mapping from this TOML file; --map overrides it.")
@click.option("--save-mapping", metavar="PATH", type=OutputPath(), help="Write the column mapping to this TOML file.")
@force_option
@click.option("--ignore-unknown", is_flag=True, help="Skip columns that match no field.")
@click.option(
    "--check",
    "checks",
    metavar="[CHECK=]error|warn|off",
    multiple=True,
    shell_complete=of_words(lambda: [*LEVELS, *(f"{check}={level}" for check in CHECKS for level in LEVELS)]),
    help=f"Level of all checks, or of one: {', '.join(CHECKS)}; repeatable.  [default: warn]",
)
@click.option("--rate", type=float, metavar="N", help="Your quota in requests per second, to estimate the duration.")
@file_options
@shared_options
def import_(*, options: Options, reading: Reading, file: Path, dry_run: bool, force: bool, **given: Any) -> int:
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
        FileUse.read("FILE", file),
        FileUse.read("--mapping", given["mapping"]),
        FileUse.journal("--journal", given["journal"], written=True),
        FileUse.write("--rejects", given["rejects"], begins_as_rejects),
        FileUse.write("--save-mapping", given["save_mapping"], is_mapping),
        force=force,
    )
    if not dry_run:
        require_fitting_journal(resume=given["resume"], repeats=given["repeats"], journal=given["journal"])
    job = _job(reading, file, **given)
    return run_async(partial(check if dry_run else _import, options, job))


def _job(
    reading: Reading,
    path: Path,
    *,
    maps: tuple[str, ...],
    mapping: Path | None,
    checks: tuple[str, ...],
    rate: float | None,
    **given: Any,
) -> Job:
    """Return the import that the options describe, with its file opened.

    Raises:
        InvalidRequest: An option has an invalid value, or the file cannot be read.
    """
    policy, asked, saved = Policy.of(checks), parse_overrides(maps), read_mapping(mapping) if mapping else {}
    job = Job(file=gone(), rate=require_rate(rate), **given)
    if str(path) == STDIN and job.earlier == "known" and is_spooled(before := job.before()):
        known, _ = apply_mapping(saved, [*(before.mapping or ())] if before else ())
        return attrs.evolve(job, overrides={**known, **asked}, spooled=True)
    file = reading.open(path)
    known, lacking = apply_mapping(saved, file.headers)
    notes = [*file.notes, *(f"--mapping has a column that is not in the file: {column!r}" for column in lacking)]
    notes += [policy.note] if policy.note else []
    return attrs.evolve(job, file=file, overrides={**known, **asked}, checks=policy, notes=tuple(notes))


async def _import(options: Options, job: Job) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options, max_in_flight=max(job.concurrency, IN_FLIGHT)) as client:
        return await create(client, job, screen, listed(screen), lambda report: screen.result(report.to_dict()))
