"""The storage of a ledger: a file, or objects in an object store or a shared folder. Synchronous."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from secrets import token_hex
from typing import Final, TypeAlias

import msgspec

from outreach_async._files.atomic import sync
from outreach_async._files.objects import create_or_read, list_folders, open_objects
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.store.journal import Journal, ObjectJournal
from outreach_async.store.ledger._entries import create, damaged_error

_PART_SIZE: Final = 8 * 2**20
"""Size of the objects of a generation in bytes. A generation is written and read in parts, so that it never fills the memory."""
_NUMBER: Final = re.compile(r"[0-9]{6,}")
_KEPT: Final = 2
"""Number of generations that stay in an object store: a run on another machine may still read the last but one."""


# A ledger is a series of generations. A generation is never changed: applying a run writes the next one. The run that follows
# generation N writes journal N + 1, and publishes generation N + 1 when it is applied. Whoever holds journal N + 1, and finds
# that N is still the last generation, is therefore the only one that may publish generation N + 1.
class FileStore:
    """A ledger in one file. The journals of its runs, and the draft of the next generation, are beside it."""

    def __init__(self, path: Path, *, inline: bool) -> None:
        self.name = str(path)
        self.draft = path.with_name(f"{path.name}.draft")
        self._path = path
        self._inline = inline
        self._loaded: tuple[int, ...] | None = None

    def load(self) -> Path | None:
        """Return the path of the last generation; `None` if there is no ledger."""
        self._loaded = self._identify()
        return None if self._loaded is None else self._path

    def _identify(self) -> tuple[int, ...] | None:
        # Each generation is a new file. Its size and its time show whether another program has overwritten it, as `cp` does.
        try:
            status = self._path.lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise InvalidRequest(f"ledger: {self.name} is not a regular file; pass the file itself, not a link or folder")
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def is_current(self) -> bool:
        return self._identify() == self._loaded

    def create(self, address: str | None, secret: bytes) -> None:
        """Create an empty ledger, unless another process creates it at the same time."""
        descriptor, draft = tempfile.mkstemp(".tmp", ".outreach-", self._path.parent)
        os.close(descriptor)
        try:
            # A link never replaces a file, so a ledger that another process has just created stays.
            create(Path(draft), address, secret)
            with suppress(FileExistsError):  # another process was faster
                self._path.hardlink_to(draft)
        finally:
            Path(draft).unlink(missing_ok=True)
        sync(self._path.parent)

    def publish(self, generation: int) -> None:
        """Make the draft the next generation, unless another process has done so. It is then durable."""
        if not self.is_current():
            raise JournalError(
                f"ledger {self.name}: the file was replaced during the run; restore the file that the run began with, and run"
                f" again, which adds the outcomes in {self._journal_path(generation)}"
            )
        self.draft.replace(self._path)  # the draft has been synced, so a power failure leaves one whole generation
        sync(self._path.parent)

    def journal(self, number: int) -> Journal:
        return Journal(self._journal_path(number), inline=self._inline)

    def _journal_path(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.run-{number:06}")

    def _journals(self) -> dict[int, Path]:
        prefix = f"{self._path.name}.run-"
        numbers = {path: path.name.removeprefix(prefix) for path in self._path.parent.iterdir() if path.name.startswith(prefix)}
        return {int(number): path for path, number in numbers.items() if _NUMBER.fullmatch(number)}

    def last_journal(self) -> int | None:
        return max(self._journals(), default=None)

    def clean(self, generation: int) -> None:
        # The journal of the last generation stays. If an older copy of the ledger is restored, this journal is applied again, or
        # shows that the copy is older.
        for number, path in self._journals().items():
            if number < generation:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Do nothing. The draft may be that of another process, which has the ledger for itself."""


_Manifest: TypeAlias = list[tuple[str, str]]
"""The content of the object that makes a generation valid: the names and digests of its parts, in order."""


class ObjectStore:
    """A ledger in an object store or a shared folder: `entries/` has the generations, and `run-NNNNNN/` the journals."""

    def __init__(self, url: str, *, inline: bool) -> None:
        self.name = url
        self._url = url.rstrip("/")
        self._inline = inline
        self._objects = open_objects(f"{self._url}/entries", "ledger")
        self._folder = tempfile.TemporaryDirectory(prefix="outreach-ledger-")
        self._loaded: int | None = None
        self.draft = Path(self._folder.name) / "draft"

    def load(self) -> Path | None:
        self._loaded = self._find_last()
        if self._loaded is None:
            return None
        path = Path(self._folder.name) / f"{self._loaded:06}"
        self._download(path)
        return path

    def _find_last(self) -> int | None:
        return max((int(name) for name in self._objects.names() if _NUMBER.fullmatch(name)), default=None)

    def _download(self, path: Path) -> None:
        draft = path.with_suffix(".part")
        try:
            manifest = msgspec.json.decode(self._objects.read(path.name), type=_Manifest)
            with draft.open("wb") as file:
                for name, digest in manifest:
                    content = self._objects.read(name)
                    if _digest(content) != digest:
                        raise damaged_error(self.name, f"checksum mismatch in object {name}")
                    file.write(content)
        except (msgspec.MsgspecError, FileNotFoundError) as error:
            raise damaged_error(self.name, f"generation {path.name}: {error}") from error
        draft.replace(path)

    def is_current(self) -> bool:
        return self._find_last() == self._loaded

    def create(self, address: str | None, secret: bytes) -> None:
        create(self.draft, address, secret)
        self._write(0, after=None)

    def publish(self, generation: int) -> None:
        self._write(generation, after=f"{self._loaded:06}")

    def _write(self, generation: int, after: str | None) -> None:
        """Write the draft as a generation, unless another process has created this generation."""
        # Several processes may write the same generation at the same time. Their parts have different names, and the manifest,
        # which only one of them can create, decides which parts count.
        token, parts = token_hex(4), _Manifest()
        with self.draft.open("rb") as file:
            while content := file.read(_PART_SIZE):
                name = f"{generation:06}-{token}-{len(parts):05}"
                create_or_read(self._objects, name, content, after=after)
                parts.append((name, _digest(content)))
        create_or_read(self._objects, f"{generation:06}", msgspec.json.encode(parts), after=after)

    def journal(self, number: int) -> ObjectJournal:
        return ObjectJournal(f"{self._url}/run-{number:06}", inline=self._inline)

    def last_journal(self) -> int | None:
        names = [name.removeprefix("run-") for name in list_folders(self._url, "ledger")]
        return max((int(number) for number in names if _NUMBER.fullmatch(number)), default=None)

    def clean(self, generation: int) -> None:
        # Journals stay: a machine that was suspended may wake up, and only an object tells it that its run was taken over.
        for name in [*self._objects.names()]:
            if name[:6].isdecimal() and int(name[:6]) <= generation - _KEPT:
                self._objects.delete(name)

    def close(self) -> None:
        self._folder.cleanup()


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


LedgerStore: TypeAlias = FileStore | ObjectStore
