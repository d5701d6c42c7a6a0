"""Find the rows of an input that have equal keys, whatever their number."""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterable, Iterator
from heapq import merge
from io import BytesIO
from itertools import chain
from tempfile import gettempdir
from typing import BinaryIO, Final

from outreach_async.errors import InvalidRequest

_BUCKET_COUNT: Final = 256


class RowIndex:
    """Finds rows whose keys have the same hash. Each row takes 16 bytes: in memory or, beyond full blocks, in a file."""

    # In a million rows, the probability that two keys have the same hash of eight bytes is one in thirty million. Rows with the
    # same hash are in the same bucket, so one bucket at a time is compared.

    def __init__(self, file: BinaryIO | None = None, block_size: int = 2_048) -> None:
        self._file = BytesIO() if file is None else file
        self._block_size = sys.maxsize if file is None else block_size
        self._buckets = [array("q") for _ in range(_BUCKET_COUNT)]  # hashes, each followed by the number of its row
        self._stored: list[list[int]] = [[] for _ in range(_BUCKET_COUNT)]  # where the full blocks of each bucket are in the file

    def add(self, rows: Iterable[tuple[int, int]]) -> None:
        """Add rows, in the order of their numbers: the hash of the key, and the number of each."""
        buckets, block_size = self._buckets, self._block_size
        for key, number in rows:
            bucket = buckets[at := key % _BUCKET_COUNT]
            bucket.append(key)
            bucket.append(number)
            if len(bucket) == block_size:
                self._store(at)

    def _store(self, at: int) -> None:
        bucket = self._buckets[at]
        try:
            self._stored[at].append(self._file.seek(0, os.SEEK_END))
            rest = bucket.tobytes()
            while rest:  # a disk that is nearly full takes only the first bytes, without an error
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            where = f"cannot store the keys of rows in {gettempdir()}: {error.strerror}"
            raise InvalidRequest(f"files: {where}; free space there, or set TMPDIR to another folder") from None
        del bucket[:]

    def count(self) -> int:
        """Return the number of rows whose key an earlier row has."""
        keys = ([key for block in self._blocks(at) for key in block[::2]] for at in range(_BUCKET_COUNT))
        return sum(len(each) - len({*each}) for each in keys)

    def repeats(self) -> Iterator[tuple[int, int]]:
        """Yield the number of each row whose key an earlier row has, and the number of the first row with this key."""
        return chain.from_iterable(map(self._repeats_in, range(_BUCKET_COUNT)))

    def ordered_repeats(self) -> Iterator[tuple[int, int]]:
        """Yield the same, ordered by the number of the row. Each takes 16 bytes."""
        found = [array("q", chain.from_iterable(self._repeats_in(at))) for at in range(_BUCKET_COUNT)]
        return merge(*(zip(each[::2], each[1::2], strict=True) for each in found))

    def _repeats_in(self, at: int) -> Iterator[tuple[int, int]]:
        first: dict[int, int] = {}
        for block in self._blocks(at):
            for key, number in zip(block[::2], block[1::2], strict=True):
                if (earlier := first.setdefault(key, number)) != number:
                    yield number, earlier

    def _blocks(self, at: int) -> Iterator[array[int]]:
        for place in self._stored[at]:
            self._file.seek(place)
            block = array("q")
            block.fromfile(self._file, self._block_size)
            yield block
        yield self._buckets[at]
