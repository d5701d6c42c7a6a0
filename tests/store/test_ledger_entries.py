"""The entries of a ledger: their stored form, and merges against a model."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenarios import SPACE

from outreach_async import ContactOutcome, Outcome, Target
from outreach_async.bulk._rows import PossiblySent
from outreach_async.errors import InvalidRequest, JournalError, OutreachError
from outreach_async.store._ledgers import (
    CAMPAIGN_BITS,
    LedgerEntries,
    LedgerHeader,
    RowChange,
    Run,
    merge,
    translate_ledger_errors,
)
from outreach_async.store._records import CorruptContentError, checksum, encode_batch, to_json
from outreach_async.store._schema import RUN_TABLES, TABLES
from outreach_async.store._sqlite import JournalInUseError
from outreach_async.store._writer import STATEMENTS

IDS = ("contact_0123456789abcdef01234567", "contact_00", "contact_XY", "contact_ABCD", "contact_", "other", "\u20ac", None)
TARGETS = {1: Target(SPACE), 2: Target("space_2"), 3: Target("space_3")}
KEYS = st.integers(0, 40).map(lambda number: number * (2**64 // 41) - 2**63 & -1 << CAMPAIGN_BITS)


class Effect(Enum):
    """What the answers to a row show of its effect at the service."""

    NONE = "not applied"
    APPLIED = "applied by the only attempt"
    RETRIED = "applied, perhaps more than once"
    POSSIBLE = "not answered"
    REJECTED = "rejected"
    REJECTED_LAST = "rejected after an attempt without an answer"


class Row(NamedTuple):
    """A row that a run sent, and what its outcome shows."""

    key: int
    digest: int
    target: int
    effect: Effect
    id_: str | None


ROWS = st.lists(
    st.builds(Row, KEYS, st.integers(0, 3), st.integers(1, 3), st.sampled_from(Effect), st.sampled_from(IDS)), max_size=30
)
_POSSIBLE: dict[Effect, tuple[Outcome, list[Outcome], int]] = {
    Effect.NONE: (Outcome.NOT_APPLIED, [Outcome.NOT_APPLIED], 0),
    Effect.APPLIED: (Outcome.ADDED, [Outcome.ADDED], 1),
    Effect.RETRIED: (Outcome.ADDED, [Outcome.ADDED], 2),
    Effect.POSSIBLE: (Outcome.UNKNOWN, [Outcome.ADDED, Outcome.NOT_APPLIED], 1),
    Effect.REJECTED: (Outcome.REJECTED, [Outcome.REJECTED], 1),
    Effect.REJECTED_LAST: (Outcome.REJECTED, [Outcome.REJECTED, Outcome.ADDED], 2),
}


def outcome_of(index: int, row: Row) -> ContactOutcome:
    status, possible, attempts = _POSSIBLE[row.effect]
    id_ = row.id_ if row.effect not in {Effect.REJECTED, Effect.REJECTED_LAST, Effect.NONE} else None
    return ContactOutcome(
        index=index,
        contact=None,
        status=status,
        id=id_,
        possible=frozenset(possible),
        attempts=attempts,
        error=None,
        target=Target(SPACE),
    )


class Book:
    """A ledger in memory."""

    def __init__(self, path: str = ":memory:") -> None:
        self.db = sqlite3.connect(path, isolation_level=None)
        for table in TABLES:
            self.db.execute(table)
        for number, target in TARGETS.items():
            self.db.execute(STATEMENTS["target"], (number, *target, checksum([number, *target])))
        self.header = LedgerHeader(None, b"k" * 32)

    def __del__(self) -> None:
        self.db.close()  # Python 3.13 warns of a connection that is not closed

    def load(self) -> LedgerEntries:
        return LedgerEntries(self.db, self.header, with_runs=True)

    def merge(
        self,
        rows: Sequence[Row],
        *,
        unanswered: Collection[int] = (),
        at: float = 2e9,
        seen: bytearray | None = None,
        compared: Iterable[Target] = (),
    ) -> int | None:
        """Merge a run with these rows, of which some have no outcome. Return the number of entries that are gone."""
        opened, number = self.load(), self.header.merged + 1
        for table in RUN_TABLES:
            self.db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of the package
        run = [number, at, "stamp", "{}", "{}", "serial"]
        self.db.execute(STATEMENTS["run"], (*run, checksum(run)))
        outcomes = [outcome_of(index, row) for index, row in enumerate(rows) if index not in unanswered]
        if rows:
            self.db.execute(STATEMENTS["window"], (0, len(rows), b"", checksum([0, len(rows), b""])))
            sent = [(index, row.key, row.digest, row.target, 7) for index, row in enumerate(rows)]
            self.db.execute(STATEMENTS["sent"], (to_json(sent),))
            for name, values in encode_batch(outcomes, {Target(SPACE): 0}):
                self.db.execute(STATEMENTS[name], (values,))
        count, changes = None, dict[str, Any]()
        if seen is not None:
            count, changes["gone"], changes["back"] = opened.find_gone(seen, compared)
        metadata = {"marked": len(rows), "totals": {"rows": len(outcomes), "outcomes": {}}, "ledger": self.header.to_metadata()}
        self.db.execute("BEGIN")
        self.header = merge(
            self.db, metadata, Run(number, at, "stamp", {}, {}, "serial"), PossiblySent.of(unanswered), settles_at=0.0, **changes
        )
        self.db.execute("COMMIT")
        return count


@given(st.lists(st.tuples(ROWS, st.sets(KEYS), st.booleans(), st.booleans()), max_size=4))
def test_entries_have_the_last_row_of_each_key(runs: list[tuple[list[Row], set[int], bool, bool]]) -> None:
    known: dict[int, tuple[RowChange, str | None]] = {}
    gone, book, all_rows = set[int](), Book(), list[Row]()
    for drawn, also_seen, is_whole, is_killed in runs:
        unanswered = {index for index, row in enumerate(drawn) if is_killed and row.effect is Effect.POSSIBLE}
        rows = [row._replace(id_=None) if index in unanswered else row for index, row in enumerate(drawn)]
        opened = book.load()
        assert opened.locate(sorted(known)) == [*range(len(known))]
        seen = bytearray(key in also_seen or key in {row.key for row in rows} for key in sorted(known))
        gone = {key for key, was_seen in zip(sorted(known), seen, strict=True) if not was_seen} if is_whole else gone
        book.merge(rows, unanswered=unanswered, seen=seen if is_whole else None, compared=TARGETS.values())
        doubtful = set[int]()
        for row in rows:
            if row.effect not in {Effect.NONE, Effect.REJECTED}:
                uncertain = row.effect in {Effect.POSSIBLE, Effect.REJECTED_LAST} or row.key in doubtful
                id_ = None if row.effect is Effect.REJECTED_LAST else row.id_
                change = RowChange.UNCERTAIN if uncertain else RowChange.UNCHANGED
                known[row.key] = change, id_ or known.get(row.key, (None, None))[1]
                gone.discard(row.key)
                all_rows.append(row)
            if row.effect not in {Effect.NONE, Effect.REJECTED, Effect.APPLIED}:
                doubtful.add(row.key)
    last, opened = {row.key: row for row in all_rows}, book.load()
    places = dict(zip(last, opened.locate(last), strict=True))
    found = {
        key: (opened.judge(place, last[key].digest, last[key].target, None), opened.id_at(place)) for key, place in places.items()
    }
    assert (found, opened.count) == (known, len(known))
    assert opened.count_entries()[1] == len(gone)
    assert opened.locate([1, 2**63 - 1]) == [-1, -1]


@given(st.lists(st.tuples(ROWS, st.booleans(), st.sampled_from([0, 1, 60, 91])), max_size=4))
def test_a_ledger_has_the_rows_that_the_service_rejected_last(runs: list[tuple[list[Row], bool, int]]) -> None:
    known: dict[int, int] = {}
    today, book = 0, Book()
    for rows, is_whole, days in runs:
        today += days
        known = {key: day for key, day in known.items() if today - day <= 90}
        for row in rows:
            if row.effect in {Effect.APPLIED, Effect.RETRIED}:
                known.pop(row.key, None)
        known |= {row.key: today for row in rows if row.effect in {Effect.REJECTED, Effect.REJECTED_LAST}}
        seen = bytearray(book.header.entries) if is_whole else None
        book.merge(rows, seen=seen, compared=TARGETS.values(), at=2e9 + today * 86400)
        opened = book.load()
        assert book.header.rejects == len(known)
        assert all(map(opened.was_rejected, known))
        assert not any(opened.was_rejected(key + 1) for key in known)


def test_rejects_of_a_clock_that_was_ahead_are_forgotten_in_time() -> None:
    book, bad = Book(), Row(7, 1, 1, Effect.REJECTED, None)
    book.merge([bad], at=4e9)
    book.merge([], at=2e9)
    assert book.load().was_rejected(7)
    book.merge([], at=2e9 + 91 * 86400)
    assert not book.load().was_rejected(7)


def test_many_contacts_with_several_rows_are_merged_in_batches() -> None:
    book = Book()
    rows = [Row(number << 32, digest, 1, Effect.APPLIED, None) for digest in (1, 2) for number in range(600)]
    book.merge(rows)
    opened = book.load()
    assert {opened.judge(place, 2, 1, None) for place in range(opened.count)} == {RowChange.UNCHANGED}
    assert opened.count == 600


def test_similar_contacts_are_neighbours_and_others_are_not() -> None:
    book, low = Book(), -(1 << 63)
    keys = [low, low + 5, 0, 5, 1 << 31, (1 << 32) - 1, 1 << 32, (3 << 32) + 1, *((1 << 63) - at for at in (1, 2, 1 << 31)), -1]
    rows = [Row(key, 1, 1, Effect.APPLIED, f"contact_{abs(key):x}") for key in keys]
    book.merge([*rows, Row(5, 2, 1, Effect.NONE, None)])
    opened = book.load()
    for key in [*keys, 2 << 32]:
        found = [opened.keys[place] for place in opened.similar(key)]
        assert found == sorted(other for other in keys if other >> 32 == key >> 32)
        of_contact = [f"contact_{abs(each):x}" for each in sorted(keys) if each >> CAMPAIGN_BITS == key >> CAMPAIGN_BITS]
        assert opened.id_of(key >> CAMPAIGN_BITS) == next(iter(of_contact), None)


@pytest.mark.parametrize("id_", IDS)
def test_the_id_of_an_entry_is_found_loaded_or_not(id_: str | None) -> None:
    book = Book()
    book.merge([Row(7, 1, 1, Effect.APPLIED, id_)])
    assert (
        book.load().id_at(0)
        == LedgerEntries(book.db, book.header, with_runs=False, read=lambda query: query(book.db)).id_at(0)
        == id_
    )


def test_an_entry_takes_60_bytes_and_less(tmp_path: Path) -> None:
    book = Book(str(path := tmp_path / "contacts.ledger"))
    empty, spread = path.stat().st_size, 2**64 // 6000
    for night in range(3):  # the second and the third have rows between those of the first
        rows = [
            Row(at * spread - 2**63 + night, 2**42 - 1, 3, Effect.APPLIED, IDS[0]) for at in range(night, 6000, 1 + 4 * night)
        ]
        book.merge(rows)
    for table in RUN_TABLES:
        book.db.execute(f"DELETE FROM {table}")  # noqa: S608 - names of the package
    (free,) = book.db.execute("PRAGMA freelist_count").fetchone()
    assert path.stat().st_size - free * 4096 - empty < 60 * book.header.entries


def test_an_entry_of_another_campaign_with_the_same_key_is_not_used() -> None:
    book = Book()
    book.merge([Row(7, 5, 1, Effect.APPLIED, None)])
    opened = book.load()
    found = [opened.judge(0, 5, target, None) for target in (1, 2, None)]
    assert found == [RowChange.UNCHANGED, RowChange.NEW, RowChange.NEW]


def test_a_campaign_beyond_the_largest_number_has_no_entry() -> None:
    book = Book()
    book.merge([Row(1 << 40, 5, 2**20 - 1, Effect.APPLIED, None), Row(2 << 40, 5, 2**20, Effect.APPLIED, None)])
    assert [*book.load().locate([1 << 40, 2 << 40])] == [0, -1]


@pytest.mark.parametrize("change", [
    "DELETE FROM entry WHERE key = 8", "UPDATE entry SET id_2 = 5", "UPDATE entry SET digest = digest + 1 WHERE key = 7",
    "UPDATE entry SET key = 9 WHERE key = 7", "UPDATE entry SET gone = 1", "DELETE FROM reject", "UPDATE reject SET key = 1",
    "UPDATE run SET at = 1", "UPDATE target SET workspace = 'space_9'",
])  # fmt: skip
def test_a_changed_row_is_damage(change: str) -> None:
    book = Book()
    book.merge(
        [Row(7, 5, 1, Effect.APPLIED, IDS[0]), Row(8, 5, 1, Effect.APPLIED, None), Row(9 << 40, 1, 1, Effect.REJECTED, None)]
    )
    book.load()
    book.db.execute(change)
    with pytest.raises(CorruptContentError):
        book.load()


def test_a_changed_text_of_an_id_is_damage() -> None:
    book = Book()
    book.merge([Row(7, 5, 1, Effect.APPLIED, "other")])
    book.db.execute("UPDATE entry SET id_1 = '\"another\"'")
    with pytest.raises(CorruptContentError):
        book.load().id_at(0)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (JournalInUseError("journal: p; q is in use; wait"), "ledger: another run is using l; wait until that run ends"),
        (InvalidRequest("journal: p was written by a newer version; use it"), "ledger: p was written by a newer version; use it"),
        (
            JournalError("journal p; q cannot be read: EIO; resume"),
            "ledger l: journal p; q cannot be read: EIO; fix the cause and run again",
        ),
        (InvalidRequest("rows: expected x; pass y"), "rows: expected x; pass y"),
    ],
)
def test_errors_of_a_journal_become_errors_of_its_ledger(error: OutreachError, expected: str) -> None:
    with pytest.raises((InvalidRequest, JournalError)) as caught, translate_ledger_errors("l"):
        raise error
    assert str(caught.value) == expected
