"""Send requests over an httpx or httpx2 client that the user has configured."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from http.cookiejar import CookieJar
from typing import Any

import anyio

from outreach_async._files.optional import require_library
from outreach_async.errors import InvalidRequest
from outreach_async.transport._httpx_pool import FAMILIES, Family, HandshakeTracker, HttpxSender, make_body_class, read_response
from outreach_async.transport._leftovers import ConnectionMonitor
from outreach_async.transport._lifecycle import InFlight, LoopLocal
from outreach_async.transport._sending import build_closed_error, mark_handed_over, merge_headers, require_origin_form
from outreach_async.transport._urls import find_library, header_secrets, url_secrets
from outreach_async.transport._wire import Progress, Request, Response


class ClientSender(HttpxSender):
    """Sends requests over a user's `httpx.AsyncClient` or `httpx2.AsyncClient`."""

    def __init__(self, client: Any, family: Family | None, max_in_flight: int | None, max_answer: int) -> None:
        super().__init__(_detect_family(client, family), max_in_flight, max_answer)
        root = client.base_url
        if not root.host or root.query or root.fragment:
            fault = "a query or fragment" if root.host else "no host"
            raise InvalidRequest(
                f"base_url: expected a URL with a host and without a query or fragment, got {fault}; "
                f"pass a valid base_url to {self.family}.AsyncClient"
            )
        self.base_url = f"{root.scheme}://{root.netloc.decode()}{root.raw_path.decode().rstrip('/')}"
        self.secrets = (*url_secrets(str(root)), *header_secrets(client.headers))
        self._root = root
        self._client = client
        jar = _ReadOnlyCookieJar()
        for cookie in client.cookies.jar:
            jar.set_cookie(cookie)
        client.cookies = jar
        self._in_flight = LoopLocal(self._open)
        self._started = False

    def _open(self) -> InFlight:
        if self._started:  # the client's pool would use connections of the other event loop
            raise InvalidRequest(
                "transport: the AsyncClient was used in another event loop; make a new client and transport in this event loop"
            )
        self._started = True
        return InFlight(self.max_in_flight)

    async def exchange(self, request: Request, progress: Progress) -> Response:
        """Wait for a free slot, send a request, and return the response."""
        return await self._in_flight.get().run(partial(self._send, request, progress), progress)

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
            response, _ = await read_response(answer, self.max_answer, None if network is None else ConnectionMonitor(network))
            return response
        finally:
            with anyio.CancelScope(shield=True):  # must complete: an unclosed response blocks a connection of the pool
                await answer.aclose()

    def _build_message(self, request: Request, progress: Progress, handshakes: HandshakeTracker) -> Any:
        url = self._root.copy_with(raw_path=self._root.raw_path.rstrip(b"/") + require_origin_form(request.target).encode())
        # `build_request` adds the client's configuration, but accepts no body that can be read twice, as digest authentication
        # requires. The request returned here has such a body.
        draft = self._client.build_request(request.method, url, headers=merge_headers(request, {}), timeout=None)
        body = make_body_class(self.library)(request.body, progress)
        extensions = {**draft.extensions, "trace": handshakes.trace} if url.scheme == "https" else draft.extensions
        return self.library.Request(draft.method, draft.url, headers=draft.headers, stream=body, extensions=extensions)

    async def aclose(self) -> None:
        """Cancel all requests and close the client. A forked child process does not close a client that the parent has used."""
        if (in_flight := self._in_flight.release()) is not None:
            await in_flight.aclose()
        elif self._in_flight.is_inherited:
            return
        with suppress(RuntimeError):  # connections of an event loop that has ended can no longer be closed
            await self._client.aclose()


class _ReadOnlyCookieJar(CookieJar):
    """A cookie jar that stores no cookies from responses."""

    def extract_cookies(self, response: object, request: object) -> None:
        """Store no cookies from the response."""


def _detect_family(client: Any, family: Family | None) -> Family:
    detected = FAMILIES.get(find_library(client, "AsyncClient") or "")
    if detected is None or family not in (None, detected):
        expected = f"a base URL or an {family or 'httpx'}.AsyncClient"
        raise InvalidRequest(f"transport: expected {expected}, got {type(client).__name__}; pass one of them")
    require_library(detected)
    return detected
