"""Serve the control plane in front of a fake. Its requests never reach the service, its faults or its request log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from outreach_async.fake.control.acts import Control, Start
from outreach_async.fake.control.bodies import Detail, Refusal
from outreach_async.fake.control.guard import check_host, check_origin
from outreach_async.fake.control.reading import Problem
from outreach_async.fake.control.routes import PREFIX, Route, find_route
from outreach_async.fake.exchange import Exchange
from outreach_async.fake.service import FakeService
from outreach_async.transport.wire import Request, Response


class Controlled:
    """A fake with its control plane, for `server.serve` and `asgi.asgi_app`.

    Args:
        service: The fake. `reset` restores its state at this moment.
        hosts: Accepted host names of the control plane, besides `localhost` and IP addresses.

    Attributes:
        service: The fake.
    """

    def __init__(self, service: FakeService, hosts: Iterable[str] = ()) -> None:
        self.service = service
        self._hosts = frozenset(host.lower() for host in hosts)
        self._start = Start(service)

    def exchange(self, request: Request, /) -> Exchange:
        """Handle a request: one under the prefix here, any other by the service."""
        return self.exchange_at(request, f"http://{request.headers.get('host', '')}")

    def exchange_at(self, request: Request, base_url: str, /) -> Exchange:
        """Handle a request to a fake whose base URL is given, and not `http://` with the request's host."""
        path, _, query = request.target.partition("?")
        if path != PREFIX and not path.startswith(f"{PREFIX}/"):
            return self.service.exchange(request)
        try:
            host = check_host(request.headers, self._hosts)
            check_origin(request.headers, host)
            route = find_route(request.method, path.removeprefix(PREFIX))
            control = Control(self.service, self._start, base_url)
            return Exchange(_done(route, route.carry_out(control, query, request.body)), None)
        except Problem as problem:
            return Exchange(_refused(problem), None)


def _done(route: Route, answered: Any) -> Response:
    body = answered if isinstance(answered, bytes) else msgspec.json.encode(answered)
    return Response(route.status, {"content-type": "application/json"}, body)


def _refused(problem: Problem) -> Response:
    refusal = Refusal(error=Detail(message=problem.message, field=problem.field, remedy=problem.remedy))
    return Response(problem.status, {"content-type": "application/json", **problem.headers}, msgspec.json.encode(refusal))
