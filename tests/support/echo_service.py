"""A minimal service for tests of transports, which describes each request in its response."""

from __future__ import annotations

import json
from collections.abc import Callable

from outreach_async import Request, Response
from outreach_async.fake.faults import Exchange, Faults, execute_with_faults

CREATE = Request("POST", "/contacts", {"content-type": "application/json"}, b'{"owner_key": "key_secret"}')
LIST = Request("GET", "/campaigns?workspace=space_1&page=1&display=5")


class TinyService:
    """A service with configurable faults that records its requests."""

    # Faults see a request to `/contacts` as `create_contact` and every other request as `list_campaigns`.

    def __init__(self, heard: Callable[[], object] = lambda: None) -> None:
        self.heard = heard
        self.faults = Faults(seed=0)
        self.requests: list[Request] = []

    def exchange(self, request: Request, /) -> Exchange:
        self.heard()
        operation = "create_contact" if request.target == "/contacts" else "list_campaigns"
        return execute_with_faults(self.faults, operation, request, lambda: self._serve(request))

    def _serve(self, request: Request) -> Response:
        self.requests.append(request)
        return Response(201, {"content-type": "application/json", "x-request-id": "req_1"}, answer_to(request))


def answer_to(request: Request) -> bytes:
    """Return the body of a response, as JSON that describes the request."""
    seen = {
        "method": request.method,
        "target": request.target,
        "size": len(request.body),
        "x-test": request.headers.get("x-test"),
    }
    return json.dumps({"status": "ok", "seen": seen, "data": [{"status": "live"}, {"status": "draft"}]}).encode()


def answer_on_the_wire(request: Request, *fields: str) -> bytes:
    """Return the complete HTTP response to a request; `fields` are additional header lines."""
    body = answer_to(request)
    lines = [
        "HTTP/1.1 201 Created",
        "content-type: application/json",
        "x-request-id: req_1",
        f"content-length: {len(body)}",
        *fields,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


class BrokenService:
    """A service that raises `KeyError` at every request, with the request body as the message."""

    def exchange(self, request: Request, /) -> Exchange:
        raise KeyError(request.body.decode())
