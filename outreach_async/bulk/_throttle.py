"""Throttle a run: pause it while the service fails, and distinguish failures of the service from failures of single rows.

`FailureWindow` evaluates recent results, and `Breaker` pauses the run. The client's rate limiter enforces the limits that apply
to all requests of the client.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Final, Literal, Protocol

import anyio
import attrs

from outreach_async._core.attempts import Throttle
from outreach_async._core.limits import TOO_MANY_REQUESTS, RateLimiter, WaitingLine
from outreach_async._core.responses import parse_date
from outreach_async._core.retry import FailedAttempt, FailureKind, RetryDecision, RetryPolicy, retry_cost
from outreach_async.errors import BulkStopped, BulkSuspended, OutreachError, StatusError, TransportError
from outreach_async.transport._wire import Progress

WINDOW_SIZE: Final = 100  # maximum number of recent attempts whose results are evaluated
MIN_RESULTS: Final = 20  # minimum number of results to decide whether the service is failing, or whether a row is the cause
FAILING_SHARE: Final = 0.5  # the service counts as failing if at least this fraction of the recent attempts failed
HEALTHY_SHARE: Final = 0.9  # a row is the cause if at least this fraction of the recent attempts to send other rows succeeded


@attrs.define(eq=False)
class FailureWindow:
    # The window stores only failures, each with its position among all results. Recording a success is therefore cheap.

    results: int = 0
    _since: int = 0
    _faults: deque[tuple[int, int, bool]] = attrs.field(factory=deque)
    _unbroken: int = 0
    _unbroken_end: int = 0

    def record_success(self) -> None:
        self.results += 1

    def record_fault(self, earlier_failures: int, *, proves_outage: bool = True) -> None:
        """Record a failure. One that does not prove an outage, such as a refusal, still excuses other rows."""
        self._faults.append((self.results, earlier_failures, proves_outage))
        if self._unbroken_end == self.results:
            self._unbroken_end += 1
        self.results += 1
        self._drop_old()

    def record_unclear(self, earlier_failures: int) -> int:
        """Record an answer without a known meaning, and return how many of them have come since the last success."""
        self._unbroken = self._unbroken + 1 if self._unbroken_end == self.results else 1
        self._unbroken_end = self.results
        self.record_fault(earlier_failures, proves_outage=False)  # its row may be the cause
        return self._unbroken

    def clear(self) -> None:
        self._since = self.results
        self._faults.clear()

    def _drop_old(self) -> None:
        while self._faults and self._faults[0][0] < self.results - WINDOW_SIZE:
            self._faults.popleft()

    @property
    def size(self) -> int:
        return min(self.results - self._since, WINDOW_SIZE)

    @property
    def is_failing(self) -> bool:
        """True if the service counts as failing: of enough results, at least half are failures that prove an outage."""
        self._drop_old()
        faults = sum(proves_outage for _, _, proves_outage in self._faults)
        return self.size >= MIN_RESULTS and faults >= FAILING_SHARE * self.size

    def is_row_at_fault(self, earlier_failures: int) -> bool | None:
        """Return whether a row that has just failed caused the failure; `None` if too few results of other rows are known."""
        # The row is the cause if nearly all attempts to send other rows succeed. The row's own failures must not count. However,
        # the window does not store which row failed. With each failure, it stores only the number of earlier failures of the same
        # row. For each number from 0 to `earlier_failures - 1`, one failure with this number is assumed to be the row's own, and
        # is ignored.
        self._drop_old()
        own = len({before for _, before, _ in self._faults if before < earlier_failures})
        others = self.size - own
        return None if others < MIN_RESULTS else others - (len(self._faults) - own) >= HEALTHY_SHARE * others


FIRST_PAUSE: Final = 5.0  # length of the first pause in seconds; each failed probe doubles it, up to `MAX_PAUSE`
MAX_PAUSE: Final = 60.0  # one probe a minute is no burden, and a run stays paused at most this long once the service is back
MIN_PAUSE: Final = 1.0  # pause after too many retries: short, because the service may be healthy. A failed probe doubles it.
PROBE_LEASE: Final = 120.0  # seconds after which a probe without a result counts as lost


@attrs.define(eq=False)
class Breaker:
    """A circuit breaker, which blocks the attempts of a run for a limited time."""

    # Initially, the breaker is closed, and attempts may start at any time. An open breaker blocks all attempts until the time
    # `opens_at`. From then on, a single attempt may start: the probe. If the probe succeeds, the breaker is closed.

    closed: bool = True
    opens_at: float = -math.inf
    tripped_at: float = -math.inf
    _interval: float = 0.0
    _probed_at: float = math.inf

    def trip(self, now: float, seconds: float = FIRST_PAUSE) -> None:
        if self.closed:
            self.tripped_at = now
        self.closed = False
        self._interval = seconds
        self.opens_at, self._probed_at = now + seconds, math.inf

    def record_start(self, now: float) -> None:
        """Record the start of an attempt. If the breaker is not closed, this attempt is the probe."""
        # Move `opens_at`, so that no other attempt starts while the probe is in flight. The time is limited, so a probe whose
        # result never arrives cannot pause the run forever.
        if not self.closed:
            self._probed_at, self.opens_at = now, now + PROBE_LEASE

    def is_probe(self, started: float) -> bool:
        # While the breaker waits for the probe, no other attempt starts, so all other attempts have earlier start times.
        return started >= self._probed_at

    def cancel_probe(self) -> None:
        """Record that the probe was cancelled, so that another attempt can become the probe."""
        self.opens_at, self._probed_at = -math.inf, math.inf

    def on_probe_failure(self, now: float, *, is_refusal: bool = False) -> None:
        """Record that the probe failed, and pause again, twice as long as before, up to `MAX_PAUSE`."""
        if not is_refusal:  # a refusal shows that the service is up: the new pause is as long as the last pause
            self._interval = min(2 * max(self._interval, MIN_PAUSE), MAX_PAUSE)
        self.opens_at, self._probed_at = now + self._interval, math.inf

    def shorten_pause(self, now: float, latest: float) -> None:
        """End the current pause at the time `latest` or earlier, unless that time has passed or a probe is in flight."""
        if not self.closed and now < latest and self._probed_at == math.inf:
            self.opens_at = min(self.opens_at, latest)

    def close(self) -> None:
        self.closed = True
        self.opens_at, self._probed_at = -math.inf, math.inf


MAX_OUTAGE: Final = 900.0  # default of `max_outage`, in seconds. A run is suspended if no request succeeds for this long.
_LAST_PROBE: Final = 2.0  # a pause ends this many seconds before `max_outage`, so that a last probe decides about the run

_next_run: Final = count(1).__next__


class _RunPaused(Exception):
    """The run was paused while a row waited in the client's queue."""


