"""A pool of single connections that reuses the last one used first.

A shared pool of a library scans all its connections for every request, and a request that is cancelled at the wrong moment can
cost it a place for good. A lane is one connection from opening to closing. One exchange at a time uses it. It is closed after
anything but a complete response, and when it was idle for too long.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

import anyio

from outreach_async.transport.lifecycle import InFlight
from outreach_async.transport.wire import Progress, Response

KEEPALIVE_EXPIRY: Final = 5.0
"""Seconds after which an idle connection is closed instead of reused; the default of httpx."""


class PooledConnection(Protocol):
    """One connection, opened by its first exchange."""

    def is_reusable(self) -> bool:
        """Return whether the connection can be used for another exchange."""
        ...

    async def aclose(self) -> None:
        """Close the connection in any state."""
        ...


L = TypeVar("L", bound=PooledConnection)


class ConnectionPool(Generic[L]):
    """A bounded last-in-first-out pool of lanes, for one event loop.

    Args:
        most: Most lanes, and the number of exchanges at once.
        build: Makes a lane without opening it.
        clock: Returns seconds from any start.
    """

    def __init__(self, most: int, build: Callable[[], L], clock: Callable[[], float] = time.monotonic) -> None:
        self._in_flight = InFlight(most)
        self._build = build
        self._clock = clock
        self._idle: deque[tuple[float, L]] = deque()

    async def run(self, exchange: Callable[[L], Awaitable[Response]], progress: Progress) -> Response:
        """Run an exchange on a lane that no other exchange uses meanwhile."""
        return await self._in_flight.run(partial(self._exchange_on, exchange), progress)

    async def _exchange_on(self, exchange: Callable[[L], Awaitable[Response]]) -> Response:
        kept, worn = self._take_idle()
        lane = self._build() if kept is None else kept
        try:
            # Closing may be cancelled. By now the lane is no longer in the pool, so it must be closed in that case as well.
            await _close_all(worn)
            answer = await exchange(lane)
        except BaseException:
            # Also after a cancellation: the rest of the response would arrive later and be read as the next one.
            await _close_all([lane])
            raise
        # Only after a complete response. The newest lane stays on the right, so the oldest is always on the left.
        self._idle.append((self._clock(), lane))
        return answer

    def _take_idle(self) -> tuple[L | None, list[L]]:
        """Remove and return the lane to use, if any, and the lanes to close."""
        worn = []
        horizon = self._clock() - KEEPALIVE_EXPIRY
        while self._idle and self._idle[0][0] < horizon:
            worn.append(self._idle.popleft()[1])
        while self._idle:
            # The last one used: the server is least likely to have closed it, and a lower load lets the others expire.
            lane = self._idle.pop()[1]
            if lane.is_reusable():
                return lane, worn
            worn.append(lane)
        return None, worn

    async def aclose(self) -> None:
        """Cancel every exchange and close every lane."""
        await self._in_flight.aclose()  # first: a running exchange would return its lane to the pool
        idle, self._idle = self._idle, deque()
        await _close_all(lane for _, lane in idle)


async def _close_all(lanes: Iterable[PooledConnection]) -> None:
    for lane in lanes:
        with anyio.CancelScope(shield=True):  # a cancellation half-way would leave the socket open
            await lane.aclose()
