"""Turn a parsed request into a response, and into its entry in the request log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.bodies import encode
from outreach_async.fake.calls import Call
from outreach_async.fake.exchange import Exchange
from outreach_async.fake.handlers import Context, carry_out
from outreach_async.fake.journal import Recorded
from outreach_async.fake.refusals import RENDERERS, Refusal, Refused, Rendered
from outreach_async.transport.wire import Response

_JSON: Final = {"content-type": "application/json"}
_MAX_HINT: Final = 2000
"""Maximum characters of `x-fake-hint`: HTTP libraries refuse longer headers. The request log has every hint in full."""


def answer(call: Call, context: Context, number: int) -> Response:
    """Execute a request and return the response; a refused request gets an error response (rules W11, E2 and E3).

    Args:
        call: The parsed request. Its `hints` and `request_id` are updated.
        context: The state and settings to execute it with.
        number: Number of the request, counted from 0.
    """
    call.request_id = f"req_{number:016x}"
    fields = {"x-request-id": call.request_id}
    headers: Mapping[str, str] = _JSON
    try:
        status, document = carry_out(call, context)
        body = encode(document).encode()
    except Refused as refused:
        call.hints += refused.refusal.hints
        fields |= refused.refusal.headers
        status, headers, body = _rendered(refused.refusal, context.behaviour)
    except BaseException:
        # A function passed to `Behaviour` raised. No exchange is returned, and nobody else would free its place.
        call.ended()
        raise
    if call.hints:
        fields["x-fake-hint"] = "; ".join(call.hints)[:_MAX_HINT]
    return Response(status, {**headers, **fields}, b"" if call.request.method == "HEAD" else body)


def _rendered(refusal: Refusal, behaviour: Behaviour) -> Rendered:
    renderer = behaviour.error_renderer
    status, headers, body = (RENDERERS[renderer] if isinstance(renderer, str) else renderer)(refusal)
    return status, {**_JSON, **headers}, body


def recorded(call: Call, exchange: Exchange, number: int, now: float) -> Recorded:
    """Return the log entry of a request, whether the service executed it or a fault replaced the execution."""
    return Recorded(
        number=number,
        operation=call.operation,
        method=call.request.method,
        target=call.request.target,
        headers=call.request.headers,
        json=call.body,
        status=None if exchange.response is None else exchange.response.status,
        hints=tuple(call.hints),
        served=call.request_id is not None,
        request_id=call.request_id,
        at=now,
        fault=None if exchange.struck == "ok" else exchange.struck,
    )
