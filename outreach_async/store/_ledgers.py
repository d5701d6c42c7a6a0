"""Where a ledger is: a file, or objects in an object store or a shared folder. Synchronous.

A ledger is a database: its entries, its runs, and the marks and outcomes of the last run, which is merged into the entries when
it ends, or when the next run starts.
"""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from outreach_async._files.atomic import sync
from outreach_async._files.objects import create_or_read, list_folders, open_objects
from outreach_async.errors import InvalidRequest
from outreach_async.store._entries import LedgerHeader, Run
from outreach_async.store._objects import ObjectDatabase, ObjectLog
from outreach_async.store._reader import DamagedJournalError, ForeignJournalError, connect, query_journal, read_metadata
from outreach_async.store._records import Identity
from outreach_async.store._schema import RUN_TABLES
from outreach_async.store._sqlite import open_ledger_file, write_tables
from outreach_async.store._writer import Database, create_metadata

T = TypeVar("T")

_PART_SIZE: Final = 8 * 2**20
"""Size in bytes of the objects of a copy of the entries. It is written and read in parts, so that it never fills the memory."""
_NUMBER: Final = re.compile(r"[0-9]{6,}")
_KEPT: Final = 2
"""Number of copies of the entries that stay in an object store: a run on another machine may still read the last but one."""


def new_ledger(address: str | None) -> dict[str, Any]:
    """Return the metadata of a ledger without runs."""
    metadata = create_metadata(Identity("", {}, address=address), "known")
    return {**metadata, "state": "finished", "ledger": LedgerHeader(address, token_bytes(32)).to_metadata()}


def clear_run(db: sqlite3.Connection) -> None:
    """Delete what is about the last run alone."""
    for table in RUN_TABLES:
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of this package


def _older_error(name: str, later: str) -> InvalidRequest:
    return InvalidRequest(
        f"ledger: {name} is older than its last run, which {later} shows, or is another ledger; restore the newest copy, or move"
        f" {later} away and run once with max_age=0, which sends every row again"
    )


class LedgerMedium(ABC):
    name: str

    @abstractmethod
    def exists(self) -> bool: ...

    @abstractmethod
    def query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of a query on the ledger, at any time."""

    @abstractmethod
    def open(self, address: str | None) -> tuple[Database, Mapping[str, Any]]:
        """Open the ledger for a run, and return its database and its metadata. A ledger that does not exist is created.

        If the last run was not merged, no other process can write it from now on.
        """

    @abstractmethod
    def require_newest(self, header: LedgerHeader, runs: Sequence[Run]) -> None:
        """Check that the ledger has every run that has used it: an older copy may have been restored."""

    @abstractmethod
    def on_started(self, header: LedgerHeader, run: Run) -> None:
        """Do what follows the start of a run in the ledger, before its first row is marked."""

    def publish(self, database: Database, run: int) -> bool:  # noqa: ARG002 - the transaction has made it durable in a file
        """Make a merged run durable, and return whether the database can be used for the next run."""
        return True

    def last_run(self, runs: Sequence[Run]) -> int:
        """Return the number of the last run, of which a ledger has the `runs`; 0 if there is none."""
        return runs[-1].number if runs else 0

    def close(self) -> None:  # noqa: B027 - a file holds nothing
        """Release what the medium holds, but not the database."""


class FileLedger(LedgerMedium):
    """A ledger in one SQLite file. While a run uses it, the file is locked."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        # The last run of the ledger, in a file of its own, which shows if an older copy of the ledger is restored.
        self._last_run = path.with_name(f"{path.name}.last-run")

    def exists(self) -> bool:
        return os.path.lexists(self._path)

    def query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        return query_journal(self._path, query, "ledger")[0]

    def open(self, address: str | None) -> tuple[Database, Mapping[str, Any]]:
        if not self.exists() and self._last_run.exists():
            raise InvalidRequest(
                f"ledger: {self.name} does not exist, although {self._last_run} shows a run; restore it, or move {self._last_run}"
                " away and run once with max_age=0, which sends every row"
            )
        return open_ledger_file(self.name, new_ledger(address))

    def require_newest(self, header: LedgerHeader, runs: Sequence[Run]) -> None:
        try:
            known = msgspec.json.decode(self._last_run.read_bytes(), type=tuple[str, int, str])
        except (FileNotFoundError, msgspec.MsgspecError):  # it was moved away on purpose, or does not tell
            return
        if known not in {(header.name, run.number, run.stamp) for run in runs}:
            raise _older_error(self.name, str(self._last_run))

    def on_started(self, header: LedgerHeader, run: Run) -> None:
        # After the run is in the ledger, and before its first row is marked: the ledger is never older than this file.
        descriptor, draft = tempfile.mkstemp(".tmp", ".outreach-", self._path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode((header.name, run.number, run.stamp)))
                file.flush()
                os.fsync(descriptor)
            Path(draft).replace(self._last_run)
        finally:
            Path(draft).unlink(missing_ok=True)
        sync(self._path.parent)


