"""A second night: the cost of a row that a ledger knows, beside sending every row again and a plain SQLite lookup."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from benchmarks.groups.rounds import Bench, Job, into
from benchmarks.measuring import Figures, Spent, run, spending
from benchmarks.peers.nothing import NullTransport
from benchmarks.results import Table
from benchmarks.workload import FIELDS, OWNER_KEY, WORKSPACE, email
from outreach_async import OutreachClient

_ROWS: Final = 100_000
_CHANGED: Final = 100
"""One of this many rows is changed in the second night."""
_LOOKUP: Final = "a plain SQLite lookup, one by one"
_LEDGER: Final = "create_many, ledger"
_AWAITED: Final = "create_many, ledger, awaited"
_JOURNAL: Final = "create_many, journal"


def _rows(count: int, night: int) -> Iterator[dict[str, str]]:
    for number in range(count):
        row = {"email": email(number), **FIELDS}
        if night and not number % _CHANGED:
            row["city"] = f"city {night}"
        yield row


async def _night(folder: str, count: int, night: int, *, ledger: bool, iterate: bool = True) -> None:
    async with OutreachClient(transport=NullTransport(), owner_key=OWNER_KEY, workspace=WORKSPACE) as client:
        run = client.contacts.create_many(
            _rows(count, night),
            duplicates="overwrite",
            ledger=f"{folder}/contacts.ledger" if ledger else None,
            journal=None if ledger else f"{folder}/{night}.db",
        )
        if not iterate:
            await run
            return
        async with run as outcomes:
            async for _ in outcomes:
                pass


async def _second_night(count: int, *, ledger: bool, iterate: bool = True) -> Spent:
    with TemporaryDirectory() as folder:
        if ledger:
            await _night(folder, count, 0, ledger=True)
        with spending() as spent:
            await _night(folder, count, 1, ledger=ledger, iterate=iterate)
    return spent


async def _look_up(count: int) -> Spent:
    keys = [number * 2654435761 % 2**61 for number in range(count)]
    with TemporaryDirectory() as folder, closing(sqlite3.connect(f"{folder}/keys.db", isolation_level=None)) as db:
        db.execute("CREATE TABLE entry (key INTEGER PRIMARY KEY, digest, state, crc, id)")
        db.execute("BEGIN")
        db.executemany("INSERT INTO entry VALUES (?, ?, ?, ?, ?)", [(key, key >> 13, 33554432, 7, b"x" * 12) for key in keys])
        db.execute("COMMIT")
        await anyio.lowlevel.checkpoint()
        with spending() as spent:
            for key in keys:
                db.execute("SELECT digest, state, crc, id FROM entry WHERE key = ?", (key,)).fetchone()
    return spent


def measure(row: str, count: int) -> Figures:
    """Measure one row. Runs in the worker process."""
    work = {
        _LEDGER: lambda: _second_night(count, ledger=True),
        _AWAITED: lambda: _second_night(count, ledger=True, iterate=False),
        _JOURNAL: lambda: _second_night(count, ledger=False),
        _LOOKUP: lambda: _look_up(count),
    }
    return run(work[row]()).each(count)


def ledger(bench: Bench) -> list[Table]:
    """Measure a second night in which one row of a hundred has changed."""
    table = Table("A second night, 1 % of the rows changed, over a transport that answers at once", "CPU, us a row", (_LOOKUP,))
    count = bench.sized(_ROWS)
    rows = _LOOKUP, _AWAITED, _LEDGER, _JOURNAL
    jobs = [Job(row, f"{count:,} rows", measure, {"row": row, "count": count}) for row in rows]
    bench.interleave(jobs, into(table), rounds=3)
    table.notes.append("The run with a journal sends every row. Each row is a dict with fifteen fields, built on demand.")
    return [table]
