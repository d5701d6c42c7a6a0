"""From a request that was read to the answer's bytes, and to its entry in the journal."""

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
"""Characters of `x-fake-hint`: a longer header is refused by HTTP libraries. The journal has all."""


def answer(call: Call, context: Context, number: int) -> Response:
    """Carry a request out and answer it, whatever it asks (rules W11, E2 and E3).

    Args:
        call: The request; takes hints and the answer's id.
        context: What it is carried out with.
        number: Its place among all requests.
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
    except BaseException:  # from a function that a behaviour was given
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
    """Make the journal's entry of a request that was carried out, or that a fault kept from it."""
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
