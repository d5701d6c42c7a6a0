"""A journal in an SQLite file: it is created atomically, and locked and checked before it is written.

Any process can read it at any time. This does not change the content of its files, and damage is detected.

Only one run at a time can write it, which requires a file system with reliable locks.
"""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from errno import EIO
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

from outreach_async._files.atomic import sync
from outreach_async._files.sqlite import SqliteFile
from outreach_async.errors import InvalidRequest, JournalError, OutreachError
from outreach_async.store import _records as records
from outreach_async.store._schema import (
    APPLICATION_ID,
    FORMAT_VERSION,
    HEADER_SIZE,
    KINDS,
    LEDGER_ID,
    TABLES,
    VIEWS,
    Kind,
    classify,
    classify_header,
)
from outreach_async.store._writer import Database, Transaction

T = TypeVar("T")

_LOCK_TIMEOUT: Final = 10.0
"""Seconds to wait for a lock. Other readers hold locks while they recover a log, and during their queries."""
_MAX_ATTEMPTS: Final = 100
"""Maximum number of times that a query is run. A query is repeated if the files changed while it ran."""
# If the files changed during a failed query, a writer may be the cause, and the count starts again.
_MAX_FAILURES: Final = 3  # of a query in a row, before its error is raised
_WITH_LOG: Final = "mode=ro"
"""URI parameters to open a journal with its log. SQLite needs the index of the log, and may have to create it."""
_WITHOUT_LOG: Final = "mode=ro&immutable=1"  # URI parameters


def query_journal(path: Path, query: Callable[[sqlite3.Connection], T], kind: Kind = "journal") -> tuple[T, bool]:
    """Run a query on a journal and its log. The log is ignored if it is older than the file or belongs to another run."""
    # A log shows that a writer is active or was killed. SQLite then locks the file and the log while it reads them, and repairs
    # or creates the index of the log. A file without a log is read without locks, and the query runs again if the file changes.
    # So a result counts if SQLite's locks protected it, or if the files are the same before and after. A failure counts only if
    # the files stayed the same several times: otherwise a writer may have changed them meanwhile.
    # Only SQLite opens the file and the index. If this module opened and closed them itself, the operating system would release
    # the locks that a writer in the same process holds.
    failures = 0
    for _ in range(_MAX_ATTEMPTS):
        (size, _, _), (log_size, _, _) = before = read_file_states(path)
        if size is None:
            raise InvalidRequest(f"{kind}: {path} does not exist; pass the path of a {kind}")
        if size == 0:
            raise empty_error(path, kind)
        try:
            stale = bool(log_size) and _is_stale(path, kind)
            uses_log = log_size and not stale
            result = _run_query(path, _WITH_LOG if uses_log else _WITHOUT_LOG, query, kind)
        except OutreachError:
            raise
        except (sqlite3.Error, *records.DECODING_ERRORS) as error:
            failures = failures + 1 if read_file_states(path) == before else 0
            if failures == _MAX_FAILURES:
                raise read_error(path, error, kind) from error
        else:
            if uses_log or read_file_states(path) == before:
                return result, stale
            failures = 0
    raise JournalError(f"journal {path} changes faster than it can be read; try again")


