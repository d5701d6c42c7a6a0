"""Write results as Markdown tables, with a description of the machine."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.results import Table


def markdown(tables: Iterable[Table], machine: Iterable[str], source: str) -> str:
    """Return a report: where the figures come from, the machine, then every table."""
    head = ["# Benchmarks", "", f"{source}, interleaved, medians; of several runs, the lowest and the highest."]
    head[-1] += " CPU is that of the client's process alone."
    head += ["", *(f"- {line}" for line in machine), ""]
    return "\n".join([*head, *(_section(table) for table in tables)])


def _section(table: Table) -> str:
    lines = [f"## {table.title}", "", f"Unit: {table.unit}{table.legend()}.", ""]
    lines.append("| | " + " | ".join(table.columns) + " |")
    lines.append("|---|" + "---:|" * len(table.columns))
    lines += ["| " + " | ".join([row, *(_cell(table, row, column) for column in table.columns)]) + " |" for row in table.samples]
    return "\n".join([*lines, "", *(f"{note}\n" for note in table.notes)])


def _cell(table: Table, row: str, column: str) -> str:
    median = table.median(row, column)
    return "" if median is None else f"{spread(table.samples[row][column])}{ratios(table, row, column)}"


def spread(figures: Iterable[float]) -> str:
    """Return the lowest and the highest of several figures, or one figure if both are equal when rounded."""
    low, high = short(min(figures := list(figures))), short(max(figures))
    return low if low == high else f"{low} to {high}"


def ratios(table: Table, row: str, column: str) -> str:
    """Return the ratios to the baselines of a table in brackets, or nothing for a table without."""
    found = [table.ratio(row, column, baseline) for baseline in table.measured_baselines()]
    return f" ({'; '.join('-' if ratio is None else short(ratio) for ratio in found)})" if found else ""


def short(figure: float) -> str:
    """Return a number with three significant digits."""
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    if abs(figure) >= 10:
        return f"{figure:.1f}"
    return f"{figure:.2f}" if abs(figure) >= 1 or not figure else f"{figure:.3g}"
