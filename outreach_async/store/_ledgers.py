"""Ledgers: what the service has of each contact, where that is kept, and how a run with a ledger starts. Synchronous.

A ledger is a database, in a file or in objects in an object store or a shared folder. It has its entries, its runs, and the marks
and outcomes of the last run, which is merged into the entries when it ends, or when the next run starts.

Entries are loaded for a run, whose rows are merged into them in the transaction of the caller. Nearly every row is alone: it was
applied by its only attempt, and neither the run nor the ledger has another row of its contact, or of one with a similar e-mail.
One statement merges all of these in the order of their keys. The others are merged by `_SimilarContacts`, whose rules hold for
every row; a row that is alone becomes the same entry by both.
"""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from enum import Enum
from functools import partial
from hashlib import blake2b
from heapq import nlargest
from itertools import chain, groupby
from math import inf
from pathlib import Path
from secrets import token_bytes, token_hex
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypeAlias, TypeVar

import attrs
import msgspec

from outreach_async._files.atomic import atomic_file, sync
from outreach_async._files.objects import create_or_read, is_url, list_folders, open_objects
from outreach_async._wire_words import SERVICE_OUTCOMES, Outcome
from outreach_async.bulk._rows import PossiblySent, Repeats
from outreach_async.errors import InvalidRequest, JournalError, OutreachError
from outreach_async.models import RUN_TARGET, Target
from outreach_async.store import _records as records
from outreach_async.store._objects import HEARTBEAT_INTERVAL, ObjectDatabase, TakenOverError, clear_objects
from outreach_async.store._schema import ENTRY_SUM, OUT_OF_DATE, REJECT_SUM, RUN_TABLES, SENT_SUM, TABLES, UNCERTAIN
from outreach_async.store._sqlite import FileDatabase, JournalInUseError, connect, create_file, query_journal, write_tables
from outreach_async.store._writer import Database, JournalWriter, Transaction, create_metadata, find_possibly_sent

T = TypeVar("T")

CAMPAIGN_BITS: Final = 16
"""The last bits of a key are those of the number of its target. The others are of the contact, so its entries are neighbours."""
SIMILAR_BITS: Final = 32
"""The first half of a key is the same for all e-mails that a service may treat as equal, so their contacts are neighbours too."""
TARGET_BITS: Final = 20
MAX_TARGET: Final = (1 << TARGET_BITS) - 1
_GONE: Final = 1 << 63
_KNOWN: Final = _GONE - 1
"""The bits of a check without that of an entry which the last whole input of its campaign did not have."""
_SIGN: Final = 1 << 63  # keys are signed, as SQLite stores them
_BUCKET_BITS: Final = 4
"""A bucket of the directory has about 16 entries: a search takes four steps, in two or three lines of memory."""
_NO_ID: Final = 1 << 62
_DOMAIN_SIZE: Final = 6  # bytes, less one bit: SQLite stores larger numbers in eight bytes
_LOADED_SIZE: Final = 20_000
"""Number of entries that are loaded at a time, so that the memory has little besides them."""

_CHECK: Final = f"(digest << {TARGET_BITS}) | target | (gone << 63)"
_ID_COLUMNS: Final = [f"CASE typeof(id_1) WHEN 'integer' THEN id_1 ELSE {_NO_ID} END", "coalesce(id_2, 0)"]
_decode_numbers: Final = msgspec.json.Decoder(list[int]).decode
_SELECT_TEXTS: Final = "SELECT key, id_1, id_2 FROM entry WHERE typeof(id_1) = 'text'"
_SELECT_REJECTS: Final = f"SELECT key FROM reject WHERE crc = {REJECT_SUM} ORDER BY key"  # noqa: S608 - names of this package


class RowChange(Enum):
    NEW = "new"
    CHANGED = "changed"
    EXPIRED = "expired"
    UNCERTAIN = "uncertain"
    UNCHANGED = "unchanged"


