"""Sums by what mailboxes share, in columns: a key takes little more than its name, so that a million mailboxes can be summed."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import attrs

from outreach_async.models import Number


@attrs.frozen
class Total:
    """The sums of the mailboxes that share a key.

    Attributes:
        mailboxes: How many there are.
        sent_30days: What they sent.
        daily_limit: What they may send a day.
        first: The first workspace that shows one, by its place in the audit.
    """

    mailboxes: int = 0
    sent_30days: Number = 0
    daily_limit: Number = 0
    first: int = 0


class Tally:
    """The sums of mailboxes by key."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._mailboxes = array("Q")
        self._sent = array("d")
        self._limits = array("d")
        self._first = array("I")

    def add(self, key: str, sent: Number, limit: Number, workspace: int, mailboxes: int = 1) -> None:
        """Count mailboxes, with what they sent and may send, that the workspace of this place shows."""
        place = self._places.get(key)
        if place is None:
            self._begin(key, sent, limit, workspace, mailboxes)
            return
        self._mailboxes[place] += mailboxes
        self._sent[place] += sent
        self._limits[place] += limit
        self._first[place] = min(self._first[place], workspace)

    def _begin(self, key: str, sent: Number, limit: Number, workspace: int, mailboxes: int) -> None:
        self._places[key] = len(self._mailboxes)
        self._mailboxes.append(mailboxes)
        self._sent.append(sent)
        self._limits.append(limit)
        self._first.append(workspace)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def mailboxes(self, key: str) -> int:
        """Return how many mailboxes a key has that was added."""
        return self._mailboxes[self._places[key]]

    def __getitem__(self, key: str) -> Total:
        """Return the sums of a key; nothing for one that was never added."""
        place = self._places.get(key)
        if place is None:
            return Total()
        return Total(self._mailboxes[place], _whole(self._sent[place]), _whole(self._limits[place]), self._first[place])


def _whole(value: float) -> Number:
    """Return a sum as a whole number where it is one, and else without what adding up in another order would change."""
    return int(value) if value.is_integer() else round(value, 3)
