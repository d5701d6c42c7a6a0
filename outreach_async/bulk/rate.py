"""Limit the rate of a run: schedule starts, read quota headers, and learn the service's limit from refusals.

    X-RateLimit-Limit: 60         RateLimit-Limit: 60, 60;w=60        RateLimit: limit=60, remaining=12, reset=30
    X-RateLimit-Remaining: 12     RateLimit-Remaining: 12             RateLimit: "default";r=12;t=30
    X-RateLimit-Reset: 30         RateLimit-Reset: 30                 RateLimit-Policy: "default";q=60;w=60

A `Reset` value is in seconds; one that would mean years is read as Unix time.

There is no limit until the first refusal. Each cut sets the limit to 0.7 of the rate that was achieved. Then the limit rises
quickly, slows down towards the refused rate, stays near it, and rises again ever faster, in case the service now allows more. The
curve is relative to the rate: where a limit of 500 requests per second is probed with 502, one of 1 is not probed with 3.

A service that refuses everything for a while teaches no rate: attempts become ever rarer, and when the service accepts again, the
search for its rate starts over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

import attrs

TOLERANCE: Final = 0.01
"""Seconds that an attempt may start ahead of schedule: more than the lateness of timers, less than a service would notice."""

_START_FRACTION: Final = 0.5
"""Fraction of the base rate at which the ramp starts."""
_DURATION: Final = 2.0
"""Length of the ramp in seconds."""


class Schedule:
    """The schedule. It stores the slot of the last start, not the instant of the next, so a changed rate takes effect at once."""

    __slots__ = ("_slot",)

    def __init__(self) -> None:
        self._slot = -math.inf

    def next_start(self, rate: float) -> float:
        """Return the instant from which the next attempt may start, at this rate in requests per second."""
        return self._slot + 1 / rate - TOLERANCE

    def record_start(self, rate: float, now: float) -> None:
        """Record the start of an attempt."""
        # An attempt is due `TOLERANCE` ahead of its slot, so a timer that is late by less than that still meets the slot, and the
        # schedule does not slip. After an idle time the slot is `now`: unused slots do not add up to a burst.
        self._slot = max(self._slot + 1 / rate, now)


class SlowStart:
    """Limits the rate in the first seconds after a pause: it rises from half of the base rate, so no burst follows the pause."""

    __slots__ = ("_base", "_from")

    def __init__(self) -> None:
        self._from = -math.inf
        self._base = 0.0

    def start(self, at: float, base: float) -> None:
        """Start the ramp at this instant, from half of the base rate in requests per second."""
        self._from, self._base = at, base

    def rate(self, limit: float | None, now: float) -> float | None:
        """Return the rate limit at this instant in requests per second; `None` if there is none."""
        if now - self._from >= _DURATION:
            return limit
        rate = self._base * (_START_FRACTION + (1 - _START_FRACTION) * max(0.0, now - self._from) / _DURATION)
        return rate if limit is None else min(rate, limit)


_MIN_UNIX_TIME: Final = 1e8
"""Reset values from this number on, about three years in seconds, are read as Unix time."""
_LIMIT_LIFETIME: Final = 60.0
"""Seconds after a reset for which the known limit applies, if no response states a quota meanwhile."""
_NUMBER: Final = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)")
_PARAMETER: Final = re.compile(r"\b(limit|remaining|reset|q|r|t)\s*=\s*([0-9]{1,15})")
_LONG_NAMES: Final = {"q": "limit", "r": "remaining", "t": "reset"}


@attrs.frozen
class Quota:
    """The quota that one response states.

    Attributes:
        remaining: Requests left until the reset.
        reset: Seconds until the reset.
        limit: Requests available after the reset; infinite if unknown.
    """

    remaining: float
    reset: float
    limit: float = math.inf


def has_quota(headers: Mapping[str, str]) -> bool:
    """Return whether a response states a quota. This check runs for every response, so it must be cheap."""
    return "x-ratelimit-remaining" in headers or "ratelimit-remaining" in headers or "ratelimit" in headers


def parse_quota(headers: Mapping[str, str], wall_clock: Callable[[], float]) -> Quota | None:
    """Return the quota that a response states; `None` if the number remaining or the reset is missing.

    Args:
        headers: The response's header fields, by lower-case name.
        wall_clock: Returns Unix time in seconds, for a response without a valid `Date`.
    """
    text = f"{headers.get('ratelimit-policy', '')},{headers['ratelimit']}" if "ratelimit" in headers else ""
    values = {_LONG_NAMES.get(name, name): float(value) for name, value in _PARAMETER.findall(text)} or _parse_fields(headers)
    if "remaining" not in values or "reset" not in values:
        return None
    reset = values["reset"]
    if reset >= _MIN_UNIX_TIME:
        reset = max(0.0, reset - _response_time(headers, wall_clock))
    return Quota(values["remaining"], reset, values.get("limit", math.inf))


def _parse_fields(headers: Mapping[str, str]) -> dict[str, float]:
    values: dict[str, float] = {}
    for prefix in ("x-ratelimit-", "ratelimit-"):
        for name in ("limit", "remaining", "reset"):
            if name not in values and (number := _NUMBER.match(headers.get(prefix + name, ""))):
                values[name] = float(number[1])
    return values


def _response_time(headers: Mapping[str, str], wall_clock: Callable[[], float]) -> float:
    """Return the Unix time of a response by the service's own clock, to which its reset refers."""
    from email.utils import parsedate_to_datetime  # slow to import, and needed only for a reset in Unix time

    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return wall_clock()


