"""Hold a value that belongs to one event loop of one process, such as connections and their locks."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, Generic, NoReturn, TypeVar
from weakref import WeakSet

from anyio.lowlevel import EventLoopToken, current_token

from outreach_async.errors import InvalidRequest

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
