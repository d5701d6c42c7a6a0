"""Write results as Markdown tables, with a description of the machine."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.results import Table


def markdown(tables: Iterable[Table], machine: Iterable[str], command: str, rounds: int) -> str:
    """Return a report: the command, the machine, then every table."""
    head = ["# Benchmarks", "", f"`{command}`, {rounds} interleaved rounds, medians; CPU is that of the client's process alone."]
    head += ["", *(f"- {line}" for line in machine), ""]
    return "\n".join([*head, *(_section(table) for table in tables)])


def _section(table: Table) -> str:
    against = f"; in brackets: times {table.baseline}" if table.baseline in table.samples else ""
    lines = [f"## {table.title}", "", f"Unit: {table.unit}{against}.", ""]
    lines.append("| | " + " | ".join(table.columns) + " |")
    lines.append("|---|" + "---:|" * len(table.columns))
    lines += ["| " + " | ".join([row, *(_cell(table, row, column) for column in table.columns)]) + " |" for row in table.samples]
    return "\n".join([*lines, "", *(f"{note}\n" for note in table.notes)])


def _cell(table: Table, row: str, column: str) -> str:
    median, ratio = table.median(row, column), table.ratio(row, column)
    if median is None:
        return ""
    return short(median) if ratio is None or row == table.baseline else f"{short(median)} ({ratio:.2f})"


def short(figure: float) -> str:
    """Return a number with three significant digits."""
    if abs(figure) >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if abs(figure) >= 10 else f"{figure:.2f}"