_Manifest: TypeAlias = list[tuple[str, str]]
"""The content of the object that makes a copy of the entries valid: the names and digests of its parts, in order."""


class ObjectLedger(LedgerMedium):
    """A ledger in an object store or a shared folder: `entries/` has copies of its database, and `run-NNNNNN/` the runs."""

    # The copy with the number N has all runs up to N. Run N + 1 starts from it, and is a log of objects, whose writer alone may
    # write copy N + 1. Several processes may write the same copy at the same time, after one has taken over from another: they
    # have merged the same rows, and only one of them can create its manifest.

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.name = url
        self._url = url.rstrip("/")
        self._clock = clock
        self._objects = open_objects(f"{self._url}/entries", "ledger")
        self._folder = tempfile.TemporaryDirectory(prefix="outreach-ledger-")
        self._loaded: int | None = None

    def exists(self) -> bool:
        return self._find_last() is not None

    def query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        with closing(connect(self._download(self._require_last()), "mode=rw")) as db:
            return query(db)

    def _require_last(self) -> int:
        if (last := self._find_last()) is None:
            raise InvalidRequest(f"ledger: {self.name} does not exist; pass the path or URL of a ledger")
        return last

    def _find_last(self) -> int | None:
        return max((int(name) for name in self._objects.names() if _NUMBER.fullmatch(name)), default=None)

    def _download(self, number: int) -> str:
        """Copy the entries with this number into a private file, and return its path."""
        path = Path(self._folder.name) / token_hex(4)
        name = f"{number:06}"
        try:
            manifest = msgspec.json.decode(self._objects.read(name), type=_Manifest)
            with path.open("wb") as file:
                for part, digest in manifest:
                    content = self._objects.read(part)
                    if _digest(content) != digest:
                        raise self._damaged(f"checksum mismatch in object {part}")
                    file.write(content)
        except (msgspec.MsgspecError, FileNotFoundError) as error:
            raise self._damaged(f"entries/{name}: {error}") from error
        return str(path)

    def _damaged(self, reason: str) -> DamagedJournalError:
        return DamagedJournalError(f"journal {self.name} is damaged: {reason}; restore the object")

    def open(self, address: str | None) -> tuple[Database, Mapping[str, Any]]:
        if not self.exists():
            draft = Path(self._folder.name) / "new"
            draft.touch(0o600)
            write_tables(str(draft), new_ledger(address), None)
            self._write(draft, 0, after=None)
        self._loaded = self._require_last()
        path, log = self._download(self._loaded), self.open_log(self._loaded + 1)
        database = ObjectDatabase(log, self._clock, path)
        try:
            if not log.find():
                return database, database.query(read_metadata)
            # A run that was not merged: from now on, its process sends nothing more.
            header = LedgerHeader.from_metadata(database.query(read_metadata))
            return database, database.resume(partial(_require_own, log.name, header))
        except BaseException:
            database.close()
            raise

    def require_newest(self, header: LedgerHeader, runs: Sequence[Run]) -> None:
        if self.last_run(runs) > header.merged + 1:
            raise _older_error(self.name, f"a later folder than run-{header.merged + 1:06}")

    def on_started(self, header: LedgerHeader, run: Run) -> None:  # noqa: ARG002 - the log of the run shows it
        # Logs stay: a machine that was suspended may wake up, and only an object tells it that its run was taken over.
        for name in [*self._objects.names()]:
            if name[:6].isdecimal() and int(name[:6]) <= header.merged - _KEPT:
                self._objects.delete(name)

    def publish(self, database: Database, run: int) -> bool:
        draft = Path(self._folder.name) / token_hex(4)
        database.query(clear_run)  # its rows stay in its log
        database.query(lambda db: db.execute("VACUUM INTO ?", (str(draft),)))
        self._write(draft, run, after=f"{self._loaded:06}")
        draft.unlink()
        return False

    def _write(self, draft: Path, number: int, after: str | None) -> None:
        token, parts = token_hex(4), _Manifest()
        with draft.open("rb") as file:
            while content := file.read(_PART_SIZE):
                name = f"{number:06}-{token}-{len(parts):05}"
                create_or_read(self._objects, name, content, after=after)
                parts.append((name, _digest(content)))
        create_or_read(self._objects, f"{number:06}", msgspec.json.encode(parts), after=after)

    def open_log(self, run: int) -> ObjectLog:
        """Return the log of a run. No request is sent."""
        url = f"{self._url}/run-{run:06}"
        return ObjectLog(open_objects(url, "ledger"), url)

    def last_run(self, runs: Sequence[Run] = ()) -> int:  # noqa: ARG002 - the folders show also a run that was not merged
        names = [name.removeprefix("run-") for name in list_folders(self._url, "ledger")]
        return max((int(name) for name in names if _NUMBER.fullmatch(name)), default=0)

    def close(self) -> None:
        self._folder.cleanup()


def _require_own(url: str, header: LedgerHeader, metadata: Mapping[str, Any]) -> None:
    if metadata["identity"]["options"].get("ledger") != header.name:
        raise ForeignJournalError(f"journal: {url} is not that of a run with this ledger; move it away")


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
