"""The commands that print lists: `campaigns`, `mailboxes`, `steps` and `fields`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import anyio
import attrs
import click

from outreach_async._cli import files
from outreach_async._cli.connection import open_client, open_each
from outreach_async._cli.messages import count_noun, format_moment, format_period, to_printable
from outreach_async._cli.output import Screen
from outreach_async._cli.parameters import STDOUT
from outreach_async._cli.process import INCOMPLETE, OK, format_message, run_async
from outreach_async._cli.values import Options
from outreach_async._files.atomic import atomic_write
from outreach_async._files.spreadsheets import escape_formula
from outreach_async.client import OutreachClient
from outreach_async.errors import OutreachError
from outreach_async.models import Step, Template
from outreach_async.pagination import Collected

T = TypeVar("T")

_FORMATTED: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    "created_utc": ("created", format_moment),
    "created_at_utc": ("created_at", format_moment),
    "days_left_date_utc": ("days_left_date", format_moment),
    "wait": ("wait_time", lambda milliseconds: format_period(milliseconds / 1000)),
    "searchable": ("searchable", ", ".join),
}
"""Maps each formatted column to its source column and its formatting function."""
_SUFFIXES: Final = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".tsv": "table", ".txt": "table"}
"""The format of a file, by the suffix of its name."""
_SIGNS: Final = 4  # columns by which a file of JSON Lines is recognised


def _read_cell(item: Any, name: str) -> Any:
    source, form = _FORMATTED.get(name, (name, lambda value: value))
    return form(getattr(item, source))


@attrs.frozen
class ListColumns:
    """The columns of a list."""

    all: tuple[str, ...]
    brief: tuple[str, ...]
    read: Callable[[Any, str], Any] = _read_cell

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

    def tabulate(
        self, items: Sequence[Any], names: Sequence[str], spaces: Sequence[str] | None = None
    ) -> tuple[tuple[str, ...], list[list[Any]]]:
        """Return the header and the rows of a table, with a column for the workspaces of the items if they are given."""
        rows = [[self.read(item, name) for name in names] for item in items]
        if spaces is None:
            return tuple(names), rows
        return ("workspace", *names), [[space, *row] for space, row in zip(spaces, rows, strict=True)]


@attrs.frozen
class _Listing:
    """A list to print: where, in which format, with which columns and, if there are several, the workspace of each item."""

    screen: Screen
    columns: ListColumns
    names: tuple[str, ...]
    chosen: bool
    form: str
    path: Path | None
    spaces: tuple[str, ...] | None = None

    @classmethod
    def of(
        cls, options: Options, known: ListColumns, *, columns: str | None, form: str | None, output: Path | None, force: bool
    ) -> Self:
        """Check the options of a list, before any request is sent."""
        path = None if output == STDOUT else output
        if form is None and path is not None and path.suffix.lower() not in _SUFFIXES:
            suffixes = ", ".join(_SUFFIXES)
            raise click.UsageError(f"--output {path}: expected a name ending in one of {suffixes}; rename it, or pass --format.")
        form = form or ("table" if path is None else _SUFFIXES[path.suffix.lower()])
        if options.as_json and path is None and form in {"csv", "jsonl"}:
            raise click.UsageError(f"--format {form}: conflicts with --json; remove one of them, or add --output FILE.")
        screen = options.screen(as_json=form == "json" and path is None)
        if columns is not None and (form == "json" or (screen.as_json and path is None)):
            cause = "--json" if options.as_json else "the format json"
            raise click.UsageError(f"--columns: conflicts with {cause}, which prints every value; remove one of the options.")
        is_table = screen.console is not None and path is None and form == "table"
        names = known.choose(columns, is_terminal=is_table)
        files.require_writable(files.FileUse.of("--output", path, partial(_has_format, form, known)), force=force)
        return cls(screen, known, names, columns is not None, form, path)

    def print(self, rows: Sequence[Any], result: dict[str, Any], noun: str, about: str = "") -> None:
        """Print the rows, or write them to the file. `result` is the list as one JSON object, with its items in `data`."""
        screen, count = self.screen, count_noun(len(result["data"]), noun)
        if self.path is not None:
            with files.explain_write_errors("--output", self.path):
                atomic_write(self.path, self._render(rows, result))
            screen.print_line(f"{count} written to {self.path}")
        elif self.form in {"csv", "jsonl"}:
            sys.stdout.write(self._render(rows, result))
        else:
            screen.print_table(*self.columns.tabulate(rows, self.names, self.spaces))
            if hidden := [name for name in self.columns.all if name not in self.names]:
                shows = f"--columns {','.join(hidden[:2])} or --columns all shows them"
                screen.print_footer(f"{count_noun(len(hidden), 'more column')}: {', '.join(hidden)}; {shows}")
            screen.print_footer("; ".join(filter(None, (count, about))))
        screen.print_result(result)

    def _render(self, rows: Sequence[Any], result: dict[str, Any]) -> str:
        if self.form == "json":
            return f"{json.dumps(result)}\n"
        names, cells = self.columns.tabulate(rows, self.names, self.spaces)
        if self.form == "jsonl":
            items = [dict(zip(names, values, strict=True)) for values in cells] if self.chosen else result["data"]
            return "".join(f"{json.dumps(item)}\n" for item in items)
        if self.form == "table":
            return "".join("\t".join(map(to_printable, values)) + "\n" for values in (names, *cells))
        text = StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(names)
        # Unlike in a table, texts keep their line breaks.
        lines.writerows(
            [escape_formula(value if isinstance(value, str) else to_printable(value)) for value in row] for row in cells
        )
        return text.getvalue()


def _has_format(form: str, columns: ListColumns, path: Path) -> bool:
    """Return whether a file looks like a list with these columns: by its header, or by the keys of its first object."""
    known = {"workspace", *columns.all}
    with path.open(encoding="utf-8", errors="replace") as file:
        line = file.readline().rstrip("\r\n")
    if form in {"csv", "table"}:
        return set(line.split("," if form == "csv" else "\t")) <= known
    try:
        value = json.loads(line)
    except ValueError:
        return False
    keys = set(value) if isinstance(value, dict) else set()
    return {"data", "count"} <= keys if form == "json" else keys >= set(columns.all[:_SIGNS]) or set() < keys <= known


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
_FIELDS: Final = ListColumns(("code", "label", "searchable"), ("code", "label", "searchable"))

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


def campaigns(options: Options, **output: Any) -> int:
    """List the campaigns of one or more workspaces."""
    return run_async(partial(_run_list, options, "campaigns", _CAMPAIGNS, output))


def mailboxes(options: Options, **output: Any) -> int:
    """List the mailboxes of one or more workspaces."""
    return run_async(partial(_run_list, options, "mailboxes", _MAILBOXES, output))


def steps(options: Options, campaign: str, **output: Any) -> int:
    """List the steps of a campaign with their statistics."""
    return run_async(partial(_run_steps, options, campaign, output))


def fields(options: Options, **output: Any) -> int:
    """List the contact fields of one or more workspaces."""
    return run_async(partial(_run_fields, options, output))


async def _run_list(options: Options, what: str, columns: ListColumns, output: Mapping[str, Any]) -> int:
    listing = _Listing.of(options, columns, **output)

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
    options: Options, listing: _Listing, read: Callable[[OutreachClient], Awaitable[T]]
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
    listing: _Listing, options: Options, lists: Mapping[str, Sequence[Any]], counts: Mapping[str, Any], noun: str
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


async def _run_steps(options: Options, campaign: str, output: Mapping[str, Any]) -> int:
    listing = _Listing.of(options, _STEPS, **output)
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


async def _run_fields(options: Options, output: Mapping[str, Any]) -> int:
    listing = _Listing.of(options, _FIELDS, **output)
    lists, failed = await _read_each(options, listing, lambda client: client.workspaces.fields())
    _print_lists(listing, options, lists, {"count": sum(map(len, lists.values()))}, "field")
    return INCOMPLETE if failed else OK
