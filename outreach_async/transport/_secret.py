"""Protection of secrets: strings that are never shown, and errors without tracebacks."""

from __future__ import annotations

import re
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any, Final, TypeVar

from outreach_async.errors import OutreachError, drop_tracebacks

OWNER_KEY: Final = re.compile("key_.+", re.DOTALL)
_KEY_IN_TEXT: Final = re.compile(r"\bkey_[^\s'\")]+")

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


def hide_key(options: dict[str, Any]) -> dict[str, Any]:
    """Wrap the owner key in a `Secret`, also for the caller, whose frame is in tracebacks."""
    if "owner_key" in options:
        options["owner_key"] = hide(options["owner_key"])
    return options


def reveal(value: T | Secret) -> T | str:
    return value.reveal() if isinstance(value, Secret) else value


def mask_keys(text: str) -> str:
    # Use this function for error messages. If a caller passes a key as the wrong argument, the message may quote the key.
    return _KEY_IN_TEXT.sub("key_***", text)


class _FrameDropper(ContextDecorator):
    """Drops the traceback of an `OutreachError` that leaves a function or a `with` block: its frames may contain secrets."""

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        if isinstance(error, OutreachError):
            drop_tracebacks(error)


drop_frames: Final = _FrameDropper()
"""Decorates a function, or surrounds the awaits of an async function."""
