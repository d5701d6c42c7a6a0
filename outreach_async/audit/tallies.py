"""Sums of mailboxes by key, stored in columns: a key takes little more memory than its name, even for a million mailboxes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import attrs

from outreach_async.models import Number


@attrs.frozen
class Total:
    """The sums of the mailboxes with the same key.

    Attributes:
        mailboxes: Number of mailboxes.
        sent_30days: E-mails sent in 30 days.
        daily_limit: Sum of the daily limits, in e-mails per day.
        first: Index of the first workspace in the audit that lists one of the mailboxes.
    """

    mailboxes: int = 0
    sent_30days: Number = 0
    daily_limit: Number = 0
    first: int = 0


class Tally:
    """Sums of mailboxes by key."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._mailboxes = array("Q")
        self._sent = array("d")
        self._limits = array("d")
        self._first = array("I")

    def add(self, key: str, sent: Number, limit: Number, workspace: int, mailboxes: int = 1) -> None:
        """Add mailboxes, the e-mails they sent and their daily limits; `workspace` is the index of their workspace."""
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
        """Return the number of mailboxes of a key that was added before."""
        return self._mailboxes[self._places[key]]

    def __getitem__(self, key: str) -> Total:
        """Return the sums of a key; zeros for a key that was never added."""
        place = self._places.get(key)
        if place is None:
            return Total()
        return Total(self._mailboxes[place], _whole(self._sent[place]), _whole(self._limits[place]), self._first[place])


def _whole(value: float) -> Number:
    """Return a sum as an integer if it is whole, otherwise rounded; the rounding hides differences in the order of addition."""
    return int(value) if value.is_integer() else round(value, 3)
