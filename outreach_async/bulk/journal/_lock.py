"""Lock a journal, so that only one run at a time can write it. This requires a file system with reliable locks."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, Final, Self

from outreach_async.bulk.journal._identity import OTHER_JOURNAL
from outreach_async.bulk.journal._records import HEADER_SIZE
from outreach_async.errors import InvalidRequest, JournalError

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
            " pass a path on a local disk, and move an existing journal there"
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
CAN_LOCK: Final = fcntl is not None
"""Whether this system has the locks that journals in files need. Windows has none."""

# POSIX drops all of a process's locks on a file, including SQLite's, when any descriptor of the file is closed. A second writer
# must therefore be refused before it opens the file.
_LOCKED_FILES: Final[set[tuple[int, int]]] = set()
"""Device and inode of every journal that this process writes."""
_MUTEX: Final = Lock()
# On Linux, `flock` on the journal does not conflict with SQLite's POSIX locks. BSD and macOS keep both kinds of lock in one
# table. There, `flock` on the journal would block SQLite, and a POSIX lock would disappear when SQLite drops its own POSIX locks.
_LOCKS_SEPARATE_FILE: Final = sys.platform != "linux"
"""Whether to lock a separate file beside the journal, not the journal itself. The separate file is never removed."""
_OPEN_FLAGS: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class JournalLock:
    """An exclusive lock on a journal's file, which lasts until `release` is called."""

    def __init__(self, descriptor: int, descriptors: ExitStack) -> None:
        status = os.fstat(descriptor)
        self._descriptors = descriptors
        self.header = os.pread(descriptor, HEADER_SIZE, 0)
        self._file_id = (status.st_dev, status.st_ino)
        _LOCKED_FILES.add(self._file_id)

    @classmethod
    def acquire(cls, path: str, *, resume: bool, beside: bool = _LOCKS_SEPARATE_FILE) -> Self:
        """Lock an existing journal, and return the lock."""
        with ExitStack() as descriptors, _MUTEX, translate_os_errors(path):
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidRequest(f"journal: {path} is not a regular file; pass the file itself, not a link or folder")
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
            return cls(descriptor, descriptors.pop_all())

    def release(self) -> None:
        """Release the lock. Call this method only after SQLite has closed the file: the release also drops SQLite's locks."""
        with _MUTEX:
            self._descriptors.close()
            _LOCKED_FILES.discard(self._file_id)


def require_lockable(path: str) -> None:
    """Check that a journal at this path can be locked reliably."""
    if not CAN_LOCK:
        raise InvalidRequest(
            "journal: this system has no POSIX file locks (Windows); use Linux or macOS, or run without a journal"
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
