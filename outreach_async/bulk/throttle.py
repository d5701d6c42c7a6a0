"""Throttle one run: combine the decisions about rate, quota and breaker. Of these modules, only this one waits."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Literal

import anyio
from anyio.lowlevel import checkpoint

from outreach_async.bulk.breaker import FIRST_PAUSE, MIN_PAUSE, Breaker, FailureStreak, FailureWindow, Reachability
from outreach_async.bulk.rate import CubicLimit, QuotaTracker, RateMeter, Schedule, SlowStart, has_quota, parse_quota
from outreach_async.call import RetryDecision
from outreach_async.errors import BulkStopped, BulkSuspended, OutreachError
from outreach_async.limits import RetryBudget
from outreach_async.retry import FailureKind, RetryPolicy, retry_cost

_MIN_GAIN: Final = 0.001
"""Minimum gain in seconds for which the first task is woken: a limit that grows slightly with every response is no reason."""


class _Waiter:
    """A waiting task. It may be woken early, and then checks again."""

    __slots__ = ("_event", "until")

    _event: anyio.Event  # set by the first `wait`, before which no other task sees the place

    def __init__(self) -> None:
        self.until = -math.inf

    async def wait(self, until: float) -> None:
        self.until, self._event = until, anyio.Event()
        with anyio.CancelScope(deadline=until):
            await self._event.wait()

    def wake(self) -> None:
        self._event.set()


class FifoWaiters:
    """A queue: first come, first served.

    A task that leaves, served or cancelled, wakes the next one, which checks for itself. No turn is handed over, so a cancelled
    task cannot lose one.
    """

    def __init__(self) -> None:
        self._queue: deque[_Waiter] = deque()
        self._sleeping: dict[_Waiter, None] = {}  # an ordered set, so that a simulated run can be reproduced

    def __bool__(self) -> bool:
        return bool(self._queue)

    async def wait(self, not_before: float, take: Callable[[float], float]) -> None:
        """Wait for a turn and take it.

        Args:
            not_before: The instant before which the task does not join the queue.
            take: Takes the turn at an instant if possible, and returns the instant from which it is possible. Its exceptions end
                the wait.
        """
        # A retry sleeps outside the queue until its backoff ends: at the head of the queue it would hold up rows that may start.
        await self._sleep(not_before)
        place = _Waiter()
        self._queue.append(place)
        try:
            while self._queue[0] is not place:
                await place.wait(math.inf)
            # Check again after each wait: what delays the start may have moved in either direction meanwhile.
            while (again := take(now := anyio.current_time())) > now:
                await place.wait(again)
        finally:
            self._remove(place)

    async def _sleep(self, until: float) -> None:
        if until <= anyio.current_time():
            await checkpoint()
            return
        place = _Waiter()
        self._sleeping[place] = None
        try:
            await place.wait(until)
        finally:
            del self._sleeping[place]

    def _remove(self, place: _Waiter) -> None:
        first = self._queue[0] is place
        self._queue.remove(place)
        if first and self._queue:
            self._queue[0].wake()

    def wake_first(self, again: float) -> None:
        """Wake the first task to check again, if it waits beyond this instant."""
        if self._queue and self._queue[0].until > again + _MIN_GAIN:
            self._queue[0].wake()

    def wake_all(self) -> None:
        """Wake all tasks: each reaches the head of the queue in turn, and gets the error that ended the run."""
        for place in (*self._sleeping, *self._queue):
            place.wake()


_TOO_MANY_REQUESTS: Final = 429
_JITTER: Final = 0.1
"""Maximum jitter added to a `Retry-After`, as a fraction of it: it spreads the clients that wait for the same instant."""
_MAX_JITTER: Final = 1.0
"""Maximum jitter added to a `Retry-After`, in seconds."""
_MIN_BASE_RATE: Final = 1.0
"""Minimum base rate, in requests per second, for the ramp after a pause if no limit was learned."""
_THROTTLED_PERIOD: Final = 1.0
"""Seconds for which a run counts as throttled after an attempt was delayed."""


class RunThrottle:
    """Decides when a run's next attempt may start, and whether the row or the service caused a failure.

    Args:
        policy: The retry policy of the run's client.
        max_outage: Seconds without any success after which the run is suspended.
        wall: Returns Unix time in seconds, for quota headers that give a reset as Unix time.

    Attributes:
        halted: The error that ended the run; `None` while the run continues.
        drained: The error that ends every wait for a start once the run is drained; `None` before.
        pause_reason: The reason for the last pause.
    """

    def __init__(self, policy: RetryPolicy, *, max_outage: float = 900.0, wall: Callable[[], float] = time.time) -> None:
        self.halted: OutreachError | None = None
        self.drained: OutreachError | None = None
        self.pause_reason = ""
        self._policy = policy
        self._max_outage = max_outage
        self._wall = wall
        self._fast_path = True  # nothing has failed, and no quota header was seen: there is nothing to decide
        self._in_flight = 0
        self._gate_opens_at = self._delayed_until = -math.inf
        self._meter, self._cubic, self._schedule, self._slow_start = RateMeter(), CubicLimit(), Schedule(), SlowStart()
        self._failure_window, self._breaker = FailureWindow(), Breaker()
        self._failure_streak, self._reachability = FailureStreak(), Reachability()
        self._quota = QuotaTracker()
        self._budget = RetryBudget(policy.budget)
        self._waiters = FifoWaiters()

    @property
    def limit(self) -> float | None:
        """The learned rate limit in requests per second; `None` until the first refusal."""
        return self._cubic.limit

    @property
    def opens_at(self) -> float:
        """The instant at which the pause ends; infinitely far in the past if there is none."""
        return max(self._gate_opens_at, self._breaker.opens_at)

    def state(self, now: float) -> Literal["running", "throttled", "paused"]:
        """Return whether the run is running, throttled or paused."""
        if self.opens_at > now or not self._breaker.closed:
            return "paused"
        return "throttled" if self._waiters or now - self._delayed_until < _THROTTLED_PERIOD else "running"

    def try_start(self, now: float) -> bool:
        """Start an attempt now, if the flow allows it and no other attempt is waiting."""
        if self._fast_path:  # the fast path of a healthy run, taken once per row
            self._in_flight += 1
            return True
        # While others wait in line, a new attempt must queue behind them: otherwise rows that keep arriving could starve a retry.
        return self.halted is None and not self._waiters and self._start_if_due(now) <= now

    async def wait_and_start(self, not_before: float) -> None:
        """Wait until an attempt may start, at `not_before` or later, and start it. First come, first served.

        Raises:
            BulkStopped: The run has ended, or it ends or is drained during the wait.
        """
        self._raise_if_over()
        await self._waiters.wait(not_before, self._start_if_due_or_raise)

    def halt(self, error: OutreachError) -> None:
        """End the run: every current and later wait for a start raises the error."""
        self.halted = self.halted or error
        self._fast_path = False
        self._waiters.wake_all()

    def drain(self) -> None:
        """End every wait: from now on, an attempt that cannot start at once does not start."""
        self.drained = self.drained or BulkStopped("the run ended before this row was sent or retried")
        self._waiters.wake_all()

    def cancel_start(self) -> None:
        """Release a reserved start: the attempt does not start after all."""
        self._in_flight -= 1
        self._quota.refund()
        self._breaker.cancel_probe()
        self._waiters.wake_first(-math.inf)

    def on_success(self, now: float, started: float, headers: Mapping[str, str]) -> None:
        """Record a successful attempt."""
        self._in_flight -= 1
        self._failure_window.results += 1
        if not self._fast_path or has_quota(headers):
            self._on_healthy(now, started, headers)
        self._meter.add(now, started)

    def on_failure(
        self, error: OutreachError, evidence: FailureKind, *, blamed: int, asked: float | None, started: float, now: float
    ) -> RetryDecision:
        """Record a failed attempt and return the verdict; see `Flow`."""
        self._in_flight -= 1
        self._fast_path = False
        self._quota.refund()
        if evidence is FailureKind.FINAL:  # the row is refused for good, but the service answered: a success for the flow
            self._failure_window.record_success()
            self._on_healthy(now, started, error.headers)
            self._meter.add(now, started)
            verdict = RetryDecision.GIVE_UP
        elif evidence is FailureKind.REFUSED:
            verdict = self._on_refusal(error, asked, started, now)
        else:
            verdict = self._on_fault(error, evidence, blamed, started, now)
        if self.halted is not None and verdict is not RetryDecision.GIVE_UP:
            return RetryDecision.STOP_RUN
        self._waiters.wake_first(self._earliest_start(now))
        return verdict

    # Results of attempts

    def _on_healthy(self, now: float, started: float, headers: Mapping[str, str]) -> None:
        """Update every decision after a success."""
        self._fast_path = False
        self._reachability.reached = True
        self._failure_streak.reset()
        self._budget.refund(1)
        self._apply_quota(headers, started, now)
        was_paused = self._breaker.is_probe(started)
        if was_paused:
            self._end_pause(now)
        self._cubic.grow(now, self._meter.rate(now))
        if was_paused:  # after the limit has grown: refusals may have cut it to almost nothing, and the ramp starts from it
            self._slow_start.start(now, self._base_rate(now))
        self._waiters.wake_first(self._earliest_start(now))

    def _end_pause(self, now: float) -> None:
        """End a pause, and refill half of the retry budget: with an empty one, the first failure would start the next pause."""
        # Nothing was sent during the pause. Without `rest` the limit would grow as if it had held all that time, and without
        # `restart` the measured rate would fall.
        self._cubic.exclude_time(now - self._breaker.tripped_at)
        self._meter.restart(now, now)
        self._breaker.close()
        self._failure_window.clear()
        self._budget.refund(self._budget.size // 2)

    def _base_rate(self, now: float) -> float:
        """Return the base rate of the ramp after a pause, which starts at half of it."""
        return self._cubic.limit or max(self._meter.rate(now), _MIN_BASE_RATE)

    def _on_refusal(self, error: OutreachError, asked: float | None, started: float, now: float) -> RetryDecision:
        """Lower the rate, or wait as long as the service asks. A refusal is a fault of neither the row nor the service."""
        self._reachability.reached = True
        told = self._apply_quota(error.headers, started, now)
        if self._breaker.is_probe(started):
            self._breaker.on_probe_refusal(now)
            self.pause_reason = _describe(error)
        if error.status_code == _TOO_MANY_REQUESTS and self._cubic.is_about_current_rate(now, started):
            self._cubic.cut(now, self._meter.rate(now), asked or 0.0)
        if asked is not None:
            self._close_gate(error, asked, now)
        if told and asked is None:
            self._failure_streak.reset()
        else:
            self._check_outage(error, started, now)
        self._charge_budget(error, FailureKind.REFUSED, now)
        return RetryDecision.RETRY

    def _close_gate(self, error: OutreachError, asked: float, now: float) -> None:
        """Close the gate for as long as the service asks."""
        if asked > self._policy.retry_after_cap:
            cap = self._policy.retry_after_cap
            self._suspend(f"the service asked to wait {asked:.0f} s, more than the limit of {cap:g} s", error, asked)
        until = now + asked + self._policy.jitter() * min(_MAX_JITTER, _JITTER * asked)
        if (
            asked > 0 and until > self._gate_opens_at
        ):  # many requests in flight may be refused at once: only the longest wait counts
            self._slow_start.start(until, self._base_rate(now))
            self._cubic.exclude_time(until - max(now, self._gate_opens_at))
            self._meter.restart(now, until)
            self._gate_opens_at = until
            self.pause_reason = f"{_describe(error)} and asked to wait {asked:.3g} s"

    def _on_fault(self, error: OutreachError, evidence: FailureKind, blamed: int, started: float, now: float) -> RetryDecision:
        """Decide whether the row or the service caused a failure."""
        if evidence is FailureKind.AMBIGUOUS or self._failure_window.results:
            self._reachability.reached = True
        if not self._reachability.reached:
            self._check_reachability(error, started, now)
            return RetryDecision.RETRY if self._policy.attempts > 1 else RetryDecision.GIVE_UP
        own = self._attribute_to_row(error, evidence, blamed, started, now)
        self._check_outage(error, started, now)
        if self._policy.attempts == 1 or (own and blamed + 1 >= self._policy.attempts):
            return RetryDecision.GIVE_UP
        self._charge_budget(error, evidence, now)
        return RetryDecision.RETRY_COUNTED if own else RetryDecision.RETRY

    def _attribute_to_row(self, error: OutreachError, evidence: FailureKind, blamed: int, started: float, now: float) -> bool:
        """Return whether the row caused a failure: never while the breaker is open, nor for attempts started before it opened."""
        if self._breaker.is_probe(started):
            self._breaker.on_probe_failure(now)
            self.pause_reason = _describe(error)
            return False
        if not self._breaker.closed or started <= self._breaker.tripped_at:
            # It was in flight when the breaker opened: the same outage, which must not be counted twice, nor against the row.
            return False
        own = evidence is FailureKind.AMBIGUOUS and self._failure_window.counts_against_row(blamed)
        self._failure_window.record_fault(blamed)
        if self._failure_window.is_failing:
            self._breaker.trip(now)
            self.pause_reason = f"most requests fail: {_describe(error)}"
        return own

    def _check_reachability(self, error: OutreachError, started: float, now: float) -> None:
        """Retry a few times if the service was never reached, with one attempt at a time, then suspend the run."""
        if self._reachability.record_failure(started, now):
            rounds = self._reachability.rounds
            if rounds >= max(2, self._policy.attempts):
                self._suspend(f"service unreachable after {rounds} attempts", error)
            self._breaker.trip(now, min(FIRST_PAUSE, self._policy.backoff * 2.0 ** (rounds - 1)))
            self.pause_reason = _describe(error)

    def _check_outage(self, error: OutreachError, started: float, now: float) -> None:
        """Suspend the run if no attempt has succeeded for too long."""
        self._failure_streak.record_failure(started)
        if (lasts := self._failure_streak.duration(now)) >= self._max_outage:
            self._suspend(f"no request has succeeded for {lasts:.0f} s", error)

    def _charge_budget(self, error: OutreachError, evidence: FailureKind, now: float) -> None:
        """Charge the retry budget; if it is empty, open the breaker. Probes are free, because the pause itself limits them."""
        if self._breaker.closed and not self._budget.try_spend(retry_cost(evidence)):
            self._breaker.trip(now, MIN_PAUSE)  # the service may well be healthy
            self.pause_reason = f"too many retries: {_describe(error)}"

    def _apply_quota(self, headers: Mapping[str, str], started: float, now: float) -> bool:
        """Apply the quota that a response states; return whether it states one. A wait beyond the cap is left to a refusal."""
        if not has_quota(headers) or (told := parse_quota(headers, self._wall)) is None:
            return False
        if told.reset <= self._policy.retry_after_cap:
            self._quota.apply(told, started=started, now=now, in_flight=self._in_flight)
        return True

    def _suspend(self, text: str, cause: OutreachError, retry_after: float | None = None) -> None:
        error = BulkSuspended.over(cause, f"run suspended: {text}")
        error.retry_after = retry_after
        self.halt(error)

    # The next start

    def _earliest_start(self, now: float) -> float:
        """Return the earliest instant at which an attempt may start, as known now."""
        rate = self._slow_start.rate(self._cubic.limit, now)
        due = -math.inf if rate is None else self._schedule.next_start(rate)
        return max(self._gate_opens_at, self._breaker.opens_at, self._quota.opens_at(now), due)

    def _start_if_due(self, now: float) -> float:
        """Start an attempt if that is allowed now; return the instant from which it is allowed."""
        opens = self._earliest_start(now)
        if opens <= now:
            self._record_start(now)
        return opens

    def _record_start(self, now: float) -> None:
        self._in_flight += 1
        self._breaker.record_start(now)
        self._quota.record_start(now)
        rate = self._slow_start.rate(self._cubic.limit, now)
        if rate is not None:
            self._schedule.record_start(rate, now)

    def _raise_if_over(self) -> None:
        if (over := self.halted or self.drained) is not None:
            raise over.with_traceback(None)  # many tasks raise this instance: each must start with an empty traceback

    def _start_if_due_or_raise(self, now: float) -> float:
        self._raise_if_over()
        opens = self._start_if_due(now)
        if opens > now:
            self._delayed_until = opens
        return opens


def _describe(error: OutreachError) -> str:
    """Describe a failure without quoting the response."""
    return str(error) if error.status_code is None else f"the service answered {error.status_code}"
