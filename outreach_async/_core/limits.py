"""The limits on a client's requests: when each attempt may start, in calls and in bulk runs.

A client and all its copies share one `RateLimiter`, and therefore one queue. It combines the configured rate, the limits that the
service states (`Retry-After`), the limit learned from refusals, and the number of requests in flight. Times are on the event
loop's clock. Only `WaitingLine` and `RatePoller`, which renews a client's share of a common rate, wait.

There is no learned limit until the first refusals. They cut the limit to 0.7 of the achieved rate. Then the limit rises along a
cubic curve: quickly at first, slowly near the rate that was refused, and then ever faster, in case the service now allows more.
The curve is proportional to the rate, so the client exceeds a low limit of the service by less than a high one.

Some services also refuse single requests at random. A low limit shows how many: the service's limit refuses nothing there.
Near the refused rate, the next cut then takes more refusals than that. A pause for a `Retry-After` counts in no measured rate.

While the service refuses everything, no rate can be learned. Attempts become ever rarer. When the service accepts an attempt
again, the search for the allowed rate starts over.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, runtime_checkable
from uuid import uuid4
from weakref import WeakSet

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async._core.retry import FailedAttempt, FailureKind, RetryPolicy
from outreach_async.errors import InvalidRequest, OutreachError

_LOGGER: Final = logging.getLogger("outreach_async")  # of `logs`, which needs this module

_BURST_TIME: Final = 0.1  # the token bucket holds what arrives in this many seconds, and at least one token
# An attempt may start this many seconds before its scheduled time, which no service notices, so a late timer delays no schedule.
TOLERANCE: Final = 0.01
_START_FRACTION: Final = 0.5  # fraction of the base rate at which the ramp after a pause starts
_DURATION: Final = 2.0  # longest ramp after a pause, in seconds


def unix_time() -> float:
    """Return the Unix time, by the function that freezegun may have put in the place of `time.time`."""
    return time.time()


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
    """Spaces the starts of attempts evenly, at a rate limit that may change: after a pause, it rises for up to two seconds."""

    # The schedule stores the slot (the scheduled time) of the last start, so a new limit takes effect at once. After a pause, the
    # limit rises from half to all of a base rate, to prevent a burst. A short pause has held up few requests.

    _slot: float = -math.inf
    _ramp_began: float = -math.inf
    _duration: float = _DURATION
    _base: float = 0.0

    def start_slowly(self, at: float, base: float, pause: float) -> None:
        self._ramp_began, self._base, self._duration = at, base, min(_DURATION, pause)

    def rate(self, limit: float | None, now: float) -> float | None:
        """Return the rate limit at the time `now`, in requests per second; `None` if there is no limit."""
        if now - self._ramp_began >= self._duration:
            return limit
        rate = self._base * (_START_FRACTION + (1 - _START_FRACTION) * max(0.0, now - self._ramp_began) / self._duration)
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

# A limit of the service does not refuse requests far below the rate that it has refused. Refusals there come at random.
_LOW: Final = 0.9  # the limit counts as low below this fraction of that rate; in the first two recoveries, below that rate
_TOLERATED: Final = 2.0  # maximum number of refusals that are tolerated at once
_TOLERATED_TIME: Final = 0.0125  # the same in seconds of the achieved rate, so that a low rate is cut by the first refusal
_TOLERATED_SHARE: Final = 0.02  # maximum fraction of requests whose refusal is tolerated for long, as in BBR version 3
_EXCESS: Final = 2.0  # near the refused rate, refusals are tolerated up to this ratio to their frequency at a low limit

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

    def exclude_time(self, seconds: float) -> None:
        """Exclude this many seconds from the current bucket, so that a pause does not lower the measured rate."""
        self._began += seconds
        self._due += seconds


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
    refused: float = 0.0
    low_refused: float = 0.0
    low_accepted: float = 0.0

    def record_refusals(self, started: float, refused: int = 1) -> None:
        """Record refusals of attempts that started at the time `started` or later."""
        # Exceeding the service's limit once gets many requests in flight refused. They must not cut the rate several times.
        if started >= self.cut_at:
            self.refused += refused
            self.low_refused += refused if self._is_low else 0

    def is_exceeded(self, now: float, achieved: float) -> bool:
        """Return whether the recorded refusals show that the limit is too high."""
        is_unproven = self._is_low or self.limit is None
        tolerated = min(_TOLERATED, _TOLERATED_TIME * achieved if is_unproven else self.low_refused)
        return self.refused > tolerated and now - self.cut_at >= SPACING

    @property
    def _is_low(self) -> bool:
        low = self.peak if self.recovery_time < _RECOVERY_TIME else _LOW * self.peak
        return self.limit is not None and self.limit < low and not self.futile_cuts

    def cut(self, now: float, achieved: float, retry_after: float = 0.0) -> None:
        """Lower the limit after a refusal if `is_exceeded`."""
        # Refusals at a low limit that cut it again were not random. Otherwise, older observations count half.
        self.low_refused = 0.0 if self._is_low else self.low_refused / 2
        self.low_accepted /= 2
        if not self.futile_cuts:
            self.futile_since = now
        self.futile_cuts += 1
        self.cut_at, self.refused = now, 0.0
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

    def grow(self, now: float, achieved: float, accepted: int = 1) -> None:
        """Raise the limit according to the time since the last cut, but never far above the achieved rate."""
        if self.limit is None:
            return
        if self.futile_cuts:
            if self._refuses_everything(achieved):  # until now, so the allowed rate is as unknown as at the first cut
                self.peak, self.recovery_time, self.since = _DEFAULT_RATE, _FIRST_RECOVERY_TIME, now
            self.futile_cuts = 0
        share = _TOLERATED_SHARE
        if self._is_low:
            self.low_accepted += accepted
        else:
            share = min(share, _EXCESS * self.low_refused / max(1.0, self.low_accepted))
        self.refused = max(0.0, self.refused - share * accepted)
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


# A task is woken before its timer ends only if it gains this many seconds. Otherwise every response, as it raises the limit,
# would wake the first waiting task.
_MIN_GAIN: Final = 0.001


class WaitingLine:
    """A queue of waiting tasks, served in FIFO order. Only the first task sets a timer. The others wait to be woken."""

    # A task leaves the queue if it is served or cancelled. It then wakes the next task. The next task checks for itself whether
    # it may start. If it is cancelled instead, it wakes the task after it, so no wake-up is lost.

    def __init__(self) -> None:
        self.queue: deque[anyio.Event] = deque()  # an event is set to wake its task, which then checks again
        self._until = -math.inf  # when the timer of the first task ends

    async def wait(self, take: Callable[[float], float]) -> None:
        place = anyio.Event()
        self.queue.append(place)
        try:
            if self.queue[0] is not place:
                await place.wait()
            # Check again after each wait: the time from which a start is possible may have moved in either direction.
            while (again := take(now := anyio.current_time())) > now:
                if place.is_set():
                    place = self.queue[0] = anyio.Event()
                self._until = again
                with anyio.CancelScope(deadline=again):
                    await place.wait()
        finally:
            first = self.queue[0] is place
            self.queue.remove(place)
            if first:
                self._until = -math.inf  # the next task sets no timer before it has checked
                if self.queue:
                    self.queue[0].set()

    def wake_first(self, again: float) -> None:
        """Wake the first waiting task if its timer ends later than `again`. The task then checks whether it may start."""
        if self.queue and self._until > again + _MIN_GAIN:
            self.queue[0].set()


@attrs.define(eq=False)
class RetryAfterGate:
    opens_at: float = -math.inf
    reason: str = ""
    run: int | None = None  # the one whose request was refused

    def describe(self, now: float) -> str:
        run = "" if self.run is None else f" run {self.run}"
        return f"the service asked{run} to wait {self.opens_at - now:.0f} s more"

    def close(self, attempt: FailedAttempt, seconds: float) -> None:
        until = attempt.ended + seconds
        if until > self.opens_at:
            self.opens_at, self.run = until, attempt.run
            self.reason = f"{attempt.description} and asked to wait {attempt.retry_after:.3g} s"


@attrs.define
class Usage:
    """Counts of a client's attempts and seconds of its pauses, since they were last read."""

    wanted: int = 0
    completed: int = 0
    refused: int = 0
    retry_after: float = 0.0
    paused: float = 0.0


