"""Parse requests strictly, and render error responses (rules E2 and E3).

Parsing covers the target and the operation (rules W6 and P12), and the body (rules W7 and W8). Errors of parsing are stored, and
raised when the request is executed. A renderer turns a `Refusal`, which describes an error, into a response.
"""

from __future__ import annotations

import html
import http
import json
import re
import secrets
import time
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import unquote, unquote_plus

import attrs

from outreach_async.transport._wire import Request, Response

_MAX_NAME_LENGTH: Final = 60
_WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_KEY_PATTERN: Final = re.compile(r"(?<=key_)[0-9A-Za-z_-]+|(?<=owner_key=)[^&]*")


@attrs.frozen
class Refusal(Exception):
    """An error with which the service refuses a request.

    Attributes:
        status: HTTP status code.
        code: The kind of error, such as `unknown_owner_key`.
        message: The reason. It never contains an owner key.
        field: The body field (with dots between nested names) or query
            parameter at fault; `None` if there is no single one.
        hints: Hints about likely mistakes, for the `x-fake-hint` header
            and the request log.
        headers: Additional header fields of the response, such as
            `retry-after`.
        knob: The attribute of `Behaviour` that decided the refusal; empty
            if the API documentation decides it.

    Example:
        ```python
        fake.behaviour = Behaviour(error_renderer=lambda refusal: (refusal.status, {}, refusal.code.encode()))
        print(fake.handle(Request("GET", "/campaigns/camp_gone/steps")).body)  # -> b'campaign_not_found'
        ```
    """

    status: int
    code: str
    message: str
    field: str | None = None
    hints: tuple[str, ...] = ()
    headers: Mapping[str, str] = attrs.Factory(dict)
    knob: str = ""


def sanitize_name(name: str) -> str:
    """Shorten a name that a request contains, escape characters that are not ASCII, and mask owner keys."""
    # The result can be shown in messages. A caller that mixes up arguments may send an owner key as a name.
    return mask_owner_keys(name)[:_MAX_NAME_LENGTH].encode("unicode_escape").decode("ascii")


def mask_owner_keys(text: str) -> str:
    return _KEY_PATTERN.sub("***", text)


def mask_document(value: Any) -> Any:
    """Return a JSON document with every owner key replaced by `***`. Any value of the key `owner_key` is replaced, too."""
    if isinstance(value, dict):
        return {mask_owner_keys(name): "***" if name == "owner_key" else mask_document(item) for name, item in value.items()}
    if isinstance(value, list):
        return [mask_document(item) for item in value]
    return mask_owner_keys(value) if isinstance(value, str) else value


RenderedError = tuple[int, Mapping[str, str], bytes]

ErrorRenderer = Callable[[Refusal], RenderedError]


def _render_json(status: int, document: Any) -> RenderedError:
    return status, {"content-type": "application/json"}, json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def render_nested(refusal: Refusal) -> RenderedError:
    error = {"code": refusal.code, "message": refusal.message, "field": refusal.field}
    return _render_json(refusal.status, {"status": "error", "error": error})


BODILESS: Final = (204, 304)
_PHRASES: Final = {status.value: status.phrase for status in http.HTTPStatus}


def error_response(code: int, message: str = "") -> Response:
    """Return an error response in the service's default format. Its code, and by default its message, is the reason phrase."""
    if code in BODILESS:
        return Response(code)
    phrase = _PHRASES.get(code, "Error")
    return Response(*render_nested(Refusal(code, phrase.lower().replace(" ", "_"), message or phrase)))


@lru_cache(maxsize=16)
def format_http_date(second: int) -> str:
    # `email.utils.formatdate` imports sockets, which a web page does not have; `strftime` depends on the locale.
    date = time.gmtime(second)
    day = f"{_WEEKDAYS[date.tm_wday]}, {date.tm_mday:02} {MONTHS[date.tm_mon - 1]} {date.tm_year:04}"
    return f"{day} {date.tm_hour:02}:{date.tm_min:02}:{date.tm_sec:02} GMT"


def identify_server() -> dict[str, str]:
    """Return the header fields that identify a response that the service has not made."""
    return {"date": format_http_date(int(time.time())), "x-request-id": f"server_{secrets.token_hex(8)}"}


