"""Read the bytes of a file from a path or a stream. A stream is copied, because the bytes are read more than once."""

from __future__ import annotations

import gzip
import io
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, Protocol, TypeAlias, cast
from weakref import finalize

import attrs

from outreach_async.errors import InvalidRequest

STDIN: Final = "-"
"""Path of standard input."""

_BLOCK_SIZE: Final = 1 << 18
_GZIP_MAGIC: Final = b"\x1f\x8b"


class BinaryStream(Protocol):
    """A stream from which bytes can be read."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, or `b""` at the end of the stream."""


FileInput: TypeAlias = str | Path | BinaryStream
"""An input to open: a path, `"-"` for standard input, or a stream."""


class StoredBytes(Protocol):
    """Bytes that are not in a file of the user, such as a copied stream, and can be read any number of times."""

    def open(self) -> BinaryIO:
        """Return a reader that begins at the start and has a position of its own."""

    def lend_descriptor(self) -> AbstractContextManager[int]:
        """Yield a file descriptor of the bytes for another process."""


class StreamCopy:
    """A copy of a stream in an unnamed temporary file. The file is removed when the process exits, even after a crash.

    Args:
        stream: The stream, read to its end; `None` for an empty file that another process will fill.
    """

    def __init__(self, stream: BinaryStream | None = None) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this object
        finalize(self, self._file.close)
        self._lock = Lock()  # readers share the file position, so each seeks and reads under the lock
        while stream is not None and (block := stream.read(_BLOCK_SIZE)):
            self._file.write(block)

    @contextmanager
    def lend_descriptor(self) -> Iterator[int]:
        """Yield the file's descriptor for another process.

        Readers wait until the block ends, because the process and the readers share the file position.
        """
        with self._lock:
            self._file.flush()  # empties the buffer, so that the next seek asks the operating system
            yield self._file.fileno()

    def open(self) -> BinaryIO:
        """Return a reader that begins at the start of the file and has a position of its own."""
        return io.BufferedReader(_StreamCopyReader(self))

    def read_at(self, place: int, buffer: memoryview) -> int:
        """Read bytes at a position into a buffer, and return their number, as `readinto` does."""
        with self._lock:
            self._file.seek(place)
            return self._file.readinto(buffer)

    def size(self) -> int:
        """Return the size in bytes."""
        with self._lock:
            return self._file.seek(0, io.SEEK_END)


class _StreamCopyReader(io.RawIOBase):
    def __init__(self, copy: StreamCopy) -> None:
        self._copy = copy
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # a BufferedReader passes no other buffer
        count = self._copy.read_at(self._position, buffer)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._copy.size()}[whence]
        return self._position


@attrs.frozen
class ByteSource:
    """Bytes that can be read any number of times.

    Attributes:
        name: Name of the file in messages.
        path: Path of the file; `None` for bytes that are stored elsewhere.
        is_gzip: Whether the bytes are compressed with gzip.
    """

    name: str
    path: Path | None
    is_gzip: bool
    _stored: StoredBytes | None = None

    @classmethod
    def of(cls, file: FileInput) -> ByteSource:
        """Open an input. Standard input, a pipe and a stream can be read only once, so they are copied to a temporary file.

        Raises:
            InvalidRequest: The input is a folder, or cannot be read.
        """
        if not isinstance(file, str | Path):
            return cls._from_stream(file, "the stream")
        if str(file) == STDIN:
            return cls._from_stream(sys.stdin.buffer, "standard input")
        path = Path(file)
        if path.is_dir():
            raise InvalidRequest(f"{path}: expected a file, got a folder; pass the path of a file")
        with translate_read_errors(str(path)), path.open("rb") as opened:
            if not path.is_file():
                return cls._from_stream(opened, str(path))
            return cls(str(path), path, opened.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC)

    @classmethod
    def _from_stream(cls, stream: BinaryStream, name: str) -> ByteSource:
        with translate_read_errors(name):
            return cls.of_stored(name, StreamCopy(stream))

    @classmethod
    def of_stored(cls, name: str, stored: StoredBytes) -> ByteSource:
        """Open bytes that are not in a file of the user.

        Args:
            name: Name of the input in messages.
            stored: The bytes.

        Raises:
            InvalidRequest: The bytes cannot be read.
        """
        with translate_read_errors(name), stored.open() as file:
            return cls(name, None, file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC, stored)

    @contextmanager
    def open_raw(self) -> Iterator[BinaryIO]:
        """Open the bytes as stored, without decompressing them.

        Raises:
            InvalidRequest: The bytes cannot be read.
        """
        stored = self._stored
        with translate_read_errors(self.name), stored.open() if stored else cast("Path", self.path).open("rb") as file:
            yield file

    @contextmanager
    def open_unpacked(self) -> Iterator[BinaryIO]:
        """Open the bytes, decompressed if they are compressed with gzip.

        Raises:
            InvalidRequest: The bytes cannot be read.
        """
        with self.open_raw() as file, gzip.GzipFile(fileobj=file) if self.is_gzip else nullcontext(file) as unpacked:
            yield cast("BinaryIO", unpacked)

    @contextmanager
    def lend_descriptor(self) -> Iterator[int]:
        """Yield a descriptor of the stored bytes for another process. That process must first seek to the start.

        Raises:
            InvalidRequest: The bytes cannot be read.
        """
        if self._stored is not None:
            with self._stored.lend_descriptor() as descriptor:
                yield descriptor
            return
        with self.open_raw() as file:
            yield file.fileno()

    def fingerprint(self) -> str:
        """Return a digest of the bytes as stored.

        Raises:
            InvalidRequest: The bytes cannot be read.
        """
        with self.open_raw() as file:
            digest = blake2b(digest_size=16)
            while block := file.read(_BLOCK_SIZE):
                digest.update(block)
            return digest.hexdigest()


@contextmanager
def translate_read_errors(name: str) -> Iterator[None]:
    """Convert a read error to an `InvalidRequest` with a remedy.

    Raises:
        InvalidRequest: The block raised a read error.
    """
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidRequest(f"{name}: damaged gzip file ({error}); download or create it again") from error
    except OSError as error:
        raise InvalidRequest(f"{name}: {error.strerror or error}; pass a readable file") from error
