"""The command `history`: show, export and prune the file that `audit --history` and `brief --history` write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import attrs
import click

from outreach_async._cli import files
from outreach_async._cli.messages import note_applied
from outreach_async._cli.process import OK
from outreach_async._cli.values import Options
from outreach_async._plumbing import atomic_file, open_csv, require_module
from outreach_async.audit.history import TEXT_COLUMNS, History, Kind
from outreach_async.audit.reports import format_time
from outreach_async.errors import format_count

_DAY: Final = 86_400.0  # seconds
_COLUMNS: Final = ("date", "name", "sent", "opened", "replied", "bounced", "sent_30days", "bounced_30days", "score", "note")


def show(options: Options, file: Path, kind: Kind, *, subject: str | None, days: int) -> int:
    screen = options.screen()
    found = History(file).daily(kind, subject, workspaces=options.workspaces or None, days=days)
    known = {name for day in found for name, value in attrs.asdict(day).items() if value is not None}
    columns = [name for name in _COLUMNS if name in known | {"note"}]
    rows = []
    for day in found:
        note = f"spread over {day.spread_over} days" if day.spread_over > 1 else ""
        values = {name: round(value, 1) if isinstance(value, float) else value for name, value in attrs.asdict(day).items()}
        rows.append([{**values, "note": note}[name] for name in columns])
    screen.print_table(columns, rows)
    if not found:
        screen.print_line("The history has no such days.")
    screen.print_result({"days": [attrs.asdict(day) for day in found]})
    return OK


def export(options: Options, file: Path, folder: Path, form: str, *, force: bool) -> int:
    if form == "parquet":
        require_module("pyarrow", "outreach_async[parquet]")
    source = History(file)
    with files.explain_write_errors("FOLDER", folder):
        folder.mkdir(parents=True, exist_ok=True)
    with source.tables() as tables:
        paths = {name: folder / f"{name}.{form}" for name in tables}
        if not force and (found := next((each for each in paths.values() if each.exists()), None)):
            remedy = "pass a new folder, or overwrite its files with --force"
            raise click.UsageError(f"FOLDER {folder}: {found.name} exists; {remedy}.")
        for name, (columns, rows) in tables.items():
            with files.explain_write_errors("FOLDER", paths[name]), atomic_file(paths[name], private=True) as draft:
                if form == "parquet":
                    _write_parquet(draft, columns, rows)
                else:
                    with open_csv(draft, columns) as write:
                        for row in rows:
                            write(row)
            note_applied(f"Written: {folder}")
            options.screen().print_line(f"Written: {paths[name]}")
    return OK


def _write_parquet(draft: BinaryIO, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def kind_of(name: str, cells: Sequence[Any]) -> pa.DataType:
        known = [cell for cell in cells if cell is not None]
        if any(isinstance(cell, str) for cell in known) or (name in TEXT_COLUMNS and not known):
            return pa.string()
        return pa.int64() if known and all(isinstance(cell, int) for cell in known) else pa.float64()

    values = dict(zip(columns, list(zip(*rows, strict=True)) or [()] * len(columns), strict=True))
    pq.write_table(pa.table({name: pa.array(cells, kind_of(name, cells)) for name, cells in values.items()}), draft)


def prune(options: Options, file: Path, keep: float | None, after: float | None, *, dry_run: bool) -> int:
    if (keep is None) == (after is None) or (dry_run and after is None):
        wanted = "--after DATE with --dry-run" if dry_run else "either --keep AGE or --after DATE"
        raise click.UsageError(f"history prune: expected {wanted}; pass, for example, --keep 400d or --after 2026-03-31.")
    if keep is not None and keep < _DAY:
        raise click.UsageError(f"--keep: expected at least a day, got {keep:g} s; pass, for example, 400d.")
    screen, history, before = options.screen(), History(file), file.stat().st_size
    if after is not None:
        with history.tables() as tables:
            columns, rows = tables["snapshots"]
            found = [row for row in (dict(zip(columns, row, strict=True)) for row in rows) if row["at"] > after]
        for row in found:
            counts = format_count(row["mailboxes"], "mailbox"), format_count(row["campaigns"] or 0, "campaign")
            screen.print_line(f"{'Would delete' if dry_run else 'Deleting'} {format_time(row['at'])}: {', '.join(counts)}")
    deleted = len(found) if dry_run else history.prune(keep, after=after)
    size = file.stat().st_size
    if not dry_run:
        text = f"Deleted {deleted:,} snapshots; the file has {size:,} bytes, and had {before:,}."
        note_applied(text)
        screen.print_line(text)
    screen.print_result({"deleted": 0 if dry_run else deleted, "bytes": size})
    return OK
