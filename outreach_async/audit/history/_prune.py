"""Delete snapshots from a history: old ones, and those of a clock that was ahead. The others stay as they were."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from outreach_async.audit.history._snapshot import insert
from outreach_async.audit.history._tables import CAMPAIGN, COLUMNS, DOMAIN, ENTITIES, STEP, Entity


def prune_older(db: sqlite3.Connection, at: float) -> int:
    """Delete the snapshots before a time, and the findings that were resolved in them. When the others began is kept."""
    times, began = _read_times(db)
    kept = sorted(snapshot for snapshot, moment in times.items() if moment >= at)
    for number, first, last, resolved, *values in _select(db, "findings"):
        if resolved is not None and times[resolved] < at:
            db.execute("DELETE FROM findings WHERE finding = ?", (number,))
        elif times[first] < at:
            insert(db, "openings", number, began.get(number, times[first]))
            start = _nearest(kept, first)
            insert(db, "findings", number, start, max(start, last), resolved, *values)
    return _delete(db, "at < ?", at)


def prune_later(db: sqlite3.Connection, at: float) -> int:
    """Delete the snapshots after a time, and the findings that began in them. Those that were resolved in them are open again."""
    times, began = _read_times(db)
    kept = sorted(snapshot for snapshot, moment in times.items() if moment <= at)
    for number, first, last, resolved, *values in _select(db, "findings"):
        if not kept or began.get(number, times[first]) > at:
            db.execute("DELETE FROM findings WHERE finding = ?", (number,))
            continue
        start = _nearest(kept, first)
        end = max(start, kept[max(0, bisect_right(kept, last) - 1)])
        is_open = resolved is None or times[resolved] > at
        insert(db, "findings", number, start, end, None if is_open else resolved, *values)
    return _delete(db, "at > ?", at)


def _read_times(db: sqlite3.Connection) -> tuple[dict[int, float], dict[int, float]]:
    """Return the times of the snapshots, and when the findings began whose first snapshot was deleted."""
    return dict(db.execute("SELECT snapshot, at FROM snapshots")), dict(db.execute("SELECT finding, at FROM openings"))


def _nearest(kept: Sequence[int], snapshot: int) -> int:
    """Return the first snapshot that is kept and not before a snapshot, or else the last one."""
    return kept[min(bisect_left(kept, snapshot), len(kept) - 1)]


def _select(db: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    return db.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table}").fetchall()  # noqa: S608 - names of this package


def _delete(db: sqlite3.Connection, condition: str, at: float) -> int:
    deleted = db.execute(f"DELETE FROM snapshots WHERE {condition}", (at,)).rowcount  # noqa: S608 - text of this module
    db.execute("DELETE FROM workspaces WHERE snapshot NOT IN (SELECT snapshot FROM snapshots)")
    db.execute("DELETE FROM openings WHERE finding NOT IN (SELECT finding FROM findings)")
    for entity in ENTITIES:
        _cut_entity(db, entity)
    first, last = db.execute("SELECT coalesce(min(day), 1), coalesce(max(day), 0) FROM snapshots").fetchone()
    db.execute("DELETE FROM days WHERE day NOT BETWEEN ? AND ?", (first, last))
    return deleted


def _cut_entity(db: sqlite3.Connection, entity: Entity) -> None:
    """Let each row begin and end with a snapshot in which its workspace was read. Delete rows that no snapshot has."""
    condition = "campaigns IS NOT NULL" if entity in {CAMPAIGN, STEP} else "reading <> 'none'"
    about = f"SELECT workspace, snapshot FROM workspaces WHERE {condition} ORDER BY snapshot"  # noqa: S608 - text of this module
    keys = f"SELECT DISTINCT {entity.key}, workspace FROM {entity.table}"  # noqa: S608 - names of this package
    if entity is DOMAIN:  # a domain may have mailboxes of every workspace
        about, keys = "SELECT '', snapshot FROM snapshots ORDER BY snapshot", "SELECT DISTINCT number, '' FROM domains"
    read: defaultdict[str, list[int]] = defaultdict(list)
    for workspace, snapshot in db.execute(about):
        read[workspace].append(snapshot)
    spaces = dict(db.execute(keys).fetchall())
    for table in (entity.table, entity.figure_table):
        for key, first, last, *values in _select(db, table):
            known = read[spaces[key]]
            valid = known[bisect_left(known, first) : bisect_right(known, last)]
            if not valid or (valid[0], valid[-1]) != (first, last):
                db.execute(f"DELETE FROM {table} WHERE first = ? AND {entity.key} = ?", (first, key))  # noqa: S608 - names of this package
                if valid:
                    insert(db, table, key, valid[0], valid[-1], *values)