def _run_query(path: Path, mode: str, query: Callable[[sqlite3.Connection], T], kind: Kind) -> T:
    with closing(connect(path, mode)) as db:
        (application_id,), (version,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version"))
        require_kind(path, classify(application_id, version), kind, f"pass the path of a {kind}")
        db.execute("BEGIN")
        return query(db)


def require_kind(path: str | Path, found: str, kind: Kind, remedy: str) -> None:
    """Check that a file is a store of the expected kind and of this version."""
    if found == "newer":
        raise InvalidRequest(f"{kind}: {path} was written by a newer version of this library; use that version")
    if found == "older":
        raise _older_error(path, kind, remedy)
    if found == "foreign":
        raise records.ForeignJournalError(f"{kind}: {path} is not a {kind}; {remedy}")
    if found != kind:
        raise records.ForeignJournalError(f"{kind}: {path} is a {found}, not a {kind}; pass it as {found}=, or {remedy}")


def _older_error(path: str | Path, kind: Kind, remedy: str) -> InvalidRequest:
    use = "finish its run with that version" if kind == "journal" else "use that version"
    return InvalidRequest(f"{kind}: {path} was written by an older version of this library; {use}, or {remedy}")


def read_kind(path: Path) -> Kind | None:
    """Return which kind of store a file is, of any version; `None` for another file, or none."""
    file = SqliteFile(path, timeout=_LOCK_TIMEOUT)
    if (found := file.application_id()) is not None:
        return KINDS.get(found)
    return "ledger" if classify_header(file.read_header()) == "older" else None


def connect(path: str | Path, mode: str) -> sqlite3.Connection:
    return SqliteFile(Path(path), timeout=_LOCK_TIMEOUT).connect(mode)


def _is_stale(path: Path, kind: Kind) -> bool:
    """Return whether a log is older than the file, or belongs to another run."""
    # SQLite would apply an old log to a newer file. The file contains each commit as soon as the call that made the commit
    # returns, so an old log can be ignored. Only after a kill during the copying of a commit does the log complete the file.
    # The file is read before the log: during a run, the log is never behind an earlier state of the file.
    try:
        in_file = _run_query(path, _WITHOUT_LOG, records.read_metadata, kind)["log"]
    except (sqlite3.Error, *records.DECODING_ERRORS):
        # A power failure may have torn a page while the log was copied into the file. The log still has the whole page.
        return False
    try:
        in_log = _run_query(path, _WITH_LOG, records.read_metadata, kind)["log"]
    except (OutreachError, sqlite3.Error, *records.DECODING_ERRORS) as error:
        if SqliteFile.cause_of(error) != "inside":
            raise
        return True  # the file is readable alone, so the log is not from its last commit: that log would complete the file
    return bool(in_log["run"] != in_file["run"] or in_log["commits"] < in_file["commits"])


def read_error(path: Path, error: Exception, kind: Kind = "journal") -> OutreachError:
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
        if kind == "ledger" and read_kind(path) == "ledger":
            return _older_error(path, kind, records.OTHER_LEDGER)
        return records.ForeignJournalError(f"{kind}: {path} is not a {kind}; pass the path of a {kind}")
    if SqliteFile.cause_of(error) != "inside":
        return JournalError(f"journal {path} cannot be read: {error}; fix the cause and try again")
    return records.DamagedJournalError(f"journal {path} is damaged: {error}; {remedy(path)}")


def empty_error(path: Path, kind: Kind = "journal") -> InvalidRequest:
    if SqliteFile(path, timeout=0).is_pipe():
        return records.ForeignJournalError(f"{kind}: {path} is a named pipe, not a {kind}; pass the path of a {kind}")
    return records.EmptyJournalError(f"journal: {path} is an empty file, not a journal; {remedy(path)}")


def remedy(path: Path) -> str:
    """Return the part of an error message that states the remedy for a damaged or empty journal."""
    return (
        'restore a copy (with its -wal file, if there is one), or resume with earlier="unknown" (on the command line: --resume'
        f" --earlier unknown), which renames {path.name} to {path.name}.damaged and starts over with every row counted as"
        " possibly sent"
    )


def read_file_states(path: Path) -> list[tuple[int | None, int, int]]:
    """Return size, inode and time of change of the file and of its log, to detect changes by a writer; no size if missing."""
    states = list[tuple[int | None, int, int]]()
    for name in path, Path(f"{path}-wal"):
        try:
            status = name.stat()
            states.append((status.st_size, status.st_ino, status.st_mtime_ns))
        except (FileNotFoundError, NotADirectoryError):
            states.append((None, 0, 0))
        except OSError as error:
            raise JournalError(f"journal {name} cannot be read: {error.strerror}; fix the cause and try again") from error
    return states


# File systems in user space (FUSE), except fuse-overlayfs, are included, because their locks are not trusted.
_NETWORK_TYPES: Final = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|v9fs|virtiofs|afs|ceph|coda|lustre|gpfs|beegfs|ocfs2|gfs2?|glusterfs|ncpfs|fuse\.(?!fuse-overlayfs$).*"
)
"""Types of file systems that may be shared with other machines."""


def require_local(path: str, mounts: str) -> None:
    """Reject a path on a network file system, where locks are unreliable and two runs could send the same rows."""
    kind = file_system_type(os.path.realpath(path), mounts)
    if kind is not None and _NETWORK_TYPES.fullmatch(kind):
        raise InvalidRequest(
            f"journal: {path} is on a network file system ({kind}), whose locks are unreliable;"
            " pass a path on a local disk, and move existing files there"
        )


