"""The entries of a ledger, loaded for a run: what the service has of each contact, as far as earlier runs know it."""

from __future__ import annotations

import sqlite3
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from enum import Enum
from hashlib import blake2b
from itertools import chain
from typing import Any, Final, Self

import msgspec

from outreach_async.bulk._rows import Repeats
from outreach_async.models import Target
from outreach_async.store._reader import read_metadata
from outreach_async.store._records import checked, decode_id, require
from outreach_async.store._schema import ENTRY_SUM, REJECT_SUM, TABLES, UNCERTAIN

CAMPAIGN_BITS: Final = 16
"""The last bits of a key depend on the campaign too. The others are those of the contact, so its entries are neighbours."""
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
_PART_SIZE: Final = 20_000
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
        for number, at, stamp, counts, request, repeats in checked(rows, "run {}")
    ]


def number_targets(db: sqlite3.Connection) -> dict[Target, int]:
    """Return the numbers of the targets of all runs."""
    rows = checked(db.execute("SELECT number, workspace, campaign, crc FROM target ORDER BY number"), "a target")
    return {Target(*target): number for number, *target in rows}


def load_entries(db: sqlite3.Connection) -> LedgerEntries:
    """Load the entries of a ledger, with everything that is known of them."""
    return LedgerEntries(db, LedgerHeader.from_metadata(read_metadata(db)), with_runs=True)


def no_entries() -> LedgerEntries:
    """Return the entries of a ledger that does not exist yet."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(";".join(TABLES))
        return LedgerEntries(db, LedgerHeader(None, b""), with_runs=True)


def require_entries(db: sqlite3.Connection, header: LedgerHeader) -> None:
    """Check every entry and reject, before others are merged into them."""
    for table, condition, expected in ("entry", ENTRY_SUM, header.entries), ("reject", REJECT_SUM, header.rejects):
        (found,) = db.execute(f"SELECT count(*) FROM {table} WHERE crc = {condition}").fetchone()  # noqa: S608 - names of this package
        require(found == expected, f"expected {expected} intact rows in the table {table}, found {found}")


def _read_parts(db: sqlite3.Connection, columns: Sequence[str]) -> Iterator[list[list[int]]]:
    """Yield the columns of the intact entries in the order of their keys, in parts that take little memory."""
    # As JSON, because a row that SQLite returns costs more than its numbers.
    selected = ", ".join(f"json_group_array({column})" for column in columns)
    last, after = -_SIGN, ">="
    while True:
        intact = f"SELECT * FROM entry WHERE key {after} ? AND crc = {ENTRY_SUM} ORDER BY key LIMIT {_PART_SIZE}"  # noqa: S608 - our names
        part = [_decode_numbers(text) for text in db.execute(f"SELECT {selected} FROM ({intact})", (last,)).fetchone()]  # noqa: S608 - our names
        if not (keys := part[0]):
            return
        require(keys == sorted(keys), "the entries are not in the order of their keys")  # SQLite promises none
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
        self.targets = number_targets(db)
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
        self._texts = {key: decode_id(*id_) for key, *id_ in db.execute(_SELECT_TEXTS)} if with_ids else {}
        self._rejects = array("q", chain.from_iterable(db.execute(_SELECT_REJECTS)))
        self.count = len(self.keys)
        require(self.count == header.entries, f"expected {header.entries} intact entries, found {self.count}")
        require(len(self._rejects) == header.rejects, f"expected {header.rejects} intact rejects, found {len(self._rejects)}")
        self._read = read
        bits = max(1, self.count.bit_length() - _BUCKET_BITS)
        self._shift = 64 - bits
        self._first_bucket = _SIGN >> self._shift
        starts = ((number << self._shift) - _SIGN for number in range(1 << bits))
        self._directory = array("Q", [*(bisect_left(self.keys, start) for start in starts), self.count])

    def _first_place(self, key: int) -> int:
        """Return the place of the first entry whose key is not less than this one."""
        return bisect_left(self.keys, key)

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
        place = self._first_place(contact << CAMPAIGN_BITS)
        return self.id_at(place) if place < self.count and self.keys[place] >> CAMPAIGN_BITS == contact else None

    def digests_of(self, contact: int) -> set[int]:
        """Return the digests of a contact's entries, in all campaigns."""
        first, end = (self._first_place(contact + more << CAMPAIGN_BITS) for more in (0, 1))
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
        if known_target != target:  # two campaigns have the same 16 bits for this contact
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
            return decode_id(*self._read(lambda db: db.execute("SELECT id_1, id_2 FROM entry WHERE key = ?", (key,)).fetchone()))
        id_1, id_2 = (ids[place] for ids in self._ids)
        return self._texts.get(key) if id_1 == _NO_ID else decode_id(id_1, id_2)

    def find_gone(self, seen: bytearray, targets: Iterable[Target]) -> Iterator[int]:
        """Yield the places of the entries of some targets that an input does not have."""
        numbers = {self.targets.get(target) for target in targets}
        place = seen.find(0)
        while place >= 0:
            if self.checks[place] & MAX_TARGET in numbers:
                yield place
            place = seen.find(0, place + 1)

    def changes_of_gone(self, seen: bytearray, gone: Iterable[int]) -> tuple[list[int], list[int]]:
        """Return the keys of entries that are gone since this run, and of those that are no longer gone."""
        checks, keys, back = self.checks, self.keys, list[int]()
        if self.count and min(checks) < 0:
            back = [keys[place] for place, check in enumerate(checks) if check < 0 and seen[place]]
        return [keys[place] for place in gone if checks[place] >= 0], back

    def count_entries(self) -> tuple[int, int, dict[Target, int]]:
        """Return the numbers of uncertain and of gone entries, and the number of entries for each target."""
        sums = Counter(map(MAX_TARGET.__and__, self.checks))
        uncertain = sum(check & _KNOWN >= UNCERTAIN << TARGET_BITS for check in self.checks)
        gone = sum(check < 0 for check in self.checks)
        return uncertain, gone, {target: sums[number] for target, number in self.targets.items()}
