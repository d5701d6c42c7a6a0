"""Send requests over a pool of single-connection httpx or httpx2 transports, or over a client that the user has configured."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import Coroutine
from contextlib import suppress
from functools import cache, lru_cache, partial
from http.cookiejar import CookieJar
from importlib import import_module
from types import ModuleType
from typing import Any, Self

import anyio

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport._leftovers import ConnectionMonitor, http11_state
from outreach_async.transport._lifecycle import ConnectionPool, InFlight
from outreach_async.transport._response_reader import BodyReader, decode_headers, require_final_status
from outreach_async.transport._sending import (
    build_closed_error,
    is_recorded_by_vcrpy,
    mark_handed_over,
    merge_headers,
    require_origin_form,
)
from outreach_async.transport._urls import INVALID_HOST_MESSAGE, BaseUrl, header_secrets, hide_user, url_secrets
from outreach_async.transport._wire import Progress, Request, Response


class _Body:
    """A request body that sets `Progress.sent` when it is read. With authentication, the body may be read twice."""

    def __init__(self, content: bytes, progress: Progress) -> None:
        self._content = content
        self._progress = progress

    # No async generator, because trio warns about generators that are left unfinished by a broken connection.

    def __aiter__(self) -> Self:
        self._progress.sent = True
        self._left = [self._content] if self._content else []
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


class HandshakeTracker:
    """Tracks sockets whose TLS handshake is not complete. httpx and httpx2 leave such a socket open if a request is cancelled."""

    def __init__(self) -> None:
        self._sockets: list[Any] = []

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        """Handle a trace event of httpx or httpx2: store a new socket, and remove it when its TLS handshake is complete."""
        if event.endswith("connect_tcp.complete"):
            self._sockets.append(info["return_value"])
        elif event.endswith("start_tls.complete"):
            self._sockets.clear()

    async def aclose(self) -> None:
        for stream in self._sockets:
            with anyio.CancelScope(shield=True):
                await stream.aclose()


@cache
def unsent_errors(library: ModuleType) -> tuple[type[Exception], ...]:
    """Return the errors of httpx or httpx2 that are raised while connecting, before anything is written."""
    names = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol")
    return tuple(getattr(library, name) for name in names)


@cache
def make_body_class(library: ModuleType) -> Any:
    """Return a class of request bodies for httpx or httpx2. Each library accepts only subclasses of its own base class."""
    return type("Body", (_Body, library.AsyncByteStream), {})


async def read_response(answer: Any, limit: int, monitor: ConnectionMonitor | None) -> tuple[Response, bool]:
    """Read an httpx or httpx2 response to its end, and close the response."""
    status = require_final_status(answer.status_code)
    headers = decode_headers(answer.headers.raw)
    decoded = answer.is_stream_consumed  # a mock's response, or one read by an event hook, is already in memory
    reader = BodyReader(headers, limit, decoded=decoded)
    # Not `aiter_raw`, which returns the connection to the pool before it can be checked.
    pieces = answer.aiter_bytes() if decoded else aiter(answer.stream)
    is_reusable = True
    try:
        async for piece in pieces:
            reader.feed(piece)
        if monitor is not None and not decoded:
            is_reusable = monitor.check_leftovers(answer.stream, closing="close" in headers.get("connection", "").lower())
    except TransportError:
        await answer.aclose()
        # Run the library's nested generators to their end on the closed connection: trio warns about unfinished generators.
        with suppress(Exception):
            for _ in range(16_384):  # more pieces than one read of 64 KiB can contain
                await anext(pieces)
        raise
    await answer.aclose()
    return Response(status, headers, reader.finish()), is_reusable


class HttpxPool(ConnectionPool):
    def __init__(
        self, base: BaseUrl, family: str, limit: int, max_answer: int, *, context: ssl.SSLContext | None, proxy: str | None
    ) -> None:
        library = import_module(family)
        try:
            self.root = library.URL(str(base))
            self.default_headers = {"host": self.root.netloc.decode(), **base.headers}
        except (library.InvalidURL, UnicodeError):  # `UnicodeError` for some hosts that IDNA cannot encode
            raise InvalidRequest(INVALID_HOST_MESSAGE) from None
        build = partial(
            library.AsyncHTTPTransport,
            verify=context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # loads no certificates if none is needed
            # No expiry here: `ConnectionPool` closes a connection that was idle for too long.
            limits=library.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None),
            proxy=proxy and library.Proxy(proxy, ssl_context=context if proxy.startswith("https:") else None),
        )
        super().__init__(limit, lambda: _HttpxConnection(build()))
        self._path = base.path
        self._max_answer = max_answer
        self._make_request = library.Request
        self._body_class = make_body_class(library)
        self._unsent_errors = unsent_errors(library)
        self._cached_url = lru_cache(256)(self._join_url)  # parsing is slow, and all create requests share one target

    def send(self, request: Request, progress: Progress) -> Coroutine[Any, Any, Response]:
        return self.run_on_connection(partial(self._send_on, request, progress), progress)

    async def _send_on(self, request: Request, progress: Progress, connection: _HttpxConnection) -> Response:
        message = self._make_request(
            request.method,
            self._cached_url(request.target),
            headers=merge_headers(request, self.default_headers),
            stream=self._body_class(request.body, progress),
            extensions=connection.extensions,
        )
        before = progress.sent
        mark_handed_over(progress, request, proof=True)
        try:
            answer = await connection.transport.handle_async_request(message)
        except self._unsent_errors:
            progress.sent = before  # a mock reads the body of a request that it then refuses
            raise
        progress.sent = True  # a response proves that the request was sent, with or without a body
        monitor = connection.mark_open(answer)
        response, connection.is_clean = await read_response(answer, self._max_answer, monitor)
        return response

    def _join_url(self, target: str) -> Any:
        return self.root.copy_with(raw_path=f"{self._path}{require_origin_form(target)}".encode())


@cache
def warn_of_unknown_state(family: str) -> None:
    """Warn, once for each library, that its connections cannot be checked, and are therefore not reused."""
    text = f"the installed {family} or httpcore is too new to check its connections, so each request opens a connection"
    warnings.warn(f"{text}; use SocketTransport or AiohttpTransport, or an earlier version", RuntimeWarning, stacklevel=1)


class _HttpxConnection:
    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self._tracker = HandshakeTracker()
        self.extensions: dict[str, Any] = {"trace": self._tracker.trace}
        self.is_clean = True
        self._monitor: ConnectionMonitor | None = None

    def mark_open(self, answer: Any) -> ConnectionMonitor | None:
        """Stop tracing new sockets, because the connection is open. Return the monitor of the connection."""
        self.extensions = {}
        network = answer.extensions.get("network_stream")
        if network is not None and (self._monitor is None or self._monitor.network is not network):
            self._monitor = ConnectionMonitor(network)
            if http11_state(answer.stream) is None and not is_recorded_by_vcrpy():  # a cassette hides the connection
                warn_of_unknown_state(type(answer).__module__.partition(".")[0])
        return self._monitor

    def is_reusable(self) -> bool:
        """Return whether the connection can be reused: it is still open, and no unexpected bytes have arrived."""
        # The response of a mock has no monitor.
        return self.is_clean and (self._monitor is None or self._monitor.is_silent())

    async def aclose(self) -> None:
        """Close the connection, even if it is still being opened."""
        await self.transport.aclose()
        await self._tracker.aclose()


# A client of the user.


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


def find_proxy(client: Any) -> str | None:
    """Return the proxy to which a user's client sends, without user and password; `None` for none, or if it cannot be found."""
    pool = getattr(_find_transport(client, client.base_url), "_pool", None)  # a user's own transport has none
    url = getattr(pool, "_proxy_url", None)
    return None if url is None else hide_user(bytes(url).decode().rstrip("/"))


