"""The entries of a ledger: their stored form, and folds against a model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenarios import SPACE

from outreach_async import Target
from outreach_async.errors import InvalidRequest, JournalError, OutreachError
from outreach_async.store.journal._reader import JournalExistsError
from outreach_async.store.ledger import _entries as entries
from outreach_async.store.ledger._applying import translate_errors
from outreach_async.store.ledger._entries import (
    ALL_TIMES,
    CAMPAIGN_BITS,
    AppliedRun,
    Effect,
    Generation,
    RowChange,
    SentRow,
    _divide,
)

IDS = ("contact_0123456789abcdef01234567", "contact_ab", "contact_XY", "contact_ABCD", "contact_", "other", "\u20ac", None)
TARGETS = {1: Target(SPACE), 2: Target("space_2"), 3: Target("space_3")}
KEYS = st.integers(0, 40).map(lambda number: number * (2**64 // 41) & -1 << CAMPAIGN_BITS)
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 3), st.integers(1, 3), st.sampled_from(Effect), st.sampled_from(IDS)), max_size=30)


def applied(path: Path, rows: Sequence[SentRow], size: int = 0, at: float = 2e9, **options: Any) -> Path:
    """Fold rows into the next generation, whose file has the name of the path with one more letter."""
    new = path.with_name(path.name + "x")
    with closing(Generation(path)) as opened:
        entries.apply(opened, new, AppliedRun(at, {}, TARGETS, size or len(rows), **options), rows)
    return new


@given(st.lists(st.tuples(ROWS, st.sets(KEYS), st.booleans()), max_size=4), st.sampled_from([0, 10**5]))
def test_a_generation_has_the_last_row_of_each_key(runs: list[tuple[list[SentRow], set[int], bool]], size: int) -> None:
    known: dict[int, tuple[RowChange, str | None]] = {}
    gone = set[int]()
    with TemporaryDirectory() as folder:
        entries.create(path := Path(folder) / "0", "https://api.example", b"k" * 32)
        for rows, also_seen, is_whole in runs:
            with closing(Generation(path)) as opened:
                seen = bytearray(key in also_seen or key in {row[0] for row in rows} for key in sorted(known))
                assert opened.locate(sorted(known)) == [*range(len(known))]
            gone = {key for key, was_seen in zip(sorted(known), seen, strict=True) if not was_seen} if is_whole else gone
            path = applied(path, rows, size, seen=seen if is_whole else None, compared=TARGETS)
            doubtful = set[int]()
            for key, _, _, effect, id_ in rows:
                if effect not in {Effect.NONE, Effect.REJECTED}:
                    uncertain = effect in {Effect.POSSIBLE, Effect.REJECTED_LAST} or key in doubtful
                    change = RowChange.UNCERTAIN if uncertain else RowChange.UNCHANGED
                    known[key] = change, id_ or known.get(key, (None, None))[1]
                    gone.discard(key)
                if effect not in {Effect.NONE, Effect.REJECTED, Effect.APPLIED}:
                    doubtful.add(key)
        last = {row[0]: row for rows, *_ in runs for row in rows if row[3] not in {Effect.NONE, Effect.REJECTED}}
        with closing(Generation(path)) as opened:
            places = dict(zip(last, opened.locate(last), strict=True))
            found = {key: (opened.judge(place, *last[key][1:3], ALL_TIMES), opened.id_at(place)) for key, place in places.items()}
            assert (found, opened.count) == (known, len(known))
            assert opened.count_entries()[1] == len(gone)
            assert opened.locate([1, 2**64 - 1]) == [-1, -1]


@given(st.lists(st.tuples(ROWS, st.booleans(), st.sampled_from([0, 1, 60, 91])), max_size=4), st.sampled_from([0, 10**5]))
def test_a_generation_has_the_rows_that_the_service_rejected_last(runs: list[tuple[list[SentRow], bool, int]], size: int) -> None:
    known: dict[int, int] = {}
    today = 0
    with TemporaryDirectory() as folder:
        entries.create(path := Path(folder) / "0", "https://api.example", b"k" * 32)
        for rows, is_whole, days in runs:
            today += days
            known = {key: day for key, day in known.items() if today - day <= 90}
            for key, *_, effect, _ in rows:
                if effect in {Effect.APPLIED, Effect.RETRIED}:
                    known.pop(key, None)
            known |= {key: today for key, *_, effect, _ in rows if effect in {Effect.REJECTED, Effect.REJECTED_LAST}}
            with closing(Generation(path)) as opened:
                seen = bytearray(opened.count) if is_whole else None
            path = applied(path, rows, size, seen=seen, compared=TARGETS, at=2e9 + today * 86400)
            with closing(Generation(path)) as opened:
                assert [key for key, _ in opened.rejects(0, 2**64)] == sorted(known)
                assert all(map(opened.was_rejected, known))
                assert not any(opened.was_rejected(key + 1) for key in known)


def test_similar_contacts_are_neighbours_and_others_are_not(tmp_path: Path) -> None:
    entries.create(path := tmp_path / "0", None, b"k" * 32)
    keys = [0, 5, 1 << 31, (1 << 32) - 1, 1 << 32, (3 << 32) + 1, *((1 << 64) - number for number in (1, 2, 1 << 31))]
    rows: list[SentRow] = [(key, 1, 1, Effect.APPLIED, f"contact_{key}") for key in keys]
    with closing(Generation(applied(path, [*rows, (5, 2, 1, Effect.NONE, None)]))) as opened:
        for key in [*keys, 2 << 32]:
            found = [opened.keys[place] for place in opened.similar(key)]
            assert found == sorted(other for other in keys if other >> 32 == key >> 32)
            assert opened.id_of(key >> CAMPAIGN_BITS) == next(
                (f"contact_{each}" for each in sorted(keys) if each >> CAMPAIGN_BITS == key >> CAMPAIGN_BITS), None
            )


def test_rows_that_wait_on_the_disk_keep_their_order() -> None:
    rows: list[SentRow] = [(key << 60, number, 1, 1, IDS[number % 8]) for number in range(9) for key in (3, 0, 15)]
    with TemporaryFile() as file:
        parts = [part for part in _divide(rows, 14, file) if part]
    assert parts == [[row for row in rows if row[0] == key << 60] for key in (0, 3, 15)]


def test_an_entry_takes_32_bytes_and_an_id_that_does_not_fit_is_kept_once(tmp_path: Path) -> None:
    entries.create(path := tmp_path / "0", None, b"k" * 32)
    empty, rows = path.stat().st_size, [(number << 40, 1, 1, Effect.APPLIED, IDS[0]) for number in range(3000)]
    assert applied(path, rows).stat().st_size - empty < 3000 * 32 + 100
    rows = [(*row[:4], "contact_0123456789abcdef0123456789abcdef") for row in rows]
    path = applied(path, rows)
    assert applied(path, rows).stat().st_size < path.stat().st_size + 100


def test_an_entry_of_another_campaign_with_the_same_key_is_not_used(tmp_path: Path) -> None:
    entries.create(path := tmp_path / "0", None, b"k" * 32)
    with closing(Generation(applied(path, [(7, 5, 1, Effect.APPLIED, None)]))) as opened:
        found = [opened.judge(0, 5, target, ALL_TIMES) for target in (1, 2, None)]
    assert found == [RowChange.UNCHANGED, RowChange.NEW, RowChange.NEW]


def test_a_campaign_beyond_the_largest_number_has_no_entry(tmp_path: Path) -> None:
    entries.create(path := tmp_path / "0", None, b"k" * 32)
    rows = [(1 << 40, 5, 2**20 - 1, Effect.APPLIED, None), (2 << 40, 5, 2**20, Effect.APPLIED, None)]
    with closing(Generation(applied(path, rows))) as opened:
        assert [*opened.locate([1 << 40, 2 << 40])] == [0, -1]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (JournalExistsError("journal: p; q exists; resume its run"), "ledger: another run is using l; wait until that run ends"),
        (InvalidRequest("journal: p was written by a newer version; use it"), "ledger: p was written by a newer version; use it"),
        (
            JournalError("journal p; q cannot be read: EIO; resume"),
            "ledger l: journal p; q cannot be read: EIO; fix the cause and run again",
        ),
        (InvalidRequest("rows: expected x; pass y"), "rows: expected x; pass y"),
    ],
)
def test_errors_of_a_journal_become_errors_of_its_ledger(error: OutreachError, expected: str) -> None:
    with pytest.raises((InvalidRequest, JournalError)) as caught, translate_errors("l"):
        raise error
    assert str(caught.value) == expected
