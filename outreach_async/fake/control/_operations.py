"""The operations of the control plane as a table. Routing, parsing and the OpenAPI document are derived from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from outreach_async.fake._error_responses import mask_document, mask_keys
from outreach_async.fake._fake_service import FakeService, Snapshot
from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.control import _schemas as schemas
from outreach_async.fake.control._schemas import UNCHANGED, Problem
from outreach_async.fake.request_log import CAPACITY, Recorded
from outreach_async.fake.world_file import WorldError
from outreach_async.transport._wire import Request

PREFIX: Final = "/_fake"
"""No path of the service begins with it."""

_MAX_ADVANCE: Final = timedelta(days=3_660)  # other requests wait while the server simulates this period
_MAX_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()  # estimates are decades later; `datetime` ends with the year 9999


@attrs.frozen
class ControlledFake:
    """A fake, the base URL at which clients reach it, and the state that `reset` restores."""

    service: FakeService
    base_url: str
    start: Snapshot
    behaviour: Behaviour


# Handlers: each takes the fake and a parsed request. Its name and docstring are the operation's id and summary in the document.


def reset(fake: ControlledFake, _: schemas.EmptyBody) -> schemas.ClockState:
    """Restore the data, time and behaviour of the server's start, remove all faults, and empty the request log."""
    fake.service.reset()
    fake.service.restore(fake.start)
    fake.service.behaviour = fake.behaviour
    return get_time(fake)


def get_world(fake: ControlledFake, _: schemas.EmptyBody) -> bytes:
    """Return all stored data as a world file."""
    return fake.service.dump().encode()


def put_world(fake: ControlledFake, body: dict[str, Any]) -> schemas.ClockState:
    """Replace all stored data with the content of a world file."""
    try:
        fake.service.load(body)
    except WorldError as error:
        place, _, reason = str(error).partition(": ")
        raise Problem(400, reason, place.removeprefix("$").lstrip(".") or None, UNCHANGED) from None
    return get_time(fake)


def list_faults(fake: ControlledFake, _: Any = None) -> schemas.UnfiredFaults:
    """List the faults that have not fired yet."""
    return schemas.UnfiredFaults(unfired=fake.service.faults.unfired)


def add_fault(fake: ControlledFake, body: schemas.FaultRuleBody) -> schemas.UnfiredFaults:
    """Add a rule that injects a fault into matching requests."""
    text = (body.containing or "").encode()  # every request contains the empty string

    def contains(request: Request) -> bool:
        return text in request.target.encode() or text in request.body

    fault = schemas.build_fault("fault", body.fault)
    fake.service.faults.add(fault, operation=body.operation, match=contains, times=body.times, p=body.p)
    return list_faults(fake)


def script_faults(fake: ControlledFake, body: schemas.FaultScriptBody) -> schemas.UnfiredFaults:
    """Script faults for the next requests of an operation."""
    faults = [schemas.build_fault(f"faults[{place}]", fault) for place, fault in enumerate(body.faults)]
    fake.service.faults.script(body.operation, *faults)
    return list_faults(fake)


def clear_faults(fake: ControlledFake, _: schemas.EmptyBody) -> schemas.UnfiredFaults:
    """Remove all faults, both scripted faults and rules."""
    fake.service.faults.clear()
    return list_faults(fake)


def get_behaviour(fake: ControlledFake, _: Any = None) -> dict[str, Any]:
    """Return the value of every knob of the behaviour."""
    return schemas.describe_behaviour(fake.service.behaviour)


def change_behaviour(fake: ControlledFake, body: schemas.Knobs) -> dict[str, Any]:
    """Set the given knobs. The other knobs keep their values, or get those of the given preset."""
    fake.service.behaviour = schemas.set_knobs(fake.service.behaviour, body)
    return get_behaviour(fake)


def get_time(fake: ControlledFake, _: Any = None) -> schemas.ClockState:
    """Return the current time of the fake."""
    now = fake.service.now
    return schemas.ClockState(now=datetime.fromtimestamp(now, UTC).isoformat().replace("+00:00", "Z"), unix=now)


def advance(fake: ControlledFake, body: schemas.AdvanceBody) -> schemas.ClockState:
    """Advance the fake's time, and run every event that is due by the new time."""
    try:
        step = timedelta(**asdict(body))
    except OverflowError:
        step = timedelta.max
    if step > _MAX_ADVANCE:
        message = f"duration: expected at most {_MAX_ADVANCE.days} days per request, got more"
        raise Problem(400, message, None, "advance in several requests")
    if fake.service.now + step.total_seconds() > _MAX_TIME:
        message = "time: expected a time before the year 9000, got a later time"
        raise Problem(400, message, None, "advance by a shorter duration, or reset the fake")
    fake.service.advance(seconds=step.total_seconds())
    return get_time(fake)


def list_requests(fake: ControlledFake, query: schemas.RequestsQuery) -> schemas.LoggedRequests:
    """List the last entries of the request log."""
    log = fake.service.requests
    entries = [entry for entry in log.recent(CAPACITY) if query.operation in {UNSET, entry.operation}]
    return schemas.LoggedRequests(
        total=len(log),
        counts=dict(log.counts),
        statuses={"unanswered" if status is None else str(status): count for status, count in log.statuses.items()},
        requests=[_mask_entry(entry) for entry in entries[-query.last :]],
    )


def _mask_entry(entry: Recorded) -> schemas.LoggedRequest:
    members = attrs.asdict(entry, recurse=False, filter=lambda attribute, _: attribute.name != "headers")
    masked = {"target": mask_keys(entry.target), "json": mask_document(entry.json), "hints": [*map(mask_keys, entry.hints)]}
    return schemas.LoggedRequest(**members | masked)


