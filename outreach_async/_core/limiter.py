"""The rate limiter of a client. It decides when each attempt starts, in calls and in bulk runs.

A client and all its copies share one limiter, and therefore one queue. The limiter combines the configured rate, the limits that
the service states (`Retry-After`), the limit learned from refusals, and the number of requests in flight.
The module `rate` contains the parts that do no I/O; only this module waits. Times are on the event loop's clock.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Final
from weakref import WeakSet

import anyio
import attrs

from outreach_async._core.rate import CubicLimit, RateMeter, Schedule, TokenBucket
from outreach_async._core.retry import FailedAttempt, FailureKind, RetryPolicy

# A task is woken before its timer ends only if it gains this many seconds. Otherwise every response, as it raises the limit,
# would wake the first waiting task.
_MIN_GAIN: Final = 0.001


class FifoWaiters:
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

    def close(self, attempt: FailedAttempt, seconds: float) -> None:
        until = attempt.ended + seconds
        if until > self.opens_at:
            self.opens_at = until
            self.reason = f"{attempt.description} and asked to wait {attempt.retry_after:.3g} s"


@attrs.define
class Usage:
    """Counts of a client's attempts since the counts were last read."""

    wanted: int = 0
    completed: int = 0
    refused: int = 0
    retry_after: float = 0.0


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
        wall_clock: Callable[[], float] = time.time,
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
        self.waiters = FifoWaiters()
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
        self._delayed_until = min(self._delayed_until, now)
        self.waiters.wake_first(self._earliest_start(now))

    def take_usage(self) -> Usage:
        # Attempts are counted only if the client needs a share of a common rate; see `apply_share`.
        usage, self._usage = self._usage or Usage(), self._usage and Usage()
        usage.wanted += len(self._queue)
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
            self._meter.restart(now, now)
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
            # Nothing was sent during the pause. Without `_exclude_time`, the limit would grow as if it had been in use during the
            # pause, and without `restart`, the measured rate would fall.
            self._exclude_time(paused_at, now)
            self._meter.restart(now, now)
        self._cubic.grow(now, self._meter.rate(now))
        if paused_at is not None:  # after the limit has grown: refusals may have cut it to almost nothing
            self._schedule.start_slowly(now, self._base_rate(now))

    def _learn_from_refusal(self, attempt: FailedAttempt, *, closes_gate: bool) -> None:
        self._is_learning = True
        now, retry_after = attempt.ended, attempt.retry_after or 0.0
        if self._usage is not None:  # the rate that assigns the shares learns from the refusals of all clients
            # Many requests in flight may be refused at once. After the share was lowered, the others add no information.
            self._usage.refused += attempt.is_about_rate and attempt.started >= self._lowered_at
            self._usage.retry_after = max(self._usage.retry_after, min(retry_after, self._policy.retry_after_cap))
        elif attempt.is_about_rate and self._cubic.is_about_current_rate(now, attempt.started):
            self._cubic.cut(now, self._meter.rate(now), retry_after)
        if not (retry_after and closes_gate):
            return
        # Many clients are asked to wait until the same time: the jitter spreads them. If many requests in flight are refused at
        # once, only the longest wait counts.
        before = self.gate.opens_at
        jitter = self._policy.jitter() * min(_MAX_JITTER, _JITTER * retry_after)
        self.gate.close(attempt, min(retry_after, self._policy.retry_after_cap) + jitter)
        if self.gate.opens_at > max(now, before):
            self._schedule.start_slowly(self.gate.opens_at, self._base_rate(now))
            self._exclude_time(now, self.gate.opens_at)
            self._meter.restart(now, self.gate.opens_at)

    def _exclude_time(self, since: float, until: float) -> None:
        """Record a period in which nothing is sent. The learned limit does not grow during this period."""
        # If periods overlap, the overlap counts only once.
        since = max(since, self._excluded_until)
        if until > since:
            self._cubic.exclude_time(until - since)
            self._excluded_until = until

    def _base_rate(self, now: float) -> float:
        """Return the base rate in requests per second. After a pause, the rate limit rises from half to all of the base rate."""
        return self._cubic.limit or max(self._meter.rate(now), _MIN_BASE_RATE)


_ALL_LIMITERS: Final[WeakSet[RateLimiter]] = WeakSet()


def reset_all_after_fork() -> None:
    for limiter in _ALL_LIMITERS:
        limiter.reset_after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=reset_all_after_fork)
