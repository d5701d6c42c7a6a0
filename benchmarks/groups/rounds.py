"""Competitors take turns, round by round, so that whatever else the machine does befalls them all alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any

import attrs

from benchmarks.measuring import Figures
from benchmarks.results import Table
from benchmarks.service import Service
from benchmarks.worker import Worker


@attrs.frozen
class Job:
    """One figure of a table: what measures it.

    Attributes:
        row: The competitor; each has a process of its own.
        column: The setting.
        function: What the process runs.
        arguments: And with what.
    """

    row: str
    column: str
    function: Callable[..., Figures]
    arguments: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Bench:
    """How much is measured, and against which server.

    Attributes:
        service: The server.
        rounds: How often each figure is measured.
        scale: The share of the full work to do in each.
        shared: A process for every competitor; `None` if each is to have one of its own.
    """

    service: Service
    rounds: int
    scale: float
    shared: Worker | None = None

    @property
    def quick(self) -> bool:
        """Whether only the main settings are to be measured."""
        return self.scale < 1

    def sized(self, count: int, least: int = 1) -> int:
        """Return how many of something to do, where this many are the full work."""
        return max(least, int(count * self.scale))

    def interleave(self, jobs: Iterable[Job], take: Callable[[Job, Figures], None], *, rounds: int = 1000) -> None:
        """Run every job once a round, and hand over its figures.

        Args:
            jobs: What to run.
            take: Gets the figures of each.
            rounds: Rounds at most.
        """
        jobs = list(jobs)
        with ExitStack() as stack:
            workers = {row: self.shared or stack.enter_context(Worker()) for row in dict.fromkeys(job.row for job in jobs)}
            for _ in range(min(rounds, self.rounds)):
                for job in jobs:
                    take(job, workers[job.row].call(job.function, **job.arguments))


class Busy:
    """How busy the server was: idle enough, or the client was not what was measured."""

    def __init__(self) -> None:
        self._percents: dict[str, list[float]] = {}

    def add(self, job: Job, figures: Figures) -> None:
        """Note one figure."""
        self._percents.setdefault(job.row, []).append(figures["busy"])

    def said(self) -> str:
        """Say so in sentences; the raw client, which keeps it busiest, has one of its own."""
        medians = {row: statistics.median(percents) for row, percents in self._percents.items()}
        raw = medians.pop("raw asyncio.Protocol", None)
        apart = "" if raw is None else f" With the raw client it took {raw:.0f} %, so that client can be faster still."
        return f"The server took at most {max(medians.values()):.0f} % of its core.{apart}"


def into(table: Table, figure: str = "cpu") -> Callable[[Job, Figures], None]:
    """Take one of the figures into a table."""
    return lambda job, figures: table.add(job.row, job.column, figures[figure])


def present(needs: Mapping[str, str]) -> list[str]:
    """Return the rows whose module is installed; an empty name needs none."""
    return [row for row, module in needs.items() if not module or find_spec(module)]
