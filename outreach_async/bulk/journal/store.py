"""The writer's connection: transactions, and one error for whatever goes wrong, after which nothing more is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from outreach_async.bulk.journal.records import as_text
from outreach_async.bulk.journal.schema import APPLICATION_ID, FORMAT, TABLES, address
from outreach_async.errors import InvalidRequest, JournalError

PATIENCE: Final = 10.0
"""Seconds to wait for a reader that is just recovering the file."""

_SET: Final = "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value"


class Store:
    """A journal's tables, for one writer."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._failure: tuple[str, BaseException | None] | None = None
        with self._guarded():
            self._db = sqlite3.connect(
                address(path, "mode=rw"), uri=True, isolation_level=None, check_same_thread=False, timeout=PATIENCE
            )

    def begin(self, meta: dict[str, Any]) -> bool:
        """Make the tables unless they are there; return whether they were not.

        The header is written before the WAL begins, so that the file itself always says what it is.
        """
        with self.changes() as db:
            if db.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,):
                return False
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {FORMAT}")
            for table in TABLES:
                db.execute(table)
            for name, value in meta.items():
                self.set(db, name, value)
        return True

    def use_log(self) -> None:
        """Write ahead, and let each commit reach the disk before it returns.

        Raises:
            InvalidRequest: The file system has no shared memory for the log's index.
        """
        with self.reads() as db:
            db.execute("PRAGMA synchronous = FULL")
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != ("wal",):
            raise InvalidRequest(f"journal: {self.path} is on a file system without shared memory; name a file on a local disk")

    @contextmanager
    def changes(self) -> Iterator[sqlite3.Connection]:
        """Open a transaction that is on the disk when the block ends, or never was."""
        with self.reads() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    with suppress(sqlite3.Error):  # some errors have rolled back already
                        db.execute("ROLLBACK")

    @contextmanager
    def reads(self) -> Iterator[sqlite3.Connection]:
        """Give the connection out.

        Raises:
            JournalError: Something goes wrong now, or did before.
        """
        if self._failure is not None:
            message, cause = self._failure
            raise JournalError(message) from cause
        with self._guarded():
            yield self._db

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            message = f"journal {self.path}: {error}; mend the cause, such as a full disk, and go on with resume=True"
            self._failure = (message, error)
            raise JournalError(message) from error

    def set(self, db: sqlite3.Connection, name: str, value: object) -> None:
        """Set a fact about the run, inside a transaction."""
        db.execute(_SET, (name, as_text(value)))

    def close(self) -> None:
        """Close the connection; what is asked later is refused."""
        self._failure = (f"journal {self.path}: it was closed", None)
        with suppress(sqlite3.Error):  # what is in the log stays there, and counts
            self._db.close()
