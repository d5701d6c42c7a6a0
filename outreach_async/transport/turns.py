"""Exchanges under way: how many at once, and how closing ends them."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Protocol, Self

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from outreach_async.errors import InvalidRequest
from outreach_async.transport.evidence import lost
from outreach_async.transport.wire import Progress, Response


class Scope(Protocol):
    """Work that can be ended from outside."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool: ...

    def cancel(self) -> None:
        """End the work; what is raised by that stays within."""
        ...


class Turns:
    """Lets exchanges in, at most so many at once, and ends them all on closing. For one event loop.

    Args:
        most: Exchanges at once; `None` for no bound. Who waits is served in order.
        scope: Makes the scope in which an exchange is carried out.
    """

    def __init__(self, most: int | None, scope: Callable[[], Scope] = anyio.CancelScope) -> None:
        self._scope = scope
        self._room = anyio.Semaphore(most or sys.maxsize, fast_acquire=True)  # a slow one yields at every turn
        self._scopes: set[Scope] = set()
        self._closed = False
        self._empty = anyio.Event()

    async def take(self, exchange: Callable[[], Awaitable[Response]], progress: Progress) -> Response:
        """Carry out an exchange when there is room for it.

        Raises:
            InvalidRequest: The transport was closed before the exchange's turn came.
            TransportError: It was closed meanwhile.
        """
        await self._room.acquire()
        try:
            await checkpoint_if_cancelled()  # a mock would answer without ever looking
            if self._closed:
                raise InvalidRequest("the transport was closed before the request was sent; make a new one")
            with self._scope() as scope:
                self._scopes.add(scope)
                try:
                    return await exchange()
                finally:
                    self._leave(scope)
        finally:
            self._room.release()
        raise lost("the transport was closed while the request was under way", progress)

    def _leave(self, scope: Scope) -> None:
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
