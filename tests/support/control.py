"""An in-memory client of the control plane of the fake."""

from __future__ import annotations

import json
from copy import copy
from typing import Any

from outreach_async import Request, Response
from outreach_async.fake import FakeService
from outreach_async.fake.control import ControlPlane

HOST = {"host": "127.0.0.1:80"}


class PlaneClient:
    """A client of a fake and its control plane. `time` is the time by which sandboxes expire; `base` is the path of one."""

    def __init__(self, fake: FakeService | None = None, *hosts: str) -> None:
        self.fake = FakeService() if fake is None else fake
        self.time = 0.0
        self.controlled = ControlPlane(self.fake, hosts, lambda: self.time)
        self.base = ""

    def sandbox(self, **body: Any) -> PlaneClient:
        """Create a sandbox, and return a client of it."""
        inside = copy(self)
        inside.base = self("POST", "/sandboxes", body)["url"].removeprefix(f"http://{HOST['host']}")
        return inside

    def send(self, method: str, target: str, body: bytes = b"", **headers: str) -> Response:
        """Send a request to the fake or its control plane, and return the response."""
        exchange = self.controlled.exchange(Request(method, self.base + target, {**HOST, **headers}, body))
        assert exchange.fault is None
        assert exchange.response is not None
        return exchange.response

    def __call__(self, method: str, path: str, payload: Any = None) -> Any:
        """Send a request to the control plane, require that it succeeds, and return the response as JSON."""
        response = self.send(method, f"/_fake{path}", b"" if payload is None else json.dumps(payload).encode())
        assert response.status in {200, 201}, response.body
        return json.loads(response.body)

    def problem(self, method: str, path: str, payload: Any = None, status: int = 400) -> dict[str, Any]:
        """Send a request to the control plane, require that it is refused with `status`, and return the error."""
        raw = payload if isinstance(payload, bytes) else b"" if payload is None else json.dumps(payload).encode()
        response = self.send(method, f"/_fake{path}", raw)
        answered = json.loads(response.body)
        assert response.status == status, response.body
        assert response.headers["content-type"] == "application/json"
        error: dict[str, Any] = answered.pop("error")
        assert (answered, set(error)) == ({}, {"message", "field", "remedy"})
        assert error["message"]
        assert error["remedy"]
        return error
