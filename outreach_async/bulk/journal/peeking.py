"""Runs one query on a journal without changing it, even while a run is writing it.

If there is a log beside the file, the file is being written, or its writer was killed. SQLite then reads both, under locks, and
opens the log's index read-only, so that it neither creates nor repairs one. A file without a log is complete, and is read as
immutable; if a writer changed it meanwhile, the query runs again. This module opens no descriptor of the file or the index
itself: closing it would drop the locks of a writer in the same process.

SQLite treats a missing log as an empty one, and applies an old log to a newer file. Therefore the file itself states whether a
log is open, and how many commits it contains. A log with fewer commits, or of another run, is not read.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

import attrs
import msgspec

from outreach_async.bulk.journal.integrity import facts
from outreach_async.bulk.journal.records import require
from outreach_async.bulk.journal.schema import APPLICATION_ID, FORMAT, address
from outreach_async.errors import InvalidRequest, JournalError, OutreachError

T = TypeVar("T")

_PATIENCE: Final = 10.0
"""Seconds to wait for a lock."""
_TRIES: Final = 100
"""Maximum number of times that a query runs if the files change meanwhile."""
_DOUBTS: Final = 3
"""Failures in a row, with unchanged files, after which the error is raised: a read during a write may mix old and new."""
_ALONE: Final = "mode=ro&immutable=1"
"""URI parameters to open a journal without its log."""
_LOG_HEADER: Final = 32
_LOG_MAGIC: Final = (0x377F0682, 0x377F0683)
_ELSEWHERE: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
    }
)
"""Primary SQLite error codes whose cause is not in the file."""

NONSENSE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, msgspec.MsgspecError)
"""Exceptions that code raises when it reads damaged content."""

_LOST: Final = "its write-ahead log (the file whose name ends in -wal) is missing: it contains outcomes, so copy it too"
_EMPTY: Final = "its write-ahead log (the file whose name ends in -wal) is empty or unreadable: it contained outcomes"


class Damaged(JournalError):
    """The journal is damaged. Any other JournalError may be temporary."""


class Empty(InvalidRequest):
    """The file of the journal is empty."""


@attrs.frozen
class Answer(Generic[T]):
    """The result of a query on a journal.

    Attributes:
        value: The result.
        stale: Whether the log was not read, because the file is newer.
    """

    value: T
    stale: bool


@attrs.frozen
class _File:
    inode: int
    size: int
    changed: int


@attrs.frozen
class _Facts:
    """The state of a journal's files, from which a change of writer is detected.

    Attributes:
        file: The file; `None` if there is none.
        log: The log beside it; `None` if there is none.
        logged: Whether the log has a header that SQLite accepts: without one, a read-only connection would retry for ever.
        indexed: Whether the log's index exists.
    """

    file: _File | None
    log: _File | None
    logged: bool
    indexed: bool

    @classmethod
    def of(cls, path: Path) -> Self:
        """Return the state of the files. Of their contents, only the log's header is read."""
        file, log, index = (_file(beside(path, ending)) for ending in ("", "-wal", "-shm"))
        return cls(file, log, log is not None and log.size > _LOG_HEADER and _begun(beside(path, "-wal")), index is not None)


def beside(path: Path, ending: str) -> Path:
    """Return the path of a file that belongs to a journal."""
    return path.with_name(path.name + ending)


def asked(path: Path, question: Callable[[sqlite3.Connection], T]) -> T:
    """Run a query on a journal and return its result.

    Args:
        path: Path of the journal.
        question: The query; raises Damage if the content contradicts itself.

    Raises:
        InvalidRequest: There is no journal.
        JournalError: The journal is damaged or cannot be read.
    """
    return examined(path.resolve(), question, "mode=ro&readonly_shm=1").value


def examined(path: Path, question: Callable[[sqlite3.Connection], T], mode: str) -> Answer[T]:
    """Run a query on a journal, including its log unless the file is newer.

    Args:
        path: Path of the journal.
        question: The query; raises Damage if the content contradicts itself.
        mode: URI parameters to open a journal that has a log.

    Raises:
        InvalidRequest: There is no journal.
        Damaged: The journal is damaged.
        JournalError: The journal cannot be read at the moment.
    """
    # A result counts if SQLite's locks protected it (there was a log), or if the files are the same before and after. A failure
    # counts only if the files stayed the same several times: otherwise a writer may have changed them while they were read.
    doubts = 0
    for _ in range(_TRIES):
        before = _Facts.of(path)
        _require_readable(path, before, mode)
        failure: Exception | None = None
        try:
            answer = _answered(path, before, question, mode)
        except OutreachError:
            raise
        except (sqlite3.Error, *NONSENSE) as error:
            failure = error
        settled = _Facts.of(path) == before
        if failure is None and (before.logged or settled):
            return answer
        doubts = doubts + 1 if failure is not None and settled else 0
        if failure is not None and doubts == _DOUBTS:
            raise unreadable(path, failure) from failure
    raise JournalError(f"journal {path} changes faster than it can be read; try again")


