"""The commands that print lists: `campaigns`, `mailboxes`, `steps` and `fields`."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from difflib import get_close_matches
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import anyio
import attrs
import click

from outreach_async._cli import files
from outreach_async._cli.connection import open_client, open_each
from outreach_async._cli.messages import format_moment, format_period, to_printable
from outreach_async._cli.options import STDOUT
from outreach_async._cli.output import Screen
from outreach_async._cli.process import INCOMPLETE, OK, format_message, run_async
from outreach_async._cli.values import Options
from outreach_async._plumbing import atomic_write, escape_formula
from outreach_async.client import OutreachClient
from outreach_async.errors import OutreachError, format_count
from outreach_async.models import Step, Template
from outreach_async.pagination import Collected

if TYPE_CHECKING:
    from outreach_async._cli.settings import ListSettings

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
    if isinstance(item, tuple):  # a step, and one of its templates
        item, template = item
        if name not in _STEP_COLUMNS:  # the prefix distinguishes a template's id and status from those of its step
            return getattr(template, name.removeprefix("template_"), None)
    source, form = _FORMATTED.get(name, (name, lambda value: value))
    return form(getattr(item, source))


@attrs.frozen
class ListColumns:
    """All columns of a list, and those that a terminal shows by default."""

    all: tuple[str, ...]
    brief: tuple[str, ...]

    def choose(self, text: str | None, *, is_terminal: bool) -> tuple[str, ...]:
        if text is None or text == "all":
            return self.brief if is_terminal and text is None else self.all
        names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",")))
        for name in names:
            if name not in self.all:
                near = get_close_matches(name, self.all, n=1, cutoff=0.7)
                meant = f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(self.all)}."
                raise click.UsageError(f"--columns: unknown column {name!r}; {meant}")
        return names


@attrs.frozen
class _Listing:
    options: Options
    screen: Screen
    columns: ListColumns
    names: tuple[str, ...]
    chosen: bool
    form: str
    path: Path | None

    @classmethod
    def of(cls, options: Options, known: ListColumns, settings: ListSettings) -> Self:
        """Check the options of a list, before any request is sent."""
        columns: str | None = settings["columns"]
        form: str | None = settings["form"]
        path = None if settings["output"] == STDOUT else settings["output"]
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
        names = known.choose(columns, is_terminal=screen.console is not None and path is None and form == "table")
        files.require_writable(files.FileUse.of("--output", path, partial(_has_format, form, known)), force=settings["force"])
        return cls(options, screen, known, names, columns is not None, form, path)

    def print(
        self, items: Sequence[Any], result: dict[str, Any], noun: str, about: str = "", spaces: Sequence[str] | None = None
    ) -> None:
        """Print the items, or write them to the file, with the workspace of each item if there are several.

        `result` is the list as one JSON object, with its items in `data`.
        """
        screen, count = self.screen, format_count(len(result["data"]), noun)
        names, rows = self.names, [[_read_cell(item, name) for name in self.names] for item in items]
        if spaces is not None:
            names, rows = ("workspace", *names), [[space, *row] for space, row in zip(spaces, rows, strict=True)]
        if self.path is not None:
            with files.explain_write_errors("--output", self.path):
                atomic_write(self.path, self._render(names, rows, result))
            screen.print_line(f"{count} written to {self.path}")
        elif self.form in {"csv", "jsonl"}:
            sys.stdout.write(self._render(names, rows, result))
        else:
            screen.print_table(names, rows)
            if hidden := [name for name in self.columns.all if name not in names]:
                shows = f"--columns {','.join(hidden[:2])} or --columns all shows them"
                screen.print_footer(f"{format_count(len(hidden), 'more column')}: {', '.join(hidden)}; {shows}")
            screen.print_footer("; ".join(filter(None, (count, about))))
        screen.print_result(result)

    def _render(self, names: Sequence[str], rows: Sequence[Sequence[Any]], result: dict[str, Any]) -> str:
        if self.form == "json":
            return f"{json.dumps(result)}\n"
        if self.form == "jsonl":
            items = [dict(zip(names, values, strict=True)) for values in rows] if self.chosen else result["data"]
            return "".join(f"{json.dumps(item)}\n" for item in items)
        if self.form == "table":
            return "".join("\t".join(map(to_printable, values)) + "\n" for values in (names, *rows))
        text = StringIO()
        # Unlike in a table, texts keep their line breaks.
        cells = ([escape_formula(value if isinstance(value, str) else to_printable(value)) for value in row] for row in rows)
        csv.writer(text, lineterminator="\n").writerows([names, *cells])
        return text.getvalue()


def _has_format(form: str, columns: ListColumns, path: Path) -> bool:
    """Return whether the header of a file, or the keys of its first object, are those of a list with these columns."""
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
_STEPS: Final = ListColumns(
    (*_STEP_COLUMNS, *_TEMPLATE_COLUMNS),
    ("order", "wait", "left_to_send", "already_sent", "test_letter", "sent", "opened", "clicked", "replied"),
)


_Read: TypeAlias = Callable[[OutreachClient], Awaitable[Sequence[Any]]]
_LISTS: Final[dict[str, tuple[ListColumns, str, _Read]]] = {
    "campaigns": (_CAMPAIGNS, "campaign", lambda client: client.campaigns.list(undecodable="keep").collect()),
    "mailboxes": (_MAILBOXES, "mailbox", lambda client: client.mailboxes.list(undecodable="keep").collect()),
    "fields": (_FIELDS, "field", lambda client: client.workspaces.fields()),
}
"""The columns, the word for an item, and the function that reads a workspace, by the name of the command."""


def print_list(options: Options, what: str, settings: ListSettings) -> int:
    known, noun, read = _LISTS[what]
    return run_async(partial(_print_each, _Listing.of(options, known, settings), noun, read))


def print_steps(options: Options, campaign: str, settings: ListSettings) -> int:
    return run_async(partial(_read_and_print_steps, _Listing.of(options, _STEPS, settings), campaign))


async def _print_each(listing: _Listing, noun: str, read: _Read) -> int:
    """Read the list of each workspace, and print all as one, with a column for the workspace if there are several."""
    options, screen = listing.options, listing.screen
    lists, failed = await _read_each(listing, read)
    counts: dict[str, Any] = {"count": sum(map(len, lists.values()))}
    if collected := [each for each in lists.values() if isinstance(each, Collected)]:
        plural = "mailboxes" if noun == "mailbox" else f"{noun}s"
        for each in collected:
            for unread in each.undecodable:
                screen.warn(f"{plural}: cannot read {unread.id or 'an item without an id'}: {unread.error}")
            if each.missing:
                screen.warn(f"the service reports {each.missing:,} more {plural} than it listed")
        counts |= {name: sum(getattr(each, name) for each in collected) for name in ("total_found", "repeats", "missing")}
        counts["undecodable"] = sum(len(each.undecodable) for each in collected)
    items, spaces, names = [item for listed in lists.values() for item in listed], None, options.config.names
    data = [item.to_dict() for item in items]
    if len(options.workspaces) > 1:
        ids = [workspace for workspace, listed in lists.items() for _ in listed]
        data = [{"workspace": id_, "workspace_name": names.get(id_), **item} for id_, item in zip(ids, data, strict=True)]
        spaces = [*map(options.name_of, ids)]
    listing.print(items, {"data": data, **counts}, noun, spaces=spaces)
    return INCOMPLETE if failed or counts.get("missing") or counts.get("undecodable") else OK


async def _read_each(listing: _Listing, read: _Read) -> tuple[dict[str, Sequence[Any]], bool]:
    """Return the list of each workspace, and whether some could not be read; if none could, raise."""
    found: dict[str, Sequence[Any]] = {}
    errors: dict[str, OutreachError] = {}

    async def read_one(workspace: str, client: OutreachClient) -> None:
        try:
            found[workspace] = await read(client)
        except OutreachError as error:
            errors[workspace] = error

    async with open_each(listing.options) as clients, anyio.create_task_group() as group:
        for workspace, client in clients.items():
            group.start_soon(read_one, workspace, client)
    for workspace, error in errors.items():
        if not found:
            raise error
        listing.screen.warn(f"{listing.options.name_of(workspace)}: {format_message(error)}")
    return {workspace: found[workspace] for workspace in clients if workspace in found}, bool(errors)


async def _read_and_print_steps(listing: _Listing, campaign: str) -> int:
    async with open_client(listing.options) as client:
        result = await client.campaigns.steps(campaign)
    # One row for each template, and one row for each step without templates.
    rows: list[tuple[Step, Template | None]] = []
    for step in result.data:
        rows += [(step, template) for template in step.templates] or [(step, None)]
    ends = format_moment(result.days_left_date) or result.days_left_date
    about = f"time left: {result.days_left_display} (end: {ends})"
    listing.print(rows, {**result.to_dict(), "count": len(result.data)}, "step", about)
    return OK