class LedgerHeader(msgspec.Struct):
    """What a ledger knows beside its entries and runs."""

    address: str | None
    secret: bytes
    entries: int = 0
    rejects: int = 0
    settles_at: float = 0.0
    """Unix time from which the answers of a new run settle uncertain entries: no earlier request can arrive after them."""
    merged: int = 0
    """The last run whose rows are in the entries."""

    @property
    def name(self) -> str:
        """Identifies the ledger, without its secret."""
        return blake2b(self.secret, digest_size=8).hexdigest()

    def to_metadata(self) -> Any:
        return msgspec.to_builtins(self)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Self:
        return msgspec.convert(metadata["ledger"], cls)


class Run(msgspec.Struct):
    """A run of a ledger, as its table has it."""

    number: int
    at: float
    """Unix time of its start."""
    stamp: str
    counts: Mapping[str, int]
    request: Mapping[str, Any]
    """The options that are part of its requests."""
    repeats: Repeats


def read_runs(db: sqlite3.Connection) -> list[Run]:
    rows = db.execute("SELECT number, at, stamp, counts, request, repeats, crc FROM run ORDER BY number")
    decode = msgspec.json.decode
    return [
        Run(number, at, stamp, decode(counts), decode(request), repeats)
        for number, at, stamp, counts, request, repeats in records.checked(rows, "run {}")
    ]


def load_entries(db: sqlite3.Connection) -> LedgerEntries:
    """Load the entries of a ledger, with everything that is known of them."""
    return LedgerEntries(db, LedgerHeader.from_metadata(records.read_metadata(db)), with_runs=True)


def start_contacts(secret: bytes, workspace: str | None) -> Any:
    """Return the start of the hashes of a workspace's contacts: the upper bits of their keys, without those of a campaign."""
    return blake2b(msgspec.json.encode(workspace) + b"\n", key=secret, digest_size=8)


def start_domains(secret: bytes) -> Any:
    return blake2b(key=secret, digest_size=_DOMAIN_SIZE)


def hash_domain(start: Any, domain: bytes) -> int:
    """Return the column `domain` of an entry."""
    hasher = start.copy()
    hasher.update(domain)
    return int.from_bytes(hasher.digest()) >> 1