TOO_MANY_REQUESTS: Final = 429
_JITTER: Final = 0.1  # maximum jitter of a `Retry-After` as a fraction, so that clients do not resume at the same time
_MAX_JITTER: Final = 1.0  # maximum jitter added to a `Retry-After`, in seconds
_MIN_BASE_RATE: Final = 1.0  # minimum base rate in requests per second, if no rate limit was learned; see `_base_rate`
_THROTTLED_PERIOD: Final = 1.0  # seconds for which a client counts as throttled after an attempt was delayed
_LOWERED: Final = 0.9  # A share counts as lowered if its rate is less than this fraction of the previous rate
_IDLE_TIME: Final = 1.0  # seconds without any attempt after which a client counts as idle


class RateLimiter:
    """Decides when the next attempt of a client may start. Waiting attempts start in FIFO order."""

    # For each attempt that starts, the caller must call exactly one of `on_success`, `on_failure` and `on_cancelled`.

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        max_in_flight: int,
        rate: float | None = None,
        needs_share: bool = False,
        wall_clock: Callable[[], float] = unix_time,
    ) -> None:
        self.max_in_flight = max_in_flight
        self._policy = policy
        self.wall_clock = wall_clock
        self._bucket = None if rate is None else TokenBucket(rate)
        self._usage = Usage() if needs_share else None
        self._loop: object = None
        self._reset()
        self.reset_after_fork()
        _ALL_LIMITERS.add(self)

    def _reset(self) -> None:
        """Reset everything that was learned from responses: the gate, the limits and the measured rate."""
        self.gate = RetryAfterGate()
        self._is_learning = False  # while nothing was refused
        self._share_expires_at = math.inf if self._usage is None else -math.inf
        self._hold_until = self._lowered_at = -math.inf
        self._meter, self._cubic, self._schedule = RateMeter(), CubicLimit(), Schedule()
        self._delayed_until = self._excluded_until = -math.inf
        self._ended_at = math.inf  # when the last attempt ended

    def reset_after_fork(self) -> None:
        """Reset the queue and `in_flight` in a newly forked child process, where the tasks of the parent process do not run."""
        self.in_flight = 0
        self.waiters = WaitingLine()
        self._queue = self.waiters.queue

    def use_loop(self, loop: object, clock: Callable[[], float]) -> None:
        # The clocks of event loops have different origins. Times that were stored in an earlier loop, for example by a previous
        # `asyncio.run`, are meaningless in a new loop. The token bucket starts empty, because its fill level is unknown.
        if loop is self._loop:
            return
        if self._loop is not None:
            self._reset()
            if self._bucket is not None:
                self._bucket.empty(clock())
        self._loop = loop

    @property
    def limit(self) -> float | None:
        """The lower of the configured and the learned rate limit, in requests per second; `None` if there is no limit."""
        limits = (None if self._bucket is None else self._bucket.rate, self._cubic.limit)
        return min((limit for limit in limits if limit is not None), default=None)

    def is_throttled(self, now: float) -> bool:
        """Return whether a limit delays an attempt, or has delayed an attempt within the last second."""
        return now - self._delayed_until < _THROTTLED_PERIOD

    # Shares

    def apply_share(self, rate: float, expires_at: float, hold_until: float = -math.inf) -> None:
        now = anyio.current_time()
        if self._bucket is None:
            self._bucket = TokenBucket(rate)
        else:
            if rate < _LOWERED * self._bucket.rate:
                self._lowered_at = now
            self._bucket.change_rate(rate, now)
        self._share_expires_at, self._hold_until = expires_at, hold_until
        self._pause(now, hold_until)
        self._delayed_until = min(self._delayed_until, now)
        self.waiters.wake_first(self._earliest_start(now))

    def take_usage(self, now: float) -> Usage:
        # Attempts are counted only if the client needs a share of a common rate; see `apply_share`.
        later = max(0.0, self._excluded_until - now)
        usage, self._usage = self._usage or Usage(), self._usage and Usage(paused=later)
        usage.wanted += len(self._queue)
        usage.retry_after = max(0.0, self.gate.opens_at - now)
        usage.paused -= later
        return usage

    # Starts

    def try_start(self, now: float) -> bool:
        """Start an attempt if the limits allow it now and no other attempt is waiting. Return whether it was started."""
        # While others wait in line, a new attempt must queue behind them: otherwise new calls could starve a retry.
        if self.in_flight >= self.max_in_flight or self._queue:
            return False
        if not self.in_flight and now - self._ended_at > _IDLE_TIME:
            # Nothing was sent, so nothing was learned: the limit must not change, nor the measured rate fall.
            self._exclude_time(self._ended_at, now)
        is_limited = self._is_learning or self._usage is not None or (self._bucket is not None and self._bucket.opens_at > now)
        if is_limited:
            return self.start_if_due(now) <= now
        self.in_flight += 1  # the path of a healthy service
        if self._bucket is not None:
            self._bucket.record_start(now)
        return True

    def start_if_due(self, now: float) -> float:
        """Start an attempt if the limits allow it now. Return the earliest time at which they allow it."""
        # If this time is not later than `now`, the attempt was started.
        if self.in_flight >= self.max_in_flight:
            return math.inf
        opens_at = self._earliest_start(now)
        if opens_at > now:
            self._delayed_until = opens_at
            return opens_at
        self.in_flight += 1
        if self._bucket is not None:
            self._bucket.record_start(now)
        if self._is_learning:
            self._schedule.record_start(self._cubic.limit, now)
        if self._usage is not None:
            self._usage.wanted += 1
        return opens_at

    def _earliest_start(self, now: float) -> float:
        """Return the earliest time at which an attempt may start. The results of other attempts may change it."""
        opens_at = self._hold_until if self._bucket is None else max(self._bucket.opens_at, self._hold_until)
        if self._is_learning:
            opens_at = max(opens_at, self._schedule.next_start(self._cubic.limit, now), self.gate.opens_at)
        return opens_at if max(opens_at, now) < self._share_expires_at else math.inf

    # Results of attempts

    def on_cancelled(self, now: float) -> None:
        self.in_flight -= 1
        self._ended_at = now
        self.waiters.wake_first(self._earliest_start(now))

    def on_success(self, now: float, started: float, paused_at: float | None = None) -> None:
        self.in_flight -= 1
        self._ended_at = now
        if self._usage is not None:
            self._usage.completed += 1
        if self._is_learning or paused_at is not None:
            self._learn_from_success(now, paused_at)
        self._meter.add(now, started)
        if self._queue:
            self.waiters.wake_first(self._earliest_start(now))

    def on_failure(self, attempt: FailedAttempt, *, closes_gate: bool = True) -> None:
        if attempt.kind in {FailureKind.UNCLEAR, FailureKind.FINAL}:  # the service answered: a success for the rate
            self.on_success(attempt.ended, attempt.started)
            return
        if attempt.kind is FailureKind.REFUSED:
            self._learn_from_refusal(attempt, closes_gate=closes_gate)
        self.on_cancelled(attempt.ended)

    def _learn_from_success(self, now: float, paused_at: float | None) -> None:
        self._is_learning = True
        if paused_at is not None:
            self._exclude_time(paused_at, now)
        self._cubic.grow(now, self._meter.rate(now))
        if paused_at is not None:  # after the limit has grown: refusals may have cut it to almost nothing
            self._schedule.start_slowly(now, self._base_rate(now), now - paused_at)

    def _learn_from_refusal(self, attempt: FailedAttempt, *, closes_gate: bool) -> None:
        self._is_learning = True
        now, retry_after = attempt.ended, attempt.retry_after or 0.0
        if self._usage is not None:  # the rate that assigns the shares learns from the refusals of all clients
            # Many requests in flight may be refused at once. After the share was lowered, the others add no information.
            self._usage.refused += attempt.is_about_rate and attempt.started >= self._lowered_at
        elif attempt.is_about_rate:
            achieved = self._meter.rate(now)
            self._cubic.record_refusals(attempt.started)
            if self._cubic.is_exceeded(now, achieved):
                self._cubic.cut(now, achieved, retry_after)
        if not (retry_after and closes_gate):
            return
        # Many clients are asked to wait until the same time: the jitter spreads them. If many requests in flight are refused at
        # once, only the longest wait counts.
        before = self.gate.opens_at
        jitter = self._policy.jitter() * min(_MAX_JITTER, _JITTER * retry_after)
        self.gate.close(attempt, min(retry_after, self._policy.retry_after_cap) + jitter)
        if self.gate.opens_at > max(now, before):
            self._schedule.start_slowly(self.gate.opens_at, self._base_rate(now), self.gate.opens_at - now)
            self._pause(now, self.gate.opens_at)

    def _pause(self, now: float, until: float) -> None:
        """Record a pause until a later time, which the next report excludes."""
        seconds = self._exclude_time(now, until)
        if self._usage is not None:
            self._usage.paused += seconds

    def _exclude_time(self, since: float, until: float) -> float:
        """Record that nothing is sent in a period: the limit does not grow, nor the measured rate fall. Return its length."""
        # If periods overlap, the overlap counts only once.
        seconds = max(0.0, until - max(since, self._excluded_until))
        self._cubic.exclude_time(seconds)
        self._meter.exclude_time(seconds)
        self._excluded_until = max(self._excluded_until, until)
        return seconds

    def _base_rate(self, now: float) -> float:
        """Return the base rate in requests per second. After a pause, the rate limit rises from half to all of the base rate."""
        return self._cubic.limit or max(self._meter.rate(now), _MIN_BASE_RATE)


