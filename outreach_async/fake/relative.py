"""Times as strings in the service's format (rules T16 and T18): relative times and dates."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Final

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
YEAR: Final = 365 * DAY

_UNITS: Final = ((YEAR, "year"), (30 * DAY, "month"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"))
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def ago(then: float | None, now: float) -> str:
    """Return a relative time, such as `5 minutes ago`.

    Args:
        then: The time in Unix seconds; `None` for never.
        now: The current time in Unix seconds.
    """
    if then is None:
        return "Never"
    return _worded(int((now - then) // MINUTE))


@lru_cache(maxsize=16_384)  # a page of mailboxes has thousands of times, and the next page mostly the same ones
def _worded(minutes: int) -> str:
    for seconds, unit in _UNITS:
        count = minutes // (seconds // MINUTE)
        if count >= 1:
            if unit == "month":
                count = min(count, 11)  # after 360 days it is still 11 months: "1 year" starts at 365 days
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def date_text(moment: float) -> str:
    """Return a date in UTC, such as `Mar 14, 2026`; always in English, independent of the locale.

    Args:
        moment: The time in Unix seconds.
    """
    date = time.gmtime(moment)
    return f"{_MONTHS[date.tm_mon - 1]} {date.tm_mday}, {date.tm_year}"