def no_entries() -> LedgerEntries:
    """Return the entries of a ledger that does not exist yet."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(";".join(TABLES))
        return LedgerEntries(db, LedgerHeader(None, b""), with_runs=True)


def require_entries(db: sqlite3.Connection, header: LedgerHeader) -> None:
    """Check every entry and reject, before others are merged into them."""
    for table, condition, expected in ("entry", ENTRY_SUM, header.entries), ("reject", REJECT_SUM, header.rejects):
        (found,) = db.execute(f"SELECT count(*) FROM {table} WHERE crc = {condition}").fetchone()  # noqa: S608 - names of this package
        records.require(found == expected, f"expected {expected} intact rows in the table {table}, found {found}")


def _read_parts(db: sqlite3.Connection, columns: Sequence[str]) -> Iterator[list[list[int]]]:
    """Yield the columns of the intact entries in the order of their keys, in parts that take little memory."""
    # As JSON, because a row that SQLite returns costs more than its numbers.
    selected = ", ".join(f"json_group_array({column})" for column in columns)
    last, after = -_SIGN, ">="
    while True:
        intact = f"SELECT * FROM entry WHERE key {after} ? AND crc = {ENTRY_SUM} ORDER BY key LIMIT {_LOADED_SIZE}"  # noqa: S608 - our names
        part = [_decode_numbers(text) for text in db.execute(f"SELECT {selected} FROM ({intact})", (last,)).fetchone()]  # noqa: S608 - our names
        if not (keys := part[0]):
            return
        records.require(keys == sorted(keys), "the entries are not in the order of their keys")  # SQLite promises none
        yield part
        last, after = keys[-1], ">"


class LedgerEntries:
    """The entries of a ledger. An entry is known by its place in the order of the keys."""

    def __init__(
        self,
        db: sqlite3.Connection,
        header: LedgerHeader,
        *,
        with_runs: bool,
        read: Callable[[Callable[[sqlite3.Connection], Any]], Any] | None = None,
    ) -> None:
        """Load the entries, with the runs that wrote them if these are needed, and check all of them.

        If few ids are needed, `read` runs a query for each of them; otherwise, they are loaded, too.
        """
        # Entries are compared with every row of the input. In arrays, they take 16 bytes each, and 16 for the id.
        self.header = header
        self.targets = {target: number for number, target in records.read_recorded_targets(db).items()}
        self.runs = read_runs(db)
        with_ids = read is None
        columns = ["key", _CHECK, *_ID_COLUMNS * with_ids, *["run"] * with_runs]
        loaded = [array("q") for _ in columns]
        for part in _read_parts(db, columns):
            for column, values in zip(loaded, part, strict=True):
                column.extend(values)
        self.keys, self.checks, *rest = loaded
        self._ids = rest[:2] if with_ids else []
        self._runs = rest[-1] if with_runs else None
        self._texts = {key: records.decode_id(*id_) for key, *id_ in db.execute(_SELECT_TEXTS)} if with_ids else {}
        self._rejects = array("q", chain.from_iterable(db.execute(_SELECT_REJECTS)))
        self.count = len(self.keys)
        records.require(self.count == header.entries, f"expected {header.entries} intact entries, found {self.count}")
        records.require(
            len(self._rejects) == header.rejects, f"expected {header.rejects} intact rejects, found {len(self._rejects)}"
        )
        self._read = read
        bits = max(1, self.count.bit_length() - _BUCKET_BITS)
        self._shift = 64 - bits
        self._first_bucket = _SIGN >> self._shift
        starts = ((number << self._shift) - _SIGN for number in range(1 << bits))
        self._directory = array("Q", [*(bisect_left(self.keys, start) for start in starts), self.count])

    def similar(self, key: int) -> range:
        """Return the places of the contacts whose e-mails a service may treat as equal to that of a key, in all campaigns."""
        first = key >> SIMILAR_BITS << SIMILAR_BITS
        bucket = (first >> self._shift) + self._first_bucket
        start = bisect_left(self.keys, first, self._directory[bucket], self._directory[bucket + 1])
        if start == self.count or self.keys[start] >> SIMILAR_BITS != key >> SIMILAR_BITS:
            return range(0)
        return range(start, bisect_right(self.keys, first | (1 << SIMILAR_BITS) - 1, start))

    def id_of(self, contact: int) -> str | None:
        """Return the id of a contact, by its entry in any campaign."""
        place = bisect_left(self.keys, contact << CAMPAIGN_BITS)
        return self.id_at(place) if place < self.count and self.keys[place] >> CAMPAIGN_BITS == contact else None

    def digests_of(self, contact: int) -> set[int]:
        """Return the digests of a contact's entries, in all campaigns."""
        first, end = (bisect_left(self.keys, contact + more << CAMPAIGN_BITS) for more in (0, 1))
        return {(check & _KNOWN) >> TARGET_BITS for check in self.checks[first:end]}

    def locate(self, keys: Iterable[int]) -> list[int]:
        """Return the places of the entries with these keys; -1 for a key without an entry."""
        stored, directory, shift, first_bucket = self.keys, self._directory, self._shift, self._first_bucket
        places = list[int]()
        for key in keys:
            bucket = (key >> shift) + first_bucket
            end = directory[bucket + 1]
            place = bisect_left(stored, key, directory[bucket], end)
            places.append(place if place < end and stored[place] == key else -1)
        return places

    def judge(self, place: int, digest: int, target: int | None, fresh: Container[int] | None) -> RowChange:
        """Compare a row with its entry. `fresh` has the runs whose entries are not too old; `None` for all runs."""
        check = self.checks[place] & _KNOWN
        known, known_target = check >> TARGET_BITS, check & MAX_TARGET
        if known == UNCERTAIN:
            return RowChange.UNCERTAIN
        if known_target != target:  # the numbers of two campaigns have the same 16 bits
            return RowChange.NEW
        if known != digest:
            return RowChange.CHANGED
        return RowChange.UNCHANGED if self.is_fresh(place, fresh) else RowChange.EXPIRED

    def is_fresh(self, place: int, fresh: Container[int] | None) -> bool:
        return fresh is None or (self._runs is not None and self._runs[place] in fresh)

    def fresh_runs(self, now: float, max_age: float | None) -> Container[int] | None:
        """Return the runs whose entries are not too old; `None` for all runs."""
        # 0 means that every row is sent, so no run is fresh, whatever the clock says. The age of an entry from the future is
        # unknown: the clock was ahead then, or is behind now.
        return None if max_age is None else {run.number for run in self.runs if now - max_age < run.at <= now}

    def was_rejected(self, key: int) -> bool:
        """Return whether the service rejected a row with this key, and a later run has applied none."""
        place = bisect_left(self._rejects, key)
        return place < len(self._rejects) and self._rejects[place] == key

    def id_at(self, place: int) -> str | None:
        key = self.keys[place]
        if self._read is not None:
            return records.decode_id(
                *self._read(lambda db: db.execute("SELECT id_1, id_2 FROM entry WHERE key = ?", (key,)).fetchone())
            )
        id_1, id_2 = (ids[place] for ids in self._ids)
        return self._texts.get(key) if id_1 == _NO_ID else records.decode_id(id_1, id_2)

    def find_gone(self, seen: bytearray, targets: Iterable[Target]) -> tuple[int, list[int], list[int]]:
        """Return the number of entries of some targets that an input does not have.

        Also return the keys of those that are gone since this run, and of those that are no longer gone.
        """
        checks, keys, numbers = self.checks, self.keys, {self.targets.get(target) for target in targets}
        count, gone, back = 0, list[int](), list[int]()
        place = seen.find(0)
        while place >= 0:
            if checks[place] & MAX_TARGET in numbers:
                count += 1
                if checks[place] >= 0:
                    gone.append(keys[place])
            place = seen.find(0, place + 1)
        if self.count and min(checks) < 0:
            back = [keys[place] for place, check in enumerate(checks) if check < 0 and seen[place]]
        return count, gone, back

    def count_entries(self) -> tuple[int, int, dict[Target, int]]:
        """Return the numbers of uncertain and of gone entries, and the number of entries for each target."""
        sums = Counter(map(MAX_TARGET.__and__, self.checks))
        uncertain = sum(check & _KNOWN >= UNCERTAIN << TARGET_BITS for check in self.checks)
        gone = sum(check < 0 for check in self.checks)
        return uncertain, gone, {target: sums[number] for target, number in self.targets.items()}


