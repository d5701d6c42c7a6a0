"""Store a journal as numbered objects, in a folder or an object store.

Each object contains the changes of one transaction. A writer creates objects, and never replaces an object. If two writers try to
create an object with the same number, only one of them succeeds, and the other writer stops. In this way, a run stops after
another run has taken over its journal.

Each object contains a checksum and the digest of the previous object. This detects missing, incomplete, changed and foreign
objects.

The name of an object is `GENERATION-NUMBER`. A generation is a series of objects, numbered from 0. If the journal is
damaged, a resumed run with `earlier="unknown"` starts a new generation. Only the last generation is read.
"""

from __future__ import annotations

import errno
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import cache
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

import msgspec

from outreach_async.bulk.journal._database import Change
from outreach_async.bulk.journal._identity import OTHER_JOURNAL
from outreach_async.bulk.journal._reader import DamagedJournalError
from outreach_async.bulk.journal._records import DECODING_ERRORS, CorruptContentError, require
from outreach_async.errors import InvalidRequest, JournalError

SCHEMES: Final = ("s3", "gs", "az", "file", "memory")
"""Schemes of the URLs of object journals."""

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_RETRY_SECONDS: Final = 60
"""Seconds for which a failing request to the store is retried. Meanwhile, the run sends no further rows."""
_CONFLICT_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds to wait after each create that the store refuses although the object does not exist."""
_DETAILS: Final = (
    re.compile(r"HTTP error: ([a-z ]+)"),
    re.compile(r"status code: (\d{3}(?: [A-Z][A-Za-z]*)*)"),
    re.compile(r"<Code>(\w{1,64})</Code>"),
    re.compile(r"\((os error \d+)\)"),
    re.compile(r"\b(Connection refused|Connection reset|operation timed out|dns error|certificate verify failed)\b"),
    re.compile(r"error: (\w+ must be specified)"),
)
"""Patterns of the details that may be copied from an error message of obstore."""

_NAME: Final = re.compile(r"([0-9]{4})-([0-9]{10})")
"""Pattern of an object's name, which contains the object's generation and number."""
_MAGIC: Final = b"OAOJ"  # outreach_async, object journal
_VERSION: Final = b"\1"
_CHECKSUM_SIZE: Final = 8
_DIGEST_SIZE: Final = 8
_WBITS: Final = -15  # without zlib's own header and checksum
_COMMON_TEXT: Final = (
    b'\x93\x92\xa6errors\xd9[[0,"[\\"StatusError\\",\\"\\",\\"create_contact\\",422,1,true,false]"]]'
    b'\x94\xa8metadata\xa5state\xaa"finished"\xce\x94\xa8metadata\xa8suspects\xa2[]\xce\xa6events\xa7spooled'
    b"\x92\x95\xa6window\xcd\xcd\xc4\x08\xd2\x94\xa8metadata\xa3hwm\xa3000\xd2"
    b"\x92\x92\xa8outcomes\xdc\x97\x00\x00\xb80123456789abcdef01234567\x01\xc0\xc0\xc0\x97\x01\x00\xb80123456789abcdef01234567"
    b'\x94\xa8metadata\xa6totals\xd9\xbc{"rows":100,"outcomes":{"added":100,"skipped":0,"overwriten":0,"updated_missing_fields":0,'
    b'"rejected":0,"not_applied":0,"unknown":0},"uncertain":0,"repeats":0,"seconds":0.'
)
"""Preset dictionary for zlib: bytes that most objects contain. It is part of the format: a change requires a new `_VERSION`."""
_NO_DIGEST: Final = bytes(_DIGEST_SIZE)
_READERS: Final = 16
"""Maximum number of objects that are read concurrently. Concurrent reads hide the high latency of a store."""


class Objects(Protocol):
    """Storage of objects under one prefix. Every method may be called from any thread, and raises `OSError` on failure."""

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
        """Create an object unless the name is taken, and return whether the object was created. A created object is durable."""
        # The result may be `False` although this call created the object. This happens if the response of the store is lost: the
        # request is then sent again, and fails because the name is taken.

    def read(self, name: str) -> bytes:
        """Return the content of an object."""

    def names(self) -> Iterator[str]:
        """Iterate over the names of all objects, in any order."""


def is_url(location: object) -> bool:
    """Return whether the location of a journal is a URL rather than a path."""
    return isinstance(location, str) and _URL.match(location) is not None


def open_objects(url: str) -> StoredObjects | FolderObjects:
    """Return the storage at a URL. No object is created, and no request is sent."""
    # A URL with credentials must not appear in an error message.
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidRequest(
            "journal: expected a URL without user, password, query or fragment;"
            " pass credentials in environment variables such as AWS_ACCESS_KEY_ID"
        )
    if parts.scheme not in SCHEMES:
        expected = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise InvalidRequest(f"journal: expected a path or a URL that starts with one of {expected}, got {url!r}")
    prefix = parts.path.strip("/")
    if parts.scheme == "file":
        if parts.netloc or not prefix:
            raise InvalidRequest(f"journal: expected the absolute path of a folder, as in file:///data/run, got {url!r}")
        return FolderObjects(Path(unquote(parts.path)))
    if not parts.netloc or not (prefix or parts.scheme == "memory"):
        raise InvalidRequest(f"journal: expected a bucket and a prefix, as in s3://bucket/run, got {url!r}")
    if parts.scheme == "memory":
        return StoredObjects(_memory(), "/".join(filter(None, (parts.netloc, prefix))))
    return StoredObjects(_open_store(url), "")


def _import_obstore(scheme: str) -> Any:
    try:
        import obstore.store
    except ImportError:
        raise InvalidRequest(f"journal: {scheme}:// needs the extra 'lake'; run pip install 'outreach_async[lake]'") from None
    return obstore


def list_folders(url: str) -> list[str]:
    """Return the sorted names of the folders under a URL. In a folder of journals, they are the names of the journals."""
    return sorted(open_objects(url).folders())


@cache
def _memory() -> Any:
    return _import_obstore("memory").store.MemoryStore()  # one store per process, so that a run can be resumed


def _open_store(url: str) -> Any:
    obstore, problem = _import_obstore(url.partition(":")[0]), ""
    retry = {"max_retries": 10, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
    try:
        return obstore.store.from_url(url, retry_config=retry)  # client options would replace those of the environment
    except Exception as error:  # noqa: BLE001 - obstore raises many kinds, whose messages may contain credentials
        problem = describe_problem(error)
    raise InvalidRequest(f"journal: {url} cannot be opened: {problem}; see the documentation of obstore")


def describe_problem(error: Exception) -> str:
    """Return a short description of an obstore error. Its message is not returned, because it may contain credentials."""
    details = [match[1] for pattern in _DETAILS if (match := pattern.search(str(error)))]
    return ", ".join(details) or type(error).__name__


class StoredObjects:
    """Storage in a store that obstore supports: S3, Google Cloud Storage, Azure Blob Storage or memory."""

    def __init__(self, store: Any, prefix: str) -> None:
        import obstore

        self._obstore = obstore
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:  # noqa: ARG002 - a store needs no folder
        """Create an object unless the name is taken, and return whether the object was created; see `Objects`."""
        exceptions = self._obstore.exceptions
        taken = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
        try:
            self._obstore.put(self._store, self._prefix + name, content, mode="create", use_multipart=False)
        except taken:
            return False
        except Exception as error:  # noqa: BLE001 - see `describe_problem`
            problem = describe_problem(error)
        else:
            return True
        raise OSError(f"{name} cannot be written: {problem}")

    def read(self, name: str) -> bytes:
        """Return the content of an object; see `Objects`."""
        try:
            return bytes(self._obstore.get(self._store, self._prefix + name).bytes())
        except FileNotFoundError:
            problem = None
        except Exception as error:  # noqa: BLE001 - see `describe_problem`
            problem = describe_problem(error)
        if problem is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        raise OSError(f"{name} cannot be read: {problem}")

    def names(self) -> Iterator[str]:
        """Iterate over the names of all objects. An object that a console creates to show the prefix as a folder is skipped."""
        problem = None
        try:
            for page in self._obstore.list(self._store, self._prefix or None):
                paths = (entry["path"] for entry in page)
                yield from (path.removeprefix(self._prefix) for path in paths if path and f"{path}/" != self._prefix)
        except Exception as error:  # noqa: BLE001 - see `describe_problem`
            problem = describe_problem(error)
        if problem is not None:
            raise OSError(f"the objects cannot be listed: {problem}")

    def folders(self) -> list[str]:
        """Return the names of the folders directly under the URL."""
        try:
            found = self._obstore.list_with_delimiter(self._store, self._prefix or None)["common_prefixes"]
        except Exception as error:  # noqa: BLE001 - see `describe_problem`
            problem = describe_problem(error)
        else:
            return [path.rstrip("/").rpartition("/")[2] for path in found]
        raise OSError(f"the objects cannot be listed: {problem}")


class FolderObjects:
    """Storage in a folder, which may be on a network file system. Each object is a file that only its owner can read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
        """Create an object unless the name is taken, and return whether the object was created; see `Objects`."""
        if after is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # All calls use one descriptor: the path may come to lead to another folder at any moment, such as an empty mount point.
        try:
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                if after is not None:
                    os.stat(after, dir_fd=folder)
                return _link_new(folder, name, content)
            finally:
                os.close(folder)
        except FileNotFoundError:
            raise OSError("the folder was removed, renamed or unmounted during the run") from None

    def read(self, name: str) -> bytes:
        """Return the content of an object; see `Objects`."""
        return (self._folder / name).read_bytes()

    def names(self) -> Iterator[str]:
        """Iterate over the names of all objects. Temporary files, which a killed process may leave behind, are skipped."""
        try:
            yield from (entry.name for entry in os.scandir(self._folder) if not entry.name.startswith(".outreach-"))
        except FileNotFoundError:
            return

    def folders(self) -> list[str]:
        """Return the names of the folders in this folder."""
        try:
            return [entry.name for entry in os.scandir(self._folder) if entry.is_dir()]
        except FileNotFoundError:
            return []