_ALL_LIMITERS: Final[WeakSet[RateLimiter]] = WeakSet()


def reset_all_after_fork() -> None:
    for limiter in _ALL_LIMITERS:
        limiter.reset_after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=reset_all_after_fork)


# A rate that several clients share.


def _require(*, positive: bool) -> Any:
    def check(_owner: object, attribute: attrs.Attribute[float], value: Any) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and (value > 0 if positive else value >= 0) and value < math.inf):
            bound = "greater than 0" if positive else "of at least 0"
            raise InvalidRequest(f"{attribute.name}: expected a finite number {bound}, got {value!r}; pass a number such as 1.0")

    return check


@attrs.frozen(kw_only=True)
class RateUsage:
    """A client's report of its attempts since its previous report.

    Attributes:
        client: Id of the client, unique among those that share the rate.
        seconds: Length of the reported period, in seconds, without pauses
            for a `Retry-After` or a hold; 0 in a client's first report.
        wanted: Number of attempts that started in the period or are
            waiting at its end.
        completed: Number of attempts that the service accepted.
        refused: Number of attempts that the service refused with
            status 429. Attempts that started before the client's share
            was last lowered do not count, because they were sent at a
            higher rate.
        retry_after: Seconds until the longest wait that the service asked
            for is over; 0 if none lasts on.

    Raises:
        InvalidRequest: A number is negative or not finite.

    Example:
        ```python
        usage = RateUsage(client="host-1", seconds=0.25, wanted=40, completed=12, refused=1)
        print(usage.wanted / usage.seconds)  # -> 160.0
        ```
    """

    client: str
    seconds: float = attrs.field(validator=_require(positive=False))
    wanted: int = attrs.field(validator=_require(positive=False))
    completed: int = attrs.field(validator=_require(positive=False))
    refused: int = attrs.field(validator=_require(positive=False))
    retry_after: float = attrs.field(default=0.0, validator=_require(positive=False))


