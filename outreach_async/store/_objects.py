"""A journal in an object store or a shared folder. It survives the loss of the machine that writes it.

A journal is a log of numbered objects. The name of an object is `GENERATION-NUMBER`.
"""

from __future__ import annotations

import re
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, Final, TypeVar

import msgspec

from outreach_async._files.objects import FolderObjects, Objects, StoredObjects, create_or_read
from outreach_async.errors import InvalidRequest, JournalError, OutreachError
from outreach_async.store import _records as records
from outreach_async.store._schema import TABLES
from outreach_async.store._writer import STATEMENTS, Change, Database, Transaction

T = TypeVar("T")

_NAME: Final = re.compile(r"([0-9]{4})-([0-9]{10})")  # generation and number
_MAGIC: Final = b"OAOJ"  # outreach_async, object journal
_VERSION: Final = b"\1"
_DIGEST_SIZE: Final = 8
_WBITS: Final = -15  # without zlib's own header and checksum
_COMMON_TEXT: Final = (
    b'\x93\x92\xa6errors\xd9[[0,"[\\"StatusError\\",\\"\\",\\"create_contact\\",422,1,true,false]"]]'
    b'\x94\xa8metadata\xa5state\xaa"finished"\xce\x94\xa8metadata\xadpossibly_sent\xa2[]\xce\xa6events\xa7spooled'
    b"\x92\x95\xa6window\xcd\xcd\xc4\x08\xd2\x94\xa8metadata\xa6marked\xa3000\xd2"
    b"\x92\x92\xa8outcomes\xdc\x97\x00\x00\xb80123456789abcdef01234567\x01\xc0\xc0\xc0\x97\x01\x00\xb80123456789abcdef01234567"
    b'\x94\xa8metadata\xa6totals\xd9\xbc{"rows":100,"outcomes":{"added":100,"skipped":0,"overwriten":0,"updated_missing_fields":0,'
    b'"rejected":0,"not_applied":0,"unknown":0},"uncertain":0,"repeats":0,"seconds":0.'
)
"""Preset dictionary for zlib: bytes that most objects contain. It is part of the format: a change requires a new `_VERSION`."""
_NO_DIGEST: Final = bytes(_DIGEST_SIZE)
_OUTCOMES: Final = ("outcomes", "plain outcomes")
"""Changes whose rows are stored without their checksums."""
# Concurrent reads hide the high latency of a store.
_READERS: Final = 16
"""Maximum number of objects that are read concurrently."""
# Shorter, and slow writes would cost a heartbeat each; longer, and a run that was taken over would send for longer.
HEARTBEAT_INTERVAL: Final = 5.0
"""Seconds after the start of the last write until a heartbeat is due. It is written before the next request is sent."""

if hasattr(time, "CLOCK_BOOTTIME"):
    boot_time: Callable[[], float] = partial(
        time.clock_gettime, time.CLOCK_BOOTTIME
    )  # also counts while the machine is suspended
else:  # pragma: no cover - only Linux has this clock
    boot_time = time.monotonic


_CHANGES: Final = {
    "metadata": "SELECT name, value, crc FROM meta",
    "window": "SELECT first, rows, digest, crc FROM window ORDER BY first",
    "target": "SELECT number, workspace, campaign, crc FROM target ORDER BY number",
    "event": "SELECT number, at, kind, data, crc FROM event ORDER BY number",
    "errors": "SELECT json_group_array(json_array(digest, text)) FROM error",
    "outcomes": f"SELECT json_group_array(json_array({', '.join(records.OUTCOME_COLUMNS)}, crc)) FROM outcome",  # noqa: S608 - our names
    "spool": "SELECT json_group_array(json_array(seq, key, payload, crc)) FROM spool",
}
"""Queries for the values of the statements that write a journal."""


def _read_changes(db: sqlite3.Connection) -> list[Change]:
    return [(name, *values) for name, query in _CHANGES.items() for values in db.execute(query)]