LONGEST_DOUBT: Final = 3600.0
"""Maximum of seconds until answers settle what a run has left uncertain, as the clock of a later run sees it."""
_MAX_REJECT_AGE: Final = 90 * 86_400
"""Seconds after which a reject is forgotten, so that rows that left the input do not stay for ever."""
_BATCH_SIZE: Final = 500

_STATUSES: Final = tuple(Outcome)


def _numbers(outcomes: Iterable[str]) -> str:
    return ", ".join(str(_STATUSES.index(Outcome(outcome))) for outcome in sorted(outcomes))


_GROUP: Final = f"key >> {SIMILAR_BITS}"
_APPLIED: Final = f"status IN ({_numbers(SERVICE_OUTCOMES)}) AND attempts = 1 AND possible IS NULL"
_REJECTED: Final = f"status = {_numbers([Outcome.REJECTED])}"
_ROWS: Final = "sent LEFT JOIN outcome USING (seq)"
_ENTRY: Final = "key, digest, target, run, id_1, id_2, domain, gone"

# All SQL of this module has names and numbers of this package alone.
_FIND_GROUPS: Final = f"""
    INSERT INTO together SELECT {_GROUP} FROM {_ROWS} GROUP BY {_GROUP} HAVING count(*) > 1 OR NOT coalesce(min({_APPLIED}), 0)
"""  # noqa: S608 - see above
_FIND_KNOWN: Final = f"""
    INSERT OR IGNORE INTO together SELECT sent.{_GROUP} FROM sent CROSS JOIN entry
    ON entry.key BETWEEN sent.key >> {SIMILAR_BITS} << {SIMILAR_BITS} AND sent.key | {(1 << SIMILAR_BITS) - 1}
    WHERE entry.key <> sent.key OR entry.digest = {UNCERTAIN}
"""  # noqa: S608 - see above
_MERGE_ALONE: Final = f"""
    INSERT INTO entry SELECT *, {ENTRY_SUM} FROM (
        SELECT sent.key AS key, sent.digest AS digest, sent.target AS target, :run AS run,
            iif(outcome.id_2 IS NULL, known.id_1, outcome.id_1) AS id_1, coalesce(outcome.id_2, known.id_2) AS id_2,
            sent.domain AS domain, 0 AS gone
        FROM sent JOIN outcome USING (seq) LEFT JOIN entry AS known USING (key)
        WHERE sent.{_GROUP} NOT IN (SELECT number FROM together) AND sent.target <= {MAX_TARGET} ORDER BY sent.key
    ) WHERE true
    ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, target = excluded.target, run = excluded.run,
        id_1 = excluded.id_1, id_2 = excluded.id_2, domain = excluded.domain, gone = 0, crc = excluded.crc
"""  # noqa: S608 - see above
_SELECT_ROWS: Final = f"""
    SELECT key, digest, sent.target, domain, seq, status, id_1, id_2, attempts, possible
    FROM {_ROWS} WHERE {_GROUP} IN (SELECT number FROM together) ORDER BY {_GROUP}, seq
"""  # noqa: S608 - see above
_SELECT_ENTRIES: Final = f"""
    SELECT {_ENTRY} FROM together CROSS JOIN entry
    ON key BETWEEN number << {SIMILAR_BITS} AND number << {SIMILAR_BITS} | {(1 << SIMILAR_BITS) - 1} ORDER BY number, key
"""  # noqa: S608 - see above
_PUT_ENTRIES: Final = f"INSERT OR REPLACE INTO entry SELECT *, {ENTRY_SUM} FROM changed ORDER BY key"  # noqa: S608 - see above
_SET_GONE: Final = f"""
    INSERT OR REPLACE INTO entry SELECT *, {ENTRY_SUM} FROM (
        SELECT entry.key AS key, digest, target, run, id_1, id_2, domain, ? AS gone
        FROM json_each(?) CROSS JOIN entry ON entry.key = value
    )
"""  # noqa: S608 - see above
_PUT_REJECTS: Final = f"""
    INSERT OR REPLACE INTO reject SELECT key, run, {REJECT_SUM} FROM (
        SELECT DISTINCT key, :run AS run FROM {_ROWS} WHERE {_REJECTED}
    )
"""  # noqa: S608 - see above
_DROP_ACCEPTED: Final = f"""
    DELETE FROM reject WHERE key IN (SELECT key FROM {_ROWS} WHERE {_APPLIED}) OR key IN (SELECT key FROM accepted)
"""  # noqa: S608 - see above
# A run from the future has the time of a clock that was ahead: its rejects are as old as this run.
_AGE_REJECTS: Final = f"""
    INSERT OR REPLACE INTO reject SELECT key, run, {REJECT_SUM} FROM (
        SELECT key, :run AS run FROM reject JOIN run ON number = reject.run WHERE at > :at
    )
"""  # noqa: S608 - see above
_DROP_OLD: Final = "DELETE FROM reject WHERE run IN (SELECT number FROM run WHERE at < :at - :age)"
_TEMPORARY: Final = (
    "CREATE TEMP TABLE together (number INTEGER PRIMARY KEY)",
    f"CREATE TEMP TABLE changed ({_ENTRY.replace('key', 'key INTEGER PRIMARY KEY')})",
    "CREATE TEMP TABLE accepted (key INTEGER PRIMARY KEY)",
)


