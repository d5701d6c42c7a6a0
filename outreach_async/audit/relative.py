"""Relative times read back, such as `2 months ago`: not a point in time but the span that the words leave open.

dayjs words a time by the first line that fits, and rounds; other libraries round down and write `1 day` for `a day`. A span here
holds what either may have meant. Sources: dayjs's plugin relativeTime and its locale en.
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
    """How long ago something was: between two figures, in seconds; negative where it is still to come.

    Attributes:
        least: It is at least so long ago.
        most: It is at most so long ago.
    """

    least: float
    most: float


_ONE: Final = {
    "second": Interval(0, 44.5),
    "minute": Interval(44.5, 89.5),
    "hour": Interval(44.5 * MINUTE, 89.5 * MINUTE),
    "day": Interval(21.5 * HOUR, 35.5 * HOUR),
    "week": Interval(6.5 * DAY, 14 * DAY),  # not dayjs's, but of libraries like it
    "month": Interval(25.5 * DAY, 46.5 * DAY),  # to 45 days by its table, and further while 1.5 months are not full
    "year": Interval(10.5 * 28 * DAY, 549 * DAY),  # 10.5 to 18 months
}
"""What `a day` and the like mean, of times that are rounded."""

_UNITS: Final = {
    "second": (1.0, 1.0),
    "minute": (MINUTE, MINUTE),
    "hour": (HOUR, HOUR),
    "day": (DAY, DAY),
    "week": (7 * DAY, 7 * DAY),
    "month": (28 * DAY, 31 * DAY),
    "year": (365 * DAY, 366 * DAY),
}
"""The shortest and the longest that a unit may be."""

_MOMENTS: Final = frozenset({"just now", "now", "a few seconds", "few seconds", "seconds"})
_WORDS: Final = re.compile(r"(?:(an?)|(\d{1,6})) (second|minute|hour|day|week|month|year)s?")


@lru_cache(maxsize=16_384)  # a page of mailboxes has the same words thousands of times
def parse(text: str) -> Interval | None:
    """Read a relative time in English; `None` for any other text.

    Args:
        text: Such as `a few seconds ago`, `in a day`, `3 months`, `just now`.
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
    """A count that was rounded to the nearest one, or down."""
    shortest, longest = _UNITS[unit]
    return Interval(max(0.0, (count - 0.5) * shortest), (count + 1) * longest)
