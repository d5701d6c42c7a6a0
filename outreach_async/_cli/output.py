"""Print results as tables, tab-separated lines or one JSON object, and show the progress of a run on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

import anyio
import attrs

from outreach_async._cli.messages import format_cell, to_printable, wrap_error, wrap_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from outreach_async.audit import AuditProgress
    from outreach_async.bulk import BulkProgress

# rich is imported only for a terminal.

_MAX_LINES: Final = 34  # of a report on a terminal: two progress bars and an error make 40


@attrs.define
class _Printed:
    lines: int = 0


@attrs.frozen
class Screen:
    as_json: bool
    console: Console | None
    quiet: bool = False
    verbose: bool = False
    _printed: _Printed = attrs.field(factory=_Printed, eq=False, repr=False)

    @classmethod
    def of(cls, *, as_json: bool, quiet: bool = False, verbose: bool = False) -> Self:
        """Return the screen for the current stdout. A quiet screen shows only warnings and what `--json` prints."""
        if as_json or quiet or not sys.stdout.isatty():
            return cls(as_json, None, quiet, verbose)
        from rich.console import Console

        return cls(as_json, Console(highlight=False, markup=False, emoji=False), quiet, verbose)

    @property
    def is_silent(self) -> bool:
        return self.as_json or self.quiet

    def room(self, reserve: int) -> int | None:
        """Return how many lines may be printed so that `reserve` lines still fit on a screen; `None` if all may be."""
        return None if self.verbose else max(0, _MAX_LINES - reserve - self._printed.lines)

    def hold(self, show: Callable[[], object]) -> Callable[[], None]:
        """Call a function that prints, and return a function that prints the same. Until then, its lines only count."""
        if self.console:
            with self.console.capture() as captured:
                show()
            text, stream = captured.get(), self.console.file
        else:
            with redirect_stdout(StringIO()) as written:
                show()
            text, stream = written.getvalue(), sys.stdout

        def release() -> None:
            stream.write(text)
            stream.flush()

        return release

    def height(self, text: str) -> int:
        """Return the number of lines that a text of one line takes."""
        if self.console is None:
            return 1
        from rich.cells import cell_len

        width = self.console.width
        return sum(max(1, -(-cell_len(line) // width)) for line in wrap_line(to_printable(text), width).split("\n"))

    def print_line(self, text: str = "", style: str = "", *, wrap: bool = True) -> None:
        """Print a human-readable line; with `--json` or `--quiet`, print nothing."""
        self._printed.lines += self.height(text)
        if self.console:
            from rich.text import Text

            line = to_printable(text)
            self.console.print(Text(wrap_line(line, self.console.width) if wrap else line, style=style), soft_wrap=True)
        elif not self.is_silent:
            print(to_printable(text))  # noqa: T201 - a command prints

    def warn(self, text: str) -> None:
        self._printed.lines += self.height(f"outreach-async: {text}")
        print(wrap_error(f"outreach-async: {to_printable(text)}"), file=sys.stderr)  # noqa: T201 - a command prints

    def print_lines(self, text: str) -> None:
        """Print a human-readable string of several lines; with `--json` or `--quiet`, print nothing."""
        for line in text.splitlines():
            self.print_line(line)

    def print_footer(self, text: str) -> None:
        if self.console:
            self.print_line(text, "dim")

    def print_table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print a table; with `--json` or `--quiet`, print nothing."""
        if self.console:
            table = _build_table(columns, listed := list(rows))
            self._printed.lines += len(self.console.render_lines(table, pad=False))
            # Each column has two spaces beside it.
            if sum((column.min_width or 0) + 2 for column in table.columns) <= self.console.width:
                self.console.print(table, crop=False)  # a truncated number would be wrong
                return
            width = max(map(len, columns))
            for row in listed:  # a block for each row, with a line for each column
                for column, cell in zip(columns, row, strict=True):
                    self.print_line(f"{column:{width}}  {format_cell(cell, column)}".rstrip())
                self.print_line()
        elif not self.is_silent:
            for row in (columns, *rows):  # without thousands separators, so that programs can read numbers
                print(*map(to_printable, row), sep="\t")  # noqa: T201 - a command prints

    def print_result(self, value: dict[str, Any]) -> None:
        """Print a result as one JSON object, the last line of stdout; without `as_json`, print nothing."""
        if self.as_json:
            print(json.dumps(value), flush=True)  # noqa: T201 - a command prints


_UNWRAPPED_COLUMNS: Final = frozenset({"id", "code", "email", "status", "test_letter"})  # users copy and compare the values
_PERCENTAGES: Final = (
    *("opens", "replies", "bounces", "opened", "clicked", "replied", "unsubscribed"),
    *("opened_14days", "avg_open_rate", "avg_click_rate"),
)
"""Columns that contain percentages. On a terminal, their headings end with `%`."""
_MIN_WORD_WIDTH: Final = 16  # characters of words that are never broken in a table


def _build_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for at, column in enumerate(columns):
        values = [row[at] for row in rows]
        numeric = bool(values) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        texts = [format_cell(value, column) for value in values]
        if not numeric and column not in _UNWRAPPED_COLUMNS:
            texts = [word[:_MIN_WORD_WIDTH] for text in texts for word in text.split()]
        min_width = max(map(len, [*texts, *column.split("_")]))
        heading = Text(column.replace("_", "\n") + ("\n%" if column in _PERCENTAGES else ""))
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold", min_width=min_width)
    for row in rows:
        table.add_row(*(Text(format_cell(cell, column)) for cell, column in zip(row, columns, strict=True)))
    return table


ShowProgress: TypeAlias = Callable[[int, str], None]
"""A function that updates a progress bar. It takes the number of completed rows or workspaces, and the string beside the bar."""

_CLASS: Final = re.compile(r"(?<=: )[A-Z]\w*(?:Error|Timeout|Exception): ")  # names that users would not understand
_REFRESH_INTERVAL: Final = 0.2


@contextmanager
def show_progress(screen: Screen, title: str, total: int | None, unit: str = "rows") -> Iterator[ShowProgress]:
    """Show a progress bar on stderr if stderr is a terminal, and yield a function that updates the bar."""
    if screen.quiet or not sys.stderr.isatty():
        yield lambda _done, _text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}", markup=False))
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task(title, total=total, text=f"0 {unit}" if total is None else f"0 of {total:,} {unit}")
        yield lambda done, text: bar.update(task, completed=done, text=text)
        if total is None:  # the number of rows is known only at the end
            bar.update(task, total=bar.tasks[task].completed)


async def follow_progress(
    measure: Callable[[], BulkProgress | AuditProgress], show: ShowProgress, warn: Callable[[str], None]
) -> None:
    """Show the progress of a run or an audit until this task is cancelled."""
    printed_reason = ""
    while True:
        progress = measure()
        show_current(progress, show)
        if progress.why and progress.why != printed_reason:
            warn(format_progress(progress))
        printed_reason = progress.why
        await anyio.sleep(_REFRESH_INTERVAL)


def show_current(progress: BulkProgress | AuditProgress, show: ShowProgress) -> None:
    show(progress.rows if hasattr(progress, "rows") else progress.workspaces, format_progress(progress))


def format_progress(progress: BulkProgress | AuditProgress) -> str:
    """Format a progress for a terminal, without names of exceptions."""
    return _CLASS.sub("", to_printable(progress))
