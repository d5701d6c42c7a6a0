"""Serve the control plane in front of a fake. Faults and the request log do not see control requests.

`Host` and `Origin` are checked, because a web page in a browser can send requests to a server on loopback. If its host name
resolves to the address of this server (DNS rebinding), the page could read the responses; only the unknown name reveals it.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from itertools import chain
from typing import Any, Final, get_type_hints
from urllib.parse import urlsplit

import attrs
import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from outreach_async.fake._error_responses import mask_document, mask_keys
from outreach_async.fake._fake_service import FakeService, Snapshot, copy_service
from outreach_async.fake._fault_plan import Exchange
from outreach_async.fake._transport import Application, asgi_app
from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.control import _bodies as bodies
from outreach_async.fake.control._bodies import UNCHANGED, Problem
from outreach_async.fake.request_log import CAPACITY, Recorded
from outreach_async.fake.world_file import WorldError
from outreach_async.transport._wire import Request, Response

PREFIX: Final = "/_fake"
"""No path of the service begins with it."""

MAX_SANDBOXES: Final = 1000

_MAX_ADVANCE: Final = timedelta(days=3_660)  # other requests wait while the server simulates this period
_MAX_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()  # estimates are decades later; `datetime` ends with the year 9999

SANDBOXES: Final = "/sandboxes"
_ITSELF: Final = f"{SANDBOXES}/{{id}}"
_IN_SANDBOX: Final = re.compile(rf"(?P<base>{PREFIX}{SANDBOXES}/(?P<id>[^/?]+))(?P<target>.*)", re.DOTALL)


@attrs.define
class Instance:
    """A fake, and the state that `reset` restores. A sandbox has an id, and is deleted `lifetime` seconds after its last use."""

    fake: FakeService
    id: str = ""
    lifetime: float = math.inf
    used_at: float = 0.0
    start: Snapshot = attrs.field(init=False, repr=False)
    behaviour: Behaviour = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.start, self.behaviour = self.fake.snapshot(), self.fake.behaviour


class Sandboxes:
    """The sandboxes of a server, by id. Safe to share between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._instances: dict[str, Instance] = {}
        self._lock = threading.Lock()

    def add(self, fake: FakeService, lifetime: float) -> Instance:
        with self._lock:
            now = self._clock()
            for id_ in [id_ for id_, unused in self._instances.items() if now - unused.used_at > unused.lifetime]:
                del self._instances[id_]
            if len(self._instances) >= MAX_SANDBOXES:
                message = f"sandboxes: expected at most {MAX_SANDBOXES} at once, got one more"
                raise Problem(409, message, None, "delete sandboxes that are no longer used, or set a shorter expires_after")
            # A random id: a client that outlives a server must not reach a sandbox of the next one.
            instance = Instance(fake, secrets.token_hex(8), lifetime, now)
            self._instances[instance.id] = instance
            return instance

    def use(self, id_: str) -> Instance:
        with self._lock:
            instance, now = self._instances.get(id_), self._clock()
            if instance is None or now - instance.used_at > instance.lifetime:
                message = "no sandbox has this id: it was deleted or has expired"
                raise Problem(404, message, None, f"create a sandbox with POST {PREFIX}{SANDBOXES}")
            instance.used_at = now
            return instance

    def delete(self, id_: str) -> None:
        with self._lock:
            self._instances.pop(id_, None)


@attrs.frozen
class ControlCall:
    instance: Instance
    base_url: str
    sandboxes: Sandboxes

    @property
    def fake(self) -> FakeService:
        return self.instance.fake


# Handlers: each takes the call and the parsed body or query, and returns JSON.


def reset(call: ControlCall, _: Any) -> bodies.TimeResponse:
    """Restore the data, time and behaviour of the server's start, remove all faults, and empty the request log."""
    call.fake.reset()
    call.fake.restore(call.instance.start)
    call.fake.behaviour = call.instance.behaviour
    return get_time(call)


def get_world(call: ControlCall, _: Any) -> msgspec.Raw:
    """Return all stored data as a world file."""
    return msgspec.Raw(call.fake.dump())


