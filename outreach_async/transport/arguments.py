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


def at_least_one(field: str, value: object) -> int:
    """Return a count.

    Raises:
        InvalidRequest: It is no whole number of 1 or more.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest(f"{field}: expected a whole number of 1 or more, got {value!r}; pass for example 64")
    return value


def refuse_beside(given: str, **options: object) -> None:
    """Make sure that nothing is said beside a client that is for the client to say.

    Args:
        given: What was given, such as `client`.
        options: Options by name, `None` for those left out.

    Raises:
        InvalidRequest: One was not left out.
    """
    if said := [name for name, value in options.items() if value is not None]:
        raise InvalidRequest(f"{', '.join(said)}: that is the {given}'s to say; give it to the {given} itself")


def library_of(value: object, name: str) -> str | None:
    """Return the top-level module of the class of a name that a value is an instance of, without importing anything."""
    return next((kind.__module__.partition(".")[0] for kind in type(value).__mro__ if kind.__name__ == name), None)
