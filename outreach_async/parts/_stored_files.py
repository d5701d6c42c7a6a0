"""Open input files, and detect changed files. A file is given as a path, or as the URL of an object on an object store.

Objects are read with obstore, which reads its credentials from the environment. Each read request names the version that
the object had when the import was planned. If the object has changed since then, the request fails.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import translate
from glob import glob
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO, Final
from urllib.parse import unquote, urlsplit

import attrs

from outreach_async._plumbing import describe_problem, open_store, require_types
from outreach_async.errors import InvalidRequest
from outreach_async.importer import StoredFile

_OBJECT_SCHEMES: Final = ("s3", "gs", "az", "memory")
_URL: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+)://", re.IGNORECASE)
_MIN_BLOCK: Final = 1 << 16
_MAX_BLOCK: Final = 1 << 23


@attrs.frozen
class FileVersion:
    size: int
    tag: str


def parse_location(file: str | os.PathLike[str]) -> str:
    require_types(parse_location, locals())
    text = os.fspath(file)
    if text == "-":
        raise InvalidRequest(
            "files: expected paths or URLs, got '-' (standard input), which can be read only once; save it in a file"
        )
    if not (match := _URL.match(text)):
        return str(Path(text).absolute())
    scheme, parts = match["scheme"].lower(), urlsplit(text)
    if parts.username is not None or parts.query or parts.fragment:
        # The URL is not shown, because it contains a secret.
        raise InvalidRequest("files: expected a URL without user, query or fragment; pass credentials through the environment")
    if scheme == "file":
        if parts.netloc not in {"", "localhost"}:
            raise InvalidRequest(f"files: expected a file URL without a host, got {text!r}; write file:///folder/name")
        return str(Path(unquote(parts.path)).absolute())
    if scheme not in _OBJECT_SCHEMES:
        schemes = ", ".join(f"{name}://" for name in ("file", *_OBJECT_SCHEMES))
        raise InvalidRequest(
            f"files: expected a path or a URL with {schemes}, got {scheme}://; copy the file to such a path or URL"
        )
    if not parts.netloc or not parts.path.strip("/"):
        raise InvalidRequest(f"files: expected a URL with a bucket and a key, got {text!r}; write {scheme}://bucket/key")
    return f"{scheme}://{parts.netloc}/{parts.path.lstrip('/')}"


def find_files(pattern: str) -> list[str]:
    r"""Return the paths or URLs of the files that match a pattern, sorted.

    Patterns are, for example, `lake/*.parquet` and
    `s3://bucket/may/*.csv`. One without a wildcard is returned as an
    absolute path or a URL, even if there is no such file.

    Raises:
        InvalidRequest: No file matches, or the store cannot be read.

    Example:
        ```python
        Path("may.csv").write_text("E-mail\nann@company.example\n")
        print([Path(location).name for location in find_files("*.csv")])  # -> ['may.csv']
        ```
    """
    location = parse_location(pattern)
    wildcard = re.search(r"[*?\[]", location)
    if wildcard is None or (not _URL.match(location) and Path(location).exists()):
        return [location]
    if _URL.match(location):
        with _translate_store_errors(location):
            store, prefix = open_store(location[: wildcard.start()].rpartition("/")[0], "files")
            root = location.removesuffix(open_store(location, "files")[1])
            urls = [f"{root}{item['path']}" for batch in store.list(f"{prefix}/" if prefix else None) for item in batch]
        found = [*filter(re.compile(translate(location)).match, urls)]
    else:
        found = glob(location, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    if not found:
        raise InvalidRequest(f"files: expected a pattern that matches a file, got {pattern!r}; check the folder and the pattern")
    return sorted(found)


def read_version(location: str) -> FileVersion:
    if _URL.match(location):
        with _translate_store_errors(location):
            store, key = open_store(location, "files")
            found = store.head(key)
        return FileVersion(found["size"], str(found["e_tag"]))  # every supported store has entity tags
    try:
        status = Path(location).stat()
    except OSError as error:
        raise InvalidRequest(f"{location}: {error.strerror or error}; pass a readable file") from error
    if not S_ISREG(status.st_mode):
        raise InvalidRequest(f"{location}: expected a regular file, got a folder, pipe or device; save the data in a file")
    return FileVersion(status.st_size, str(status.st_mtime_ns))


def require_version(location: str, version: FileVersion) -> None:
    if read_version(location) != version:
        raise changed_error(location)


def changed_error(location: str) -> InvalidRequest:
    return InvalidRequest(
        f"{location}: the file has changed since the import was planned; restore the file, or plan again and use new journals"
        ' with earlier="unknown", because some rows may have been sent'
    )


def open_location(location: str, version: FileVersion) -> StoredFile | str:
    require_version(location, version)
    return StoredObject(location, version) if _URL.match(location) else location


class StoredObject(StoredFile):
    def __init__(self, url: str, version: FileVersion) -> None:
        self.name = url
        self._version = version

    def open(self) -> BinaryIO:
        return io.BufferedReader(_ObjectReader(self.name, self._version))


class _ObjectReader(io.RawIOBase):
    """Reads an object in blocks. During sequential reads, the blocks grow from 64 KiB to 8 MiB."""

    def __init__(self, url: str, version: FileVersion) -> None:
        self._url = url
        self._version = version
        with _translate_store_errors(url):
            self._store, self._key = open_store(url, "files")
        self._position = self._block_start = 0
        self._block = memoryview(b"")
        self._block_size = _MIN_BLOCK

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._version.size}[whence]
        return self._position

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # a BufferedReader passes no other buffer
        count = min(len(buffer), max(self._version.size - self._position, 0))
        if not self._block_start <= self._position < self._block_start + len(self._block):
            self._fetch(count)
        begin = self._position - self._block_start
        found = self._block[begin : begin + count]
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)

    def _fetch(self, count: int) -> None:
        is_sequential = self._position == self._block_start + len(self._block)
        self._block_size = min(2 * self._block_size, _MAX_BLOCK) if is_sequential else _MIN_BLOCK
        end = min(self._position + max(count, self._block_size), self._version.size)
        self._block_start, self._block = self._position, memoryview(b"")
        if self._position < end:
            options: Any = {"range": (self._position, end), "if_match": self._version.tag}
            with _translate_store_errors(self._url):
                self._block = memoryview(self._store.get(self._key, options=options).bytes()).cast("B")


@contextmanager
def _translate_store_errors(url: str) -> Iterator[None]:
    open_store(url, "files")  # an error names the extra if obstore is missing
    from obstore.exceptions import BaseError, PreconditionError

    try:
        yield
    except PreconditionError:
        raise changed_error(url) from None
    except FileNotFoundError:
        raise InvalidRequest(f"{url}: no such object; pass the URL of an object that exists") from None
    except BaseError as error:
        raise InvalidRequest(f"{url}: {describe_problem(error)}; check the URL, and the credentials in the environment") from None
