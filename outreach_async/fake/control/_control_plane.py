"""Serve the control plane in front of a fake. Faults do not affect control requests. The request log omits control requests.

Two request headers are checked, because a web page in a browser can send requests to a server on loopback:

- `Host`: an attacker can make the page's host name resolve to the address of this server (DNS rebinding). The browser then lets
  the page read the responses, because page and server have the same origin. Such a request can be recognized only
  by its unknown host name.
- `Origin`: some requests do harm even if the page cannot read the response. The browser adds the page's origin to these requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from outreach_async.fake._asgi import Application, asgi_app
from outreach_async.fake._fake_service import FakeService
from outreach_async.fake._fault_plan import Exchange
from outreach_async.fake.control._operations import PREFIX, ControlledFake, find_operation
from outreach_async.fake.control._schemas import Problem, ProblemBody, ProblemDetail
from outreach_async.transport._wire import Request, Response


def check_source(headers: Mapping[str, str], names: Collection[str]) -> None:
    """Reject a request for an unknown host name, or from a web page of another origin. `names` are lower case."""
    # DNS rebinding needs a name: it cannot use localhost or an IP address, so these are always accepted.
    host = headers.get("host", "")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # square brackets without a valid IPv6 address
        name = ""
    if not (name == "localhost" or name.endswith(".localhost") or name in names or _is_address(name)):
        remedy = "use localhost or an IP address, or start the server with --control-host NAME"
        raise Problem(403, "the control plane does not accept this host name", "host", remedy)
    if headers.get("origin", f"://{host}").partition("://")[2] != host:
        remedy = "send the request from a program, without an Origin header"
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


class ControlPlane:
    """A fake with its control plane, for a server or an ASGI application.

    Args:
        service: The fake. `reset` restores the state that the fake has now.
        hosts: Host names that the control plane accepts, besides `localhost` and IP addresses.

    Attributes:
        service: The fake.
    """

    def __init__(self, service: FakeService, hosts: Iterable[str] = ()) -> None:
        self.service = service
        self._hosts = frozenset(host.lower() for host in hosts)
        self._start = service.snapshot(), service.behaviour

    def asgi(self) -> Application:
        """Return an ASGI application for the fake and its control plane, as `FakeService.asgi` does for the fake alone."""
        return asgi_app(self)

    def exchange(self, request: Request, /) -> Exchange:
        """Handle a request: the control plane handles paths under `/_fake`, and the service handles all other paths."""
        return self.exchange_at(request, f"http://{request.headers.get('host', '')}")

    def exchange_at(self, request: Request, base_url: str, /) -> Exchange:
        """Like `exchange`, but with the given base URL instead of the URL from the `host` header."""
        path, _, query = request.target.partition("?")
        if path != PREFIX and not path.startswith(f"{PREFIX}/"):
            return self.service.exchange(request)
        headers = {"content-type": "application/json"}
        try:
            check_source(request.headers, self._hosts)
            operation = find_operation(request.method, path.removeprefix(PREFIX))
            content = operation.execute(ControlledFake(self.service, base_url, *self._start), query, request.body)
            return Exchange(Response(operation.status, headers, content), None)
        except Problem as problem:
            detail = ProblemDetail(problem.message, problem.field, problem.remedy)
            content = msgspec.json.encode(ProblemBody(error=detail))
            return Exchange(Response(problem.status, {**headers, **problem.headers}, content), None)
