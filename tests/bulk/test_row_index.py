"""Rows with equal keys are found, in memory and in a file."""

from __future__ import annotations

import tempfile
import tracemalloc
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async.bulk._row_index import RowIndex
from outreach_async.errors import InvalidRequest


class NearlyFull(BytesIO):
    """Takes only the first bytes of each write, as a disk does that is nearly full."""

    def write(self, content: Any, /) -> int:
        return super().write(content[:5])


@given(
    keys=st.lists(st.integers(0, 9) | st.integers(-(2**63), 2**63 - 1), max_size=60),
    block_size=st.sampled_from([None, 2, 4, 2_048]),
)
def test_each_repeat_is_found_with_the_first_row_of_its_key(keys: list[int], block_size: int | None) -> None:
    index = RowIndex() if block_size is None else RowIndex(NearlyFull(), block_size)
    for number, key in enumerate(keys):
        index.add([(key, 10 * number)])
    expected = [(10 * number, 10 * keys.index(key)) for number, key in enumerate(keys) if keys.index(key) != number]
    assert [*index.ordered_repeats()] == sorted(index.repeats()) == expected
    assert index.count() == len(expected)


@pytest.mark.nightly
def test_the_memory_of_an_index_with_a_file_does_not_grow_with_the_rows() -> None:
    def peak(rows: int) -> int:
        tracemalloc.start()
        try:
            with tempfile.TemporaryFile(buffering=0) as file:
                index = RowIndex(file, block_size=64)
                index.add((hash((row // 2, "key")), row) for row in range(rows))
                assert sum(1 for _ in index.repeats()) == rows // 2
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(200_000) - peak(50_000) <= 2 * 150_000  # of the bucket that is compared


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
def test_a_full_disk_is_an_error_that_names_the_folder() -> None:
    with Path("/dev/full").open("r+b", buffering=0) as full:
        index = RowIndex(full, block_size=4)
        with pytest.raises(InvalidRequest, match=r"^files: cannot store the keys of rows in .*: No space left .*; free space"):
            index.add([(1, 1), (1, 2)])
