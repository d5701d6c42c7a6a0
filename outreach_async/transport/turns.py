"""Limit how many exchanges run at once, and cancel them on closing."""

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
    """A cancel scope."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool: ...

    def cancel(self) -> None:
        """Cancel the work. The scope swallows the resulting cancellation."""
        ...


class Turns:
    """Runs a bounded number of exchanges at once and cancels them all on closing. For one event loop.

    Args:
        most: Most exchanges at once; `None` for no limit. Waiting exchanges start in the order of their arrival.
        scope: Makes the cancel scope of an exchange.
    """

    def __init__(self, most: int | None, scope: Callable[[], Scope] = anyio.CancelScope) -> None:
        self._scope = scope
        self._room = anyio.Semaphore(most or sys.maxsize, fast_acquire=True)  # otherwise every acquire yields
        self._scopes: set[Scope] = set()
        self._closed = False
        self._empty = anyio.Event()

    async def take(self, exchange: Callable[[], Awaitable[Response]], progress: Progress) -> Response:
        """Run an exchange once fewer than `most` are running.

        Raises:
            InvalidRequest: The transport was closed before the exchange started.
            TransportError: The transport was closed while the exchange was running.
        """
        await self._room.acquire()
        try:
            await checkpoint_if_cancelled()  # a mock transport may never check for a cancellation itself
            if self._closed:  # checked after the wait, which may have outlasted the transport
                raise InvalidRequest("the transport was closed before the request was sent; make a new one")
            with self._scope() as scope:
                self._scopes.add(scope)
                try:
                    return await exchange()
                finally:
                    self._leave(scope)
        finally:
            self._room.release()
        # Reached only if `aclose` cancelled the scope, which then swallows its own cancellation. One from outside passes through.
        raise lost("the transport was closed while the request was in flight", progress)

    def _leave(self, scope: Scope) -> None:
        self._scopes.discard(scope)
        if not self._scopes and self._closed:
            self._empty.set()

    async def aclose(self) -> None:
        """Cancel every exchange and wait until all have released their connections."""
        self._closed = True  # before anything is cancelled, as each release lets a waiting exchange start
        for scope in self._scopes:
            scope.cancel()
        if self._scopes:  # the caller closes the pool next, which must not happen under a running exchange
            await self._empty.wait()
