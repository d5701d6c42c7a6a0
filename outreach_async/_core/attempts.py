"""A call: its time limits, the results of its attempts, and the throttle that decides when its next attempt may start.

Throttles wait; `Call` itself does no I/O and never waits. `RetryBudget` limits the retries of all calls together. `Slots` limits
the number of rows that a bulk run processes at the same time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from copy import copy
from typing import Generic, NoReturn, TypeVar

import anyio
import attrs

from outreach_async._core.limits import RateLimiter, RetryAfterGate
from outreach_async._core.operations import Operation
from outreach_async._core.retry import FailedAttempt, FailureKind, RetryDecision, RetryPolicy, maybe_applied, retry_cost
from outreach_async.errors import DeadlineExceeded, OutreachError, TransportError, UnexpectedResponse
from outreach_async.transport._wire import Progress, Request


class Slots:
    """Limits the number of rows that a bulk run processes at the same time."""

    # A worker takes a slot before it takes the next row. The slot is released when the consumer receives the row's outcome.
    # Waiting tasks are served in FIFO order.
    # This class replaces anyio's CapacityLimiter, which is five times slower, anyio's Semaphore, which is tied to one event loop,
    # and `WaitingLine`, which wakes a second task for each slot: bulk runs would take almost twice as long.

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self._waiters: deque[anyio.Event] = deque()

    def try_acquire(self) -> bool:
        if self.free <= 0:
            return False
        self.free -= 1
        return True

    def take(self, count: int) -> None:
        """Take slots at once, even if there are not enough. No further slot is then free until these are released."""
        self.free -= count

    async def acquire(self) -> None:
        """Wait for a slot and take it. If the wait is cancelled, no slot is taken."""
        if self.try_acquire():
            return
        mine = anyio.Event()
        self._waiters.append(mine)
        try:
            await mine.wait()
        except BaseException:
            if mine.is_set():
                # `release` passed its slot to this task, but the wait was cancelled before the task ran. Pass the slot on;
                # otherwise it would be lost.
                self.release()
            else:
                self._waiters.remove(mine)
            raise

    def release(self) -> None:
        """Release a slot. If tasks are waiting, the task that has waited longest gets the slot."""
        # The slot goes straight to the waiter and never counts as free. Otherwise `try_acquire` could overtake the waiters.
        if self._waiters and self.free >= 0:
            self._waiters.popleft().set()
        else:
            self.free += 1


class RetryBudget:
    """Limits the retries of all calls together, which keeps retries from overloading a failing service."""

    def __init__(self, size: int) -> None:
        self.size = self.remaining = size

    def try_spend(self, amount: int) -> bool:
        if amount > self.remaining:
            return False
        self.remaining -= amount
        return True

    def refund(self, amount: int) -> None:
        self.remaining = min(self.size, self.remaining + amount)


class Throttle:
    """Decides when the attempts of calls may start, and whether a failed attempt is retried; the base class of `RunThrottle`."""

    # For each attempt that starts, the caller must later call exactly one of `on_success`, `on_failure` and `on_cancelled`. Times
    # are on the event loop's clock.
    # Every failed attempt counts towards the call's maximum number of attempts, with one exception. While the service throttles a
    # read that has a deadline, the read is retried until the deadline, and these failures count only if the policy says so.

    run: int | None = None
    """Number that identifies the bulk run or audit in this process; `None` for calls outside bulk runs and audits."""

    def __init__(self, limiter: RateLimiter, policy: RetryPolicy) -> None:
        self._limiter = limiter
        self._policy = policy
        self._budget = RetryBudget(policy.budget)

    def with_policy(self, policy: RetryPolicy) -> Throttle:
        throttle = copy(self)
        throttle._policy = policy  # noqa: SLF001 - a new object of this class
        return throttle

    @property
    def gate(self) -> RetryAfterGate:
        return self._limiter.gate

    def try_start(self, now: float) -> bool:
        return self._limiter.try_start(now)

    async def wait_and_start(self, not_before: float) -> None:
        # A retry sleeps outside the queue until its backoff ends: at the head of the queue it would hold up calls that may start.
        await anyio.sleep_until(not_before)
        await self._limiter.waiters.wait(self._limiter.start_if_due)

    def create_progress(self) -> Progress:
        return Progress()

    def on_cancelled(self, now: float, _started: float, /) -> None:
        self._limiter.on_cancelled(now)

    def on_success(self, now: float, started: float, _headers: Mapping[str, str], budget_spent: int = 0, /) -> None:
        self._limiter.on_success(now, started)
        self._budget.refund(budget_spent or 1)

    def on_failure(self, attempt: FailedAttempt) -> RetryDecision:
        self._limiter.on_failure(attempt)
        if attempt.kind is FailureKind.UNCLEAR or isinstance(attempt.error, DeadlineExceeded):
            return RetryDecision.GIVE_UP
        if attempt.counted_failures + 1 >= self._policy.attempts:
            return RetryDecision.GIVE_UP
        if attempt.kind is FailureKind.REFUSED and attempt.can_wait and not self._policy.counts_refusals:
            return RetryDecision.RETRY
        # The budget is checked last: a call that fails for another reason must not use up budget for the retries of other calls.
        if attempt.can_retry and not self._budget.try_spend(retry_cost(attempt.kind)):
            return RetryDecision.GIVE_UP
        return RetryDecision.RETRY_COUNTED


T = TypeVar("T")


@attrs.frozen
class CallOptions:
    timeout: float | None
    deadline: float | None


class Call(Generic[T]):
    """A call in progress, with the results of its attempts."""

    not_before = -math.inf
    started = 0.0
    first_failed_at = math.inf
    in_flight = False
    progress: Progress | None = None
    attempts = 0
    counted_failures = 0
    budget_spent = 0
    last_error: OutreachError | None = None
    maybe_applied_earlier = False
    _maybe_sent = False

    def __init__(
        self,
        operation: Operation[T],
        options: CallOptions,
        throttle: Throttle,
        now: Callable[[], float],
        request: Request | None = None,
    ) -> None:
        # All rows of a run that have the same target share an operation, and each has its own request.
        self.operation = operation
        self.request = request or operation.request
        self.options = options
        self.throttle = throttle
        self.now = now
        self.time_left = math.inf if options.deadline is None else options.deadline
        # A bulk run may pause for minutes for reasons unrelated to the row. Within a run, the deadline therefore limits the total
        # time of the attempts and is not a point in time. The run itself limits the waits.
        self.deadline_at = now() + self.time_left if throttle.run is None else math.inf

    def attempt_deadline(self, now: float) -> float:
        timeout = math.inf if self.options.timeout is None else self.options.timeout
        return min(now + timeout, now + self.time_left, self.deadline_at)

    def timeout_error(self, progress: Progress) -> OutreachError:
        """Return the error of the current attempt, which exceeded its own timeout or the call's deadline."""
        maybe_sent, name = progress.sent is not False, self.operation.name
        if self.attempt_deadline(self.started) < self.started + (self.options.timeout or math.inf):  # ended by the deadline
            text = f"{name}: no response within the deadline of {self.options.deadline:g} s"
            return DeadlineExceeded(text, maybe_sent=maybe_sent)
        return TransportError(f"{name}: no response within the timeout of {self.options.timeout:g} s", maybe_sent=maybe_sent)

    def record_failure(self, error: OutreachError, failure_kind: FailureKind) -> None:
        # `maybe_applied_earlier` is never reset, because no later attempt can prove that an earlier attempt was not applied.
        self.progress = None
        self.attempts += 1
        self.maybe_applied_earlier |= maybe_applied(error, failure_kind)
        self._maybe_sent |= error.maybe_sent

    @property
    def started_attempts(self) -> int:
        return self.attempts + (self.progress is not None)

    @property
    def maybe_applied(self) -> bool:
        """True if the service may have applied any attempt, or may still apply it. The current attempt is included."""
        return self.maybe_applied_earlier or (self.progress is not None and self.progress.sent is not False)

    def fail(self, error: OutreachError, cause: OutreachError | None = None) -> NoReturn:
        """Set the error's attributes that describe the call and its attempts, and raise the error."""
        error.operation = self.operation.name
        error.attempts = self.attempts
        error.maybe_sent |= self._maybe_sent
        # A 2xx response that cannot be parsed still means that the service handled the request.
        error.maybe_applied = self.maybe_applied_earlier or isinstance(error, UnexpectedResponse)
        raise error from cause or error.__cause__