def put_world(call: ControlCall, body: dict[str, Any]) -> bodies.TimeResponse:
    """Replace all stored data with the content of a world file."""
    _load_world(call.fake, body, "")
    return get_time(call)


def _load_world(fake: FakeService, world: dict[str, Any], prefix: str) -> None:
    try:
        fake.load(world)
    except WorldError as error:
        place, _, reason = str(error).partition(": ")
        raise Problem(400, reason, (prefix + place.removeprefix("$")).lstrip(".") or None, UNCHANGED) from None


def list_faults(call: ControlCall, _: Any = None) -> bodies.FaultsResponse:
    """List the faults that have not fired yet."""
    return bodies.FaultsResponse(call.fake.faults.unfired)


def add_fault(call: ControlCall, body: bodies.FaultRuleBody) -> bodies.FaultsResponse:
    """Add a rule that injects a fault into matching requests."""
    text = (body.containing or "").encode()  # every request contains the empty string

    def contains(request: Request) -> bool:
        return text in request.target.encode() or text in request.body

    fault = bodies.build_fault("fault", body.fault)
    call.fake.faults.add(fault, operation=body.operation, match=contains, times=body.times, p=body.p)
    return list_faults(call)


def script_faults(call: ControlCall, body: bodies.FaultScriptBody) -> bodies.FaultsResponse:
    """Script faults for the next requests of an operation."""
    faults = [bodies.build_fault(f"faults[{place}]", fault) for place, fault in enumerate(body.faults)]
    call.fake.faults.script(body.operation, *faults)
    return list_faults(call)


def clear_faults(call: ControlCall, _: Any) -> bodies.FaultsResponse:
    """Remove all faults, both scripted faults and rules."""
    call.fake.faults.clear()
    return list_faults(call)


def get_behaviour(call: ControlCall, _: Any = None) -> dict[str, Any]:
    """Return the value of every knob of the behaviour."""
    return bodies.describe_behaviour(call.fake.behaviour)


def change_behaviour(call: ControlCall, body: dict[str, Any]) -> dict[str, Any]:
    """Set the given knobs. The other knobs keep their values, or get those of the given preset."""
    call.fake.behaviour = bodies.set_knobs(call.fake.behaviour, body)
    return get_behaviour(call)