class Effect(Enum):
    """The effect of a sent row at the service, as far as its outcome shows it."""

    NONE = 0
    APPLIED = 1
    """The contact has the row's values."""
    RETRIED = 2
    """The contact has the row's values, but an earlier attempt may still arrive at the service."""
    POSSIBLE = 3
    """An attempt may have had an effect."""


class LedgerEntry(NamedTuple):
    """A row of the table of entries, without its checksum."""

    key: int
    digest: int
    target: int
    run: int
    id_1: int | str | None
    id_2: int | None
    domain: int
    gone: int = 0

    @property
    def contact(self) -> int:
        return self.key >> CAMPAIGN_BITS

    @property
    def id_(self) -> records.StoredId:
        return self.id_1, self.id_2


SentRow: TypeAlias = tuple[LedgerEntry, Effect]
"""A row that a run sent or may have sent: the entry that it leaves if it is applied, and its effect."""


def merge(
    db: sqlite3.Connection,
    metadata: Mapping[str, Any],
    run: Run,
    possibly_sent: PossiblySent,
    *,
    settles_at: float,
    counts: Mapping[str, int] = MappingProxyType({}),
    gone: Sequence[int] = (),
    back: Sequence[int] = (),
) -> LedgerHeader:
    """Merge the rows of a run, which has ended, or whose process has. Return what the ledger then knows.

    From the Unix time `settles_at`, none of its requests can arrive at the service any more. `gone` and `back` are the keys of
    entries that are gone from its input, and of those that were gone, and are not any more.
    """
    # A mark without an outcome must never be merged after an answer to a later row of its contact as if it came before: it may
    # arrive at the service after all others. `_SimilarContacts` gets all rows of a contact at once.
    require_rows(db, metadata)
    for statement in _TEMPORARY:  # a rollback drops these tables, too
        db.execute(statement)
    for is_gone, keys in (1, gone), (0, back):
        db.execute(_SET_GONE, (is_gone, records.to_json(keys)))
    db.execute(_FIND_GROUPS)
    db.execute(_FIND_KNOWN)
    header = LedgerHeader.from_metadata(metadata)
    # A clock that was ahead must not keep entries uncertain for longer than a run can.
    settled_at = min(header.settles_at, run.at + LONGEST_DOUBT)
    if _merge_groups(db, possibly_sent, run.number, is_early=run.at < settled_at):
        settled_at = max(settled_at, settles_at)
    db.execute(_MERGE_ALONE, {"run": run.number})
    db.execute(_PUT_ENTRIES)
    db.execute(_DROP_ACCEPTED)
    db.execute(_PUT_REJECTS, {"run": run.number})
    db.execute(_AGE_REJECTS, {"run": run.number, "at": run.at})
    db.execute(_DROP_OLD, {"at": run.at, "age": _MAX_REJECT_AGE})
    for name in "together", "changed", "accepted":
        db.execute(f"DROP TABLE temp.{name}")
    (entries,), (rejects,) = (db.execute(f"SELECT count(*) FROM {table}").fetchone() for table in ("entry", "reject"))  # noqa: S608 - names
    merged = LedgerHeader(header.address, header.secret, entries, rejects, settled_at, run.number)
    Transaction(db).set_metadata(ledger=merged.to_metadata())
    sent = {name: count for name, count in metadata["totals"]["outcomes"].items() if count}
    columns = [run.number, run.at, run.stamp, records.to_json({**sent, **counts}), records.to_json(run.request), run.repeats]
    db.execute("UPDATE run SET counts = ?, crc = ? WHERE number = ?", (columns[3], records.checksum(columns), run.number))
    return merged


