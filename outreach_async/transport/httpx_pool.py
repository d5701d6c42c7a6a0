"""Send over a pool of single-connection transports of httpx or httpx2, without the overhead of a client."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache, lru_cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal

import anyio

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport.connection_pool import ConnectionPool
from outreach_async.transport.leftovers import ConnectionMonitor
from outreach_async.transport.lifecycle import LoopLocal
from outreach_async.transport.response_reader import BodyReader, decode_headers, require_final_status
from outreach_async.transport.sending import mark_handed_over, merge_headers, require_origin_form
from outreach_async.transport.tls import TrustSettings
from outreach_async.transport.urls import INVALID_HOST_MESSAGE, BaseUrl, choose_proxy, require_module, url_secrets
from outreach_async.transport.wire import Progress, Request, Response

Family = Literal["httpx", "httpx2"]

FAMILIES: Final[dict[str, Family]] = {"httpx": "httpx", "httpx2": "httpx2"}

_MAX_LEFTOVER_PIECES: Final = 16_384  # more pieces than one read of 64 KiB can hold


class HttpxSender:
    """Base class of the two ways of sending.

    Args:
        family: The library.
        max_in_flight: Most exchanges at once; `None` for no limit.
        max_answer: Most bytes of a decoded response body.

    Attributes:
        base_url: The base URL without user and password.
        secrets: Secrets of the base URL and of the proxy or client, which must not be shown.
    """

    def __init__(self, family: Family, most: int | None, limit: int) -> None:
        self.family: Family = family
        self.max_in_flight = most
        self.max_answer = limit
        self.base_url = ""
        self.secrets: tuple[str, ...] = ()

    @property
    def library(self) -> ModuleType:
        """The library, imported on first use."""
        return import_module(self.family)


class _Body:
    """A request body that records when its bytes are requested. Authentication may request them twice."""

    def __init__(self, content: bytes, progress: Progress) -> None:
        self._content = content
        self._progress = progress

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._progress.sent = True
        return _BodyChunks(self._content)


class _BodyChunks(AsyncIterator[bytes]):
    """Yields one piece or none. Not a generator, because trio warns of generators that a broken connection leaves unfinished."""

    def __init__(self, content: bytes) -> None:
        self._left = [content] if content else []

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


class HandshakeTracker:
    """Remembers sockets until their TLS handshake is done: the libraries leak a socket if cancelled during the handshake."""

    def __init__(self) -> None:
        self._sockets: list[Any] = []

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        """Handle an event of the library's `trace` extension."""
        if event.endswith("connect_tcp.complete"):
            self._sockets.append(info["return_value"])
        elif event.endswith("start_tls.complete"):
            self._sockets.clear()

    async def aclose(self) -> None:
        """Close the sockets that are still remembered."""
        for stream in self._sockets:
            with anyio.CancelScope(shield=True):
                await stream.aclose()


@cache
def make_body_class(library: ModuleType) -> Any:
    """Return the class of request bodies for a library, which accepts only subclasses of its own base class."""
    return type("Body", (_Body, library.AsyncByteStream), {})


async def read_response(answer: Any, limit: int, link: ConnectionMonitor | None) -> tuple[Response, bool]:
    """Read a response of the library to its end and close it.

    Args:
        answer: The library's response.
        limit: Most bytes of the decoded body.
        link: The connection; `None` without one.

    Returns:
        The response, and whether its connection can be used again as far as can be seen.

    Raises:
        TransportError: The status is invalid, the body is too large or not in its stated encoding, or the response may belong to
            another request.
    """
    status = require_final_status(answer.status_code)
    headers = decode_headers(answer.headers.raw)
    decoded = answer.is_stream_consumed  # a mock's response, or one read by an event hook, is already in memory
    intake = BodyReader(headers, limit, decoded=decoded)
    # Not `aiter_raw`, which returns the connection to the pool before it can be checked.
    pieces = answer.aiter_bytes() if decoded else aiter(answer.stream)
    kept = True
    try:
        async for piece in pieces:
            intake.feed(piece)
        if link is not None and not decoded:
            kept = link.check_leftovers(answer.stream, closing="close" in headers.get("connection", "").lower())
    except TransportError:
        await answer.aclose()
        await _exhaust(pieces)
        raise
    await answer.aclose()
    return Response(status, headers, intake.finish()), kept


async def _exhaust(pieces: AsyncIterator[bytes]) -> None:
    """Run the library's nested generators to their end on the closed connection: trio warns of each unfinished one."""
    with suppress(Exception):
        for _ in range(_MAX_LEFTOVER_PIECES):
            await anext(pieces)


_PROXY_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_URL_CACHE_SIZE: Final = 256


