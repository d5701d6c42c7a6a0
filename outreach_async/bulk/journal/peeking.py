"""Asking a journal one question without touching it, whoever is writing it.

A file with a log beside it is being written, or its writer was killed: SQLite reads both, under locks, with the log's index
opened for reading only, so that it neither makes nor mends one. A file without a log is whole, and is read as one that never
changes; if it did change meanwhile, because a writer came, the question is asked again. No descriptor of our own is ever
opened: closing it would drop the locks of a writer in this very process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, Self, TypeVar

import attrs

from outreach_async.bulk.journal.schema import APPLICATION_ID, FORMAT, address
from outreach_async.errors import InvalidRequest, JournalError, OutreachError

T = TypeVar("T")

_PATIENCE: Final = 10.0
_TRIES: Final = 100
_LOG_HEADER: Final = 32
"""Bytes of a log without any frame. A writer that is killed just after them leaves a log that SQLite waits for without end if it
may only read. It holds nothing, so the file is whole without it."""


@attrs.frozen
class _File:
    inode: int
    size: int
    changed: int


@attrs.frozen
class _Facts:
    """What tells whether a journal was given up or taken up by a writer.

    Attributes:
        file: The file; `None` if there is none.
        logged: Whether a frame is in the log beside it.
        indexed: Whether the log has its index.
        undone: Whether the file was never finished: its writer was killed while it made it.
    """

    file: _File | None
    logged: bool
    indexed: bool
    undone: bool

    @classmethod
    def of(cls, path: Path) -> Self:
        """Look at the files, without opening one."""
        file, log, index, draft = (_file(path.with_name(path.name + ending)) for ending in ("", "-wal", "-shm", "-journal"))
        return cls(
            file=file,
            logged=log is not None and log.size > _LOG_HEADER,
            indexed=index is not None,
            undone=(file is not None and file.size == 0) or (draft is not None and draft.size > 0),
        )


def asked(path: Path, question: Callable[[sqlite3.Connection], T]) -> T:
    """Return the answer to a question about a journal.

    Raises:
        InvalidRequest: There is no journal.
        JournalError: It cannot be read.
    """
    path = path.resolve()
    for _ in range(_TRIES):
        before = _Facts.of(path)
        _require_readable(path, before)
        failure: sqlite3.Error | None = None
        try:
            answer = _answered(path, before, question)
        except sqlite3.Error as error:
            failure = error
        settled = _Facts.of(path) == before
        if failure is None and (before.logged or settled):
            return answer
        if failure is not None and settled:
            raise unreadable(path, failure) from failure
    raise JournalError(f"journal {path}: it changes faster than it can be read; try again")


def _answered(path: Path, facts: _Facts, question: Callable[[sqlite3.Connection], T]) -> T:
    mode = "mode=ro&readonly_shm=1" if facts.logged else "mode=ro&immutable=1"
    with closing(sqlite3.connect(address(path, mode), uri=True, isolation_level=None, timeout=_PATIENCE)) as db:
        _require_ours(path, db)
        db.execute("BEGIN")
        return question(db)


def _require_readable(path: Path, facts: _Facts) -> None:
    if facts.file is None:
        raise InvalidRequest(f"journal: there is no {path}; name the journal of a run")
    if facts.undone:
        raise InvalidRequest(f"journal: {path} is empty: its run ended before it began; nothing was sent")
    if facts.logged and not facts.indexed:
        raise JournalError(f"journal {path}: {path.name}-shm, the index of its log, is missing; copy it too, or resume the run")


def _require_ours(path: Path, db: sqlite3.Connection) -> None:
    (kind,), (version,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    if kind != APPLICATION_ID:
        raise InvalidRequest(f"journal: {path} is no journal; name the journal of a run")
    if version > FORMAT:
        raise InvalidRequest(f"journal: {path} was written by a newer version of this library; read it with that version")


def unreadable(path: Path, error: Exception) -> OutreachError:
    """Return the error of a journal that made no sense."""
    # A text that is no UTF-8 is an error of the module's own, which has no code.
    if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        return InvalidRequest(f"journal: {path} is no journal; name the journal of a run")
    remedy = f"if it is damaged, restore a copy, or save what is left with `sqlite3 {path.name} .recover`"
    return JournalError(f"journal {path} cannot be read: {error}; {remedy}")


def _file(path: Path) -> _File | None:
    try:
        facts = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise JournalError(f"journal {path} cannot be read: {error.strerror}; mend that, and read it again") from error
    return _File(facts.st_ino, facts.st_size, facts.st_mtime_ns)
