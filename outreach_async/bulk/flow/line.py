"""A queue of tasks of which only the first looks at the clock: a change takes effect at once, and nobody overtakes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

_WORTHWHILE: Final = 0.001
"""Seconds that the first must gain to be woken: a limit that grows a little with every answer is no reason."""


class _Place:
    """Where a task waits; it may be woken sooner, and then looks again."""

    __slots__ = ("_event", "until")

    _event: anyio.Event  # there from the first wait on, and nobody sees the place before

    def __init__(self) -> None:
        self.until = -math.inf

    async def wait(self, until: float) -> None:
        self.until, self._event = until, anyio.Event()
        with anyio.CancelScope(deadline=until):
            await self._event.wait()

    def wake(self) -> None:
        self._event.set()


class Line:
    """First come, first served.

    A turn is never handed over: who leaves, served or cancelled, wakes the next, which looks for itself. So none can be lost.
    """

    def __init__(self) -> None:
        self._queue: deque[_Place] = deque()
        self._asleep: dict[_Place, None] = {}  # a set that keeps its order, so that a run can be repeated

    def __bool__(self) -> bool:
        return bool(self._queue)

    async def wait(self, not_before: float, take: Callable[[float], float]) -> None:
        """Wait for a turn and take it.

        Args:
            not_before: The instant before which the task does not even queue, or it would hold up others.
            take: Takes the turn at an instant if it can, and returns the instant from which it can. What it raises ends the wait.
        """
        await self._sleep(not_before)
        place = _Place()
        self._queue.append(place)
        try:
            while self._queue[0] is not place:
                await place.wait(math.inf)
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
        """Let the first look again, if it waits for longer than until that instant."""
        if self._queue and self._queue[0].until > again + _WORTHWHILE:
            self._queue[0].wake()

    def wake_all(self) -> None:
        """Let everybody go to the head of the line, one after the other: the run is over, and they are to hear of it."""
        for place in (*self._asleep, *self._queue):
            place.wake()
