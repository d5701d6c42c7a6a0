"""Detects damage: checks every row against its checksum, and the tables against the figures committed with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from outreach_async.bulk.journal import records
from outreach_async.bulk.journal.records import TABLES, CorruptContentError, checksum, digest, require

_REQUIRED_NAMES: Final = frozenset({"earlier", "events", "hwm", "identity", "log", "spooled", "state", "suspects", "totals"})
_PAGE_SIZE: Final = 1_000

_SELECT_OUTCOMES: Final = (
    "SELECT seq, status, id, attempts, possible, error, repeats, crc FROM outcome WHERE seq >= ? ORDER BY seq LIMIT ?"
)
_SELECT_SPOOL: Final = "SELECT seq, key, payload, crc FROM spool WHERE seq >= ? ORDER BY seq LIMIT ?"


def read_metadata(db: sqlite3.Connection) -> dict[str, Any]:
    """Return a journal's metadata about its run.

    Raises:
        CorruptContentError: An entry is missing, or its checksum does not match.
    """
    rows = db.execute("SELECT name, value, crc FROM meta").fetchall()
    require(all(checksum(columns) == crc for *columns, crc in rows), "checksum mismatch in the run's metadata")
    known = {name: msgspec.json.decode(value) for name, value, _ in rows}
    require(
        known.keys() >= _REQUIRED_NAMES, f"metadata of the run is missing: {', '.join(sorted(_REQUIRED_NAMES - known.keys()))}"
    )
    return known


def require_windows(db: sqlite3.Connection, hwm: int) -> int:
    """Check that the windows cover all marked rows, and return the number of windows.

    Raises:
        CorruptContentError: A row is not covered, or a checksum does not match.
    """
    count = end = 0
    for first, rows, marked, crc in db.execute("SELECT first, rows, digest, crc FROM window ORDER BY first"):
        require(checksum([first, rows, marked]) == crc, f"checksum mismatch in the window at row {first}")
        require(first == end, f"the window at row {end} is missing")
        count, end = count + 1, first + rows
    require(end == hwm, f"the windows end at row {end}, but {hwm} rows were marked")
    return count


def read_events(db: sqlite3.Connection, count: int) -> list[tuple[float, str, dict[str, Any]]]:
    """Return all events as (Unix time, kind, details).

    Raises:
        CorruptContentError: An event is missing or changed.
    """
    rows = db.execute("SELECT number, at, kind, data, crc FROM event ORDER BY number").fetchall()
    require(all(checksum(columns) == crc for *columns, crc in rows), "checksum mismatch in an event")
    require([row[0] for row in rows] == [*range(1, count + 1)], f"expected {count} events, found {len(rows)}")
    return [(at, kind, msgspec.json.decode(data)) for _, at, kind, data, _ in rows]


def require_structure(db: sqlite3.Connection, rows: int) -> None:
    """Check the pages of the file, its tables, and the number of outcomes.

    Raises:
        CorruptContentError: A page is malformed, the tables are not those of a journal, or an outcome is missing.
    """
    (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    require(verdict == "ok", verdict)
    tables = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")}
    require(tables == {*TABLES}, "its tables are not those of a journal")
    (found,) = db.execute("SELECT count(*) FROM outcome").fetchone()
    require(found == rows, f"expected {rows} outcomes, found {found}")


def require_intact(db: sqlite3.Connection) -> dict[str, Any]:
    """Check everything that a resumed run relies on, and return the run's metadata.

    For a finished run, only the figures and the windows are checked: none of its rows is ever sent again.

    Raises:
        CorruptContentError: Something differs from what was written.
    """
    known = read_metadata(db)
    require_windows(db, known["hwm"])
    figures = records.decode_totals(known["totals"])
    if known["state"] != "finished":
        require_structure(db, figures.rows)
        read_events(db, known["events"])
        last = max((columns[0] for columns in _read_verified_rows(db, _SELECT_OUTCOMES)), default=-1)
        require(last < known["hwm"], f"row {last} has an outcome but was not marked")
        for named, text in db.execute("SELECT digest, text FROM error"):
            require(digest(text) == named, "checksum mismatch in an error")
        spooled = sum(1 for _ in _read_verified_rows(db, _SELECT_SPOOL))
        require(known["spooled"] in (None, spooled), f"expected {known['spooled']} spooled rows, found {spooled}")
    return known


def _read_verified_rows(db: sqlite3.Connection, query: str) -> Iterator[list[Any]]:
    """Check the checksum of each row of a table, and yield the row without it."""
    first = 0
    while page := db.execute(query, (first, _PAGE_SIZE)).fetchall():
        for *columns, crc in page:
            if checksum(columns) != crc:
                raise CorruptContentError(f"checksum mismatch in row {columns[0]}")
            yield columns
        first = page[-1][0] + 1
