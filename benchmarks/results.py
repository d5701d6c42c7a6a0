"""Figures by table, row and column: medians over rounds, and ratios to one row."""

from __future__ import annotations

import statistics
from typing import Any

import attrs


@attrs.define
class Table:
    """One table of results.

    Attributes:
        title: What was measured.
        unit: Of every figure in the table.
        baseline: The row that ratios are of; empty for none.
        columns: What the settings are called, in order.
        notes: Sentences beneath the table.
        samples: Every figure measured, by row and column.
    """

    title: str
    unit: str
    baseline: str = ""
    columns: list[str] = attrs.Factory(list)
    notes: list[str] = attrs.Factory(list)
    samples: dict[str, dict[str, list[float]]] = attrs.Factory(dict)

    def add(self, row: str, column: str, figure: float) -> None:
        """Add a figure of one round."""
        if column not in self.columns:
            self.columns.append(column)
        self.samples.setdefault(row, {}).setdefault(column, []).append(figure)

    def median(self, row: str, column: str) -> float | None:
        """Return the median over the rounds; `None` where nothing was measured."""
        figures = self.samples.get(row, {}).get(column)
        return statistics.median(figures) if figures else None

    def ratio(self, row: str, column: str) -> float | None:
        """Return the median as a multiple of the baseline's."""
        figure, base = self.median(row, column), self.median(self.baseline, column)
        return figure / base if figure is not None and base else None

    def as_json(self) -> dict[str, Any]:
        """Return the table for the file of raw figures."""
        return attrs.asdict(self)