def read_mounts(listing: Path = Path("/proc/self/mountinfo")) -> str:
    """Return the contents of the file `listing`, which lists this machine's mounts; an empty string if it cannot be read."""
    try:
        return listing.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def file_system_type(path: str, mounts: str) -> str | None:
    """Return the type of the file system that contains an absolute path; `None` if no mount contains the path."""
    # If several mounts contain the path, the innermost one is used. `mounts` has the format of `/proc/self/mountinfo`; see
    # proc(5).
    innermost: tuple[str, str | None] = ("", None)
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), before.split(" ")[4])
        within = path == point or path.startswith(point.rstrip("/") + "/")
        if within and len(point) >= len(innermost[0]):
            innermost = (point, after.partition(" ")[0])
    return innermost[1]


fcntl: Any
try:
    import fcntl
except ImportError:
    fcntl = None
CAN_LOCK: Final = fcntl is not None and hasattr(os, "link")
"""Whether this system has the locks and links that journals in files need. Windows lacks the locks, and WebAssembly the links."""

# POSIX drops all of a process's locks on a file, including SQLite's, when any descriptor of the file is closed. A second writer
# must therefore be refused before it opens the file.
_LOCKED_FILES: Final[set[tuple[int, int]]] = set()  # device and inode of each
_MUTEX: Final = Lock()
# On Linux, `flock` on the journal does not conflict with SQLite's POSIX locks. BSD and macOS keep both kinds of lock in one
# table. There, `flock` on the journal would block SQLite, and a POSIX lock would disappear when SQLite drops its own POSIX locks.
_LOCKS_SEPARATE_FILE: Final = sys.platform != "linux"
"""Whether to lock a separate file beside the journal, not the journal itself. The separate file is never removed."""
OPEN_FLAGS: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class JournalLock:
    """An exclusive lock on a journal's file, which lasts until `release` is called."""

    def __init__(self, path: str, *, resume: bool, beside: bool = _LOCKS_SEPARATE_FILE) -> None:
        self._path = path
        with ExitStack() as descriptors, _MUTEX, translate_os_errors(path):
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode):
                raise records.ForeignJournalError(
                    f"journal: {path} is not a regular file; pass the file itself, not a link or folder"
                )
            if _file_id(status) in _LOCKED_FILES:
                raise _in_use_error(path)
            if not resume:
                raise InvalidRequest(f"journal: {path} already exists; resume its run, or {records.OTHER_JOURNAL}")
            descriptor = locked = os.open(path, OPEN_FLAGS)
            descriptors.callback(os.close, descriptor)
            if beside:
                locked = os.open(f"{path}-lock", OPEN_FLAGS | os.O_CREAT, 0o600)
                descriptors.callback(os.close, locked)
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
            require_same_file(path, descriptor)
            self._descriptor, self._file_id = descriptor, _file_id(os.fstat(descriptor))
            self.header = os.pread(descriptor, HEADER_SIZE, 0)
            _LOCKED_FILES.add(self._file_id)
            self._descriptors = descriptors.pop_all()

    def state(self) -> tuple[int, bytes] | None:
        """Return the size and the first bytes of the file; `None` if its path leads to another file."""
        try:
            status = os.lstat(self._path)
        except FileNotFoundError:
            return None
        if _file_id(status) != self._file_id:
            return None
        return status.st_size, os.pread(self._descriptor, HEADER_SIZE, 0)

    def release(self) -> None:
        """Release the lock. Call this method only after SQLite has closed the file: the release also drops SQLite's locks."""
        with _MUTEX:
            self._descriptors.close()
            _LOCKED_FILES.discard(self._file_id)