def clear_requests(fake: ControlledFake, _: schemas.EmptyBody) -> schemas.LoggedRequests:
    """Empty the request log."""
    fake.service.requests.clear()
    return list_requests(fake, schemas.RequestsQuery())


def describe_service(fake: ControlledFake, _: schemas.EmptyBody) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the service."""
    from importlib.resources import files  # slow to import, and used for this document only

    document = json.loads(files("outreach_async.fake").joinpath("openapi.json").read_text(encoding="utf-8"))
    return {**document, "servers": [{"url": fake.base_url}]}


def describe_control(fake: ControlledFake, _: schemas.EmptyBody) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the control plane."""
    kinds = list(dict.fromkeys(kind for each in OPERATIONS for kind in (each.request, each.response, schemas.ProblemBody)))
    references, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    by_kind = dict(zip(kinds, references, strict=True))
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation, by_kind, components)
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "servers": [{"url": f"{fake.base_url}{PREFIX}"}],
        "paths": paths,
        "components": {"schemas": components},
    }


@attrs.frozen
class ControlOperation:
    """An operation of the control plane. The method and the path after `PREFIX` identify it."""

    method: str
    path: str
    request: Any  # the type of the body; for GET, of the query parameters
    handler: Callable[[ControlledFake, Any], Any]  # returns a value of the type `response`, or its JSON as bytes
    response: Any
    status: int = 200

    def execute(self, fake: ControlledFake, query: str, body: bytes) -> bytes:
        """Parse the request, call the handler and return the body of the response."""
        if self.method == "GET":
            parsed = schemas.parse_query(query, self.request)
        else:
            parsed = schemas.parse_body(body or b"{}" if self.request is schemas.EmptyBody else body, self.request)
        content = self.handler(fake, parsed)
        return content if isinstance(content, bytes) else msgspec.json.encode(content)


OPERATIONS: Final = (
    ControlOperation("POST", "/reset", schemas.EmptyBody, reset, schemas.ClockState),
    ControlOperation("GET", "/world", schemas.EmptyBody, get_world, dict[str, Any]),
    ControlOperation("PUT", "/world", dict[str, Any], put_world, schemas.ClockState),
    ControlOperation("GET", "/faults", schemas.EmptyBody, list_faults, schemas.UnfiredFaults),
    ControlOperation("POST", "/faults", schemas.FaultRuleBody, add_fault, schemas.UnfiredFaults, 201),
    ControlOperation("POST", "/faults/script", schemas.FaultScriptBody, script_faults, schemas.UnfiredFaults, 201),
    ControlOperation("DELETE", "/faults", schemas.EmptyBody, clear_faults, schemas.UnfiredFaults),
    ControlOperation("GET", "/behaviour", schemas.EmptyBody, get_behaviour, dict[str, Any]),
    ControlOperation("PATCH", "/behaviour", schemas.Knobs, change_behaviour, dict[str, Any]),
    ControlOperation("GET", "/time", schemas.EmptyBody, get_time, schemas.ClockState),
    ControlOperation("POST", "/time/advance", schemas.AdvanceBody, advance, schemas.ClockState),
    ControlOperation("GET", "/requests", schemas.RequestsQuery, list_requests, schemas.LoggedRequests),
    ControlOperation("DELETE", "/requests", schemas.EmptyBody, clear_requests, schemas.LoggedRequests),
    ControlOperation("GET", "/openapi.json", schemas.EmptyBody, describe_service, dict[str, Any]),
    ControlOperation("GET", "/control.json", schemas.EmptyBody, describe_control, dict[str, Any]),
)


def find_operation(method: str, path: str) -> ControlOperation:
    """Return the operation of a request. A trailing slash of the path is ignored."""
    methods = {operation.method: operation for operation in OPERATIONS if operation.path == path.rstrip("/")}
    if not methods:
        raise Problem(404, "no operation of the control plane has this path", None, f"use a path from {PREFIX}/control.json")
    if method not in methods:
        allowed = ", ".join(methods)
        raise Problem(405, f"{method} is not allowed on this path", None, f"use one of {allowed}", {"allow": allowed})
    return methods[method]


# The OpenAPI document of the control plane.

_INFO: Final = {
    "title": "Control plane of the fake outreach service",
    "version": "1.0.0",
    "description": "Reset and fill the fake service that this server runs, and control the service's faults, behaviour and time.",
}
_PROBLEMS: Final = {
    "400": "The request is malformed, or cannot be carried out.",
    "403": "The host name is not accepted, or the request comes from a web page.",
}


def _describe(operation: ControlOperation, by_kind: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": operation.handler.__name__,
        "summary": operation.handler.__doc__,
        **_describe_request(operation, by_kind[operation.request], components),
        "responses": {
            str(operation.status): _describe_response("Success.", by_kind[operation.response]),
            **{status: _describe_response(text, by_kind[schemas.ProblemBody]) for status, text in _PROBLEMS.items()},
            # The server refuses a body that is too long before it knows the operation, so the response is not a `ProblemBody`.
            "413": _describe_response("The body is longer than 16 MiB.", {"type": "object"}),
        },
    }


def _describe_request(operation: ControlOperation, schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    if operation.method != "GET":
        is_required = operation.request is not schemas.EmptyBody
        return {"requestBody": {"required": is_required, "content": {"application/json": {"schema": schema}}}}
    members = components[schema["$ref"].rpartition("/")[2]]["properties"].items()
    return {"parameters": [{"name": name, "in": "query", "required": False, "schema": part} for name, part in members]}


def _describe_response(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}
