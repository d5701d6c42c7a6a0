"""The progress bar: on stderr, and only if that is a terminal."""

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
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False) as bar:
        task = bar.add_task(title, total=total, text="")
        yield lambda rows, text: bar.update(task, completed=rows, text=text)


async def follow(outcomes: Outcomes, show: Show) -> None:
    """Show a run's progress until cancelled."""
    while True:
        seen = outcomes.progress
        show(seen.rows, text_of(seen))
        await anyio.sleep(_REFRESH)


def text_of(seen: BulkProgress) -> str:
    """Return how fast a run goes, what holds it up, and how long it will take."""
    digits = 1 if 0 < seen.rate < _SLOW else 0
    parts = [f"{seen.rate:,.{digits}f} rows/s"]
    if seen.state != "running":
        parts.append(f"{seen.state} for {_duration(seen.resumes)}" if seen.resumes else seen.state)
    if seen.eta is not None:
        parts.append(f"ETA {_duration(seen.eta)}")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