def _find_transport(client: Any, url: Any) -> Any:
    find = getattr(client, "_transport_for_url", None)  # httpx has no public name for it
    return find and find(url)


async def close_client(client: Any) -> None:
    with suppress(RuntimeError):  # connections of an event loop that has ended can no longer be closed
        await client.aclose()


class ClientSender(InFlight):
    """Sends requests over a user's `httpx.AsyncClient` or `httpx2.AsyncClient`, in one event loop."""

    def __init__(self, client: Any, family: str, max_in_flight: int | None, max_answer: int) -> None:
        super().__init__(max_in_flight)
        self._client = client
        self._root = client.base_url
        self._library = import_module(family)
        self._max_answer = max_answer

    def send(self, request: Request, progress: Progress) -> Coroutine[Any, Any, Response]:
        return self.run(partial(self._send, request, progress), progress)

    async def _send(self, request: Request, progress: Progress) -> Response:
        if self._client.is_closed:
            raise build_closed_error(self._client)
        handshakes = HandshakeTracker()
        url = self._root.copy_with(raw_path=self._root.raw_path.rstrip(b"/") + require_origin_form(request.target).encode())
        # `build_request` adds the client's configuration, but accepts no body that can be read twice, as digest authentication
        # requires. The request sent here has such a body.
        draft = self._client.build_request(request.method, url, headers=merge_headers(request, {}), timeout=None)
        body = make_body_class(self._library)(request.body, progress)
        extensions = {**draft.extensions, "trace": handshakes.trace} if url.scheme == "https" else draft.extensions
        message = self._library.Request(draft.method, draft.url, headers=draft.headers, stream=body, extensions=extensions)
        before = progress.sent
        mark_handed_over(progress, request, proof=False)  # the user's own transport may send without reading the body
        try:
            answer = await self._client.send(message, stream=True, follow_redirects=False)
        except unsent_errors(self._library):
            if progress.sent is None or self._sends_once(url):
                progress.sent = before
            await handshakes.aclose()
            raise
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

    def _sends_once(self, url: Any) -> bool:
        """Return whether nothing of the user sends a request again: no authentication, and no transport but those of httpx."""
        kinds = (self._library.AsyncHTTPTransport, self._library.MockTransport)
        return self._client.auth is None and type(_find_transport(self._client, url)) in kinds

    def drop_idle(self) -> None:
        """Do nothing: httpx has no function that closes the idle connections of a client."""

    async def aclose(self) -> None:
        await super().aclose()
        await close_client(self._client)
