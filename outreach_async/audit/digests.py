"""A compact set: it remembers a million names in 16 MB."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from collections.abc import Set as AbstractSet
from typing import Final

_LEAST: Final = 1_024
_BITS: Final = 2**64 - 1


class Digests:
    """A set of seen names, stored as 64-bit hashes in an open-addressing table that is at most three quarters full.

    The chance that any two of a million names collide is about one in forty million. Python randomizes string hashes in each
    process, which prevents deliberate collisions.
    """

    def __init__(self) -> None:
        self._slots = _empty(_LEAST)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_new(self, names: AbstractSet[Hashable], /) -> AbstractSet[Hashable]:
        """Add names; return those that were new."""
        return {name for name in names if self.add(name)}

    def add(self, name: Hashable) -> bool:
        """Add a name; return whether it was new."""
        if not _place(self._slots, hash(name) & _BITS or 1):  # 0 marks an empty slot
            return False
        self._count += 1
        if 4 * self._count > 3 * len(self._slots):
            self._grow()
        return True

    def _grow(self) -> None:
        held, self._slots = self._slots, _empty(2 * len(self._slots))
        for digest in filter(None, held):
            _place(self._slots, digest)


def _empty(slots: int) -> array[int]:
    return array("Q", bytes(8 * slots))


def _place(slots: array[int], digest: int) -> bool:
    """Put a digest into its slot or the next free one; return whether it was new."""
    last = len(slots) - 1  # the size is a power of two: `&` takes the remainder
    at = digest & last
    while held := slots[at]:
        if held == digest:
            return False
        at = (at + 1) & last
    slots[at] = digest
    return True
