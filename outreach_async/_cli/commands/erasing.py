"""The command `erase`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outreach_async._cli.options import FILE, LOCATION, Command, option, with_options

if TYPE_CHECKING:
    from outreach_async._cli.values import Options


@click.command(
    cls=Command,
    examples=[
        "outreach-async erase --from - --path imports --yes < addresses.txt",
        "outreach-async erase ann@company.example --path imports --path s3://bucket/acme.ledger --dry-run",
    ],
)
@click.argument("emails", nargs=-1, metavar="[EMAIL]...")
@option(
    "--from",
    "source",
    type=FILE,
    metavar="FILE|-",
    help="Read the addresses from a file (a table, or one a line) or standard input.",
)
@option(
    "--path",
    "paths",
    type=LOCATION,
    multiple=True,
    metavar="FILE|FOLDER|URL",
    help="Where to look; repeatable. Folders are searched.  [default: the ledgers of the workspaces in the configuration file]",
)
@option("--and-exclude", type=FILE, help="Add keyed marks of the people to this list, which later imports read by --exclude.")
@option("--dry-run", is_flag=True, help="Only show what would be removed.")
@option("--yes", is_flag=True, help="Do not ask. Needed without a terminal, and with --json or --quiet.")
@with_options("config", "profile", "workspaces", "as_json")
def erase(
    options: Options,
    *,
    emails: tuple[str, ...],
    source: Path | None,
    paths: tuple[Path | str, ...],
    and_exclude: Path | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Remove what files have of people.

    Ledgers, journals, histories, and the results, rejects and findings of imports lose what they have of these people, and work
    as before. Other files that name them are listed, and stay as they are. The record says what was removed, what is left (exit
    code 3), and how to ask for what the service has. It shows no whole address, so you can keep it. Addresses that are read by
    --from stay out of the history of the shell.
    """
    import sys

    from outreach_async._cli import erasing
    from outreach_async.importer import read_people

    is_asked = sys.stdin is not None and sys.stdin.isatty() and str(source) != "-" and not (options.as_json or options.quiet)
    if not (dry_run or yes or is_asked):
        raise click.UsageError(
            "--yes: needed without a terminal, and with --json or --quiet; pass it, or --dry-run to see what would be removed."
        )
    people = [*emails, *(read_people(source) if source else ())]
    if not people:
        raise click.UsageError("EMAIL: missing; pass addresses, or --from FILE with one a line.")
    return erasing.erase(options, people, paths, and_exclude, dry_run=dry_run, confirmed=yes)
