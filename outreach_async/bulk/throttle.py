"""Throttle a run by its rate limit, quota and circuit breaker. Only this module waits, not `rate` and `breaker`."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, Literal

import anyio
from anyio.lowlevel import checkpoint

from outreach_async.bulk.breaker import FIRST_PAUSE, MIN_PAUSE, Breaker, FailureWindow, Reachability
from outreach_async.bulk.rate import CubicLimit, QuotaTracker, RateMeter, Schedule, SlowStart, has_quota, parse_quota
from outreach_async.errors import BulkStopped, BulkSuspended, OutreachError
from outreach_async.limits import FailedAttempt, RetryAfterGate, RetryBudget, RetryDecision
from outreach_async.retry import FailureKind, RetryPolicy, retry_cost

_MIN_GAIN: Final = 0.001
"""The first waiting task is woken only if it may start more than this many seconds earlier than planned. Otherwise every response
would wake it, because every response raises the limit."""


class _Waiter:
    """A waiting task. It may be woken early, and then checks again whether it may start."""

    __slots__ = ("_event", "until")

    _event: anyio.Event  # set by the first `wait`; until then, no other task has this object

    def __init__(self) -> None:
        self.until = -math.inf

    async def wait(self, until: float) -> None:
        self.until, self._event = until, anyio.Event()
        with anyio.CancelScope(deadline=until):
            await self._event.wait()

    def wake(self) -> None:
        self._event.set()


class FifoWaiters:
    """A queue of waiting tasks, served in FIFO order.

    A task that leaves the queue, served or cancelled, wakes the next task, which checks for itself whether it may start. No
    task passes its turn to another task, so no turn is lost if a task is cancelled.
    """

    def __init__(self) -> None:
        self._queue: deque[_Waiter] = deque()
        self._sleeping: dict[_Waiter, None] = {}  # an ordered set, so that a simulated run can be reproduced

    def __bool__(self) -> bool:
        return bool(self._queue)

    async def wait(self, not_before: float, take: Callable[[float], float]) -> None:
        """Wait for a turn and take it.

        Args:
            not_before: The time before which the task does not join the queue.
            take: Function that is called with the current time. It takes the turn if that is possible now, and returns the time
                from which that is possible. Its exceptions end the wait.
        """
        # A retry sleeps outside the queue until its backoff ends: at the head of the queue it would hold up rows that may start.
        place = _Waiter()
        if not_before <= anyio.current_time():
            await checkpoint()
        else:
            self._sleeping[place] = None
            try:
                await place.wait(not_before)
            finally:
                del self._sleeping[place]
        self._queue.append(place)
        try:
            while self._queue[0] is not place:
                await place.wait(math.inf)
            # Check again after each wait: the time from which a start is possible may have moved in either direction.
            while (again := take(now := anyio.current_time())) > now:
                await place.wait(again)
        finally:
            first = self._queue[0] is place
            self._queue.remove(place)
            if first and self._queue:
                self._queue[0].wake()

    def wake_first(self, again: float) -> None:
        """Wake the first task in the queue if it would sleep beyond the time `again`, so that it checks whether it may start."""
        if self._queue and self._queue[0].until > again + _MIN_GAIN:
            self._queue[0].wake()

    def wake_all(self) -> None:
        """Wake all tasks. Each reaches the head of the queue in turn, where the error that ended the run is raised."""
        for place in (*self._sleeping, *self._queue):
            place.wake()


_TOO_MANY_REQUESTS: Final = 429
_JITTER: Final = 0.1
"""Maximum jitter added to a `Retry-After`, as a fraction of that wait. It spreads the clients that wait until the same time."""
_MAX_JITTER: Final = 1.0
"""Maximum jitter added to a `Retry-After`, in seconds."""
_MIN_BASE_RATE: Final = 1.0
"""Minimum base rate of the ramp after a pause, in requests per second, if no rate limit was learned."""
_THROTTLED_PERIOD: Final = 1.0
"""Seconds for which a run counts as throttled after an attempt was delayed."""


_next_run: Final = count(1).__next__


class RunThrottle:
    """Decides when a run's next attempt may start, and whether the row or the service caused a failure.

    Args:
        policy: The retry policy of the run's client.
        gate: The client's `Retry-After` gate. The run may close it for the whole client, and waits if another call closed it.
        max_outage: Seconds without any success after which the run is suspended.
        wall_clock: Function that returns Unix time in seconds, for quota headers that give a reset as Unix time.

    Attributes:
        run: Number of the run, unique in this process.
        halted: The error that ended the run; `None` while the run continues.
        drained: The error that ends every wait for a start after the run was drained; `None` until then.
        pause_reason: The reason for the last pause.
        on_change: Function that is called with the current time after each failure and when an attempt has to wait, because the
            state may have changed. A run without failures and waits never calls it.
    """

    def __init__(
        self, policy: RetryPolicy, gate: RetryAfterGate, *, max_outage: float = 900.0, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self.gate = gate
        self.run = _next_run()
        self.halted: OutreachError | None = None
        self.drained: OutreachError | None = None
        self.pause_reason = ""
        self.on_change: Callable[[float], None] = lambda _now: None
        self._policy = policy
        self._max_outage = max_outage
        self._wall_clock = wall_clock
        self._fast_path = True  # nothing has failed, and no quota header was seen: only the gate is checked
        self._in_flight = 0
        self._known_gate = self._delayed_until = -math.inf
        self._meter, self._cubic, self._schedule, self._slow_start = RateMeter(), CubicLimit(), Schedule(), SlowStart()
        self._failure_window, self._breaker, self._reachability = FailureWindow(), Breaker(), Reachability()
        self._failing_since = math.inf  # when the first failed attempt after the last success started
        self._quota, self._budget, self._waiters = QuotaTracker(), RetryBudget(policy.budget), FifoWaiters()

    @property
    def limit(self) -> float | None:
        """The learned rate limit in requests per second; `None` until the first refusal."""
        return self._cubic.limit

    def opens_at(self, now: float) -> float:
        """Return the time at which the pause ends. If the run is not paused, the returned time is not in the future."""
        return max(self.gate.opens_at(now), self._breaker.opens_at)

    def state(self, now: float) -> Literal["running", "throttled", "paused"]:
        """Return whether the run is running, throttled or paused."""
        if self.opens_at(now) > now or not self._breaker.closed:
            return "paused"
        return "throttled" if self._waiters or now - self._delayed_until < _THROTTLED_PERIOD else "running"

    def try_start(self, now: float) -> bool:
        """Start an attempt now, if that is allowed and no other attempt is waiting; return whether it was started."""
        if self._fast_path and self.gate.opens_at(now) <= now:  # the fast path of a healthy run, taken once per row
            self._in_flight += 1
            return True
        # While others wait in line, a new attempt must queue behind them: otherwise rows that keep arriving could starve a retry.
        return self.halted is None and not self._waiters and self._start_if_due(now) <= now

    async def wait_and_start(self, not_before: float) -> None:
        """Wait until an attempt may start, at `not_before` or later, and start it. Waiting attempts start in order of arrival.

        Raises:
            BulkStopped: The run ended or was drained, before or during the wait.
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
        """Take back the recorded start of an attempt that will not be sent."""
        self._in_flight -= 1
        self._quota.refund()
        self._breaker.cancel_probe()
        self._waiters.wake_first(-math.inf)

    def on_success(self, now: float, started: float, headers: Mapping[str, str], _budget_spent: int = 0, /) -> None:
        """Record a successful attempt."""
        self._in_flight -= 1
        self._failure_window.record_success()
        if not self._fast_path or has_quota(headers):
            self._on_healthy(now, started, headers)
        self._meter.add(now, started)

    def on_failure(self, attempt: FailedAttempt) -> RetryDecision:
        """Record a failed attempt and decide what to do next; see `Throttle`."""
        now = attempt.ended
        self._fast_path = False
        self._quota.refund()
        if attempt.kind is FailureKind.FINAL:  # the row is refused for good, but the service answered: a success for the run
            self.on_success(now, attempt.started, attempt.error.headers)
            decision = RetryDecision.GIVE_UP
        else:
            self._in_flight -= 1
            decision = self._on_refusal(attempt) if attempt.kind is FailureKind.REFUSED else self._on_fault(attempt)
        if self.halted is not None and decision is not RetryDecision.GIVE_UP:
            decision = RetryDecision.STOP_RUN
        else:
            self._waiters.wake_first(self._earliest_start(now))
        self.on_change(now)
        return decision

    # Results of attempts

    def _on_healthy(self, now: float, started: float, headers: Mapping[str, str]) -> None:
        """Update the rate limit, the quota and the breaker after a success."""
        self._fast_path = False
        self._reachability.reached = True
        self._failing_since = math.inf
        self._budget.refund(1)
        self._apply_quota(headers, started, now)
        if ends_pause := self._breaker.is_probe(started):
            # Nothing was sent during the pause. Without `exclude_time`, the limit would grow as if it had been in use during the
            # pause, and without `restart`, the measured rate would fall.
            self._cubic.exclude_time(now - self._breaker.tripped_at)
            self._meter.restart(now, now)
            self._breaker.close()
            self._failure_window.clear()
            self._budget.refund(self._budget.size // 2)  # with an empty budget, the first failure would start a pause
        self._cubic.grow(now, self._meter.rate(now))
        if ends_pause:  # after the limit has grown: refusals may have cut it to almost nothing, and the ramp starts from it
            self._slow_start.start(now, self._base_rate(now))
        self._waiters.wake_first(self._earliest_start(now))

    def _base_rate(self, now: float) -> float:
        """Return the base rate of the ramp that follows a pause. The ramp starts at half of this rate."""
        return self._cubic.limit or max(self._meter.rate(now), _MIN_BASE_RATE)

    def _on_refusal(self, attempt: FailedAttempt) -> RetryDecision:
        """Lower the rate, or wait as long as the service asks. A refusal is a fault of neither the row nor the service."""
        error, now = attempt.error, attempt.ended
        self._reachability.reached = True
        states_quota = self._apply_quota(error.headers, attempt.started, now)
        if self._breaker.is_probe(attempt.started):
            self._breaker.on_probe_refusal(now)
            self.pause_reason = attempt.description
        if error.status_code == _TOO_MANY_REQUESTS and self._cubic.is_about_current_rate(now, attempt.started):
            self._cubic.cut(now, self._meter.rate(now), attempt.retry_after or 0.0)
        if attempt.retry_after:
            self._close_gate(attempt, attempt.retry_after)
        if states_quota and attempt.retry_after is None:
            self._failing_since = math.inf
        else:
            self._check_outage(attempt)
        self._charge_budget(attempt)
        return RetryDecision.RETRY

    def _close_gate(self, attempt: FailedAttempt, retry_after: float) -> None:
        """Close the gate for as long as the service asks; if that is too long, also suspend the run."""
        cap = self._policy.retry_after_cap
        if retry_after > cap:
            text = f"the service asked to wait {retry_after:.0f} s, more than the limit of {cap:g} s"
            self._suspend(text, attempt.error, retry_after)
        # Many clients are asked to wait until the same time: the jitter spreads them.
        self.gate.close(attempt, min(retry_after, cap) + self._policy.jitter() * min(_MAX_JITTER, _JITTER * retry_after))
        self._account_for_gate(attempt.ended)

    def _account_for_gate(self, now: float) -> None:
        """Exclude the time until the gate opens from all measurements, and start slowly after it opens.

        The gate may have been closed by this run, by another run of the client or by a call outside runs. Many requests in flight
        may be refused at once: only the longest wait counts.
        """
        opens_at = self.gate.opens_at(now)
        if opens_at > max(now, self._known_gate):
            self._fast_path = False
            self._slow_start.start(opens_at, self._base_rate(now))
            self._cubic.exclude_time(opens_at - max(now, self._known_gate))
            self._meter.restart(now, opens_at)
            self._known_gate = opens_at
            self.pause_reason = self.gate.reason

    def _on_fault(self, attempt: FailedAttempt) -> RetryDecision:
        """Decide whether to retry after a failure that is not a refusal, and whether the failure counts against the row."""
        if attempt.kind is FailureKind.AMBIGUOUS or self._failure_window.results:
            self._reachability.reached = True
        if not self._reachability.reached:
            self._check_reachability(attempt)
            return RetryDecision.RETRY if self._policy.attempts > 1 else RetryDecision.GIVE_UP
        counts = self._attribute_to_row(attempt)
        self._check_outage(attempt)
        if self._policy.attempts == 1 or (counts and attempt.counted_failures + 1 >= self._policy.attempts):
            return RetryDecision.GIVE_UP
        self._charge_budget(attempt)
        return RetryDecision.RETRY_COUNTED if counts else RetryDecision.RETRY

    def _attribute_to_row(self, attempt: FailedAttempt) -> bool:
        """Record a failure, and return whether it counts against its row.

        The failure does not count if the breaker is open, or opened after the attempt started.
        """
        if self._breaker.is_probe(attempt.started):
            self._breaker.on_probe_failure(attempt.ended)
            self.pause_reason = attempt.description
            return False
        if not self._breaker.closed or attempt.started <= self._breaker.tripped_at:
            # The attempt was in flight when the breaker opened. It failed in the same outage, which must not be counted twice,
            # nor against the row.
            return False
        counts = attempt.kind is FailureKind.AMBIGUOUS and self._failure_window.counts_against_row(attempt.counted_failures)
        self._failure_window.record_fault(attempt.counted_failures)
        if self._failure_window.is_failing:
            self._breaker.trip(attempt.ended)
            self.pause_reason = f"most requests fail: {attempt.description}"
        return counts

    def _check_reachability(self, attempt: FailedAttempt) -> None:
        """Pause the run because the service was never reached. After a few rounds of failed attempts, suspend the run."""
        if self._reachability.record_failure(attempt.started, attempt.ended):
            rounds = self._reachability.rounds
            if rounds >= max(2, self._policy.attempts):
                self._suspend(f"service unreachable after {rounds} attempts", attempt.error)
            self._breaker.trip(attempt.ended, min(FIRST_PAUSE, self._policy.backoff * 2.0 ** (rounds - 1)))
            self.pause_reason = attempt.description

    def _check_outage(self, attempt: FailedAttempt) -> None:
        """Suspend the run if no attempt has succeeded for `max_outage` seconds."""
        self._failing_since = min(self._failing_since, attempt.started)  # failures may not arrive in the order of their starts
        if (duration := attempt.ended - self._failing_since) >= self._max_outage:
            self._suspend(f"no request has succeeded for {duration:.0f} s", attempt.error)

    def _charge_budget(self, attempt: FailedAttempt) -> None:
        """Charge the retry budget for a retry; if the budget is exhausted, open the breaker.

        Probes are not charged, because the pauses between them already limit their number.
        """
        if self._breaker.closed and not self._budget.try_spend(retry_cost(attempt.kind)):
            self._breaker.trip(attempt.ended, MIN_PAUSE)  # the service may well be healthy
            self.pause_reason = f"too many retries: {attempt.description}"

    def _apply_quota(self, headers: Mapping[str, str], started: float, now: float) -> bool:
        """Apply the quota that a response states, unless its reset is too far off; return whether it states a quota."""
        if not has_quota(headers) or (quota := parse_quota(headers, self._wall_clock)) is None:
            return False
        if quota.reset <= self._policy.retry_after_cap:
            self._quota.apply(quota, started=started, now=now, in_flight=self._in_flight)
        return True

    def _suspend(self, text: str, cause: OutreachError, retry_after: float | None = None) -> None:
        error = BulkSuspended.over(cause, f"run suspended: {text}")
        error.retry_after = retry_after
        self.halt(error)

    # The next start

    def _earliest_start(self, now: float) -> float:
        """Return the earliest time at which an attempt may start. Later results may change this time."""
        rate = self._slow_start.rate(self._cubic.limit, now)
        due = -math.inf if rate is None else self._schedule.next_start(rate)
        return max(self.gate.opens_at(now), self._breaker.opens_at, self._quota.opens_at(now), due)

    def _start_if_due(self, now: float) -> float:
        """Start an attempt if that is allowed now. In any case, return the time from which an attempt is allowed."""
        opens_at = self._earliest_start(now)
        if opens_at <= now:
            self._record_start(now)
        return opens_at

    def _record_start(self, now: float) -> None:
        self._in_flight += 1
        self._breaker.record_start(now)
        self._quota.record_start(now)
        rate = self._slow_start.rate(self._cubic.limit, now)
        if rate is not None:
            self._schedule.record_start(rate, now)

    def _start_if_due_or_raise(self, now: float) -> float:
        self._raise_if_over()
        opens_at = self._start_if_due(now)
        if opens_at > now:
            self._account_for_gate(now)
            self._delayed_until = opens_at
            self.on_change(now)
        return opens_at

    def _raise_if_over(self) -> None:
        if (error := self.halted or self.drained) is not None:
            raise error.with_traceback(None)  # many tasks raise this instance: each must start with an empty traceback