class QuotaTracker:
    """The number of attempts that the quota still allows.

    Attempts in flight are subtracted from the stated remainder, because the service may not have counted them yet. This may send
    too few requests for a moment, never too many. A response is ignored if a later-started attempt's response was applied before.
    """

    __slots__ = ("_applied_at", "_left", "_limit", "_resets_at")

    def __init__(self) -> None:
        self._left = self._limit = math.inf
        self._resets_at = self._applied_at = -math.inf

    def apply(self, quota: Quota, *, started: float, now: float, in_flight: int) -> None:
        """Apply the quota of a response to an attempt that started at this instant."""
        if started >= self._applied_at:
            self._applied_at = started
            self._left, self._limit = quota.remaining - in_flight, quota.limit
            self._resets_at = now + quota.reset

    def opens_at(self, now: float) -> float:
        """Return the instant from which an attempt may start."""
        return self._resets_at if self._left < 1 and now < self._resets_at else -math.inf

    def record_start(self, now: float) -> None:
        """Record the start of an attempt."""
        if now >= self._resets_at:
            self._left, self._resets_at = self._limit, now + _LIMIT_LIFETIME
        self._left -= 1

    def refund(self) -> None:
        """Give a request back for an attempt that failed or did not start: the service may not have counted it."""
        self._left += 1


BETA: Final = 0.7
"""The fraction of the rate that remains after a cut."""
FLOOR: Final = 0.1
"""Minimum limit in requests per second: a slower service says how long to wait."""
SPACING: Final = 0.5
"""Minimum seconds between two cuts, and minimum length of a bucket."""

_DEFAULT_RATE: Final = 1.0
"""Assumed rate in requests per second if nothing has been answered yet."""
_RECOVERY_TIME: Final = 7.2
"""Seconds from a cut back to the old rate: this makes C 0.4 at 500 requests per second."""
_MIN_RECOVERY_REQUESTS: Final = 20.0
"""Minimum number of requests on the way back: about one of them is refused each time, and should remain a small share."""
_RECOVERY_PER_RETRY_AFTER: Final = 40.0
"""Minimum length of the way back, as a multiple of the refusal's `Retry-After`: that wait should also remain a small share."""
_MAX_RECOVERY_TIME: Final = 60.0
"""Maximum length of the way back in seconds."""
_FIRST_RECOVERY_TIME: Final = 1.0
"""Seconds for the way back after the first cut, whose rate is a guess, because too little was measured."""
_MAX_RECOVERY_GROWTH: Final = 2.7
"""Maximum factor by which each further way back is longer: after two more, the search is over."""
_MAX_LAG: Final = 1.25
"""Factor by which the achieved rate may lag behind the limit: it is an average, while the limit rises."""
_PROBING_FACTOR: Final = 30.0
"""Factor by which the rise above the old rate is faster than the way back to it."""
_MAX_LEAD: Final = 2.0
"""Factor by which the limit may exceed the achieved rate."""
_INITIAL_LEAD: Final = 10.0
"""Requests per second that the limit may reach in any case after the first cut, before much can have been achieved."""

_MAX_FUTILE_CUTS: Final = 2
"""Cuts in a row without a success; after more, the service counts as refusing everything, whatever the rate."""
_REFUSED_INTERVAL_DIVISOR: Final = 8.0
"""While everything is refused, the time between two attempts is the time since the first refusal, divided by this."""

_MIN_RESPONSES: Final = 10
"""Minimum number of responses in a bucket, unless it has reached its maximum length."""
_PAST_WEIGHT: Final = 2.5
"""Responses that the past counts for: a fifth beside ten new ones, almost nothing beside hundreds, most beside one or two."""
_MAX_BUCKET: Final = 20.0
"""Maximum length of a bucket in seconds."""


