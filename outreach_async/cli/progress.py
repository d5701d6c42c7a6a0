"""The progress of a run on stderr: a bar if that is a terminal, and a line for each pause."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, TypeAlias

import anyio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from outreach_async.bulk import BulkProgress, Outcomes
from outreach_async.cli.text import printable

Show: TypeAlias = Callable[[int, str], None]
"""Shows how many rows are done, and a text beside the bar."""

_REFRESH: Final = 0.2
_SLOW: Final = 10
"""Rows a second below which a tenth of one is worth showing."""


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Show]:
    """Show how far `total` rows have come; `None` if nobody knows how many there are."""
    if not sys.stderr.isatty():
        yield lambda _rows, _text: None
        return
    text = TextColumn("{task.fields[text]}", markup=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), text)
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task(title, total=total, text="")
        yield lambda rows, text: bar.update(task, completed=rows, text=text)


async def follow(outcomes: Outcomes, show: Show, warn: Callable[[str], None]) -> None:
    """Show a run's progress until cancelled.

    Args:
        outcomes: The run's.
        show: Shows it on a terminal.
        warn: Prints a line; used for each pause, of which a bar may have no room to say why.
    """
    told = ""
    while True:
        seen = outcomes.progress
        show(seen.rows, text_of(seen))
        if seen.why and seen.why != told:
            of = "" if seen.total is None else f" of {seen.total:,}"
            warn(f"{seen.rows:,}{of} rows, {text_of(seen)}")
        told = seen.why
        await anyio.sleep(_REFRESH)


def text_of(seen: BulkProgress) -> str:
    """Return how fast a run goes, what holds it up, and how long it will take."""
    digits = 1 if 0 < seen.rate < _SLOW else 0
    parts = [f"{seen.rate:,.{digits}f} rows/s"]
    if seen.state != "running":
        held = f"{seen.state} for {_duration(seen.resumes)}" if seen.resumes else seen.state
        parts.append(f"{held} ({printable(seen.why)})" if seen.why else held)
    if seen.eta is not None:
        parts.append(f"ETA {_duration(seen.eta)}")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
