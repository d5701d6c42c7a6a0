"""Show the progress of a run on stderr: a bar on a terminal, and a line for each pause."""

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
"""Shows the number of completed rows, and a string beside the bar."""

_REFRESH: Final = 0.2
_SLOW: Final = 10
"""Rate in rows per second below which one decimal is shown."""


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Show]:
    """Show a bar of `total` rows; `None` if their number is unknown."""
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
        outcomes: The outcomes of the run.
        show: Updates the bar.
        warn: Prints a line. Used for the reason of each pause, which may not fit beside the bar.
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
    """Return the rate, the state with its reason, and the ETA of a run."""
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