def _file_id(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def require_lockable(path: str) -> None:
    if not CAN_LOCK:
        raise InvalidRequest(
            "journal: this system lacks POSIX file locks or hard links (Windows, WebAssembly); use Linux or macOS, or the URL of"
            " an object store"
        )
    require_local(path, read_mounts())


def require_same_file(path: str, descriptor: int) -> None:
    """Check that a path still refers to the opened file. Another run may have renamed the file before this run locked it."""
    if not os.path.samestat(os.fstat(descriptor), os.lstat(path)):
        raise _in_use_error(path)


class JournalInUseError(InvalidRequest):
    """Another run is writing the journal."""


def _in_use_error(path: str) -> JournalInUseError:
    return JournalInUseError(f"journal: another run is writing {path}; wait until that run ends, or {records.OTHER_JOURNAL}")


@contextmanager
def translate_os_errors(path: str) -> Iterator[None]:
    """Convert an `OSError` that the `with` block raises. The new error names the journal and the remedy."""
    try:
        yield
    except BlockingIOError:
        raise _in_use_error(path) from None
    except (FileNotFoundError, FileExistsError, PermissionError, NotADirectoryError) as error:
        raise InvalidRequest(
            f"journal: {path} cannot be opened: {error.strerror}; pass a path in a folder that you can write to,"
            ' with earlier="unknown" if some of the rows may have been sent'
        ) from error
    except OSError as error:
        raise JournalError(f"journal {path} cannot be opened: {error.strerror}; fix the cause and resume the run") from error


class FileDatabase(Database):
    # Each commit is written to SQLite's write-ahead log, "the log", and then copied into the file by a checkpoint. If the process
    # is killed in between, the log completes the file. Between commits, the file is complete, so any program may remove the log.
    # A reader of an older state delays the copying. Only marks wait for it: if later outcomes are lost with the log, their rows
    # count as possibly sent.

    _lock: JournalLock

    def __init__(self, path: str, kind: Kind = "journal") -> None:
        """Open nothing yet."""
        super().__init__(path)
        self._kind: Kind = kind

    def open(self, require: Callable[[Mapping[str, Any]], object], *, resume: bool) -> Mapping[str, Any] | None:
        """Lock the file until `close` is called."""
        require_lockable(self.name)
        if not os.path.lexists(self.name):
            self._refuse_orphaned_log()
            return None
        # Locked before it is read: no other run can change or rename the journal after it has been checked.
        self._lock_file(resume=resume)
        metadata = self._read_intact()
        require(metadata)
        self._connect(metadata["log"])
        return metadata

    def create(self, metadata: Mapping[str, Any], wall: Callable[[], float]) -> None:
        with translate_os_errors(self.name):
            create_file(self.name, metadata, wall())
        self._lock_file(resume=True)
        self._connect(metadata["log"])

    def set_aside(self) -> str:
        with translate_os_errors(self.name):  # the file is still locked: another run may be about to rename it, too
            kept = rename_damaged(self.name)
        self._resources.close()
        return Path(kept).name

    def _lock_file(self, *, resume: bool) -> None:
        # It is released last, because its release also drops SQLite's own locks on the file.
        self._lock = JournalLock(self.name, resume=resume)
        self._resources.callback(self._lock.release)

    def _refuse_orphaned_log(self) -> None:
        with translate_os_errors(self.name), suppress(FileNotFoundError):
            if Path(f"{self.name}-wal").stat().st_size > 0:
                raise self.damaged(f"the file is missing, but its log {self.name}-wal exists")

    def _read_intact(self) -> Mapping[str, Any]:
        path, kind = Path(self.name), self._kind
        if not self._lock.header:
            raise empty_error(path)
        require_kind(
            path, classify_header(self._lock.header), kind, records.OTHER_JOURNAL if kind == "journal" else records.OTHER_LEDGER
        )
        try:
            metadata, log_stale = query_journal(path, records.require_intact, kind)
        except InvalidRequest as error:  # SQLite finds no journal, although the first bytes are those of a journal
            raise self.damaged("its header is invalid") from error
        if log_stale:
            with translate_os_errors(self.name):
                rename_damaged(self.name, LOG_SUFFIXES)
        return metadata

    def _connect(self, log: Mapping[str, Any]) -> None:
        self._log = dict(log)
        with self._translate_errors():
            self._db = self._resources.enter_context(closing(connect(self.name, "mode=rw")))
        self._enable_log()
        self._state = self._lock.state()

    def _enable_log(self) -> None:
        """Switch to a write-ahead log, and make each commit wait until its changes are on the disk."""
        with self.connection() as db:
            db.execute("PRAGMA synchronous = FULL")
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != ("wal",):
            raise InvalidRequest(
                f"journal: {self.name} is on a file system without shared memory;"
                " pass a path on a local disk, and move existing files there"
            )

    def _before_commit(self, transaction: Transaction) -> None:
        self._log["commits"] += 1
        transaction.set_metadata(log=self._log)

    @contextmanager
    def transaction(self, *, marks: bool = False) -> Iterator[Transaction]:
        """Run the `with` block in a transaction, and copy its changes into the file; if it `marks` rows, wait for readers."""
        # Only this process may write the file. Otherwise, rows could be marked in a file that no later run would find.
        with self.connection():
            if self._lock.state() != self._state:
                raise JournalError(
                    f"journal {self.name}: the file was replaced or changed during the run; put the original file back and resume"
                    f" the run, or {records.OTHER_JOURNAL}"
                )
        with super().transaction() as transaction:
            yield transaction
        with self._translate_errors():
            if not self._copy_log("FULL" if marks else "PASSIVE") and marks:  # marks must survive the loss of the log
                raise OSError("the write-ahead log cannot be checkpointed, because another program is reading the journal")
        self._state = self._lock.state()

    def _copy_log(self, mode: str) -> bool:
        """Copy the log into the file. Return whether all of it was copied: FULL waits for readers, PASSIVE does not."""
        with self.connection() as db:
            busy, logged, copied = db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return bool(not busy and logged == copied)

    def damaged(self, reason: str) -> records.DamagedJournalError:
        return records.DamagedJournalError(f"journal {self.name} is damaged: {reason}; {remedy(Path(self.name))}")

    def purge(self) -> None:
        """Rewrite the file, so that no free page has what was deleted, and empty its log."""
        with self.connection() as db:
            db.execute("VACUUM")
            if not self._copy_log("TRUNCATE"):
                raise OSError("another program is reading it; close that program, and erase again")
        self._state = self._lock.state()

    def compact(self) -> None:
        with self.connection() as db:
            (free,), (pages,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_count"))
            if free > max(_MIN_FREE_PAGES, pages * 2 // 5):
                with suppress(sqlite3.Error):  # such as a full disk; the file stays as it is
                    db.execute("VACUUM")
        self._copy_log("FULL")
        self._state = self._lock.state()


_MIN_FREE_PAGES: Final = 48
"""Number of free pages below which a file is not compacted."""
LOG_SUFFIXES: Final = ("-wal", "-shm")
"""File name suffixes of SQLite's write-ahead log and of the log's index."""


def create_file(path: str, metadata: Mapping[str, Any], at: float | None, link: Callable[[str, str], None] | None = None) -> None:
    """Create a store that only its owner can read. The file gets its final name only after it is complete and on the disk."""
    folder = Path(path).parent
    descriptor, draft = tempfile.mkstemp(".tmp", ".outreach-", folder)
    os.close(descriptor)
    try:
        # Unlike a rename, a link never replaces a file: if two runs create the journal, one of them fails. The draft is synced
        # first, so that a power failure cannot leave the final name with an incomplete file.
        write_tables(draft, metadata, at)
        sync(draft)
        (link or os.link)(draft, path)
    except sqlite3.Error as error:
        raise OSError(EIO, str(error)) from error
    finally:
        for suffix in ("", *LOG_SUFFIXES):
            Path(draft + suffix).unlink(missing_ok=True)
    sync(folder)


def write_tables(draft: str, metadata: Mapping[str, Any], at: float | None) -> None:
    """Write the tables of a journal, whose run starts at the Unix time `at`, or those of a ledger."""
    with closing(connect(draft, "mode=rw")) as db:
        db.execute("PRAGMA synchronous = OFF")  # the draft is not a journal until it is synced and linked
        db.execute("PRAGMA journal_mode = MEMORY")
        with SqliteFile.transaction(db):
            db.execute(f"PRAGMA application_id = {LEDGER_ID if at is None else APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            for statement in (*TABLES, *VIEWS):
                db.execute(statement)
            transaction = Transaction(db)
            if at is not None:  # a ledger has a row for each of its runs
                transaction.insert("run", 1, at, "", "{}", "{}", "")
            transaction.set_metadata(**metadata)
        db.execute("PRAGMA journal_mode = WAL")  # last: closing copies a log into the file, which can fail silently


def rename_damaged(path: str, suffixes: tuple[str, ...] = (*LOG_SUFFIXES, "")) -> str:
    """Rename the files of a journal to unused names, and return the new path of the journal."""
    names = (f"{path}.damaged{f'-{number}' if number else ''}" for number in count())
    name = next(name for name in names if not any(os.path.lexists(name + suffix) for suffix in (*LOG_SUFFIXES, "")))
    for suffix in suffixes:
        with suppress(FileNotFoundError):
            Path(path + suffix).rename(name + suffix)
    sync(Path(path).parent)
    return name
