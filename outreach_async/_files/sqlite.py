"""Open SQLite files of users: one that is not ours stays as it is, and an error says where its cause is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

_MAGIC: Final = b"SQLite format 3\0"
_APPLICATION_ID: Final = slice(68, 72)  # https://sqlite.org/fileformat2.html#the_database_header
_EXTERNAL: Final = ("CANTOPEN", "FULL", "IOERR", "NOMEM", "PERM", "PROTOCOL", "READONLY")
_BUSY: Final = ("BUSY", "LOCKED")
_CODES: Final = {getattr(sqlite3, f"SQLITE_{name}"): name for name in (*_EXTERNAL, *_BUSY)}


class SqliteFile:
    """A file that SQLite reads, if it is one. Each connection must be closed by its caller."""

    # Only SQLite opens the file, if it can: if this process opened and closed the file itself, the operating system would drop
    # the locks of its other connections.

    def __init__(self, path: Path, *, timeout: float) -> None:
        """Open nothing yet. A connection waits up to `timeout` seconds for a lock."""
        self.path = path
        self._timeout = timeout

    def connect(self, mode: str) -> sqlite3.Connection:
        """Open the file. Any thread may use the connection, and transactions must be begun explicitly."""
        uri = f"{self.path.absolute().as_uri()}?{mode}"
        return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=self._timeout)

    @staticmethod
    @contextmanager
    def transaction(db: sqlite3.Connection) -> Iterator[None]:
        """Run the `with` block in a transaction that writes. If the block raises an exception, its changes are rolled back."""
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                with suppress(sqlite3.Error):  # some errors have already rolled back
                    db.execute("ROLLBACK")

    def is_pipe(self) -> bool:
        """Return whether the file is a named pipe, which SQLite would wait for, and no signal would end the process."""
        with suppress(OSError):  # such as a name that is too long, which the file's use reports
            return self.path.is_fifo()
        return False

    def application_id(self) -> int | None:
        """Return the application id in the header, without locks or recovery, which might change the file; `None` without one."""
        if self.is_pipe():
            return None
        with suppress(sqlite3.Error), closing(self.connect("mode=ro&immutable=1")) as db:
            ((found,),) = db.execute("PRAGMA application_id")
            return int(found)
        # The file is damaged, or a process was killed during a commit, which the next connection completes or rolls back.
        header = self.read_header()
        return int.from_bytes(header[_APPLICATION_ID]) if header.startswith(_MAGIC) else None

    def read_header(self) -> bytes:
        """Return the first bytes of a file that SQLite cannot read; nothing if there is none."""
        if not self.is_pipe():
            with suppress(OSError), self.path.open("rb") as file:
                return file.read(_APPLICATION_ID.stop)
        return b""

    @staticmethod
    def cause_of(error: Exception) -> Literal["busy", "outside", "inside"]:
        """Return whether an error is due to another connection, to something else outside of the file, or to the file itself."""
        if isinstance(error, OSError):
            return "outside"
        code = getattr(error, "sqlite_errorcode", None)  # the sqlite3 module's own errors, such as invalid UTF-8, have no code
        if code is None or code == sqlite3.SQLITE_IOERR_SHORT_READ:
            return "inside"
        name = _CODES.get(code & 0xFF)
        return "inside" if name is None else "busy" if name in _BUSY else "outside"
