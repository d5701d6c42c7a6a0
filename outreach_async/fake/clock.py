"""The fake's clock: a fixed start or another clock, plus the offset that `advance` adds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)


class Clock:
    """Unix time that stands still until it is advanced, or follows another clock.

    Args:
        source: The current time as an ISO 8601 string (UTC if it names no zone), or a callable that returns Unix seconds.

    Raises:
        ValueError: The string is not a valid ISO 8601 time.
    """

    def __init__(self, source: str | Callable[[], float]) -> None:
        # Whole microseconds, not floats: two advances then reach exactly the time that one advance by their sum reaches.
        self._source: Callable[[], int]
        self.runs = callable(source)
        """Whether it follows another clock."""
        if callable(source):
            self._source = lambda: round(source() * 1_000_000)
        else:
            start = parse_time(source)
            self._source = lambda: start
        self.offset = 0
        """Microseconds added to the source's time."""

    @property
    def now(self) -> float:
        """The current time in Unix seconds."""
        return self.micros / 1_000_000

    @property
    def micros(self) -> int:
        """The current time in Unix microseconds."""
        return self._source() + self.offset

    @property
    def text(self) -> str:
        """The current time as an ISO 8601 string in UTC."""
        return (_EPOCH + timedelta(microseconds=self.micros)).isoformat().replace("+00:00", "Z")

    def advance(self, step: timedelta) -> None:
        """Advance the clock.

        Raises:
            ValueError: The step is negative.
        """
        if step < timedelta(0):
            raise ValueError(f"step: expected a non-negative duration, got {step}; use restore() or reset() to go back")
        self.offset += step // _MICROSECOND

    def move_to(self, time: str) -> None:
        """Set the current time.

        Raises:
            ValueError: The string is not a valid ISO 8601 time.
        """
        self.offset = parse_time(time) - self._source()


def parse_time(text: str) -> int:
    """Parse an ISO 8601 string, in UTC if it names no zone.

    Returns:
        Unix microseconds.

    Raises:
        ValueError: The string is not a valid ISO 8601 time.
    """
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"expected an ISO 8601 time such as 2026-01-01T00:00:00Z, got {text!r}") from None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
