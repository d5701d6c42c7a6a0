"""Send requests over a pool of single-connection httpx or httpx2 transports, without the overhead of a client."""

from __future__ import annotations

import ssl
import warnings
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache, lru_cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal

import anyio

from outreach_async._files.optional import require_module
from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport._leftovers import ConnectionMonitor, http11_state
from outreach_async.transport._lifecycle import ConnectionPool, LoopLocal
from outreach_async.transport._response_reader import BodyReader, decode_headers, require_final_status
from outreach_async.transport._sending import mark_handed_over, merge_headers, require_origin_form
from outreach_async.transport._tls import TrustSettings
from outreach_async.transport._urls import INVALID_HOST_MESSAGE, BaseUrl, choose_proxy, url_secrets
from outreach_async.transport._wire import Progress, Request, Response

Family = Literal["httpx", "httpx2"]

FAMILIES: Final[dict[str, Family]] = {"httpx": "httpx", "httpx2": "httpx2"}


class HttpxSender:
    """Base class of the senders for httpx and httpx2."""

    # `PoolSender` opens its own connections. `ClientSender` uses a client that the user has configured.

    def __init__(self, family: Family, max_in_flight: int | None, max_answer: int) -> None:
        self.family: Family = family
        self.max_in_flight = max_in_flight
        self.max_answer = max_answer
        self.base_url = ""
        self.secrets: tuple[str, ...] = ()

    def drop_idle(self) -> None:
        """Do nothing: httpx has no function that closes the idle connections of a client."""

    @property
    def library(self) -> ModuleType:
        """The module `httpx` or `httpx2`, imported on first use."""
        return import_module(self.family)


class _Body:
    """A request body that sets `Progress.sent` when it is read. With authentication, the body may be read twice."""

    def __init__(self, content: bytes, progress: Progress) -> None:
        self._content = content
        self._progress = progress

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._progress.sent = True
        return _BodyChunks(self._content)


class _BodyChunks(AsyncIterator[bytes]):
    """Iterator over a request body. It yields all bytes at once, or nothing if the body is empty."""

    # This class is used instead of an async generator, because trio warns about generators that are left unfinished by a broken
    # connection.

    def __init__(self, content: bytes) -> None:
        self._left = [content] if content else []

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
        """Close the sockets whose TLS handshake is not complete."""
        for stream in self._sockets:
            with anyio.CancelScope(shield=True):
                await stream.aclose()


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


_PROXY_SCHEMES: Final = ("http", "https", "socks5", "socks5h")


class PoolSender(HttpxSender):
    """Sends requests to a base URL over a pool of connections."""

    def __init__(
        self,
        base: BaseUrl,
        family: Family,
        max_in_flight: int,
        max_answer: int,
        *,
        trust: TrustSettings,
        proxy: str | None,
        trust_env: bool,
    ) -> None:
        super().__init__(family, max_in_flight, max_answer)
        self.base_url = str(base)
        self._base = base
        self._trust = trust
        self._proxy = choose_proxy(base, proxy, _PROXY_SCHEMES, trust_env=trust_env)
        self.secrets = (*base.secrets, *url_secrets(self._proxy))
        if self._proxy and self._proxy.startswith("socks"):
            require_module("socksio", f"{family}[socks]")
        self._pool = LoopLocal(partial(self._open_pool, max_in_flight))
        self._cached_url = lru_cache(256)(self._join_url)  # parsing is slow, and all create requests share one target

    async def exchange(self, request: Request, progress: Progress) -> Response:
        return await self._pool.get().run(partial(self._exchange_on, request, progress), progress)

    async def _exchange_on(self, request: Request, progress: Progress, connection: _HttpxConnection) -> Response:
        message = self.library.Request(
            request.method,
            self._cached_url(request.target),
            headers=merge_headers(request, self._default_headers),
            stream=self._body_class(request.body, progress),
            extensions=connection.extensions,
        )
        mark_handed_over(progress, request, proof=True)
        answer = await connection.transport.handle_async_request(message)
        progress.sent = True  # a response proves that the request was sent, with or without a body
        monitor = connection.mark_open(answer)
        response, connection.is_clean = await read_response(answer, self.max_answer, monitor)
        return response

    def _open_pool(self, limit: int) -> ConnectionPool:
        library = self.library
        if any(url.startswith("https:") for url in (self.base_url, self._proxy or "")):
            context = self._trust.get_context(self.family)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used, so it loads no certificates
        try:
            self._root = library.URL(str(self._base))
            self._default_headers = {"host": self._root.netloc.decode()}
        except (library.InvalidURL, UnicodeError):  # `UnicodeError` for some hosts that IDNA cannot encode
            raise InvalidRequest(INVALID_HOST_MESSAGE) from None
        if self._base.authorization:
            self._default_headers["authorization"] = self._base.authorization
        self._body_class = make_body_class(library)
        build = partial(
            library.AsyncHTTPTransport,
            verify=context,
            # No expiry here: `ConnectionPool` closes a connection that was idle for too long.
            limits=library.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None),
            proxy=self._proxy and library.Proxy(self._proxy, ssl_context=context if self._proxy.startswith("https:") else None),
        )
        return ConnectionPool(limit, lambda: _HttpxConnection(build()))

    def _join_url(self, target: str) -> Any:
        return self._root.copy_with(raw_path=f"{self._base.path}{require_origin_form(target)}".encode())

    def drop_idle(self) -> None:
        """Use no idle connection again."""
        if (pool := self._pool.peek()) is not None:
            pool.drop_idle()

    async def aclose(self) -> None:
        """Cancel every exchange and close every connection."""
        if (pool := self._pool.release()) is not None:
            await pool.aclose()


@cache
def warn_of_unknown_state(family: str) -> None:
    """Warn, once for each library, that its connections cannot be checked, and are therefore not reused."""
    text = f"the installed {family} or httpcore is too new to check its connections, so each request opens a connection"
    warnings.warn(f"{text}; use HttptoolsTransport or AiohttpTransport, or an earlier version", RuntimeWarning, stacklevel=1)


class _HttpxConnection:
    """One connection of httpx or httpx2."""

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
            if http11_state(answer.stream) is None:
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
