"""When a campaign ends (rules T13 to T17), from its queue, the speed of its mailboxes and the waits between its steps. Pure."""

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
"""`days_left` of a campaign that no mailbox sends for."""

_DAY_MS: Final = DAY * 1000


@attrs.frozen
class Estimate:
    """A campaign's end.

    Attributes:
        days: Whole days until then.
        word: What stands in a date's place, if there is no date; empty if there is one.
    """

    days: int
    word: str = ""

    @property
    def display(self) -> str:
        """The days in words."""
        return self.word or f"{self.days} day{'' if self.days == 1 else 's'}"

    def date(self, now: float) -> str:
        """The end as text."""
        return self.word or date_text(self.timestamp(now))

    def timestamp(self, now: float) -> int:
        """The end in Unix seconds."""
        return int(now) + self.days * DAY


def estimate(contacts: int, lefts: Sequence[int], waits: Sequence[int], capacity: Fraction) -> Estimate:
    """Estimate when a campaign ends.

    Args:
        contacts: Contacts in it.
        lefts: Contacts left to send to, step by step.
        waits: Milliseconds that each step waits.
        capacity: E-mails a day that its mailboxes spare for it.
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
