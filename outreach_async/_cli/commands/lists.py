"""The commands that print lists: `campaigns`, `mailboxes`, `steps` and `fields`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Final

import attrs
import click

from outreach_async._cli.connection import open_client
from outreach_async._cli.messages import count_noun, format_moment, format_period
from outreach_async._cli.options import CONNECTION, READING, IdType, Options, shared_options
from outreach_async._cli.output import Screen
from outreach_async._cli.process import INCOMPLETE, OK, run_async
from outreach_async._service.codec import to_wire
from outreach_async.models import Step, Template
from outreach_async.pagination import Collected

ReadCell = Callable[[Any, str], Any]
"""A function that takes an item and the name of a column, and returns the value to print."""

_FORMATTED: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    "created_utc": ("created", format_moment),
    "created_at_utc": ("created_at", format_moment),
    "days_left_date_utc": ("days_left_date", format_moment),
    "wait": ("wait_time", lambda milliseconds: format_period(milliseconds / 1000)),
}
"""Maps each formatted column to its source column and its formatting function."""


def _read_cell(item: Any, name: str) -> Any:
    if name in _FORMATTED:
        source, form = _FORMATTED[name]
        return form(getattr(item, source))
    return getattr(item, name)


@attrs.frozen
class ListColumns:
    """The columns of a list."""

    all: tuple[str, ...]
    brief: tuple[str, ...]
    read: ReadCell = _read_cell

    def choose(self, text: str | None, *, is_terminal: bool) -> tuple[str, ...]:
        """Return the columns to print."""
        if text is None:
            return self.brief if is_terminal else self.all
        if text == "all":
            return self.all
        names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",")))
        for name in names:
            if name not in self.all:
                near = get_close_matches(name, self.all, n=1)
                meant = f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(self.all)}."
                raise click.UsageError(f"--columns: unknown column {name!r}; {meant}")
        return names

    def print(self, screen: Screen, items: Sequence[Any], names: Sequence[str]) -> None:
        """Print a table of the given columns and, on a terminal, the names of the other columns."""
        screen.print_table(names, [[self.read(item, name) for name in names] for item in items])
        if hidden := [name for name in self.all if name not in names]:
            option = f"--columns {','.join(hidden[:2])}"
            screen.print_footer(
                f"{count_noun(len(hidden), 'more column')}: {', '.join(hidden)}; {option} or --columns all shows them"
            )


_CAMPAIGNS: Final = ListColumns(
    (
        *("id", "status", "name", "steps", "contacts", "opens", "replies", "bounces", "days_left_display", "last_activity"),
        *("days_left", "days_left_date", "days_left_date_utc", "created", "created_utc", "initials", "interested"),
        *("opens_num", "replies_num", "bounces_num", "interested_num"),
    ),
    ("id", "status", "name", "contacts", "opens", "replies", "days_left_display"),
)
_MAILBOXES: Final = ListColumns(
    (
        *("id", "status", "email", "type", "campaigns", "daily_limit", "spf", "dkim", "dmarc", "blacklists", "sent_today"),
        *("sent_30days", "bounced_30days", "last_activity", "sender_name", "age", "opened_14days", "sent_90days"),
        *("avg_open_rate", "avg_click_rate", "created", "created_at", "created_at_utc", "domain_ip", "server_ip"),
    ),
    ("email", "status", "sent_30days", "bounced_30days", "blacklists"),
)
_FIELDS: Final = ListColumns(
    ("code", "label", "searchable"),
    ("code", "label", "searchable"),
    lambda field, name: ", ".join(field.searchable) if name == "searchable" else getattr(field, name),
)

_STEP_COLUMNS: Final = ("order", "id", "status", "type", "wait_time", "wait", "left_to_send", "already_sent", "out_of")
_TEMPLATE_COLUMNS: Final = (
    *("test_letter", "name", "sent", "opened", "clicked", "replied", "unsubscribed", "opened_num", "clicked_num"),
    *("replied_num", "unsubscribed_num", "template_id", "template_status", "new_thread", "subject", "body_text"),
)


def _read_step_cell(row: tuple[Step, Template | None], name: str) -> Any:
    step, template = row
    if name in _STEP_COLUMNS:
        return _read_cell(step, name)
    # The prefix distinguishes a template's id and status from those of its step.
    return getattr(template, name.removeprefix("template_"), None)


_STEPS: Final = ListColumns(
    (*_STEP_COLUMNS, *_TEMPLATE_COLUMNS),
    ("order", "wait", "left_to_send", "already_sent", "test_letter", "sent", "opened", "clicked", "replied"),
    _read_step_cell,
)

_columns_option: Final = click.option(
    "--columns", metavar="NAMES|all", help="Columns to print, separated by commas.  [default: a few on a terminal, all otherwise]"
)


@click.command()
@_columns_option
@shared_options(*READING)
def campaigns(options: Options, columns: str | None) -> int:
    """List the campaigns of a workspace."""
    return run_async(partial(_run_list, options, "campaigns", _CAMPAIGNS, columns))


@click.command()
@_columns_option
@shared_options(*READING)
def mailboxes(options: Options, columns: str | None) -> int:
    """List the mailboxes of a workspace."""
    return run_async(partial(_run_list, options, "mailboxes", _MAILBOXES, columns))


@click.command()
@click.argument("campaign", type=IdType("campaign"))
@_columns_option
@shared_options(*CONNECTION, "as_json")
def steps(options: Options, campaign: str, columns: str | None) -> int:
    """List the steps of a campaign with their statistics.

    CAMPAIGN is the id of a campaign, as printed by the command 'campaigns'.
    """
    return run_async(partial(_run_steps, options, campaign, columns))


@click.command()
@_columns_option
@shared_options(*READING)
def fields(options: Options, columns: str | None) -> int:
    """List the contact fields of a workspace."""
    return run_async(partial(_run_fields, options, columns))


def _open_screen(options: Options, columns: ListColumns, chosen: str | None) -> tuple[Screen, tuple[str, ...]]:
    screen = Screen.of(as_json=options.as_json)
    if chosen is not None and options.as_json:
        raise click.UsageError("--columns: conflicts with --json, which prints every value; remove one of the options.")
    return screen, columns.choose(chosen, is_terminal=screen.console is not None)


async def _run_list(options: Options, what: str, columns: ListColumns, chosen: str | None) -> int:
    screen, names = _open_screen(options, columns, chosen)
    async with open_client(options) as client:
        items: Collected[Any] = await getattr(client, what).list(undecodable="keep").collect()
    columns.print(screen, items, names)
    for unread in items.undecodable:
        screen.warn(f"{what}: cannot read {unread.id or 'an item without an id'}: {unread.error}")
    if items.missing:
        screen.warn(f"the service reports {items.missing:,} more {what} than it listed")
    screen.print_footer(count_noun(len(items), {"campaigns": "campaign", "mailboxes": "mailbox"}[what]))
    counts = {"count": len(items), "total_found": items.total_found, "repeats": items.repeats, "missing": items.missing}
    screen.print_result({"data": to_wire(list(items)), **counts, "undecodable": len(items.undecodable)})
    return INCOMPLETE if items.missing or items.undecodable else OK


async def _run_steps(options: Options, campaign: str, chosen: str | None) -> int:
    screen, names = _open_screen(options, _STEPS, chosen)
    async with open_client(options) as client:
        result = await client.campaigns.steps(campaign)
    # One row for each template, and one row for each step without templates.
    rows: list[tuple[Step, Template | None]] = []
    for step in result.data:
        rows += [(step, template) for template in step.templates] or [(step, None)]
    _STEPS.print(screen, rows, names)
    ends = format_moment(result.days_left_date) or result.days_left_date
    screen.print_footer(f"{count_noun(len(result.data), 'step')}; time left: {result.days_left_display} (end: {ends})")
    screen.print_result({**to_wire(result), "count": len(result.data)})
    return OK


async def _run_fields(options: Options, chosen: str | None) -> int:
    screen, names = _open_screen(options, _FIELDS, chosen)
    async with open_client(options) as client:
        workspace_fields = await client.workspaces.fields()
    _FIELDS.print(screen, workspace_fields, names)
    screen.print_footer(count_noun(len(workspace_fields), "field"))
    screen.print_result({"data": to_wire(workspace_fields), "count": len(workspace_fields)})
    return OK
