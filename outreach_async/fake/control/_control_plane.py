"""Serve the control plane in front of a fake. Faults and the request log do not see control requests.

`Host` and `Origin` are checked, because a web page in a browser can send requests to a server on loopback. If its host name
resolves to the address of this server (DNS rebinding), the page could read the responses; only the unknown name reveals it.
`openapi.json` beside this module describes the operations.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import reduce
from ipaddress import ip_address
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import attrs
import msgspec
from msgspec.structs import asdict

from outreach_async.fake import faults
from outreach_async.fake._arguments import check_known, suggest_similar
from outreach_async.fake._cross_origin import is_allowed
from outreach_async.fake._fake_service import (
    FakeService,
    Snapshot,
    advance_in_slices,
    copy_service,
    find_examples,
    load_in_slices,
)
from outreach_async.fake._messages import format_http_date, mask_owner_keys
from outreach_async.fake.behaviour import KNOB_NAMES, PRESETS, Behaviour, convert_knob
from outreach_async.fake.faults import Exchange, Fault, run_to_end
from outreach_async.fake.request_log import CAPACITY
from outreach_async.fake.world_file import WorldError
from outreach_async.transport._wire import Request, Response

PREFIX: Final = "/_fake"  # no path of the service begins with it

MAX_SANDBOXES: Final = 1000

_MAX_ADVANCE: Final = timedelta(days=3_660)  # other requests to the same sandbox wait meanwhile
_MAX_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()  # estimates are decades later; `datetime` ends with the year 9999

SANDBOXES: Final = "/sandboxes"
_ITSELF: Final = f"{SANDBOXES}/{{id}}"
_IN_SANDBOX: Final = re.compile(rf"(?P<base>{PREFIX}{SANDBOXES}/(?P<id>[^/?]+))(?P<target>.*)", re.DOTALL)

# The remedy in the error for a well-formed request that cannot be carried out.
UNCHANGED: Final = "nothing was changed; correct the request and send it again"


@attrs.define
class Problem(Exception):
    """Raised when the control plane rejects a request. `field` is the path of the invalid key, or a parameter or header."""

    status: int
    message: str = attrs.field(converter=mask_owner_keys)
    field: str | None
    remedy: str
    headers: Mapping[str, str] = attrs.Factory(dict)


def parse_body(raw: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        with suppress(msgspec.ValidationError):
            return msgspec.convert(_to_whole_numbers(msgspec.json.decode(raw)), kind)
        raise _validation_problem(error, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else type(error).__name__
        raise Problem(400, f"cannot parse the body: {reason}", None, "send one JSON object in UTF-8") from None


def _to_whole_numbers(value: Any) -> Any:
    """Replace 754.0 by 754, because JSON Schema counts it as an integer. Values that are kept as they are sent stay unchanged."""
    if isinstance(value, dict):
        return {name: item if name in {"change", "mailboxes"} else _to_whole_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_to_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def parse_query(query: str, kind: Any) -> Any:
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in parameters:
            raise Problem(400, f"the parameter {name} is sent more than once", name, "send the parameter once")
        parameters[name] = value
    try:
        return msgspec.convert(parameters, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _validation_problem(error, kind) from None


def _validation_problem(error: msgspec.ValidationError, kind: Any) -> Problem:
    message, _, place = str(error).partition(" - at `")
    named = re.search(r"(?:required|unknown) field `(.*)`", message)
    path = place.removeprefix("key` in `").removeprefix("$").removesuffix("`").lstrip(".")
    field = ".".join(filter(None, (path, named and named[1]))) or None
    first, known = re.split(r"[.\[]", field or "")[0], getattr(kind, "__struct_fields__", ())
    if first in {"fault", "faults"}:
        remedy = f"available faults: {FAULT_SIGNATURES}"
    else:
        remedy = (suggest_similar(first, list(known)) if first not in known else "") or (
            f"accepted: {', '.join(known)}" if known else "remove unknown keys and parameters; a body must be a JSON object"
        )
    return Problem(400, f"{field or 'the body'}: {message}", field, remedy)


# Bodies and queries.

OperationName = Literal["list_campaigns", "list_mailboxes", "create_contact", "list_steps", "list_fields", "unknown"]

_Duration = Annotated[float, msgspec.Meta(ge=0)]


class RequestBody(msgspec.Struct, forbid_unknown_fields=True):
    """A body or the query parameters of a request. Direct instances have no members."""


class FaultScriptBody(RequestBody):
    operation: OperationName
    faults: Annotated[list[FaultBody], msgspec.Meta(min_length=1)]


class FaultRuleBody(RequestBody):
    fault: FaultBody
    operation: OperationName | None = None
    containing: str | None = None
    times: Annotated[int, msgspec.Meta(ge=1)] | None = None
    p: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


class AdvanceBody(RequestBody):
    weeks: _Duration = 0.0
    days: _Duration = 0.0
    hours: _Duration = 0.0
    minutes: _Duration = 0.0
    seconds: _Duration = 0.0


class RequestsQuery(RequestBody):
    operation: OperationName | msgspec.UnsetType = msgspec.UNSET  # not None, which `?operation=null` would mean
    last: Annotated[int, msgspec.Meta(ge=1, le=CAPACITY)] = 100


class FakeBody(RequestBody):
    seed: int | None = None
    world: dict[str, Any] | None = None
    behaviour: dict[str, Any] = {}


class SandboxBody(FakeBody):
    expires_after: Annotated[float, msgspec.Meta(gt=0)] = 3600.0


# The functions that create faults, by name.
FAULT_FACTORIES: Final[Mapping[str, Callable[..., Fault]]] = {"ok": lambda: faults.ok} | {
    name: factory
    for name in faults.__all__
    if inspect.isfunction(factory := getattr(faults, name)) and inspect.signature(factory).return_annotation == "Fault"
}

_HEADER_VALUE: Final = msgspec.Meta(pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$")

# Types that replace annotations of a fault's arguments: JSON cannot express the annotation, the function does not check the
# argument, or its error says more.
_ARGUMENT_TYPES: Final[Mapping[str, Any]] = {
    "kind": str,
    "retry_after": _Duration | Annotated[str, _HEADER_VALUE] | None,
    "body": str | None,
    "headers": dict[Annotated[str, msgspec.Meta(pattern=r"^[0-9a-z!#$%&'*+.^_`|~-]+$")], Annotated[str, _HEADER_VALUE]] | None,
}


def _define_fault(name: str, **types: Any) -> type[msgspec.Struct]:
    fields = [
        (each.name, types.get(each.name, each.annotation), *(() if each.default is each.empty else (each.default,)))
        for each in inspect.signature(FAULT_FACTORIES[name], eval_str=True).parameters.values()
    ]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True, tag_field="name", tag=name)


_STRUCTS: Final = {name: _define_fault(name, **_ARGUMENT_TYPES) for name in FAULT_FACTORIES if name != "commit_then"}

if TYPE_CHECKING:
    FaultBody: TypeAlias = msgspec.Struct  # the union is created at run time
else:
    _plain = reduce(or_, _STRUCTS.values())
    FaultBody = _plain | _define_fault("commit_then", fault=_plain)

FAULT_SIGNATURES: Final = "; ".join(
    f"{name}({', '.join(inspect.signature(factory).parameters)})" for name, factory in FAULT_FACTORIES.items()
)


def _build_fault(field: str, body: FaultBody) -> Fault:
    """Create the fault that a body describes. `field` is its path in the request."""
    name, arguments = str(body.__struct_config__.tag), asdict(body)
    if name == "commit_then":
        arguments["fault"] = _build_fault(f"{field}.fault", arguments["fault"])
    try:
        return FAULT_FACTORIES[name](**arguments)
    except ValueError as error:
        message, _, remedy = str(error).partition("; ")
        raise Problem(400, message, f"{field}.{message.partition(':')[0]}", remedy) from None


@attrs.define
class Instance:
    """A fake, and the state that `reset` restores. A sandbox has an id, and is deleted `lifetime` seconds after its last use."""

    fake: FakeService
    id: str = ""
    lifetime: float = math.inf
    used_at: float = 0.0
    start: Snapshot = attrs.field(init=False, repr=False)
    behaviour: Behaviour = attrs.field(init=False, repr=False)
    is_busy: bool = attrs.field(init=False, default=False)

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


def reset(call: ControlCall, _: Any) -> dict[str, Any]:
    call.fake.reset()
    call.fake.restore(call.instance.start)
    call.fake.behaviour = call.instance.behaviour
    return get_time(call)


def put_world(call: ControlCall, body: dict[str, Any]) -> Generator[None, None, dict[str, Any]]:
    yield from _load_world(call.fake, body, "")
    return get_time(call)


def _load_world(fake: FakeService, world: dict[str, Any], prefix: str) -> Generator[None, None, None]:
    try:
        yield from load_in_slices(fake, world)
    except WorldError as error:
        with suppress(WorldError):
            return (yield from load_in_slices(fake, _to_whole_numbers(world)))
        place, _, reason = str(error).partition(": ")
        raise Problem(400, reason, (prefix + place.removeprefix("$")).lstrip(".") or None, UNCHANGED) from None


def list_faults(call: ControlCall, _: Any = None) -> dict[str, Any]:
    return {"unfired": call.fake.faults.unfired}


def add_fault(call: ControlCall, body: FaultRuleBody) -> dict[str, Any]:
    text = (body.containing or "").encode()  # every request contains the empty string

    def contains(request: Request) -> bool:
        return text in request.target.encode() or text in request.body

    fault = _build_fault("fault", body.fault)
    call.fake.faults.add(fault, operation=body.operation, match=contains, times=body.times, p=body.p)
    return list_faults(call)


def script_faults(call: ControlCall, body: FaultScriptBody) -> dict[str, Any]:
    scripted = [_build_fault(f"faults[{place}]", fault) for place, fault in enumerate(body.faults)]
    call.fake.faults.script(body.operation, *scripted)
    return list_faults(call)


def clear_faults(call: ControlCall, _: Any) -> dict[str, Any]:
    call.fake.faults.clear()
    return list_faults(call)


def get_behaviour(call: ControlCall, _: Any = None) -> dict[str, Any]:
    """Return the value of every knob as JSON. Credentials are masked; functions are shown by name."""
    return {name: _knob_to_json(getattr(call.fake.behaviour, name)) for name in KNOB_NAMES}


def _knob_to_json(value: Any) -> Any:
    if attrs.has(type(value)):
        members = attrs.asdict(value, recurse=False).items()
        return {name: ["***"] * len(member) if name == "tokens" else member for name, member in members}
    if isinstance(value, frozenset):
        return sorted(value)
    return f"function {getattr(value, '__name__', type(value).__name__)}" if callable(value) else value


def change_behaviour(call: ControlCall, body: dict[str, Any]) -> dict[str, Any]:
    call.fake.behaviour = _set_knobs(call.fake.behaviour, body)
    return get_behaviour(call)


def _set_knobs(behaviour: Behaviour, knobs: Mapping[str, Any], prefix: str = "") -> Behaviour:
    """Return a copy of a behaviour, or of the preset that `preset` names, with the given knobs set."""
    if "preset" in knobs:
        preset = knobs["preset"]
        if preset not in tuple(PRESETS):
            raise Problem(400, f"preset: expected one of {', '.join(PRESETS)}, got {preset!r}", f"{prefix}preset", UNCHANGED)
        behaviour = PRESETS[preset]()
    knobs = _to_whole_numbers(knobs)
    for name in filter("preset".__ne__, knobs):
        try:
            check_known([name], ("preset", *KNOB_NAMES), "a behaviour")
            behaviour = attrs.evolve(behaviour, **{name: convert_knob(name, knobs[name])})
        except (TypeError, ValueError) as error:
            message, _, remedy = str(error).partition("; ")
            raise Problem(400, message, f"{prefix}{name}", remedy or UNCHANGED) from None
    return behaviour


def get_time(call: ControlCall, _: Any = None) -> dict[str, Any]:
    now = call.fake.now
    return {"now": datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z"), "unix": now}


def advance(call: ControlCall, body: AdvanceBody) -> Generator[None, None, dict[str, Any]]:
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
    yield from advance_in_slices(call.fake, step)
    return get_time(call)


def list_requests(call: ControlCall, query: RequestsQuery) -> dict[str, Any]:
    log = call.fake.requests
    entries = [entry for entry in log.recent(CAPACITY) if query.operation in {msgspec.UNSET, entry.operation}]
    return {
        "total": len(log),
        "counts": log.counts,
        "statuses": {"unanswered" if status is None else str(status): count for status, count in log.statuses.items()},
        "requests": [
            attrs.asdict(entry.masked(), recurse=False, filter=lambda attribute, _: attribute.name != "headers")
            for entry in entries[-query.last :]
        ],
    }


def clear_requests(call: ControlCall, _: Any) -> dict[str, Any]:
    call.fake.requests.clear()
    return list_requests(call, RequestsQuery())


def greet(call: ControlCall, _: Any) -> dict[str, Any]:
    """Return where the document is. Programs that wait for a server request this path."""
    return {"openapi": f"{call.base_url}{PREFIX}/openapi.json"}


def describe(call: ControlCall, _: Any) -> dict[str, Any]:
    """Return the OpenAPI document of the service and of the control plane."""
    from importlib.resources import files  # slow to import, and used for this document only

    folder = files("outreach_async.fake")
    text = folder.joinpath("openapi.json").read_text(encoding="utf-8")
    for example, id_ in find_examples(call.fake).items():  # so that a request with the examples finds something
        text = text.replace(f'"examples": ["{example}"]', f'"examples": [{json.dumps(id_)}]')
    document, plane = json.loads(text), json.loads(folder.joinpath("control", "openapi.json").read_text(encoding="utf-8"))
    sandboxes = () if not call.instance.id else (PREFIX + SANDBOXES, PREFIX + _ITSELF)
    document["paths"] |= {path: operations for path, operations in plane["paths"].items() if path not in sandboxes}
    for kind, components in plane["components"].items():
        document["components"][kind] |= components
    return {**document, "servers": [{"url": call.base_url}], "tags": [*document["tags"], {"name": "control plane"}]}


def create_fake(origin: Instance, body: FakeBody) -> Generator[None, None, FakeService]:
    """Create a fake that starts as another one did, except for what the body says."""
    fake = copy_service(origin.fake, origin.start, origin.behaviour, body.seed)
    fake.behaviour = _set_knobs(fake.behaviour, body.behaviour, "behaviour.")
    if body.world is not None:
        yield from _load_world(fake, body.world, "world")
    return fake


def create_sandbox(call: ControlCall, body: SandboxBody) -> Generator[None, None, dict[str, Any]]:
    instance = call.sandboxes.add((yield from create_fake(call.instance, body)), body.expires_after)
    return {"url": f"{call.base_url}{PREFIX}{SANDBOXES}/{instance.id}", "expires_after": instance.lifetime}


def delete_sandbox(call: ControlCall, _: Any) -> dict[str, Any]:
    call.sandboxes.delete(call.instance.id)
    return {}


# A handler whose work may take long is a generator that yields between slices of it.
Handler = Callable[[ControlCall, Any], Any]

# By path after `PREFIX` and method: the type of the body or, for GET, of the query parameters; the handler; and the status.
OPERATIONS: Final[Mapping[str, Mapping[str, tuple[Any, Handler, int]]]] = {
    "": {"GET": (RequestBody, greet, 200)},
    "/reset": {"POST": (RequestBody, reset, 200)},
    "/world": {
        "GET": (RequestBody, lambda call, _: msgspec.Raw(call.fake.dump()), 200),
        "PUT": (dict[str, Any], put_world, 200),
    },
    "/faults": {
        "GET": (RequestBody, list_faults, 200),
        "POST": (FaultRuleBody, add_fault, 201),
        "DELETE": (RequestBody, clear_faults, 200),
    },
    "/faults/script": {"POST": (FaultScriptBody, script_faults, 201)},
    "/behaviour": {"GET": (RequestBody, get_behaviour, 200), "PATCH": (dict[str, Any], change_behaviour, 200)},
    "/time": {"GET": (RequestBody, get_time, 200)},
    "/time/advance": {"POST": (AdvanceBody, advance, 200)},
    "/requests": {"GET": (RequestsQuery, list_requests, 200), "DELETE": (RequestBody, clear_requests, 200)},
    "/openapi.json": {"GET": (RequestBody, describe, 200)},
    SANDBOXES: {"POST": (SandboxBody, create_sandbox, 201)},
    _ITSELF: {"DELETE": (RequestBody, delete_sandbox, 200)},
}


def check_source(headers: Mapping[str, str], names: Collection[str], origins: frozenset[str]) -> None:
    # DNS rebinding needs a name: it cannot use localhost or an IP address, so these are always accepted.
    host = headers.get("host", "")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # square brackets without a valid IPv6 address
        name = ""
    if not (name == "localhost" or name.endswith(".localhost") or name in names or _is_address(name)):
        remedy = "use localhost or an IP address, or start the server with --control-host NAME"
        raise Problem(403, "the control plane does not accept this host name", "host", remedy)
    origin = headers.get("origin", f"://{host}")
    if origin.partition("://")[2] != host and not is_allowed(origin, origins):
        remedy = "send the request from a program, without an Origin header, or start the server with --allow-origin ORIGIN"
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


@attrs.frozen
class _Route:
    """The instance that a request is for, and its path in the control plane; `None` if the request is for the service."""

    instance: Instance
    target: str
    base_url: str
    path: str | None
    query: str


class ControlPlane:
    """A fake with its control plane and its sandboxes, for a server.

    Args:
        service: The fake. `reset` restores the state that the fake has now, and each sandbox starts with it.
        hosts: Host names that the control plane accepts, besides `localhost` and IP addresses.
        clock: Function that returns seconds; it decides when unused sandboxes are deleted.
        origins: Origins of web pages from which the control plane accepts requests; `*` for all.
        base_url: URL by which clients reach the fake, for the URLs in responses; by default that of the `Host` header.

    Attributes:
        service: The fake.
    """

    def __init__(
        self,
        service: FakeService,
        hosts: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        origins: Iterable[str] = (),
        base_url: str | None = None,
    ) -> None:
        self.service = service
        self._base_url = base_url
        self._origins = frozenset(origins)
        self._numbers = itertools.count()
        self._hosts = frozenset(host.lower() for host in hosts)
        self._instance = Instance(service)
        self._sandboxes = Sandboxes(clock)

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
        try:
            return run_to_end(self._handle(request, self._route(request)))
        except Problem as problem:
            return self._refuse(problem, self.service)

    def exchange_in_slices(self, request: Request, /) -> Generator[None, None, Exchange]:
        """Handle a request as `exchange` does, in slices. Requests to the same sandbox wait for each other."""
        try:
            route = self._route(request)
            while route.instance.is_busy:
                yield
            route.instance.is_busy = True
            try:
                return (yield from self._handle(request, route))
            finally:
                route.instance.is_busy = False
        except Problem as problem:
            return self._refuse(problem, self.service)

    def _route(self, request: Request) -> _Route:
        instance, target = self._instance, request.target
        base_url = self._base_url or f"http://{request.headers.get('host', '')}"
        inner = _IN_SANDBOX.fullmatch(target)
        if inner:
            instance, target, base_url = self._sandboxes.use(inner["id"]), inner["target"], base_url + inner["base"]
        path, _, query = target.partition("?")
        if inner and path in {"", "/"}:
            return _Route(instance, target, base_url, _ITSELF, query)
        is_control = path == PREFIX or path.startswith(f"{PREFIX}/")
        return _Route(instance, target, base_url, path.removeprefix(PREFIX).rstrip("/") if is_control else None, query)

    def _handle(self, request: Request, route: _Route) -> Generator[None, None, Exchange]:
        if route.path is None:
            inside = request if route.target == request.target else attrs.evolve(request, target=route.target)
            return route.instance.fake.exchange(inside)
        call = ControlCall(route.instance, route.base_url, self._sandboxes)
        try:
            check_source(request.headers, self._hosts, self._origins)
            status, content = _execute(call, request, route.path, route.query)
            if inspect.isgenerator(content):
                content = yield from content
        except Problem as problem:
            return self._refuse(problem, call.fake)
        return self._respond(status, content, {}, call.fake)

    def _refuse(self, problem: Problem, fake: FakeService) -> Exchange:
        content = {"error": {"message": problem.message, "field": problem.field, "remedy": problem.remedy}}
        return self._respond(problem.status, content, problem.headers, fake)

    def _respond(self, status: int, content: Any, headers: Mapping[str, str], fake: FakeService) -> Exchange:
        fields = {"date": format_http_date(int(fake.now)), "x-request-id": f"control_{next(self._numbers):016x}"}
        headers = {"content-type": "application/json", **headers, **fields}
        return Exchange(Response(status, headers, msgspec.json.encode(content)), None)


def _execute(call: ControlCall, request: Request, path: str, query: str) -> tuple[int, Any]:
    methods = OPERATIONS.get(path, {})
    if not methods or (call.instance.id and path == SANDBOXES):
        raise Problem(404, "no operation of the control plane has this path", None, f"use one of {', '.join(OPERATIONS)}")
    method = "GET" if request.method == "HEAD" else request.method
    if method not in methods:
        allowed = ", ".join(methods).replace("GET", "GET, HEAD")
        raise Problem(405, f"{request.method} is not allowed on this path", None, f"use one of {allowed}", {"allow": allowed})
    kind, handler, status = methods[method]
    if method == "GET":
        return status, handler(call, parse_query(query, kind))
    # Generated clients send null for an optional body that is not given.
    is_missing = kind in {RequestBody, SandboxBody} and request.body.strip() in {b"", b"null"}
    return status, handler(call, parse_body(b"{}" if is_missing else request.body, kind))
