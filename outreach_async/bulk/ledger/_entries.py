"""The entries of a ledger in one SQLite file, and the fold that writes the next generation of this file. Synchronous.

A generation is never changed after it is written: a fold copies the file, changes the copy, and syncs it to the disk. Its caller
then publishes the copy under the ledger's name. A kill at any moment therefore leaves the old generation or the new one.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from enum import Enum
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Final, Self, TypeAlias, cast
from zlib import crc32

import attrs

from outreach_async._files.atomic import sync
from outreach_async._service.contacts import Target
from outreach_async._vocabulary import ID_PREFIXES
from outreach_async.errors import InvalidRequest, JournalError

APPLICATION_ID: Final = 0x4F414C47  # "OALG": outreach_async, ledger
FORMAT_VERSION: Final = 1
_HEADER_SIZE: Final = 100
_EPOCH: Final = 1_577_836_800
"""1 January 2020: times are stored as minutes since then, in 24 bits."""
_OUTSTANDING: Final = 1 << 24
"""Bit of an entry's state: an attempt may have changed the contact, and no later answer says whether it did."""
_TARGET_SHIFT: Final = 25
CAMPAIGN_BITS: Final = 16
"""The last bits of a key depend on the campaign too. The others are those of the contact, so its entries are neighbours."""
_OUT_OF_DATE: Final = -1
"""Digest of an entry whose contact has got other values from a row of another campaign. It differs from that of every row."""
_SPARSE: Final = 48
"""Bytes per entry over which the file is rebuilt. Inserting keys at random leaves pages of SQLite a third empty."""
_MAPPED: Final = 2**40
"""Bytes of the file that are read through a mapping: keys are hashes, so nearly every row needs another page of the file."""
_CHUNK: Final = 20_000
"""Number of rows that a fold sorts in memory, so that rows on one page are written together."""
_ID_PREFIX: Final = ID_PREFIXES["contact"]
_CHECKED: Final = struct.Struct("<qqq")

_TABLES: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    # `digest` has 48 bits and `crc` 31; `gone` is the generation whose input had no such row. An entry takes 45 bytes.
    "CREATE TABLE entry (key INTEGER PRIMARY KEY, digest NOT NULL, state INTEGER NOT NULL, crc NOT NULL, id, gone)",
    "CREATE TABLE target (number INTEGER PRIMARY KEY, workspace TEXT NOT NULL, campaign TEXT)",
    "CREATE TABLE run (generation INTEGER PRIMARY KEY, at INTEGER NOT NULL, counts TEXT NOT NULL)",
)
_COUNT: Final = f"SELECT count(*), coalesce(sum(state & {_OUTSTANDING} > 0), 0), count(gone) FROM entry"  # noqa: S608 - no text
_SHARED_WORKSPACES: Final = "SELECT 1 FROM target GROUP BY workspace HAVING count(*) > 1"
_UPSERT: Final = "INSERT OR REPLACE INTO entry (key, digest, state, id, crc) VALUES (?, ?, ?, ?, ?)"


class Standing(Enum):
    """The state of a row, according to a ledger."""

    NEW = "new"
    CHANGED = "changed"
    EXPIRED = "expired"
    UNCERTAIN = "uncertain"
    UNCHANGED = "unchanged"


class Effect(Enum):
    """The effect of a sent row at the service, as far as its outcome shows it."""

    APPLIED = "applied"
    """The contact has the row's values."""
    RETRIED = "retried"
    """The contact has the row's values, but an earlier attempt may still arrive at the service."""
    POSSIBLE = "possible"
    """An attempt may have had an effect."""
    NONE = "none"


Entry: TypeAlias = tuple[int, int, int, int, str | bytes | None]
"""The key, digest, state, checksum and contact id of an entry, as stored."""

SentRow: TypeAlias = tuple[int, int, int, Effect, str | None]
"""A row that a run sent or may have sent: its key, digest, target, effect, and the id in its answer."""


