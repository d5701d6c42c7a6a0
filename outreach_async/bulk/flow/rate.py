"""Learns the run's rate limit from refusals: CUBIC, as in botocore's adaptive mode, but scaled to the rate.

There is no limit until the first refusal. Each cut sets the limit to 0.7 of the rate that was achieved. Then the limit rises
quickly, slows down towards the refused rate, stays near it, and rises again ever faster, in case the service now allows more. The
curve is relative to the rate: where a limit of 500 requests per second is probed with 502, one of 1 is not probed with 3.

A service that refuses everything for a while teaches no rate: attempts become ever rarer, and when the service accepts again, the
search for its rate starts over.
"""

from __future__ import annotations

import math
from typing import Final

BETA: Final = 0.7
"""The fraction of the rate that remains after a cut."""
FLOOR: Final = 0.1
"""Minimum limit in requests per second: a slower service says how long to wait."""
SPACING: Final = 0.5
"""Minimum seconds between two cuts, and minimum length of a bucket."""

_FIRST: Final = 1.0
"""Assumed rate in requests per second if nothing has been answered yet."""
_RETURN: Final = 7.2
"""Seconds from a cut back to the old rate: this makes C 0.4 at 500 requests per second."""
_RETURN_REQUESTS: Final = 20.0
"""Minimum number of requests on the way back: about one of them is refused each time, and should remain a small share."""
_RETURN_GATES: Final = 40.0
"""Minimum length of the way back, as a multiple of the refusal's `Retry-After`: that wait should also remain a small share."""
_RETURN_CAP: Final = 60.0
"""Maximum length of the way back in seconds."""
_SEARCH: Final = 1.0
"""Seconds for the way back after the first cut, whose rate is a guess, because too little was measured."""
_WIDEN: Final = 2.7
"""Maximum factor by which each further way back is longer: after two more, the search is over."""
_LAG: Final = 1.25
"""Factor by which the achieved rate may lag behind the limit: it is an average, while the limit rises."""
_STEEP: Final = 30.0
"""Factor by which the rise above the old rate is faster than the way back to it."""
_LEAD: Final = 2.0
"""Factor by which the limit may exceed the achieved rate."""
_LEAP: Final = 10.0
"""Requests per second that the limit may reach in any case after the first cut, before much can have been achieved."""

_VAIN: Final = 2
"""Cuts in a row without a success; after more, the service counts as refusing everything, whatever the rate."""
_PERSISTENCE: Final = 8.0
"""While everything is refused, the time between two attempts is the time since the first refusal, divided by this."""

_ENOUGH: Final = 10
"""Minimum number of responses in a bucket, unless it has reached its maximum length."""
_WEIGHT: Final = 2.5
"""Responses that the past counts for: a fifth beside ten new ones, almost nothing beside hundreds, most beside one or two."""
_LONGEST: Final = 20.0
"""Maximum length of a bucket in seconds."""


class Meter:
    """Measures the responses per second: counted in buckets of 0.5 s, or longer if few arrive, and smoothed."""

    __slots__ = ("_began", "_count", "_due", "_past")

    def __init__(self) -> None:
        self._began = math.nan
        self._due = -math.inf
        self._count = 0
        self._past: float | None = None

    def add(self, now: float, started: float) -> None:
        """Count a response to an attempt that started at this instant."""
        self._count += 1
        if now >= self._due:
            self._roll(now, started)

    def rate(self, now: float) -> float:
        """Return the rate in responses per second."""
        elapsed = now - self._began
        if self._past is None:
            return self._count / max(elapsed, SPACING) if self._count else 0.0
        if elapsed < SPACING:
            return self._past
        return (self._count + _WEIGHT) / (elapsed + _WEIGHT / self._past)

    def restart(self, now: float, at: float) -> None:
        """Start a new bucket at an instant. The current bucket covers a time without requests, or one in which all failed."""
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
    """The rate limit.

    Attributes:
        limit: The limit in requests per second; `None` until the first cut.
    """

    __slots__ = ("_cut_at", "_peak", "_return", "_since", "_vain", "_vain_since", "limit")

    def __init__(self) -> None:
        self.limit: float | None = None
        self._cut_at = self._since = self._vain_since = -math.inf
        self._peak = self._return = 0.0
        self._vain = 0

    def concerns(self, now: float, started: float) -> bool:
        """Return whether a refusal is about the current rate: its attempt started after the last cut, at least 0.5 s ago."""
        # One excess over the service's limit refuses many requests in flight at once. They must not cut the rate several times.
        return started >= self._cut_at and now - self._cut_at >= SPACING

    def cut(self, now: float, achieved: float, asked: float = 0.0) -> None:
        """Lower the limit after a refusal that is about the rate.

        Args:
            now: The current instant.
            achieved: Recent rate in responses per second.
            asked: The refusal's `Retry-After` in seconds.
        """
        if not self._vain:
            self._vain_since = now
        self._vain += 1
        self._cut_at = now
        if self.limit is None:
            peak, self._return = max(achieved, _FIRST), _SEARCH
        elif self._refuses_everything(achieved):
            # These refusals say nothing about the rate. If they cut it as others do, the way back would take minutes.
            # Instead, attempts become rarer with the time since the first refusal.
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
        """Raise the limit according to the time since the last cut. It never falls, and never far exceeds the achieved rate."""
        if self.limit is None:
            return
        if self._vain:
            if self._refuses_everything(achieved):  # until now: the allowed rate is as unknown as at the first cut
                self._peak, self._return, self._since = _FIRST, _SEARCH, now
            self._vain = 0
        lead = _LEAD * achieved
        if self._return == _SEARCH:
            lead = max(lead, _LEAP)
            if now - self._cut_at < SPACING:
                self._peak = max(self._peak, achieved)  # requests in flight at the first cut are answered now: a better measure
        x = (now - self._since) / self._return - 1  # -1 at the cut, 0 where the old rate is reached
        rise = (1 - BETA) * x**3 * (_STEEP if x > 0 else 1)
        self.limit = max(self.limit, min(self._peak * (1 + rise), lead))

    def _refuses_everything(self, achieved: float) -> bool:
        """Return whether the cuts since the last success are too many, or nothing has ever succeeded."""
        return self._vain > _VAIN or (self._vain > 1 and not achieved)

    def rest(self, seconds: float) -> None:
        """Leave out this many seconds, during which nothing was sent and nothing could be learned."""
        self._since += seconds
