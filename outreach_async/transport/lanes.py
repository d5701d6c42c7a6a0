"""Connections one by one instead of a pool: the last one used is the first one taken.

A shared pool scans all its connections at every request, and one cancelled at the wrong moment can lose a place in it for good.
A lane is one connection from its opening to its end: taken by one exchange at a time, closed and never mended after anything
but a whole answer, and closed when it has idled too long.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

import anyio

from outreach_async.transport.turns import Turns
from outreach_async.transport.wire import Progress, Response

KEEP_IDLE: Final = 5.0
"""Seconds after which an idle connection is not used again; as in httpx."""


class Lane(Protocol):
    """One connection, opened by its first exchange."""

    def reusable(self) -> bool:
        """Tell whether the other side has kept the connection open."""
        ...

    async def aclose(self) -> None:
        """Close the connection, whatever state it is in."""
        ...


L = TypeVar("L", bound=Lane)


class Lanes(Generic[L]):
    """At most so many lanes on a last-in-first-out list. For one event loop.

    Args:
        most: Lanes, and so exchanges at once.
        build: Makes a lane without opening it.
        clock: Returns seconds from any start.
    """

    def __init__(self, most: int, build: Callable[[], L], clock: Callable[[], float] = time.monotonic) -> None:
        self._turns = Turns(most)
        self._build = build
        self._clock = clock
        self._idle: deque[tuple[float, L]] = deque()

    async def run(self, exchange: Callable[[L], Awaitable[Response]], progress: Progress) -> Response:
        """Carry out an exchange on a lane of its own."""
        return await self._turns.take(partial(self._ride, exchange), progress)

    async def _ride(self, exchange: Callable[[L], Awaitable[Response]]) -> Response:
        kept, worn = self._pick()
        lane = self._build() if kept is None else kept
        try:
            await _close(worn)
            answer = await exchange(lane)
        except BaseException:
            await _close([lane])
            raise
        self._idle.append((self._clock(), lane))
        return answer

    def _pick(self) -> tuple[L | None, list[L]]:
        """Take the lane to use, if there is one, and those to close."""
        worn = []
        horizon = self._clock() - KEEP_IDLE
        while self._idle and self._idle[0][0] < horizon:
            worn.append(self._idle.popleft()[1])
        while self._idle:
            lane = self._idle.pop()[1]
            if lane.reusable():
                return lane, worn
            worn.append(lane)
        return None, worn

    async def aclose(self) -> None:
        """End every exchange and close every lane."""
        await self._turns.aclose()
        idle, self._idle = self._idle, deque()
        await _close(lane for _, lane in idle)


async def _close(lanes: Iterable[Lane]) -> None:
    for lane in lanes:
        with anyio.CancelScope(shield=True):  # cancelled half-way, the socket would stay open
            await lane.aclose()
