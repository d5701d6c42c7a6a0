"""The commands that print lists: `campaigns`, `mailboxes`, `steps` and `fields`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import attrs

from outreach_async._cli.connection import open_client, open_each
from outreach_async._cli.listing import ListColumns, Listing, ListOutput, read_cell
from outreach_async._cli.messages import format_moment
from outreach_async._cli.process import INCOMPLETE, OK, format_message, run_async
from outreach_async._cli.values import Options
from outreach_async.client import OutreachClient
from outreach_async.errors import OutreachError
from outreach_async.models import Step, Template
from outreach_async.pagination import Collected

T = TypeVar("T")

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
        return read_cell(step, name)
    # The prefix distinguishes a template's id and status from those of its step.
    return getattr(template, name.removeprefix("template_"), None)


_STEPS: Final = ListColumns(
    (*_STEP_COLUMNS, *_TEMPLATE_COLUMNS),
    ("order", "wait", "left_to_send", "already_sent", "test_letter", "sent", "opened", "clicked", "replied"),
    _read_step_cell,
)


def campaigns(options: Options, output: ListOutput) -> int:
    """List the campaigns of one or more workspaces."""
    return run_async(partial(_run_list, options, "campaigns", _CAMPAIGNS, output))


def mailboxes(options: Options, output: ListOutput) -> int:
    """List the mailboxes of one or more workspaces."""
    return run_async(partial(_run_list, options, "mailboxes", _MAILBOXES, output))


def steps(options: Options, campaign: str, output: ListOutput) -> int:
    """List the steps of a campaign with their statistics."""
    return run_async(partial(_run_steps, options, campaign, output))


def fields(options: Options, output: ListOutput) -> int:
    """List the contact fields of one or more workspaces."""
    return run_async(partial(_run_fields, options, output))


async def _run_list(options: Options, what: str, columns: ListColumns, output: ListOutput) -> int:
    listing = Listing.of(options, columns, output)

    async def read(client: OutreachClient) -> Collected[Any]:
        items: Collected[Any] = await getattr(client, what).list(undecodable="keep").collect()
        return items

    lists, failed = await _read_each(options, listing, read)
    for items in lists.values():
        for unread in items.undecodable:
            listing.screen.warn(f"{what}: cannot read {unread.id or 'an item without an id'}: {unread.error}")
        if items.missing:
            listing.screen.warn(f"the service reports {items.missing:,} more {what} than it listed")
    counts = {
        "count": sum(map(len, lists.values())),
        **{name: sum(getattr(items, name) for items in lists.values()) for name in ("total_found", "repeats", "missing")},
        "undecodable": sum(len(items.undecodable) for items in lists.values()),
    }
    _print_lists(listing, options, lists, counts, {"campaigns": "campaign", "mailboxes": "mailbox"}[what])
    return INCOMPLETE if counts["missing"] or counts["undecodable"] or failed else OK


async def _read_each(
    options: Options, listing: Listing, read: Callable[[OutreachClient], Awaitable[T]]
) -> tuple[dict[str, T], list[str]]:
    """Read the list of each workspace. Return the lists, and the workspaces that could not be read; if none could, raise."""
    found: dict[str, T] = {}
    errors: dict[str, OutreachError] = {}

    async def read_one(workspace: str, client: OutreachClient) -> None:
        try:
            found[workspace] = await read(client)
        except OutreachError as error:
            errors[workspace] = error

    async with open_each(options) as clients, anyio.create_task_group() as group:
        for workspace, client in clients.items():
            group.start_soon(read_one, workspace, client)
    for workspace, error in errors.items():
        if not found:
            raise error
        listing.screen.warn(f"{options.name_of(workspace)}: {format_message(error)}")
    return {workspace: found[workspace] for workspace in clients if workspace in found}, list(errors)


def _print_lists(
    listing: Listing, options: Options, lists: Mapping[str, Sequence[Any]], counts: Mapping[str, Any], noun: str
) -> None:
    """Print the items of all workspaces as one list, with a column for the workspace if there are several."""
    items = [item for several in lists.values() for item in several]
    data = [item.to_dict() for item in items]
    if len(options.workspaces) > 1:
        spaces = [workspace for workspace, several in lists.items() for _ in several]
        names = options.config.names
        data = [
            {"workspace": space, "workspace_name": names.get(space), **item} for space, item in zip(spaces, data, strict=True)
        ]
        listing = attrs.evolve(listing, spaces=tuple(map(options.name_of, spaces)))
    listing.print(items, {"data": data, **counts}, noun)


async def _run_steps(options: Options, campaign: str, output: ListOutput) -> int:
    listing = Listing.of(options, _STEPS, output)
    async with open_client(options) as client:
        result = await client.campaigns.steps(campaign)
    # One row for each template, and one row for each step without templates.
    rows: list[tuple[Step, Template | None]] = []
    for step in result.data:
        rows += [(step, template) for template in step.templates] or [(step, None)]
    ends = format_moment(result.days_left_date) or result.days_left_date
    about = f"time left: {result.days_left_display} (end: {ends})"
    listing.print(rows, {**result.to_dict(), "count": len(result.data)}, "step", about)
    return OK


async def _run_fields(options: Options, output: ListOutput) -> int:
    listing = Listing.of(options, _FIELDS, output)
    lists, failed = await _read_each(options, listing, lambda client: client.workspaces.fields())
    _print_lists(listing, options, lists, {"count": sum(map(len, lists.values()))}, "field")
    return INCOMPLETE if failed else OK
