"""Tie connections to one event loop of one process, limit how many exchanges run at once, and cancel them on closing."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final, Generic, NoReturn, Protocol, Self, TypeVar
from weakref import WeakSet

import anyio
from anyio.lowlevel import checkpoint_if_cancelled, current_token

from outreach_async.errors import InvalidRequest
from outreach_async.transport.sending import build_transport_error
from outreach_async.transport.wire import Progress, Response

T = TypeVar("T")


class LoopLocal(Generic[T]):
    """A value that belongs to one event loop. Another event loop gets a new value.

    Sockets and locks work only in the event loop that made them. The previous event loop is assumed to have ended: if two event
    loops alternate, the value is made again each time. In a forked child, a value that the parent made is neither used nor
    closed, because both processes would use the same connections. A value that was not made before the fork is made in the child
    as usual.

    Args:
        make: Function that makes the value.
        get_token: Function that returns an object which identifies the running event loop.

    Attributes:
        is_inherited: Whether this process inherited the object through a fork.
    """

    def __init__(self, make: Callable[[], T], get_token: Callable[[], object] = current_token) -> None:
        self._make = make
        self._get_token = get_token
        self._token: object = None
        self._value: T | None = None
        self.is_inherited = False
        _INSTANCES.add(self)

    def get(self) -> T:
        """Return the value of the running event loop; make it if necessary.

        Raises:
            InvalidRequest: The parent process made the value before this process was forked.
        """
        token = self._get_token()
        # No lock is needed: without an await, no other task of this event loop can run in between.
        if self._value is None or token != self._token:
            self._value = self._make()
            self._token = token
        return self._value

    def release(self) -> T | None:
        """Forget the value. Return it if it belongs to the running event loop, otherwise return `None`."""
        value = self._value if self._token == self._get_token() else None
        self._value = self._token = None
        return value

    def discard_after_fork(self) -> None:
        """Discard the value in a newly forked child."""
        self.is_inherited = True
        if self._value is not None:
            _PARENT_VALUES.append(self._value)
            self._make, self._value = _raise_forked, None


_INSTANCES: Final[WeakSet[LoopLocal[Any]]] = WeakSet()
_PARENT_VALUES: Final[list[object]] = []  # kept forever: collecting a value as garbage may close connections


def _raise_forked() -> NoReturn:
    raise InvalidRequest(
        "the transport was used before this process was forked, so its connections belong to the parent; make a new client"
    )


def discard_all_after_fork() -> None:
    """Discard the parent's value in every `LoopLocal`."""
    for instance in _INSTANCES:
        instance.discard_after_fork()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows cannot fork
    os.register_at_fork(after_in_child=discard_all_after_fork)


class CancelScopeLike(Protocol):
    """A cancel scope, such as `anyio.CancelScope`."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool: ...

    def cancel(self) -> None:
        """Cancel the code in the scope. The scope suppresses the resulting exception."""


class InFlight:
    """Runs a bounded number of concurrent exchanges in one event loop, and cancels all of them on closing.

    Args:
        limit: Maximum number of concurrent exchanges; `None` for no limit. Waiting exchanges start in the order of their arrival.
        make_scope: Function that makes the cancel scope of an exchange.
    """

    def __init__(self, limit: int | None, make_scope: Callable[[], CancelScopeLike] = anyio.CancelScope) -> None:
        self._make_scope = make_scope
        self._semaphore = anyio.Semaphore(limit or sys.maxsize, fast_acquire=True)  # otherwise, `acquire` always yields
        self._scopes: set[CancelScopeLike] = set()
        self._closed = False
        self._all_ended = anyio.Event()

    async def run(self, exchange: Callable[[], Awaitable[Response]], progress: Progress) -> Response:
        """Wait until fewer than `limit` exchanges are running, then run an exchange.

        Raises:
            InvalidRequest: The transport was closed before the exchange started.
            TransportError: The transport was closed while the exchange was running.
        """
        if self._semaphore.value > 0:  # then nothing waits; this spares a coroutine and a second check for a cancellation
            self._semaphore.acquire_nowait()
        else:
            await self._semaphore.acquire()
        try:
            await checkpoint_if_cancelled()  # a mock transport may never check for a cancellation itself
            if self._closed:  # checked here, because the transport may have been closed during the wait
                raise InvalidRequest("the transport was closed before the request was sent; make a new one")
            with self._make_scope() as scope:
                self._scopes.add(scope)
                try:
                    return await exchange()
                finally:
                    self._remove_scope(scope)
        finally:
            self._semaphore.release()
        # Reached only if `aclose` cancelled the scope, which then suppresses the cancellation. A cancellation from outside
        # propagates.
        raise build_transport_error("the transport was closed while the request was in flight", progress)

    def _remove_scope(self, scope: CancelScopeLike) -> None:
        self._scopes.discard(scope)
        if not self._scopes and self._closed:
            self._all_ended.set()

    async def aclose(self) -> None:
        """Cancel every exchange and wait until all have released their connections."""
        self._closed = True  # before anything is cancelled, because each release lets a waiting exchange start
        for scope in self._scopes:
            scope.cancel()
        if self._scopes:  # the caller closes the pool next, which must not happen while an exchange is running
            await self._all_ended.wait()
