"""Send requests over an httpx or httpx2 client that the user has configured."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from http.cookiejar import CookieJar
from importlib import import_module
from typing import Any

import anyio

from outreach_async.errors import InvalidRequest
from outreach_async.transport._httpx_pool import HandshakeTracker, make_body_class, read_response
from outreach_async.transport._leftovers import ConnectionMonitor
from outreach_async.transport._lifecycle import InFlight
from outreach_async.transport._sending import build_closed_error, mark_handed_over, merge_headers, require_origin_form
from outreach_async.transport._urls import header_secrets, url_secrets
from outreach_async.transport._wire import Progress, Request, Response


class _ReadOnlyCookieJar(CookieJar):
    """A cookie jar that stores no cookies from responses."""

    def extract_cookies(self, response: object, request: object) -> None:
        """Store nothing."""


def adopt_client(client: Any, family: str) -> tuple[str, tuple[str, ...]]:
    """Make a user's client ignore cookies in responses. Return its base URL and its secrets."""
    root = client.base_url
    if not root.host or root.query or root.fragment:
        fault = "a query or fragment" if root.host else "no host"
        raise InvalidRequest(
            f"base_url: expected a URL with a host and without a query or fragment, got {fault}; "
            f"pass a valid base_url to {family}.AsyncClient"
        )
    jar = _ReadOnlyCookieJar()
    for cookie in client.cookies.jar:
        jar.set_cookie(cookie)
    client.cookies = jar
    base_url = f"{root.scheme}://{root.netloc.decode()}{root.raw_path.decode().rstrip('/')}"
    return base_url, (*url_secrets(str(root)), *header_secrets(client.headers))


async def close_client(client: Any) -> None:
    with suppress(RuntimeError):  # connections of an event loop that has ended can no longer be closed
        await client.aclose()


class ClientSender:
    """Sends requests over a user's `httpx.AsyncClient` or `httpx2.AsyncClient`, in one event loop."""

    def __init__(self, client: Any, family: str, max_in_flight: int | None, max_answer: int) -> None:
        self._client = client
        self._root = client.base_url
        self._library = import_module(family)
        self._max_answer = max_answer
        self._in_flight = InFlight(max_in_flight)

    def send(self, request: Request, progress: Progress) -> Coroutine[Any, Any, Response]:
        return self._in_flight.run(partial(self._send, request, progress), progress)

    async def _send(self, request: Request, progress: Progress) -> Response:
        if self._client.is_closed:
            raise build_closed_error(self._client)
        handshakes = HandshakeTracker()
        message = self._build_message(request, progress, handshakes)
        mark_handed_over(progress, request, proof=False)  # the user's own transport may send without reading the body
        try:
            answer = await self._client.send(message, stream=True, follow_redirects=False)
        except BaseException:  # also a cancellation, on which the library leaks a socket whose handshake is not finished
            await handshakes.aclose()
            raise
        progress.sent = True
        try:
            network = answer.extensions.get("network_stream")
            response, _ = await read_response(answer, self._max_answer, None if network is None else ConnectionMonitor(network))
            return response
        finally:
            with anyio.CancelScope(shield=True):  # must complete: an unclosed response blocks a connection of the pool
                await answer.aclose()

    def _build_message(self, request: Request, progress: Progress, handshakes: HandshakeTracker) -> Any:
        url = self._root.copy_with(raw_path=self._root.raw_path.rstrip(b"/") + require_origin_form(request.target).encode())
        # `build_request` adds the client's configuration, but accepts no body that can be read twice, as digest authentication
        # requires. The request returned here has such a body.
        draft = self._client.build_request(request.method, url, headers=merge_headers(request, {}), timeout=None)
        body = make_body_class(self._library)(request.body, progress)
        extensions = {**draft.extensions, "trace": handshakes.trace} if url.scheme == "https" else draft.extensions
        return self._library.Request(draft.method, draft.url, headers=draft.headers, stream=body, extensions=extensions)

    def drop_idle(self) -> None:
        """Do nothing: httpx has no function that closes the idle connections of a client."""

    async def aclose(self) -> None:
        await self._in_flight.aclose()
        await close_client(self._client)
