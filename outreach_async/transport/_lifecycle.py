"""Manage connections: bind them to their event loop, limit concurrent exchanges, reuse idle connections, and close everything."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

import anyio
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from outreach_async.errors import InvalidRequest
from outreach_async.transport._sending import build_transport_error
from outreach_async.transport._wire import Progress, Response

T = TypeVar("T")

KEEPALIVE_EXPIRY: Final = 5.0
"""Maximum time in seconds for which a connection may be idle and then be reused. httpx has the same default."""

AT_WORK: Final = Counter[int]()
"""The threads that work for the event loop of a thread, by the number of this thread. Virtual time waits for them."""

_INSTANCES: Final[WeakSet[LoopLocal[Any]]] = WeakSet()
_PARENT_VALUES: Final[list[object]] = []  # kept forever, because the garbage collection of a value may close its connections
_CLOSING: Final[set[Any]] = set()


def get_running_loop() -> Any:
    """Return the running event loop: a loop of asyncio, or a token of trio."""
    # A run of trio can be inside a running loop of asyncio, as in a notebook or as its guest. Only anyio tells them apart, but
    # asyncio's own function is ten times as fast.
    if "trio" in sys.modules:
        return current_token().native_token
    import asyncio  # a slow import, but imported if its event loop runs

    return asyncio.get_running_loop()


class LoopLocal(Generic[T]):
    """Holds a value, such as a connection pool, for each event loop, because sockets and locks work only in their own loop."""

    # The values of ended event loops are dropped when a value is made. Garbage collection then closes their sockets.
    # If a process makes a value and is then forked, both processes share the value's connections. The child process therefore
    # neither uses nor closes this value: `get` raises InvalidRequest. If there was no value before the fork, the child makes one
    # as usual.

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        # No lock: each event loop, and so each thread, has its own key, and single operations of a dict are atomic.
        self._values: dict[Any, T] = {}
        self.is_inherited = self._is_lost = False
        _INSTANCES.add(self)

    def get(self) -> T:
        """Return the value that belongs to the running event loop. Make the value if it does not exist."""
        loop = get_running_loop()
        value = self._values.get(loop)
        if value is None:
            if self._is_lost:
                problem = "the transport was used before this process was forked, so its connections belong to the parent"
                raise InvalidRequest(f"{problem}; make a new client")
            for other in filter(_has_ended, list(self._values)):
                self._values.pop(other, None)
            value = self._values[loop] = self._make()
        return value

    def peek(self) -> T | None:
        return self._values.get(get_running_loop())

    def release(self) -> T | None:
        """Remove all values. Return the value of the running event loop, if any. Other values are closed in their own loops."""
        values, self._values = self._values, {}
        value = values.pop(get_running_loop(), None)
        for loop, other in values.items():
            _close_in(loop, other)
        return value

    def discard_after_fork(self) -> None:
        self.is_inherited = True
        if self._values:
            _PARENT_VALUES.append(self._values)
            self._values, self._is_lost = {}, True


def _has_ended(loop: Any) -> bool:
    if hasattr(loop, "is_closed"):  # a loop of asyncio, which this module does not import
        return bool(loop.is_closed())
    try:
        loop.run_sync_soon(int)  # a token of trio tells in no other way; `int` stands for a function without effect
    except RuntimeError:
        return True
    return False


def _close_in(loop: Any, value: Any) -> None:
    """Close a value in its own event loop, which may run in another thread, without waiting for it."""

    def start() -> None:
        task = loop.create_task(value.aclose())
        _CLOSING.add(task)  # asyncio itself keeps only a weak reference
        task.add_done_callback(_CLOSING.discard)

    with suppress(RuntimeError):  # the event loop has ended
        if hasattr(loop, "call_soon_threadsafe"):
            loop.call_soon_threadsafe(start)
        else:
            import trio

            loop.run_sync_soon(trio.lowlevel.spawn_system_task, value.aclose)


def discard_all_after_fork() -> None:
    """In a newly forked child process, discard the value that each `LoopLocal` inherited from the parent process."""
    for instance in _INSTANCES:
        instance.discard_after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows cannot fork
    os.register_at_fork(after_in_child=discard_all_after_fork)


class InFlight:
    """Runs a bounded number of concurrent exchanges in one event loop, and cancels all of them on closing."""

    def __init__(self, limit: int | None, make_scope: Callable[[], anyio.CancelScope] = anyio.CancelScope) -> None:
        self._make_scope = make_scope
        self._semaphore = anyio.Semaphore(limit or sys.maxsize, fast_acquire=True)  # otherwise, `acquire` always yields
        self._scopes: set[anyio.CancelScope] = set()
        self._closed = False
        self._all_ended: anyio.Event | None = None  # made by `aclose`

    async def run(self, exchange: Callable[[], Awaitable[Response]], progress: Progress) -> Response:
        """Wait until fewer than `limit` exchanges are running, then run an exchange."""
        if self._semaphore.value > 0:  # no exchange is waiting; the shortcut saves a coroutine and a second cancellation check
            self._semaphore.acquire_nowait()
        else:
            await self._semaphore.acquire()
        try:
            await checkpoint_if_cancelled()  # a mock transport may never check for a cancellation itself
            if self._closed:  # checked here, because the transport may have been closed during the wait
                raise InvalidRequest("the transport was closed before the request was sent; make a new transport")
            with self._make_scope() as scope:
                self._scopes.add(scope)
                try:
                    return await exchange()
                finally:
                    self._scopes.discard(scope)
                    if self._all_ended is not None and not self._scopes:
                        self._all_ended.set()
        finally:
            self._semaphore.release()
        # Reached only if `aclose` cancelled the scope, which then suppresses the cancellation. A cancellation from outside
        # propagates.
        raise build_transport_error("the transport was closed while the request was in flight", progress)

    async def aclose(self) -> None:
        """Cancel every exchange and wait until all have released their connections."""
        self._closed = True  # before anything is cancelled, because each release lets a waiting exchange start
        for scope in self._scopes:
            scope.cancel()
        if self._scopes:  # the caller closes the pool next, which must not happen while an exchange is running
            self._all_ended = self._all_ended or anyio.Event()
            await self._all_ended.wait()


class ConnectionPool(InFlight):
    """A bounded pool of connections for one event loop. The most recently used connection is reused first."""

    # The pools of httpx and httpx2 scan all connections for every request. If a request is cancelled at the wrong moment, such a
    # pool can permanently lose capacity. This pool has neither disadvantage.
    # Each connection serves one exchange at a time. A connection is closed if an exchange ends without a complete response, or if
    # the connection was idle for too long.

    def __init__(self, limit: int, build: Callable[[], Any]) -> None:
        super().__init__(limit)
        self._build = build
        self._clock = time.monotonic
        self._idle: deque[tuple[float, Any]] = deque()
        self._worn: list[Any] = []

    def run_on_connection(
        self, exchange: Callable[[Any], Awaitable[Response]], progress: Progress
    ) -> Coroutine[Any, Any, Response]:
        """Run an exchange on a connection that no other exchange uses at the same time."""
        return self.run(partial(self._exchange_on, exchange), progress)

    async def _exchange_on(self, exchange: Callable[[Any], Awaitable[Response]]) -> Response:
        worn, self._worn = self._worn, []
        horizon = self._clock() - KEEPALIVE_EXPIRY
        while self._idle and self._idle[0][0] < horizon:
            worn.append(self._idle.popleft()[1])
        connection = None
        while self._idle and connection is None:
            # Take the most recently used connection: the server is least likely to have closed it, and under a lower load the
            # other connections expire.
            newest = self._idle.pop()[1]
            if newest.is_reusable():
                connection = newest
            else:
                worn.append(newest)
        connection = connection or self._build()
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

    def drop_idle(self) -> None:
        """Use no idle connection again. The next request closes them, or `aclose`."""
        self._worn += (connection for _, connection in self._idle)
        self._idle.clear()

    async def aclose(self) -> None:
        await super().aclose()  # first: a running exchange would return its connection to the pool
        self.drop_idle()
        worn, self._worn = self._worn, []
        await _close_all(worn)


async def _close_all(connections: Iterable[Any]) -> None:
    for connection in connections:
        with anyio.CancelScope(shield=True):  # a cancellation half-way would leave the socket open
            await connection.aclose()
