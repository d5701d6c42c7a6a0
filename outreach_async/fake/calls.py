"""A request on its way through the fake: read as far as it can be read, with what is wrong noted for when it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from outreach_async.fake.bodies import parse_object
from outreach_async.fake.exchange import nothing
from outreach_async.fake.refusals import Refused
from outreach_async.fake.targets import Target, check_method, parse_target, unknown_parameters
from outreach_async.transport.wire import Request

UNKNOWN: Final = "unknown"
"""The operation of a request that asks for none of the five."""

_NOWHERE: Final = Target((), {}, None)


@attrs.define
class Call:
    """A request, read.

    Attributes:
        request: The request.
        operation: What it asks for.
        target: Its target.
        body: The body, parsed; `None` for an operation without one, and for a bad one.
        misdirected: Why it asks for no operation.
        malformed: Why its body is bad.
        hints: What a person should know; grows while the request is carried out.
        request_id: `x-request-id` of the answer; `None` until the service acts.
        ended: Gives back its place among the exchanges under way, if it has one.
    """

    request: Request
    operation: str = UNKNOWN
    target: Target = _NOWHERE
    body: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    misdirected: Refused | None = None
    malformed: Refused | None = None
    hints: list[str] = attrs.Factory(list)
    request_id: str | None = None
    ended: Callable[[], object] = attrs.field(default=nothing, repr=False)

    @property
    def members(self) -> Mapping[str, Any]:
        """The body's members."""
        return self.body or {}


def read_call(request: Request) -> Call:
    """Read a request; nothing is raised."""
    call = Call(request)
    try:
        call.target = parse_target(request.target)
        route = check_method(call.target, request.method)
    except Refused as refused:
        call.misdirected = refused
        return call
    call.operation = route.operation
    if call.target.query:
        call.hints += unknown_parameters(call.target.query, route)
    if route.method == "POST":
        _read_body(call)
    return call


def _read_body(call: Call) -> None:
    if not call.request.headers.get("content-type", "").lower().startswith("application/json"):
        call.hints.append("the body's content-type is not application/json")
    try:
        call.body = parse_object(call.request.body)
    except Refused as refused:
        call.malformed = refused
