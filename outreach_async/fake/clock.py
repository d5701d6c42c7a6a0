"""The fake's time: where it starts, or whose clock it follows, and how far it was moved by hand."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)


class Clock:
    """Unix time that stands still until it is moved, or runs with another clock.

    Args:
        source: ISO 8601 text (UTC if it names no zone), where time stands; or a callable that returns Unix seconds.

    Raises:
        ValueError: The text is no time.
    """

    def __init__(self, source: str | Callable[[], float]) -> None:
        # Whole microseconds: two steps then come exactly to where one step of their sum does.
        self._source: Callable[[], int]
        self.runs = callable(source)
        """Whether it runs with another clock."""
        if callable(source):
            self._source = lambda: round(source() * 1_000_000)
        else:
            start = parse_time(source)
            self._source = lambda: start
        self.offset = 0
        """Microseconds that time was moved by."""

    @property
    def now(self) -> float:
        """Unix seconds."""
        return self.micros / 1_000_000

    @property
    def micros(self) -> int:
        """Unix microseconds."""
        return self._source() + self.offset

    @property
    def text(self) -> str:
        """The time as ISO 8601 text, in UTC."""
        return (_EPOCH + timedelta(microseconds=self.micros)).isoformat().replace("+00:00", "Z")

    def advance(self, step: timedelta) -> None:
        """Move time on.

        Raises:
            ValueError: The step is negative.
        """
        if step < timedelta(0):
            raise ValueError(f"time only moves on, not by {step}: go back with restore() or reset()")
        self.offset += step // _MICROSECOND

    def move_to(self, time: str) -> None:
        """Make it a given time now.

        Raises:
            ValueError: The text is no time.
        """
        self.offset = parse_time(time) - self._source()


def parse_time(text: str) -> int:
    """Read ISO 8601 text, UTC if it names no zone.

    Returns:
        Unix microseconds.

    Raises:
        ValueError: The text is no time.
    """
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"{text!r} is no ISO 8601 time such as 2026-01-01T00:00:00Z") from None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
