"""The command `import`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final, get_args

import attrs
import click

from outreach_async.bulk import Repeats
from outreach_async.bulk.journal.values import Earlier
from outreach_async.checks import require_options
from outreach_async.cli.checking import check
from outreach_async.cli.completion import of_words
from outreach_async.cli.connection import open_client
from outreach_async.cli.creating import create, export_rejects
from outreach_async.cli.files import STDIN, Reading, file_options
from outreach_async.cli.job import IN_FLIGHT, Job, gone, is_spooled, require_journal
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
    help="What to do with an e-mail that the workspace has.",
)
@click.option("--campaign", metavar="ID", help="Campaign to add the contacts to.")
@click.option("--strict/--no-strict", default=True, show_default=True, help="Whether the service validates the standard fields.")
@click.option("--concurrency", type=int, default=IN_FLIGHT, show_default=True, metavar="N", help="Requests at a time at most.")
@click.option(
    "--repeats",
    type=click.Choice(get_args(Repeats)),
    default="serial",
    show_default=True,
    help="What to do with an e-mail that the file has more than once; first, last and coalesce need --journal.",
)
@click.option("--journal", metavar="PATH", type=_PATH, help="Keep the run in this file, to resume it.")
@click.option("--resume", is_flag=True, help="Go on with the journal if it is there.")
@click.option(
    "--earlier",
    type=click.Choice(get_args(Earlier)),
    default="known",
    show_default=True,
    help="'unknown' continues although the journal is damaged or lost: every row counts as possibly sent.",
)
@click.option("--rejects", metavar="PATH", type=OutputPath(), help="Write rows that made no contact to this CSV file.")
@click.option("--dry-run", is_flag=True, help="Check the whole file and create nothing; at most the workspace's fields are read.")
@click.option(
    "--map",
    "maps",
    metavar="'COLUMN=CODE'",
    multiple=True,
    help="Send a column under a field's code, or leave it out with the code 'ignore'.",
)
@click.option("--mapping", metavar="PATH", type=_PATH, help="Read where columns go from this TOML file; --map wins over it.")
@click.option("--save-mapping", metavar="PATH", type=OutputPath(), help="Write where the columns go to this TOML file.")
@force_option
@click.option("--ignore-unknown", is_flag=True, help="Leave out columns that no field is known for.")
@click.option(
    "--check",
    "checks",
    metavar="[CHECK=]error|warn|off",
    multiple=True,
    shell_complete=of_words(lambda: [*LEVELS, *(f"{check}={level}" for check in CHECKS for level in LEVELS)]),
    help=f"What the checks count for before anything is sent, or one of them: {', '.join(CHECKS)}.  [default: warn]",
)
@click.option("--rate", type=float, metavar="N", help="Requests a second that you are allowed, to say how long it will take.")
@file_options
@shared_options
def import_(*, options: Options, reading: Reading, file: Path, dry_run: bool, force: bool, **given: Any) -> int:
    """Create a contact for each row of a file: CSV, Excel, Parquet or JSON Lines; '-' is standard input.

    Columns are matched by name: codes such as first_name, the same with other case and punctuation ("First Name", "E-mail"), and
    the labels of the workspace's own fields. Exports of Apollo, Google Contacts, HubSpot, Outlook and Salesforce are recognised.
    A column that nobody knows is refused before anything is sent, unless --map says where it goes.

    The whole file is checked before the first row is sent. What is found is told, for the service has the last word; with --check
    error, rows are kept from being sent.

    With --journal the run survives its end: after a crash, Ctrl-C or exit code 75, the same command with --resume gives every row
    that is left its outcome, and none a second one. Ctrl-C waits for the requests under way, for 30 seconds at most, or for one
    second while the run is paused; a second one stops them. A journal is of one file: once its run is finished, --resume reports
    it again, and refuses a file with other rows.
    """
    require_options(given["duplicates"], given["strict"], given["campaign"])
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
    """Return what is asked for, the file opened.

    Raises:
        InvalidRequest: An option says nothing that can be done, or the file cannot be read.
    """
    policy, asked, saved = Policy.of(checks), parse_overrides(maps), read_mapping(mapping) if mapping else {}
    job = Job(file=gone(), rate=require_rate(rate), **given)
    if str(path) == STDIN and job.earlier == "known" and is_spooled(before := job.before()):
        known, _ = apply_mapping(saved, [*(before.mapping or ())] if before else ())
        return attrs.evolve(job, overrides={**known, **asked}, spooled=True)
    file = reading.open(path)
    known, lacking = apply_mapping(saved, file.headers)
    notes = [*file.notes, *(f"the mapping has a column that the file lacks: {column!r}" for column in lacking)]
    notes += [policy.note] if policy.note else []
    return attrs.evolve(job, file=file, overrides={**known, **asked}, checks=policy, notes=tuple(notes))


async def _import(options: Options, job: Job) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options, max_in_flight=max(job.concurrency, IN_FLIGHT)) as client:
        return await create(client, job, screen, listed(screen), lambda report: screen.result(report.to_dict()))