def _link_new(folder: int, name: str, content: bytes) -> bool:
    """Create a file in the folder with this descriptor unless the name is taken. Return whether it was created."""
    # The file gets its final name only when it is complete and on the disk. Unlike a rename, a link never replaces a file.
    draft = f".outreach-{token_hex(8)}.tmp"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        return False
    finally:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)
    os.fsync(folder)
    return True


def create_or_read(
    objects: Objects,
    name: str,
    content: bytes,
    *,
    after: str | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> bytes:
    """Create an object unless its name is taken. Return the content that is stored under the name."""
    # A request whose response was lost is retried, and the retry finds the object. Only its content shows who created it.
    for pause in _CONFLICT_PAUSES:
        if objects.create(name, content, after=after):
            return content
        with suppress(FileNotFoundError):
            return objects.read(name)
        sleep(pause)  # S3 refuses a create with 409 while another one is under way, which may still fail
    raise OSError(f"{name} cannot be written: the store reports a conflict with another write of this object")


class TakenOverError(JournalError):
    """Another run has taken over the journal: that run has created the next object of the log."""


def encode_object(writer: bytes, number: int, previous: bytes, changes: Sequence[Change]) -> bytes:
    """Return the content of an object."""
    compressor = zlib.compressobj(9, wbits=_WBITS, zdict=_COMMON_TEXT)
    compressed = compressor.compress(msgspec.msgpack.encode(changes)) + compressor.flush()
    body = b"".join((writer, number.to_bytes(8), previous, compressed))
    return _MAGIC + _VERSION + _checksum(body) + body


def decode_object(content: bytes, number: int, previous: bytes) -> list[list[Any]]:
    """Return the changes that an object contains."""
    start = len(_MAGIC) + len(_VERSION)
    checksum, body = content[start : start + _CHECKSUM_SIZE], content[start + _CHECKSUM_SIZE :]
    require(content.startswith(_MAGIC + _VERSION) and checksum == _checksum(body), "checksum mismatch")
    require(int.from_bytes(body[8:16]) == number, f"expected object number {number}")
    require(body[16 : 16 + _DIGEST_SIZE] == previous, "the digest of the previous object does not match")
    decompressor = zlib.decompressobj(wbits=_WBITS, zdict=_COMMON_TEXT)
    changes = decompressor.decompress(body[16 + _DIGEST_SIZE :])
    require(decompressor.eof and not decompressor.unused_data, "incomplete data")
    return msgspec.msgpack.decode(changes, type=list[list[Any]])


def is_newer(content: bytes) -> bool:
    """Return whether an object was written by a newer version of this library."""
    return content.startswith(_MAGIC) and content[len(_MAGIC) : len(_MAGIC) + 1] > _VERSION


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECKSUM_SIZE).digest()


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_SIZE).digest()