def refuse(status: int, message: str = "", **headers: str) -> Response:
    """Return an error response for a request that never reaches the service."""
    refusal = error_response(status, message)
    return attrs.evolve(refusal, headers={**refusal.headers, **identify_server(), **headers})


MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024  # a larger body gets 413; the limit of `FakeService` is far lower (rule W8)


def decode_body(request: Request) -> Request | Response:
    """Return the request with its body decompressed, or an error response."""
    coding, body, is_whole = request.headers.get("content-encoding", "identity").strip().lower(), request.body, True
    if coding in {"gzip", "x-gzip"}:
        unpacking = zlib.decompressobj(16 + zlib.MAX_WBITS)
        try:
            body = unpacking.decompress(body, MAX_REQUEST_BYTES + 1)
        except zlib.error:
            body = b""
        is_whole = unpacking.eof
    elif coding != "identity":
        return refuse(415, "expected a body in gzip or without content-encoding; send it without", **{"accept-encoding": "gzip"})
    if len(body) > MAX_REQUEST_BYTES:
        return refuse(413)
    if not is_whole:
        return refuse(400, "the body is not in gzip, as its content-encoding says")
    return request if body is request.body else attrs.evolve(request, body=body)


def frame(response: Response) -> dict[str, str]:
    """Return the header fields with which a response is sent: its length is that of its body."""
    fields = {name: value for name, value in response.headers.items() if name not in {"content-length", "transfer-encoding"}}
    return fields if response.status in BODILESS else fields | {"content-length": str(len(response.body))}


def without_body(response: Response) -> Response:
    return attrs.evolve(response, body=b"")


RendererName = Literal["nested", "flat", "text", "html", "200_with_error"]

_HTML: Final = "<html><head><title>{status}</title></head><body><p>{message}</p></body></html>"

RENDERERS: Final[dict[RendererName, ErrorRenderer]] = {
    "nested": render_nested,
    "flat": lambda refusal: _render_json(refusal.status, {"message": refusal.message}),
    "text": lambda refusal: (refusal.status, {"content-type": "text/plain; charset=utf-8"}, refusal.message.encode()),
    "html": lambda refusal: (
        refusal.status,
        {"content-type": "text/html; charset=utf-8"},
        _HTML.format(status=refusal.status, message=html.escape(refusal.message)).encode(),
    ),
    "200_with_error": lambda refusal: (200, *render_nested(refusal)[1:]),
}


# Requests.

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
        raise Refusal(400, "invalid_target", "the percent-encoding of the request target is not valid UTF-8") from None


def require_parameter(query: Query, name: str) -> str:
    values = query.get(name, ())
    if len(values) > 1:
        raise Refusal(400, "repeated_parameter", f"the parameter {name} is sent {len(values)} times; send it once", name)
    if not values or not values[0]:
        raise Refusal(400, "missing_parameter", f"the parameter {name} is required", name)
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
        raise Refusal(413, "body_too_large", f"the body is longer than {MAX_BODY} bytes")
    try:
        text = body.decode()
        document, end = _decoder.raw_decode(text) if text.startswith("{") else (None, -1)
        if end != len(text):
            document = _decoder.decode(text)  # accepts whitespace around the document, but is slower
        if "\\u" in text:
            # Only an escape can produce a lone surrogate. UTF-8 cannot encode it, so this line raises.
            encode(document).encode()
    except _NotStrictError as error:
        raise Refusal(400, "invalid_json", f"the body is not strict JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        # The decoder's own message may quote the body, which can contain an owner key.
        syntax = error if isinstance(error, json.JSONDecodeError) else None
        reason = f"{syntax.msg}, at character {syntax.pos}" if syntax else _REASONS[type(error)]
        raise Refusal(400, "invalid_json", f"the body is not JSON in UTF-8 ({reason})") from None
    if not isinstance(document, dict):
        raise Refusal(400, "body_not_object", "the body must be a JSON object")
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
    except Refusal as refusal:
        call.routing_error = refusal
        return call
    route = call.target.route
    if route is None:
        call.routing_error = Refusal(404, "not_found", "no operation has this path")
        return call
    if request.method != route.method and (request.method, route.method) != ("HEAD", "GET"):
        allowed = {"allow": "GET, HEAD" if route.method == "GET" else route.method}
        message = f"only {route.method} is allowed on this path"
        call.routing_error = Refusal(405, "method_not_allowed", message, headers=allowed)
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
