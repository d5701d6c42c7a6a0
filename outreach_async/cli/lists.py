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
class _StepRow:
    """A template with its step, or a step without templates."""

    step: Step
    template: Template | None


@attrs.frozen
class _ListView:
    """The columns of a list.

    Attributes:
        columns: Reads the value of each column from an item. A pipe gets every column.
        brief: Columns to print on a terminal, which has less room.
    """

    columns: _Columns
    brief: tuple[str, ...]

    def print_items(self, screen: Screen, items: Iterable[Any]) -> None:
        """Print the items."""
        shown = {name: self.columns[name] for name in self.brief} if screen.console else self.columns
        screen.print_table(tuple(shown), ([read(item) for read in shown.values()] for item in items))


def _attribute_columns(*names: str) -> _Columns:
    return {name: attrgetter(name) for name in names}


def _step_columns(*names: str) -> _Columns:
    return {name: attrgetter(f"step.{name}") for name in names}


def _template_columns(*names: str) -> _Columns:
    return {name: partial(_read_template_value, name) for name in names}


def _read_template_value(name: str, line: _StepRow) -> Any:
    return None if line.template is None else getattr(line.template, name)


_CAMPAIGNS: Final = _ListView(
    _attribute_columns(
        "id", "status", "name", "steps", "contacts", "opens", "replies", "bounces", "days_left_display", "last_activity"
    ),
    ("id", "status", "name", "contacts", "opens", "replies", "days_left_display"),
)
_MAILBOXES: Final = _ListView(
    _attribute_columns(
        *("id", "status", "email", "type", "campaigns", "daily_limit", "spf", "dkim", "dmarc", "blacklists", "sent_today"),
        *("sent_30days", "bounced_30days", "last_activity"),
    ),
    ("email", "status", "daily_limit", "sent_30days", "bounced_30days", "blacklists"),
)
_FIELDS: Final = _ListView(
    {**_attribute_columns("code", "label"), "searchable": lambda field: ", ".join(field.searchable)},
    ("code", "label", "searchable"),
)
_STEPS: Final = _ListView(
    {
        **_step_columns("order", "id", "wait_time", "left_to_send", "already_sent", "out_of"),
        **_template_columns("test_letter", "name", "sent", "opened", "clicked", "replied", "unsubscribed"),
    },
    ("order", "left_to_send", "already_sent", "test_letter", "sent", "opened", "clicked", "replied"),
)


@click.command()
@shared_options
def campaigns(options: Options) -> int:
    """List the campaigns of a workspace."""
    return run_async(
        partial(_run_list, options, lambda client: client.campaigns.list(undecodable="keep"), _CAMPAIGNS, "campaigns")
    )


@click.command()
@shared_options
def mailboxes(options: Options) -> int:
    """List the mailboxes of a workspace."""
    return run_async(
        partial(_run_list, options, lambda client: client.mailboxes.list(undecodable="keep"), _MAILBOXES, "mailboxes")
    )


@click.command()
@click.argument("campaign")
@shared_options
def steps(options: Options, campaign: str) -> int:
    """List the steps of a campaign with their statistics."""
    require_id("CAMPAIGN", campaign, "campaign", "pass the id of a campaign, as the command 'campaigns' prints it")
    return run_async(partial(_run_steps, options, campaign))


@click.command()
@shared_options
def fields(options: Options) -> int:
    """List the contact fields of a workspace."""
    return run_async(partial(_run_fields, options))


async def _run_list(
    options: Options,
    pager: Callable[[OutreachClient], Pager[Campaign] | Pager[Mailbox]],
    view: _ListView,
    what: str,
) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options) as client:
        items: Collected[Any] = await pager(client).collect()
    view.print_items(screen, items)
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
        found = await client.campaigns.steps(campaign)
    _STEPS.print_items(screen, _build_step_rows(found))
    screen.print_footer(f"{len(found.data)} steps, {found.days_left_display} ({found.days_left_date})")
    screen.print_result({**to_wire(found), "count": len(found.data)})
    return OK


def _build_step_rows(found: CampaignSteps) -> Iterator[_StepRow]:
    for step in found.data:
        templates: list[Template | None] = [*step.templates]
        yield from (_StepRow(step, template) for template in templates or [None])


async def _run_fields(options: Options) -> int:
    screen = Screen.of(as_json=options.as_json)
    async with open_client(options) as client:
        found: list[WorkspaceField] = await client.workspaces.fields()
    _FIELDS.print_items(screen, found)
    screen.print_footer(f"{len(found)} fields")
    screen.print_result({"data": to_wire(found), "count": len(found)})
    return OK