def clear_objects(objects: StoredObjects | FolderObjects, keep: str | None = None) -> None:
    """Empty all objects but one. Their names stay taken."""
    for name in [*objects.names()]:
        if name != keep and objects.read(name):
            objects.replace(name, b"")


class TakenOverError(JournalError):
    """Another run has taken over the journal: that run has created the next object of the log."""


def encode_object(writer: bytes, number: int, previous: bytes, changes: Sequence[Change]) -> bytes:
    compressor = zlib.compressobj(9, wbits=_WBITS, zdict=_COMMON_TEXT)
    compressed = compressor.compress(msgspec.msgpack.encode(changes)) + compressor.flush()
    body = b"".join((writer, number.to_bytes(8), previous, compressed))
    return _MAGIC + _VERSION + _digest(body) + body


def _decode_object(content: bytes, number: int, previous: bytes) -> list[list[Any]]:
    # The checksum and the digest of the previous object detect missing, incomplete, changed and foreign objects.
    start = len(_MAGIC) + len(_VERSION)
    checksum, body = content[start : start + _DIGEST_SIZE], content[start + _DIGEST_SIZE :]
    records.require(content.startswith(_MAGIC + _VERSION) and checksum == _digest(body), "checksum mismatch")
    records.require(int.from_bytes(body[8:16]) == number, f"expected object number {number}")
    records.require(body[16 : 16 + _DIGEST_SIZE] == previous, "the digest of the previous object does not match")
    decompressor = zlib.decompressobj(wbits=_WBITS, zdict=_COMMON_TEXT)
    changes = decompressor.decompress(body[16 + _DIGEST_SIZE :])
    records.require(decompressor.eof and not decompressor.unused_data, "incomplete data")
    return msgspec.msgpack.decode(changes, type=list[list[Any]])


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_SIZE).digest()


