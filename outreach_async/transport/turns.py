"""Exchanges under way: how many at once, in which event loop, and how closing ends them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Generic, TypeVar

import anyio
from anyio.lowlevel import EventLoopToken, checkpoint_if_cancelled, current_token

from outreach_async.errors import InvalidRequest
from outreach_async.transport.evidence import lost
from outreach_async.transport.wire import Progress, Response

T = TypeVar("T")


class Turns:
    """Lets exchanges in, at most so many at once, and ends them all on closing. For one event loop.

    Args:
        most: Exchanges at once; `None` for no bound. Who waits is served in order.
    """

    def __init__(self, most: int | None) -> None:
        self._room: AbstractAsyncContextManager[Any] = (
            nullcontext() if most is None else anyio.Semaphore(most, fast_acquire=True)  # a slow one yields at every turn
        )
        self._scopes: set[anyio.CancelScope] = set()
        self._closed = False
        self._empty = anyio.Event()

    async def take(self, exchange: Callable[[], Awaitable[Response]], progress: Progress) -> Response:
        """Carry out an exchange when there is room for it.

        Raises:
            InvalidRequest: The transport was closed before the exchange's turn came.
            TransportError: It was closed meanwhile.
        """
        async with self._room:
            await checkpoint_if_cancelled()  # a mock would answer without ever looking
            if self._closed:
                raise InvalidRequest("the transport was closed before the request was sent; make a new one")
            with anyio.CancelScope() as scope:
                self._scopes.add(scope)
                try:
                    return await exchange()
                finally:
                    self._leave(scope)
        raise lost("the transport was closed while the request was under way", progress)

    def _leave(self, scope: anyio.CancelScope) -> None:
        self._scopes.discard(scope)
        if not self._scopes and self._closed:
            self._empty.set()

    async def aclose(self) -> None:
        """End every exchange and wait until all have let go of their connections."""
        self._closed = True
        for scope in self._scopes:
            scope.cancel()
        if self._scopes:
            await self._empty.wait()


class Bound(Generic[T]):
    """A value that belongs to one event loop and is made anew in another, where its sockets and locks are of no use.

    The event loop before is taken to be over: two that take turns would make the value anew at every turn.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._token: EventLoopToken | None = None
        self._value: T | None = None

    def get(self) -> T:
        """Return the running event loop's value."""
        token = current_token()
        if self._value is None or token != self._token:
            self._value = self._make()
            self._token = token
        return self._value

    def release(self) -> T | None:
        """Forget the value, and return it if it is the running event loop's."""
        value = self._value if self._token == current_token() else None
        self._value = self._token = None
        return value
