"""The command `demo`: two imports, two audits and a brief on the embedded service, in a few seconds. The brief comes first."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeAlias

import attrs

from outreach_async._cli.auditing import show
from outreach_async._cli.demo_data import CAMPAIGN, OWNER_KEY, WORKSPACES, change_contacts, create_demo_world, demo_contacts
from outreach_async._cli.figures import list_outcomes, print_failed, print_report
from outreach_async._cli.importing import ImportRun, run_import
from outreach_async._cli.output import Screen
from outreach_async._cli.process import INTERRUPTED, OK, run_async
from outreach_async._cli.values import Options
from outreach_async.audit import Report, audit
from outreach_async.audit.reports.brief import Brief, build_brief, read_imports
from outreach_async.bulk import BulkReport, Exclusions
from outreach_async.client import OutreachClient
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.importer import FailedRows, ImportJob, open_file
from outreach_async.store import Store

_SHOWN_TASKS: Final = 1  # of those that are open, and of those that are resolved: the brief then fits a screen
_NO_DKIM: Final = "OA102"
_FIXED_DOMAIN: Final = "northwind-team.example"
_LISTED_DOMAIN: Final = "get-northwind.example"
_PAUSED_CAMPAIGN: Final = "camp_renewals"
_FILLED_CAMPAIGN: Final = "camp_dach"
_ADDED_CONTACTS: Final = 400
_COMPLAINER: Final = "ada@new-customer.example"
_SHARED_CONTACT: Final = "grace@new-customer.example"
_HOLD: Final = 90 * 86_400  # seconds
_CAN_LOCK: Final = find_spec("fcntl") is not None and hasattr(os, "link")  # as `store` decides
_NO_LEDGER: Final = "" if _CAN_LOCK else " without a ledger, which needs Linux or macOS,"
_STORY: Final = f"""\
Since the first audit, campaigns have sent e-mails, {_FIXED_DOMAIN}
signs with DKIM, {_LISTED_DOMAIN} is on blacklists, and somebody has
paused {_PAUSED_CAMPAIGN} and has added {_ADDED_CONTACTS} contacts to {_FILLED_CAMPAIGN}.
"""
_NEXT_STEPS: Final = """
Nothing left your machine, and nothing was stored. Try next, on that service:
  {command} brief --base-url fake: --history history.db
  {command} audit --base-url fake: --output audit.html
  {command} campaigns --base-url fake:
  {command} import your.csv --base-url fake: --dry-run
  {command} serve
