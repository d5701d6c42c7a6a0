"""Write the run that the journal tests use, in a process that can be killed or obstructed.

Run: python -m tools.journal_child PATH_OR_URL [--die STEP] [--break STEP] [--file-size BYTES]

Starts or resumes the run, and prints a line after each durable commit. Exits with 0 when the run is finished, and with 3 after a
JournalError. `--die` kills the process after a commit, `--break` makes writes to the log fail after a commit, and `--file-size`
limits the size of every file.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from outreach_async import ContactOutcome, Outcome
from outreach_async._plumbing import is_url
from outreach_async.bulk._rows import PossiblySent
from outreach_async.errors import JournalError, StatusError
from outreach_async.store import Identity, Store
from outreach_async.store._records import MarkedWindow, read_metadata
from outreach_async.store._sqlite import FileDatabase
from outreach_async.store._writer import JournalWriter
from outreach_async.store._writer import open_journal as open_database

WINDOW = 20
WINDOWS = 30
ROWS = WINDOW * WINDOWS
IDENTITY = Identity("space_1", {"duplicates": "skip", "campaign": None}, source="rows.csv")


def outcome(index: int, status: Outcome = Outcome.ADDED, **values: Any) -> ContactOutcome:
    facts = {"contact": None, "id": f"contact_{index}", "possible": frozenset({status}), "attempts": 1, **values}
    return ContactOutcome(index=index, status=status, **facts)


def outcome_of(index: int) -> ContactOutcome:
    """Return the outcome of a row in this module's run: every seventh row is rejected, with a message that names the row."""
    if index % 7:
        return outcome(index)
    error = StatusError(f"row {index}: refused", operation="create_contact", status_code=422, attempts=2)
    return outcome(index, Outcome.REJECTED, id=None, attempts=2, error=error)


def window(first: int, rows: int = WINDOW, digest: bytes = b"12345678") -> MarkedWindow:
    return MarkedWindow(first, rows, digest)


def possibly_sent(*ranges: tuple[int, int]) -> PossiblySent:
    """Return the rows in half-open ranges of indexes, as rows that may have been sent."""
    return PossiblySent.of(ranges=ranges)


def recorded_identity(journal: Store) -> Identity:
    with journal._snapshot() as run_query:
        return Identity(**run_query(read_metadata)["identity"])


def open_journal(path: Path, identity: Identity = IDENTITY, *, resume: bool = False, **options: Any) -> JournalWriter:
    return open_database(FileDatabase(str(path)), identity, resume=resume, **{"earlier": "known", "wall": lambda: 0.0, **options})


def record_event(writer: JournalWriter, kind: str, data: Any) -> None:
    with writer.database.transaction() as transaction:
        writer._add_event(transaction, kind, data)


def steps(writer: JournalWriter) -> Iterator[str]:
    """Write the run to its end, and yield a description of what is durable after each commit."""
    for first in range(0, ROWS, WINDOW):
        if writer.window_at(first) is None:
            writer.mark(window(first))
            yield f"marked {writer.marked}"
        done = writer.completed_rows(first, WINDOW)
        for part in (range(first, first + 12), range(first + 12, first + WINDOW)):
            if left := [index for index in part if index not in done]:
                writer.record([outcome_of(index) for index in left])
                yield f"recorded {left[-1] + 1}"
    writer.end("finished")


def _break_log() -> None:
    """Make every later write to the log fail, by replacing its file descriptor with a read-only one."""
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink() and (name := str(entry.readlink())).endswith("-wal"):
            os.dup2(os.open(name, os.O_RDONLY), int(entry.name))


def _write(arguments: argparse.Namespace) -> None:
    url = arguments.path if is_url(arguments.path) else None
    writer = Store(url).writer(IDENTITY, resume=True) if url else open_journal(Path(arguments.path), resume=True)
    try:
        if arguments.break_at == 0:
            _break_log()
        for number, durable in enumerate(steps(writer), 1):
            os.write(1, f"{durable}\n".encode())
            if number == arguments.die:
                os.kill(os.getpid(), signal.SIGKILL)
            if number == arguments.break_at:
                _break_log()
    except JournalError:
        _require_poisoned(writer)
        raise
    finally:
        writer.close()


def _require_poisoned(writer: JournalWriter) -> None:
    """Check that every later call fails, even after the cause of the error is removed."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.getrlimit(resource.RLIMIT_FSIZE)[1],) * 2)
    for call in (
        lambda: writer.mark(window(writer.marked)),
        lambda: writer.record([]),
        lambda: writer.end("stopped"),
        lambda: record_event(writer, "x", {}),
        lambda: writer.completed_rows(0, 1),
    ):
        try:
            call()
        except JournalError:
            continue
        raise AssertionError("a call succeeded after a JournalError")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("--die", type=int)
    parser.add_argument("--break", type=int, dest="break_at")
    parser.add_argument("--file-size", type=int)
    arguments = parser.parse_args()
    if arguments.file_size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (arguments.file_size, arguments.file_size))
    try:
        _write(arguments)
    except JournalError:
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
