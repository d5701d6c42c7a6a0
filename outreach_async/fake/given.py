"""Validate values from tests and world files early, so that an error names the wrong value and not its consequences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from outreach_async.fake.ids import suggestion

_Number = TypeVar("_Number", int, float)


def check_known(name: str, known: Iterable[str], what: str) -> None:
    """Check that a name is known.

    Raises:
        TypeError: The name is unknown. The message suggests a similar one, or lists the known names.
    """
    names = list(known)
    if name not in names:
        guess = suggestion(name, names)
        raise TypeError(f"{what} has no {name!r}; {guess or 'expected one of ' + ', '.join(names)}")


def whole(name: str, value: object) -> int:
    """Return the value if it is a non-negative integer.

    Raises:
        TypeError: The value is not an integer.
        ValueError: The value is negative.
    """
    if type(value) is not int:
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}")
    if value < 0:
        raise ValueError(f"{name}: expected an integer of at least 0, got {value}")
    return value


def text(name: str, value: object) -> str:
    """Return the value if it is a non-blank string.

    Raises:
        TypeError: The value is not a string.
        ValueError: The value is blank.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a string, got {type(value).__name__}")
    if not value.strip():
        raise ValueError(f"{name}: expected a non-blank string")
    return value


def members(what: str, value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping.

    Raises:
        TypeError: The value is not a mapping.
    """
    if not isinstance(value, Mapping):
        raise TypeError(f"{what}: expected an object, got {type(value).__name__}")
    return value


def moment(name: str, value: object) -> float:
    """Return the value if it is a time in Unix seconds.

    Raises:
        TypeError: The value is not a number.
        ValueError: The time is before 1970, or not finite.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected Unix seconds, got {type(value).__name__}")
    return at_least(name, 0, value)


def at_least(name: str, low: int, value: _Number) -> _Number:
    """Return the value if it is finite and not below a minimum.

    Raises:
        ValueError: The value is too small, or not finite.
    """
    if not low <= value < math.inf:
        raise ValueError(f"{name}: expected a finite number of at least {low}, got {value}")
    return value