For your service, set OUTREACH_BASE_URL, OUTREACH_WORKSPACE, OUTREACH_OWNER_KEY.
"""

_Import: TypeAlias = tuple[BulkReport, FailedRows]
"""The report of an import and its failed rows."""


def run_demo(options: Options) -> int:
    with TemporaryDirectory() as folder:
        paths = Path(folder, "contacts.csv"), Path(folder, "next night.csv")
        paths[0].write_text(text := demo_contacts(), encoding="utf-8")
        paths[1].write_text(change_contacts(text), encoding="utf-8")
        return run_async(partial(_import_and_audit, options, paths))


async def _import_and_audit(options: Options, paths: Sequence[Path]) -> int:
    screen = options.screen()
    imports: list[_Import] = []
    # The demo never contacts a real service, regardless of the environment.
    world = create_demo_world()
    async with OutreachClient(transport=FakeTransport(world), owner_key=OWNER_KEY, workspace=WORKSPACES[0]) as client:
        for path in paths:  # the files of two nights, with one ledger; only the progress is shown
            ledger = Store(path.with_name("contacts.ledger"), wall=lambda: world.now) if _CAN_LOCK else None
            upload = {"campaign": CAMPAIGN, "duplicates": "overwrite", "ledger": ledger}
            if imports:  # the second night  # pragma: no branch - coverage loses track, as below
                upload |= await _protect(client, ledger)
            run = ImportRun(job=ImportJob(file=open_file(path)), options=upload)
            silent = attrs.evolve(screen, as_json=True, console=None)
            code = await run_import(
                client, run, silent, lambda report, failed, _: imports.append((report, failed)), lists_rows=False
            )
            if code == INTERRUPTED:  # pragma: no cover - run, but coverage loses track after a cancelled group
                print_report(screen, imports[-1][0], None, None)
                screen.print_result(_to_dicts(imports))
                return INTERRUPTED
        audited = await audit(client, WORKSPACES, campaigns=True, clock=lambda: world.now)  # pragma: no cover - as above
        await _simulate_two_days(client, world, audited)  # pragma: no cover - as above
        later = await audit(client, WORKSPACES, campaigns=True, clock=lambda: world.now)  # pragma: no cover - as above
    ledgers = [ledger] if ledger else []  # pragma: no cover - as above
    briefed = build_brief(later, audited, imports=read_imports(ledgers))  # pragma: no cover - as above
    return _show(screen, imports, audited, briefed, verbose=options.verbose)  # pragma: no cover - as above


async def _protect(client: OutreachClient, ledger: Store | None) -> dict[str, Any]:
    """Return the options with which two of the new people get nothing: one is on a list, and another client writes to one."""
    options: dict[str, Any] = {"exclude": [Exclusions([_COMPLAINER], name="blocked")]}
    if ledger is not None:  # pragma: no branch - a system without locks has none
        other = attrs.evolve(ledger, location=ledger.path.with_name("eu.ledger"))
        upload = client.with_options(workspace=WORKSPACES[1]).contacts.create_many
        await upload([{"email": _SHARED_CONTACT}], ledger=other, changed="ignore")
        options |= {"hold": _HOLD, "held_by": {str(other.path): WORKSPACES[1]}}
    return options


def _to_dicts(imports: Sequence[_Import]) -> dict[str, Any]:
    return {name: report.to_dict() for name, (report, _) in zip(("import", "second_import"), imports, strict=False)}


def _show(screen: Screen, imports: Sequence[_Import], audited: Report, briefed: Brief, *, verbose: bool) -> int:
    """Print the brief, then the rest: whole, or in a few lines that fit on a screen."""
    _announce(screen, "The brief of a morning, two days later", _STORY)
    if verbose and not screen.is_silent:
        show(screen, briefed)
        titles = "The import of a list", f"The next night,{_NO_LEDGER.rstrip(',') or ' with its ledger'}"
        for title, (report, failed) in zip(titles, imports, strict=True):
            _announce(screen, f"{title}, into {CAMPAIGN} of {WORKSPACES[0]}")
            print_report(screen, report, None, None)
            print_failed(screen, failed, 0)
        _announce(screen, "The first audit")
        show(screen, audited)
    else:
        show(
            screen,
            attrs.evolve(briefed, tasks=briefed.tasks[:_SHOWN_TASKS], resolved=briefed.resolved[:_SHOWN_TASKS], imports=[]),
        )
        more = len(briefed.tasks) + len(briefed.resolved) - 2 * _SHOWN_TASKS
        _announce(screen, f"Before: two imports{_NO_LEDGER} and an audit (--verbose shows them, and {more} more tasks)")
        for title, (report, _) in zip(("first night: ", "next night:  "), imports, strict=True):
            held = f", {report.ledger.held} of them held" if report.ledger and report.ledger.held else ""
            screen.print_line(f"  {title}{list_outcomes(report.outcomes)}{held}")
    screen.print_lines(_NEXT_STEPS.format(command=program_name(sys.argv[0])))
    screen.print_result({**_to_dicts(imports), "audit": audited.to_dict(), "brief": briefed.to_dict()})
    return OK


def _announce(screen: Screen, title: str, text: str = "") -> None:
    screen.print_line()
    screen.print_line(title, "bold")
    screen.print_lines(text)


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
