"""What every adapter makes sure of before it is made."""

from __future__ import annotations

from importlib.util import find_spec

from outreach_async.errors import InvalidRequest


def require(module: str, requirement: str) -> None:
    """Make sure that a module is installed, without importing it.

    Args:
        module: Name of a top-level module.
        requirement: What brings it, as pip takes it, such as `outreach_async[aiohttp]`.

    Raises:
        InvalidRequest: It is not installed; the message says what to install.
    """
    if find_spec(module) is None:
        raise InvalidRequest(f"{module} is not installed; run: pip install '{requirement}'")


def at_least_one(field: str, value: int) -> int:
    """Return a count.

    Raises:
        InvalidRequest: It is no whole number of 1 or more.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest(f"{field}: expected a whole number of 1 or more, got {value!r}")
    return value
