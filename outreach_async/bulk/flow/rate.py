"""The rate a run allows itself, learned from refusals: CUBIC, as botocore's adaptive mode has it, but on a scale of its own.

There is no limit until the first refusal. Each cut goes to 0.7 of the rate that was really achieved; then the rate rises fast,
slows down towards where it was refused, stays near it, and rises again ever faster, in case the service now allows more. The
shape is relative to the rate, so that a service of 1 a second is not asked for 3 a second as soon as one of 500 is for 502.

A service that refuses everything for a while teaches no rate: it is asked ever less often, and when it accepts again, the search
for its rate begins anew.
"""

from __future__ import annotations

import math
from typing import Final

BETA: Final = 0.7
"""What a cut leaves of the rate."""
FLOOR: Final = 0.1
"""Requests a second at least: slower services say how long to wait."""
SPACING: Final = 0.5
"""Seconds between two cuts at least, and of a bucket."""

_FIRST: Final = 1.0
"""Requests a second to think possible where nothing has been answered yet."""
_RETURN: Final = 7.2
"""Seconds from a cut back to the old rate: C is 0.4 at 500 a second."""
_RETURN_REQUESTS: Final = 20.0
"""Requests to take for the way back at least: about one refusal comes with each, and should stay a small part of all."""
_RETURN_GATES: Final = 40.0
"""The same as a multiple of the `Retry-After` that a refusal brought: what it costs should stay a small part, too."""
_RETURN_CAP: Final = 60.0
_SEARCH: Final = 1.0
"""Seconds for the way back after the first cut, whose rate is a guess: too little was measured."""
_WIDEN: Final = 2.7
"""How much longer each further way back may be: two more, and the search is over."""
_LAG: Final = 1.25
"""How far what was achieved may lag behind the limit, as a factor: it is an average, and the limit rises."""
_STEEP: Final = 30.0
"""How much faster than the way back the rise above the old rate is."""
_LEAD: Final = 2.0
"""How far above the achieved rate the limit may be, as a factor."""
_LEAP: Final = 10.0
"""Requests a second that the limit may come to in any case after the first cut, before much can have been achieved."""

_VAIN: Final = 2
"""Cuts in a row without a success between them, after which the service refuses everything, whatever the rate."""
_PERSISTENCE: Final = 8.0
"""While everything is refused, the time from one attempt to the next is the time since the first refusal, divided by this."""

_ENOUGH: Final = 10
_WEIGHT: Final = 2.5
"""Answers that the past counts for: a fifth beside ten new ones, next to nothing beside hundreds, most beside one or two."""
_LONGEST: Final = 20.0


class Meter:
    """How many answers a second arrive: counted in buckets of 0.5 s, longer ones where few arrive, and smoothed."""

    __slots__ = ("_began", "_count", "_due", "_past")

    def __init__(self) -> None:
        self._began = math.nan
        self._due = -math.inf
        self._count = 0
        self._past: float | None = None

    def add(self, now: float, started: float) -> None:
        """Count an answer to an attempt that started then."""
        self._count += 1
        if now >= self._due:
            self._roll(now, started)

    def rate(self, now: float) -> float:
        """Return answers a second."""
        elapsed = now - self._began
        if self._past is None:
            return self._count / max(elapsed, SPACING) if self._count else 0.0
        if elapsed < SPACING:
            return self._past
        return (self._count + _WEIGHT) / (elapsed + _WEIGHT / self._past)

    def restart(self, now: float, at: float) -> None:
        """Begin another bucket at an instant: in the one begun, nothing may have been sent, or all of it have failed."""
        if self._count and self._past is None:
            self._past = self.rate(now)
        self._began, self._due, self._count = at, at + SPACING, 0

    def _roll(self, now: float, started: float) -> None:
        if math.isnan(self._began):
            self._began, self._due = started, started + SPACING
        elapsed = now - self._began
        if elapsed >= SPACING and (self._count >= _ENOUGH or elapsed >= _LONGEST):
            self._past = self.rate(now)
            self._began, self._due, self._count = now, now + SPACING, 0


class Cubic:
    """The limit.

    Attributes:
        limit: Requests a second; `None` until the first cut.
    """

    __slots__ = ("_cut_at", "_peak", "_return", "_since", "_vain", "_vain_since", "limit")

    def __init__(self) -> None:
        self.limit: float | None = None
        self._cut_at = self._since = self._vain_since = -math.inf
        self._peak = self._return = 0.0
        self._vain = 0

    def concerns(self, now: float, started: float) -> bool:
        """Whether a refusal says something of the present rate: its attempt began after the last cut, which was not just now."""
        return started >= self._cut_at and now - self._cut_at >= SPACING

    def cut(self, now: float, achieved: float, asked: float = 0.0) -> None:
        """Slow down after a refusal that concerns the rate.

        Args:
            now: The instant.
            achieved: Answers a second of late.
            asked: Seconds of the refusal's `Retry-After`.
        """
        if not self._vain:
            self._vain_since = now
        self._vain += 1
        self._cut_at = now
        if self.limit is None:
            peak, self._return = max(achieved, _FIRST), _SEARCH
        elif self._refuses_everything(achieved):
            # These refusals say nothing about the rate. If they cut it as others do, the way back would take minutes.
            self.limit = max(FLOOR, min(self.limit, _PERSISTENCE / max(SPACING, now - self._vain_since)))
            return
        else:
            peak = max(FLOOR / BETA, min(self.limit, _LAG * achieved))
            way = max(_RETURN, _RETURN_REQUESTS / peak, _RETURN_GATES * asked)
            self._return = min(way, _RETURN_CAP, _WIDEN * self._return)
        self._peak = peak
        self._since = now
        self.limit = BETA * peak

    def grow(self, now: float, achieved: float) -> None:
        """Go as fast as the time since the last cut allows; never slower than before, nor far ahead of what is achieved."""
        if self.limit is None:
            return
        if self._vain:
            if self._refuses_everything(achieved):  # until now: what it allows is as unknown as at the first cut
                self._peak, self._return, self._since = _FIRST, _SEARCH, now
            self._vain = 0
        lead = _LEAD * achieved
        if self._return == _SEARCH:
            lead = max(lead, _LEAP)
            if now - self._cut_at < SPACING:
                self._peak = max(self._peak, achieved)  # what was under way at the first cut tells more than it knew
        x = (now - self._since) / self._return - 1  # -1 at the cut, 0 where the old rate is reached
        rise = (1 - BETA) * x**3 * (_STEEP if x > 0 else 1)
        self.limit = max(self.limit, min(self._peak * (1 + rise), lead))

    def _refuses_everything(self, achieved: float) -> bool:
        """Whether the cuts since the last success are too many, or nothing has ever succeeded."""
        return self._vain > _VAIN or (self._vain > 1 and not achieved)

    def rest(self, seconds: float) -> None:
        """Leave out a time in which nothing could be learned, for nothing was sent."""
        self._since += seconds
