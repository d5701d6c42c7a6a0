"""When the next attempt of a limited rate may start: a schedule (GCRA), so that a timer's lateness loses nothing."""

from __future__ import annotations

import math
from typing import Final

TOLERANCE: Final = 0.01
"""Seconds that an attempt may start ahead of its schedule: more than timers are late, less than a service could mind."""

_GENTLE: Final = 0.5
_RAMP: Final = 2.0


class Pace:
    """The schedule. It notes where the last start belonged, not when the next may be: so a changed rate takes effect at once."""

    __slots__ = ("_slot",)

    def __init__(self) -> None:
        self._slot = -math.inf

    def due(self, rate: float) -> float:
        """Return the instant from which the next attempt may start."""
        return self._slot + 1 / rate - TOLERANCE

    def start(self, rate: float, now: float) -> None:
        """Take in that an attempt starts now."""
        self._slot = max(self._slot + 1 / rate, now)


class Ramp:
    """The first seconds after a pause: the rate rises from half of what it was, or the pause would end with a blow."""

    __slots__ = ("_base", "_from")

    def __init__(self) -> None:
        self._from = -math.inf
        self._base = 0.0

    def begin(self, at: float, base: float) -> None:
        """Begin at that instant, from half the base rate."""
        self._from, self._base = at, base

    def rate(self, limit: float | None, now: float) -> float | None:
        """Return what the limit comes to now."""
        if now - self._from >= _RAMP:
            return limit
        rate = self._base * (_GENTLE + (1 - _GENTLE) * max(0.0, now - self._from) / _RAMP)
        return rate if limit is None else min(rate, limit)