def _answered(path: Path, files: _Facts, question: Callable[[sqlite3.Connection], T], mode: str) -> Answer[T]:
    if files.logged:
        stale = _is_stale(path, mode)
        return Answer(_of(path, _ALONE if stale else mode, question), stale)
    require(not _of(path, _ALONE, _log)["open"], _LOST if files.log is None else _EMPTY)
    return Answer(_of(path, _ALONE, question), stale=False)


def _of(path: Path, mode: str, question: Callable[[sqlite3.Connection], T]) -> T:
    with closing(sqlite3.connect(address(path, mode), uri=True, isolation_level=None, timeout=_PATIENCE)) as db:
        _require_ours(path, db)
        db.execute("BEGIN")
        return question(db)


def _log(db: sqlite3.Connection) -> Mapping[str, Any]:
    """Return the run, whether a log is open, and the number of commits."""
    log: Mapping[str, Any] = facts(db)["log"]
    return log


def _is_stale(path: Path, mode: str) -> bool:
    """Return whether a log is older than the file, or belongs to another run."""
    try:
        kept = _of(path, _ALONE, _log)  # the file first: during a run, the log is never behind an earlier state of the file
    except (
        sqlite3.Error,
        *NONSENSE,
    ):  # a power failure tore a page while the log was moved into the file: the log still has the whole page
        return False
    seen = _of(path, mode, _log)
    return bool(seen["run"] != kept["run"] or seen["commits"] < kept["commits"])


def _begun(log: Path) -> bool:
    """Return whether a log has a valid header (https://sqlite.org/fileformat2.html#the_write_ahead_log)."""
    try:
        with log.open("rb") as file:
            header = file.read(_LOG_HEADER).ljust(_LOG_HEADER, b"\0")
    except OSError:
        return False
    magic = int.from_bytes(header[:4])
    if magic not in _LOG_MAGIC:
        return False
    one = two = 0
    words = struct.unpack(">6I" if magic & 1 else "<6I", header[:24])
    for even, odd in zip(words[::2], words[1::2], strict=True):
        one = (one + even + two) & 0xFFFFFFFF
        two = (two + odd + one) & 0xFFFFFFFF
    return (one, two) == struct.unpack(">2I", header[24:])


def _require_readable(path: Path, files: _Facts, mode: str) -> None:
    if files.file is None:
        raise InvalidRequest(f"journal: {path} does not exist; pass the path of a journal")
    if files.file.size == 0:
        raise empty(path)
    if files.logged and not files.indexed and "readonly_shm" in mode:
        raise JournalError(f"journal {path}: {path.name}-shm, the index of its log, is missing; copy it too, or resume the run")


def _require_ours(path: Path, db: sqlite3.Connection) -> None:
    (kind,), (version,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    if kind != APPLICATION_ID:
        raise InvalidRequest(f"journal: {path} is not a journal; pass the path of a journal")
    if version > FORMAT:
        raise InvalidRequest(f"journal: {path} was written by a newer version of this library; read it with that version")


def unreadable(path: Path, error: Exception) -> OutreachError:
    """Return the error for a journal whose reading failed."""
    code = getattr(error, "sqlite_errorcode", None)  # the sqlite3 module's own errors, such as invalid UTF-8, have no code
    if code == sqlite3.SQLITE_NOTADB:
        return InvalidRequest(f"journal: {path} is not a journal; pass the path of a journal")
    if code is not None and code & 0xFF in _ELSEWHERE and code != sqlite3.SQLITE_IOERR_SHORT_READ:
        return JournalError(f"journal {path} cannot be read: {error}; fix the cause and try again")
    return Damaged(f"journal {path} is damaged: {error}; {remedy(path)}")


def empty(path: Path) -> InvalidRequest:
    """Return the error for an empty file."""
    return Empty(f"journal: {path} is an empty file, and no run leaves one; {remedy(path)}")


def remedy(path: Path) -> str:
    """Return the remedy for a damaged journal."""
    return (
        'restore a copy, or resume with earlier="unknown" (on the command line: --resume --earlier unknown), which renames'
        f" {path.name} to {path.name}.damaged and starts over with every row counted as possibly sent"
    )


def _file(path: Path) -> _File | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise JournalError(f"journal {path} cannot be read: {error.strerror}; fix the cause and try again") from error
    return _File(found.st_ino, found.st_size, found.st_mtime_ns)
