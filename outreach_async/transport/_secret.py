"""Protection of secrets: strings that are never shown, and decorators that drop the tracebacks of errors."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from outreach_async.errors import OutreachError, drop_tracebacks

OWNER_KEY: Final = re.compile("key_.+", re.DOTALL)
_KEY_IN_TEXT: Final = re.compile(r"\bkey_[^\s'\")]+")

P = ParamSpec("P")
T = TypeVar("T")


class Secret:
    """A string hidden from `repr`, `str`, and tools that print locals and attributes."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the string. Do not assign the result to a variable, because a traceback may show local variables."""
        return self._value

    def __repr__(self) -> str:
        return "Secret('***')"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)


def hide(value: object) -> object:
    """Wrap a string in a `Secret`. Return any other value unchanged."""
    return Secret(value) if isinstance(value, str) else value


def reveal(value: T | Secret) -> T | str:
    """Return the value that was passed to `hide`."""
    return value.reveal() if isinstance(value, Secret) else value


def mask_keys(text: str) -> str:
    """Return a string with every owner key masked."""
    # Use this function for error messages. If a caller passes a key as the wrong argument, the message may quote the key.
    return _KEY_IN_TEXT.sub("key_***", text)


def drop_frames(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function to drop the traceback of an `OutreachError` that it raises, because the frames may contain secrets."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except OutreachError as error:
            drop_tracebacks(error)
            raise

    return call


def drop_frames_async(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate an async function to drop the traceback of an `OutreachError` that it raises; see `drop_frames`."""

    @wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        under_way = function(*args, **kwargs)
        del args, kwargs  # other exceptions, such as a cancellation, keep this frame
        try:
            return await under_way
        except OutreachError as error:
            drop_tracebacks(error)
            raise

    return call
