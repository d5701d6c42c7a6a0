"""The command `demo`: what the library does, on the embedded service, in a few seconds."""

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
from outreach_async.cli.importing import Job, create
from outreach_async.cli.options import FAKE, Options, shared_options
from outreach_async.cli.running import run_async
from outreach_async.cli.screen import Screen
from outreach_async.cli.world import CAMPAIGN, WORKSPACES
from outreach_async.importer import CsvFile

_FEW: Final = 8
_NEXT: Final = """
This was an embedded service: no network, and nothing is kept. What to try next:

  {command} campaigns --base-url fake:
    lists what that service holds; mailboxes and fields do too
  {command} steps {campaign} --base-url fake:
    a campaign's steps and how their templates did
  {command} audit --base-url fake:
    the audit alone, exit code 1 if something is wrong; --output audit.html
    makes it a page for your browser, --explain OA120 says what a rule rests on
  {command} import your.csv --base-url fake:
    your own file; --dry-run only checks it
  {command} serve
    the same service on a port, for your own code, or curl

Against a real service, set OUTREACH_BASE_URL, OUTREACH_WORKSPACE and
OUTREACH_OWNER_KEY, or give --base-url https://...
"""


@click.command()
@shared_options
def demo(options: Options) -> int:
    """Import contacts into an embedded service and audit its mailboxes: no network, nothing to set up."""
    with as_file(files("outreach_async.cli") / "data" / "contacts.csv") as path:
        return run_async(partial(_demo, options, path))


async def _demo(options: Options, path: Path) -> int:
    screen = Screen.of(as_json=options.as_json)
    job = Job(file=CsvFile.open(path), campaign=CAMPAIGN)
    async with open_client(embedded(options)) as client:
        screen.say(f"Importing {path.name} into {CAMPAIGN} of {WORKSPACES[0]}, on an embedded service", "bold")
        figures: list[BulkReport] = []
        code = await create(client, job, screen, _FEW, figures.append)
        if code == INTERRUPTED:  # pragma: no cover - run, but coverage loses sight after a cancelled group
            screen.result({"import": figures[-1].to_dict()})
            return code
        _announce(screen)  # pragma: no cover - run, but coverage loses sight after a cancelled group
        audited = await audit(client, WORKSPACES, clock=clock_of(embedded(options)))
    show_audit(screen, audited)
    screen.say_lines(_NEXT.format(command=as_called(sys.argv[0]), campaign=CAMPAIGN))
    screen.result({"import": figures[-1].to_dict(), "audit": audited.to_dict()})
    return OK


def _announce(screen: Screen) -> None:
    screen.say()
    screen.say(f"Auditing the mailboxes of {' and '.join(WORKSPACES)}", "bold")


def as_called(program: str) -> str:
    """Return how to call this command again, so that what is suggested can be pasted.

    Args:
        program: What the process was started as, its `argv[0]`.
    """
    path = Path(program)
    if path.name == "__main__.py":
        return "python -m outreach_async"
    return path.name if shutil.which(path.name) == program else program


def embedded(options: Options) -> Options:
    """Return options for the embedded service, whatever others say of another one: the demo never touches it."""
    return attrs.evolve(options, base_url=FAKE, workspaces=(), owner_key=None, headers={})
