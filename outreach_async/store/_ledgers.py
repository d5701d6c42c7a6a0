"""Where a ledger is, a file or objects in an object store or a shared folder, and how a run with it starts. Synchronous.

A ledger is a database: its entries, its runs, and the marks and outcomes of the last run, which is merged into the entries when
it ends, or when the next run starts.
"""

from __future__ import annotations

import math
import os
import re
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes, token_hex
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import msgspec

from outreach_async._files.atomic import atomic_file, sync
from outreach_async._files.objects import create_or_read, is_url, list_folders, open_objects
from outreach_async.bulk._rows import PossiblySent
from outreach_async.errors import InvalidRequest, JournalError, OutreachError
from outreach_async.models import Target
from outreach_async.store import _records as records
from outreach_async.store._entries import (
    LONGEST_DOUBT,
    LedgerEntries,
    LedgerHeader,
    Run,
    merge,
    read_runs,
    require_entries,
)
from outreach_async.store._objects import HEARTBEAT_INTERVAL, ObjectDatabase, TakenOverError
from outreach_async.store._schema import RUN_TABLES
from outreach_async.store._sqlite import FileDatabase, JournalInUseError, connect, create_file, query_journal, write_tables
from outreach_async.store._writer import Database, JournalWriter, create_metadata, find_possibly_sent

T = TypeVar("T")

_PART_SIZE: Final = 8 * 2**20
"""Size in bytes of the objects of a copy of the entries. It is written and read in parts, so that it never fills the memory."""
_NUMBER: Final = re.compile(r"[0-9]{6,}")
_KEPT: Final = 2
"""Number of copies of the entries that stay in an object store: a run on another machine may still read the last but one."""
_ALLOWANCE: Final = 60.0
"""Seconds for what is unknown: how long the service takes for a request that has timed out, and how much clocks differ."""
_RUN_AGAIN: Final = "fix the cause and run again"
_OTHER_RUN: Final = "move away what does not belong to this ledger, or restore its whole folder"


def new_ledger(address: str | None) -> dict[str, Any]:
    """Return the metadata of a ledger without runs."""
    metadata = create_metadata(records.Identity("", {}, address=address), "known")
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


def _require_service(name: str, address: str | None, metadata: Mapping[str, Any]) -> LedgerHeader:
    """Check that a ledger belongs to the service, before any other process is stopped. Return what the ledger knows."""
    header = LedgerHeader.from_metadata(metadata)
    if header.address != address:
        raise InvalidRequest(
            f"ledger: {name} belongs to the service at {header.address}, not to that at {address};"
            " pass a ledger of its own for each service"
        )
    return header


