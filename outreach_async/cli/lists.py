"""The commands that print lists: `campaigns`, `mailboxes`, `steps` and `fields`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final, TypeAlias

import attrs
import click

from outreach_async.cli.connection import open_client
from outreach_async.cli.exits import INCOMPLETE, OK
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.output import Screen
from outreach_async.cli.process import run_async
from outreach_async.client import OutreachClient
from outreach_async.codec import to_wire
from outreach_async.models import Campaign, CampaignSteps, Mailbox, Step, Template, WorkspaceField
from outreach_async.pagination import Collected, Pager
from outreach_async.validation import require_id

_Columns: TypeAlias = Mapping[str, Callable[[Any], Any]]


@attrs.frozen
class _StepLine:
    """A template with its step, or a step without templates."""

    step: Step
    template: Template | None


@attrs.frozen
class _View:
    """The columns of a list.

    Attributes:
        columns: Reads the value of each column from an item. A pipe gets every column.
        brief: Columns to print on a terminal, which has less room.
    """

    columns: _Columns
    brief: tuple[str, ...]

    def show(self, screen: Screen, items: Iterable[Any]) -> None:
        """Print the items."""
        shown = {name: self.columns[name] for name in self.brief} if screen.console else self.columns
        screen.table(tuple(shown), ([read(item) for read in shown.values()] for item in items))


def _names(*names: str) -> _Columns:
    return {name: attrgetter(name) for name in names}


def _of_step(*names: str) -> _Columns:
    return {name: attrgetter(f"step.{name}") for name in names}


def _of_template(*names: str) -> _Columns:
    return {name: partial(_template_value, name) for name in names}


def _template_value(name: str, line: _StepLine) -> Any:
    return None if line.template is None else getattr(line.template, name)


_CAMPAIGNS: Final = _View(
    _names("id", "status", "name", "steps", "contacts", "opens", "replies", "bounces", "days_left_display", "last_activity"),
    ("id", "status", "name", "contacts", "opens", "replies", "days_left_display"),
)
_MAILBOXES: Final = _View(
    _names(
        *("id", "status", "email", "type", "campaigns", "daily_limit", "spf", "dkim", "dmarc", "blacklists", "sent_today"),
        *("sent_30days", "bounced_30days", "last_activity"),
    ),
    ("email", "status", "daily_limit", "sent_30days", "bounced_30days", "blacklists"),
)
_FIELDS: Final = _View(
    {**_names("code", "label"), "searchable": lambda field: ", ".join(field.searchable)}, ("code", "label", "searchable")
)
_STEPS: Final = _View(
    {
        **_of_step("order", "id", "wait_time", "left_to_send", "already_sent", "out_of"),
        **_of_template("test_letter", "name", "sent", "opened", "clicked", "replied", "unsubscribed"),
    },
    ("order", "left_to_send", "already_sent", "test_letter", "sent", "opened", "clicked", "replied"),
)


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
    """List the steps of a campaign with their statistics."""
    require_id("CAMPAIGN", campaign, "campaign", "pass the id of a campaign, as the command 'campaigns' prints it")
    return run_async(partial(_steps, options, campaign))


@click.command()
@shared_options
def fields(options: Options) -> int:
    """List the contact fields of a workspace."""
    return run_async(partial(_fields, options))


async def _list(
    options: Options,
    pager: Callable[[OutreachClient], Pager[Campaign] | Pager[Mailbox]],
    view: _View,
    what: str,
) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options) as client:
        items: Collected[Any] = await pager(client).collect()
    view.show(screen, items)
    for unread in items.undecodable:
        screen.warn(f"{what}: cannot read {unread.id or 'an item without an id'}: {unread.error}")
    if items.missing:
        screen.warn(f"the service reports {items.missing:,} more {what} than it listed")
    screen.footer(f"{len(items)} {what}")
    counts = {"count": len(items), "total_found": items.total_found, "repeats": items.repeats, "missing": items.missing}
    screen.result({"data": to_wire(list(items)), **counts, "undecodable": len(items.undecodable)})
    return INCOMPLETE if items.missing or items.undecodable else OK


async def _steps(options: Options, campaign: str) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options) as client:
        found = await client.campaigns.steps(campaign)
    _STEPS.show(screen, _lines(found))
    screen.footer(f"{len(found.data)} steps, {found.days_left_display} ({found.days_left_date})")
    screen.result({**to_wire(found), "count": len(found.data)})
    return OK


def _lines(found: CampaignSteps) -> Iterator[_StepLine]:
    for step in found.data:
        templates: list[Template | None] = [*step.templates]
        yield from (_StepLine(step, template) for template in templates or [None])


async def _fields(options: Options) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options) as client:
        found: list[WorkspaceField] = await client.workspaces.fields()
    _FIELDS.show(screen, found)
    screen.footer(f"{len(found)} fields")
    screen.result({"data": to_wire(found), "count": len(found)})
    return OK
