"""A journal in an SQLite file: it is created atomically, and locked and checked before it is written.

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
from typing import Any, Final, Self

from outreach_async._files.atomic import sync
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.store import _reader as reader
from outreach_async.store import _records as records
from outreach_async.store._reader import connect
from outreach_async.store._records import OTHER_JOURNAL, OTHER_LEDGER, Earlier, Identity, require_resumable
from outreach_async.store._schema import (
    APPLICATION_ID,
    FORMAT_VERSION,
    HEADER_SIZE,
    LEDGER_ID,
    TABLES,
    VIEWS,
    Kind,
    classify_header,
)
from outreach_async.store._writer import Database, JournalWriter, Transaction, create_metadata

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
_OPEN_FLAGS: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class JournalLock:
    """An exclusive lock on a journal's file, which lasts until `release` is called."""

    def __init__(self, path: str, descriptor: int, descriptors: ExitStack) -> None:
        status = os.fstat(descriptor)
        self._path = path
        self._descriptor = descriptor
        self._descriptors = descriptors
        self.header = os.pread(descriptor, HEADER_SIZE, 0)
        self._file_id = (status.st_dev, status.st_ino)
        _LOCKED_FILES.add(self._file_id)

    @classmethod
    def acquire(cls, path: str, *, resume: bool, beside: bool = _LOCKS_SEPARATE_FILE) -> Self:
        with ExitStack() as descriptors, _MUTEX, translate_os_errors(path):
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode):
                raise reader.ForeignJournalError(
                    f"journal: {path} is not a regular file; pass the file itself, not a link or folder"
                )
            if (status.st_dev, status.st_ino) in _LOCKED_FILES:
                raise _in_use_error(path)
            if not resume:
                raise InvalidRequest(f"journal: {path} already exists; resume its run, or {OTHER_JOURNAL}")
            descriptor = locked = os.open(path, _OPEN_FLAGS)
            descriptors.callback(os.close, descriptor)
            if beside:
                locked = os.open(f"{path}-lock", _OPEN_FLAGS | os.O_CREAT, 0o600)
                descriptors.callback(os.close, locked)
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
            require_same_file(path, descriptor)
            return cls(path, descriptor, descriptors.pop_all())

    def state(self) -> tuple[int, bytes] | None:
        """Return the size and the first bytes of the file; `None` if its path leads to another file."""
        try:
            status = os.lstat(self._path)
        except FileNotFoundError:
            return None
        if (status.st_dev, status.st_ino) != self._file_id:
            return None
        return status.st_size, os.pread(self._descriptor, HEADER_SIZE, 0)

    def release(self) -> None:
        """Release the lock. Call this method only after SQLite has closed the file: the release also drops SQLite's locks."""
        with _MUTEX:
            self._descriptors.close()
            _LOCKED_FILES.discard(self._file_id)


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
    return JournalInUseError(f"journal: another run is writing {path}; wait until that run ends, or {OTHER_JOURNAL}")


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

    def __init__(self, path: str, log: Mapping[str, Any], lock: JournalLock) -> None:
        super().__init__(path)
        self._log = dict(log)
        self._lock = lock
        with self._translate_errors():
            self._db = connect(path, "mode=rw")
        with ExitStack() as stack:
            stack.callback(self._db.close)
            self._enable_log()
            self._state = lock.state()
            stack.pop_all()

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
        transaction.set_metadata("log", self._log)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Run the `with` block in a transaction, and then copy its changes into the file unless a reader delays this."""
        # Only this process may write the file. Otherwise, rows could be marked in a file that no later run would find.
        with self.connection():
            if self._lock.state() != self._state:
                raise JournalError(
                    f"journal {self.name}: the file was replaced or changed during the run; put the original file back and resume"
                    f" the run, or {OTHER_JOURNAL}"
                )
        with super().transaction() as transaction:
            yield transaction
        self._copy_log("PASSIVE")
        self._state = self._lock.state()

    @contextmanager
    def mark_transaction(self) -> Iterator[Transaction]:
        """Run the `with` block in a transaction, and copy its changes into the file, so that they survive the loss of the log."""
        with self.transaction() as transaction:
            yield transaction
        with self._translate_errors():
            if not self._copy_log("FULL"):
                raise OSError("the write-ahead log cannot be checkpointed, because another program is reading the journal")
        self._state = self._lock.state()

    def _copy_log(self, mode: str) -> bool:
        """Copy the log into the file. Return whether all of it was copied: FULL waits for readers, PASSIVE does not."""
        with self.connection() as db:
            busy, logged, copied = db.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        return bool(not busy and logged == copied)

    def damaged(self, reason: str) -> JournalError:
        return reader.DamagedJournalError(f"journal {self.name} is damaged: {reason}; {reader.remedy(Path(self.name))}")

    def compact(self) -> None:
        with self.connection() as db:
            (free,), (pages,) = (db.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_count"))
            if free > max(_MIN_FREE_PAGES, pages * 2 // 5):
                with suppress(sqlite3.Error):  # such as a full disk; the file stays as it is
                    db.execute("VACUUM")
        self._copy_log("FULL")
        self._state = self._lock.state()

    def close(self) -> None:
        """Close the connection, which removes the log unless a reader uses it. Later calls raise JournalError."""
        # The journal's lock is released last, because its release also drops SQLite's own locks on the file.
        super().close()
        self._lock.release()


_MIN_FREE_PAGES: Final = 48
"""Number of free pages below which a file is not compacted."""
LOG_SUFFIXES: Final = ("-wal", "-shm")
"""File name suffixes of SQLite's write-ahead log and of the log's index."""


def open_file(
    path: str | Path, identity: Identity, *, resume: bool, earlier: Earlier, wall: Callable[[], float]
) -> JournalWriter:
    """Open a journal in a file for writing: create it, or resume its run. The file is locked until the writer is closed."""
    path = str(path)
    require_lockable(path)
    metadata: Mapping[str, Any] | None = None
    damage = None
    with ExitStack() as stack:
        try:
            if os.path.lexists(path):
                # Locked before it is read: no other run can change or rename the journal after it has been checked.
                lock = JournalLock.acquire(path, resume=resume or earlier == "unknown")
                stack.callback(lock.release)
                metadata = _read_checked_metadata(path, lock.header, "journal")
                stack.pop_all()
            else:
                _refuse_orphaned_log(path)
        except (reader.DamagedJournalError, reader.EmptyJournalError) as error:
            if earlier == "known":
                raise
            with translate_os_errors(path):  # the file is still locked: another run may be about to rename it, too
                damage = {"reason": str(error), "kept": Path(set_aside(path)).name}
    created = metadata is None
    if metadata is None:
        metadata = create_metadata(identity, earlier)
        with translate_os_errors(path):
            create_journal(path, metadata, wall())
        lock = JournalLock.acquire(path, resume=True)
    with ExitStack() as stack:
        stack.callback(lock.release)
        require_resumable(path, identity, metadata)
        database = FileDatabase(path, metadata["log"], lock)
        stack.pop_all()
    return JournalWriter(database, metadata, identity, earlier, damage, created=created, wall=wall)


def open_ledger_file(path: str, metadata: Mapping[str, Any]) -> tuple[FileDatabase, Mapping[str, Any]]:
    """Open a ledger in a file for writing, and return its database and its metadata; a new file gets the `metadata`."""
    require_lockable(path)
    if not os.path.lexists(path):
        _refuse_orphaned_log(path)
        with suppress(FileExistsError):  # another process was faster
            create_journal(path, metadata, None)
    lock = JournalLock.acquire(path, resume=True)
    with ExitStack() as stack:
        stack.callback(lock.release)
        found = _read_checked_metadata(path, lock.header, "ledger")
        database = FileDatabase(path, found["log"], lock)
        stack.pop_all()
    return database, found


def _refuse_orphaned_log(path: str) -> None:
    with translate_os_errors(path), suppress(FileNotFoundError):
        if Path(f"{path}-wal").stat().st_size > 0:
            raise reader.DamagedJournalError(
                f"journal {path} is damaged: the file is missing, but its log {path}-wal exists; {reader.remedy(Path(path))}"
            )


def _read_checked_metadata(path: str, header: bytes, kind: Kind) -> Mapping[str, Any]:
    if not header:
        raise reader.empty_error(Path(path))
    reader.require_kind(path, classify_header(header), kind, OTHER_JOURNAL if kind == "journal" else OTHER_LEDGER)
    try:
        metadata, log_stale = reader.query_journal(Path(path), reader.require_intact, kind)
    except InvalidRequest as error:  # SQLite finds no journal, although the first bytes are those of a journal
        message = f"journal {path} is damaged: its header is invalid; {reader.remedy(Path(path))}"
        raise reader.DamagedJournalError(message) from error
    if log_stale:
        with translate_os_errors(path):
            set_aside(path, LOG_SUFFIXES)
    return metadata


def create_journal(
    path: str, metadata: Mapping[str, Any], at: float | None, link: Callable[[str, str], None] | None = None
) -> None:
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
    with closing(reader.connect(draft, "mode=rw")) as db:
        db.execute("PRAGMA synchronous = OFF")  # the draft is not a journal until it is synced and linked
        db.execute("PRAGMA journal_mode = MEMORY")
        db.execute("BEGIN IMMEDIATE")
        db.execute(f"PRAGMA application_id = {LEDGER_ID if at is None else APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        for statement in (*TABLES, *VIEWS):
            db.execute(statement)
        if at is not None:  # a ledger has a row for each of its runs
            run = [1, at, "", "{}", "{}", ""]
            db.execute("INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?)", (*run, records.checksum(run)))
        db.executemany(records.SET_METADATA, [records.encode_metadata(name, value) for name, value in metadata.items()])
        db.execute("COMMIT")
        db.execute("PRAGMA journal_mode = WAL")  # last: closing copies a log into the file, which can fail silently


def set_aside(path: str, suffixes: tuple[str, ...] = (*LOG_SUFFIXES, "")) -> str:
    """Rename the files of a journal to unused names, and return the new path of the journal."""
    names = (f"{path}.damaged{f'-{number}' if number else ''}" for number in count())
    name = next(name for name in names if not any(os.path.lexists(name + suffix) for suffix in (*LOG_SUFFIXES, "")))
    for suffix in suffixes:
        with suppress(FileNotFoundError):
            Path(path + suffix).rename(name + suffix)
    sync(Path(path).parent)
    return name