class ObjectDatabase(Database):
    """A private SQLite copy of a journal in objects. Each transaction is written as an object before it is committed."""

    # Each object contains the changes of one transaction. A writer creates objects, and never replaces one. There is no lock: if
    # two writers try to create an object with the same number, only one of them succeeds, and the other one stops. In this way, a
    # run stops after another run has taken over its journal.
    #
    # A generation is a series of objects, numbered from 0. Only the last generation is read. If the journal is damaged, a resumed
    # run with `earlier="unknown"` starts a new generation.

    def __init__(
        self,
        objects: Objects,
        name: str,
        clock: Callable[[], float],
        path: str = "",
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Open nothing yet; `path` is a file with what the copy has before the first object."""
        super().__init__(name)
        self.last_write = clock()
        self._clock = clock
        self._objects = objects
        self._sleep = sleep
        self._generation = self._number = self._end = 0
        self._previous = _NO_DIGEST
        self._last: str | None = None
        self._is_fenced = False
        self._writer = token_bytes(8)
        self._db = self._open_copy(path)

    def _open_copy(self, path: str) -> sqlite3.Connection:
        # Without a name, SQLite uses a private temporary file, which the operating system removes even after a kill.
        db = self._resources.enter_context(closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)))
        # Only the objects must be durable: after a crash, the copy is built from them again.
        db.execute("PRAGMA synchronous = OFF")
        db.execute("PRAGMA journal_mode = MEMORY")
        for table in () if path else TABLES:
            db.execute(table)
        return db

    def open(self, require: Callable[[Mapping[str, Any]], object], *, resume: bool) -> Mapping[str, Any] | None:
        """Take over the journal of a run, unless the run is finished."""
        if not self.find():
            return None
        if not resume:
            raise InvalidRequest(f"journal: {self.name} already exists; resume its run, or {records.OTHER_JOURNAL}")
        self.replay()
        metadata = self.query(records.read_metadata)
        require(metadata)
        taken_over = metadata["state"] == "finished"
        while not taken_over:
            # After the next object, the next write of any earlier writer fails. If an earlier writer has just written this
            # object, apply the changes of all new objects, and try again with the next free number.
            try:
                self._append(())
                taken_over = True
            except TakenOverError:
                self.find()
                self.replay()
        intact: dict[str, Any] = self.query(records.require_intact)  # after the takeover, which may have replayed more objects
        return intact

    def create(self, metadata: Mapping[str, Any], wall: Callable[[], float]) -> None:  # noqa: ARG002 - only files have the time
        with self.transaction() as transaction:
            transaction.set_metadata(**metadata)

    def set_aside(self) -> str:
        """Start a new generation to replace the damaged generation."""
        # Another run may still be writing to the damaged generation. To stop that run, this method first creates the next object
        # of the damaged generation. The next write of the other run then fails.
        kept, number = f"generation {self._generation:04}", self._end
        while not self._create(number, encode_object(self._writer, number, _NO_DIGEST, [])):
            number += 1
        self._begin_generation(self._generation + 1)
        self._resources.close()
        self._db = self._open_copy("")
        return kept

    def find(self) -> bool:
        """Find the last generation and its last object. Return whether there are any objects."""
        last, foreign = (self._generation, self._number - 1), None
        for name in self._objects.names():
            if match := _NAME.fullmatch(name):
                last = max(last, (int(match[1]), int(match[2])))
            else:
                foreign = name
        if foreign is not None:
            raise records.ForeignJournalError(
                f"journal: {self.name} contains objects that do not belong to a journal, such as {foreign!r};"
                f" move them to another prefix, or {records.OTHER_JOURNAL}"
            )
        # A writer that has read or written objects belongs to its generation. If there is a newer one, another run has given up
        # this generation as damaged.
        if last[0] > self._generation and self._number:
            raise self._taken_over()
        if last[0] > self._generation:
            self._begin_generation(last[0])
        self._end = last[1] + 1
        if last < (0, 0):
            return False
        self._last = f"{last[0]:04}-{last[1]:010}"
        return True

    def replay(self) -> None:
        """Read the objects that `find` has found, and apply their changes to the SQLite copy."""
        self._db.execute("BEGIN")
        try:
            for changes in self._read():
                for name, *values in changes:
                    if name in _OUTCOMES:
                        values = [records.to_json([*map(records.sum_outcome, values[0])])]  # noqa: PLW2901 - the stored form
                    self._db.execute(STATEMENTS[name], values)
        except OutreachError:  # some of these errors are also ValueErrors
            raise
        except (sqlite3.Error, *records.DECODING_ERRORS) as error:
            raise self.damaged(str(error)) from error
        finally:
            self._db.execute("COMMIT")

    def _read(self) -> Iterator[list[list[Any]]]:
        """Yield the changes of each object that `find` has found."""
        # Objects are read by number, up to the last listed one: a listing may miss earlier objects that are created meanwhile.
        with ExitStack() as stack:
            pool = ThreadPoolExecutor(_READERS)
            stack.callback(pool.shutdown, cancel_futures=True)  # after an error, reads that have not begun are cancelled
            while self._number < self._end:
                numbers = range(self._number, min(self._number + 4 * _READERS, self._end))
                contents = pool.map(self._objects.read, map(self._name_of, numbers))
                for number in numbers:
                    try:
                        content = next(contents)
                    except FileNotFoundError:
                        raise self.damaged(f"object {self._name_of(number)} is missing") from None
                    yield self._accept(content)

    def _accept(self, content: bytes) -> list[list[Any]]:
        name = self._name_of(self._number)
        if content.startswith(_MAGIC) and content[len(_MAGIC) : len(_MAGIC) + 1] > _VERSION:
            raise InvalidRequest(f"journal: {self.name} was written by a newer version of this library; use that version")
        try:
            changes = _decode_object(content, self._number, self._previous)
        except (records.CorruptContentError, zlib.error, *records.DECODING_ERRORS) as error:
            raise self.damaged(f"object {name} is damaged: {error}") from error
        self._advance(content)
        return changes

    def query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with self._mutex:
                return query(self._db)
        except (sqlite3.Error, *records.DECODING_ERRORS) as error:
            raise self.damaged(str(error)) from error

    def damaged(self, reason: str) -> records.DamagedJournalError:
        return records.DamagedJournalError(
            f'journal {self.name} is damaged: {reason}; restore the object, or resume with earlier="unknown"'
            " (on the command line: --resume --earlier unknown). The resumed run then starts over at the"
            " first row and counts every row as possibly sent; the existing objects are kept"
        )

    def _before_commit(self, transaction: Transaction) -> None:
        if transaction.changes:
            self._append(transaction.changes)

    def _append(self, changes: Sequence[Change]) -> None:
        # The time before the write: if the process is suspended during the write, the response proves nothing about later times.
        begun = self._clock()
        # The checksums of outcomes compress badly, and are not needed: the object has a checksum of its own.
        stored = [
            (name, [row[:-1] for row in msgspec.json.decode(values[0])]) if name in _OUTCOMES else (name, *values)
            for name, *values in changes
        ]
        content = encode_object(self._writer, self._number, self._previous, stored)
        if not self._create(self._number, content):
            raise self._taken_over()
        if not self._is_fenced:  # check with the first object of this writer that the store refuses to create an object twice
            name = self._name_of(self._number)
            if self._objects.create(name, content, after=name):
                raise JournalError(
                    f"journal {self.name}: the store replaced {name}, but it must refuse to create an object that exists"
                    " (If-None-Match: *), because otherwise two runs could use one journal; move the journal to another store,"
                    " such as S3"
                )
            self._is_fenced = True
        self._advance(content)
        self.last_write = begun

    def _create(self, number: int, content: bytes) -> bool:
        """Create an object unless the name is taken. Return whether the stored object contains `content`."""
        name = self._name_of(number)
        if create_or_read(self._objects, name, content, after=self._last, sleep=self._sleep) != content:
            return False
        self._last = name
        return True

    def _taken_over(self) -> TakenOverError:
        return TakenOverError(
            f"journal {self.name}: another run has taken over the journal; this run sends nothing more,"
            " and the other run sends the remaining rows"
        )

    def rewrite(self, objects: StoredObjects | FolderObjects) -> None:
        """Write the content as the one object of a new generation, and empty all other objects, which are in `objects`."""
        # The other objects stay: a writer that was taken over still finds out. One that takes over meanwhile has created the next
        # object of its generation, or finds that this process has created it.
        fence, last = self._name_of(self._number), self._last
        changes = self.query(_read_changes)
        self._begin_generation(self._generation + 1)
        self._append(changes)
        if not objects.create(fence, b"", after=last):
            objects.delete(self._name_of(0))
            raise self._taken_over()
        clear_objects(objects, keep=self._name_of(0))

    def _begin_generation(self, generation: int) -> None:
        self._generation, self._number, self._end, self._previous = generation, 0, 0, _NO_DIGEST

    def _advance(self, content: bytes) -> None:
        self._number += 1
        self._previous = _digest(content)

    def _name_of(self, number: int) -> str:
        return f"{self._generation:04}-{number:010}"

    @property
    def heartbeat_due(self) -> float | None:
        # Another run may take over the journal, for example while this process is suspended. After that, every write of this
        # process fails. A heartbeat is a write without changes: it detects a takeover before the next row is sent. It is due if
        # the last write started more than 5 seconds ago, and after a failure, so that `heartbeat` raises the error again.
        now = self._clock()
        return now if self._failure is not None or now - self.last_write > HEARTBEAT_INTERVAL else None

    def heartbeat(self, due: float) -> None:
        with self.connection():
            if self.last_write < due:
                self._append(())
