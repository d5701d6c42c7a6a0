"""Asking a journal one question without touching it, whoever is writing it.

A file with a log beside it is being written, or its writer was killed: SQLite reads both, under locks, with the log's index
opened for reading only, so that it neither makes nor mends one. A file without a log is whole, and is read as one that never
changes; if it did change meanwhile, because a writer came, the question is asked again. No descriptor of our own is ever
opened of the file or the index: closing it would drop the locks of a writer in this very process.

SQLite takes a missing log for an empty one, and applies an old one to a newer file. So the file itself says whether a log is
open, and how many commits it holds; a log that holds fewer, or is of another run, is not read at all.
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
_TRIES: Final = 100
_DOUBTS: Final = 3
"""Failures in a row that count: a file that is just being written may be read half old and half new."""
_ALONE: Final = "mode=ro&immutable=1"
"""How to open a journal without its log."""
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
"""Errors of SQLite, without their details, whose cause is not in the file."""

NONSENSE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, msgspec.MsgspecError)
"""What code raises that reads damaged content."""

_LOST: Final = "its write-ahead log, the file with -wal at the end of its name, is missing: it holds outcomes, so copy it too"
_EMPTY: Final = "its write-ahead log, the file with -wal at the end of its name, is empty or unreadable: it held outcomes"


class Damaged(JournalError):
    """A journal that cannot be relied on; any other JournalError may pass."""


class Empty(InvalidRequest):
    """A file without a byte, where a journal should be."""


@attrs.frozen
class Answer(Generic[T]):
    """The answer to a question about a journal.

    Attributes:
        value: The answer.
        stale: Whether the log was left out, because the file is newer.
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
    """What tells whether a journal was given up or taken up by a writer.

    Attributes:
        file: The file; `None` if there is none.
        log: The log beside it; `None` if there is none.
        logged: Whether the log has a header that SQLite accepts: without, a connection that may only read would retry for ever.
        indexed: Whether the log has its index.
    """

    file: _File | None
    log: _File | None
    logged: bool
    indexed: bool

    @classmethod
    def of(cls, path: Path) -> Self:
        """Look at the files, and into none but the log."""
        file, log, index = (_file(beside(path, ending)) for ending in ("", "-wal", "-shm"))
        return cls(file, log, log is not None and log.size > _LOG_HEADER and _begun(beside(path, "-wal")), index is not None)


def beside(path: Path, ending: str) -> Path:
    """Return the path of a file that belongs to a journal."""
    return path.with_name(path.name + ending)


def asked(path: Path, question: Callable[[sqlite3.Connection], T]) -> T:
    """Return the answer to a question about a journal.

    Raises:
        InvalidRequest: There is no journal.
        JournalError: It cannot be read.
    """
    return examined(path.resolve(), question, "mode=ro&readonly_shm=1").value


def examined(path: Path, question: Callable[[sqlite3.Connection], T], mode: str) -> Answer[T]:
    """Return the answer to a question about a journal, from its log too, unless the file is newer.

    Args:
        path: Of the journal.
        question: Raises Damage if the journal cannot be right.
        mode: How to open a journal that has a log.

    Raises:
        InvalidRequest: There is no journal.
        Damaged: It is damaged.
        JournalError: It cannot be read now.
    """
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
    raise JournalError(f"journal {path}: it changes faster than it can be read; try again")


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
    """Tell whether a log is older than the file, or of another run."""
    try:
        kept = _of(path, _ALONE, _log)  # first: the log of a run under way only ever gains commits on the file
    except (
        sqlite3.Error,
        *NONSENSE,
    ):  # a power failure tore the page while the log was moved into the file: the log has it whole
        return False
    seen = _of(path, mode, _log)
    return bool(seen["run"] != kept["run"] or seen["commits"] < kept["commits"])


def _begun(log: Path) -> bool:
    """Tell whether a log has a valid header (https://sqlite.org/fileformat2.html#the_write_ahead_log)."""
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
        raise InvalidRequest(f"journal: there is no {path}; name the journal of a run")
    if files.file.size == 0:
        raise empty(path)
    if files.logged and not files.indexed and "readonly_shm" in mode:
        raise JournalError(f"journal {path}: {path.name}-shm, the index of its log, is missing; copy it too, or resume the run")


def _require_ours(path: Path, db: sqlite3.Connection) -> None:
    (kind,), (version,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
    if kind != APPLICATION_ID:
        raise InvalidRequest(f"journal: {path} is no journal; name the journal of a run")
    if version > FORMAT:
        raise InvalidRequest(f"journal: {path} was written by a newer version of this library; read it with that version")


def unreadable(path: Path, error: Exception) -> OutreachError:
    """Return the error of a journal that made no sense."""
    code = getattr(error, "sqlite_errorcode", None)  # a text that is no UTF-8 is an error of the module's own, which has none
    if code == sqlite3.SQLITE_NOTADB:
        return InvalidRequest(f"journal: {path} is no journal; name the journal of a run")
    if code is not None and code & 0xFF in _ELSEWHERE and code != sqlite3.SQLITE_IOERR_SHORT_READ:
        return JournalError(f"journal {path} cannot be read: {error}; fix the cause, and try again")
    return Damaged(f"journal {path} is damaged: {error}; {remedy(path)}")


def empty(path: Path) -> InvalidRequest:
    """Return the error of an empty file."""
    return Empty(f"journal: {path} is an empty file, which no run leaves; {remedy(path)}")


def remedy(path: Path) -> str:
    """Return what to do about a journal that is damaged."""
    return (
        'restore a copy, or pass resume=True and earlier="unknown" (for the command: --resume --earlier unknown), which sets'
        f" {path.name} aside as {path.name}.damaged and starts again with every row marked as possibly sent"
    )


def _file(path: Path) -> _File | None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise JournalError(f"journal {path} cannot be read: {error.strerror}; mend that, and read it again") from error
    return _File(found.st_ino, found.st_size, found.st_mtime_ns)
