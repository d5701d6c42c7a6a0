"""Check arguments shared by all transports."""

from __future__ import annotations

from importlib.util import find_spec

from outreach_async.errors import InvalidRequest


def require(module: str, requirement: str) -> None:
    """Check that a module is installed, without importing it.

    Args:
        module: Name of a top-level module.
        requirement: The requirement that installs it, in pip's syntax, such as `outreach_async[aiohttp]`.

    Raises:
        InvalidRequest: The module is not installed; the message has the pip command.
    """
    if find_spec(module) is None:
        raise InvalidRequest(f"{module} is not installed; run: pip install '{requirement}'")


def at_least_one(field: str, value: object) -> int:
    """Return `value` as a count.

    Raises:
        InvalidRequest: `value` is not a whole number of 1 or more.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidRequest(f"{field}: expected a whole number of 1 or more, got {value!r}; pass a number such as 64")
    return value


def refuse_beside(given: str, **options: object) -> None:
    """Check that no option is passed together with a client that already decides it.

    Args:
        given: Name of the argument that was passed, such as `client`.
        options: Options by name; `None` for those not passed.

    Raises:
        InvalidRequest: An option was passed.
    """
    if said := [name for name, value in options.items() if value is not None]:
        raise InvalidRequest(f"{', '.join(said)}: not allowed together with a {given}; configure the {given} instead")


def library_of(value: object, name: str) -> str | None:
    """Return the library that defines the class called `name` among the classes of `value`, without importing it."""
    return next((kind.__module__.partition(".")[0] for kind in type(value).__mro__ if kind.__name__ == name), None)
