"""A journal in an object store or a shared folder. It survives the loss of the machine that writes it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from typing import Any, Final, Self

import attrs
import msgspec

from outreach_async._files.objects import Objects, open_objects
from outreach_async.bulk.journal import _records as records
from outreach_async.bulk.journal._database import STATEMENTS, Change, Database, Transaction
from outreach_async.bulk.journal._identity import OTHER_JOURNAL, Earlier, Identity, require_same_run
from outreach_async.bulk.journal._object_log import ObjectLog, TakenOverError
from outreach_async.bulk.journal._protocol import WriterThread
from outreach_async.bulk.journal._reader import DamagedJournalError, JournalReader, RunQuery, read_metadata, require_intact
from outreach_async.bulk.journal._records import DECODING_ERRORS
from outreach_async.bulk.journal._writer import JournalWriter, create_metadata
from outreach_async.errors import InvalidRequest, JournalError, OutreachError

# Shorter, and slow writes would cost a heartbeat each; longer, and a run that was taken over would send for longer.
_HEARTBEAT_INTERVAL: Final = 5.0
"""Seconds after the start of the last write until a heartbeat is due. It is written before the next request is sent."""

if hasattr(time, "CLOCK_BOOTTIME"):
    _clock: Callable[[], float] = partial(time.clock_gettime, time.CLOCK_BOOTTIME)  # also counts while the machine is suspended
else:  # pragma: no cover - only Linux has this clock
    _clock = time.monotonic


def _without_checksums(change: Change) -> Change:
    """Return a change without the checksums of its outcomes."""
    # The checksums compress badly, and are not needed: the stored object that contains the change has a checksum of its own.
    if change[0] != "outcomes":
        return change
    return change[0], [row[:-1] for row in msgspec.json.decode(change[1])]


def _with_checksums(change: Sequence[Any]) -> Sequence[Any]:
    if change[0] != "outcomes":
        return change
    return change[0], records.to_json([[*row, records.checksum(row)] for row in change[1]])


class ObjectDatabase(Database):
    """A private SQLite copy of an object journal. Each transaction is written to the log as an object before it is committed."""

    def __init__(self, log: ObjectLog, clock: Callable[[], float]) -> None:
        super().__init__(log.name)
        self.last_write = clock()
        self._log = log
        self._clock = clock
        # Without a name, SQLite uses a private temporary file, which the operating system removes even after a kill.
        self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        # Only the objects must be durable: after a crash, the copy is built from them again.
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.execute("PRAGMA journal_mode = MEMORY")
        for table in records.TABLES:
            self._db.execute(table)

    def replay(self) -> None:
        """Read the objects that `ObjectLog.find` has found, and apply their changes to the SQLite copy."""
        self._db.execute("BEGIN")
        try:
            for changes in self._log.read():
                for change in changes:
                    name, *values = _with_checksums(change)
                    self._db.execute(STATEMENTS[name], values)
        except OutreachError:  # some of these errors are also ValueErrors
            raise
        except (sqlite3.Error, *DECODING_ERRORS) as error:
            raise self._log.damaged(str(error)) from error
        finally:
            self._db.execute("COMMIT")

    def create(self, identity: Identity, earlier: Earlier) -> dict[str, Any]:
        """Create the journal of a run, and return the run's metadata."""
        metadata = create_metadata(identity, earlier)
        with self.transaction() as transaction:
            for name, value in metadata.items():
                transaction.set_metadata(name, value)
        return metadata

    def resume(self, identity: Identity) -> dict[str, Any]:
        """Take over the journal of a run, unless the run is finished. Return the run's metadata."""
        self.replay()
        metadata = self.query(read_metadata)
        require_same_run(self.name, identity, metadata["identity"])
        if metadata["state"] != "finished":
            self._take_over()
        intact: dict[str, Any] = self.query(require_intact)  # after the takeover, which may have replayed more objects
        return intact

    def query(self, query: Callable[[sqlite3.Connection], Any]) -> Any:
        """Run a query and return its result."""
        try:
            return query(self._db)
        except (sqlite3.Error, *DECODING_ERRORS) as error:
            raise self._log.damaged(str(error)) from error

    def _take_over(self) -> None:
        """Write the next object of the log, so that the next write of any earlier writer fails."""
        # If the object already exists, another writer has continued the log. In this case, apply the changes of all new objects,
        # and try again with the next free number.
        while True:
            try:
                self.write_heartbeat()
            except TakenOverError:  # an earlier writer has just written another object
                self._log.find()
                self.replay()
            else:
                return

    def write_heartbeat(self) -> None:
        """Write an object that contains no changes."""
        self._append(())

    def _before_commit(self, transaction: Transaction) -> None:
        if transaction.changes:
            self._append(transaction.changes)

    def _append(self, changes: Sequence[Change]) -> None:
        # The time before the write: if the process is suspended during the write, the response proves nothing about later times.
        begun = self._clock()
        self._log.append([_without_checksums(change) for change in changes])
        self.last_write = begun

    @property
    def heartbeat_due(self) -> float | None:
        """The current time, if a heartbeat is due; otherwise `None`."""
        # A heartbeat is due if the last write started more than 5 seconds ago. After a failure, a heartbeat is always due, so
        # that `ObjectWriter.heartbeat` raises the error again.
        now = self._clock()
        return now if self._failure is not None or now - self.last_write > _HEARTBEAT_INTERVAL else None

    def close(self) -> None:
        """Close the connection. Later calls of other methods raise JournalError."""
        self._failure = (f"journal {self.name} is closed; open it again", None)
        with suppress(sqlite3.Error):
            self._db.close()


