"""Estimate when a campaign ends (rules T13 to T17) from its queue, its mailboxes' speed and its steps' waits. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import attrs

from outreach_async.fake.relative import DAY, date_text

COMPLETE: Final = "Complete"
NOT_STARTED: Final = "Not started"
UNKNOWN: Final = "Unknown"

UNBOUNDED_DAYS: Final = 9999
"""`days_left` of a campaign that no mailbox sends for, in days."""

_DAY_MS: Final = DAY * 1000


@attrs.frozen
class Estimate:
    """The estimated end of a campaign.

    Attributes:
        days: Whole days until the end.
        word: The word shown instead of a date, such as `Complete`; empty if there is a date.
    """

    days: int
    word: str = ""

    @property
    def display(self) -> str:
        """The value of `days_left_display`."""
        return self.word or f"{self.days} day{'' if self.days == 1 else 's'}"

    def date(self, now: float) -> str:
        """Return the end as a string: a date, or the word in its place."""
        return self.word or date_text(self.timestamp(now))

    def timestamp(self, now: float) -> int:
        """Return the end in Unix seconds."""
        return int(now) + self.days * DAY


def estimate(contacts: int, lefts: Sequence[int], waits: Sequence[int], capacity: Fraction) -> Estimate:
    """Estimate when a campaign ends.

    Args:
        contacts: Number of contacts in the campaign.
        lefts: Number of contacts each step is still to be sent to.
        waits: The wait of each step, in milliseconds.
        capacity: E-mails per day that its mailboxes can send for it.
    """
    left = sum(lefts)
    if not contacts:
        return Estimate(0, NOT_STARTED)
    if not left:
        return Estimate(0, COMPLETE)
    if capacity <= 0:
        return Estimate(UNBOUNDED_DAYS, UNKNOWN)
    first = next(index for index, count in enumerate(lefts) if count)
    return Estimate(max(1, math.ceil(left / capacity + Fraction(sum(waits[first:]), _DAY_MS))))