def get_time(call: ControlCall, _: Any = None) -> bodies.TimeResponse:
    """Return the current time of the fake."""
    now = call.fake.now
    return bodies.TimeResponse(datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z"), now)


def advance(call: ControlCall, body: bodies.AdvanceBody) -> bodies.TimeResponse:
    """Advance the fake's time, and run every event that is due by the new time."""
    try:
        step = timedelta(**asdict(body))
    except OverflowError:
        step = timedelta.max
    if step > _MAX_ADVANCE:
        message = f"duration: expected at most {_MAX_ADVANCE.days} days per request, got more"
        raise Problem(400, message, None, "advance in several requests")
    if call.fake.now + step.total_seconds() > _MAX_TIME:
        message = "time: expected a time before the year 9000, got a later time"
        raise Problem(400, message, None, "advance by a shorter duration, or reset the fake")
    call.fake.advance(seconds=step.total_seconds())
    return get_time(call)


def list_requests(call: ControlCall, query: bodies.RequestsQuery) -> bodies.RequestsResponse:
    """List the last entries of the request log."""
    log = call.fake.requests
    entries = [entry for entry in log.recent(CAPACITY) if query.operation in {UNSET, entry.operation}]
    return bodies.RequestsResponse(
        total=len(log),
        counts=log.counts,
        statuses={"unanswered" if status is None else str(status): count for status, count in log.statuses.items()},
        requests=[_mask_entry(entry) for entry in entries[-query.last :]],
    )


def _mask_entry(entry: Recorded) -> dict[str, Any]:
    members = attrs.asdict(entry, recurse=False, filter=lambda attribute, _: attribute.name != "headers")
    masked = {"target": mask_keys(entry.target), "json": mask_document(entry.json), "hints": [*map(mask_keys, entry.hints)]}
    return members | masked


def clear_requests(call: ControlCall, _: Any) -> bodies.RequestsResponse:
    """Empty the request log."""
    call.fake.requests.clear()
    return list_requests(call, bodies.RequestsQuery())


def describe(call: ControlCall, _: Any) -> dict[str, Any]:
    """Return this OpenAPI 3.1 document. Its version changes as in semantic versioning."""
    from importlib.resources import files  # slow to import, and used for this document only

    document = json.loads(files("outreach_async.fake").joinpath("openapi.json").read_text(encoding="utf-8"))
    document["components"]["schemas"] |= _describe_types()[1]
    for path, methods in OPERATIONS.items():
        if not (call.instance.id and path.startswith(SANDBOXES)):
            document["paths"][PREFIX + path] = {
                method.lower(): _describe_operation(path, *operation) for method, operation in methods.items()
            }
    return {**document, "servers": [{"url": call.base_url}], "tags": [*document["tags"], {"name": "control plane"}]}


@cache
def _describe_types() -> tuple[Mapping[Any, Any], dict[str, Any]]:
    """Return a JSON schema for each type of a body, query or response, and the components that the schemas refer to."""
    types: list[Any] = [bodies.ProblemResponse]
    for kind, handler, _ in chain.from_iterable(methods.values() for methods in OPERATIONS.values()):
        types += [kind, get_type_hints(handler)["return"]]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    return {repr(kind): schema for kind, schema in zip(types, schemas, strict=True)}, components


def _describe_operation(path: str, kind: Any, handler: Handler, status: int) -> dict[str, Any]:
    schemas, components = _describe_types()

    def content(of: Any) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": schemas[repr(of)]}}}

    operation: dict[str, Any] = {
        "operationId": handler.__name__,
        "tags": ["control plane"],
        "summary": (handler.__doc__ or "").partition("\n")[0],
        "responses": {
            str(status): {"description": "The operation was carried out.", **content(get_type_hints(handler)["return"])},
            "4XX": {"description": "The request was refused, and nothing was changed.", **content(bodies.ProblemResponse)},
        },
    }
    if kind is bodies.RequestsQuery:
        query = components[kind.__name__]["properties"]
        operation["parameters"] = [{"name": name, "in": "query", "schema": schema} for name, schema in query.items()]
    elif kind is not bodies.EmptyBody:
        operation["requestBody"] = {"required": not _is_optional(kind), **content(kind)}
    if path == _ITSELF:
        operation["parameters"] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    return operation


def _is_optional(kind: Any) -> bool:
    return kind in {bodies.EmptyBody, bodies.SandboxBody}


def create_sandbox(call: ControlCall, body: bodies.SandboxBody) -> bodies.SandboxResponse:
    """Create a sandbox, which starts as the server did, except for the given values."""
    fake = copy_service(call.fake, call.instance.start, call.instance.behaviour, body.seed)
    fake.behaviour = bodies.set_knobs(fake.behaviour, body.behaviour, "behaviour.")
    if body.world is not None:
        _load_world(fake, body.world, "world")
    instance = call.sandboxes.add(fake, body.expires_after)
    return bodies.SandboxResponse(f"{call.base_url}{PREFIX}{SANDBOXES}/{instance.id}", instance.lifetime)


def delete_sandbox(call: ControlCall, _: Any) -> bodies.EmptyBody:
    """Delete a sandbox."""
    call.sandboxes.delete(call.instance.id)
    return bodies.EmptyBody()


Handler = Callable[[ControlCall, Any], Any]

# By path after `PREFIX` and method: the type of the body or, for GET, of the query parameters; the handler; and the status.
OPERATIONS: Final[Mapping[str, Mapping[str, tuple[Any, Handler, int]]]] = {
    "/reset": {"POST": (bodies.EmptyBody, reset, 200)},
    "/world": {"GET": (bodies.EmptyBody, get_world, 200), "PUT": (dict[str, Any], put_world, 200)},
    "/faults": {
        "GET": (bodies.EmptyBody, list_faults, 200),
        "POST": (bodies.FaultRuleBody, add_fault, 201),
        "DELETE": (bodies.EmptyBody, clear_faults, 200),
    },
    "/faults/script": {"POST": (bodies.FaultScriptBody, script_faults, 201)},
    "/behaviour": {"GET": (bodies.EmptyBody, get_behaviour, 200), "PATCH": (dict[str, Any], change_behaviour, 200)},
    "/time": {"GET": (bodies.EmptyBody, get_time, 200)},
    "/time/advance": {"POST": (bodies.AdvanceBody, advance, 200)},
    "/requests": {"GET": (bodies.RequestsQuery, list_requests, 200), "DELETE": (bodies.EmptyBody, clear_requests, 200)},
    "/openapi.json": {"GET": (bodies.EmptyBody, describe, 200)},
    SANDBOXES: {"POST": (bodies.SandboxBody, create_sandbox, 201)},
    _ITSELF: {"DELETE": (bodies.EmptyBody, delete_sandbox, 200)},
}


def check_source(headers: Mapping[str, str], names: Collection[str]) -> None:
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


class ControlPlane:
    """A fake with its control plane and its sandboxes, for a server or an ASGI application.

    Args:
        service: The fake. `reset` restores the state that the fake has now, and each sandbox starts with it.
        hosts: Host names that the control plane accepts, besides `localhost` and IP addresses.
        clock: Function that returns seconds; it decides when unused sandboxes are deleted.

    Attributes:
        service: The fake.
    """

    def __init__(self, service: FakeService, hosts: Iterable[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self.service = service
        self._hosts = frozenset(host.lower() for host in hosts)
        self._instance = Instance(service)
        self._sandboxes = Sandboxes(clock)

    def asgi(self) -> Application:
        """Return an ASGI application for the fake and its control plane, as `FakeService.asgi` does for the fake alone."""
        return asgi_app(self)

    @contextmanager
    def sandbox(self, service: FakeService) -> Iterator[str]:
        """Serve another fake as a sandbox while the `with` block runs, and yield the path of its base URL."""
        instance = self._sandboxes.add(service, math.inf)
        try:
            yield f"{PREFIX}{SANDBOXES}/{instance.id}"
        finally:
            self._sandboxes.delete(instance.id)

    def exchange(self, request: Request, /) -> Exchange:
        """Handle a request: the control plane handles paths under `/_fake`, and the service handles all other paths."""
        return self.exchange_at(request, f"http://{request.headers.get('host', '')}")

    def exchange_at(self, request: Request, base_url: str, /) -> Exchange:
        """Like `exchange`, but with the given base URL instead of the URL from the `host` header."""
        try:
            instance, target = self._instance, request.target
            if inner := _IN_SANDBOX.fullmatch(target):
                instance, target, base_url = self._sandboxes.use(inner["id"]), inner["target"], base_url + inner["base"]
            path, _, query = target.partition("?")
            if inner and path in {"", "/"}:
                path = _ITSELF
            elif path == PREFIX or path.startswith(f"{PREFIX}/"):
                path = path.removeprefix(PREFIX).rstrip("/")
            else:
                return instance.fake.exchange(attrs.evolve(request, target=target) if inner else request)
            check_source(request.headers, self._hosts)
            status, content = _execute(ControlCall(instance, base_url, self._sandboxes), request, path, query)
            return _respond(status, content, {})
        except Problem as problem:
            detail = bodies.ProblemDetail(problem.message, problem.field, problem.remedy)
            return _respond(problem.status, bodies.ProblemResponse(detail), problem.headers)


def _respond(status: int, content: Any, headers: Mapping[str, str]) -> Exchange:
    return Exchange(Response(status, {"content-type": "application/json", **headers}, msgspec.json.encode(content)), None)


def _execute(call: ControlCall, request: Request, path: str, query: str) -> tuple[int, Any]:
    methods = OPERATIONS.get(path, {})
    if not methods or (call.instance.id and path == SANDBOXES):
        raise Problem(404, "no operation of the control plane has this path", None, f"use one of {', '.join(OPERATIONS)}")
    if request.method not in methods:
        allowed = ", ".join(methods)
        raise Problem(405, f"{request.method} is not allowed on this path", None, f"use one of {allowed}", {"allow": allowed})
    kind, handler, status = methods[request.method]
    if request.method == "GET":
        return status, handler(call, bodies.parse_query(query, kind))
    body = request.body or b"{}" if _is_optional(kind) else request.body
    return status, handler(call, bodies.parse_body(body, kind))
