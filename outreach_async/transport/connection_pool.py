"""Keep idle connections of one event loop for reuse, and close them when they are worn out."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any, Final

import anyio

from outreach_async.transport.lifecycle import InFlight
from outreach_async.transport.wire import Progress, Response

KEEPALIVE_EXPIRY: Final = 5.0
"""Seconds after which an idle connection is closed instead of reused; the default of httpx."""


class ConnectionPool:
    """A bounded pool of connections for one event loop. The most recently used connection is reused first.

    The libraries' own pools scan all connections for every request, and a request that is cancelled at the wrong moment can
    permanently reduce their capacity. In this pool, one exchange at a time uses a connection. A connection is closed if an
    exchange ends without a complete response, or if the connection was idle for too long.

    Args:
        limit: Maximum number of connections, and of concurrent exchanges.
        build: Function that makes a connection without opening it.
        clock: Function that returns a monotonic time in seconds.
    """

    def __init__(self, limit: int, build: Callable[[], Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._in_flight = InFlight(limit)
        self._build = build
        self._clock = clock
        self._idle: deque[tuple[float, Any]] = deque()

    async def run(self, exchange: Callable[[Any], Awaitable[Response]], progress: Progress) -> Response:
        """Run an exchange on a connection that no other exchange uses at the same time."""
        return await self._in_flight.run(partial(self._exchange_on, exchange), progress)

    async def _exchange_on(self, exchange: Callable[[Any], Awaitable[Response]]) -> Response:
        idle, worn = self._take_idle()
        connection = idle or self._build()
        try:
            # Closing may be cancelled. The new connection is not in the pool, so it must be closed in that case as well.
            await _close_all(worn)
            answer = await exchange(connection)
        except BaseException:
            # Also after a cancellation: the rest of the response would arrive later and be read as the next response.
            await _close_all([connection])
            raise
        # Only after a complete response. The newest connection stays on the right, so the oldest is always on the left.
        self._idle.append((self._clock(), connection))
        return answer

    def _take_idle(self) -> tuple[Any | None, list[Any]]:
        """Remove and return the connection to use, if any, and the connections to close."""
        worn = []
        horizon = self._clock() - KEEPALIVE_EXPIRY
        while self._idle and self._idle[0][0] < horizon:
            worn.append(self._idle.popleft()[1])
        while self._idle:
            # Take the most recently used connection: the server is least likely to have closed it, and under a lower load the
            # other connections expire.
            connection = self._idle.pop()[1]
            if connection.is_reusable():
                return connection, worn
            worn.append(connection)
        return None, worn

    async def aclose(self) -> None:
        """Cancel every exchange and close every connection."""
        await self._in_flight.aclose()  # first: a running exchange would return its connection to the pool
        idle, self._idle = self._idle, deque()
        await _close_all(connection for _, connection in idle)


async def _close_all(connections: Iterable[Any]) -> None:
    for connection in connections:
        with anyio.CancelScope(shield=True):  # a cancellation half-way would leave the socket open
            await connection.aclose()
