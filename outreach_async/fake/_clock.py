"""The clock of the fake, and functions that format times as the service does (rules T16 and T18)."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from outreach_async.fake._arguments import shown
from outreach_async.fake._messages import MONTHS

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)


class Clock:
    """A clock that follows a callable, or stands still until it is advanced."""

    def __init__(self, source: str | Callable[[], float]) -> None:
        # Whole microseconds, not floats: two advances then reach exactly the same time as one advance by their total duration.
        self._source: Callable[[], int]
        self.is_running = callable(source)
        """Whether the clock follows a callable. If false, the time stands still until it is changed explicitly."""
        if callable(source):
            self._source = lambda: round(source() * 1_000_000)
        else:
            start = parse_time("clock", source)
            self._source = lambda: start
        self.offset = 0
        """Microseconds to add to the time of `source`."""

    @property
    def now(self) -> float:
        return self.microseconds / 1_000_000

    @property
    def microseconds(self) -> int:
        return self._source() + self.offset

    @property
    def iso(self) -> str:
        return (_EPOCH + timedelta(microseconds=self.microseconds)).isoformat().replace("+00:00", "Z")

    def advance(self, step: timedelta) -> None:
        if step < timedelta(0):
            raise ValueError(f"step: expected a non-negative duration, got {step}; use restore() or reset() to go back")
        self.offset += step // _MICROSECOND

    def set_time(self, time: str) -> None:
        self.offset = parse_time("time", time) - self._source()


def parse_time(name: str, text: str) -> int:
    """Parse a time in ISO 8601 format. A time without an offset is in UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected an ISO 8601 time such as 2026-01-01T00:00:00Z, got {shown(text)}") from None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
YEAR: Final = 365 * DAY

_UNITS: Final = ((YEAR, "year"), (30 * DAY, "month"), (DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"))


def format_age(then: float | None, now: float) -> str:
    if then is None:
        return "Never"
    return _format_minutes(int((now - then) // MINUTE))


@lru_cache(maxsize=16_384)  # a page of mailboxes shows thousands of ages; the next page repeats most of them
def _format_minutes(minutes: int) -> str:
    for seconds, unit in _UNITS:
        count = minutes // (seconds // MINUTE)
        if count >= 1:
            if unit == "month":
                count = min(count, 11)  # 360 to 364 days would be 12 months, but "1 year" starts at 365 days
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return "just now"


def format_date(moment: float) -> str:
    date = time.gmtime(moment)
    return f"{MONTHS[date.tm_mon - 1]} {date.tm_mday}, {date.tm_year}"
