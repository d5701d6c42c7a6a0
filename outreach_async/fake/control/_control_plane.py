"""Serve the control plane in front of a fake. Faults do not affect control requests. The request log omits control requests.

Two request headers are checked, because a web page in a browser can send requests to a server on loopback:

- `Host`: an attacker can make the page's host name resolve to the address of this server (DNS rebinding). The browser then lets
  the page read the responses, because page and server have the same origin. Such a request can be recognized only
  by its unknown host name.
- `Origin`: some requests do harm even if the page cannot read the response. The browser adds the page's origin to these requests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import msgspec

from outreach_async.fake._asgi import Application, asgi_app
from outreach_async.fake._fake_service import FakeService
from outreach_async.fake._fault_plan import Exchange
from outreach_async.fake.control import _actions as actions
from outreach_async.fake.control import _schemas as schemas
from outreach_async.fake.control._actions import ActionContext, Checkpoint
from outreach_async.fake.control._schemas import UNCHANGED, Problem, ProblemBody, ProblemDetail
from outreach_async.transport._wire import Request, Response


def check_source(headers: Mapping[str, str], names: Collection[str]) -> None:
    """Reject a request for an unknown host name, or from a web page of another origin. `names` are lower case."""
    # DNS rebinding needs a name: it cannot use localhost or an IP address, so these are always accepted.
    host = headers.get("host", "")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # square brackets without a valid IPv6 address
        name = ""
    if not (name == "localhost" or name.endswith(".localhost") or name in names or _is_address(name)):
        remedy = "use localhost or an IP address, or start the server with --control-host NAME"
        raise Problem(403, "the control plane does not accept this host name", "host", remedy)
    if headers.get("origin", f"://{host}").partition("://")[2] != host:
        remedy = "send the request from a program, without an Origin header"
        raise Problem(403, "the control plane does not accept requests from web pages", "origin", remedy)


def is_loopback(host: str) -> bool:
    """Return whether a server that listens on this address can be reached only from its own machine."""
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


_ERROR_DESCRIPTIONS: Final = {
    "400": "The request is malformed, or cannot be carried out.",
    "403": "The host name is not accepted, or the request comes from a web page.",
}
_INFO: Final = {
    "title": "Control plane of the fake outreach service",
    "version": "1.0.0",
    "description": "Reset and fill the fake service that this server runs, and control the service's faults, behaviour and time.",
}


def control_document(url: str) -> dict[str, Any]:
    """Return the OpenAPI document of the control plane at a URL."""
    kinds = list(dict.fromkeys(kind for route in ROUTES for kind in (route.request_type, route.response_type, ProblemBody)))
    references, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    by_kind = dict(zip(kinds, references, strict=True))
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _describe_operation(route, by_kind, components)
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "servers": [{"url": url}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _describe_operation(route: ControlRoute, by_kind: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    refusals = {status: _describe_response(text, by_kind[ProblemBody]) for status, text in _ERROR_DESCRIPTIONS.items()}
    # The server refuses a body that is too long before it routes the request, so the response is not a `ProblemBody`.
    refusals["413"] = _describe_response("The body is longer than 16 MiB.", {"type": "object"})
    return {
        "operationId": route.handler.__name__.lstrip("_"),
        "summary": str(route.handler.__doc__).partition("\n")[0],
        **_describe_request(route, by_kind[route.request_type], components),
        "responses": {str(route.status): _describe_response("Success.", by_kind[route.response_type]), **refusals},
    }


def _describe_request(route: ControlRoute, schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    if route.method != "GET":
        is_required = route.request_type is not schemas.EmptyBody
        return {"requestBody": {"required": is_required, "content": {"application/json": {"schema": schema}}}}
    query = components[schema["$ref"].rpartition("/")[2]]
    required = query.get("required", ())
    members = query["properties"].items()
    return {"parameters": [{"name": name, "in": "query", "required": name in required, "schema": part} for name, part in members]}


def _describe_response(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


PREFIX: Final = "/_fake"
"""Prefix of the control plane's paths. No path of the service begins with it."""


@attrs.frozen
class ControlRoute:
    """An operation of the control plane. The types, and the handler's name and docstring, are its OpenAPI description."""

    method: str
    path: str  # after `PREFIX`
    handler: Callable[[ActionContext, Any], Any]  # returns a value of `response_type`, or its JSON as bytes
    response_type: Any
    request_type: Any = schemas.EmptyBody  # the body; for GET, the query parameters
    status: int = 200

    def execute(self, context: ActionContext, query: str, body: bytes) -> Any:
        """Parse a request, perform the operation, and return the response body."""
        if self.method == "GET":
            parsed = schemas.parse_query(query, self.request_type)
        else:
            parsed = schemas.parse_body(body or b"{}" if self.request_type is schemas.EmptyBody else body, self.request_type)
        try:
            return self.handler(context, parsed)
        except (TypeError, ValueError) as error:
            raise Problem(400, str(error), actions.find_member_at_fault(parsed, str(error)), UNCHANGED) from None


