"""Lists: which columns are printed, in which format, and where."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, Final, Self

import attrs
import click

from outreach_async._cli import files
from outreach_async._cli.messages import count_noun, format_moment, format_period, to_printable
from outreach_async._cli.output import Screen
from outreach_async._cli.values import Options
from outreach_async._files.atomic import atomic_write
from outreach_async._files.spreadsheets import escape_formula

ReadCell = Callable[[Any, str], Any]
"""A function that takes an item and the name of a column, and returns the value to print."""

_FORMATTED: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    "created_utc": ("created", format_moment),
    "created_at_utc": ("created_at", format_moment),
    "days_left_date_utc": ("days_left_date", format_moment),
    "wait": ("wait_time", lambda milliseconds: format_period(milliseconds / 1000)),
}
"""Maps each formatted column to its source column and its formatting function."""


def read_cell(item: Any, name: str) -> Any:
    if name in _FORMATTED:
        source, form = _FORMATTED[name]
        return form(getattr(item, source))
    return getattr(item, name)


@attrs.frozen
class ListColumns:
    """The columns of a list."""

    all: tuple[str, ...]
    brief: tuple[str, ...]
    read: ReadCell = read_cell

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

    def print(self, screen: Screen, items: Sequence[Any], names: Sequence[str], spaces: Sequence[str] | None = None) -> None:
        """Print a table of the given columns and, on a terminal, the names of the other columns."""
        screen.print_table(*self.tabulate(items, names, spaces))
        if hidden := [name for name in self.all if name not in names]:
            option = f"--columns {','.join(hidden[:2])}"
            screen.print_footer(
                f"{count_noun(len(hidden), 'more column')}: {', '.join(hidden)}; {option} or --columns all shows them"
            )

    def tabulate(
        self, items: Sequence[Any], names: Sequence[str], spaces: Sequence[str] | None = None
    ) -> tuple[tuple[str, ...], list[list[Any]]]:
        """Return the header and the rows of a table, with a column for the workspaces of the items if they are given."""
        rows = [[self.read(item, name) for name in names] for item in items]
        if spaces is None:
            return tuple(names), rows
        return ("workspace", *names), [[space, *row] for space, row in zip(spaces, rows, strict=True)]


_SUFFIXES: Final = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".tsv": "table", ".txt": "table"}
"""The format of a file, by the suffix of its name."""
_SIGNS: Final = 4  # columns by which a file of JSON Lines is recognised


@attrs.frozen
class ListOutput:
    """The values of `--columns`, `--format`, `--output` and `--force`."""

    columns: str | None
    format: str
    path: Path | None
    force: bool


def choose_format(path: Path | None) -> str:
    if path is not None and path.suffix.lower() not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise click.UsageError(f"--output {path}: expected a name ending in one of {known}; rename it, or pass --format.")
    return "table" if path is None else _SUFFIXES[path.suffix.lower()]


@attrs.frozen
class Listing:
    """A list to print: where, in which format, with which columns and, if there are several, the workspace of each item."""

    screen: Screen
    columns: ListColumns
    names: tuple[str, ...]
    output: ListOutput
    spaces: tuple[str, ...] | None = None

    @classmethod
    def of(cls, options: Options, columns: ListColumns, output: ListOutput) -> Self:
        """Check the options of a list, before any request is sent."""
        to_file, form = output.path is not None, output.format
        if options.as_json and not to_file and form in {"csv", "jsonl"}:
            raise click.UsageError(f"--format {form}: conflicts with --json; remove one of them, or add --output FILE.")
        screen = Screen.of(as_json=options.as_json or (form == "json" and not to_file), quiet=options.quiet)
        if output.columns is not None and (form == "json" or (screen.as_json and not to_file)):
            cause = "--json" if options.as_json else "the format json"
            raise click.UsageError(f"--columns: conflicts with {cause}, which prints every value; remove one of the options.")
        is_table = screen.console is not None and not to_file and form == "table"
        names = columns.choose(output.columns, is_terminal=is_table)
        use = files.FileUse.for_writing("--output", output.path, partial(_has_format, form, columns))
        files.require_writable(use, force=output.force)
        return cls(screen, columns, names, output)

    def print(self, rows: Sequence[Any], result: dict[str, Any], noun: str, about: str = "") -> None:
        """Print the rows, or write them to the file. `result` is the list as one JSON object, with its items in `data`."""
        path, count = self.output.path, count_noun(len(result["data"]), noun)
        if path is not None:
            with files.explain_write_errors("--output", path):
                atomic_write(path, self._render(rows, result))
            self.screen.print_line(f"{count} written to {path}")
        elif self.output.format in {"csv", "jsonl"}:
            sys.stdout.write(self._render(rows, result))
        else:
            self.columns.print(self.screen, rows, self.names, self.spaces)
            self.screen.print_footer("; ".join(filter(None, (count, about))))
        self.screen.print_result(result)

    def _render(self, rows: Sequence[Any], result: dict[str, Any]) -> str:
        if self.output.format == "json":
            return f"{json.dumps(result)}\n"
        names, cells = self.columns.tabulate(rows, self.names, self.spaces)
        if self.output.format == "jsonl":
            chosen = [dict(zip(names, values, strict=True)) for values in cells]
            return "".join(f"{json.dumps(item)}\n" for item in (result["data"] if self.output.columns is None else chosen))
        if self.output.format == "table":
            return "".join("\t".join(map(to_printable, values)) + "\n" for values in (names, *cells))
        text = StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(names)
        lines.writerows([escape_formula(to_text(value)) for value in values] for values in cells)
        return text.getvalue()


def to_text(value: Any) -> str:
    """Return the text of a value in a CSV file, with its line breaks."""
    return value if isinstance(value, str) else to_printable(value)


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
