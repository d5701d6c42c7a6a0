"""The commands that print lists: `campaigns`, `mailboxes`, `steps` and `fields`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import click

from outreach_async.cli.connection import open_client
from outreach_async.cli.exits import INCOMPLETE, OK
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.output import Screen
from outreach_async.cli.process import run_async
from outreach_async.codec import to_wire
from outreach_async.models import Step, Template
from outreach_async.pagination import Collected
from outreach_async.validation import require_id

_CAMPAIGNS: Final = (
    "id",
    "status",
    "name",
    "steps",
    "contacts",
    "opens",
    "replies",
    "bounces",
    "days_left_display",
    "last_activity",
)
_CAMPAIGN_BRIEF: Final = ("id", "status", "name", "contacts", "opens", "replies", "days_left_display")
_MAILBOXES: Final = (
    *("id", "status", "email", "type", "campaigns", "daily_limit", "spf", "dkim", "dmarc", "blacklists", "sent_today"),
    *("sent_30days", "bounced_30days", "last_activity"),
)
_MAILBOX_BRIEF: Final = ("email", "status", "daily_limit", "sent_30days", "bounced_30days", "blacklists")
_STEP_COLUMNS: Final = ("order", "id", "wait_time", "left_to_send", "already_sent", "out_of")
_TEMPLATE_COLUMNS: Final = ("test_letter", "name", "sent", "opened", "clicked", "replied", "unsubscribed")
_STEP_BRIEF: Final = ("order", "left_to_send", "already_sent", "test_letter", "sent", "opened", "clicked", "replied")


@click.command()
@shared_options
def campaigns(options: Options) -> int:
    """List the campaigns of a workspace."""
    return run_async(partial(_run_list, options, "campaigns", _CAMPAIGNS, _CAMPAIGN_BRIEF))


@click.command()
@shared_options
def mailboxes(options: Options) -> int:
    """List the mailboxes of a workspace."""
    return run_async(partial(_run_list, options, "mailboxes", _MAILBOXES, _MAILBOX_BRIEF))


@click.command()
@click.argument("campaign")
@shared_options
def steps(options: Options, campaign: str) -> int:
    """List the steps of a campaign with their statistics."""
    require_id("CAMPAIGN", campaign, "campaign", "pass the id of a campaign, as printed by the command 'campaigns'")
    return run_async(partial(_run_steps, options, campaign))


@click.command()
@shared_options
def fields(options: Options) -> int:
    """List the contact fields of a workspace."""
    return run_async(partial(_run_fields, options))


def _print_items(
    screen: Screen, items: Iterable[Any], columns: Sequence[str], brief: Sequence[str], read: Callable[[Any, str], Any] = getattr
) -> None:
    """Print a table. On a terminal, whose width is limited, print only the columns in `brief`."""
    names = brief if screen.console else columns
    screen.print_table(names, ([read(item, name) for name in names] for item in items))


async def _run_list(options: Options, what: str, columns: Sequence[str], brief: Sequence[str]) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options) as client:
        items: Collected[Any] = await getattr(client, what).list(undecodable="keep").collect()
    _print_items(screen, items, columns, brief)
    for unread in items.undecodable:
        screen.warn(f"{what}: cannot read {unread.id or 'an item without an id'}: {unread.error}")
    if items.missing:
        screen.warn(f"the service reports {items.missing:,} more {what} than it listed")
    screen.print_footer(f"{len(items)} {what}")
    counts = {"count": len(items), "total_found": items.total_found, "repeats": items.repeats, "missing": items.missing}
    screen.print_result({"data": to_wire(list(items)), **counts, "undecodable": len(items.undecodable)})
    return INCOMPLETE if items.missing or items.undecodable else OK


async def _run_steps(options: Options, campaign: str) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options) as client:
        result = await client.campaigns.steps(campaign)
    # One line for each template, and one for a step without templates.
    lines: list[tuple[Step, Template | None]] = []
    for step in result.data:
        lines += [(step, template) for template in step.templates] or [(step, None)]
    _print_items(screen, lines, (*_STEP_COLUMNS, *_TEMPLATE_COLUMNS), _STEP_BRIEF, _read_step_cell)
    screen.print_footer(f"{len(result.data)} steps, {result.days_left_display} ({result.days_left_date})")
    screen.print_result({**to_wire(result), "count": len(result.data)})
    return OK


def _read_step_cell(line: tuple[Step, Template | None], name: str) -> Any:
    step, template = line
    return getattr(step, name) if name in _STEP_COLUMNS else getattr(template, name, None)


async def _run_fields(options: Options) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options) as client:
        workspace_fields = await client.workspaces.fields()
    rows = [(field.code, field.label, ", ".join(field.searchable)) for field in workspace_fields]
    screen.print_table(("code", "label", "searchable"), rows)
    screen.print_footer(f"{len(rows)} fields")
    screen.print_result({"data": to_wire(workspace_fields), "count": len(rows)})
    return OK