class SeenKeys:
    """The keys of an input, 8 bytes each: at most 8 MB in memory, and the rest in a temporary file."""

    _BUCKETS: Final = 256

    def __init__(self, buffer: int = 4096) -> None:
        self._buffer = buffer
        self._added = 0
        self._file: BinaryIO | None = None
        self._buffers = [array("q") for _ in range(self._BUCKETS)]
        self._offsets: list[list[tuple[int, int]]] = [[] for _ in range(self._BUCKETS)]

    def add(self, keys: Collection[int]) -> None:
        buffers = self._buffers
        for key in keys:
            buffers[key >> 56].append(key)  # a negative index counts from the end, as the signed key does
        self._added += len(keys)
        if self._added < self._buffer * self._BUCKETS // 2:  # keys are hashes, so until then the buffers are half full
            return
        self._added = 0
        for number, buffer in enumerate(buffers):
            if len(buffer) >= self._buffer // 4:
                self._file = self._file or cast("BinaryIO", TemporaryFile())  # noqa: SIM115 - closed by `close`
                self._offsets[number].append((self._file.tell(), len(buffer)))
                buffer.tofile(self._file)
                buffers[number] = array("q")

    def ranges(self) -> Iterator[tuple[int, int, set[int]]]:
        """Yield the keys from `first` to `last` as (first, last, keys), for each of 256 ranges."""
        for number in range(self._BUCKETS):
            found = array("q", self._buffers[number])
            for offset, length in self._offsets[number]:
                file = cast("BinaryIO", self._file)
                file.seek(offset)
                found.fromfile(file, length)
            first = (number if number < self._BUCKETS // 2 else number - self._BUCKETS) << 56
            yield first, first + (1 << 56) - 1, set(found)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@attrs.frozen
class FoldedRun:
    """The run whose rows are folded."""

    at: float
    counts: Mapping[str, int]
    targets: Mapping[int, Target]
    seen: SeenKeys | None
    """The keys of the run's input; `None` unless all of it was read."""
    compared: Collection[int] = ()
    """The targets of the input's rows, from which contacts may be gone."""
    request: Mapping[str, Any] = attrs.field(factory=dict)
    """The options that are part of its requests."""


def is_ledger_file(path: Path) -> bool:
    """Return whether a file is a ledger, according to its first bytes."""
    with path.open("rb") as file:
        header = file.read(_HEADER_SIZE)
    return (
        len(header) == _HEADER_SIZE
        and header.startswith(b"SQLite format 3\0")
        and struct.unpack_from(">I", header, 68) == (APPLICATION_ID,)
    )


class Generation:
    """One generation of a ledger: its entries, open for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._db = _connect(path, "mode=ro&immutable=1")
        self._db.execute(f"PRAGMA mmap_size = {_MAPPED}")
        try:
            ((version,),) = self._db.execute("PRAGMA user_version")
            meta = dict(self._db.execute("SELECT name, value FROM meta"))
            self.targets: dict[Target, int] = {
                Target(space, campaign): number for number, space, campaign in self._db.execute("SELECT * FROM target")
            }
            self.address, self.secret, self.generation = meta["address"], bytes(meta["secret"]), int(meta["generation"])
            self.request: dict[str, Any] = json.loads(meta["request"])
            """The options that were part of the last run's requests; none if there was no run."""
        except (sqlite3.Error, LookupError, TypeError, ValueError) as error:
            self._db.close()
            raise damaged_error(path, str(error)) from error
        self.name = blake2b(self.secret, digest_size=8).hexdigest()
        """Identifies the ledger in the journals of its runs, without its secret."""
        if version > FORMAT_VERSION:
            self._db.close()
            raise InvalidRequest(f"ledger: {path} was written by a newer version of this library; use that version")

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a ledger after a check of its first bytes, because SQLite might change a file that is not a ledger."""
        if not is_ledger_file(path):
            raise InvalidRequest(f"ledger: {path} is not a ledger; pass the path of a ledger, or of a file that does not exist")
        return cls(path)

    def count_gone(self, seen: SeenKeys, targets: Iterable[Target]) -> int:
        """Return the number of entries of some targets that an input with these keys does not have."""
        numbers = [self.targets[target] for target in targets if target in self.targets]
        return sum(len(missing) for missing, _ in _compare_with_input(self._db, seen, numbers))

    def find(self, keys: Sequence[int]) -> dict[int, Entry]:
        """Return the entries with these keys."""
        query = f"SELECT key, digest, state, crc, id FROM entry WHERE key IN ({','.join('?' * len(keys))})"  # noqa: S608 - no text
        try:
            return {row[0]: row for row in self._db.execute(query, keys)}
        except sqlite3.Error as error:
            raise damaged_error(self.path, str(error)) from error

    def read_report(self) -> tuple[Any, ...]:
        """Return the counts (all, uncertain, gone), the runs, the address, and the number of entries for each target."""
        try:
            counts = self._db.execute(_COUNT).fetchone()
            runs = self._db.execute("SELECT generation, at, counts FROM run ORDER BY generation DESC").fetchall()
            sums = dict(self._db.execute(f"SELECT state >> {_TARGET_SHIFT}, count(*) FROM entry GROUP BY 1"))  # noqa: S608 - no text
        except sqlite3.Error as error:
            raise damaged_error(self.path, str(error)) from error
        targets = {target: sums.get(number, 0) for target, number in self.targets.items()}
        return counts, [(number, at, json.loads(text)) for number, at, text in runs], self.address, targets

    def close(self) -> None:
        self._db.close()


def judge(digest: int, target: int | None, entry: Entry, oldest: int) -> Standing:
    """Compare a row with its entry. `oldest` is the time in minutes before which an entry is too old."""
    key, known, state, crc, id_ = entry
    # An entry that fails its checksum counts as uncertain: sending too much is harmless, and sending too little is not.
    if state & _OUTSTANDING or _checksum(key, known, state, id_) != crc:
        return Standing.UNCERTAIN
    if state >> _TARGET_SHIFT != target:  # two campaigns have the same 16 bits for this contact
        return Standing.NEW
    if known != digest:
        return Standing.CHANGED
    return Standing.EXPIRED if state & (_OUTSTANDING - 1) < oldest else Standing.UNCHANGED


def minutes(seconds: float) -> int:
    """Convert a Unix time to minutes since the ledger's epoch."""
    return min(max(0, int(seconds - _EPOCH) // 60), _OUTSTANDING - 1)


def decode_id(stored: str | bytes | None) -> str | None:
    """Return a contact id from its stored form."""
    return _ID_PREFIX + stored.hex() if isinstance(stored, bytes) else stored


def _encode_id(id_: str | None) -> str | bytes | None:
    """Return the bytes of an id of the form `contact_`, followed by hexadecimal digits; any other id unchanged."""
    if id_ is None or not id_.startswith(_ID_PREFIX):
        return id_
    try:
        stored = bytes.fromhex(id_[len(_ID_PREFIX) :])
    except ValueError:
        return id_
    return stored if _ID_PREFIX + stored.hex() == id_ else id_


def _checksum(key: int, digest: int, state: int, id_: str | bytes | None) -> int:
    content = id_.encode(errors="surrogatepass") if isinstance(id_, str) else id_ or b""
    return crc32(content, crc32(_CHECKED.pack(key, digest, state))) >> 1  # 31 bits take four bytes


def create(path: Path, address: str | None, secret: bytes) -> None:
    """Write the first, empty generation of a ledger."""
    with closing(_connect(path, "mode=rwc")) as db:
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("BEGIN")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
        for table in _TABLES:
            db.execute(table)
        values = {"address": address, "secret": secret, "generation": 0, "request": "{}"}
        db.executemany("INSERT INTO meta VALUES (?, ?)", values.items())
        db.execute("COMMIT")


def fold(entries: Path, draft: Path, run: FoldedRun, sent: Iterable[SentRow]) -> int | None:
    """Write the next generation to `draft`: a copy with the rows that a run sent. Return the number of entries that are gone."""
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    shutil.copyfile(entries, draft)
    with closing(_connect(draft, "mode=rw")) as db:
        # A draft that is not complete is never used, so it needs no rollback, and no sync before the end.
        db.execute("PRAGMA journal_mode = OFF")
        db.execute("PRAGMA synchronous = OFF")
        db.execute("BEGIN")
        ((generation,),) = db.execute("SELECT value + 1 FROM meta WHERE name = 'generation'")
        db.executemany(
            "INSERT OR IGNORE INTO target VALUES (?, ?, ?)", [(number, *target) for number, target in run.targets.items()]
        )
        rows, doubtful = iter(sent), set[int]()
        shares_contacts = db.execute(_SHARED_WORKSPACES).fetchone() is not None
        while chunk := list(islice(rows, _CHUNK)):
            keys = {row[0] for row in chunk}
            known = _find_of_contacts(db, keys) if shares_contacts else _find(db, keys)
            _apply(db, chunk, known, minutes(run.at), doubtful, shares_contacts=shares_contacts)
        gone = None if run.seen is None else _mark_gone(db, run.seen, run.compared, generation)
        counts = {**run.counts} if gone is None else {**run.counts, "gone": gone}
        db.execute("INSERT INTO run VALUES (?, ?, ?)", (generation, int(run.at), json.dumps(counts)))
        values = {"generation": generation, "request": json.dumps(dict(run.request))}
        db.executemany("UPDATE meta SET value = ? WHERE name = ?", [(value, name) for name, value in values.items()])
        db.execute("COMMIT")
        if _is_sparse(db):
            db.execute("VACUUM")
    sync(draft)
    return gone


_Known: TypeAlias = dict[int, tuple[int, int, Any]]
"""The digest, state and id of entries, by key."""


def _apply(
    db: sqlite3.Connection,
    chunk: Sequence[SentRow],
    known: _Known,
    at: int,
    doubtful: set[int],
    *,
    shares_contacts: bool,
) -> None:
    """Apply rows in the order in which they were sent. A key may occur in several rows."""
    changed: _Known = {}
    keys_of_contact: dict[int, set[int]] = {}
    if shares_contacts:
        for key in known:
            keys_of_contact.setdefault(key >> CAMPAIGN_BITS, set()).add(key)
    none, applied = Effect.NONE, Effect.APPLIED
    for key, digest, target, effect, id_ in chunk:
        if effect is none:
            continue
        contact, state, stored_digest = key >> CAMPAIGN_BITS, target << _TARGET_SHIFT | at, digest
        earlier = known.get(key)
        # A request without an answer may still arrive at the service, after a later row of this run for the same contact.
        if effect is Effect.POSSIBLE or contact in doubtful:
            state, stored_digest = state | _OUTSTANDING, 0 if earlier is None else earlier[0]
        if effect is not applied:
            doubtful.add(contact)
        stored_id = _encode_id(id_) if id_ is not None or earlier is None else earlier[2]
        known[key] = changed[key] = stored_digest, state, stored_id
        if not shares_contacts:
            continue
        keys_of_contact.setdefault(contact, set()).add(key)
        for other in keys_of_contact[contact] - {key}:
            other_digest, other_state, other_id = known[other]
            if other_digest != digest:  # this row has replaced the values of a row of another campaign
                known[other] = changed[other] = _OUT_OF_DATE, other_state, other_id
    entries = ((key, *changed[key]) for key in sorted(changed))
    db.executemany(_UPSERT, [(*entry, _checksum(*entry)) for entry in entries])


def _find(db: sqlite3.Connection, keys: Collection[int]) -> _Known:
    query = f"SELECT key, digest, state, id FROM entry WHERE key IN ({','.join('?' * len(keys))})"  # noqa: S608 - no text
    return {key: (digest, state, id_) for key, digest, state, id_ in db.execute(query, [*keys])}


def _find_of_contacts(db: sqlite3.Connection, keys: Collection[int]) -> _Known:
    """Return the entries of the keys' contacts in all campaigns."""
    query, last = "SELECT key, digest, state, id FROM entry WHERE key BETWEEN ? AND ?", (1 << CAMPAIGN_BITS) - 1
    firsts = sorted({key & ~last for key in keys})
    return {key: (digest, state, id_) for first in firsts for key, digest, state, id_ in db.execute(query, (first, first | last))}


def _mark_gone(db: sqlite3.Connection, seen: SeenKeys, targets: Collection[int], generation: int) -> int:
    """Mark the entries of the run's targets that its input did not have. Return their number."""
    gone = 0
    for missing, known in _compare_with_input(db, seen, targets):
        changes = [(generation, key) for key in missing - known] + [(None, key) for key in known - missing]
        db.executemany("UPDATE entry SET gone = ? WHERE key = ?", changes)
        gone += len(missing)
    return gone


def _compare_with_input(db: sqlite3.Connection, seen: SeenKeys, targets: Collection[int]) -> Iterator[tuple[set[int], set[int]]]:
    """Yield the keys of the targets' entries that the input does not have, and of those that are marked as gone, in batches."""
    among = ",".join(map(str, targets))
    query = f"SELECT key FROM entry WHERE key BETWEEN ? AND ? AND state >> {_TARGET_SHIFT} IN ({among})"  # noqa: S608 - no text
    for first, last, keys in seen.ranges():
        stored = set(chain.from_iterable(db.execute(query, (first, last))))
        yield stored - keys, set(chain.from_iterable(db.execute(f"{query} AND gone NOTNULL", (first, last))))


def _is_sparse(db: sqlite3.Connection) -> bool:
    ((pages,),), ((size,),), ((count,),) = (
        db.execute(query) for query in ("PRAGMA page_count", "PRAGMA page_size", "SELECT count(*) FROM entry")
    )
    return bool(count and pages * size / count > _SPARSE)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def damaged_error(path: Path | str, reason: str) -> JournalError:
    return JournalError(
        f"ledger {path} is damaged: {reason}; move it away and restore a copy, or start a new ledger, which sends every row again"
    )
