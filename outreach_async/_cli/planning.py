"""What the command `plan` does: read workspaces, and print when their campaigns end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from outreach_async._cli.auditing import open_history, past_readings, run_audit
from outreach_async._cli.connection import workspaces_of
from outreach_async._cli.process import INCOMPLETE, NOT_ALLOWED, OK
from outreach_async.audit.history import Readings
from outreach_async.audit.plan import WorkspacePlan, build_plan, describe_held, describe_unused
from outreach_async.audit.reports.brief import workspace_label
from outreach_async.errors import InvalidRequest

if TYPE_CHECKING:
    from outreach_async._cli.settings import PlanSettings
    from outreach_async._cli.values import Options

_CONTACTS: Final = re.compile(r"(?:(camp_[^=]+)=)?\+?(0*[1-9][0-9]{0,8})", re.ASCII)


async def plan(options: Options, settings: PlanSettings) -> int:
    pauses, added = settings["pauses"], settings["contacts"]
    flags = {"--add-mailboxes": settings["add_mailboxes"], "--pause": pauses, "--contacts": added}
    flag, count = next((flag for flag, value in flags.items() if value), None), len(workspaces_of(options))
    if flag and count > 1:
        raise click.UsageError(f"{flag}: expected one workspace, got {count:,}; name it with --workspace.")
    screen, readings, store = options.screen(), Readings(), open_history(options, settings["history"])
    report = await run_audit(options, screen, None, campaigns=True, readings=readings, deadline=settings["deadline"])
    build = partial(build_plan, readings, at=report.at, days=settings["days"], past=past_readings(store, report))
    try:
        plans = [build(workspace) for workspace in report.workspaces if workspace not in report.unreadable]
        base = plans[0] if flag and plans else None
        if base:
            contacts = _read_contacts(added, base)
            plans = [build(base.workspace, add_mailboxes=settings["add_mailboxes"], pause=pauses, contacts=contacts)]
    except InvalidRequest as error:
        field, colon, text = str(error).partition(":")
        raise click.UsageError(f"--{field.replace('_', '-')}{colon}{text}.") from error
    for each in plans:
        _print(each, workspace_label(each.workspace, report.names), options, base)
    for workspace in report.unreadable:
        reason = next(finding.message for finding in report.findings if finding.workspace == workspace)
        screen.warn(f"{workspace_label(workspace, report.names)} was not planned: {reason}")
    screen.print_result({"plans": [each.to_dict() for each in plans], "without": base.to_dict() if base else None})
    return NOT_ALLOWED if report.denied else INCOMPLETE if report.unreadable else OK


def _read_contacts(texts: Sequence[str], base: WorkspacePlan) -> dict[str, int]:
    contacts: dict[str, int] = {}
    live = [each.id for each in base.campaigns if not each.reason]
    for text in texts:
        if (found := _CONTACTS.fullmatch(text)) is None:
            raise click.UsageError(f"--contacts: expected a number such as +2000 or camp_1=+2000, got {text!r}.")
        if found[1] is None and len(live) != 1:
            names = ", ".join(live[:3]) or "none"
            raise click.UsageError(f"--contacts: expected a campaign, because {len(live):,} send ({names}); pass ID={text}.")
        id_ = found[1] or live[0]
        contacts[id_] = contacts.get(id_, 0) + int(found[2])
    return contacts


def _print(found: WorkspacePlan, name: str, options: Options, base: WorkspacePlan | None) -> None:
    screen = options.screen()
    screen.print_line(f"Plan of {name}", "bold")
    before = {each.id: each.ends for each in base.campaigns} if base else {}
    columns = ("campaign", "ends", *(["without"] if base else []), "likely", "limited_by")
    rows = [
        (each.name, each.ends, *([before.get(each.id, "all sent")] if base else []), each.likely or "-", each.limit or "-")
        for each in found.campaigns
    ]
    if rows:
        screen.print_table(columns, rows)
    else:
        screen.print_line("No campaign has e-mails left to send.")
    for text in filter(None, (describe_unused([found]), describe_held([found]), found.assumptions)):
        screen.print_line(text)
