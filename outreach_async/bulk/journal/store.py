"""The writer's connection: transactions, and one error for whatever goes wrong, after which nothing more is written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any, Final
from weakref import finalize

from outreach_async.bulk.journal.making import SET, fact
from outreach_async.bulk.journal.peeking import NONSENSE
from outreach_async.bulk.journal.schema import address
from outreach_async.errors import InvalidRequest, JournalError, OutreachError

PATIENCE: Final = 10.0
"""Seconds to wait for a reader that is just recovering the file, or holds an older state."""


class Store:
    """A journal's tables, for one writer.

    Args:
        path: Of the journal.
        log: Which run it is of, whether the file says that a log is open, and how many commits there were.
    """

    def __init__(self, path: str, log: Mapping[str, Any]) -> None:
        self.path = path
        self._log = dict(log)
        self._failure: tuple[str, BaseException | None] | None = None
        with self._guarded():
            self._db = _connected(path, "rw")
        self._leave = finalize(self, _leave, path, self._db)  # also if nobody closes it, and when the interpreter exits
        self._use_log()

    def _use_log(self) -> None:
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
        """Open a transaction that is on the disk when the block ends, or never was: in the log, at first."""
        with self.reads() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                self._log["commits"] += 1
                self.set(db, "log", self._log)
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    with suppress(sqlite3.Error):  # some errors have rolled back already
                        db.execute("ROLLBACK")

    @contextmanager
    def begins(self) -> Iterator[sqlite3.Connection]:
        """Open the first transaction of a run. When the block ends, the file itself says that a log belongs to it.

        Raises:
            JournalError: A reader keeps the log from being moved into the file.
        """
        self._log["open"] = True
        with self.changes() as db:
            yield db
        self.move_log()

    def move_log(self) -> None:
        """Move all that is in the log into the file, so that it does not depend on the log.

        Raises:
            JournalError: A reader prevents it for too long.
        """
        with self.reads() as db:
            if not (_moved(db, "PASSIVE") or _moved(db, "FULL")):  # which waits for readers of an older state, up to `PATIENCE`
                raise sqlite3.OperationalError("a program that reads the journal keeps its log from being moved into the file")

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
        except OutreachError:
            raise
        except (sqlite3.Error, OSError, *NONSENSE) as error:
            message = f"journal {self.path}: {error}; mend the cause, such as a full disk, and go on with resume=True"
            self._failure = (message, error)
            raise JournalError(message) from error

    def set(self, db: sqlite3.Connection, name: str, value: object) -> None:
        """Set a fact about the run, inside a transaction."""
        db.execute(SET, fact(name, value))

    def close(self) -> None:
        """Close the connection; what is asked later is refused.

        Unless the file says that it needs no log, the log stays where it is: SQLite would remove it.
        """
        needed = True
        with suppress(JournalError):
            needed = not self._close_log()
        self._failure = (f"journal {self.path}: it was closed", None)
        if needed:
            self._leave()
        else:
            self._leave.detach()
            with suppress(sqlite3.Error):  # the file is whole
                self._db.close()

    def _close_log(self) -> bool:
        """Let the file say that no log belongs to it, once it holds all that is in the log; return whether it does.

        In two steps: a kill between the pages of one would leave a file that lacks some and denies its log.
        """
        if not self._log["open"]:
            return True
        with self.reads() as db:
            if not _moved(db, "PASSIVE"):
                return False
        self._log["open"] = False
        with self.changes() as db:
            pass
        with self.reads() as db:
            return _moved(db, "PASSIVE")


def _connected(path: str, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        address(path, f"mode={mode}"), uri=True, isolation_level=None, check_same_thread=False, timeout=PATIENCE
    )


def _leave(path: str, db: sqlite3.Connection) -> None:
    """Close a connection, and leave the log where it is, as a kill does."""
    with ExitStack() as stack:
        with suppress(sqlite3.Error):
            reader = stack.enter_context(closing(_connected(path, "ro")))
            reader.execute("SELECT count(*) FROM meta").fetchone()  # takes the lock that keeps SQLite from removing the log
        with suppress(sqlite3.Error):
            db.close()


def _moved(db: sqlite3.Connection, mode: str) -> bool:
    """Move what is in the log into the file; return whether that is all of it."""
    busy, logged, moved = db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    return bool(not busy and logged == moved)
