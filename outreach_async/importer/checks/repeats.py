"""E-mails that a file has more than once: found in one pass, with 16 bytes a row."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from heapq import nsmallest
from typing import Final

_BUCKETS: Final = 256


class Seen:
    """Remembers the e-mails of a file by eight bytes each.

    Two different e-mails look like one in a file of a million with a chance of one in thirty million; what is found is told, and
    decides nothing.
    """

    def __init__(self) -> None:
        self._keys = [array("q") for _ in range(_BUCKETS)]
        self._lines = [array("Q") for _ in range(_BUCKETS)]

    def add(self, line: int, email: str) -> None:
        """Remember the e-mail of a line."""
        key = hash(email)
        self._keys[key % _BUCKETS].append(key)
        self._lines[key % _BUCKETS].append(line)

    def count(self) -> int:
        """Return how many lines repeat an earlier one."""
        return sum(len(keys) - len(set(keys)) for keys in self._keys)

    def first(self, few: int) -> list[tuple[int, int]]:
        """Return the first lines that repeat an earlier one, each with the first of those."""
        return nsmallest(few, self._pairs())

    def _pairs(self) -> Iterator[tuple[int, int]]:
        for keys, lines in zip(self._keys, self._lines, strict=True):
            earlier: dict[int, int] = {}
            for key, line in zip(keys, lines, strict=True):
                first = earlier.setdefault(key, line)
                if first != line:
                    yield line, first
