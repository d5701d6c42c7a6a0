"""The command `demo`: an import and an audit on the embedded service, in a few seconds."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import attrs
import click

from outreach_async.audit import audit
from outreach_async.bulk import BulkReport
from outreach_async.cli.auditing import clock_of, show_audit
from outreach_async.cli.connection import open_client
from outreach_async.cli.exits import INTERRUPTED, OK
from outreach_async.cli.importing import ImportJob, run_import
from outreach_async.cli.options import FAKE, Options, shared_options
from outreach_async.cli.output import Screen
from outreach_async.cli.process import run_async
from outreach_async.cli.serving import CAMPAIGN, WORKSPACES
from outreach_async.importer import CsvFile

_MAX_LISTED: Final = 8
_NEXT_STEPS: Final = """
This ran on an embedded service: no network was used, and nothing is stored.
Try next:

  {command} campaigns --base-url fake:
    list the campaigns of that service; see also mailboxes and fields
  {command} steps {campaign} --base-url fake:
    show the steps of a campaign with their statistics
  {command} audit --base-url fake:
    run the audit alone; --output audit.html writes a page for your browser,
    and --explain OA120 explains a rule
  {command} import your.csv --base-url fake:
    import a file of your own; --dry-run only checks it
  {command} serve
    serve the embedded service over HTTP, for your own code or curl

To use a real service, set OUTREACH_BASE_URL, OUTREACH_WORKSPACE and
OUTREACH_OWNER_KEY, or pass --base-url https://...
"""


@click.command()
@shared_options("as_json")
def demo(options: Options) -> int:
    """Import contacts and audit mailboxes on an embedded service. The demo needs no network and no setup."""
    with as_file(files("outreach_async.cli") / "data" / "contacts.csv") as path:
        return run_async(partial(_run_demo, options, path))


async def _run_demo(options: Options, path: Path) -> int:
    screen = Screen.of(as_json=options.as_json)
    job = ImportJob(file=CsvFile.open(path), campaign=CAMPAIGN)
    # The demo uses the embedded service only: it never contacts a real one, whatever options and variables are set.
    options = attrs.evolve(options, base_url=FAKE, workspaces=(), owner_key=None, headers={})
    async with open_client(options) as client:
        screen.print_line(f"Importing {path.name} into {CAMPAIGN} of {WORKSPACES[0]} on an embedded service", "bold")
        reports: list[BulkReport] = []
        code = await run_import(client, job, screen, _MAX_LISTED, lambda report, _failures: reports.append(report))
        if code == INTERRUPTED:  # pragma: no cover - run, but coverage loses track after a cancelled group
            screen.print_result({"import": reports[-1].to_dict()})
            return code
        _announce_audit(screen)  # pragma: no cover - run, but coverage loses track after a cancelled group
        audited = await audit(client, WORKSPACES, clock=clock_of(options))
    show_audit(screen, audited)
    screen.print_lines(_NEXT_STEPS.format(command=program_name(sys.argv[0]), campaign=CAMPAIGN))
    screen.print_result({"import": reports[-1].to_dict(), "audit": audited.to_dict()})
    return OK


def _announce_audit(screen: Screen) -> None:
    screen.print_line()
    screen.print_line(f"Auditing the mailboxes of {' and '.join(WORKSPACES)}", "bold")


def program_name(program: str) -> str:
    """Return the name under which this command was started, so that users can paste the suggested commands.

    Args:
        program: The `argv[0]` of the process.
    """
    path = Path(program)
    if path.name == "__main__.py":
        return "python -m outreach_async"
    return path.name if shutil.which(path.name) == program else program
