"""The commands that show lists: `campaigns`, `mailboxes`, `steps` and `fields`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeAlias

import click

from outreach_async.cli.connection import open_client
from outreach_async.cli.exits import INCOMPLETE, OK
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.running import run_async
from outreach_async.cli.screen import Screen
from outreach_async.client import OutreachClient
from outreach_async.converters import to_wire
from outreach_async.models import Campaign, CampaignSteps, Mailbox, WorkspaceField
from outreach_async.pages import Collected, Pager

_Columns: TypeAlias = Mapping[str, Callable[[Any], Any]]


def _names(*names: str) -> _Columns:
    return {name: attrgetter(name) for name in names}


_CAMPAIGNS: Final = _names(
    "id", "status", "name", "steps", "contacts", "opens", "replies", "bounces", "days_left_display", "last_activity"
)
_MAILBOXES: Final = _names(
    *("id", "status", "email", "type", "campaigns", "daily_limit", "spf", "dkim", "dmarc", "blacklists", "sent_today"),
    *("sent_30days", "bounced_30days", "last_activity"),
)
_FIELDS: Final = {**_names("code", "label"), "searchable": lambda field: ", ".join(field.searchable)}
_STEPS: Final = ("order", "step", "wait_time", "left_to_send", "already_sent", "out_of")
_TEMPLATES: Final = ("test_letter", "name", "sent", "opened", "clicked", "replied", "unsubscribed")


@click.command()
@shared_options
def campaigns(options: Options) -> int:
    """List the campaigns of a workspace."""
    return run_async(partial(_list, options, lambda client: client.campaigns.list(undecodable="keep"), _CAMPAIGNS, "campaigns"))


@click.command()
@shared_options
def mailboxes(options: Options) -> int:
    """List the mailboxes of a workspace."""
    return run_async(partial(_list, options, lambda client: client.mailboxes.list(undecodable="keep"), _MAILBOXES, "mailboxes"))


@click.command()
@click.argument("campaign")
@shared_options
def steps(options: Options, campaign: str) -> int:
    """List the steps of a campaign and how their templates did."""
    return run_async(partial(_steps, options, campaign))


@click.command()
@shared_options
def fields(options: Options) -> int:
    """List the fields that contacts of a workspace can have."""
    return run_async(partial(_fields, options))


async def _list(
    options: Options,
    pager: Callable[[OutreachClient], Pager[Campaign] | Pager[Mailbox]],
    columns: _Columns,
    what: str,
) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options) as client:
        items: Collected[Any] = await pager(client).collect()
    _table(screen, columns, items)
    for unread in items.undecodable:
        screen.warn(f"{what}: {unread.id or 'an item without id'} cannot be read: {unread.error}")
    if items.missing:
        screen.warn(f"{what}: the service counts {items.total_found}, {items.missing} of them are on no page")
    screen.footer(f"{len(items)} {what}")
    counts = {"count": len(items), "total_found": items.total_found, "repeats": items.repeats, "missing": items.missing}
    screen.result({"data": to_wire(list(items)), **counts, "undecodable": len(items.undecodable)})
    return INCOMPLETE if items.missing or items.undecodable else OK


async def _steps(options: Options, campaign: str) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options) as client:
        found = await client.campaigns.steps(campaign)
    screen.table((*_STEPS, *_TEMPLATES), _step_rows(found))
    screen.footer(f"{len(found.data)} steps, {found.days_left_display} ({found.days_left_date})")
    screen.result({**to_wire(found), "count": len(found.data)})
    return OK


def _step_rows(found: CampaignSteps) -> Iterator[list[Any]]:
    """Yield a row for each template, and one for a step that has none."""
    for step in found.data:
        own = [step.order, step.id, step.wait_time, step.left_to_send, step.already_sent, step.out_of]
        for template in step.templates:
            yield [*own, *(getattr(template, name) for name in _TEMPLATES)]
        if not step.templates:
            yield [*own, *(None for _ in _TEMPLATES)]


async def _fields(options: Options) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options) as client:
        found: list[WorkspaceField] = await client.workspaces.fields()
    _table(screen, _FIELDS, found)
    screen.footer(f"{len(found)} fields")
    screen.result({"data": to_wire(found), "count": len(found)})
    return OK


def _table(screen: Screen, columns: _Columns, items: Iterable[Any]) -> None:
    screen.table(tuple(columns), ([read(item) for read in columns.values()] for item in items))
