"""Times as the service words them (rules T16 and T18): how long ago something was, and dates."""

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
    """Word how long ago a time was, such as `5 minutes ago`.

    Args:
        then: Unix seconds; `None` for what never was.
        now: Unix seconds.
    """
    if then is None:
        return "Never"
    return _worded(int((now - then) // MINUTE))


@lru_cache(maxsize=16_384)  # a page of mailboxes words thousands of times, and the next one the same
def _worded(minutes: int) -> str:
    for seconds, unit in _UNITS:
        count = minutes // (seconds // MINUTE)
        if count >= 1:
            if unit == "month":
                count = min(count, 11)  # 360 days are not twelve months: the year is longer
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def date_text(moment: float) -> str:
    """Word a date in UTC, such as `Mar 14, 2026`; in English, whatever the machine's locale.

    Args:
        moment: Unix seconds.
    """
    date = time.gmtime(moment)
    return f"{_MONTHS[date.tm_mon - 1]} {date.tm_mday}, {date.tm_year}"
