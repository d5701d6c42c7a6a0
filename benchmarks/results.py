"""Tables of results: medians over all rounds, and ratios to a baseline."""

from __future__ import annotations

import statistics
from typing import Any

import attrs


@attrs.define
class Table:
    """One table of results.

    Attributes:
        title: Title of the table.
        unit: Unit of every value.
        baselines: Rows that ratios refer to, in order; none for no ratios.
        columns: Names of the settings, in order.
        notes: Sentences below the table.
        samples: All measured values, by row and column.
    """

    title: str
    unit: str
    baselines: tuple[str, ...] = ()
    columns: list[str] = attrs.Factory(list)
    notes: list[str] = attrs.Factory(list)
    samples: dict[str, dict[str, list[float]]] = attrs.Factory(dict)

    def add(self, row: str, column: str, *figures: float) -> None:
        """Add the value of one round, or of several."""
        if column not in self.columns:
            self.columns.append(column)
        self.samples.setdefault(row, {}).setdefault(column, []).extend(figures)

    def median(self, row: str, column: str) -> float | None:
        """Return the median over the rounds; `None` if nothing was measured."""
        figures = self.samples.get(row, {}).get(column)
        return statistics.median(figures) if figures else None

    def medians(self) -> Table:
        """Return the table with the median of each cell as its only value."""
        reduced = {
            row: {column: [round(statistics.median(figures), 4)] for column, figures in cells.items()}
            for row, cells in self.samples.items()
        }
        return attrs.evolve(self, samples=reduced)

    def ratio(self, row: str, column: str, baseline: str) -> float | None:
        """Return the median as a multiple of that of a baseline; `None` if either is missing."""
        figure, base = self.median(row, column), self.median(baseline, column)
        return figure / base if figure is not None and base else None

    def measured_baselines(self) -> list[str]:
        """Return the baselines that were measured. A peer that is not installed is not."""
        return [baseline for baseline in self.baselines if baseline in self.samples]

    def legend(self) -> str:
        """Return what the ratios in brackets refer to, as the end of a sentence about the unit."""
        against = "; ".join(f"times {baseline}" for baseline in self.measured_baselines())
        return f"; in brackets: {against}" if against else ""

    def as_json(self) -> dict[str, Any]:
        """Return the table as JSON values, for the file of all measurements."""
        return attrs.asdict(self)