def require_rows(db: sqlite3.Connection, metadata: Mapping[str, Any]) -> None:
    """Check every row of a run, and that none is missing: a row without an outcome would count as not sent."""
    marked, expected = metadata["marked"], metadata["totals"]["rows"]
    records.require_windows(db, marked)
    for table, count, condition in ("sent", marked, f"crc = {SENT_SUM}"), ("outcome", expected, f"seq < {marked}"):
        (found,) = db.execute(f"SELECT count(*) FROM {table} WHERE {condition}").fetchone()  # noqa: S608 - names of this module
        records.require(found == count, f"expected {count} rows in the table {table}, found {found}")
    records.require_outcomes(db, marked)


def _merge_groups(db: sqlite3.Connection, possibly_sent: PossiblySent, run: int, *, is_early: bool) -> bool:
    """Merge the rows that are not alone into the table of changed entries. Return whether one of them is unsettled."""
    sent_rows = (read_row(row, possibly_sent, run) for row in db.execute(_SELECT_ROWS))
    rows = groupby(sent_rows, lambda row: row[0].key >> SIMILAR_BITS)
    entries = groupby((LedgerEntry(*row) for row in db.execute(_SELECT_ENTRIES)), lambda entry: entry.key >> SIMILAR_BITS)
    known, changed, accepted, is_unsettled = next(entries, None), list[LedgerEntry](), list[tuple[int]](), False
    for number, members in rows:
        group = _SimilarContacts([] if known is None or known[0] != number else [*known[1]], is_early=is_early)
        if known is not None and known[0] == number:
            known = next(entries, None)
        sent = [*members]
        changed += group.merge(sent)
        accepted += [(entry.key,) for entry, effect in sent if effect in {Effect.APPLIED, Effect.RETRIED}]
        is_unsettled |= group.is_unsettled
        if len(changed) > _BATCH_SIZE:
            _keep(db, changed, accepted)
    _keep(db, changed, accepted)
    return is_unsettled


