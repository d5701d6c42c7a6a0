"""Parse requests strictly: the target and the operation (rules W6 and P12), and the body (rules W7 and W8).

Errors are stored, and raised when the request is executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote, unquote_plus

import attrs

from outreach_async.fake._error_responses import Refusal, refusal_error, sanitize_name
from outreach_async.transport._wire import Request

Query = Mapping[str, tuple[str, ...]]

ANY_SEGMENT: Final = "*"

_LIST_PARAMETERS: Final = ("workspace", "display", "page")


@attrs.frozen
class ServiceRoute:
    operation: str
    method: str
    path: tuple[str, ...]
    parameters: tuple[str, ...] = ()


# The five operations (rule W1), in the order of the service's API documentation.
ROUTES: Final[tuple[ServiceRoute, ...]] = (
    ServiceRoute("list_campaigns", "GET", ("campaigns",), _LIST_PARAMETERS),
    ServiceRoute("list_mailboxes", "GET", ("mailboxes",), _LIST_PARAMETERS),
    ServiceRoute("create_contact", "POST", ("contacts",)),
    ServiceRoute("list_steps", "GET", ("campaigns", ANY_SEGMENT, "steps")),
    ServiceRoute("list_fields", "GET", ("workspaces", ANY_SEGMENT, "all-fields")),
)

# The length of the path and its first and last segment identify a route.
_ROUTES_BY_SHAPE: Final = {(len(route.path), route.path[0], route.path[-1]): route for route in ROUTES}


@attrs.frozen
class RequestTarget:
    segments: tuple[str, ...]
    query: Query
    route: ServiceRoute | None

    @property
    def id(self) -> str:
        """The id in the path of the request. Use only for operations with an id in their path."""
        return self.segments[1]


@lru_cache(maxsize=256)  # a bulk run requests the same target millions of times
def parse_target(target: str) -> RequestTarget:
    """Parse a request target. One trailing slash is allowed."""
    path, _, query = target.partition("?")
    parts = path.removeprefix("/").split("/")
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    values: dict[str, tuple[str, ...]] = {}
    try:
        segments = tuple(unquote(part, errors="strict") for part in parts)
        for pair in query.split("&") if query else ():
            name, _, value = (unquote_plus(part, errors="strict") for part in pair.partition("="))
            values[name] = (*values.get(name, ()), value)
        route = _ROUTES_BY_SHAPE.get((len(segments), segments[0], segments[-1]))
        return RequestTarget(segments, MappingProxyType(values), route)
    except UnicodeDecodeError:
        raise refusal_error(400, "invalid_target", "the percent-encoding of the request target is not valid UTF-8") from None


def require_parameter(query: Query, name: str) -> str:
    values = query.get(name, ())
    if len(values) > 1:
        raise refusal_error(400, "repeated_parameter", f"the parameter {name} is sent {len(values)} times; send it once", name)
    if not values or not values[0]:
        raise refusal_error(400, "missing_parameter", f"the parameter {name} is required", name)
    return values[0]


MAX_BODY: Final = 1024 * 1024

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False).encode


class _NotStrictError(ValueError):
    """A JSON document has a duplicate key, NaN or infinity. Python's decoder accepts these, but the fake service does not."""


def _require_unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _NotStrictError("duplicate key in a JSON object")
    return members


def _refuse_constant(name: str) -> Any:
    raise _NotStrictError(f"{name} is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_require_unique_members, parse_constant=_refuse_constant)


def parse_object(body: bytes) -> dict[str, Any]:
    if len(body) > MAX_BODY:
        raise refusal_error(413, "body_too_large", f"the body is longer than {MAX_BODY} bytes")
    try:
        text = body.decode()
        document, end = _decoder.raw_decode(text) if text.startswith("{") else (None, -1)
        if end != len(text):
            document = _decoder.decode(text)  # accepts whitespace around the document, but is slower
        if "\\u" in text:
            # Only an escape can produce a lone surrogate. UTF-8 cannot encode it, so this line raises.
            encode(document).encode()
    except _NotStrictError as error:
        raise refusal_error(400, "invalid_json", f"the body is not strict JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        # The decoder's own message may quote the body, which can contain an owner key.
        syntax = error if isinstance(error, json.JSONDecodeError) else None
        reason = f"{syntax.msg}, at character {syntax.pos}" if syntax else _REASONS[type(error)]
        raise refusal_error(400, "invalid_json", f"the body is not JSON in UTF-8 ({reason})") from None
    if not isinstance(document, dict):
        raise refusal_error(400, "body_not_object", "the body must be a JSON object")
    return document


_REASONS: Final[Mapping[type[Exception], str]] = {
    UnicodeEncodeError: "a lone surrogate",
    UnicodeDecodeError: "not UTF-8",
    RecursionError: "nested too deeply",
    ValueError: "a number too long",
}


_NO_TARGET: Final = RequestTarget((), {}, None)


@attrs.define
class ParsedRequest:
    request: Request
    operation: str = "unknown"
    target: RequestTarget = _NO_TARGET
    body: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    routing_error: Refusal | None = None
    body_error: Refusal | None = None
    hints: list[str] = attrs.Factory(list)
    request_id: str | None = None


def parse_request(request: Request) -> ParsedRequest:
    call = ParsedRequest(request)
    try:
        call.target = parse_target(request.target)
        route = call.target.route
        if route is None:
            raise refusal_error(404, "not_found", "no operation has this path")
        if request.method != route.method:
            message, allowed = f"only {route.method} is allowed on this path", {"allow": route.method}
            raise refusal_error(405, "method_not_allowed", message, headers=allowed)
    except Refusal as refusal:
        call.routing_error = refusal
        return call
    call.operation = route.operation
    unknown = [name for name in call.target.query if name not in route.parameters]
    call.hints += [f"unknown parameter {sanitize_name(name)} ignored" for name in unknown]
    if route.method != "POST":
        return call
    if not request.headers.get("content-type", "").lower().startswith("application/json"):
        call.hints.append("the body's content-type is not application/json")
    try:
        call.body = parse_object(request.body)
    except Refusal as refusal:
        call.body_error = refusal
    return call
