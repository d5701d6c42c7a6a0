"""Compact storage for the data of an audit: totals of groups, mailboxes as columns, and sets of hashes."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import Final

import attrs

from outreach_async.models import Number

_MAX_SUM: Final = 2**63 - 1  # in thousandths; larger sums are capped


def to_thousandths(figure: Number) -> int:
    """Return a number in thousandths, rounded to an integer. Sums of integers do not depend on the order of addition."""
    return round(figure * 1000)


def _from_thousandths(total: int) -> Number:
    return total / 1000 if total % 1000 else total // 1000


def digest64(value: str, key: bytes) -> int:
    """Return a 64-bit digest of a string. The digest depends on `key`, and is the same in every process."""
    return int.from_bytes(blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest(), "little")


@attrs.frozen
class MailboxTotals:
    mailboxes: int
    sent_30days: Number
    daily_limit: Number = 0
    first: int = 0


class GroupTotals:
    # A million mailboxes may have 250,000 domains. To save memory, the totals are stored in arrays. Each key has an index in
    # these arrays.

    def __init__(self) -> None:
        self._indexes: dict[str, int] = {}
        self._mailboxes, self._sent, self._limits, self._first = array("q"), array("q"), array("q"), array("i")
        self._own, self._listed = array("i"), array("i")
        self._repeated: dict[int, tuple[int, int, int]] = {}

    def add(self, key: str, sent: int, limit: int, workspace: int, mailboxes: int = 1) -> int:
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = len(self._first)
            self._first.append(workspace)
            for column in (self._mailboxes, self._sent, self._limits, self._own, self._listed):
                column.append(0)
        self._mailboxes[index] += mailboxes
        try:
            self._sent[index] += sent
        except OverflowError:  # cheaper than a comparison
            self._sent[index] = _MAX_SUM
        try:
            self._limits[index] += limit
        except OverflowError:
            self._limits[index] = _MAX_SUM
        self._first[index] = min(self._first[index], workspace)
        return index

    def add_all(self, keys: Iterable[str | None], sent: Iterable[int], limits: Iterable[int], workspace: int) -> list[int]:
        """Add the mailboxes of a page, and return the index of each one's key; -1 for a mailbox without a key."""
        # Most mailboxes of a page share their server and their type, so they are added up before they are stored.
        sums: dict[str, tuple[int, int, int]] = {}
        for key, each_sent, limit in zip(keys, sent, limits, strict=True):
            if key is not None:
                all_sent, all_limits, count = sums.get(key, (0, 0, 0))
                sums[key] = all_sent + each_sent, all_limits + limit, count + 1
        for key, (all_sent, all_limits, count) in sums.items():
            self.add(key, all_sent, all_limits, workspace, count)
        return [self.index(key) for key in keys]

    def index(self, key: str | None) -> int:
        return -1 if key is None else self._indexes.get(key, -1)

    def add_own(self, index: int, *, listed: bool) -> None:
        self._own[index] += 1
        self._listed[index] += listed

    def add_repeated(self, index: int, sent: int, limit: int) -> None:
        """Record a duplicate of a mailbox in the totals of a domain. `once` subtracts the recorded duplicates."""
        mailboxes, all_sent, all_limits = self._repeated.get(index, (0, 0, 0))
        self._repeated[index] = mailboxes + 1, min(_MAX_SUM, all_sent + sent), min(_MAX_SUM, all_limits + limit)

    def __len__(self) -> int:
        return len(self._indexes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._indexes)

    def mailbox_count(self, key: str) -> int:
        return self._mailboxes[self._indexes[key]]

    def __getitem__(self, key: str) -> MailboxTotals:
        return self._totals(self._indexes[key], (0, 0, 0))

    def once(self, key: str) -> MailboxTotals:
        """Return the totals of a key, as `self[key]` does, but count each mailbox once, even if several workspaces list it."""
        index = self._indexes[key]
        return self._totals(index, self._repeated.get(index, (0, 0, 0)))

    def _totals(self, index: int, repeated: tuple[int, int, int]) -> MailboxTotals:
        return MailboxTotals(
            self._mailboxes[index] - repeated[0],
            _from_thousandths(self._sent[index] - repeated[1]),
            _from_thousandths(self._limits[index] - repeated[2]),
            self._first[index],
        )

    def own_counts(self) -> Iterator[tuple[str, int, int]]:
        # Only mailboxes of type `SMTP & IMAP` count. Servers without a blacklisted mailbox are left out.
        for key, own, listed in zip(self._indexes, self._own, self._listed, strict=True):
            if listed:
                yield key, own, listed


OWN_SERVER: Final = 1  # of type `SMTP & IMAP`
BLACKLISTED: Final = 2  # on a blacklist
LACKS_SPF, LACKS_DKIM, LACKS_DMARC = 4, 8, 16


class MailboxColumns:
    """The mailboxes of a workspace, stored as columns. A mailbox takes 37 bytes."""

    # The index -1 stands for a missing domain.

    def __init__(self) -> None:
        self.digests, self.domains, self.servers, self.types = array("Q"), array("i"), array("i"), array("i")
        self.sent, self.limits, self.flags = array("q"), array("q"), array("B")
        self._all = (self.digests, self.domains, self.servers, self.types, self.sent, self.limits, self.flags)

    def rows(self) -> Iterator[tuple[int, ...]]:
        return zip(*self._all, strict=True)

    def extend(self, columns: Iterable[Iterable[int]]) -> None:
        for column, values in zip(self._all, columns, strict=True):
            column.extend(values)


_MIN_SLOTS: Final = 1_024
HASH_MASK: Final = 2**64 - 1


class CompactSet:
    """A set that stores only the 64-bit hashes of the added names, in an open-addressing hash table."""

    # The probability that any two of a million hashes are equal is about one in forty million. Python randomizes string hashes in
    # each process, which prevents deliberate collisions. The table is at most three quarters full.

    def __init__(self) -> None:
        self._slots = array("Q", [0]) * _MIN_SLOTS
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_new(self, names: AbstractSet[Hashable], /) -> AbstractSet[Hashable]:
        return {name for name in names if self.add(name)}

    def add(self, name: Hashable) -> bool:
        if not self._insert(hash(name) & HASH_MASK or 1):  # 0 marks an empty slot
            return False
        self._count += 1
        if 4 * self._count > 3 * len(self._slots):
            full, self._slots = self._slots, array("Q", [0]) * (2 * len(self._slots))
            for digest in filter(None, full):
                self._insert(digest)
        return True

    def _insert(self, digest: int) -> bool:
        slots = self._slots
        last = len(slots) - 1  # the size is a power of two, so `&` computes the remainder
        slot = digest & last
        while held := slots[slot]:
            if held == digest:
                return False
            slot = (slot + 1) & last
        slots[slot] = digest
        return True