def _keep(db: sqlite3.Connection, changed: list[LedgerEntry], accepted: list[tuple[int]]) -> None:
    db.executemany("INSERT INTO changed VALUES (?, ?, ?, ?, ?, ?, ?, ?)", changed)
    db.executemany("INSERT OR IGNORE INTO accepted VALUES (?)", accepted)
    changed.clear()
    accepted.clear()


def read_row(row: Sequence[Any], possibly_sent: PossiblySent, run: int) -> SentRow:
    key, digest, target, domain, seq, status, id_1, id_2, attempts, possible = row
    unanswered = Effect.POSSIBLE if seq in possibly_sent else Effect.NONE
    effect = unanswered if status is None else _effect_of(seq, status, attempts, possible)
    return LedgerEntry(key, digest, target, run, id_1, id_2, domain), effect


def _effect_of(seq: int, status: object, attempts: int, possible: object) -> Effect:
    """Return the effect of a row from its stored outcome."""
    outcome = records.decode_outcome([seq, status, None, None, attempts, possible, None, None, None], None, None, RUN_TARGET)
    if outcome.status in {Outcome.REJECTED, Outcome.NOT_APPLIED}:  # if not certain, an earlier attempt may have had an effect
        return Effect.NONE if outcome.certain else Effect.POSSIBLE
    # If `not_applied` is possible, the answer itself cannot be trusted. An answer to the only attempt shows that the contact has
    # the values of the row, even if an earlier run leaves open whether the contact was new.
    is_answered = outcome.status in SERVICE_OUTCOMES and Outcome.NOT_APPLIED not in outcome.possible
    if not is_answered or not (outcome.certain or outcome.attempts == 1):
        return Effect.POSSIBLE
    return Effect.APPLIED if outcome.attempts == 1 else Effect.RETRIED


