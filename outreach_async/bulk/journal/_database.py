"""The database of a journal's writer. Every failure raises a JournalError, after which nothing more is written."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import Any, Final, TypeAlias

from outreach_async.bulk.journal._lock import JournalLock
from outreach_async.bulk.journal._reader import connect
from outreach_async.bulk.journal._records import DECODING_ERRORS, SET_METADATA, checksum, encode_metadata
from outreach_async.errors import InvalidRequest, JournalError

Change: TypeAlias = tuple[Any, ...]
"""A change to a journal: the name of a statement in `STATEMENTS`, followed by the values of the statement."""


def _insert_many(verb: str, table: str, columns: str) -> str:
    """Return an SQL statement that inserts the rows of a JSON array."""
    # One statement inserts many rows. Each step of a statement releases the GIL, and a busy event loop delays reacquiring
    # the GIL.
    values = ", ".join(f"json_extract(value, '$[{position}]')" for position in range(len(columns.split(", "))))
    return f"{verb} INTO {table} ({columns}) SELECT {values} FROM json_each(?)"  # noqa: S608 - names of this module


STATEMENTS: Final[Mapping[str, str]] = {
    "metadata": SET_METADATA,
    "window": "INSERT INTO window (first, rows, digest, crc) VALUES (?, ?, ?, ?)",
    # A plain INSERT: a second outcome for a row is an error.
    "outcomes": _insert_many("INSERT", "outcome", "seq, status, id, attempts, possible, error, repeats, target, crc"),
    "target": "INSERT INTO target (number, workspace, campaign, crc) VALUES (?, ?, ?, ?)",
    # OR IGNORE: an error is stored once for all its rows.
    "errors": _insert_many("INSERT OR IGNORE", "error", "digest, text"),
    "event": "INSERT INTO event (number, at, kind, data, crc) VALUES (?, ?, ?, ?, ?)",
    # OR REPLACE: an existing row was written by a process that was killed while spooling.
    "spool": _insert_many("INSERT OR REPLACE", "spool", "seq, key, payload, crc"),
    "truncate spool": "DELETE FROM spool WHERE seq >= ?",
}
"""Every statement that changes a journal, by name. Never change a name: `ObjectJournal` stores the names."""


class Transaction:
    """A transaction of a journal's writer, with a list of the changes made in it."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.changes: list[Change] = []
        self._db = db

    def apply(self, name: str, *values: Any) -> None:
        """Execute a statement of `STATEMENTS` with these values."""
        self._db.execute(STATEMENTS[name], values)
        self.changes.append((name, *values))

    def insert(self, name: str, *columns: Any) -> None:
        """Execute a statement with these values and their checksum."""
        self.apply(name, *columns, checksum(columns))

    def set_metadata(self, name: str, value: object) -> None:
        """Set an entry of the run's metadata."""
        self.apply("metadata", *encode_metadata(name, value))


class Database(ABC):
    """The database of a journal's single writer."""

    _db: sqlite3.Connection

    def __init__(self, name: str) -> None:
        self.name = name
        self._failure: tuple[str, BaseException | None] | None = None

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run the `with` block in a transaction. After the commit, its changes are durable."""
        # If the block raises an exception, its changes are rolled back.
        with self.connection() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield (transaction := Transaction(db))
                self._before_commit(transaction)
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    with suppress(sqlite3.Error):  # some errors have already rolled back
                        db.execute("ROLLBACK")

    def mark_transaction(self) -> AbstractContextManager[Transaction]:
        """Run the `with` block in a transaction whose loss would cause false labels: rows are sent after it."""
        return self.transaction()

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Provide the connection for a `with` block, and convert exceptions of the block to JournalError."""
        if self._failure is not None:
            message, cause = self._failure
            raise JournalError(message) from cause
        with self._translate_errors():
            yield self._db

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except JournalError as error:
            self._failure = self._failure or (str(error), error.__cause__)
            raise
        except (sqlite3.Error, OSError, *DECODING_ERRORS) as error:
            message = f"journal {self.name}: {error}; fix the cause (e.g. disk full) and resume the run"
            self._failure = (message, error)
            raise JournalError(message) from error

    @abstractmethod
    def _before_commit(self, transaction: Transaction) -> None:
        """Add the final changes to a transaction, just before its commit."""

    @property
    def heartbeat_due(self) -> float | None:
        """The current time on the writer's clock, if a heartbeat is due before the next row is sent; otherwise `None`."""
        return None

    @abstractmethod
    def heartbeat(self, due: float) -> None:
        """Write a heartbeat, unless another write that started at or after the time `due` has already succeeded."""

    def close(self) -> None:
        """Close the connection. Later calls of other methods raise JournalError."""
        self._failure = (f"journal {self.name} is closed; open it again", None)
        with suppress(sqlite3.Error):
            self._db.close()


class FileDatabase(Database):
    """The SQLite file of a journal."""

    # Each commit is written to SQLite's write-ahead log, "the log", and then copied into the file by a checkpoint. If the process
    # is killed in between, the log completes the file. Between commits, the file is complete, so any program may remove the log.
    # A reader of an older state delays the copying. Only marks wait for it: if later outcomes are lost with the log, their rows
    # count as possibly sent.

    def __init__(self, path: str, log: Mapping[str, Any], lock: JournalLock) -> None:
        super().__init__(path)
        self._log = dict(log)
        self._lock = lock
        with self._translate_errors():
            self._db = connect(path, "mode=rw")
        with ExitStack() as stack:
            stack.callback(self._db.close)
            self._enable_log()
            stack.pop_all()

    def _enable_log(self) -> None:
        """Switch to a write-ahead log, and make each commit wait until its changes are on the disk."""
        with self.connection() as db:
            db.execute("PRAGMA synchronous = FULL")
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != ("wal",):
            raise InvalidRequest(
                f"journal: {self.name} is on a file system without shared memory;"
                " pass a path on a local disk, and move an existing journal there"
            )

    def _before_commit(self, transaction: Transaction) -> None:
        self._log["commits"] += 1
        transaction.set_metadata("log", self._log)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run the `with` block in a transaction, and then copy its changes into the file unless a reader delays this."""
        with super().transaction() as transaction:
            yield transaction
        self._copy_log("PASSIVE")

    @contextmanager
    def mark_transaction(self) -> Iterator[Transaction]:
        """Run the `with` block in a transaction, and copy its changes into the file, so that they survive the loss of the log."""
        with self.transaction() as transaction:
            yield transaction
        with self._translate_errors():
            if not self._copy_log("FULL"):
                raise OSError("the write-ahead log cannot be checkpointed, because another program is reading the journal")

    def _copy_log(self, mode: str) -> bool:
        """Copy the log into the file. Return whether all of it was copied: FULL waits for readers, PASSIVE does not."""
        with self.connection() as db:
            busy, logged, copied = db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return bool(not busy and logged == copied)

    def heartbeat(self, due: float) -> None:
        """Do nothing: a lock prevents a takeover, so no heartbeat is due."""

    def close(self) -> None:
        """Close the connection, which removes the log unless a reader uses it. Later calls raise JournalError."""
        # The journal's lock is released last, because its release also drops SQLite's own locks on the file.
        super().close()
        self._lock.release()
