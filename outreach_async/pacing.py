"""What all tasks of a client share: slots, a gate, and a retry budget. None belongs to an event loop while nobody waits."""

from __future__ import annotations

import os
from collections import deque
from typing import Final
from weakref import WeakSet

import anyio
from anyio.lowlevel import EventLoopToken, current_token

_ALWAYS_OPEN: Final = float("-inf")


class Slots:
    """Bound how many requests are in flight; first come, first served.

    anyio's CapacityLimiter costs five times as much, and its Semaphore is bound to one event loop.
    """

    def __init__(self, total: int) -> None:
        self.total = self.free = total
        self._queue: deque[anyio.Event] = deque()
        _ALL_SLOTS.add(self)

    def take(self) -> bool:
        """Take a slot if one is free."""
        if self.free <= 0:
            return False
        self.free -= 1
        return True

    async def wait(self) -> None:
        """Wait for a slot and take it; a cancelled wait takes none."""
        if self.take():
            return
        mine = anyio.Event()
        self._queue.append(mine)
        try:
            await mine.wait()
        except BaseException:
            if mine.is_set():
                self.give()
            else:
                self._queue.remove(mine)
            raise

    def give(self) -> None:
        """Give a slot back: to who has waited longest, or to the free ones."""
        if self._queue:
            self._queue.popleft().set()
        else:
            self.free += 1

    def inherit(self) -> None:
        """Begin anew, in a child that was forked just now: those who hold slots, or wait for one, are the parent's."""
        self.free = self.total
        self._queue.clear()


_ALL_SLOTS: Final[WeakSet[Slots]] = WeakSet()


def inherit_all() -> None:
    """Begin anew with all slots there are."""
    for slots in _ALL_SLOTS:
        slots.inherit()


if hasattr(os, "register_at_fork"):  # pragma: no branch - on Windows no process is forked
    os.register_at_fork(after_in_child=inherit_all)


class Gate:
    """Hold every request back until an instant of the event loop's clock."""

    def __init__(self) -> None:
        self._opens_at = _ALWAYS_OPEN
        self._loop: EventLoopToken | None = None

    @property
    def opens_at(self) -> float:
        """The instant; what was held in another event loop says nothing on this one's clock."""
        if self._opens_at != _ALWAYS_OPEN and self._loop != current_token():
            self._opens_at = _ALWAYS_OPEN
        return self._opens_at

    def hold(self, until: float) -> None:
        """Keep the gate closed at least until then."""
        self._opens_at = max(self.opens_at, until)
        self._loop = current_token()

    async def wait(self) -> None:
        """Wait until the gate is open, however often it is held meanwhile."""
        while (left := self.opens_at - anyio.current_time()) > 0:  # noqa: ASYNC110 - for an instant that may have moved
            await anyio.sleep(left)


class RetryBudget:
    """Bound the repeats of all calls together, so that a failing service is not asked more often than a healthy one."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.left = size

    def spend(self, amount: int) -> bool:
        """Take the amount, or nothing if there is not enough."""
        if amount > self.left:
            return False
        self.left -= amount
        return True

    def refund(self, amount: int) -> None:
        """Give an amount back; the budget never exceeds its size."""
        self.left = min(self.size, self.left + amount)