class FileLedger:
    """A ledger in one SQLite file. While a run uses it, the file is locked."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        # The last run of the ledger, in a file of its own, which shows if an older copy of the ledger is restored.
        self._last_run = path.with_name(f"{path.name}.last-run")

    def exists(self) -> bool:
        return os.path.lexists(self._path)

    def query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        """Return the result of a query on the ledger, at any time."""
        return query_journal(self._path, query, "ledger")[0]

    def open(self, address: str | None) -> Database:
        """Open the ledger of a service for a run. A ledger that does not exist is created.

        If the last run was not merged, no other process can write it from now on.
        """
        if not self.exists() and self._last_run.exists():
            raise InvalidRequest(
                f"ledger: {self.name} does not exist, although {self._last_run} shows a run; restore it, or move {self._last_run}"
                " away and run once with max_age=0, which sends every row"
            )
        with ExitStack() as stack:
            stack.callback((database := FileDatabase(self.name, "ledger")).close)
            while database.open(partial(_require_service, self.name, address), resume=True) is None:
                with suppress(FileExistsError):  # another process was faster
                    create_file(self.name, new_ledger(address), None)
            stack.pop_all()
        return database

    def require_newest(self, header: LedgerHeader, runs: Sequence[Run]) -> None:
        """Check that the ledger has every run that has used it: an older copy may have been restored."""
        try:
            known = msgspec.json.decode(self._last_run.read_bytes(), type=tuple[str, int, str])
        except (FileNotFoundError, msgspec.MsgspecError):  # it was moved away on purpose, or does not tell
            return
        if known not in {(header.name, run.number, run.stamp) for run in runs}:
            raise _older_error(self.name, str(self._last_run))

    def on_started(self, header: LedgerHeader, run: Run) -> None:
        """Do what follows the start of a run in the ledger, before its first row is marked."""
        # After the run is in the ledger, and before its first row is marked: the ledger is never older than this file.
        with atomic_file(self._last_run, private=True) as draft:
            draft.write(msgspec.json.encode((header.name, run.number, run.stamp)))
            draft.flush()
            os.fsync(draft.fileno())
        sync(self._path.parent)

    def publish(self, database: Database, run: int) -> bool:  # noqa: ARG002 - the transaction has made it durable
        """Make a merged run durable, and return whether the database can be used for the next run."""
        return True

    def last_run(self, runs: Sequence[Run]) -> int:
        """Return the number of the last run, of which the ledger has the `runs`; 0 if there is none."""
        return runs[-1].number if runs else 0

    def close(self) -> None:
        """Release what the medium holds, but not the database."""


_Manifest: TypeAlias = list[tuple[str, str]]
"""The content of the object that makes a copy of the entries valid: the names and digests of its parts, in order."""


class ObjectLedger:
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

    def _damaged(self, reason: str) -> records.DamagedJournalError:
        return records.DamagedJournalError(f"journal {self.name} is damaged: {reason}; restore the object")

    def open(self, address: str | None) -> Database:
        if not self.exists():
            draft = Path(self._folder.name) / "new"
            draft.touch(0o600)
            write_tables(str(draft), new_ledger(address), None)
            self._write(draft, 0, after=None)
        self._loaded = self._require_last()
        with ExitStack() as stack:
            database = self.open_log(self._loaded + 1, self._download(self._loaded))
            stack.callback(database.close)
            header = _require_service(self.name, address, database.query(records.read_metadata))
            # If a run was not merged, its process sends nothing more from now on.
            database.open(partial(_require_own, database.name, header), resume=True)
            stack.pop_all()
        return database

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

    def open_log(self, run: int, path: str = "") -> ObjectDatabase:
        """Return the database of a run, of which `path` has the entries before it. No request is sent."""
        url = f"{self._url}/run-{run:06}"
        return ObjectDatabase(open_objects(url, "ledger"), url, self._clock, path)

    def last_run(self, runs: Sequence[Run] = ()) -> int:  # noqa: ARG002 - the folders show also a run that was not merged
        names = [name.removeprefix("run-") for name in list_folders(self._url, "ledger")]
        return max((int(name) for name in names if _NUMBER.fullmatch(name)), default=0)

    def close(self) -> None:
        self._folder.cleanup()


LedgerMedium: TypeAlias = FileLedger | ObjectLedger


def _require_own(url: str, header: LedgerHeader, metadata: Mapping[str, Any]) -> None:
    if metadata["identity"]["options"].get("ledger") != header.name:
        raise records.ForeignJournalError(f"journal: {url} is not that of a run with this ledger; move it away")


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


@attrs.define
class LedgerRun:
    """A run that has the ledger for itself until `close` is called: its entries, and the writer of its rows."""

    medium: LedgerMedium
    database: Database
    entries: LedgerEntries
    run: Run
    writer: JournalWriter
    wall: Callable[[], float]

    def merge(
        self, possibly_sent: PossiblySent, counts: Mapping[str, int], seen: bytearray | None, targets: Collection[Target]
    ) -> int | None:
        """Merge the run, which has recorded how it ended, into the entries. Return the number of entries that are gone."""
        # `targets` are those of the input, and `seen` says for each entry whether the input has it, if all of it was read.
        count, found = None, dict[str, Any]()
        if seen is not None:
            count, found["gone"], found["back"] = self.entries.find_gone(seen, targets)
            counts = {**counts, "gone": count}
        _merge(self.medium, self.database, self.run, self.wall, possibly_sent, counts=counts, **found)
        return count

    def close(self) -> None:
        try:
            self.writer.close()
        finally:
            self.medium.close()


def start_run(
    medium: LedgerMedium, identity: records.Identity, wall: Callable[[], float], *, with_ids: bool, with_runs: bool
) -> LedgerRun:
    """Merge the last run if it was not merged. Then start a new run."""
    while True:  # each time, a run was merged
        with translate_ledger_errors(medium.name), ExitStack() as stack:
            now = wall()  # an earlier time only makes more entries uncertain, or too old
            database = medium.open(identity.address)
            stack.callback(database.close)
            if (header := _merge_last(medium, database, wall)) is not None:
                read = None if with_ids else database.query
                entries = database.query(partial(LedgerEntries, header=header, with_runs=with_runs, read=read))
                identity = attrs.evolve(identity, options={**identity.options, "ledger": header.name, "at": now})
                run, started = _record_start(database, identity, entries, now)
                medium.on_started(header, run)
                database.compact()
                writer = JournalWriter(database, started, identity, "known", created=True, wall=wall)
                stack.pop_all()
                return LedgerRun(medium, database, entries, run, writer, wall)


def _merge_last(medium: LedgerMedium, database: Database, wall: Callable[[], float]) -> LedgerHeader | None:
    """Merge the last run if it was not merged. Return what the ledger knows; `None` if it must be opened again."""
    metadata, runs = database.query(records.read_metadata), database.query(read_runs)
    header = LedgerHeader.from_metadata(metadata)
    medium.require_newest(header, runs)
    if not runs or runs[-1].number <= header.merged:
        return header
    database.query(partial(require_entries, header=header))
    return _merge(medium, database, runs[-1], wall, find_possibly_sent(metadata))


def _record_start(
    database: Database, identity: records.Identity, entries: LedgerEntries, now: float
) -> tuple[Run, Mapping[str, Any]]:
    """Record that a run starts, in place of the last one. Return it and its metadata."""
    options, started = identity.options, create_metadata(identity, "known")
    request = {name: options[name] for name in ("duplicates", "strict_validation")}
    run = Run(entries.header.merged + 1, now, token_hex(8), {}, request, options["repeats"])
    target = Target(identity.workspace, options.get("campaign"))
    entries.targets.setdefault(target, max(entries.targets.values(), default=0) + 1)
    with database.transaction(marks=True) as transaction:
        clear_run(transaction.db)
        transaction.set_metadata(**started, names=[])
        transaction.insert("run", run.number, now, run.stamp, "{}", records.to_json(request), run.repeats)
        transaction.insert("target", entries.targets[target], *target)
    return run, started


def _merge(
    medium: LedgerMedium, database: Database, run: Run, wall: Callable[[], float], possibly_sent: PossiblySent, **found: Any
) -> LedgerHeader | None:
    """Merge a run. Return what the ledger then knows; `None` if the database cannot be used for the next run."""
    metadata = database.query(records.read_metadata)
    # A run that was taken over starts attempts until its heartbeat is due. Each may arrive until its timeout, and later.
    doubt = HEARTBEAT_INTERVAL + (metadata["identity"]["options"].get("timeout") or math.inf) + _ALLOWANCE
    settles_at = wall() + min(doubt, LONGEST_DOUBT)
    with database.transaction(marks=True) as transaction:
        header = merge(transaction.db, metadata, run, possibly_sent, settles_at=settles_at, **found)
    return header if medium.publish(database, run.number) else None


@contextmanager
def translate_ledger_errors(name: str, *, opens: bool = True) -> Iterator[None]:
    """Convert errors of the journal and of the file into errors about the ledger, with the remedies of a run with a ledger."""
    try:
        yield
    except JournalInUseError:
        raise InvalidRequest(f"ledger: another run is using {name}; wait until that run ends") from None
    except (records.DamagedJournalError, records.EmptyJournalError) as error:
        raise _damaged(name, error) from error
    except TakenOverError as error:
        raise TakenOverError(
            f"ledger {name}: another run has taken over the ledger, and this run sends nothing more; run again when that run has"
            " ended"
        ) from error
    except (InvalidRequest, JournalError) as error:
        if not str(error).startswith("journal"):
            raise
        if isinstance(error, records.ForeignJournalError):
            # In a folder, only the log of a run is refused. The entries are kept, and nothing needs to be sent again.
            remedy = _OTHER_RUN if is_url(name) else records.OTHER_LEDGER
            raise InvalidRequest(f"ledger: {_problem_of(error)}; {remedy}") from error
        if isinstance(error, InvalidRequest) and not isinstance(error.__cause__, OSError):
            raise InvalidRequest(f"ledger: {str(error).removeprefix('journal: ')}") from error
        raise JournalError(f"ledger {name}: {_problem_of(error)}; {_RUN_AGAIN}") from error
    except OSError as error:
        if opens and isinstance(error, FileNotFoundError | NotADirectoryError | PermissionError):
            raise InvalidRequest(
                f"ledger: {name} cannot be opened: {error.strerror}; pass a path in a folder that exists and that you can write"
                " to"
            ) from error
        raise JournalError(f"ledger {name}: {error.strerror or error}; {_RUN_AGAIN}") from error


def _damaged(name: str, error: OutreachError) -> JournalError:
    reason = str(error).rpartition("; restore ")[0].removeprefix("journal: ").removeprefix(f"journal {name} is damaged: ")
    remedy = f"restore a copy with its own -wal file, if it has one, or {records.OTHER_LEDGER}"
    if is_url(name):
        remedy = "restore the object, or pass another URL, which starts a new ledger and sends every row again"
    return JournalError(f"ledger {name} is damaged: {reason}; {remedy}")


def _problem_of(error: OutreachError) -> str:
    """Return the message of an error without its remedy, which comes last."""
    return str(error).rpartition("; ")[0].removeprefix("journal: ")
