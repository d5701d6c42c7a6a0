"""Limits shared by all tasks of a client: slots, a gate, a retry budget. None is tied to an event loop unless a task waits."""

from __future__ import annotations

import os
from collections import deque
from typing import Final
from weakref import WeakSet

import anyio
from anyio.lowlevel import EventLoopToken, current_token

_ALWAYS_OPEN: Final = float("-inf")


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
        # The slot goes straight to the waiter and never counts as free. Otherwise `take` could overtake the waiters.
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
    """Hold back every request until a time on the event loop's clock."""

    def __init__(self) -> None:
        self._opens_at = _ALWAYS_OPEN
        self._loop: EventLoopToken | None = None

    @property
    def opens_at(self) -> float:
        """When the gate opens; far in the past while it is open."""
        # Clocks of event loops have different origins. A time set in an earlier loop, as with `asyncio.run` called twice, means
        # nothing in this one.
        if self._opens_at != _ALWAYS_OPEN and self._loop != current_token():
            self._opens_at = _ALWAYS_OPEN
        return self._opens_at

    def close_until(self, until: float) -> None:
        """Keep the gate closed at least until `until`."""
        self._opens_at = max(self.opens_at, until)
        self._loop = current_token()

    async def wait(self) -> None:
        """Wait until the gate is open, even if it is held again during the wait."""
        while (left := self.opens_at - anyio.current_time()) > 0:  # noqa: ASYNC110 - the time may move during the sleep
            await anyio.sleep(left)


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
