"""Print results: tables on a terminal, tab-separated lines in a pipe, or one JSON object."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self

import attrs
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outreach_async.cli.text import printable


@attrs.frozen
class Screen:
    """The output of a command.

    Attributes:
        as_json: Whether stdout receives one JSON object only.
        console: The terminal; `None` if stdout is not a terminal.
    """

    as_json: bool
    console: Console | None

    @classmethod
    def of(cls, *, as_json: bool) -> Self:
        """Return the screen for the current stdout."""
        terminal = sys.stdout.isatty() and not as_json
        return cls(as_json, Console(highlight=False, markup=False, emoji=False) if terminal else None)

    def say(self, text: str = "", style: str = "") -> None:
        """Print a line for people; with `as_json`, print nothing."""
        if self.console:
            self.console.print(Text(printable(text), style=style), soft_wrap=True)
        elif not self.as_json:
            print(printable(text))  # noqa: T201 - a command prints

    def warn(self, text: str) -> None:
        """Print a line to stderr, like errors."""
        print(f"outreach-async: {printable(text)}", file=sys.stderr)  # noqa: T201 - a command prints

    def say_lines(self, text: str) -> None:
        """Print lines for people."""
        for line in text.splitlines():
            self.say(line)

    def footer(self, text: str) -> None:
        """Print a line that is of use on a terminal only."""
        if self.console:
            self.say(text, "dim")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print a table; with `as_json`, print nothing."""
        if self.console:
            self.console.print(_table(columns, list(rows)), crop=False)  # a truncated number is a wrong number
        elif not self.as_json:
            for row in (columns, *rows):
                print(*map(printable, row), sep="\t")  # noqa: T201 - a command prints

    def result(self, value: dict[str, Any]) -> None:
        """Print the JSON object as the last line of stdout; without `as_json`, print nothing."""
        if self.as_json:
            print(json.dumps(value), flush=True)  # noqa: T201 - a command prints


_WHOLE: Final = frozenset({"id", "code", "status", "test_letter"})
"""Columns never wrapped below the width of their values, because users copy and compare them."""


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for at, column in enumerate(columns):
        values = [row[at] for row in rows]
        figures = bool(values) and all(map(_is_figure, values))
        whole = map(printable, values) if figures or column in _WHOLE else ()
        least = max(map(len, [*whole, *column.split("_")]))
        heading = Text(column.replace("_", "\n"))
        table.add_column(heading, justify="right" if figures else "left", overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _is_figure(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
