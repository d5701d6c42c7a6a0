"""Serve the control plane in front of a fake. Its requests never reach the service, its faults or its request log.

A web page can send requests to a server on loopback. It cannot read the responses, unless its own name later resolves to that
server (DNS rebinding): the browser then considers both to be one origin, and only the `Host` header reveals the page. Some
requests do harm even if the response is never read; those carry the page's `Origin`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import msgspec

from outreach_async.fake.control import actions, schemas
from outreach_async.fake.control.actions import Control, Start
from outreach_async.fake.control.schemas import Detail, Knobs, NewBehaviour, Nothing, Problem, Refusal, read_body, read_query
from outreach_async.fake.fault_plan import Exchange
from outreach_async.fake.service import FakeService
from outreach_async.transport.wire import Request, Response


def check_host(headers: Mapping[str, str], names: Collection[str]) -> str:
    """Check the host name of a request.

    Args:
        headers: The request's header fields.
        names: Accepted names in lower case, besides `localhost` and IP addresses, which nobody can make resolve elsewhere.

    Returns:
        The host with its port.

    Raises:
        Problem: 403 if the name is not accepted.
    """
    host = headers.get("host", "")
    name = _name(host)
    if not (name == "localhost" or name.endswith(".localhost") or name in names or _is_address(name)):
        remedy = "use localhost or an IP address, or start the server with --control-host NAME"
        raise Problem(403, "the control plane does not accept this host name", "host", remedy)
    return host


def check_origin(headers: Mapping[str, str], host: str) -> None:
    """Check that a request does not come from a web page of another origin.

    Raises:
        Problem: 403 if it does.
    """
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise Problem(
            403, "the control plane does not accept web pages", "origin", "send the request from a program, without Origin"
        )


def is_loopback(host: str) -> bool:
    """Return whether an address to listen on can be reached from this machine only."""
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets without an address
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


_REFUSALS: Final = {
    "400": "The request is malformed, or cannot be carried out.",
    "403": "The host name is not accepted, or the request comes from a web page.",
}
_INFO: Final = {
    "title": "Control plane of the fake outreach service",
    "version": "1.0.0",
    "description": "Reset and fill the fake service on the same server, and control its faults, behaviour and time.",
}


def service_document(url: str) -> dict[str, Any]:
    """Return the document of the service.

    Args:
        url: Base URL of the service.
    """
    return {**_file(), "servers": [{"url": url}]}


def control_document(url: str, routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document of the control plane.

    Args:
        url: Base URL of the control plane.
        routes: Its operations.
    """
    routes = tuple(routes)
    kinds = list(dict.fromkeys(kind for route in routes for kind in (route.says, route.answers, Refusal)))
    found, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(kinds, found, strict=True))
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, components)
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "servers": [{"url": url}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(route: Route, schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    refusals = {status: _answer(said, schemas[Refusal]) for status, said in _REFUSALS.items()}
    # The server refuses a long body while reading it, before it routes the request, so the answer is not a `Refusal`.
    refusals["413"] = _answer("The body is longer than 16 MiB.", {"type": "object"})
    return {
        "operationId": route.act.__name__.lstrip("_"),
        "summary": str(route.act.__doc__).partition("\n")[0],
        **_said(route, schemas[route.says], components),
        "responses": {str(route.status): _answer("Done.", schemas[route.answers]), **refusals},
    }


def _said(route: Route, schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    if route.method == "GET":
        object_ = components[schema["$ref"].rpartition("/")[2]]
        return {"parameters": [_parameter(name, said, object_) for name, said in object_["properties"].items()]}
    return {"requestBody": {"required": route.says is not Nothing, "content": {"application/json": {"schema": schema}}}}


def _parameter(name: str, schema: dict[str, Any], object_: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": name in object_.get("required", ()), "schema": schema}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


@cache
def _file() -> dict[str, Any]:
    from importlib.resources import files  # slow to import, and used for this document only

    document: dict[str, Any] = json.loads(files("outreach_async.fake").joinpath("openapi.json").read_text(encoding="utf-8"))
    return document


PREFIX: Final = "/_fake"
"""Prefix of the control plane's paths. No path of the service begins with it."""


@attrs.frozen
class Route:
    """One operation of the control plane.

    Attributes:
        method: HTTP method.
        path: Path after the prefix.
        act: Function that carries it out.
        answers: Type of the response, for the document; bytes are JSON already.
        says: Type of the request body; for GET, of the query.
        status: HTTP status of the response.
    """

    method: str
    path: str
    act: Callable[[Control, Any], Any]
    answers: Any
    says: Any = schemas.Nothing
    status: int = 200

    def carry_out(self, control: Control, query: str, body: bytes) -> Any:
        """Carry out a request, and return the content of the response.

        Raises:
            Problem: The request is invalid, or cannot be carried out.
        """
        if self.method == "GET":
            return self.act(control, read_query(query, self.says))
        return self.act(control, read_body(body or b"{}" if self.says is schemas.Nothing else body, self.says))


def _openapi(control: Control, _: schemas.Nothing) -> dict[str, Any]:
    """Describe the service (OpenAPI 3.1)."""
    return service_document(control.base_url)


def _control(control: Control, _: schemas.Nothing) -> dict[str, Any]:
    """Describe the control plane (OpenAPI 3.1)."""
    return control_document(f"{control.base_url}{PREFIX}", ROUTES)


ROUTES: Final = (
    Route("GET", "/", actions.state, schemas.State),
    Route("GET", "/openapi.json", _openapi, dict[str, Any]),
    Route("GET", "/control.json", _control, dict[str, Any]),
    Route("POST", "/reset", actions.reset, schemas.State),
    Route("POST", "/checkpoint", actions.checkpoint, schemas.State),
    Route("GET", "/world", actions.get_world, dict[str, Any]),
    Route("PUT", "/world", actions.put_world, schemas.State, dict[str, Any]),
    Route("POST", "/workspaces", actions.add_workspace, schemas.Made, schemas.Workspace, 201),
    Route("POST", "/owner-keys", actions.add_owner_key, schemas.Made, schemas.OwnerKey, 201),
    Route("POST", "/mailboxes", actions.add_mailboxes, schemas.Made, schemas.Mailboxes, 201),
    Route("PATCH", "/mailboxes", actions.change_mailbox, schemas.Made, schemas.MailboxChange),
    Route("POST", "/campaigns", actions.add_campaign, schemas.Made, schemas.Campaign, 201),
    Route("PATCH", "/campaigns", actions.change_campaign, schemas.Made, schemas.CampaignChange),
    Route("GET", "/contacts", actions.list_contacts, schemas.Contacts, schemas.WhichContacts),
    Route("POST", "/contacts", actions.add_contacts, schemas.Made, schemas.NewContacts, 201),
    Route("POST", "/contacts/answers", actions.settle_answers, schemas.State, schemas.Answers),
    Route("GET", "/requests", actions.list_requests, schemas.Requests, schemas.WhichRequests),
    Route("DELETE", "/requests", actions.clear_requests, schemas.State),
    Route("GET", "/faults", actions.list_faults, schemas.Waiting),
    Route("POST", "/faults", actions.add_fault, schemas.Waiting, schemas.Rule, 201),
    Route("POST", "/faults/script", actions.script_faults, schemas.Waiting, schemas.Script, 201),
    Route("DELETE", "/faults", actions.clear_faults, schemas.Waiting),
    Route("GET", "/behaviour", actions.get_behaviour, schemas.Readings),
    Route("PUT", "/behaviour", actions.put_behaviour, schemas.Readings, NewBehaviour),
    Route("PATCH", "/behaviour", actions.patch_behaviour, schemas.Readings, Knobs),
    Route("GET", "/time", actions.get_time, schemas.Time),
    Route("POST", "/time/advance", actions.advance, schemas.Time, schemas.Period),
)
"""Every operation of the control plane."""

_BY_PATH: Final[Mapping[str, Mapping[str, Route]]] = {
    route.path: {other.method: other for other in ROUTES if other.path == route.path} for route in ROUTES
}


def find_route(method: str, path: str) -> Route:
    """Return the route of a request.

    Args:
        method: HTTP method.
        path: Path after the prefix; a trailing slash is ignored.

    Raises:
        Problem: 404 for an unknown path, 405 for another method on a known one.
    """
    methods = _BY_PATH.get(path.rstrip("/") or "/")
    if methods is None:
        raise Problem(404, "unknown path", None, f"see {PREFIX}/control.json for every path")
    if method not in methods:
        allowed = ", ".join(methods)
        raise Problem(405, f"{method} is not allowed here", None, f"allowed: {allowed}", {"allow": allowed})
    return methods[method]


class Controlled:
    """A fake with its control plane, for `server.serve` and `asgi.asgi_app`.

    Args:
        service: The fake. `reset` restores its state at this moment.
        hosts: Accepted host names of the control plane, besides `localhost` and IP addresses.

    Attributes:
        service: The fake.
    """

    def __init__(self, service: FakeService, hosts: Iterable[str] = ()) -> None:
        self.service = service
        self._hosts = frozenset(host.lower() for host in hosts)
        self._start = Start(service)

    def exchange(self, request: Request, /) -> Exchange:
        """Handle a request: one under the prefix here, any other by the service."""
        return self.exchange_at(request, f"http://{request.headers.get('host', '')}")

    def exchange_at(self, request: Request, base_url: str, /) -> Exchange:
        """Handle a request to a fake whose base URL is given, and not `http://` with the request's host."""
        path, _, query = request.target.partition("?")
        if path != PREFIX and not path.startswith(f"{PREFIX}/"):
            return self.service.exchange(request)
        try:
            host = check_host(request.headers, self._hosts)
            check_origin(request.headers, host)
            route = find_route(request.method, path.removeprefix(PREFIX))
            control = Control(self.service, self._start, base_url)
            return Exchange(_done(route, route.carry_out(control, query, request.body)), None)
        except Problem as problem:
            return Exchange(_refused(problem), None)


def _done(route: Route, answered: Any) -> Response:
    body = answered if isinstance(answered, bytes) else msgspec.json.encode(answered)
    return Response(route.status, {"content-type": "application/json"}, body)


def _refused(problem: Problem) -> Response:
    refusal = Refusal(error=Detail(message=problem.message, field=problem.field, remedy=problem.remedy))
    return Response(problem.status, {"content-type": "application/json", **problem.headers}, msgspec.json.encode(refusal))
