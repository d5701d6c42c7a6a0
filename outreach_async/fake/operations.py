"""Parse request targets into path segments and query parameters, and find the operation (rules W6 and P12)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote, unquote_plus

import attrs

from outreach_async.fake.errors import refused, shown

Query = Mapping[str, tuple[str, ...]]
"""Values by parameter name, in the order sent."""

ANY: Final = "*"
"""A path segment of a route that matches any value."""

_LISTS: Final = ("workspace", "display", "page")


@attrs.frozen
class Route:
    """An operation of the service.

    Attributes:
        operation: Name of the operation.
        method: HTTP method.
        path: Path segments; `ANY` for an id.
        parameters: Names of its query parameters.
    """

    operation: str
    method: str
    path: tuple[str, ...]
    parameters: tuple[str, ...] = ()


ROUTES: Final[tuple[Route, ...]] = (
    Route("list_campaigns", "GET", ("campaigns",), _LISTS),
    Route("list_mailboxes", "GET", ("mailboxes",), _LISTS),
    Route("create_contact", "POST", ("contacts",)),
    Route("list_steps", "GET", ("campaigns", ANY, "steps")),
    Route("list_fields", "GET", ("workspaces", ANY, "all-fields")),
)
"""The five operations (rule W1), in the interface's order."""

# The length of the path and its first and last segment identify a route.
_ROUTES: Final = {(len(route.path), route.path[0], route.path[-1]): route for route in ROUTES}


@attrs.frozen
class Target:
    """A parsed request target.

    Attributes:
        segments: Decoded path segments; `%2F` becomes a slash within a segment.
        query: The query parameters.
        route: The operation with this path, for any method; `None` if there is none.
    """

    segments: tuple[str, ...]
    query: Query
    route: Route | None

    @property
    def id(self) -> str:
        """The id in the path, for an operation that has one there."""
        return self.segments[1]


@lru_cache(maxsize=256)  # a bulk run requests the same target millions of times
def parse_target(target: str) -> Target:
    """Parse a request target. One trailing slash is allowed.

    Raises:
        Refused: 400 for percent-encoding that is not UTF-8.
    """
    path, _, query = target.partition("?")
    parts = path.removeprefix("/").split("/")
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    try:
        segments = tuple(unquote(part, errors="strict") for part in parts)
        return Target(segments, _query(query), _ROUTES.get((len(segments), segments[0], segments[-1])))
    except UnicodeDecodeError:
        raise refused(400, "invalid_target", "the target's percent-encoding is not UTF-8") from None


def _query(query: str) -> Query:
    values: dict[str, tuple[str, ...]] = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        name = unquote_plus(name, errors="strict")
        values[name] = (*values.get(name, ()), unquote_plus(value, errors="strict"))
    return MappingProxyType(values)


def check_method(target: Target, method: str) -> Route:
    """Return the operation of a target and a method.

    Raises:
        Refused: 404 for an unknown path, 405 for the wrong method on a known path.
    """
    route = target.route
    if route is None:
        raise refused(404, "not_found", "there is nothing at this path")
    if method != route.method:
        raise refused(405, "method_not_allowed", f"only {route.method} is allowed here", headers={"allow": route.method})
    return route


def parameter(query: Query, name: str) -> str:
    """Return a required query parameter.

    Raises:
        Refused: 400 if it is missing, empty or repeated.
    """
    values = query.get(name, ())
    if len(values) > 1:
        raise refused(400, "repeated_parameter", f"the parameter {name} is given {len(values)} times", name)
    if not values or not values[0]:
        raise refused(400, "missing_parameter", f"the parameter {name} is required", name)
    return values[0]


def unknown_parameters(query: Query, route: Route) -> list[str]:
    """Return a hint for each parameter that is ignored."""
    return [f"unknown parameter {shown(name)} ignored" for name in query if name not in route.parameters]
