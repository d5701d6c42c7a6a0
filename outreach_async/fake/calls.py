"""Parse requests. Errors are recorded on the parsed request and raised when it is executed."""

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
"""The operation of a request that matches none of the five."""

_NOWHERE: Final = Target((), {}, None)


@attrs.define
class Call:
    """A parsed request.

    Attributes:
        request: The request.
        operation: Name of the operation; `unknown` if it matches none.
        target: The parsed target.
        body: The parsed body; `None` for an operation without a body, and for an invalid body.
        misdirected: The error, if the request matches no operation.
        malformed: The error, if the body is invalid.
        hints: Hints for people; more are added while the request is executed.
        request_id: `x-request-id` of the response; `None` until the service acts.
        ended: Frees the exchange's place under `max_in_flight`, if it holds one.
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
        """Members of the body; empty without a valid body."""
        return self.body or {}


def read_call(request: Request) -> Call:
    """Parse a request. Errors are stored in the result, not raised."""
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
