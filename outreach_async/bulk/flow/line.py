"""A FIFO queue of tasks in which only the first watches the clock: changes take effect at once, and no task overtakes another."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

_WORTHWHILE: Final = 0.001
"""Minimum gain in seconds for which the first task is woken: a limit that grows slightly with every response is no reason."""


class _Place:
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


class Line:
    """A queue: first come, first served.

    A task that leaves, served or cancelled, wakes the next one, which checks for itself. No turn is handed over, so a cancelled
    task cannot lose one.
    """

    def __init__(self) -> None:
        self._queue: deque[_Place] = deque()
        self._asleep: dict[_Place, None] = {}  # an ordered set, so that a simulated run can be reproduced

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
        place = _Place()
        self._queue.append(place)
        try:
            while self._queue[0] is not place:
                await place.wait(math.inf)
            # Check again after each wait: what delays the start may have moved in either direction meanwhile.
            while (again := take(now := anyio.current_time())) > now:
                await place.wait(again)
        finally:
            self._leave(place)

    async def _sleep(self, until: float) -> None:
        if until <= anyio.current_time():
            await checkpoint()
            return
        place = _Place()
        self._asleep[place] = None
        try:
            await place.wait(until)
        finally:
            del self._asleep[place]

    def _leave(self, place: _Place) -> None:
        first = self._queue[0] is place
        self._queue.remove(place)
        if first and self._queue:
            self._queue[0].wake()

    def nudge(self, again: float) -> None:
        """Wake the first task to check again, if it waits beyond this instant."""
        if self._queue and self._queue[0].until > again + _WORTHWHILE:
            self._queue[0].wake()

    def wake_all(self) -> None:
        """Wake all tasks: each reaches the head of the queue in turn, and gets the error that ended the run."""
        for place in (*self._asleep, *self._queue):
            place.wake()
