"""The entries of a ledger: their stored form, folds, and the keys of an input."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.scenarios import SPACE

from outreach_async import Target
from outreach_async.bulk._rows import PossiblySent
from outreach_async.bulk.ledger import _entries as entries
from outreach_async.bulk.ledger._entries import Effect, FoldedRun, SeenKeys
from outreach_async.bulk.ledger._folding import _sent_rows, encode_row
from outreach_async.errors import JournalError


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50), st.integers(1, 5))
@example([*range(50)], 1)
@example([*range(50)], 5)
def test_seen_keys_returns_every_key_in_its_range(drawn: list[int], size: int) -> None:
    keys = [(key + (step << 57)) % 2**64 - 2**63 for key in drawn for step in range(16)]
    with closing(SeenKeys(size)) as seen:
        for start in range(0, len(keys), 7):
            seen.add(keys[start : start + 7])
        found = [*seen.ranges()]
    assert {key for first, last, members in found for key in members if first <= key <= last} == {*keys}
    assert [first for first, _, _ in sorted(found)] == [number << 56 for number in range(-128, 128)]


@pytest.mark.parametrize("id_", ["contact_0123456789abcdef01234567", "contact_XY", "contact_ABCD", "other", None])
def test_an_entry_keeps_its_id_and_state(id_: str | None, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    entries.create(old, "https://api.example", b"k" * 32)
    run = FoldedRun(2e9, {}, {1: Target(SPACE)}, None)
    entries.fold(old, new, run, [(7, 3, 1, Effect.APPLIED, id_), (8, 4, 1, Effect.NONE, None)])
    with closing(entries.Generation.open(new)) as opened:
        found = opened.find([7, 8])
        assert [*found] == [7]
        assert entries.decode_id(found[7][-1]) == id_
        assert opened.read_report()[0] == (1, 0, 0)


def test_a_row_whose_target_is_missing_is_damage() -> None:
    pages: Any = iter([[(0, encode_row(1, 2, 7), {})], []])
    with pytest.raises(JournalError, match="a target is missing"):
        list(_sent_rows(lambda _query: next(pages), PossiblySent(), {0: 1}))


def test_a_sparse_file_is_rebuilt(tmp_path: Path) -> None:
    entries.create(path := tmp_path / "0", None, b"k" * 32)
    for generation in range(1, 4):
        rows = [
            ((number * 2654435761 + generation) << 20, 1, 1, Effect.APPLIED, f"contact_{number:024x}") for number in range(3000)
        ]
        entries.fold(path, tmp_path / str(generation), FoldedRun(2e9, {}, {1: Target(SPACE)}, None), rows)
        path = tmp_path / str(generation)
    assert path.stat().st_size / 9000 < 48


def test_an_entry_of_another_campaign_with_the_same_key_is_not_used() -> None:
    entry = 7, 5, 1 << 25 | 1, entries._checksum(7, 5, 1 << 25 | 1, None), None
    assert [entries.judge(5, target, entry, 0) for target in (1, 2, None)] == [
        entries.Standing.UNCHANGED,
        entries.Standing.NEW,
        entries.Standing.NEW,
    ]
