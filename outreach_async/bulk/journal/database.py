"""The database of a journal's writer. Every failure raises a JournalError, after which nothing more is written."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, Final, TypeAlias
from weakref import finalize

from outreach_async.bulk.journal.lock import JournalLock
from outreach_async.bulk.journal.reader import connect
from outreach_async.bulk.journal.records import DECODING_ERRORS, SET_METADATA, encode_metadata
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
    "outcomes": _insert_many("INSERT", "outcome", "seq, status, id, attempts, possible, error, repeats, crc"),
    # OR IGNORE: an error is stored once for all its rows.
    "errors": _insert_many("INSERT OR IGNORE", "error", "digest, text"),
    "event": "INSERT INTO event (number, at, kind, data, crc) VALUES (?, ?, ?, ?, ?)",
    # OR REPLACE: an existing row was written by a process that was killed while spooling.
    "spool": _insert_many("INSERT OR REPLACE", "spool", "seq, key, payload, crc"),
    "truncate spool": "DELETE FROM spool WHERE seq >= ?",
}
"""Every statement that changes a journal, by name. Never change a name: `ObjectJournal` stores the names."""


class Transaction:
    """A transaction of a journal's writer, with a list of the changes made in it.

    Attributes:
        changes: The changes made so far, in order.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self.changes: list[Change] = []
        self._db = db

    def apply(self, name: str, *values: Any) -> None:
        """Execute a statement of `STATEMENTS` with these values."""
        self._db.execute(STATEMENTS[name], values)
        self.changes.append((name, *values))

    def set_metadata(self, name: str, value: object) -> None:
        """Set an entry of the run's metadata."""
        self.apply("metadata", *encode_metadata(name, value))


class Database(ABC):
    """The database of a journal's single writer.

    Args:
        name: Name of the journal, for messages.
    """

    _db: sqlite3.Connection

    def __init__(self, name: str) -> None:
        self.name = name
        self._failure: tuple[str, BaseException | None] | None = None

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run the `with` block in a transaction. After the commit, its changes are durable.

        If the block raises an exception, its changes are rolled back.
        """
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

    @contextmanager
    def first_transaction(self) -> Iterator[Transaction]:
        """Run the `with` block in the first transaction of a run."""
        with self.transaction() as transaction:
            yield transaction

    @contextmanager
    def mark_transaction(self) -> Iterator[Transaction]:
        """Run the `with` block in a transaction that marks rows as possibly sent.

        The rows are sent after the transaction. If the marks were lost, a resumed run would treat the rows as not sent.
        """
        with self.transaction() as transaction:
            yield transaction

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Provide the connection for a `with` block, and convert exceptions of the block to JournalError.

        Raises:
            JournalError: This block or an earlier block failed.
        """
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

    @abstractmethod
    def close(self) -> None:
        """Close the connection. Later calls of other methods raise JournalError."""


class FileDatabase(Database):
    """The SQLite file of a journal.

    "The log" is SQLite's write-ahead log. A checkpoint copies its contents into the journal's file. The log is marked as open
    while it may contain changes that the file lacks.

    Args:
        path: Path of the journal.
        log: The last stored state of the log. `run` is the id of the run that wrote the log. `open` is whether the log is marked
            as open. `commits` is the number of transactions committed to the journal.
        lock: The lock on the file, which is released when the database is closed.
    """

    def __init__(self, path: str, log: Mapping[str, Any], lock: JournalLock) -> None:
        super().__init__(path)
        self._log = dict(log)
        self._lock = lock
        with self._translate_errors():
            self._db = connect(path, "mode=rw")
        # Runs even if `close` is never called, and at interpreter exit.
        self._close_keeping_log = finalize(self, _close_keeping_log, path, self._db)
        self._enable_log()

    def _enable_log(self) -> None:
        """Switch to a write-ahead log, and make each commit wait until its changes are on the disk.

        Raises:
            InvalidRequest: The file system does not support shared memory, which SQLite needs for the index of the log.
        """
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
    def first_transaction(self) -> Iterator[Transaction]:
        """Run the `with` block in the first transaction of a run, and mark the write-ahead log as open in the journal's file.

        Raises:
            JournalError: A program that reads the journal prevents SQLite from checkpointing the write-ahead log.
        """
        self._log["open"] = True
        with self.mark_transaction() as transaction:
            yield transaction

    @contextmanager
    def mark_transaction(self) -> Iterator[Transaction]:
        """Run the `with` block in a transaction, and checkpoint the write-ahead log after it.

        The changes of the transaction then survive the loss of the log.

        Raises:
            JournalError: A program that reads the journal prevents SQLite from checkpointing the write-ahead log.
        """
        with self.transaction() as transaction:
            yield transaction
        self.move_log()

    def move_log(self) -> None:
        """Checkpoint the write-ahead log: copy its contents into the journal's file, so that they survive the loss of the log.

        Raises:
            JournalError: A program that reads the journal blocks the checkpoint for more than 10 seconds.
        """
        with self.connection() as db:
            # FULL waits for readers of an older state, up to 10 seconds; PASSIVE never waits, and is usually enough.
            if not (_checkpoint_log(db, "PASSIVE") or _checkpoint_log(db, "FULL")):
                raise sqlite3.OperationalError(
                    "the write-ahead log cannot be checkpointed, because another program is reading the journal"
                )

    def close(self) -> None:
        """Checkpoint the write-ahead log, and close the connection. Later calls of other methods raise JournalError.

        If the checkpoint fails, the log is kept, because the journal's file is incomplete without the log. The journal's lock is
        released last, because its release also drops SQLite's own locks on the file.
        """
        complete = False
        with suppress(JournalError):
            complete = self._close_log()
        self._failure = (f"journal {self.name} is closed; open it again", None)
        if complete:
            self._close_keeping_log.detach()
            with suppress(sqlite3.Error):  # the file is complete in any case
                self._db.close()
        else:
            self._close_keeping_log()
        self._lock.release()

    def _close_log(self) -> bool:
        """Checkpoint the write-ahead log, and then mark it as closed in the journal's file. Return whether both succeeded.

        The mark needs a second checkpoint. If one checkpoint copied both the changes and the mark, a process killed during the
        checkpoint could leave a file with the mark, but without some of the changes.
        """
        if not self._log["open"]:
            return True
        with self.connection() as db:
            if not _checkpoint_log(db, "PASSIVE"):
                return False
            self._log["open"] = False
            with self.transaction():
                pass
            return _checkpoint_log(db, "PASSIVE")


def _close_keeping_log(path: str, db: sqlite3.Connection) -> None:
    """Close a connection without removing the write-ahead log, as if the process had been killed."""
    with ExitStack() as stack:
        with suppress(sqlite3.Error):
            reader = stack.enter_context(closing(connect(path, "mode=ro")))
            reader.execute("SELECT count(*) FROM meta").fetchone()  # this reader's lock keeps SQLite from removing the log
        with suppress(sqlite3.Error):
            db.close()


def _checkpoint_log(db: sqlite3.Connection, mode: str) -> bool:
    """Checkpoint the write-ahead log, and return whether the whole log was copied into the journal's file."""
    busy, logged, moved = db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return bool(not busy and logged == moved)