class ObjectWriter(JournalWriter):
    """The writer of an object journal. There is no lock: a writer that resumes the run stops all earlier writers."""

    _database: ObjectDatabase

    @classmethod
    def open(
        cls, objects: Objects, name: str, identity: Identity, clock: Callable[[], float], *, resume: bool, earlier: Earlier
    ) -> Self:
        """Open a journal for writing: create it, or take over its run."""
        log, damage = ObjectLog(objects, name), None
        with translate_errors(name):
            if log.find():
                if not resume and earlier == "known":
                    raise InvalidRequest(f"journal: {name} already exists; resume its run, or {OTHER_JOURNAL}")
                try:
                    return cls._start(log, identity, clock, earlier, created=False)
                except DamagedJournalError as error:
                    if earlier == "known":
                        raise
                    damage = {"reason": str(error), "kept": f"generation {log.generation:04}"}
                log.set_aside()
            return cls._start(log, identity, clock, earlier, damage, created=True)

    @classmethod
    def _start(
        cls,
        log: ObjectLog,
        identity: Identity,
        clock: Callable[[], float],
        earlier: Earlier,
        damage: Mapping[str, Any] | None = None,
        *,
        created: bool,
    ) -> Self:
        with ExitStack() as stack:
            database = ObjectDatabase(log, clock)
            stack.callback(database.close)
            metadata = database.create(identity, earlier) if created else database.resume(identity)
            writer = cls(database, metadata, identity, time.time, created=created)
            writer.start(earlier, damage)
            stack.pop_all()
        return writer

    @property
    def heartbeat_due(self) -> float | None:
        """The current time on the writer's clock, if a heartbeat is due before the next row is sent; otherwise `None`."""
        # Another run may take over the journal, for example while this process is suspended. After that, every write of this
        # process fails. A heartbeat is a write without changes: it detects a takeover before the next row is sent.
        return self._database.heartbeat_due

    def heartbeat(self, due: float) -> None:
        """Write a heartbeat, unless another write that started at or after the time `due` has already succeeded."""
        with self._database.connection():
            if self._database.last_write < due:
                self._database.write_heartbeat()


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Convert an `OSError` that the block raises into a JournalError that names the journal."""
    try:
        yield
    except OSError as error:
        raise JournalError(f"journal {name}: {error}; fix the cause and try again") from error


@attrs.define(eq=False, repr=False, slots=False)
class ObjectJournal(JournalReader):
    """The journal of a bulk run in an object store or a shared folder. Any machine can read it, and resume its run.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `file:///folder`, or `memory://name`. Objects
            in `memory://` last as long as the process. Credentials are read from the environment.
        source: Name of the run's input, such as the path of a file; reports show it.
        fingerprint: Fingerprint of the run's whole input, such as a file's digest. The run cannot be resumed with a
            different fingerprint.
        mapping: Field codes by column name, if the input has columns. The run cannot be resumed with a different code for a
            column.
        inline: Whether to write in the thread of the event loop. With a virtual clock, which does not wait for threads, this must
            be true.
        linger: Maximum time in seconds that an outcome waits to be written together with other outcomes. Object stores charge for
            each write.
        objects: Storage to use instead of the one at the URL, such as `StoredObjects(S3Store("bucket", endpoint=...), "run")`.
        clock: Function that returns monotonic time in seconds. It measures the time since the start of the last write to the
            journal. After more than 5 seconds, the run writes to the journal again before it sends the next contact.

    Raises:
        InvalidRequest: The URL is invalid, or the extra `lake` is missing.

    Example:
        ```python
        journal = ObjectJournal("memory://may/contacts", source="list of May")
        await client.contacts.create_many([{"email": "ann@company.example"}], journal=journal, resume=True)
        print(journal.report().source, journal.report().state)  # -> list of May finished
        ```
    """

    url: str
    source: str | None = attrs.field(default=None, kw_only=True)
    fingerprint: str | None = attrs.field(default=None, kw_only=True)
    mapping: Mapping[str, str] | None = attrs.field(default=None, kw_only=True)
    inline: bool = attrs.field(default=False, kw_only=True)
    linger: float = attrs.field(default=1.0, kw_only=True)
    objects: Objects = attrs.field(default=attrs.Factory(lambda self: open_objects(self.url), takes_self=True), kw_only=True)
    clock: Callable[[], float] = attrs.field(default=_clock, kw_only=True)
    backlog = 1000

    def writer(self, identity: Identity, *, resume: bool, earlier: Earlier = "known") -> JournalWriter:
        """Open the journal for a run, and return its writer; see `JournalStore`."""
        return ObjectWriter.open(self.objects, self.url, identity, self.clock, resume=resume, earlier=earlier)

    def writer_thread(self) -> WriterThread:
        """Return a new `WriterThread`, the thread on which the methods of the journal's writer run."""
        return WriterThread(inline=self.inline)

    def __repr__(self) -> str:
        return f"ObjectJournal({self.url!r})"

    def exists(self) -> bool:
        """Return whether the journal exists.

        Raises:
            JournalError: The objects cannot be listed.

        Example:
            ```python
            print(ObjectJournal("memory://june").exists())  # -> False
            ```
        """
        with translate_errors(self.url):
            return ObjectLog(self.objects, self.url).find()

    @contextmanager
    def _snapshot(self) -> Iterator[RunQuery]:
        log = ObjectLog(self.objects, self.url)
        with closing(ObjectDatabase(log, self.clock)) as database:
            with translate_errors(self.url):
                if not log.find():
                    raise InvalidRequest(f"journal: {self.url} does not exist; pass the URL of a journal")
                database.replay()
            yield database.query
