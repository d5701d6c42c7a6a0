"""Checks of what a test or a world file says: an error here names the slip, not what it led to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from outreach_async.fake.ids import suggestion

_Number = TypeVar("_Number", int, float)


def check_known(name: str, known: Iterable[str], what: str) -> None:
    """Check a name.

    Raises:
        TypeError: It is not among the known ones; the message guesses at what was meant.
    """
    names = list(known)
    if name not in names:
        guess = suggestion(name, names)
        raise TypeError(f"{what} has no {name!r}: {guess or 'there are ' + ', '.join(names)}")


def whole(name: str, value: object) -> int:
    """Check a whole number that is not negative.

    Raises:
        TypeError: It is another kind of value.
        ValueError: It is negative.
    """
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name}={value}: must not be negative")
    return value


def text(name: str, value: object) -> str:
    """Check a text.

    Raises:
        TypeError: It is another kind of value.
        ValueError: It is blank.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, not {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{name} must not be blank")
    return value


def members(what: str, value: object) -> Mapping[str, Any]:
    """Check what is said of something by its members.

    Raises:
        TypeError: It is another kind of value.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be an object, not {type(value).__name__}")
    return value


def moment(name: str, value: object) -> float:
    """Check a time in Unix seconds.

    Raises:
        TypeError: It is another kind of value.
        ValueError: It is before 1970, or not finite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be Unix seconds, not {type(value).__name__}")
    return at_least(name, 0, value)


def at_least(name: str, low: int, value: _Number) -> _Number:
    """Check a number that is finite and not too small.

    Raises:
        ValueError: It is not.
    """
    if not low <= value < math.inf:
        raise ValueError(f"{name}={value}: must be at least {low}, and finite")
    return value
