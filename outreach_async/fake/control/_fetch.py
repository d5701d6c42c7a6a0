"""Answer `fetch` of JavaScript, where Pyodide runs Python: neither a socket nor a thread is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from outreach_async.fake._cross_origin import ANY
from outreach_async.fake._damage import deliver
from outreach_async.fake._fake_service import FakeService
from outreach_async.fake._messages import decode_body, frame
from outreach_async.fake.control._control_plane import (
    UNCHANGED,
    ControlPlane,
    FakeBody,
    Instance,
    Problem,
    create_fake,
    parse_body,
)
from outreach_async.fake.faults import Exchange, run_to_end
from outreach_async.transport._wire import Request, Response


class Answer(NamedTuple):
    """What `fetch` gets. JavaScript reads it by position."""

    status: int | None  # none if the response is lost
    headers: Sequence[tuple[str, str]]
    wait: float  # seconds before the head of the response; infinite if it never comes
    parts: Sequence[tuple[float, bytes]]  # of the body, each after a wait in seconds
    lost: str  # why the response, or the rest of its body, does not arrive; empty if it does


def open_fake(url: str, options: bytes) -> tuple[Callable[..., Answer] | None, str]:
    """Return the function that answers requests to a new fake; or nothing, and what is wrong with the options."""
    try:
        service = run_to_end(create_fake(Instance(FakeService()), parse_body(options, FakeBody)))
    except Problem as problem:
        place, message, remedy = problem.field or "", problem.message, problem.remedy.replace(UNCHANGED, "correct the option")
        return None, f"{message if message.lower().startswith(place) else f'{place}: {message}'}; {remedy}"
    # Whoever can call the function is the page itself: there is no other origin to refuse.
    return partial(answer, ControlPlane(service, [urlsplit(url).hostname or ""], origins=[ANY], base_url=url)), ""


def answer(plane: ControlPlane, method: str, target: str, headers: Mapping[str, str], body: Any) -> Answer:
    """Answer a request as a server does. `body` is any buffer of bytes."""
    request = decode_body(Request(method, target, dict(headers), bytes(body)))
    exchange = Exchange(request, None) if isinstance(request, Response) else plane.exchange(request)
    delivery = deliver(exchange.fault, exchange.response or Response(200), method)  # without a response, the fault decides
    if delivery.response is None:
        return Answer(None, (), delivery.wait, (), delivery.lost)
    fields = tuple(frame(delivery.response).items())
    return Answer(delivery.response.status, fields, delivery.wait, delivery.parts, delivery.lost)
