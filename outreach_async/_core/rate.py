"""Rate limits of a client, without I/O: a configured rate, and a limit learned from the service's refusals.

A token bucket enforces a configured rate. The rest of this module applies with and without a configured rate.

There is no learned limit until the first refusal. A refusal cuts the limit to 0.7 of the achieved rate. Then the limit rises
along a cubic curve: quickly at first, slowly near the rate that was refused, and then ever faster, in case the service now allows
more. The curve is proportional to the rate, so the client exceeds a low limit of the service by less than a high one.

While the service refuses everything, no rate can be learned. Attempts become ever rarer. When the service accepts an attempt
again, the search for the allowed rate starts over.
"""

from __future__ import annotations

import math
from typing import Final

import attrs

_BURST_TIME: Final = 0.1  # the token bucket holds what arrives in this many seconds, and at least one token
# An attempt may start this many seconds before its scheduled time, which no service notices, so a late timer delays no schedule.
TOLERANCE: Final = 0.01
_START_FRACTION: Final = 0.5  # fraction of the base rate at which the ramp after a pause starts
_DURATION: Final = 2.0  # length of the ramp after a pause, in seconds


class TokenBucket:
    """Limits attempts to a configured rate with the generic cell rate algorithm."""

    # In any `t` seconds, at most `rate * t + max(1, rate / 10)` attempts start. The bucket starts full.

    __slots__ = ("_arrival", "_period", "_tolerance", "opens_at", "rate")

    def __init__(self, rate: float) -> None:
        self._arrival = self.opens_at = -math.inf
        self._set_rate(rate)

    def _set_rate(self, rate: float) -> None:
        self.rate = rate
        self._period = 1 / rate
        # One attempt may always start; the tolerance adds the rest of the burst. A burst lets a late timer catch up.
        self._tolerance = max(0.0, _BURST_TIME - self._period)

    def record_start(self, now: float) -> None:
        # `_arrival` is the time at which the bucket is full again. It is never in the past, so that unused tokens do not add up.
        self._arrival = max(now, self._arrival) + self._period
        self.opens_at = self._arrival - self._tolerance

    def change_rate(self, rate: float, now: float) -> None:
        """Change the rate. The number of tokens that are missing from the bucket stays the same."""
        missing = max(0.0, self._arrival - now) * self.rate
        self._set_rate(rate)
        self._arrival = now + missing / rate
        self.opens_at = self._arrival - self._tolerance

    def empty(self, now: float) -> None:
        """Remove all tokens. The next attempt may start one period (1 / `rate` seconds) from now."""
        self.opens_at = now + self._period
        self._arrival = self.opens_at + self._tolerance


@attrs.define(eq=False)
class Schedule:
    """Spaces the starts of attempts evenly, at a rate limit that may change: after a pause, it rises for two seconds."""

    # The schedule stores the slot (the scheduled time) of the last start, so a new limit takes effect at once. After a pause, the
    # limit rises from half to all of a base rate, to prevent a burst.

    _slot: float = -math.inf
    _ramp_began: float = -math.inf
    _base: float = 0.0

    def start_slowly(self, at: float, base: float) -> None:
        self._ramp_began, self._base = at, base

    def rate(self, limit: float | None, now: float) -> float | None:
        """Return the rate limit at the time `now`, in requests per second; `None` if there is no limit."""
        if now - self._ramp_began >= _DURATION:
            return limit
        rate = self._base * (_START_FRACTION + (1 - _START_FRACTION) * max(0.0, now - self._ramp_began) / _DURATION)
        return rate if limit is None else min(rate, limit)

    def next_start(self, limit: float | None, now: float) -> float:
        rate = self.rate(limit, now)
        return -math.inf if rate is None else self._slot + 1 / rate - TOLERANCE

    def record_start(self, limit: float | None, now: float) -> None:
        # An attempt is due `TOLERANCE` ahead of its slot, so a timer that is late by less than `TOLERANCE` still meets the slot,
        # and the schedule does not slip. After an idle time the slot is `now`, so that unused slots do not add up to a burst.
        if (rate := self.rate(limit, now)) is not None:
            self._slot = max(self._slot + 1 / rate, now)


BETA: Final = 0.7  # a cut lowers the limit of a single client to this fraction of the achieved rate
FLOOR: Final = 0.1  # lowest learned limit in requests per second; a service that allows less should send `Retry-After`
SPACING: Final = 0.5  # minimum number of seconds between two cuts, and minimum length of a bucket of `RateMeter`

# A recovery begins with a cut, and ends when the limit has returned to the rate before the cut. Lengths are in seconds.
_DEFAULT_RATE: Final = 1.0  # assumed rate in requests per second if no request has succeeded yet
_RECOVERY_TIME: Final = 7.2  # normal length; at 500 requests per second, it corresponds to the factor C = 0.4 of TCP CUBIC
_MIN_RECOVERY_REQUESTS: Final = 20.0  # about one request per recovery is refused: longer recoveries mean fewer refusals
_RECOVERY_PER_RETRY_AFTER: Final = 40.0  # minimum length as a multiple of `Retry-After`, so that little time is spent waiting
_MAX_RECOVERY_TIME: Final = 60.0
_FIRST_RECOVERY_TIME: Final = 1.0  # short, because the rate at the first cut is only a guess
_MAX_RECOVERY_GROWTH: Final = 2.7  # ratio to the length of the previous recovery, so that the third can have the normal length
_MAX_LAG: Final = 1.25  # maximum ratio of limit to achieved rate at a cut; above 1, as the achieved rate lags behind the limit
_PROBING_FACTOR: Final = 30.0  # after a recovery, the cubic curve is this many times as steep
_MAX_LEAD: Final = 2.0  # maximum ratio of the limit to the achieved rate while the limit rises
_INITIAL_LEAD: Final = 10.0  # after the first cut, the limit may rise to this, regardless of the achieved rate

