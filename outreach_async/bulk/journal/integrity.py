"""Finds damage: every row against its checksum, the tables against the figures that were committed with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from outreach_async.bulk.journal import totals
from outreach_async.bulk.journal.records import checksum, digest, require
from outreach_async.bulk.journal.schema import TABLES, Damage

_FACTS: Final = frozenset({"earlier", "events", "hwm", "identity", "log", "spooled", "state", "suspects", "totals"})
_PAGE: Final = 1_000

_OUTCOMES: Final = (
    "SELECT seq, status, id, attempts, possible, error, repeats, crc FROM outcome WHERE seq >= ? ORDER BY seq LIMIT ?"
)
_SPOOL: Final = "SELECT seq, key, payload, crc FROM spool WHERE seq >= ? ORDER BY seq LIMIT ?"


def facts(db: sqlite3.Connection) -> dict[str, Any]:
    """Return what a journal says of its run.

    Raises:
        Damage: A fact is missing, or its checksum does not match.
    """
    rows = db.execute("SELECT name, value, crc FROM meta").fetchall()
    require(all(checksum(columns) == crc for *columns, crc in rows), "the checksum of a fact about the run does not match")
    known = {name: msgspec.json.decode(value) for name, value, _ in rows}
    require(known.keys() >= _FACTS, f"facts about the run are missing: {', '.join(sorted(_FACTS - known.keys()))}")
    return known


def require_windows(db: sqlite3.Connection, hwm: int) -> int:
    """Check that the windows cover all rows that were marked, and return how many there are.

    Raises:
        Damage: They do not.
    """
    count = end = 0
    for first, rows, marked, crc in db.execute("SELECT first, rows, digest, crc FROM window ORDER BY first"):
        require(checksum([first, rows, marked]) == crc, f"the checksum of the window at row {first} does not match")
        require(first == end, f"the window at row {end} is missing")
        count, end = count + 1, first + rows
    require(end == hwm, f"the windows end at row {end}, and {hwm} rows were marked")
    return count


def events(db: sqlite3.Connection, count: int) -> list[tuple[float, str, dict[str, Any]]]:
    """Return all events: when, kind and particulars.

    Raises:
        Damage: They are not those that were noted.
    """
    rows = db.execute("SELECT number, at, kind, data, crc FROM event ORDER BY number").fetchall()
    require(all(checksum(columns) == crc for *columns, crc in rows), "the checksum of an event does not match")
    require([row[0] for row in rows] == [*range(1, count + 1)], f"expected {count} events, found {len(rows)}")
    return [(at, kind, msgspec.json.decode(data)) for _, at, kind, data, _ in rows]


def require_structure(db: sqlite3.Connection, rows: int) -> None:
    """Check the pages of the file, its tables, and how many outcomes are in them.

    Raises:
        Damage: A page is malformed, a table is another, or an outcome is missing.
    """
    (verdict,) = db.execute("PRAGMA integrity_check(1)").fetchone()
    require(verdict == "ok", verdict)
    tables = {sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE type = 'table'")}
    require(tables == {*TABLES}, "its tables are not those of a journal")
    (found,) = db.execute("SELECT count(*) FROM outcome").fetchone()
    require(found == rows, f"expected {rows} outcomes, found {found}")


def require_whole(db: sqlite3.Connection) -> dict[str, Any]:
    """Check all that a run relies on when it is resumed, and return the facts about it.

    Of a finished run only the figures and the windows count: no row of it is ever sent again.

    Raises:
        Damage: Something is not as it was written.
    """
    known = facts(db)
    require_windows(db, known["hwm"])
    figures = totals.read(known["totals"])
    if known["state"] != "finished":
        require_structure(db, figures.rows)
        events(db, known["events"])
        last = max((columns[0] for columns in _rows(db, _OUTCOMES)), default=-1)
        require(last < known["hwm"], f"row {last} has an outcome, but was not marked")
        for named, text in db.execute("SELECT digest, text FROM error"):
            require(digest(text) == named, "the checksum of an error does not match")
        spooled = sum(1 for _ in _rows(db, _SPOOL))
        require(known["spooled"] in (None, spooled), f"expected {known['spooled']} spooled rows, found {spooled}")
    return known


def _rows(db: sqlite3.Connection, query: str) -> Iterator[list[Any]]:
    """Yield the rows of a table without their checksums, after comparing them."""
    first = 0
    while page := db.execute(query, (first, _PAGE)).fetchall():
        for *columns, crc in page:
            if checksum(columns) != crc:
                raise Damage(f"the checksum of row {columns[0]} does not match")
            yield columns
        first = page[-1][0] + 1
