"""The command `demo`: two imports, an audit and a brief on the embedded service, in a few seconds."""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import attrs
import click

from outreach_async._cli._demo_contacts import change_contacts, demo_contacts
from outreach_async._cli._demo_world import CAMPAIGN, OWNER_KEY, WORKSPACES, create_demo_world
from outreach_async._cli.commands.auditing import show
from outreach_async._cli.commands.import_run import ImportJob, run_import
from outreach_async._cli.options import Options, shared_options
from outreach_async._cli.output import Screen
from outreach_async._cli.process import INTERRUPTED, OK, run_async
from outreach_async.audit import Report, audit
from outreach_async.audit.reports.brief import build_brief
from outreach_async.bulk import BulkReport
from outreach_async.client import OutreachClient
from outreach_async.fake import FakeService
from outreach_async.fake._transport import FakeTransport
from outreach_async.importer import open_file

_MAX_LISTED: Final = 8
_NO_DKIM: Final = "OA102"
_FIXED_DOMAIN: Final = "northwind-team.example"
_LISTED_DOMAIN: Final = "get-northwind.example"
_PAUSED_CAMPAIGN: Final = "camp_renewals"
_FILLED_CAMPAIGN: Final = "camp_dach"
_ADDED_CONTACTS: Final = 400
_STORY: Final = f"""\
Campaigns have sent e-mails; {_FIXED_DOMAIN} signs with DKIM;
{_LISTED_DOMAIN} is on blacklists; somebody has paused {_PAUSED_CAMPAIGN},
and has added {_ADDED_CONTACTS} contacts to {_FILLED_CAMPAIGN}.
"""
_NEXT_STEPS: Final = """
The demo ran on an embedded service. It used no network, and stored nothing.
Try next:

  {command} campaigns --base-url fake:
    list the campaigns of that service; see also mailboxes and fields
  {command} steps {campaign} --base-url fake:
    show the steps of a campaign with their statistics
  {command} audit --base-url fake:
    run the audit alone; --output audit.html writes a page for your browser,
    and --explain OA120 explains a rule
  {command} brief --base-url fake:
    show the brief alone; to run it every morning, add --since last.json
  {command} import your.csv --base-url fake:
    import a file of your own; --dry-run only checks it, and with --ledger,
    the same command sends only what changed since its last run
  {command} serve
    serve the embedded service over HTTP, for your own code or curl

To use a real service, set OUTREACH_BASE_URL, OUTREACH_WORKSPACE and
OUTREACH_OWNER_KEY, or pass --base-url https://...
"""


@click.command()
@shared_options("as_json")
def demo(options: Options) -> int:
    """Run imports, an audit and a brief against an embedded service. The demo needs no network and no setup."""
    with TemporaryDirectory() as folder:
        paths = Path(folder, "contacts.csv"), Path(folder, "next night.csv")
        paths[0].write_text(text := demo_contacts(), encoding="utf-8")
        paths[1].write_text(change_contacts(text), encoding="utf-8")
        return run_async(partial(_run_demo, options, *paths))


async def _run_demo(options: Options, path: Path, next_path: Path) -> int:
    screen = Screen.of(as_json=options.as_json, quiet=options.quiet)
    ledger = path.with_name("contacts.ledger")
    job = ImportJob(file=open_file(path), campaign=CAMPAIGN, duplicates="overwrite", ledger=ledger)
    # The demo never contacts a real service, regardless of the environment.
    world = create_demo_world()
    async with OutreachClient(transport=FakeTransport(world), owner_key=OWNER_KEY, workspace=WORKSPACES[0]) as client:
        screen.print_line(f"Importing {path.name} into {CAMPAIGN} of {WORKSPACES[0]} on an embedded service", "bold")
        reports: list[BulkReport] = []
        code = await run_import(client, job, screen, _MAX_LISTED, lambda report, _failures: reports.append(report))
        if code == INTERRUPTED:  # pragma: no cover - run, but coverage loses track after a cancelled group
            screen.print_result({"import": reports[0].to_dict()})
            return code
        _announce(screen, "The next night: the same list, with a few changes")  # pragma: no cover - as above
        second = attrs.evolve(job, file=open_file(next_path))  # pragma: no cover - as above
        await run_import(
            client, second, screen, 0, lambda report, _failures: reports.append(report)
        )  # pragma: no cover - as above
        _announce(screen, f"Auditing the mailboxes of {' and '.join(WORKSPACES)}")  # pragma: no cover - as above
        audited = await audit(client, WORKSPACES, campaigns=True, clock=lambda: world.now)
        show(screen, audited)
        _announce(screen, "Two days later")
        screen.print_lines(_STORY)
        await _simulate_two_days(client, world, audited)
        later = await audit(client, WORKSPACES, campaigns=True, clock=lambda: world.now)
    briefed = build_brief(later, audited)
    show(screen, briefed)
    screen.print_lines(_NEXT_STEPS.format(command=program_name(sys.argv[0]), campaign=CAMPAIGN))
    imports = {"import": reports[0].to_dict(), "second_import": reports[1].to_dict()}
    screen.print_result({**imports, "audit": audited.to_dict(), "brief": briefed.to_dict()})
    return OK


def _announce(screen: Screen, text: str) -> None:
    screen.print_line()
    screen.print_line(text, "bold")


async def _simulate_two_days(client: OutreachClient, world: FakeService, report: Report) -> None:
    """Advance the embedded service by two days. Campaigns send e-mails, and the events in `_STORY` happen."""
    for finding in report.findings:
        if finding.rule == _NO_DKIM and finding.domain == _FIXED_DOMAIN and finding.mailbox:
            world.set_mailbox(finding.mailbox, dkim=True)
    async for mailbox in client.mailboxes.list():
        if mailbox.email.endswith(f"@{_LISTED_DOMAIN}"):
            world.set_mailbox(mailbox.id, blacklists=3)
    world.advance(days=1)
    world.set_campaign(_PAUSED_CAMPAIGN, status="paused")
    world.add_contacts(WORKSPACES[1], _ADDED_CONTACTS, campaign=_FILLED_CAMPAIGN)
    world.advance(days=1)


def program_name(program: str) -> str:
    """Return the name under which this command was started, so that users can paste the suggested commands."""
    path = Path(program)
    if path.name == "__main__.py":
        return "python -m outreach_async"
    return path.name if shutil.which(path.name) == program else program