_MAX_FUTILE_CUTS: Final = 2  # after more cuts without a success in between, the service counts as refusing everything
_REFUSED_INTERVAL_DIVISOR: Final = 8.0  # then, the time between attempts is the time since the first refusal, divided by this

_MIN_RESPONSES: Final = 10  # minimum number of responses in a bucket, unless it has reached its maximum length
_PAST_WEIGHT: Final = 2.5  # weight of the past rate, as a number of responses: a fifth if there are 10 new ones
_MAX_BUCKET: Final = 20.0  # maximum length of a bucket in seconds


@attrs.define(eq=False)
class RateMeter:
    """Measures the smoothed rate of responses, counted in buckets of 0.5 s, or in longer buckets if few responses arrive."""

    _began: float = math.nan
    _due: float = -math.inf
    _count: int = 0
    _past: float | None = None

    def add(self, now: float, started: float) -> None:
        """Count a response; `started` is the time at which the response's attempt started."""
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
        elapsed = now - self._began
        if self._past is None:
            return self._count / max(elapsed, SPACING) if self._count else 0.0
        if elapsed < SPACING:
            return self._past
        return (self._count + _PAST_WEIGHT) / (elapsed + _PAST_WEIGHT / self._past)

    def restart(self, now: float, at: float) -> None:
        """Discard the current bucket, and start a new one at the time `at`, so that a pause does not lower the measured rate."""
        if self._count and self._past is None:
            self._past = self.rate(now)
        self._began, self._due, self._count = at, at + SPACING, 0


@attrs.define(eq=False)
class CubicLimit:
    """The learned rate limit. Refusals lower the limit; afterwards, it rises along a cubic curve."""

    beta: float = BETA
    limit: float | None = None
    cut_at: float = -math.inf
    since: float = -math.inf
    futile_since: float = -math.inf
    peak: float = 0.0
    recovery_time: float = 0.0
    futile_cuts: int = 0

    def is_about_current_rate(self, now: float, started: float) -> bool:
        """Return whether a refusal may lower the current limit."""
        # The last cut must be at least 0.5 s ago, and the refused attempt must have started after that cut.
        # Exceeding the service's limit once gets many requests in flight refused. They must not cut the rate several times.
        return started >= self.cut_at and now - self.cut_at >= SPACING

    def cut(self, now: float, achieved: float, retry_after: float = 0.0) -> None:
        """Lower the limit after a refusal that `is_about_current_rate` accepts."""
        if not self.futile_cuts:
            self.futile_since = now
        self.futile_cuts += 1
        self.cut_at = now
        if self.limit is None:
            peak, self.recovery_time = max(achieved, _DEFAULT_RATE), _FIRST_RECOVERY_TIME
        elif self._refuses_everything(achieved):
            # These refusals are no evidence about the rate. If each of them cut the rate, the recovery would take minutes.
            # Instead, attempts become rarer with the time since the first refusal.
            self.limit = max(FLOOR, min(self.limit, _REFUSED_INTERVAL_DIVISOR / max(SPACING, now - self.futile_since)))
            return
        else:
            peak = max(FLOOR / self.beta, min(self.limit, _MAX_LAG * achieved))
            recovery_time = max(_RECOVERY_TIME, _MIN_RECOVERY_REQUESTS / peak, _RECOVERY_PER_RETRY_AFTER * retry_after)
            self.recovery_time = min(recovery_time, _MAX_RECOVERY_TIME, _MAX_RECOVERY_GROWTH * self.recovery_time)
        self.peak = peak
        self.since = now
        self.limit = self.beta * peak

    def grow(self, now: float, achieved: float) -> None:
        """Raise the limit according to the time since the last cut, but never far above the achieved rate."""
        if self.limit is None:
            return
        if self.futile_cuts:
            if self._refuses_everything(achieved):  # until now, so the allowed rate is as unknown as at the first cut
                self.peak, self.recovery_time, self.since = _DEFAULT_RATE, _FIRST_RECOVERY_TIME, now
            self.futile_cuts = 0
        lead = _MAX_LEAD * achieved
        if self.recovery_time == _FIRST_RECOVERY_TIME:
            lead = max(lead, _INITIAL_LEAD)
            if now - self.cut_at < SPACING:
                self.peak = max(self.peak, achieved)  # includes answers to requests in flight at the first cut
        x = (now - self.since) / self.recovery_time - 1  # -1 at the cut, 0 where the limit is back at `peak`
        rise = (1 - self.beta) * x**3 * (_PROBING_FACTOR if x > 0 else 1)
        self.limit = max(self.limit, min(self.peak * (1 + rise), lead))

    def _refuses_everything(self, achieved: float) -> bool:
        # This is assumed after three cuts without a success in between, or after two cuts if the achieved rate is 0.
        return self.futile_cuts > _MAX_FUTILE_CUTS or (self.futile_cuts > 1 and not achieved)

    def exclude_time(self, seconds: float) -> None:
        """Exclude this many seconds from the curve: nothing was sent during that time, so nothing was learned."""
        self.since += seconds
