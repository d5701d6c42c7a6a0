"""Schedules the starts of attempts at a limited rate (GCRA), so that the lateness of timers does not lower the rate."""

from __future__ import annotations

import math
from typing import Final

TOLERANCE: Final = 0.01
"""Seconds that an attempt may start ahead of schedule: more than the lateness of timers, less than a service would notice."""

_GENTLE: Final = 0.5
"""Fraction of the base rate at which the ramp starts."""
_RAMP: Final = 2.0
"""Length of the ramp in seconds."""


class Pace:
    """The schedule. It stores the slot of the last start, not the instant of the next, so a changed rate takes effect at once."""

    __slots__ = ("_slot",)

    def __init__(self) -> None:
        self._slot = -math.inf

    def due(self, rate: float) -> float:
        """Return the instant from which the next attempt may start, at this rate in requests per second."""
        return self._slot + 1 / rate - TOLERANCE

    def start(self, rate: float, now: float) -> None:
        """Record the start of an attempt."""
        # An attempt is due `TOLERANCE` ahead of its slot, so a timer that is late by less than that still meets the slot, and the
        # schedule does not slip. After an idle time the slot is `now`: unused slots do not add up to a burst.
        self._slot = max(self._slot + 1 / rate, now)


class Ramp:
    """Limits the rate in the first seconds after a pause: it rises from half of the base rate, so no burst follows the pause."""

    __slots__ = ("_base", "_from")

    def __init__(self) -> None:
        self._from = -math.inf
        self._base = 0.0

    def begin(self, at: float, base: float) -> None:
        """Start the ramp at this instant, from half of the base rate in requests per second."""
        self._from, self._base = at, base

    def rate(self, limit: float | None, now: float) -> float | None:
        """Return the rate limit at this instant in requests per second; `None` if there is none."""
        if now - self._from >= _RAMP:
            return limit
        rate = self._base * (_GENTLE + (1 - _GENTLE) * max(0.0, now - self._from) / _RAMP)
        return rate if limit is None else min(rate, limit)
