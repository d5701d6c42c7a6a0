"""Throttles: when a call's next attempt may start, and whether a failed attempt is retried. Also slots and the retry budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

import anyio

from outreach_async.errors import DeadlineExceeded
from outreach_async.limiter import RateLimiter, RetryAfterGate
from outreach_async.retry import FailedAttempt, FailureKind, RetryDecision, RetryPolicy, retry_cost


class Slots:
    """Limits the number of rows in a bulk run's window. Waiting tasks are served in FIFO order.

    This class replaces anyio's CapacityLimiter, which is five times slower, and anyio's Semaphore, which is tied to one event
    loop.
    """

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self._waiters: deque[anyio.Event] = deque()

    def try_acquire(self) -> bool:
        """Take a slot if one is free, and return whether a slot was taken."""
        if self.free <= 0:
            return False
        self.free -= 1
        return True

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
        if self._waiters:
            self._waiters.popleft().set()
        else:
            self.free += 1


class RetryBudget:
    """Limits the retries of all calls together, which keeps retries from overloading a failing service."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.remaining = size

    def try_spend(self, amount: int) -> bool:
        """Take the amount from the budget if enough is left, and return whether the amount was taken."""
        if amount > self.remaining:
            return False
        self.remaining -= amount
        return True

    def refund(self, amount: int) -> None:
        """Add an amount to the budget. The budget never exceeds its initial size."""
        self.remaining = min(self.size, self.remaining + amount)


class Throttle(Protocol):
    """Decides when the attempts of calls or of a bulk run may start, and whether a failed attempt is retried.

    Each started attempt ends with a call of `on_success`, `on_failure` or `on_cancelled`. Times are on the event loop's clock.
    """

    @property
    def gate(self) -> RetryAfterGate:
        """The client's `Retry-After` gate."""

    @property
    def run(self) -> int | None:
        """Number of the bulk run or audit; `None` outside a run."""

    def try_start(self, now: float) -> bool:
        """Record the start of an attempt if the attempt may start now, and return whether it may."""

    async def wait_and_start(self, not_before: float) -> None:
        """Wait until an attempt may start, at `not_before` or later, and record that it starts.

        Raises:
            OutreachError: No further attempt may start.
        """

    def on_cancelled(self, now: float, started: float, /) -> None:
        """Record that an attempt was cancelled: its result will never be known, or it was never sent."""

    def on_success(self, now: float, started: float, headers: Mapping[str, str], budget_spent: int, /) -> None:
        """Record a successful attempt. `budget_spent` is the amount that the call's retries took from the retry budget."""

    def on_failure(self, attempt: FailedAttempt) -> RetryDecision:
        """Record a failed attempt and decide what to do next."""


class ClientThrottle:
    """The throttle of a client's calls outside bulk runs. Every failed attempt counts against its call.

    The exception are reads that the service refuses for now: they are retried until the deadline of their call.
    """

    run = None

    def __init__(self, limiter: RateLimiter, policy: RetryPolicy) -> None:
        self._limiter = limiter
        self._policy = policy
        self._budget = RetryBudget(policy.budget)

    @property
    def gate(self) -> RetryAfterGate:
        """The client's `Retry-After` gate."""
        return self._limiter.gate

    def try_start(self, now: float) -> bool:
        """Start an attempt if the limiter allows it, and return whether it was started."""
        return self._limiter.try_start(now)

    async def wait_and_start(self, not_before: float) -> None:
        """Wait until `not_before`, then in the client's queue."""
        # A retry sleeps outside the queue until its backoff ends: at the head of the queue it would hold up calls that may start.
        await anyio.sleep_until(not_before)
        await self._limiter.wait(self._limiter.start_if_due)

    def on_cancelled(self, now: float, _started: float, /) -> None:
        """Record that an attempt was cancelled."""
        self._limiter.on_cancelled(now)

    def on_success(self, now: float, started: float, headers: Mapping[str, str], budget_spent: int, /) -> None:
        """Refund the cost of the call's retries to the retry budget, or 1 if the call had no retries."""
        self._limiter.on_success(now, started, headers)
        self._budget.refund(budget_spent or 1)

    def on_failure(self, attempt: FailedAttempt) -> RetryDecision:
        """Let the limiter learn from the failure, charge the retry budget for a retry, and return the decision."""
        self._limiter.on_failure(attempt)
        if isinstance(attempt.error, DeadlineExceeded) or attempt.counted_failures + 1 >= self._policy.attempts:
            return RetryDecision.GIVE_UP
        if attempt.kind is FailureKind.REFUSED and attempt.can_wait:
            return RetryDecision.RETRY
        # The budget is checked last: a call that fails for another reason must not use up budget for the retries of other calls.
        if attempt.can_retry and not self._budget.try_spend(retry_cost(attempt.kind)):
            return RetryDecision.GIVE_UP
        return RetryDecision.RETRY_COUNTED