class _SimilarContacts:
    """The entries of contacts whose e-mails a service may treat as equal, in all campaigns. Nearly always, it is one contact."""

    def __init__(self, entries: Iterable[LedgerEntry], *, is_early: bool) -> None:
        self._entries = {entry.key: entry for entry in entries}
        # A request of an earlier run may still arrive at the service, after the answers of this one.
        self._doubtful = {entry.contact for entry in self._entries.values() if is_early and entry.digest == UNCERTAIN}
        self.is_unsettled = False
        """Whether an attempt of this run may have had an effect, or may still have one."""

    def merge(self, rows: Sequence[SentRow]) -> Iterator[LedgerEntry]:
        """Merge rows, in the order in which they were sent. Yield the entries that change."""
        before = {**self._entries}
        # Rows of campaigns that have no number are sent every time.
        rows = [row for row in rows if row[1] is not Effect.NONE and row[0].target <= MAX_TARGET]
        doubtful = set[int]()
        for sent, effect in rows:
            self._apply(sent, effect, doubtful)
        for contact in self._find_replaced(rows, before):
            for key, entry in self._entries.items():
                if entry.contact == contact and entry.digest != UNCERTAIN:
                    self._entries[key] = entry._replace(digest=OUT_OF_DATE)
        for key, entry in self._entries.items():
            if entry != before.get(key):
                yield entry

    def _apply(self, sent: LedgerEntry, effect: Effect, doubtful: set[int]) -> None:
        contact, digest = sent.contact, sent.digest
        # A request without an answer may still arrive at the service, after a later row of this run for the same contact.
        if effect is Effect.POSSIBLE or contact in doubtful:
            digest, self.is_unsettled = UNCERTAIN, True
        elif contact in self._doubtful:
            digest = UNCERTAIN
        if effect is not Effect.APPLIED:
            doubtful.add(contact)
        id_1, id_2 = self._entries.get(sent.key, sent).id_ if sent.id_ == (None, None) else sent.id_
        self._entries[sent.key] = sent._replace(digest=digest, id_1=id_1, id_2=id_2)
        for key, other in self._entries.items():
            # This row has replaced the values of another campaign's.
            if key != sent.key and other.contact == contact and other.digest != UNCERTAIN:
                self._entries[key] = other._replace(digest=OUT_OF_DATE if digest == UNCERTAIN else sent.digest)

    def _find_replaced(self, rows: Sequence[SentRow], before: Mapping[int, LedgerEntry]) -> Iterator[int]:
        """Yield the contacts whose values a row of a similar e-mail may have replaced."""
        contacts = {entry.contact for entry in self._entries.values()}
        if len(contacts) == 1:  # nearly always
            return
        # Contacts with similar e-mails may be one at the service. They are two if the ids of both are known, and differ.
        ids = dict[int, records.StoredId]()
        for entry in sorted(before.values()):
            ids.setdefault(entry.contact, entry.id_)
        applied, effective = dict[int, int](), dict[int, float]()
        for at, (sent, effect) in enumerate(rows):
            applied[sent.contact] = at
            # A request without an answer may still arrive after all others.
            effective[sent.contact] = max(effective.get(sent.contact, 0), at if effect is Effect.APPLIED else inf)
            if sent.id_ != (None, None):
                ids[sent.contact] = sent.id_
        effective |= dict.fromkeys(self._doubtful, inf)
        known = {contact: ids.get(contact, (None, None)) for contact in contacts}
        yield from _find_overtaken(known, applied, effective)


def _find_overtaken(
    ids: Mapping[int, records.StoredId], applied: Mapping[int, int], effective: Mapping[int, float]
) -> Iterator[int]:
    """Yield contacts to which the row of another one, which may be the same at the service, may have been applied later."""
    # For each id, only the two latest contacts count: one of them is another one.
    found, unknown = defaultdict[records.StoredId, list[tuple[float, int]]](list), (None, None)
    for contact in effective.keys() & ids.keys():
        found[ids[contact]].append((effective[contact], contact))
    latest = defaultdict(list, {id_: nlargest(2, each) for id_, each in found.items()})
    anyone = nlargest(2, chain(*latest.values()))
    for contact, id_ in ids.items():
        rivals = anyone if id_ == unknown else latest[id_] + latest[unknown]
        if any(other != contact and at > applied.get(contact, -1) for at, other in rivals):
            yield contact


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

    def purge(self, number: int) -> None:
        """Delete the copies of the entries before one, and empty the logs of the runs before it."""
        for name in [*self._objects.names()]:
            if name[:6].isdecimal() and int(name[:6]) < number:
                self._objects.delete(name)
        for folder in list_folders(self._url, "ledger"):  # the names of objects stay taken: see `on_started`
            if _NUMBER.fullmatch(run := folder.removeprefix("run-")) and int(run) < number:
                clear_objects(open_objects(f"{self._url}/{folder}", "ledger"))

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
            if (header := merge_last(medium, database, wall)) is not None:
                read = None if with_ids else database.query
                entries = database.query(partial(LedgerEntries, header=header, with_runs=with_runs, read=read))
                identity = attrs.evolve(identity, options={**identity.options, "ledger": header.name, "at": now})
                run, started = _record_start(database, identity, entries, now)
                medium.on_started(header, run)
                database.compact()
                writer = JournalWriter(database, started, identity, "known", created=True, wall=wall)
                stack.pop_all()
                return LedgerRun(medium, database, entries, run, writer, wall)


def merge_last(medium: LedgerMedium, database: Database, wall: Callable[[], float]) -> LedgerHeader | None:
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
    doubt = HEARTBEAT_INTERVAL + (metadata["identity"]["options"].get("timeout") or inf) + _ALLOWANCE
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
