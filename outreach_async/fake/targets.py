"""Request targets: the path in segments, and the query (rules W6 and P12)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote, unquote_plus

import attrs

from outreach_async.fake.refusals import refused, shown

Query = Mapping[str, tuple[str, ...]]
"""Values by parameter name, in the order they came."""

ANY: Final = "*"
"""A place in a route that any segment may take."""

_LISTS: Final = ("workspace", "display", "page")


@attrs.frozen
class Route:
    """One operation of the service.

    Attributes:
        operation: Its name.
        method: HTTP method.
        path: Segments; `ANY` for an id.
        parameters: Query parameters it knows.
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

# Found by what is fixed in a path: its length, its first segment and its last.
_ROUTES: Final = {(len(route.path), route.path[0], route.path[-1]): route for route in ROUTES}


@attrs.frozen
class Target:
    """A request target, decoded.

    Attributes:
        segments: Path segments; `%2F` in one is a slash within it.
        query: The parameters.
        route: The operation with this path, whatever the method; `None` if there is none.
    """

    segments: tuple[str, ...]
    query: Query
    route: Route | None

    @property
    def id(self) -> str:
        """The id in the path, of an operation that has one."""
        return self.segments[1]


@lru_cache(maxsize=256)  # a bulk run asks for one target a million times
def parse_target(target: str) -> Target:
    """Read a request target. One trailing slash is allowed.

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
    """Find the operation that a method asks for.

    Raises:
        Refused: 404 for an unknown path, 405 for another method on a known one.
    """
    route = target.route
    if route is None:
        raise refused(404, "not_found", "there is nothing at this path")
    if method != route.method:
        raise refused(405, "method_not_allowed", f"only {route.method} is allowed here", headers={"allow": route.method})
    return route


def parameter(query: Query, name: str) -> str:
    """Read a required parameter.

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
    """Say which parameters are ignored."""
    return [f"unknown parameter {shown(name)} ignored" for name in query if name not in route.parameters]
