"""Compact storage for the data of an audit.

`GroupTotals` stores totals of mailboxes by workspace, domain, type or server. `MailboxColumns` stores the mailboxes of a
workspace. `CompactSet` stores hashes of names.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from itertools import compress
from typing import Final

import attrs

from outreach_async.models import Number

MAX_KEPT: Final = 1_000_000
"""Maximum number of domains whose totals an audit stores. The same maximum applies to types, and to servers.

The totals of a million domains take about 250 MB.
"""

_HASH_BITS: Final = 64
_MAX_SUM: Final = 2**63 - 1
"""Largest sum that can be stored, in thousandths. Larger sums are capped at this value."""


def to_thousandths(figure: Number) -> int:
    """Return a number in thousandths, rounded to an integer. Sums of integers do not depend on the order of addition."""
    return round(figure * 1000)


def _from_thousandths(total: int) -> Number:
    return total / 1000 if total % 1000 else total // 1000


def digest64(value: str, key: bytes = b"") -> int:
    """Return a 64-bit digest of a string. The digest depends on `key`, and is the same in every process."""
    return int.from_bytes(blake2b(value.encode("utf-8", "surrogatepass"), digest_size=8, key=key).digest(), "little")


@attrs.frozen
class MailboxTotals:
    """The totals of mailboxes that share a property, such as their domain."""

    mailboxes: int = 0
    sent_30days: Number = 0
    daily_limit: Number = 0
    first: int = 0


class GroupTotals:
    """Totals of mailboxes by key. The keys are workspaces, domains, types or servers."""

    # A million mailboxes may have 250,000 domains. To save memory, the totals are stored in arrays. Each key has an index in
    # these arrays. The indexes change when `trim` drops keys.
    # If there are too many keys, `trim` keeps the keys with the smallest digests. Therefore, the kept keys do not depend on the
    # order in which keys are added. A dropped key is never added again, so the totals of the kept keys are complete.

    def __init__(self, most: int = MAX_KEPT) -> None:
        self._most = most
        self._indexes: dict[str, int] = {}
        self._mailboxes, self._sent, self._limits, self._first = array("q"), array("q"), array("q"), array("i")
        self._own, self._listed = array("i"), array("i")
        self._repeated: dict[int, tuple[int, int, int]] = {}
        self.threshold: int | None = None
        """Largest digest of a kept key; `None` while all keys are kept."""

    def add(self, key: str, sent: int, limit: int, workspace: int, mailboxes: int = 1) -> int:
        """Add mailboxes to the totals of a key. Return the index of the key, or -1 if no totals are stored for the key."""
        index = self._indexes.get(key)
        if index is None:
            if self.threshold is not None and digest64(key) > self.threshold:
                return -1
            index = self._indexes[key] = len(self._first)
            for column, value in zip(self._columns, (0, 0, 0, workspace, 0, 0), strict=True):
                column.append(value)
        self._mailboxes[index] += mailboxes
        self._sent[index] = min(_MAX_SUM, self._sent[index] + sent)
        self._limits[index] = min(_MAX_SUM, self._limits[index] + limit)
        self._first[index] = min(self._first[index], workspace)
        return index

    @property
    def _columns(self) -> tuple[array[int], ...]:
        return self._mailboxes, self._sent, self._limits, self._first, self._own, self._listed

    def add_own(self, index: int, *, listed: bool) -> None:
        """Count a mailbox of type `SMTP & IMAP` on a server; `listed` is true if the mailbox is on a blacklist."""
        self._own[index] += 1
        self._listed[index] += listed

    def add_repeated(self, index: int, sent: int, limit: int) -> None:
        """Record a duplicate of a mailbox in the totals of a domain. `once` subtracts the recorded duplicates."""
        mailboxes, all_sent, all_limits = self._repeated.get(index, (0, 0, 0))
        self._repeated[index] = mailboxes + 1, min(_MAX_SUM, all_sent + sent), min(_MAX_SUM, all_limits + limit)

    def trim(self, slack: int = 0) -> array[int] | None:
        """Drop the keys with the largest digests if there are too many keys."""
        if len(self) <= self._most + slack:
            return None
        digests = array("Q", map(digest64, self._indexes))
        self.threshold = sorted(digests)[self._most - 1]
        kept = bytearray(digest <= self.threshold for digest in digests)
        self._mailboxes, self._sent, self._limits, self._first, self._own, self._listed = (
            array(column.typecode, compress(column, kept)) for column in self._columns
        )
        self._indexes = {key: index for index, key in enumerate(compress(self._indexes, kept))}
        numbers = iter(range(len(self._indexes)))
        return array("i", (next(numbers) if is_kept else -1 for is_kept in kept))

    def limit(self, threshold: int) -> None:
        """Reject new keys with a digest above `threshold`. `merge` calls this method for each `AuditPart` that dropped keys."""
        self.threshold = min(threshold, threshold if self.threshold is None else self.threshold)

    @property
    def slack(self) -> int:
        """Number of keys over the maximum at which keys are dropped. Dropping a few keys at a time would be slow."""
        return self._most // 4

    @property
    def distinct(self) -> int:
        """Number of different keys that were added; if keys were dropped, an estimate (0.1 % error for a million kept keys)."""
        return len(self) if self.threshold is None else round((len(self) - 1) * 2**_HASH_BITS / max(1, self.threshold))

    def __len__(self) -> int:
        return len(self._indexes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._indexes)

    def mailbox_count(self, key: str) -> int:
        """Return the number of mailboxes counted under a key. The key must be stored."""
        return self._mailboxes[self._indexes[key]]

    def __getitem__(self, key: str) -> MailboxTotals:
        index = self._indexes.get(key)
        return MailboxTotals() if index is None else self._totals(index, (0, 0, 0))

    def once(self, key: str) -> MailboxTotals:
        """Return the totals of a key, as `self[key]` does, but count each mailbox once, even if several workspaces list it."""
        index = self._indexes.get(key)
        return MailboxTotals() if index is None else self._totals(index, self._repeated.get(index, (0, 0, 0)))

    def _totals(self, index: int, repeated: tuple[int, int, int]) -> MailboxTotals:
        return MailboxTotals(
            self._mailboxes[index] - repeated[0],
            _from_thousandths(self._sent[index] - repeated[1]),
            _from_thousandths(self._limits[index] - repeated[2]),
            self._first[index],
        )

    def own_counts(self) -> Iterator[tuple[str, int, int]]:
        """Yield the address, the number of mailboxes and the number of blacklisted mailboxes of each server."""
        # Only mailboxes of type `SMTP & IMAP` count. Servers without a blacklisted mailbox are left out.
        for key, own, listed in zip(self._indexes, self._own, self._listed, strict=True):
            if listed:
                yield key, own, listed


COLUMN_TYPES: Final = {
    "digests": "Q", "domains": "i", "servers": "i", "types": "i", "sent": "q", "limits": "q", "flags": "B",
}  # fmt: skip
"""The columns of `MailboxColumns`, each with the type code of its array."""

OWN_SERVER: Final = 1
"""Flag for a mailbox of type `SMTP & IMAP`."""
BLACKLISTED: Final = 2
"""Flag for a mailbox on a blacklist."""


class MailboxColumns:
    """The mailboxes of a workspace, stored as columns. A mailbox takes 37 bytes."""

    # An index of -1 stands for a missing domain, server or type, or for one whose totals are not stored.

    def __init__(self) -> None:
        self.digests, self.sent, self.limits, self.flags = array("Q"), array("q"), array("q"), array("B")
        self.domains, self.servers, self.types = array("i"), array("i"), array("i")

    @property
    def arrays(self) -> dict[str, array[int]]:
        """The columns, by name."""
        return {name: getattr(self, name) for name in COLUMN_TYPES}

    def rows(self) -> Iterator[tuple[int, ...]]:
        """For each mailbox, yield a tuple of its values, in the order of the attributes."""
        return zip(*self.arrays.values(), strict=True)

    def append(self, *values: int) -> None:
        """Add a mailbox, with the values in the order of the attributes."""
        digest, domain, server, kind, sent, limit, flags = values
        self.digests.append(digest)
        self.domains.append(domain)
        self.servers.append(server)
        self.types.append(kind)
        self.sent.append(sent)
        self.limits.append(limit)
        self.flags.append(flags)

    def replace_indexes(self, name: str, indexes: array[int]) -> None:
        """Replace the indexes in a column with the new indexes that `GroupTotals.trim` returned."""
        setattr(self, name, array("i", (index if index < 0 else indexes[index] for index in getattr(self, name))))

    def drop_unused(self) -> None:
        """Drop the mailboxes that no rule about domains or servers needs; see `is_used`."""
        used = bytearray(map(is_used, self.domains, self.servers, self.flags))
        if not all(used):
            for name, column in self.arrays.items():
                setattr(self, name, array(column.typecode, compress(column, used)))


def is_used(domain: int, server: int, flags: int) -> bool:
    """Return whether a rule about domains or servers needs a mailbox."""
    # Rules about domains need the mailboxes whose domain is stored. Rules about servers need the mailboxes of type `SMTP & IMAP`
    # whose server is stored.
    return domain >= 0 or (server >= 0 and flags & OWN_SERVER > 0)


_MIN_SLOTS: Final = 1_024
_HASH_MASK: Final = 2**_HASH_BITS - 1


class CompactSet:
    """A set that stores only the 64-bit hashes of the added names, in an open-addressing hash table."""

    # The probability that any two of a million hashes are equal is about one in forty million. Python randomizes string hashes in
    # each process, which prevents deliberate collisions. The table is at most three quarters full.

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * _MIN_SLOTS))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add_new(self, names: AbstractSet[Hashable], /) -> AbstractSet[Hashable]:
        """Add names, and return those that are new."""
        return {name for name in names if self.add(name)}

    def add(self, name: Hashable) -> bool:
        if not self._insert(hash(name) & _HASH_MASK or 1):  # 0 marks an empty slot
            return False
        self._count += 1
        if 4 * self._count > 3 * len(self._slots):
            full, self._slots = self._slots, array("Q", bytes(2 * 8 * len(self._slots)))
            for digest in filter(None, full):
                self._insert(digest)
        return True

    def _insert(self, digest: int) -> bool:
        """Store a digest in its slot or in the next free slot, and return whether the digest is new."""
        slots = self._slots
        last = len(slots) - 1  # the size is a power of two, so `&` computes the remainder
        slot = digest & last
        while held := slots[slot]:
            if held == digest:
                return False
            slot = (slot + 1) & last
        slots[slot] = digest
        return True
