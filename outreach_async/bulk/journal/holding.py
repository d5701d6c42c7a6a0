"""The right to write a journal: one runner at a time, among the threads of this process and the processes of this machine."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any, Final, Self

from outreach_async.bulk.journal.places import mounts, require_local
from outreach_async.bulk.journal.schema import HEADER_SIZE
from outreach_async.errors import InvalidRequest, JournalError

fcntl: Any
try:
    import fcntl
except ImportError:
    fcntl = None

_Place = tuple[int, int]

_HELD: Final[set[_Place]] = set()
"""Device and inode of every journal that this process writes. POSIX drops a process's locks on a file, SQLite's too, when any
descriptor of it is closed, so a second writer must be refused before it opens one."""
_TURN: Final = Lock()
_BESIDE: Final = sys.platform != "linux"
"""On Linux a file's own lock leaves SQLite's alone. BSD and macOS keep both in one table, where it would lock SQLite out, and
POSIX locks go when SQLite drops its own; so there a file beside the journal is locked, and stays."""
_FLAGS: Final = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Hold:
    """A journal's file, locked until `release`.

    Attributes:
        header: The first bytes of the file.
    """

    def __init__(self, descriptor: int, lock: int | None) -> None:
        facts = os.fstat(descriptor)
        self._descriptor = descriptor
        self._lock = lock
        self.header = os.pread(descriptor, HEADER_SIZE, 0)
        self._place = (facts.st_dev, facts.st_ino)
        _HELD.add(self._place)

    @classmethod
    def take(cls, path: str, *, resume: bool, beside: bool = _BESIDE) -> Self:
        """Lock a journal that is there.

        Args:
            path: Of the journal.
            resume: Whether its run may be resumed.
            beside: Whether to lock a file beside it.

        Raises:
            InvalidRequest: Nothing is to be resumed, or another runner has it.
            JournalError: The operating system refuses.
        """
        with ExitStack() as opened, _TURN, explained(path):
            descriptor = _opened(path, resume=resume)
            opened.callback(os.close, descriptor)
            lock = None
            if beside:
                lock = os.open(f"{path}-lock", _FLAGS | os.O_CREAT, 0o600)
                opened.callback(os.close, lock)
            fcntl.flock(descriptor if lock is None else lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            require_still(path, descriptor)
            opened.pop_all()
            return cls(descriptor, lock)

    def release(self) -> None:
        """Give the journal free. Only after SQLite has closed the file: closing this descriptor drops SQLite's locks."""
        with _TURN:
            os.close(self._descriptor)
            if self._lock is not None:
                os.close(self._lock)
            _HELD.discard(self._place)


def require_place(path: str) -> None:
    """Refuse a place where locks do not hold.

    Raises:
        InvalidRequest: It is one.
    """
    if fcntl is None:
        raise InvalidRequest("journal: this system has no POSIX file locks (Windows); run on Linux or macOS, or without one")
    require_local(path, mounts())


def _opened(path: str, *, resume: bool) -> int:
    facts = os.lstat(path)
    if not stat.S_ISREG(facts.st_mode):
        raise InvalidRequest(f"journal: {path} is no regular file; name the file itself, not a link or folder")
    if (facts.st_dev, facts.st_ino) in _HELD:
        raise _taken(path)
    if not resume:
        raise InvalidRequest(f"journal: {path} exists; pass resume=True to go on with its run, or name a new file for a new one")
    return os.open(path, _FLAGS)


def require_still(path: str, descriptor: int) -> None:
    """Refuse a file that another run has set aside before it was locked here.

    Raises:
        InvalidRequest: The path is another file's by now.
    """
    if not os.path.samestat(os.fstat(descriptor), os.lstat(path)):
        raise _taken(path)


def _taken(path: str) -> InvalidRequest:
    return InvalidRequest(f"journal: another run is writing {path}; wait for its end, or name another file")


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn an error of the operating system into one that names the journal and the remedy."""
    try:
        yield
    except BlockingIOError:
        raise _taken(path) from None
    except (FileNotFoundError, FileExistsError, PermissionError, NotADirectoryError) as error:
        raise InvalidRequest(
            f"journal: {path} cannot be opened: {error.strerror}; name a file in a folder that you may write to"
        ) from error
    except OSError as error:
        raise JournalError(f"journal {path} cannot be opened: {error.strerror}; mend that, and resume") from error
