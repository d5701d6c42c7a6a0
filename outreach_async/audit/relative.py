"""Parser for relative times such as `2 months ago`. The result is the interval that the words allow, not a point in time.

dayjs picks the first format that fits, and rounds to the nearest number. Other libraries round down and write `1 day` instead of
`a day`. The interval covers both. Sources: the plugin relativeTime of dayjs and its locale en.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import attrs

MINUTE: Final = 60.0
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


@attrs.frozen
class Interval:
    """Time since an event, as a range in seconds; negative for an event in the future.

    Attributes:
        least: Minimum time since the event, in seconds.
        most: Maximum time since the event, in seconds.
    """

    least: float
    most: float


_ONE: Final = {
    "second": Interval(0, 44.5),
    "minute": Interval(44.5, 89.5),
    "hour": Interval(44.5 * MINUTE, 89.5 * MINUTE),
    "day": Interval(21.5 * HOUR, 35.5 * HOUR),
    "week": Interval(6.5 * DAY, 14 * DAY),  # dayjs has no weeks, but similar libraries do
    "month": Interval(25.5 * DAY, 46.5 * DAY),  # up to 45 days in its table, or until 1.5 months are complete
    "year": Interval(10.5 * 28 * DAY, 549 * DAY),  # 10.5 to 18 months
}
"""The interval that `a day` and similar words mean when times are rounded."""

_UNITS: Final = {
    "second": (1.0, 1.0),
    "minute": (MINUTE, MINUTE),
    "hour": (HOUR, HOUR),
    "day": (DAY, DAY),
    "week": (7 * DAY, 7 * DAY),
    "month": (28 * DAY, 31 * DAY),
    "year": (365 * DAY, 366 * DAY),
}
"""Minimum and maximum length of each unit, in seconds."""

_MOMENTS: Final = frozenset({"just now", "now", "a few seconds", "few seconds", "seconds"})
_WORDS: Final = re.compile(r"(?:(an?)|(\d{1,6})) (second|minute|hour|day|week|month|year)s?")


@lru_cache(maxsize=16_384)  # the same words occur thousands of times in a page of mailboxes
def parse(text: str) -> Interval | None:
    """Parse a relative time in English; return `None` for any other string.

    Args:
        text: A string such as `a few seconds ago`, `in a day`, `3 months` or `just now`.
    """
    words = " ".join(text.lower().split())
    if words.startswith("in "):
        span = _span(words[3:])
        return span and Interval(-span.most, -span.least)
    return _span(words.removesuffix(" ago"))


def _span(words: str) -> Interval | None:
    if words in _MOMENTS:
        return _ONE["second"]
    found = _WORDS.fullmatch(words)
    if found is None:
        return None
    article, count, unit = found.groups()
    return _ONE[unit] if article else _counted(int(count), unit)


def _counted(count: int, unit: str) -> Interval:
    """Return the interval for a count that was rounded to the nearest number or down."""
    shortest, longest = _UNITS[unit]
    return Interval(max(0.0, (count - 0.5) * shortest), (count + 1) * longest)