class PoolSender(HttpxSender):
    """Sends to a base URL over a pool of lanes.

    Args:
        base: The base URL.
        family: The library.
        most: Most lanes.
        limit: Most bytes of a decoded response body.
        trust: How to verify the service and an HTTPS proxy.
        proxy: A proxy URL; `None` for the environment's, if it is trusted.
        trust_env: Whether to use the environment's proxies.

    Raises:
        InvalidRequest: The proxy URL is invalid, or SOCKS support is not installed.
    """

    def __init__(
        self,
        base: BaseUrl,
        family: Family,
        most: int,
        limit: int,
        *,
        trust: TrustSettings,
        proxy: str | None,
        trust_env: bool,
    ) -> None:
        super().__init__(family, most, limit)
        self.base_url = str(base)
        self._base = base
        self._trust = trust
        self._proxy = choose_proxy(base, proxy, _PROXY_SCHEMES, trust_env=trust_env)
        self.secrets = (*base.secrets, *url_secrets(self._proxy))
        if self._proxy and self._proxy.startswith("socks"):
            require_module("socksio", f"{family}[socks]")
        self._pool = LoopLocal(partial(self._open_pool, most))
        self._cached_url = lru_cache(_URL_CACHE_SIZE)(
            self._join_url
        )  # parsing is slow, and all contact creations share one target

    async def exchange(self, request: Request, progress: Progress) -> Response:
        """Send on a lane and read the response."""
        return await self._pool.get().run(partial(self._exchange_on, request, progress), progress)

    async def _exchange_on(self, request: Request, progress: Progress, lane: _HttpxConnection) -> Response:
        message = self.library.Request(
            request.method,
            self._cached_url(request.target),
            headers=merge_headers(request, self._default_headers),
            stream=self._body_class(request.body, progress),
            extensions=lane.extensions,
        )
        mark_handed_over(progress, request, proof=True)
        answer = await lane.transport.handle_async_request(message)
        progress.sent = True  # a response proves it, also for a request without a body
        response, lane.is_clean = await read_response(
            answer, self.max_answer, lane.mark_open(answer.extensions.get("network_stream"))
        )
        return response

    def _open_pool(self, most: int) -> ConnectionPool[_HttpxConnection]:
        library, context = self.library, self._ssl_context()
        try:
            self._root = library.URL(str(self._base))
            self._default_headers = {"host": self._root.netloc.decode()}
        except (library.InvalidURL, UnicodeError):  # some hosts that IDNA cannot encode fail only with the latter
            raise InvalidRequest(INVALID_HOST_MESSAGE) from None
        if self._base.authorization:
            self._default_headers["authorization"] = self._base.authorization
        self._body_class = make_body_class(library)
        build = partial(
            library.AsyncHTTPTransport,
            verify=context,
            limits=library.Limits(
                max_connections=1, max_keepalive_connections=1, keepalive_expiry=None
            ),  # `ConnectionPool` expires it
            proxy=self._proxy and library.Proxy(self._proxy, ssl_context=context if self._proxy.startswith("https:") else None),
        )
        return ConnectionPool(most, lambda: _HttpxConnection(build()))

    def _ssl_context(self) -> ssl.SSLContext:
        if not any(url.startswith("https:") for url in (self.base_url, self._proxy or "")):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used, so it loads no certificates
        return self._trust.get_context(self.family)

    def _join_url(self, target: str) -> Any:
        return self._root.copy_with(raw_path=f"{self._base.path}{require_origin_form(target)}".encode())

    async def aclose(self) -> None:
        """Cancel every exchange and close every lane."""
        if (lanes := self._pool.release()) is not None:
            await lanes.aclose()


class _HttpxConnection:
    """One connection of the library.

    Attributes:
        extensions: The extensions of the next request.
        is_clean: Whether no bytes were found after the last response.
    """

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        # If it is cancelled during the TLS handshake, the library leaks the socket. Remember it until there is a response.
        self.extensions: dict[str, Any] = {"trace": self._trace}
        self.is_clean = True
        self._sockets: list[Any] = []
        self._monitor: ConnectionMonitor | None = None

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith("connect_tcp.complete"):
            self._sockets.append(info["return_value"])

    def mark_open(self, network: Any) -> ConnectionMonitor | None:
        """Return the connection, which is now open. Stop tracing, because it takes time and no more sockets are opened."""
        self.extensions = {}
        if network is not None and (self._monitor is None or self._monitor.network is not network):
            self._monitor = ConnectionMonitor(network)
        return self._monitor

    def is_reusable(self) -> bool:
        """Return whether the connection is open and silent: a readable idle connection has ended, or has unexpected bytes."""
        return self.is_clean and (self._monitor is None or self._monitor.is_silent())  # without a link, a mock made the response

    async def aclose(self) -> None:
        """Close the connection, also while it is being opened."""
        await self.transport.aclose()
        for stream in self._sockets:
            await stream.aclose()