class Fence(Protocol):
    """What a run that may be taken over by another process asks before each attempt."""

    @property
    def heartbeat_due(self) -> float | None:
        """The current time on a clock of the fence, if a heartbeat is due before the next attempt; otherwise `None`."""

    async def heartbeat(self, due: float, /) -> None:
        """Write a heartbeat, unless something was written since the time `due`. Raise an error if the run was taken over."""


class FencedProgress(Progress):
    """The progress of an attempt whose run may be taken over: nothing is sent while a heartbeat is due."""

    # The process may be stopped while an attempt connects or waits for its turn in the event loop, and go on much later. A
    # transport sets `sent` when it writes the request. An error then makes the attempt one that was not sent, and the retry
    # writes the heartbeat first.
    __slots__ = ("_fence", "_sent")

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._sent: bool | None = None

    @property
    def sent(self) -> bool | None:
        return self._sent

    @sent.setter
    def sent(self, value: bool | None) -> None:
        if value and self._sent is False and self._fence.heartbeat_due is not None:
            raise TransportError("the process stood still before it sent the request", maybe_sent=False)
        self._sent = value


class RunThrottle(Throttle):
    """Decides when a run's next attempt may start, and whether the row or the service caused a failure."""

    fence: Fence | None = None

    def __init__(self, limiter: RateLimiter, policy: RetryPolicy, *, max_outage: float | None = None) -> None:
        super().__init__(limiter, policy)
        self.run: int = _next_run()
        self.halted: OutreachError | None = None
        self.drained: OutreachError | None = None
        self.pause_reason = ""
        self.last_error: OutreachError | None = None
        self._dated: tuple[str, float] | None = None
        """The first `Date` that the service sent, and the local time at which it arrived."""
        self.on_change: Callable[[float], None] = lambda _now: None
        self._max_outage = MAX_OUTAGE if max_outage is None else max_outage
        self._fast_path = True  # nothing has failed, so only the limiter decides
        self._failure_window, self._breaker = FailureWindow(), Breaker()
        # If the service was never reached, the base URL may be wrong, and waiting may not help. With `max_outage`, the caller
        # wants to wait for the service from the first request on.
        self._is_reached = max_outage is not None
        self._unreached_rounds, self._unreached_at = 0, -math.inf
        self._failing_since = math.inf  # start of the first failed attempt since the last success
        self._succeeded_at = -math.inf
        self._paused = WaitingLine()
        self._waits: dict[anyio.CancelScope, None] = {}  # an ordered set, so that a simulated run can be reproduced

    @property
    def limit(self) -> float | None:
        return self._limiter.limit

    @property
    def opens_at(self) -> float:
        """The time at which the current pause ends. If the run is not paused, this time is in the past."""
        return max(self.gate.opens_at, self._breaker.opens_at)

    def state(self, now: float) -> Literal["running", "throttled", "paused"]:
        if self.opens_at > now or not self._breaker.closed:
            return "paused"
        return "throttled" if self._limiter.is_throttled(now) else "running"

    def create_progress(self) -> Progress:
        return Progress() if self.fence is None else FencedProgress(self.fence)

    def try_start(self, now: float) -> bool:
        if self.fence is not None and self.fence.heartbeat_due is not None:
            return False
        if self._fast_path:  # the path of a healthy run, executed once per row
            return self._limiter.try_start(now)
        if self.halted is not None or self._breaker.opens_at > now or not self._limiter.try_start(now):
            return False
        self._breaker.record_start(now)
        return True

    async def wait_and_start(self, not_before: float) -> None:
        await self._wait_unless_down(not_before)
        # Check after the wait, which may have been long: a run that was taken over meanwhile must not send the row.
        if self.fence is None or self.fence.heartbeat_due is None:
            return
        started = anyio.current_time()
        try:
            # The process may also be suspended during a heartbeat, so check again: a write proves nothing about later times.
            while (due := self.fence.heartbeat_due) is not None:
                await self.fence.heartbeat(due)
        except BaseException:
            self.on_cancelled(anyio.current_time(), started)
            raise

    async def _wait_unless_down(self, not_before: float) -> None:
        while True:
            if (error := self.halted or self.drained) is not None:
                raise error.with_traceback(None)  # many tasks raise this instance: each must start with an empty traceback
            # A pause or a `Retry-After` may end long after `max_outage`. The run then ends here, not at the next failure.
            with anyio.CancelScope(deadline=self._failing_since + self._max_outage) as scope:
                self._waits[scope] = None
                try:
                    await self._wait_and_start(not_before)
                finally:
                    del self._waits[scope]
            if not scope.cancelled_caught:
                return
            self._suspend_if_down(anyio.current_time())  # unless a success has ended the outage since the wait began

    async def _wait_and_start(self, not_before: float) -> None:
        # A retry sleeps outside the queues until its backoff ends: at the head of a queue, it would block rows that may start.
        await anyio.sleep_until(not_before)
        while True:
            # Rows of a paused run wait in a queue of the run: in the client's queue, they would block other runs and calls.
            # When the pause ends, the rows join the client's queue. The first one is the probe, and the others return.
            if self._breaker.opens_at > anyio.current_time():
                await self._paused.wait(lambda _now: self._breaker.opens_at)
            with suppress(_RunPaused):
                await self._limiter.waiters.wait(self._start_if_due)
                return

    def _start_if_due(self, now: float) -> float:
        if self._breaker.opens_at > now:
            raise _RunPaused
        opens_at = self._limiter.start_if_due(now)
        if opens_at <= now:
            self._breaker.record_start(now)
        else:
            if self.gate.opens_at > now:
                self.pause_reason = self.gate.reason
            self.on_change(now)
        return opens_at

    def halt(self, error: OutreachError) -> None:
        """End the run: every attempt that waits to start, now or later, raises `error`."""
        self.halted = self.halted or error
        self._fast_path = False
        for scope in self._waits:
            scope.cancel()

    def drain(self) -> None:
        """Drain the run: every attempt that waits to start, now or later, raises the error in `drained` instead of starting."""
        self.drained = self.drained or BulkStopped("the run ended before this row was sent or retried")
        for scope in self._waits:
            scope.cancel()

    def on_cancelled(self, now: float, started: float, /) -> None:
        # The first attempt after a pause is the probe, which tests the service. If the probe was cancelled, the next attempt
        # becomes the probe.
        if self._breaker.is_probe(started):
            self._breaker.cancel_probe()
        self._limiter.on_cancelled(now)
        self._paused.wake_first(self._breaker.opens_at)

    def read_clocks(self) -> tuple[float, float] | None:
        """Return the time of the service's first `Date`, and the local time at which it arrived; `None` without a valid one."""
        date = None if self._dated is None else parse_date(self._dated[0])
        return None if self._dated is None or date is None else (date, self._dated[1])

    def on_success(self, now: float, started: float, headers: Mapping[str, str], _budget_spent: int = 0, /) -> None:
        self._failure_window.record_success()
        self._succeeded_at = now
        if self._dated is None and "date" in headers:
            self._dated = headers["date"], self._limiter.wall_clock()
        paused_at = None
        if not self._fast_path:
            self._is_reached = True
            self._failing_since, self.last_error = math.inf, None
            self._budget.refund(1)
            if self._breaker.is_probe(started):
                paused_at = self._breaker.tripped_at
                self._breaker.close()
                self._failure_window.clear()
                self._budget.refund(self._budget.size // 2)  # with an empty budget, the first failure would start a pause
                self._paused.wake_first(-math.inf)
        self._limiter.on_success(now, started, paused_at)

    def on_failure(self, attempt: FailedAttempt) -> RetryDecision:
        now = attempt.ended
        self._fast_path = False
        self.last_error = attempt.error
        if attempt.kind is FailureKind.FINAL:  # the row is rejected permanently, but the service works: a success for the run
            self.on_success(now, attempt.started, attempt.error.headers)
            decision = RetryDecision.GIVE_UP
        else:
            handlers = {FailureKind.REFUSED: self._on_refusal, FailureKind.UNCLEAR: self._on_unclear}
            decision = handlers.get(attempt.kind, self._on_fault)(attempt)
        if self.halted is not None and decision is not RetryDecision.GIVE_UP:
            decision = RetryDecision.STOP_RUN
        self._paused.wake_first(self._breaker.opens_at)
        self.on_change(now)
        return decision

    # Handling the results of attempts

    def _on_refusal(self, attempt: FailedAttempt) -> RetryDecision:
        """Record a refusal, and decide whether it uses up one of the row's attempts."""
        # A 429 never does. A 503 with `Retry-After` does if other rows succeed; see `_judge_row`. In that case, `Retry-After`
        # delays only this row. In all other cases, `Retry-After` delays all requests of the client.
        is_429 = attempt.error.status_code == TOO_MANY_REQUESTS
        counts = not is_429 and self._judge_row(attempt, is_refusal=True) is True
        self._limiter.on_failure(attempt, closes_gate=not counts)
        self._is_reached = True
        if self._breaker.is_probe(attempt.started):
            self._breaker.on_probe_failure(attempt.ended, is_refusal=True)
            self.pause_reason = attempt.description
        if counts:
            self._check_outage(attempt)
            return self._count_against_row(attempt)
        if attempt.retry_after:
            self.pause_reason = self.gate.reason
            if attempt.retry_after > (cap := self._policy.retry_after_cap):
                text = f"the service asked to wait {attempt.retry_after:.0f} s, more than the limit of {cap:g} s"
                self._suspend(text, attempt.error, attempt.retry_after)
        self._check_outage(attempt)
        self._charge_budget(attempt)
        return RetryDecision.RETRY

    def _on_unclear(self, attempt: FailedAttempt) -> RetryDecision:
        """Record an answer without a known meaning. It is final for its row, unless such answers have replaced all others."""
        self._limiter.on_failure(attempt)
        self._is_reached = True
        unbroken = self._failure_window.record_unclear(attempt.earlier_failures)
        # More rejections are needed: the first rows of a run may have to show the caller that all of them are rejected.
        needed = WINDOW_SIZE if isinstance(attempt.error, StatusError) else MIN_RESULTS
        if self._breaker.closed:
            if unbroken < needed:
                return RetryDecision.GIVE_UP
            self._breaker.trip(attempt.ended)
        elif self._breaker.is_probe(attempt.started):
            self._breaker.on_probe_failure(attempt.ended)
        self.pause_reason = f"no request succeeds: {attempt.description}"
        self._check_outage(attempt)
        return self._count_against_row(attempt)

    def _on_fault(self, attempt: FailedAttempt) -> RetryDecision:
        """Record a failure other than a refusal, and decide whether to retry and whether the failure counts against its row."""
        self._limiter.on_failure(attempt)
        if attempt.kind is FailureKind.AMBIGUOUS or self._failure_window.results:
            self._is_reached = True
        if not self._is_reached:
            # 64 failures at once prove no more than one: they are one round. After a few rounds, the run is suspended.
            if attempt.started >= self._unreached_at:
                self._unreached_at = attempt.ended
                self._unreached_rounds += 1
                if self._unreached_rounds >= max(2, self._policy.attempts):
                    self._suspend(f"service unreachable after {self._unreached_rounds} attempts", attempt.error)
                self._breaker.trip(attempt.ended, min(FIRST_PAUSE, self._policy.backoff * 2.0 ** (self._unreached_rounds - 1)))
                self.pause_reason = attempt.description
            return RetryDecision.RETRY if self._policy.attempts > 1 else RetryDecision.GIVE_UP
        counts = self._attribute_to_row(attempt)
        self._check_outage(attempt)
        if counts or self._policy.attempts == 1:
            return self._count_against_row(attempt)
        self._charge_budget(attempt)
        return RetryDecision.RETRY

    def _count_against_row(self, attempt: FailedAttempt) -> RetryDecision:
        if attempt.counted_failures + 1 >= self._policy.attempts:
            return RetryDecision.GIVE_UP
        self._charge_budget(attempt)
        return RetryDecision.RETRY_COUNTED

    def _attribute_to_row(self, attempt: FailedAttempt) -> bool:
        """Update the breaker after a failure other than a refusal, and return whether the failure counts against its row."""
        if self._breaker.is_probe(attempt.started):
            self._breaker.on_probe_failure(attempt.ended)
            self.pause_reason = attempt.description
            return False
        verdict = self._judge_row(attempt)
        # This was the row's last attempt, but nothing proves that the row is at fault: the service may be down.
        is_last = verdict is None and attempt.earlier_failures + 1 >= self._policy.attempts > 1
        if self._breaker.closed and (is_last or self._failure_window.is_failing):
            self._breaker.trip(attempt.ended)
            self.pause_reason = f"{'no request succeeds' if is_last else 'most requests fail'}: {attempt.description}"
        return verdict is True and attempt.kind is FailureKind.AMBIGUOUS

    def _judge_row(self, attempt: FailedAttempt, *, is_refusal: bool = False) -> bool | None:
        """Record a failure. Return whether the row caused it; `None` if this cannot be decided."""
        # The row is the cause if nearly all attempts to send other rows succeed. If only a few of these attempts have ended, one
        # success since the row first failed is sufficient. Without such a success, the result is `None`.
        if not self._breaker.closed or attempt.started <= self._breaker.tripped_at:
            # The attempt was in flight when the breaker opened. It failed in the same outage, which must neither be counted
            # twice nor count against the row.
            return False
        verdict = self._failure_window.is_row_at_fault(attempt.earlier_failures)
        if verdict is None and self._succeeded_at > attempt.first_failed_at:
            verdict = True
        self._failure_window.record_fault(attempt.earlier_failures, proves_outage=not is_refusal)
        return verdict

    def _check_outage(self, attempt: FailedAttempt) -> None:
        """Suspend the run if no attempt has succeeded for `max_outage` seconds; a pause ends before that time."""
        self._failing_since = min(self._failing_since, attempt.started)  # failures may not arrive in the order of their starts
        self._breaker.shorten_pause(attempt.ended, self._failing_since + self._max_outage - _LAST_PROBE)
        self._suspend_if_down(attempt.ended)

    def _suspend_if_down(self, now: float) -> None:
        if self.last_error is not None and now >= self._failing_since + self._max_outage:
            wait = self.gate.opens_at - now
            text = f"no request has succeeded for {now - self._failing_since:.0f} s"
            self._suspend(text, self.last_error, wait if wait > 0 else None)

    def _charge_budget(self, attempt: FailedAttempt) -> None:
        """Charge the retry budget for a retry. If the budget is exhausted, open the breaker, which pauses the run."""
        # Probes are not charged, because the pauses between them already limit their number.
        if self._breaker.closed and not self._budget.try_spend(retry_cost(attempt.kind)):
            self._breaker.trip(attempt.ended, MIN_PAUSE)  # a short pause, because the service may be healthy
            self.pause_reason = f"too many retries: {attempt.description}"

    def _suspend(self, text: str, cause: OutreachError, retry_after: float | None = None) -> None:
        error = BulkSuspended.over(cause, f"run suspended: {text}")
        error.retry_after = retry_after
        self.halt(error)
