"""Tie connections to one event loop of one process, limit how many exchanges run at once, and cancel them on closing."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Generic, NoReturn, Protocol, Self, TypeVar
from weakref import WeakSet

import anyio
from anyio.lowlevel import EventLoopToken, checkpoint_if_cancelled, current_token

from outreach_async.errors import InvalidRequest
from outreach_async.transport.sending import lost
from outreach_async.transport.wire import Progress, Response

T = TypeVar("T")


class Bound(Generic[T]):
    """A value that belongs to one event loop, and is made again in another one, where its sockets and locks do not work.

    The previous event loop is assumed to have ended: two loops that alternate would make the value again each time. In a forked
    child, a value that the parent made is neither used nor closed, because both processes would use the same connections. A value
    that was not made before the fork is made in the child as usual.

    Args:
        make: Makes the value.

    Attributes:
        inherited: Whether this process inherited the object through a fork.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] = make
        self._token: EventLoopToken | None = None
        self._value: T | None = None
        self.inherited = False
        _ALL.add(self)

    def get(self) -> T:
        """Return the value of the running event loop; make it if necessary.

        Raises:
            InvalidRequest: The parent process has made the value.
        """
        token = current_token()
        # No lock and no await: nothing else of this event loop can run in between.
        if self._value is None or token != self._token:
            self._value = self._make()
            self._token = token
        return self._value

    def release(self) -> T | None:
        """Forget the value. Return it if it belongs to the running event loop, else `None`."""
        value = self._value if self._token == current_token() else None
        self._value = self._token = None
        return value

    def inherit(self) -> None:
        """Give up the value in a newly forked child."""
        self.inherited = True
        if self._value is not None:
            _OF_THE_PARENT.append(self._value)
            self._make, self._value = _refuse, None


_ALL: Final[WeakSet[Bound[Any]]] = WeakSet()
_OF_THE_PARENT: Final[list[object]] = []  # never released: collecting some of them would close connections


def _refuse() -> NoReturn:
    raise InvalidRequest(
        "the transport was used before this process was forked, so its connections belong to the parent; make a new client"
    )


def inherit_all() -> None:
    """Give up the values of the parent in every `Bound`."""
    for bound in _ALL:
        bound.inherit()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows cannot fork
    os.register_at_fork(after_in_child=inherit_all)


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
