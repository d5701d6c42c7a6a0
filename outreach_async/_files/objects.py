"""Objects in a folder or an object store: created only if their name is free, read whole, and listed.

Stores are those of obstore (extra `lake`), which reads its credentials from the environment. Its errors may quote them, so no
error contains the text of another error.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from secrets import token_hex
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from outreach_async.errors import InvalidRequest

SCHEMES: Final = ("s3", "gs", "az", "file", "memory")  # schemes of the URLs of object journals

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_RETRY_SECONDS: Final = 60  # a failing request to the store is retried this long; meanwhile, the run sends no further rows
_CONFLICT_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # seconds after each create that is refused without an object
_DETAILS: Final = (  # what may be copied from an error message of obstore
    re.compile(r"HTTP error: ([a-z ]+)"),
    re.compile(r"status code: (\d{3}(?: [A-Z][A-Za-z]*)*)"),
    re.compile(r"<Code>(\w{1,64})</Code>"),
    re.compile(r"\((os error \d+)\)"),
    re.compile(r"\b(Connection refused|Connection reset|operation timed out|dns error|certificate verify failed)\b"),
    re.compile(r"error: (\w+ must be specified)"),
)
_UNLISTED: Final = "the objects cannot be listed"
_Errors: TypeAlias = type[Exception] | tuple[type[Exception], ...]


class Objects(Protocol):
    """Storage of objects under one prefix. Every method may be called from any thread, and raises `OSError` on failure."""

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
        """Create an object unless the name is taken, and return whether the object was created. A created object is durable."""
        # The result may be `False` although this call created the object: if the response of the store is lost, the request is
        # sent again, and fails because the name is taken.

    def read(self, name: str) -> bytes:
        """Return the content of an object."""

    def names(self) -> Iterator[str]:
        """Iterate over the names of all objects, in any order."""


def is_url(location: object) -> bool:
    return isinstance(location, str) and _URL.match(location) is not None


def open_place(place: str) -> StoredObjects | FolderObjects:
    """Return the storage at a URL or in a folder."""
    return open_objects(place) if is_url(place) else FolderObjects(Path(place))


def split_url(url: str, field: str) -> SplitResult:
    """Return the parts of a URL. Errors name the field."""
    try:
        return urlsplit(url)
    except ValueError:  # of brackets
        raise InvalidRequest(f"{field}: the host of the URL is invalid; pass a URL such as s3://bucket/prefix") from None


def open_objects(url: str, field: str = "journal") -> StoredObjects | FolderObjects:
    """Return the storage at a URL. No request is sent. Errors name the field."""
    parts = split_url(url, field)
    if "@" in parts.netloc or parts.query or parts.fragment:  # no error shows a URL with credentials
        raise InvalidRequest(
            f"{field}: expected a URL without user, password, query or fragment;"
            " pass credentials in environment variables such as AWS_ACCESS_KEY_ID"
        )
    if parts.scheme not in SCHEMES:
        expected = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise InvalidRequest(f"{field}: expected a path or a URL that starts with one of {expected}, got {url!r}")
    prefix = parts.path.strip("/")
    if parts.scheme == "file":
        if parts.netloc or not prefix:
            raise InvalidRequest(f"{field}: expected the absolute path of a folder, as in file:///data/run, got {url!r}")
        return FolderObjects(Path(unquote(parts.path)))
    if not parts.netloc or not (prefix or parts.scheme == "memory"):
        raise InvalidRequest(f"{field}: expected a bucket and a prefix, as in s3://bucket/run, got {url!r}")
    return StoredObjects(*open_store(f"{parts.scheme}://{parts.netloc}/{prefix}", field))


def import_obstore(scheme: str, field: str) -> Any:
    try:
        import obstore.store
    except ImportError:
        raise InvalidRequest(f"{field}: {scheme}:// needs the extra 'lake'; run pip install 'outreach_async[lake]'") from None
    return obstore


def list_folders(url: str, field: str = "journal") -> list[str]:
    """Return the sorted names of the folders under a URL, such as the journals in a folder of journals."""
    return sorted(open_objects(url, field).folders())


@cache
def _memory() -> Any:
    return import_obstore("memory", "journal").store.MemoryStore()  # one store per process, so that a run can be resumed


def open_store(url: str, field: str) -> tuple[Any, str]:
    """Return obstore's store of a URL, and the key of the object or prefix in the store. Errors name the field."""
    scheme, _, rest = url.partition("://")
    if scheme == "memory":
        return _memory(), rest.strip("/")
    bucket, _, key = rest.partition("/")
    obstore, problem = import_obstore(scheme, field), ""
    retry = {"max_retries": 10, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
    try:  # client options would replace those of the environment
        return obstore.store.from_url(f"{scheme}://{bucket}", retry_config=retry), key.strip("/")
    except Exception as error:  # noqa: BLE001 - obstore raises many kinds, whose messages may contain credentials
        problem = describe_problem(error)
    raise InvalidRequest(f"{field}: {url} cannot be opened: {problem}; see the documentation of obstore")


def describe_problem(error: Exception) -> str:
    """Return a short description of an obstore error, whose message may contain credentials."""
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
        exceptions = self._obstore.exceptions
        taken = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
        put, key = self._obstore.put, self._prefix + name
        failure = f"{name} cannot be written"
        return _call(failure, lambda: put(self._store, key, content, mode="create", use_multipart=False), taken) is not None

    def read(self, name: str) -> bytes:
        failure = f"{name} cannot be read"
        found = _call(failure, lambda: bytes(self._obstore.get(self._store, self._prefix + name).bytes()), FileNotFoundError)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return bytes(found)

    def replace(self, name: str, content: bytes) -> None:
        """Write an object, whether or not its name is taken."""
        put, key = self._obstore.put, self._prefix + name
        _call(f"{name} cannot be written", lambda: put(self._store, key, content, use_multipart=False))

    def delete(self, name: str) -> None:
        _call(f"{name} cannot be deleted", lambda: self._obstore.delete(self._store, self._prefix + name))

    def names(self) -> Iterator[str]:
        """Iterate over the names of all objects. An object that a console creates to show the prefix as a folder is skipped."""
        pages = iter(_call(_UNLISTED, lambda: self._obstore.list(self._store, self._prefix or None)))
        while (page := _call(_UNLISTED, lambda: next(pages, None))) is not None:
            paths = (entry["path"] for entry in page)
            yield from (path.removeprefix(self._prefix) for path in paths if path and f"{path}/" != self._prefix)

    def folders(self) -> list[str]:
        found = _call(_UNLISTED, lambda: self._obstore.list_with_delimiter(self._store, self._prefix or None))
        return [path.rstrip("/").rpartition("/")[2] for path in found["common_prefixes"]]


def _call(failure: str, call: Callable[[], Any], expected: _Errors = ()) -> Any:
    """Call a function of obstore. Return `None` after an expected error, and raise `OSError` after any other one."""
    try:
        return call()
    except expected:
        return None
    except Exception as error:  # noqa: BLE001 - see `describe_problem`
        problem = describe_problem(error)
    raise OSError(f"{failure}: {problem}")  # outside of the handler, which would set `__context__` to an error with secrets


class FolderObjects:
    """Storage in a folder, which may be on a network file system. Each object is a file that only its owner can read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
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
        return (self._folder / name).read_bytes()

    def replace(self, name: str, content: bytes) -> None:
        from outreach_async._files.atomic import atomic_file, sync  # imported on demand: few programs replace objects

        with atomic_file(self._folder / name, private=True) as draft:
            draft.write(content)
            draft.flush()
            os.fsync(draft.fileno())
        sync(self._folder)

    def delete(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def names(self) -> Iterator[str]:
        """Iterate over the names of all objects. Temporary files, which a killed process may leave behind, are skipped."""
        try:
            with os.scandir(self._folder) as entries:
                yield from (entry.name for entry in entries if not entry.name.startswith(".outreach-"))
        except FileNotFoundError:
            return

    def folders(self) -> list[str]:
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
    objects: Objects, name: str, content: bytes, *, after: str | None = None, sleep: Callable[[float], None] = time.sleep
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