class ObjectLog:
    """The log of an object journal: reads the objects of the last generation in order, and appends new objects."""

    def __init__(self, objects: Objects, name: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self.name = name
        self.generation = self.number = 0
        self._objects = objects
        self._end = 0
        self._previous = _NO_DIGEST
        self._last: str | None = None
        self._is_fenced = False
        self._sleep = sleep
        self._writer = token_bytes(8)

    def find(self) -> bool:
        """Find the last generation and its last object. Return whether the log contains any objects."""
        last = (self.generation, self.number - 1)
        for name in self._objects.names():
            match = _NAME.fullmatch(name)
            if match is None:
                raise InvalidRequest(
                    f"journal: {self.name} contains objects that do not belong to a journal, such as {name!r};"
                    f" move them to another prefix, or {OTHER_JOURNAL}"
                )
            last = max(last, (int(match[1]), int(match[2])))
        if last[0] > self.generation and self.number:
            raise self._taken_over()
        if last[0] > self.generation:
            self._begin_generation(last[0])
        self._end = last[1] + 1
        if last < (0, 0):
            return False
        self._last = f"{last[0]:04}-{last[1]:010}"
        return True

    def read(self) -> Iterator[list[list[Any]]]:
        """Read the objects that `find` has found, and yield the changes of each."""
        # Objects are read by number, up to the last listed one: a listing may miss earlier objects that are created meanwhile.
        with ThreadPoolExecutor(_READERS) as pool:
            while self.number < self._end:
                numbers = range(self.number, min(self.number + 4 * _READERS, self._end))
                for content in pool.map(self._read, numbers):
                    yield self._accept(content)

    def _read(self, number: int) -> bytes | None:
        try:
            return self._objects.read(self._name_of(number))
        except FileNotFoundError:
            return None

    def _accept(self, content: bytes | None) -> list[list[Any]]:
        name = self._name_of(self.number)
        if content is None:
            raise self.damaged(f"object {name} is missing")
        if is_newer(content):
            raise InvalidRequest(f"journal: {self.name} was written by a newer version of this library; use that version")
        try:
            changes = decode_object(content, self.number, self._previous)
        except (CorruptContentError, zlib.error, *DECODING_ERRORS) as error:
            raise self.damaged(f"object {name} is damaged: {error}") from error
        self._advance(content)
        return changes

    def append(self, changes: Sequence[Change]) -> None:
        """Write the next object."""
        content = encode_object(self._writer, self.number, self._previous, changes)
        if not self._create(self.number, content):
            raise self._taken_over()
        if not self._is_fenced:
            self._require_fence(content)
        self._advance(content)

    def _create(self, number: int, content: bytes) -> bool:
        """Create an object unless the name is taken. Return whether the stored object contains `content`."""
        name = self._name_of(number)
        if create_or_read(self._objects, name, content, after=self._last, sleep=self._sleep) != content:
            return False
        self._last = name
        return True

    def _require_fence(self, content: bytes) -> None:
        """Check with the first object of this writer that the store refuses to create an object twice."""
        name = self._name_of(self.number)
        if self._objects.create(name, content, after=name):
            raise JournalError(
                f"journal {self.name}: the store replaced {name}, but it must refuse to create an object that exists"
                " (If-None-Match: *), because otherwise two runs could use one journal; move the journal to another store,"
                " such as S3"
            )
        self._is_fenced = True

    def _taken_over(self) -> TakenOverError:
        return TakenOverError(
            f"journal {self.name}: another run has taken over the journal; this run sends nothing more,"
            " and the other run sends the remaining rows"
        )

    def set_aside(self) -> None:
        """Start a new generation to replace the damaged generation."""
        # Another run may still be writing to the damaged generation. To stop that run, this method first creates the next object
        # of the damaged generation. The next write of the other run then fails.
        number = self._end
        while not self._create(number, encode_object(self._writer, number, _NO_DIGEST, [])):
            number += 1
        self._begin_generation(self.generation + 1)

    def damaged(self, reason: str) -> DamagedJournalError:
        return DamagedJournalError(
            f'journal {self.name} is damaged: {reason}; restore the object, or resume with earlier="unknown"'
            " (on the command line: --resume --earlier unknown). The resumed run then starts over at the"
            " first row and counts every row as possibly sent; the existing objects are kept"
        )

    def _begin_generation(self, generation: int) -> None:
        self.generation, self.number, self._end, self._previous = generation, 0, 0, _NO_DIGEST

    def _advance(self, content: bytes) -> None:
        self.number += 1
        self._previous = _digest(content)

    def _name_of(self, number: int) -> str:
        return f"{self.generation:04}-{number:010}"
