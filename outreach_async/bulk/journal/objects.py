"""Storage for the objects of a journal: a folder, or a store that obstore opens. An object never replaces another one."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from outreach_async.errors import InvalidRequest

SCHEMES: Final = ("s3", "gs", "az", "file", "memory")
"""Schemes of the URLs of object journals."""

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_RETRY_SECONDS: Final = 60
"""Seconds after which a request to the store is not retried any more. The run cannot send rows during such an outage."""


class Objects(Protocol):
    """Objects under one prefix. Every method may be called from any thread, and raises `OSError` if it fails.

    Example:
        ```python
        from outreach_async.bulk.journal.objects import open_objects

        objects = open_objects("memory://example")
        print(objects.create("a", b"1"), objects.create("a", b"2"), objects.read("a"))  # -> True False b'1'
        ```
    """

    def create(self, name: str, content: bytes) -> bool:
        """Create an object unless it exists, and return whether it was created. Afterwards, the object is durable.

        False may also mean that an earlier request created the object, and its reply was lost.
        """

    def read(self, name: str) -> bytes:
        """Return the content of an object.

        Raises:
            FileNotFoundError: There is no such object.
        """

    def names(self) -> Iterator[str]:
        """Iterate over the names of all objects, in any order."""


def is_url(location: object) -> bool:
    """Return whether the location of a journal is a URL, and not a path."""
    return isinstance(location, str) and _URL.match(location) is not None


def open_objects(url: str) -> StoredObjects | FolderObjects:
    """Open the objects at a URL. Nothing is created or requested.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///folder` or `memory://name`.

    Raises:
        InvalidRequest: The URL is not one of these, contains credentials, or the extra `lake` is missing.
    """
    # A URL with credentials must not appear in the message.
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidRequest(
            "journal: expected a URL without user, password, query and fragment;"
            " pass credentials in the environment, as with AWS_ACCESS_KEY_ID"
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
    """Return the sorted names of the folders directly under a URL. In a folder of journals, these are the names of the journals.

    Raises:
        InvalidRequest: The URL is invalid; see `open_objects`.
        OSError: The folders cannot be listed.
    """
    return sorted(open_objects(url).folders())


@cache
def _memory() -> Any:
    return _import_obstore("memory").store.MemoryStore()  # one for the process, so that a run can be resumed


def _open_store(url: str) -> Any:
    obstore, problem = _import_obstore(url.partition(":")[0]), ""
    retry = {"max_retries": 10, "retry_timeout": timedelta(seconds=_RETRY_SECONDS)}
    try:
        return obstore.store.from_url(url, retry_config=retry)  # client options would replace those of the environment
    except Exception as error:  # noqa: BLE001 - obstore raises many kinds, whose messages may hold credentials
        problem = describe_problem(error)
    raise InvalidRequest(f"journal: {url} cannot be opened: {problem}; see the documentation of obstore")


_DETAILS: Final = (
    re.compile(r"HTTP error: ([a-z ]+)"),
    re.compile(r"status code: (\d{3}(?: [A-Z][A-Za-z]*)*)"),
    re.compile(r"<Code>(\w{1,64})</Code>"),
    re.compile(r"\((os error \d+)\)"),
    re.compile(r"\b(Connection refused|Connection reset|operation timed out|dns error|certificate verify failed)\b"),
    re.compile(r"error: (\w+ must be specified)"),
)


def describe_problem(error: Exception) -> str:
    """Return what is known about an error of obstore, without its message, which may hold parts of URLs and credentials."""
    details = [match[1] for pattern in _DETAILS if (match := pattern.search(str(error)))]
    return ", ".join(details) or type(error).__name__


class StoredObjects:
    """Objects in a store of obstore: S3, Google Cloud Storage, Azure Blob Storage or memory.

    Args:
        store: The store, such as `obstore.store.S3Store("bucket")`.
        prefix: Prefix of the objects in the store; empty if the store has a prefix.
    """

    def __init__(self, store: Any, prefix: str) -> None:
        import obstore

        self._obstore = obstore
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""

    def create(self, name: str, content: bytes) -> bool:
        """Create an object unless it exists, and return whether it was created; see `Objects`."""
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
        """Iterate over the names of all objects."""
        problem = None
        try:
            for page in self._obstore.list(self._store, self._prefix or None):
                yield from (entry["path"].removeprefix(self._prefix) for entry in page)
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
    """Objects in a folder, which may be on a network file system. Each object is a file that only its owner can read.

    Args:
        folder: The folder. It is created with the first object.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create(self, name: str, content: bytes) -> bool:
        """Create an object unless it exists, and return whether it was created; see `Objects`."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The file gets its name only when it is complete and on the disk. A link, unlike a rename, replaces no file.
        descriptor, draft = tempfile.mkstemp(".tmp", ".outreach-", self._folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            try:
                os.link(draft, self._folder / name)
            except FileExistsError:
                return False
        finally:
            with suppress(FileNotFoundError):
                Path(draft).unlink()
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return True

    def read(self, name: str) -> bytes:
        """Return the content of an object; see `Objects`."""
        return (self._folder / name).read_bytes()

    def names(self) -> Iterator[str]:
        """Iterate over the names of all objects. Drafts, which a kill may leave, are no objects."""
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
