"""Where the bytes of a file come from: a path, or a stream that is kept for the time being, since a file is read twice."""

from __future__ import annotations

import gzip
import io
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, Protocol, TypeAlias, cast
from weakref import finalize

import attrs

from outreach_async.errors import InvalidRequest

STDIN: Final = "-"
"""The path that stands for standard input."""

_BLOCK: Final = 1 << 18
_GZIP: Final = b"\x1f\x8b"


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return up to so many bytes; none at the end."""


Given: TypeAlias = str | Path | Readable
"""What can be opened: a path, `"-"` for standard input, or a stream."""


class Spool:
    """The bytes of a stream, in a file that has no name: nobody else can read it, and it goes with the process however that ends.

    Args:
        stream: Is read to its end; without, there are no bytes until another process writes them.
    """

    def __init__(self, stream: Readable | None = None) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this object
        finalize(self, self._file.close)
        self._lock = Lock()
        while stream is not None and (block := stream.read(_BLOCK)):
            self._file.write(block)

    @contextmanager
    def lend(self) -> Iterator[int]:
        """Yield the file's descriptor to another process, which may move its place; readers of this object wait meanwhile."""
        with self._lock:
            self._file.flush()  # nothing is left to be written, nor kept of what was read: the next seek asks the system
            yield self._file.fileno()

    def open(self) -> BinaryIO:
        """Return a reader of its own place, at the start."""
        return io.BufferedReader(_Reader(self))

    def read_at(self, place: int, buffer: memoryview) -> int:
        """Read from a place on, as `readinto` does."""
        with self._lock:
            self._file.seek(place)
            return self._file.readinto(buffer)

    def size(self) -> int:
        """Return how many bytes there are."""
        with self._lock:
            return self._file.seek(0, io.SEEK_END)


class _Reader(io.RawIOBase):
    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # a BufferedReader gives no other buffer
        count = self._spool.read_at(self._place, buffer)
        self._place += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._spool.size()}[whence]
        self._place = base + offset
        return self._place

    def tell(self) -> int:
        return self._place


@attrs.frozen
class Source:
    """Bytes that can be read again and again.

    Attributes:
        name: What to call them.
        path: Where they are; `None` if they are kept here.
        zipped: Whether they are gzip.
    """

    name: str
    path: Path | None
    zipped: bool
    _spool: Spool | None = None

    @classmethod
    def of(cls, given: Given) -> Source:
        """Find a file. What can be read only once, standard input, a pipe or a stream, is kept in a temporary file.

        Raises:
            InvalidRequest: A folder, or not readable.
        """
        if isinstance(given, str | Path) and str(given) != STDIN:
            return cls._at(Path(given))
        stream, name = (sys.stdin.buffer, "standard input") if isinstance(given, str | Path) else (given, "the stream")
        return cls._kept(stream, name)

    @classmethod
    def _at(cls, path: Path) -> Source:
        if path.is_dir():
            raise InvalidRequest(f"{path}: not a file but a folder; name a file in it")
        with explained(str(path)), path.open("rb") as file:
            if not path.is_file():
                return cls._kept(file, str(path))
            return cls(str(path), path, file.read(len(_GZIP)) == _GZIP)

    @classmethod
    def _kept(cls, stream: Readable, name: str) -> Source:
        with explained(name):
            spool = Spool(stream)
        with spool.open() as file:
            return cls(name, None, file.read(len(_GZIP)) == _GZIP, spool)

    @contextmanager
    def raw(self) -> Iterator[BinaryIO]:
        """Open the bytes as they are.

        Raises:
            InvalidRequest: They cannot be read.
        """
        with explained(self.name), self._open() as file:
            yield file

    @contextmanager
    def plain(self) -> Iterator[BinaryIO]:
        """Open the bytes, unpacked.

        Raises:
            InvalidRequest: They cannot be read.
        """
        with self.raw() as file:
            if not self.zipped:
                yield file
                return
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield cast("BinaryIO", unpacked)

    @contextmanager
    def lend(self) -> Iterator[int]:
        """Yield a descriptor of the bytes as they are to another process, which has to seek to their start.

        Raises:
            InvalidRequest: They cannot be read.
        """
        if self._spool is not None:
            with self._spool.lend() as descriptor:
                yield descriptor
            return
        with self.raw() as file:
            yield file.fileno()

    def fingerprint(self) -> str:
        """Return a digest of the bytes as they are.

        Raises:
            InvalidRequest: They cannot be read.
        """
        with self.raw() as file:
            digest = blake2b(digest_size=16)
            while block := file.read(_BLOCK):
                digest.update(block)
            return digest.hexdigest()

    def _open(self) -> BinaryIO:
        if self._spool is not None:
            return self._spool.open()
        return cast("Path", self.path).open("rb")


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Make a failure to read a person's to mend.

    Raises:
        InvalidRequest: The block could not read.
    """
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidRequest(f"{name}: damaged gzip ({error}); fetch it anew") from error
    except OSError as error:
        raise InvalidRequest(f"{name}: {error.strerror or error}; name a file that can be read") from error
