"""Runs of the benchmarks that are stored in a folder. What is published is the range of the runs, which differ with the load."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.results import Table

MIN_RUNS: Final = 3
"""Number of runs from which a range may be published."""

Cell = tuple[str, str]
"""A row and a column of a table."""


@attrs.frozen
class Run:
    """One run.

    Attributes:
        when: Date and time in UTC.
        command: The command.
        load: The load of the machine by other processes, as the system measured it before the run.
        rounds: Number of rounds, of which each figure is the median.
        machine: Lines that describe the machine and the versions.
        tables: The tables, by group.
    """

    when: str
    command: str
    load: str
    rounds: int
    machine: list[str]
    tables: dict[str, list[Table]]

    def ratio(self, group: str, index: int, cell: Cell, over: Cell | None) -> float | None:
        """Return a measurement, or its ratio to another one; `None` if the run has not measured both."""
        table = self.tables[group][index] if group in self.tables else None
        if table is None or (figure := table.median(*cell)) is None:
            return None
        base = 1.0 if over is None else table.median(*over)
        return figure / base if base else None


def current_load() -> str:
    """Return the average number of processes that were running in the last minute."""
    return f"{os.getloadavg()[0]:.1f} processes running" if hasattr(os, "getloadavg") else "load unknown"


def store(
    folder: Path, found: Mapping[str, Sequence[Table]], *, command: str, load: str, rounds: int, machine: list[str]
) -> None:
    """Write a run to a folder, next to earlier runs. Of each figure, only the median is stored."""
    now = datetime.now(UTC)
    tables = {name: [table.medians().as_json() for table in each] for name, each in found.items()}
    values: dict[str, Any] = {"when": f"{now:%Y-%m-%d %H:%M}", "command": command, "load": load, "rounds": rounds}
    values |= {"machine": machine, "tables": tables}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{now:%Y-%m-%d-%H%M%S}.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


def load_runs(folder: Path) -> list[Run]:
    """Return the runs in a folder, the oldest first."""
    runs = []
    for path in sorted(folder.glob("*.json")):
        values = json.loads(path.read_text(encoding="utf-8"))
        tables = {name: [Table(**table) for table in each] for name, each in values.pop("tables").items()}
        runs.append(Run(**values, tables=tables))
    return runs


def merge_runs(runs: Iterable[Run]) -> dict[str, list[Table]]:
    """Return the tables of several runs, with one value for each run that measured it."""
    merged: dict[str, list[Table]] = {}
    for run in runs:
        for name, tables in run.tables.items():
            for index, table in enumerate(tables):
                if index == len(merged.setdefault(name, [])):
                    merged[name].append(attrs.evolve(table, samples={}, columns=[*table.columns]))
                for row, cells in table.samples.items():
                    for column, figures in cells.items():
                        merged[name][index].add(row, column, *figures)
    return merged


@attrs.frozen
class Range:
    """The lowest and the highest figure of several runs."""

    low: float
    high: float


def range_of(runs: Iterable[Run], group: str, index: int, cell: Cell, over: Cell | None = None) -> Range:
    """Return the range of a measurement, or of its ratio to another one, over all runs that measured it."""
    found = [ratio for run in runs if (ratio := run.ratio(group, index, cell, over)) is not None]
    if len(found) < MIN_RUNS:
        raise SystemExit(
            f"{group}, {cell[0]}: expected at least {MIN_RUNS} stored runs, got {len(found)}; run the benchmarks again"
        )
    return Range(min(found), max(found))