def _openapi(context: ActionContext, _: schemas.EmptyBody) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the service."""
    from importlib.resources import files  # slow to import, and used for this document only

    document = json.loads(files("outreach_async.fake").joinpath("openapi.json").read_text(encoding="utf-8"))
    return {**document, "servers": [{"url": context.base_url}]}


def _control(context: ActionContext, _: schemas.EmptyBody) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the control plane."""
    return control_document(f"{context.base_url}{PREFIX}")


ROUTES: Final = (
    ControlRoute("GET", "/", actions.state, schemas.ServerState),
    ControlRoute("GET", "/openapi.json", _openapi, dict[str, Any]),
    ControlRoute("GET", "/control.json", _control, dict[str, Any]),
    ControlRoute("POST", "/reset", actions.reset, schemas.ServerState),
    ControlRoute("POST", "/checkpoint", actions.checkpoint, schemas.ServerState),
    ControlRoute("GET", "/world", actions.get_world, dict[str, Any]),
    ControlRoute("PUT", "/world", actions.put_world, schemas.ServerState, dict[str, Any]),
    ControlRoute("PATCH", "/mailboxes", actions.change_mailbox, schemas.CreatedIds, schemas.MailboxChange),
    ControlRoute("PATCH", "/campaigns", actions.change_campaign, schemas.CreatedIds, schemas.CampaignChange),
    ControlRoute("POST", "/contacts/answers", actions.settle_answers, schemas.ServerState, schemas.ScriptedActionsBody),
    ControlRoute("GET", "/requests", actions.list_requests, schemas.LoggedRequests, schemas.RequestsQuery),
    ControlRoute("DELETE", "/requests", actions.clear_requests, schemas.ServerState),
    ControlRoute("GET", "/faults", actions.list_faults, schemas.UnfiredFaults),
    ControlRoute("POST", "/faults", actions.add_fault, schemas.UnfiredFaults, schemas.FaultRuleBody, 201),
    ControlRoute("POST", "/faults/script", actions.script_faults, schemas.UnfiredFaults, schemas.FaultScriptBody, 201),
    ControlRoute("DELETE", "/faults", actions.clear_faults, schemas.UnfiredFaults),
    ControlRoute("GET", "/behaviour", actions.get_behaviour, schemas.BehaviourState),
    ControlRoute("PUT", "/behaviour", actions.put_behaviour, schemas.BehaviourState, schemas.NewBehaviour),
    ControlRoute("PATCH", "/behaviour", actions.patch_behaviour, schemas.BehaviourState, schemas.Knobs),
    ControlRoute("GET", "/time", actions.get_time, schemas.ClockState),
    ControlRoute("POST", "/time/advance", actions.advance, schemas.ClockState, schemas.AdvanceBody),
)
"""Every operation of the control plane."""


def find_route(method: str, path: str) -> ControlRoute:
    """Return the route of a request. A trailing slash of the path is ignored."""
    methods = {route.method: route for route in ROUTES if route.path == (path.rstrip("/") or "/")}
    if not methods:
        raise Problem(404, "no operation of the control plane has this path", None, f"use a path from {PREFIX}/control.json")
    if method not in methods:
        allowed = ", ".join(methods)
        raise Problem(405, f"{method} is not allowed on this path", None, f"use one of {allowed}", {"allow": allowed})
    return methods[method]


class ControlPlane:
    """A fake with its control plane, for a server or an ASGI application.

    Args:
        service: The fake. Until the first `checkpoint`, `reset` restores the state that the fake had when the control plane was
            created.
        hosts: Host names that the control plane accepts, besides `localhost` and IP addresses.

    Attributes:
        service: The fake.
    """

    def __init__(self, service: FakeService, hosts: Iterable[str] = ()) -> None:
        self.service = service
        self._hosts = frozenset(host.lower() for host in hosts)
        self._checkpoint = Checkpoint(service)

    def asgi(self) -> Application:
        """Return an ASGI application for the fake and its control plane, as `FakeService.asgi` does for the fake alone."""
        return asgi_app(self)

    def exchange(self, request: Request, /) -> Exchange:
        """Handle a request: the control plane handles paths under `PREFIX`, and the service handles all other paths."""
        return self.exchange_at(request, f"http://{request.headers.get('host', '')}")

    def exchange_at(self, request: Request, base_url: str, /) -> Exchange:
        """Like `exchange`, but with the given base URL instead of the URL from the `host` header."""
        path, _, query = request.target.partition("?")
        if path != PREFIX and not path.startswith(f"{PREFIX}/"):
            return self.service.exchange(request)
        try:
            check_source(request.headers, self._hosts)
            route = find_route(request.method, path.removeprefix(PREFIX))
            content = route.execute(ActionContext(self.service, self._checkpoint, base_url), query, request.body)
            encoded = content if isinstance(content, bytes) else msgspec.json.encode(content)
            return Exchange(Response(route.status, {"content-type": "application/json"}, encoded), None)
        except Problem as problem:
            detail = ProblemDetail(problem.message, problem.field, problem.remedy)
            headers = {"content-type": "application/json", **problem.headers}
            return Exchange(Response(problem.status, headers, msgspec.json.encode(ProblemBody(error=detail))), None)
