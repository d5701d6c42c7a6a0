"""Interleave the peers round by round, so that other load on the machine affects all of them alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any, Final

import attrs

from benchmarks.measuring import Figures
from benchmarks.results import Table
from benchmarks.service import Service
from benchmarks.worker import Worker

RAW: Final = "raw asyncio.Protocol"
"""The row of the raw client, the lower bound."""


@attrs.frozen
class Job:
    """The measurement of one cell of a table.

    Attributes:
        row: The peer; each has its own process.
        column: The setting.
        function: Function to run in the process.
        arguments: Its arguments.
    """

    row: str
    column: str
    function: Callable[..., Figures]
    arguments: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Bench:
    """The settings of a run of the benchmarks.

    Attributes:
        service: The server.
        rounds: Number of measurements per cell.
        scale: Fraction of the full work to do in each.
        shared: One process for all peers; `None` for a process each.
        long: Whether to extrapolate from runs of one million contacts.
    """

    service: Service
    rounds: int
    scale: float
    shared: Worker | None = None
    long: bool = False

    @property
    def quick(self) -> bool:
        """Whether to measure the main settings only."""
        return self.scale < 1

    def sized(self, count: int, least: int = 1) -> int:
        """Return the scaled amount of work."""
        return max(least, int(count * self.scale))

    def interleave(self, jobs: Iterable[Job], take: Callable[[Job, Figures], None], *, rounds: int = 1000) -> None:
        """Run every job once per round.

        Args:
            jobs: The jobs.
            take: Called with each job and its measurements.
            rounds: Maximum number of rounds.
        """
        jobs = list(jobs)
        with ExitStack() as stack:
            workers = {row: self.shared or stack.enter_context(Worker()) for row in dict.fromkeys(job.row for job in jobs)}
            for _ in range(min(rounds, self.rounds)):
                for job in jobs:
                    take(job, workers[job.row].call(job.function, **job.arguments))


class Busy:
    """The load of the server. It must be mostly idle, or it would limit the client."""

    def __init__(self) -> None:
        self._percents: dict[str, list[float]] = {}

    def add(self, job: Job, figures: Figures) -> None:
        """Add one measurement."""
        self._percents.setdefault(job.row, []).append(figures["busy"])

    def said(self) -> str:
        """Return the load as sentences, with a separate one for the raw client, which causes the most."""
        medians = {row: statistics.median(percents) for row, percents in self._percents.items()}
        raw = medians.pop(RAW, None)
        apart = "" if raw is None else f" With the raw client it took {raw:.0f} %, so that client can be faster still."
        return f"The server took at most {max(medians.values()):.0f} % of its core.{apart}"


def into(table: Table, figure: str = "cpu") -> Callable[[Job, Figures], None]:
    """Return a callback that adds one kind of measurement to a table."""
    return lambda job, figures: table.add(job.row, job.column, figures[figure])


def present(needs: Mapping[str, str]) -> list[str]:
    """Return the rows whose module is installed; an empty name means no module."""
    return [row for row, module in needs.items() if not module or find_spec(module)]