class RateMeter:
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
        if now < self._due:
            return
        if math.isnan(self._began):
            self._began, self._due = started, started + SPACING
        elapsed = now - self._began
        if elapsed >= SPACING and (self._count >= _MIN_RESPONSES or elapsed >= _MAX_BUCKET):
            self._past = self.rate(now)
            self._began, self._due, self._count = now, now + SPACING, 0

    def rate(self, now: float) -> float:
        """Return the rate in responses per second."""
        elapsed = now - self._began
        if self._past is None:
            return self._count / max(elapsed, SPACING) if self._count else 0.0
        if elapsed < SPACING:
            return self._past
        return (self._count + _PAST_WEIGHT) / (elapsed + _PAST_WEIGHT / self._past)

    def restart(self, now: float, at: float) -> None:
        """Start a new bucket at an instant. The current bucket covers a time without requests, or one in which all failed."""
        if self._count and self._past is None:
            self._past = self.rate(now)
        self._began, self._due, self._count = at, at + SPACING, 0


class CubicLimit:
    """The rate limit.

    Attributes:
        limit: The limit in requests per second; `None` until the first cut.
    """

    __slots__ = ("_cut_at", "_futile_cuts", "_futile_since", "_peak", "_recovery_time", "_since", "limit")

    def __init__(self) -> None:
        self.limit: float | None = None
        self._cut_at = self._since = self._futile_since = -math.inf
        self._peak = self._recovery_time = 0.0
        self._futile_cuts = 0

    def is_about_current_rate(self, now: float, started: float) -> bool:
        """Return whether a refusal is about the current rate: its attempt started after the last cut, at least 0.5 s ago."""
        # One excess over the service's limit refuses many requests in flight at once. They must not cut the rate several times.
        return started >= self._cut_at and now - self._cut_at >= SPACING

    def cut(self, now: float, achieved: float, retry_after: float = 0.0) -> None:
        """Lower the limit after a refusal that is about the rate.

        Args:
            now: The current instant.
            achieved: Recent rate in responses per second.
            retry_after: The refusal's `Retry-After` in seconds.
        """
        if not self._futile_cuts:
            self._futile_since = now
        self._futile_cuts += 1
        self._cut_at = now
        if self.limit is None:
            peak, self._recovery_time = max(achieved, _DEFAULT_RATE), _FIRST_RECOVERY_TIME
        elif self._refuses_everything(achieved):
            # These refusals say nothing about the rate. If they cut it as others do, the way back would take minutes.
            # Instead, attempts become rarer with the time since the first refusal.
            self.limit = max(FLOOR, min(self.limit, _REFUSED_INTERVAL_DIVISOR / max(SPACING, now - self._futile_since)))
            return
        else:
            peak = max(FLOOR / BETA, min(self.limit, _MAX_LAG * achieved))
            recovery_time = max(_RECOVERY_TIME, _MIN_RECOVERY_REQUESTS / peak, _RECOVERY_PER_RETRY_AFTER * retry_after)
            self._recovery_time = min(recovery_time, _MAX_RECOVERY_TIME, _MAX_RECOVERY_GROWTH * self._recovery_time)
        self._peak = peak
        self._since = now
        self.limit = BETA * peak

    def grow(self, now: float, achieved: float) -> None:
        """Raise the limit according to the time since the last cut. It never falls, and never far exceeds the achieved rate."""
        if self.limit is None:
            return
        if self._futile_cuts:
            if self._refuses_everything(achieved):  # until now: the allowed rate is as unknown as at the first cut
                self._peak, self._recovery_time, self._since = _DEFAULT_RATE, _FIRST_RECOVERY_TIME, now
            self._futile_cuts = 0
        lead = _MAX_LEAD * achieved
        if self._recovery_time == _FIRST_RECOVERY_TIME:
            lead = max(lead, _INITIAL_LEAD)
            if now - self._cut_at < SPACING:
                self._peak = max(self._peak, achieved)  # requests in flight at the first cut are answered now: a better measure
        x = (now - self._since) / self._recovery_time - 1  # -1 at the cut, 0 where the old rate is reached
        rise = (1 - BETA) * x**3 * (_PROBING_FACTOR if x > 0 else 1)
        self.limit = max(self.limit, min(self._peak * (1 + rise), lead))

    def _refuses_everything(self, achieved: float) -> bool:
        """Return whether the cuts since the last success are too many, or nothing has ever succeeded."""
        return self._futile_cuts > _MAX_FUTILE_CUTS or (self._futile_cuts > 1 and not achieved)

    def exclude_time(self, seconds: float) -> None:
        """Leave out this many seconds, during which nothing was sent and nothing could be learned."""
        self._since += seconds
