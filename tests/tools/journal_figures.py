"""Measure the costs of a journal: bytes per row, rows per second, the time to resume, and commits beside a busy thread.

Run: python -m tools.journal_figures [--rows 1000000] [--batch 500] [--seed 1]

Exits with 1 if a row takes more than 60 bytes, or if resuming the finished run takes more than 3 seconds.
"""

from __future__ import annotations

import argparse
import random
import resource
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.journal_child import open_journal, outcome, window

from outreach_async.bulk.journal import Journal
from outreach_async.bulk.journal.records import encode_batch
from outreach_async.bulk.outcomes import ContactOutcome
from outreach_async.errors import StatusError
from outreach_async.vocabulary import Outcome

WINDOW = 1_000
LIMIT = 60.0
PATIENCE = 3.0
REFUSED = StatusError("email: not an address", operation="create_contact", status_code=422, attempts=1)
COLUMNS = ", ".join(f"json_extract(value, '$[{at}]')" for at in range(7))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def rows_of(first: int, count: int, chance: random.Random) -> list[ContactOutcome]:
    """Return realistic outcomes: ids with 24 hexadecimal digits, and one rejected row in a hundred."""
    return [
        outcome(index, id=f"contact_{chance.getrandbits(96):024x}")
        if index % 100
        else outcome(index, Outcome.REJECTED, id=None, error=REFUSED)
        for index in range(first, first + count)
    ]


@contextmanager
def busy() -> Iterator[None]:
    """Keep the interpreter lock busy, as a fully loaded event loop does."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            sum(range(500))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def one_statement(db: sqlite3.Connection, outcomes: list[ContactOutcome]) -> None:
    """Insert a batch with one statement, as the journal's writer does."""
    db.execute(f"INSERT INTO t SELECT {COLUMNS} FROM json_each(?)", (encode_batch(outcomes)[0],))  # noqa: S608 - the columns are constant


def many_statements(db: sqlite3.Connection, outcomes: list[ContactOutcome]) -> None:
    """Insert a batch with `executemany`."""
    facts = [(each.index, 0, each.id, each.attempts, None, None, None) for each in outcomes]
    db.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", facts)


def milliseconds(
    folder: Path, insert: Callable[[sqlite3.Connection, list[ContactOutcome]], None], size: int, *, beside: bool
) -> float:
    """Return the median duration of inserting and committing a batch, in milliseconds."""
    db = sqlite3.connect(folder / f"{insert.__name__}{beside}.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE t (seq INTEGER PRIMARY KEY, b, c, d, e, f, g)")
    chance, times = random.Random(1), []  # noqa: S311 - reproducible, not secret

    def commits() -> None:
        for number in range(15):
            outcomes = rows_of(number * size, size, chance)
            began = time.perf_counter()
            db.execute("BEGIN IMMEDIATE")
            insert(db, outcomes)
            db.execute("COMMIT")
            times.append(time.perf_counter() - began)

    if beside:
        with busy():
            commits()
    else:
        commits()
    db.close()
    return sorted(times)[len(times) // 2] * 1000


def written(path: Path, rows: int, size: int, chance: random.Random) -> None:
    """Write the journal of a complete run."""
    writer = open_journal(path)
    for first in range(0, rows, WINDOW):
        writer.mark(window(first, WINDOW, chance.randbytes(8)))
        for part in range(first, first + WINDOW, size):
            writer.record(rows_of(part, min(size, first + WINDOW - part), chance))
    writer.end("finished")
    writer.close()


def timed(what: str, call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    took = time.perf_counter() - began
    say(f"{what}: {took:.3f} s")
    return took


def resumed(path: Path) -> None:
    writer = open_journal(path, resume=True)
    assert writer.finished
    writer.create_counts()
    writer.close()


def spooled(path: Path, rows: int) -> None:
    writer = open_journal(path)
    payload = b'{"email":"user%d@a.example","first_name":"Ann","last_name":"Example","company_name":"Example Ltd","city":"Rome"}'
    for first in range(0, rows, WINDOW):
        emails = [index - index % 50 // 49 for index in range(first, first + WINDOW)]
        writer.spool([(first + at, f"user{email}@a.example", payload % email) for at, email in enumerate(emails)])
    writer.end_spool(rows)
    for first in range(0, rows, WINDOW):
        assert len(writer.spooled_rows(first, WINDOW, "coalesce")) == WINDOW
    writer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parsed = parser.parse_args()
    rows, chance = parsed.rows - parsed.rows % WINDOW, random.Random(parsed.seed)  # noqa: S311 - reproducible, not secret
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for insert in (one_statement, many_statements):
            alone, beside = (milliseconds(folder, insert, parsed.batch, beside=beside) for beside in (False, True))
            say(f"{insert.__name__}: {parsed.batch} rows in {alone:.1f} ms alone, {beside:.1f} ms beside a busy thread (median)")
        path = folder / "run.db"
        took = timed(f"written, {rows} rows", lambda: written(path, rows, parsed.batch, chance))
        each = path.stat().st_size / rows
        say(f"{rows / took:.0f} rows per second, {each:.1f} bytes per row")
        resume = timed("resumed when finished", lambda: resumed(path))
        timed("reported", lambda: Journal(path).report())
        timed("read", lambda: sum(1 for _ in Journal(path).outcomes()))
        timed("spooled and read back with repeats merged", lambda: spooled(folder / "spool.db", rows))
        say(f"spool: {(folder / 'spool.db').stat().st_size / rows:.0f} bytes per row")
        say(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
    return int(each > LIMIT or resume > PATIENCE)


if __name__ == "__main__":
    sys.exit(main())
