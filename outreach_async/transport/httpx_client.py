"""Send over a client that the user has configured."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from http.cookiejar import CookieJar
from typing import Any

import anyio

from outreach_async.errors import InvalidRequest
from outreach_async.transport.httpx_pool import FAMILIES, Family, Handshakes, Route, body_class, read
from outreach_async.transport.leftovers import Link
from outreach_async.transport.lifecycle import Bound, Turns
from outreach_async.transport.sending import closed, fields, origin_form, release
from outreach_async.transport.urls import authorizations, credentials, library_of
from outreach_async.transport.wire import Progress, Request, Response


class ClientRoute(Route):
    """Sends over an `httpx.AsyncClient` or `httpx2.AsyncClient`.

    Args:
        client: The client.
        family: The library that the client must belong to; `None` for either.
        most: Most exchanges at once; `None` for no limit beyond the client's own.
        limit: Most bytes of a decoded response body.

    Raises:
        InvalidRequest: `client` is not such a client, or has no usable base URL.
    """

    def __init__(self, client: Any, family: Family | None, most: int | None, limit: int) -> None:
        super().__init__(_family_of(client, family), most, limit)
        root = client.base_url
        if not root.host or root.query or root.fragment:
            raise InvalidRequest(
                f"base_url: expected a client with a base URL without query and fragment; pass one to {self.family}.AsyncClient"
            )
        self.where = f"{root.scheme}://{root.netloc.decode()}{root.raw_path.decode().rstrip('/')}"
        self.secrets = (*credentials(str(root)), *authorizations(client.headers))
        self._root = root
        self._client = client
        client.cookies = _sealed(client.cookies.jar)
        self._turns = Bound(self._start)
        self._started = False

    def _start(self) -> Turns:
        if self._started:  # its pool would use connections of the other event loop
            raise InvalidRequest("transport: the client was used in another event loop; make a new one in this event loop")
        self._started = True
        return Turns(self.most)

    async def exchange(self, request: Request, progress: Progress) -> Response:
        """Wait for a free slot, send, and read the response."""
        return await self._turns.get().take(partial(self._send, request, progress), progress)

    async def _send(self, request: Request, progress: Progress) -> Response:
        if self._client.is_closed:
            raise closed(self._client)
        handshakes = Handshakes()
        message = self._message(request, progress, handshakes)
        release(progress, request, proof=False)  # a transport of the user's may act without reading the body
        try:
            answer = await self._client.send(message, stream=True, follow_redirects=False)
        except BaseException:  # also a cancellation, on which the library leaks a socket whose handshake is not finished
            await handshakes.aclose()
            raise
        progress.sent = True
        try:
            network = answer.extensions.get("network_stream")
            response, _ = await read(answer, self.limit, None if network is None else Link(network))
            return response
        finally:
            with anyio.CancelScope(shield=True):  # must complete: an unclosed response keeps its place in the pool
                await answer.aclose()

    def _message(self, request: Request, progress: Progress, handshakes: Handshakes) -> Any:
        url = self._root.copy_with(raw_path=self._root.raw_path.rstrip(b"/") + origin_form(request.target).encode())
        # `build_request` adds the client's configuration, but accepts no body that can be read twice, as digest authentication
        # requires. The second request has such a body.
        draft = self._client.build_request(request.method, url, headers=fields(request, {}), timeout=None)
        body = body_class(self.library)(request.body, progress)
        extensions = {**draft.extensions, "trace": handshakes.trace} if url.scheme == "https" else draft.extensions
        return self.library.Request(draft.method, draft.url, headers=draft.headers, stream=body, extensions=extensions)

    async def aclose(self) -> None:
        """Cancel every exchange and close the client, unless it belongs to the parent of a forked process."""
        if (turns := self._turns.release()) is not None:
            await turns.aclose()
        elif self._turns.inherited:
            return
        with suppress(RuntimeError):  # connections of an event loop that has ended can no longer be closed
            await self._client.aclose()


class _Sealed(CookieJar):
    """A cookie jar that stores no cookies from responses."""

    def extract_cookies(self, response: object, request: object) -> None:
        """Ignore the cookies of a response."""


def _sealed(jar: CookieJar) -> CookieJar:
    sealed = _Sealed()
    for cookie in jar:
        sealed.set_cookie(cookie)
    return sealed


def _family_of(client: Any, asked: Family | None) -> Family:
    found = FAMILIES.get(library_of(client, "AsyncClient") or "")
    if found is None or asked not in (None, found):
        raise InvalidRequest(
            f"transport: expected a base URL or an {asked or 'httpx'}.AsyncClient, got {type(client).__name__}; pass one of them"
        )
    return found
