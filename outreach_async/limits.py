"""Limits shared by all tasks of a client: request slots, and a throttle with its gate and retry budget.

The limits are not tied to an event loop, except while a task waits for one of them.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final, Protocol
from weakref import WeakSet

import anyio
import attrs
from anyio.lowlevel import EventLoopToken, current_token

from outreach_async.errors import DeadlineExceeded, OutreachError
from outreach_async.retry import FailureKind, RetryPolicy, retry_cost


class RequestSlots:
    """Limits the number of requests in flight. Waiting tasks are served in FIFO order.

    This class replaces anyio's CapacityLimiter, which is five times slower, and anyio's Semaphore, which is tied to one event
    loop.
    """

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self._waiters: deque[anyio.Event] = deque()
        _ALL_SLOTS.add(self)

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

    def reset_after_fork(self) -> None:
        """Reset the slots in a newly forked child process."""
        # The tasks that hold slots or wait for slots run only in the parent. The child would wait forever for them to finish.
        self.free = self.total
        self._waiters.clear()


_ALL_SLOTS: Final[WeakSet[RequestSlots]] = WeakSet()


def reset_all_after_fork() -> None:
    """Reset the request slots of every client in a newly forked child process."""
    for slots in _ALL_SLOTS:
        slots.reset_after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=reset_all_after_fork)


class RetryAfterGate:
    """Holds back every request of a client until a given time on the event loop's clock.

    Attributes:
        reason: Reason why the gate was last closed, as text; empty if the gate was never closed.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._opens_at = -math.inf
        self._loop: EventLoopToken | None = None

    def opens_at(self, now: float) -> float:
        """Return the time at which the gate opens. The time is in the past if the gate is open."""
        # The clocks of event loops have different origins. A time that was set in an earlier loop, for example by a previous
        # `asyncio.run`, is meaningless in this loop. Looking up the loop is slow, so it is done only if the gate seems closed.
        if self._opens_at > now and self._loop != current_token():
            self._opens_at = -math.inf
        return self._opens_at

    def close(self, attempt: FailedAttempt, seconds: float) -> None:
        """Close the gate for at least `seconds` after the end of an attempt, because the service asked to wait."""
        until = attempt.ended + seconds
        if until > self.opens_at(attempt.ended):
            self._opens_at, self._loop = until, current_token()
            self.reason = f"{attempt.description} and asked to wait {attempt.retry_after:.3g} s"

    async def wait(self) -> None:
        """Wait until the gate is open, even if its opening time is postponed during the wait."""
        while self.opens_at(now := anyio.current_time()) > now:  # noqa: ASYNC110 - the opening time may change during the sleep
            await anyio.sleep_until(self._opens_at)


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


class RetryDecision(Enum):
    """A throttle's decision after a failed attempt."""

    RETRY = "retry; the service or the network failed, and the failure does not count against the call"
    RETRY_COUNTED = "retry; the failure counts against the call"
    GIVE_UP = "do not retry: the error is final, the call has used up its attempts, or the retry budget is empty"
    STOP_RUN = "the run is over"


@attrs.frozen
class FailedAttempt:
    """A failed attempt, with the data that a throttle needs.

    Attributes:
        error: The error of the attempt.
        kind: What the failure proves about the request.
        started: Time at which the attempt started.
        ended: Time at which the attempt failed.
        counted_failures: Number of earlier failures counted against the call.
        retry_after: Number of seconds that the service asked the client to wait; `None` if it did not ask.
        can_retry: False if the call ends regardless of the decision. The retry budget must then not be charged for a retry.
    """

    error: OutreachError
    kind: FailureKind
    started: float
    ended: float
    counted_failures: int = 0
    retry_after: float | None = None
    can_retry: bool = True

    @property
    def description(self) -> str:
        """A description of the failure that does not quote the response."""
        return str(self.error) if self.error.status_code is None else f"the service answered {self.error.status_code}"


class Throttle(Protocol):
    """Decides when the attempts of a client or of a bulk run may start, and whether a failed attempt is retried.

    Each started attempt ends with a call of `on_success`, `on_failure` or `cancel_start`, unless its task is cancelled. Times are
    on the event loop's clock.

    Attributes:
        gate: The client's gate. It is checked once more after the wait for a slot, because it may have closed during the wait.
    """

    gate: RetryAfterGate

    @property
    def run(self) -> int | None:
        """Number of the bulk run; `None` outside a run."""

    def try_start(self, now: float) -> bool:
        """Record the start of an attempt if the attempt may start now, and return whether it may."""

    async def wait_and_start(self, not_before: float) -> None:
        """Wait until an attempt may start, at `not_before` or later, and record that it starts.

        Raises:
            OutreachError: No further attempt may start.
        """

    def cancel_start(self) -> None:
        """Undo the recorded start of an attempt that will not be sent."""

    def on_success(self, now: float, started: float, headers: Mapping[str, str], budget_spent: int, /) -> None:
        """Record a successful attempt. `budget_spent` is the amount that the call's retries took from the retry budget."""

    def on_failure(self, attempt: FailedAttempt) -> RetryDecision:
        """Record a failed attempt and decide what to do next."""


class ClientThrottle:
    """The throttle of a client's calls outside bulk runs. Every failed attempt counts against its call."""

    run = None

    def __init__(self, policy: RetryPolicy) -> None:
        self.gate = RetryAfterGate()
        self._policy = policy
        self._budget = RetryBudget(policy.budget)

    def try_start(self, now: float) -> bool:
        """Return whether the gate is open."""
        return self.gate.opens_at(now) <= now

    async def wait_and_start(self, not_before: float) -> None:
        """Wait until `not_before`, then until the gate is open."""
        await anyio.sleep_until(not_before)
        await self.gate.wait()

    def cancel_start(self) -> None:
        """Do nothing, because this throttle does not count attempts in flight."""

    def on_success(self, _now: float, _started: float, _headers: Mapping[str, str], budget_spent: int, /) -> None:
        """Refund the cost of the call's retries to the retry budget, or 1 if the call had no retries."""
        self._budget.refund(budget_spent or 1)

    def on_failure(self, attempt: FailedAttempt) -> RetryDecision:
        """Close the gate for as long as the service asks, charge the retry budget for a retry, and return the decision."""
        if attempt.retry_after is not None:
            # One throttled call holds back every call of the client, because the others would be throttled as well.
            self.gate.close(attempt, min(attempt.retry_after, self._policy.retry_after_cap))
        if isinstance(attempt.error, DeadlineExceeded) or attempt.counted_failures + 1 >= self._policy.attempts:
            return RetryDecision.GIVE_UP
        # The budget is checked last: a call that fails for another reason must not use up budget for the retries of other calls.
        if attempt.can_retry and not self._budget.try_spend(retry_cost(attempt.kind)):
            return RetryDecision.GIVE_UP
        return RetryDecision.RETRY_COUNTED
