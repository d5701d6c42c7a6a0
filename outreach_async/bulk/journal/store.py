"""The writer's connection to a journal. Every failure becomes a JournalError, after which nothing more is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any
from weakref import finalize

from outreach_async.bulk.journal.reader import connect
from outreach_async.bulk.journal.records import DECODING_ERRORS, SET_METADATA, encode_metadata
from outreach_async.errors import InvalidRequest, JournalError, OutreachError


class Store:
    """The SQLite connection of a journal's single writer.

    Args:
        path: Path of the journal.
        log: State of the write-ahead log: the run that wrote it, whether the journal's file marks it as open, and the number of
            commits.
    """

    def __init__(self, path: str, log: Mapping[str, Any]) -> None:
        self.path = path
        self._log = dict(log)
        self._failure: tuple[str, BaseException | None] | None = None
        with self._translate_errors():
            self._db = connect(path, "mode=rw")
        # Runs even if `close` is never called, and at interpreter exit.
        self._close_keeping_log = finalize(self, _close_keeping_log, path, self._db)
        self._enable_log()

    def _enable_log(self) -> None:
        """Switch to a write-ahead log, and make each commit reach the disk before it returns.

        Raises:
            InvalidRequest: The file system has no shared memory for the log's index.
        """
        with self.connection() as db:
            db.execute("PRAGMA synchronous = FULL")
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != ("wal",):
            raise InvalidRequest(f"journal: {self.path} is on a file system without shared memory; pass a path on a local disk")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block in a transaction. Afterwards, its changes are in the log, on the disk.

        If the block raises, its changes are undone.
        """
        with self.connection() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                self._log["commits"] += 1
                self.set_metadata(db, "log", self._log)
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    with suppress(sqlite3.Error):  # some errors have already rolled back
                        db.execute("ROLLBACK")

    @contextmanager
    def first_transaction(self) -> Iterator[sqlite3.Connection]:
        """Run the block in the first transaction of a run. Afterwards, the file itself states that a log is open.

        Raises:
            JournalError: A program that reads the journal prevents the log from being moved into the file.
        """
        self._log["open"] = True
        with self.transaction() as db:
            yield db
        self.move_log()

    def move_log(self) -> None:
        """Move the contents of the log into the file, so that they no longer depend on the log.

        Raises:
            JournalError: A program that reads the journal prevents this for more than 10 seconds.
        """
        with self.connection() as db:
            # FULL waits for readers of an older state, up to 10 seconds; PASSIVE waits for nobody, and is usually enough.
            if not (_checkpoint_log(db, "PASSIVE") or _checkpoint_log(db, "FULL")):
                raise sqlite3.OperationalError("the log cannot be checkpointed, because another program is reading the journal")

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """Provide the connection for a block, and convert errors that the block raises.

        Raises:
            JournalError: The block fails, or an earlier block failed.
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
        except OutreachError:
            raise
        except (sqlite3.Error, OSError, *DECODING_ERRORS) as error:
            message = f"journal {self.path}: {error}; fix the cause (e.g. disk full) and resume the run"
            self._failure = (message, error)
            raise JournalError(message) from error

    def set_metadata(self, db: sqlite3.Connection, name: str, value: object) -> None:
        """Set an entry of the run's metadata. Call this only inside a transaction."""
        db.execute(SET_METADATA, encode_metadata(name, value))

    def close(self) -> None:
        """Close the connection; later calls raise JournalError.

        When SQLite closes the file, it removes the log. This is prevented, unless the whole log was first moved into the file.
        """
        complete = False
        with suppress(JournalError):
            complete = self._close_log()
        self._failure = (f"journal {self.path} is closed; open it again", None)
        if complete:
            self._close_keeping_log.detach()
            with suppress(sqlite3.Error):  # the file is complete in any case
                self._db.close()
        else:
            self._close_keeping_log()

    def _close_log(self) -> bool:
        """Move the log into the file, then make the file state that no log is open; return whether both steps succeeded.

        If this were a single step, a kill during it could leave a file that states that no log is open, but lacks pages.
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
    """Close a connection, but leave the log in place, as if the process had been killed."""
    with ExitStack() as stack:
        with suppress(sqlite3.Error):
            reader = stack.enter_context(closing(connect(path, "mode=ro")))
            reader.execute("SELECT count(*) FROM meta").fetchone()  # this reader's lock keeps SQLite from removing the log
        with suppress(sqlite3.Error):
            db.close()


def _checkpoint_log(db: sqlite3.Connection, mode: str) -> bool:
    """Move the log into the file; return whether all of it was moved."""
    busy, logged, moved = db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return bool(not busy and logged == moved)
