"""Limits shared by all tasks of a client: slots, and a throttle with its gate and retry budget.

None is tied to an event loop unless a task waits.
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
    """Limit the number of requests in flight. Waiters are served in FIFO order.

    anyio's CapacityLimiter is five times slower, and its Semaphore is tied to one event loop.
    """

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self._waiters: deque[anyio.Event] = deque()
        _ALL_SLOTS.add(self)

    def try_acquire(self) -> bool:
        """Take a slot if one is free, and return whether it was."""
        if self.free <= 0:
            return False
        self.free -= 1
        return True

    async def acquire(self) -> None:
        """Wait for a slot and take it. A cancelled wait takes none."""
        if self.try_acquire():
            return
        mine = anyio.Event()
        self._waiters.append(mine)
        try:
            await mine.wait()
        except BaseException:
            if mine.is_set():
                # `release` passed its slot to this task, but the wait was cancelled before the task ran: pass the slot on, or it
                # is lost for good.
                self.release()
            else:
                self._waiters.remove(mine)
            raise

    def release(self) -> None:
        """Release a slot: to the longest waiter, or to the free slots."""
        # The slot goes straight to the waiter and never counts as free. Otherwise `try_acquire` could overtake the waiters.
        if self._waiters:
            self._waiters.popleft().set()
        else:
            self.free += 1

    def reset_after_fork(self) -> None:
        """Reset the slots in a newly forked child process."""
        # The tasks that hold slots or wait for one run in the parent only. The child would wait for them forever.
        self.free = self.total
        self._waiters.clear()


_ALL_SLOTS: Final[WeakSet[RequestSlots]] = WeakSet()


def reset_all_after_fork() -> None:
    """Reset all slots of the process."""
    for slots in _ALL_SLOTS:
        slots.reset_after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=reset_all_after_fork)


class RetryAfterGate:
    """Hold back every request of a client until a time on the event loop's clock.

    Attributes:
        reason: Why the gate was closed.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._opens_at = -math.inf
        self._loop: EventLoopToken | None = None

    def opens_at(self, now: float) -> float:
        """Return when the gate opens; a time in the past if it is open."""
        # Clocks of event loops have different origins. A time set in an earlier loop, as with `asyncio.run` called twice, means
        # nothing in this one. Looking up the loop is slow, so a gate that is open by either clock does without.
        if self._opens_at > now and self._loop != current_token():
            self._opens_at = -math.inf
        return self._opens_at

    def close(self, attempt: FailedAttempt, seconds: float) -> None:
        """Keep the gate closed for at least this long after an attempt, because the service asked to wait."""
        until = attempt.ended + seconds
        if until > self.opens_at(attempt.ended):
            self._opens_at, self._loop = until, current_token()
            self.reason = f"{attempt.description} and asked to wait {attempt.retry_after:.3g} s"

    async def wait(self) -> None:
        """Wait until the gate is open, even if it is closed for longer during the wait."""
        while self.opens_at(now := anyio.current_time()) > now:  # noqa: ASYNC110 - the time may move during the sleep
            await anyio.sleep_until(self._opens_at)


class RetryBudget:
    """Limit the retries of all calls together: a failing service must not receive more requests than a healthy one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.remaining = size

    def try_spend(self, amount: int) -> bool:
        """Take the amount if the budget has it, and return whether it had. Otherwise take nothing."""
        if amount > self.remaining:
            return False
        self.remaining -= amount
        return True

    def refund(self, amount: int) -> None:
        """Give back an amount. The budget never exceeds its size."""
        self.remaining = min(self.size, self.remaining + amount)


class RetryDecision(Enum):
    """A throttle's decision after a failed attempt."""

    RETRY = "retry; the service or the network failed, and the failure does not count against the call"
    RETRY_COUNTED = "retry; the failure counts against the call"
    GIVE_UP = "do not retry: the error is final, the call has used up its attempts, or the retry budget is empty"
    STOP_RUN = "the run is over"


@attrs.frozen
class FailedAttempt:
    """A failed attempt, as a throttle sees it.

    Attributes:
        error: The failure.
        kind: What the failure proves.
        started: When the attempt started.
        ended: When it failed.
        counted_failures: Number of earlier failures counted against the call.
        retry_after: Seconds that the service asked to wait; `None` if it did not ask.
        can_retry: False if the call ends whatever the decision, so that a retry must not be charged for.
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
        """The failure, without quoting the response."""
        return str(self.error) if self.error.status_code is None else f"the service answered {self.error.status_code}"


class Throttle(Protocol):
    """Decides when the attempts of a client or of a run may start, and what a failed one means for its call.

    Each started attempt ends with a call of `on_success`, `on_failure` or `cancel_start`, unless its task is cancelled. Times are
    on the event loop's clock.

    Attributes:
        gate: The client's gate. It is checked once more after the wait for a slot, during which it may have closed.
    """

    gate: RetryAfterGate

    @property
    def run(self) -> int | None:
        """Number of the bulk run; `None` outside a run."""

    def try_start(self, now: float) -> bool:
        """Start an attempt now if nothing prevents it, and return whether it started."""

    async def wait_and_start(self, not_before: float) -> None:
        """Wait until an attempt may start, at `not_before` or later, and start it.

        Raises:
            OutreachError: No further attempt may start.
        """

    def cancel_start(self) -> None:
        """Release a reserved start: the attempt will not be sent."""

    def on_success(self, now: float, started: float, headers: Mapping[str, str], budget_spent: int, /) -> None:
        """Record a successful attempt; `budget_spent` is what the retries of its call cost."""

    def on_failure(self, attempt: FailedAttempt) -> RetryDecision:
        """Record a failed attempt and decide what to do next."""


class ClientThrottle:
    """The throttle of all calls of a client outside bulk runs: every failure counts against its call."""

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
        """Do nothing: attempts in flight are not counted."""

    def on_success(self, _now: float, _started: float, _headers: Mapping[str, str], budget_spent: int, /) -> None:
        """Give back what the call's retries cost, or 1."""
        self._budget.refund(budget_spent or 1)

    def on_failure(self, attempt: FailedAttempt) -> RetryDecision:
        """Close the gate for as long as the service asks, and charge the retry budget."""
        if attempt.retry_after is not None:
            # One throttled call holds back every call of the client, because the others would be throttled as well.
            self.gate.close(attempt, min(attempt.retry_after, self._policy.retry_after_cap))
        if isinstance(attempt.error, DeadlineExceeded) or attempt.counted_failures + 1 >= self._policy.attempts:
            return RetryDecision.GIVE_UP
        # The budget comes last: a call that fails for another reason must not spend what other calls could retry with.
        if attempt.can_retry and not self._budget.try_spend(retry_cost(attempt.kind)):
            return RetryDecision.GIVE_UP
        return RetryDecision.RETRY_COUNTED
