"""The command `history`: show, export and prune the file that `audit --history` and `brief --history` write."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from outreach_async._cli import files
from outreach_async._cli.output import Screen
from outreach_async._cli.process import OK
from outreach_async._cli.values import Options
from outreach_async._files.atomic import atomic_file
from outreach_async._files.optional import require_module
from outreach_async._files.spreadsheets import escape_formula
from outreach_async.audit._history_tables import TABLES, TEXT_COLUMNS, VIEWS
from outreach_async.audit.history import DayFigures, History, Kind

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS: Final = ("date", "name", "sent", "opened", "replied", "bounced", "sent_30days", "bounced_30days", "score", "note")
_DAY: Final = 86_400


def show(options: Options, path: Path, kind: Kind, *, subject: str | None, days: int) -> int:
    """Show the figures of each day, in UTC."""
    screen = Screen.of(as_json=options.as_json, quiet=options.quiet)
    found = History(path).daily(kind, subject, workspaces=options.workspaces or None, days=days)
    known = {name for day in found for name, value in attrs.asdict(day).items() if value is not None}
    columns = [name for name in _COLUMNS if name in known | {"note"}]
    screen.print_table(columns, [[_format(day, name) for name in columns] for day in found])
    if not found:
        screen.print_line("The history has no such days.")
    screen.print_result({"days": [attrs.asdict(day) for day in found]})
    return OK


def _format(day: DayFigures, column: str) -> Any:
    if column == "note":
        return f"spread over {day.spread_over} days" if day.spread_over > 1 else ""
    value = getattr(day, column)
    return "" if value is None else round(value, 1) if isinstance(value, float) else value


def export(options: Options, path: Path, folder: Path, form: str, *, force: bool) -> int:
    """Write each table and each view of the history to a file in FOLDER, which is created if it does not exist."""
    if form == "parquet":
        require_module("pyarrow", "outreach_async[parquet]")
    source = History(path)
    with files.explain_write_errors("FOLDER", folder):
        folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.{form}" for name in (*TABLES, *VIEWS)}
    if not force and (found := next((each for each in paths.values() if each.exists()), None)):
        raise click.UsageError(f"FOLDER {folder}: {found.name} exists; pass a new folder, or overwrite its files with --force.")
    screen = Screen.of(as_json=False, quiet=options.quiet)
    with source.tables() as tables:
        for name, (columns, rows) in tables.items():
            write = _write_parquet if form == "parquet" else _write_csv
            with files.explain_write_errors("FOLDER", paths[name]), atomic_file(paths[name], private=True) as file:
                write(file, columns, rows)
            screen.print_line(f"Written: {paths[name]}")
    return OK


def _write_csv(file: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([escape_formula(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    text.flush()
    text.detach()


def _write_parquet(file: Any, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = list(zip(*rows, strict=True)) or [()] * len(columns)
    arrays = [_to_arrow(name, cells) for name, cells in zip(columns, values, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, names=list(columns)), file)


def _to_arrow(name: str, cells: Sequence[Any]) -> pa.Array[Any]:
    import pyarrow as pa

    if any(isinstance(cell, str) for cell in cells) or (name in TEXT_COLUMNS and all(cell is None for cell in cells)):
        return pa.array(cells, pa.string())
    whole = all(cell is None or isinstance(cell, int) for cell in cells)
    return pa.array(cells, pa.int64() if whole and any(cell is not None for cell in cells) else pa.float64())


def prune(options: Options, path: Path, keep: float) -> int:
    """Delete snapshots that are older than AGE before the last snapshot, and make the file smaller."""
    screen = Screen.of(as_json=options.as_json, quiet=options.quiet)
    if keep < _DAY:
        raise click.UsageError(f"--keep: expected at least a day, got {keep:g} s; pass, for example, 400d.")
    before = path.stat().st_size
    deleted = History(path).prune(keep)
    after = path.stat().st_size
    screen.print_line(f"Deleted {deleted:,} snapshots; the file has {after:,} bytes, and had {before:,}.")
    screen.print_result({"deleted": deleted, "bytes": after})
    return OK
