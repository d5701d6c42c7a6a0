"""What belongs to one event loop of one process: connections, and the locks around them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, Generic, NoReturn, TypeVar
from weakref import WeakSet

from anyio.lowlevel import EventLoopToken, current_token

from outreach_async.errors import InvalidRequest

T = TypeVar("T")


class Bound(Generic[T]):
    """A value that belongs to one event loop and is made anew in another, where its sockets and locks are of no use.

    The event loop before is taken to be over: two that take turns would make the value anew at every turn. In a forked child a
    value that the parent has made is neither used nor closed: both would speak on the parent's connections. What had not been
    made yet is made there like anywhere.

    Args:
        make: Makes the value.

    Attributes:
        inherited: Whether this is older than the process that it runs in.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] = make
        self._token: EventLoopToken | None = None
        self._value: T | None = None
        self.inherited = False
        _ALL.add(self)

    def get(self) -> T:
        """Return the running event loop's value.

        Raises:
            InvalidRequest: The parent of this process has made one.
        """
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

    def inherit(self) -> None:
        """Leave the value to the parent, in a child that was forked just now."""
        self.inherited = True
        if self._value is not None:
            _OF_THE_PARENT.append(self._value)
            self._make, self._value = _refuse, None


_ALL: Final[WeakSet[Bound[Any]]] = WeakSet()
_OF_THE_PARENT: Final[list[object]] = []  # kept for good: some of them would close connections when they are collected


def _refuse() -> NoReturn:
    raise InvalidRequest(
        "the transport was used before this process was forked: its connections are the parent's; make a new client"
    )


def inherit_all() -> None:
    """Leave to the parent what is the parent's."""
    for bound in _ALL:
        bound.inherit()


if hasattr(os, "register_at_fork"):  # pragma: no branch - on Windows no process is forked
    os.register_at_fork(after_in_child=inherit_all)
