"""Find the rows of an input that are about one contact, before any is sent: which of them count, and what they come to in order.

A ledger has one digest for each contact. A contact with several rows in an input has that of the row which was applied last,
after those before it. So an input that has the same rows again, in the same order, has the same digests, and sends nothing.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

import attrs

from outreach_async._wire_words import Outcome
from outreach_async.bulk._contact_keys import contact_key
from outreach_async.bulk._outcomes import ContactOutcome, unsent_outcome
from outreach_async.bulk._rows import ParsedRow, RecentEmails, Repeats
from outreach_async.models import Target
from outreach_async.store._entries import CAMPAIGN_BITS
from outreach_async.store._schema import DIGEST_BITS

Parse: TypeAlias = Callable[[int, object], ParsedRow | ContactOutcome]  # parses the row with an index

NO_DIGEST: Final = -1  # of a row that cannot be sent: no entry has it
BUCKETS: Final = 256
_HASH_SIZE: Final = 8


@attrs.frozen
class PreparedRows:
    """Rows with what is compared of each: its key, digest and target."""

    first: int
    originals: Sequence[object]
    emails: Sequence[str]
    keys: Sequence[int]
    digests: list[int]
    targets: Sequence[Target]
    parsed: list[ParsedRow | ContactOutcome | None]
    """The rows that had to be parsed; the outcome of a row that cannot be sent."""
    marks: dict[int, int] = attrs.field(factory=dict)
    """The digest with which a row is marked if it is sent, by its position, if that is another one."""


def find_repeated(buckets: Iterable[array[int]]) -> set[int]:
    """Return the numbers that occur more than once, of which each bucket has all that are equal."""
    found = set[int]()
    for bucket in buckets:
        seen = set[int]()
        found.update(value for value in bucket if value in seen or seen.add(value))  # type: ignore[func-returns-value]
    return found


class _Sequence:
    """The rows of one contact that count, in all campaigns: each digest stands for all rows up to one of them."""

    __slots__ = ("_last", "digest", "done", "done_digest", "length")

    def __init__(self) -> None:
        self.done = 0
        """Number of rows that the contact has, according to its entries."""
        self.done_digest = NO_DIGEST
        self.restart()

    def restart(self) -> None:
        self.length, self.digest, self._last = 0, NO_DIGEST, NO_DIGEST

    def extend(self, digest: int) -> None:
        if not self.length:
            self.digest = digest
        elif digest != self._last:  # the same values twice change nothing
            content = self.digest.to_bytes(_HASH_SIZE) + digest.to_bytes(_HASH_SIZE)
            self.digest = int.from_bytes(blake2b(content, digest_size=_HASH_SIZE).digest()) >> 8 * _HASH_SIZE - DIGEST_BITS
        self._last = digest
        self.length += 1


@attrs.define
class _Repeats:
    """The rows with one e-mail and target."""

    rows: int = 0
    chosen: int = 0
    """Index of the row that counts, if only one does; and its number among the rows of the group."""
    chosen_row: int = 0
    passed: int = 0


class RepeatPlan:
    """The rows whose e-mail occurs more than once in an input, as a first reading of the input finds them."""

    def __init__(self, policy: Repeats) -> None:
        self._chooses = policy in {"first", "last"}
        self._policy = policy
        self._recent = RecentEmails() if policy == "error" else None
        self._groups = defaultdict[tuple[str, Target], _Repeats](_Repeats)
        self._sequences = defaultdict[int, _Sequence](_Sequence)
        self._sendable: list[tuple[int, _Repeats, int, int]] = []

    @property
    def repeated(self) -> int:
        """The number of rows that have the e-mail and the target of another row."""
        return sum(group.rows for group in self._groups.values() if group.rows > 1)

    def add(self, indexes: Sequence[int], rows: PreparedRows, parse: Parse) -> None:
        """Add rows, in their order. Each has its index in the input."""
        for position, index in enumerate(indexes):
            if not _takes_part(_parsed(rows, position, parse)):
                continue
            group, digest = self._group(rows, position), rows.digests[position]
            if self._policy == "last" or not group.rows:
                group.chosen, group.chosen_row = index, group.rows
            group.rows += 1
            earlier = self._recent and self._recent.find_earlier(index, rows.emails[position], rows.targets[position])
            if digest != NO_DIGEST and earlier is None:
                self._sendable.append((index, group, rows.keys[position] >> CAMPAIGN_BITS, digest))

    def finish(self, find_known: Callable[[int], Collection[int]]) -> None:
        """Compare the rows of each contact with the digests of its entries, which `find_known` returns."""
        known = dict[int, Collection[int]]()
        for index, group, contact, digest in self._sendable:
            if contact not in known:
                known[contact] = find_known(contact)
            sequence = self._sequences[contact]
            if not self._chooses or index == group.chosen:
                sequence.extend(digest)
                if sequence.digest in known[contact]:
                    sequence.done, sequence.done_digest = sequence.length, sequence.digest
        self._sendable.clear()
        for sequence in self._sequences.values():
            sequence.restart()

    def apply(self, rows: PreparedRows, parse: Parse) -> None:
        """Set what the next rows of the second reading are compared with, and the outcomes of those that do not count."""
        for position, key in enumerate(rows.keys) if self._sequences else ():
            if (sequence := self._sequences.get(key >> CAMPAIGN_BITS)) is None:
                continue
            row = _parsed(rows, position, parse)
            if not _takes_part(row):
                continue
            group = self._group(rows, position)
            group.passed += 1
            # By its number, because a table may return equal rows in another order when it is read again.
            counts = not self._chooses or group.passed == group.chosen_row + 1
            if isinstance(row, ContactOutcome):  # an excluded row is not sent, whether it counts or not
                continue
            if not counts:
                index, original, target = rows.first + position, rows.originals[position], rows.targets[position]
                rows.digests[position] = NO_DIGEST
                rows.parsed[position] = unsent_outcome(index, original, Outcome.NOT_APPLIED, None, group.chosen, target)
                continue
            sequence.extend(rows.digests[position])
            rows.marks[position] = sequence.digest
            rows.digests[position] = sequence.done_digest if sequence.length <= sequence.done else sequence.digest

    def _group(self, rows: PreparedRows, position: int) -> _Repeats:
        return self._groups[contact_key(rows.emails[position]), rows.targets[position]]


def _parsed(rows: PreparedRows, position: int, parse: Parse) -> ParsedRow | ContactOutcome:
    """Parse a row. Only this shows whether it can be sent: one with a date has the encoding of one with a string."""
    if (row := rows.parsed[position]) is None:
        row = rows.parsed[position] = parse(rows.first + position, rows.originals[position])
        if isinstance(row, ContactOutcome):
            rows.digests[position] = NO_DIGEST
    return row


def _takes_part(row: ParsedRow | ContactOutcome) -> bool:
    """Return whether a row says something about its contact: it can be sent, or it says that it must not be sent."""
    return not isinstance(row, ContactOutcome) or row.status is Outcome.EXCLUDED