@attrs.frozen(kw_only=True)
class RateShare:
    """A client's share of a common rate, valid for a limited time.

    Attributes:
        rate: Requests per second that the client may send.
        expires_in: Seconds from the client's report until the share
            expires. The client then sends nothing until it receives a new
            share.
        hold: Number of seconds for which the client sends nothing after it
            receives the share.

    Raises:
        InvalidRequest: `rate` or `expires_in` is not positive, `hold` is
            negative, or one of them is not finite.

    Example:
        ```python
        print(RateShare(rate=12.5, expires_in=1.5))  # -> RateShare(rate=12.5, expires_in=1.5, hold=0.0)
        ```
    """

    rate: float = attrs.field(validator=_require(positive=True))
    expires_in: float = attrs.field(validator=_require(positive=True))
    hold: float = attrs.field(default=0.0, validator=_require(positive=False))


@runtime_checkable
class Rate(Protocol):
    """A rate that clients share: `SharedRate`, `RedisRate` or your own.

    Example:
        ```python
        class Fixed:
            async def renew(self, usage: RateUsage) -> RateShare:
                return RateShare(rate=5.0, expires_in=2.0, hold=usage.retry_after)


        async with OutreachClient(transport=FakeTransport(fake), workspace="space_1", rate=Fixed()) as limited:
            print(len(await limited.workspaces.fields()))  # -> 37
        ```
    """

    async def renew(self, usage: RateUsage, /) -> RateShare:
        """Record a client's usage and return its next share.

        Each client calls this method two to four times a second, never
        concurrently. Requests do not wait for the result. If this method
        raises an exception, the client logs it, and keeps its last share
        until that share expires.

        Example:
            ```python
            usage = RateUsage(client="host-1", seconds=0.25, wanted=40, completed=12, refused=0)
            print((await SharedRate(limit=50.0).renew(usage)).rate)  # -> 50.0
            ```
        """


