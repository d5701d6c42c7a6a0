"""Parse request targets into path segments and query parameters, and find the operation (rules W6 and P12)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote, unquote_plus

import attrs

from outreach_async.fake.errors import refusal_error

Query = Mapping[str, tuple[str, ...]]
"""Values of each query parameter by name, in the order sent."""

ANY_SEGMENT: Final = "*"
"""A path segment of a route that matches any value."""

_LIST_PARAMETERS: Final = ("workspace", "display", "page")


@attrs.frozen
class ServiceRoute:
    """An operation of the service.

    Attributes:
        operation: Name of the operation.
        method: HTTP method.
        path: Path segments; `ANY_SEGMENT` for an id.
        parameters: Names of the operation's query parameters.
    """

    operation: str
    method: str
    path: tuple[str, ...]
    parameters: tuple[str, ...] = ()


ROUTES: Final[tuple[ServiceRoute, ...]] = (
    ServiceRoute("list_campaigns", "GET", ("campaigns",), _LIST_PARAMETERS),
    ServiceRoute("list_mailboxes", "GET", ("mailboxes",), _LIST_PARAMETERS),
    ServiceRoute("create_contact", "POST", ("contacts",)),
    ServiceRoute("list_steps", "GET", ("campaigns", ANY_SEGMENT, "steps")),
    ServiceRoute("list_fields", "GET", ("workspaces", ANY_SEGMENT, "all-fields")),
)
"""The five operations (rule W1), in the interface's order."""

# The length of the path and its first and last segment identify a route.
_ROUTES_BY_SHAPE: Final = {(len(route.path), route.path[0], route.path[-1]): route for route in ROUTES}


@attrs.frozen
class Target:
    """A parsed request target.

    Attributes:
        segments: Decoded path segments; `%2F` becomes a slash within a segment.
        query: The query parameters.
        route: The operation with this path, whatever the request's method; `None` if the path is unknown.
    """

    segments: tuple[str, ...]
    query: Query
    route: ServiceRoute | None

    @property
    def id(self) -> str:
        """The id in the path. Only for operations with an id in their path."""
        return self.segments[1]


@lru_cache(maxsize=256)  # a bulk run requests the same target millions of times
def parse_target(target: str) -> Target:
    """Parse a request target. One trailing slash is allowed.

    Raises:
        RequestRefused: 400 for percent-encoding that is not UTF-8.
    """
    path, _, query = target.partition("?")
    parts = path.removeprefix("/").split("/")
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    try:
        segments = tuple(unquote(part, errors="strict") for part in parts)
        return Target(segments, _parse_query(query), _ROUTES_BY_SHAPE.get((len(segments), segments[0], segments[-1])))
    except UnicodeDecodeError:
        raise refusal_error(400, "invalid_target", "the percent-encoding of the request target is not valid UTF-8") from None


def _parse_query(query: str) -> Query:
    values: dict[str, tuple[str, ...]] = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        name = unquote_plus(name, errors="strict")
        values[name] = (*values.get(name, ()), unquote_plus(value, errors="strict"))
    return MappingProxyType(values)


def match_route(target: Target, method: str) -> ServiceRoute:
    """Return the operation that a target and a method select.

    Raises:
        RequestRefused: 404 for an unknown path, 405 for the wrong method on a known path.
    """
    route = target.route
    if route is None:
        raise refusal_error(404, "not_found", "unknown path")
    if method != route.method:
        raise refusal_error(
            405, "method_not_allowed", f"only {route.method} is allowed on this path", headers={"allow": route.method}
        )
    return route


def require_parameter(query: Query, name: str) -> str:
    """Return a required query parameter.

    Raises:
        RequestRefused: 400 if the parameter is missing, empty or repeated.
    """
    values = query.get(name, ())
    if len(values) > 1:
        raise refusal_error(400, "repeated_parameter", f"the parameter {name} is sent {len(values)} times; send it once", name)
    if not values or not values[0]:
        raise refusal_error(400, "missing_parameter", f"the parameter {name} is required", name)
    return values[0]