_INTERVAL: Final = 0.25  # seconds between two usage reports from a client that sends requests
_IDLE_INTERVAL: Final = 0.5  # the same for an idle client, whose next request then need not wait for a share


class RatePoller:
    """Renews a client's share in a background task: reports the client's usage to a `Rate`, and applies the returned share."""

    # Requests never wait for a report. If reports fail or hang, the client's last share expires, and the client sends nothing
    # until a report succeeds.

    def __init__(self, rate: Rate, limiter: RateLimiter) -> None:
        self._rate = rate
        self._limiter = limiter
        self._tasks: TaskGroup | None = None
        self.failure: str | None = None

    def require_running(self) -> None:
        if self._tasks is None:
            raise InvalidRequest("rate: a client with a shared rate works only while it is open; use `async with` on the client")

    async def start(self) -> None:
        if self._tasks is not None:
            raise InvalidRequest("rate: the client is already open; use a client with a shared rate in only one `async with`")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run)

    async def stop(self) -> None:
        if self._tasks is None:  # the client was not opened, or has been closed already
            return
        tasks, self._tasks = self._tasks, None
        tasks.cancel_scope.cancel()
        # The error of the caller's block, if any, is not passed on: the task group would wrap it in an exception group.
        await tasks.__aexit__(None, None, None)

    async def _run(self) -> None:
        client = uuid4().hex  # made here, because a forked process must not report as its parent
        reported_at = anyio.current_time()
        while True:
            now = anyio.current_time()
            counts = attrs.asdict(self._limiter.take_usage(now))
            seconds = max(0.0, now - reported_at - counts.pop("paused"))
            usage = RateUsage(client=client, seconds=seconds, **counts)
            reported_at = now
            await self._report(usage, now)
            await anyio.sleep(_INTERVAL if usage.wanted else _IDLE_INTERVAL)

    async def _report(self, usage: RateUsage, now: float) -> None:
        """Report the usage up to the time `now`, and apply the share that the rate returns."""
        # A failure is logged, and the last share stays valid until it expires.
        try:
            share = await self._rate.renew(usage)
            if not isinstance(share, RateShare):
                raise TypeError(f"renew() returned {type(share).__name__} instead of RateShare")  # noqa: TRY301 - logged below
        except Exception as error:  # noqa: BLE001 - a failing rate must not end the caller's tasks
            # The message of another library's error may quote a password.
            text = f"{type(error).__name__}: {error}" if isinstance(error, OutreachError | TypeError) else type(error).__name__
            if self.failure is None:
                _LOGGER.warning("rate: renewing the share failed (%s); nothing is sent after the last share expires", text)
            self.failure = text
            return
        if self.failure is not None:
            self.failure = None
            _LOGGER.info("rate: renewing the share works again")
        # The expiry counts from the report, and the hold from the reply: both choices are the cautious ones.
        self._limiter.apply_share(share.rate, now + share.expires_in, anyio.current_time() + share.hold)
