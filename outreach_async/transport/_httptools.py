"""Send requests with httptools. This transport is the fastest, but does not support proxies.

httptools is not imported before the first request.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Final, Protocol

import anyio

from outreach_async._files.optional import require_library
from outreach_async.errors import InvalidRequest, OutreachError, drop_tracebacks
from outreach_async.transport import _urls as urls
from outreach_async.transport._lifecycle import LoopLocal
from outreach_async.transport._response_reader import MAX_ANSWER
from outreach_async.transport._secret import drop_frames
from outreach_async.transport._sending import (
    METHODS_WITH_BODY,
    build_closed_error,
    build_transport_error,
    describe_cause,
    mark_unsent,
    merge_headers,
    require_origin_form,
)
from outreach_async.transport._tls import TrustSettings
from outreach_async.transport._wire import Progress, Request, Response

_DEFAULT_CONNECTIONS: Final = 64
_CONNECTION_ERRORS: Final = (
    OSError,  # includes ssl.SSLError
    UnicodeError,  # raised for a host name that is too long for DNS
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,  # raised if the server closes the connection within the handshake
)


class HttptoolsPool(Protocol):
    """Protocol that stands for `ProtocolPool` and `StreamPool` in type annotations."""

    # If annotations named the classes, type checkers would check asyncio in every program that uses `outreach_async`.

    async def send(self, message: bytes, method: str, progress: Progress) -> Response:
        """Send a request and return the response."""

    def drop_idle(self) -> None:
        """Use no idle connection again."""

    def is_current(self) -> bool:
        """Return whether the running event loop is the event loop of the pool; `False` if this is unknown."""

    async def aclose(self) -> None:
        """Close all connections."""


class HttptoolsTransport:
    """Sends requests over its own connections, and reads responses with httptools, the HTTP parser of uvicorn.

    This transport costs the least CPU time on asyncio, uvloop and trio. It does not support proxies, and accepts only a base URL:
    use `HttpxTransport` for proxies, for your own client, and for mocks such as respx.

    A user and password in the URL are sent as basic authorization. The environment's certificates (`SSL_CERT_FILE`,
    `SSL_CERT_DIR`) are used as httpx uses them, and are read when the transport is made. By default, the transport trusts
    certifi's certificates. If the host has several addresses, the transport tries them as described in RFC 8305. An idle
    connection is reused for up to 5 seconds after its last response. It is closed after at most 10 seconds. Each
    event loop, also in other threads, has its own connections, and `max_in_flight` limits each of them.

    After a fork, a transport that the parent has used raises an error in the child, and closing it there does not affect the
    parent's connections. A transport that was made but not used before the fork works in both processes.

    Args:
        base_url: The service's base URL.
        max_in_flight: Maximum number of connections, and of concurrent exchanges.
        ssl_context: SSL context that verifies the service, and may contain a client certificate. The context replaces the
            certificates of the environment and of certifi.
        proxy: Must be `None`, because this transport does not support proxies.
        trust_env: Whether to use the environment's certificates. If true, and the environment sets a proxy for the URL, the
            constructor raises `InvalidRequest`.
        max_answer: Maximum size of a decoded response body, in bytes.

    Attributes:
        max_in_flight: The maximum number of concurrent exchanges.
        secrets: Password and authorization value of the URL. `OutreachClient` masks them in errors.

    Raises:
        InvalidRequest: An argument is invalid, the arguments or the environment set a proxy, or httptools is not installed.

    Example:
        ```python
        transport = HttptoolsTransport("https://api.example/v1", max_in_flight=16)
        print(transport)  # -> <HttptoolsTransport to https://api.example/v1>
        ```
    """

    @drop_frames
    def __init__(
        self,
        base_url: str,
        /,
        *,
        max_in_flight: int = _DEFAULT_CONNECTIONS,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
        trust_env: bool = True,
        max_answer: int = MAX_ANSWER,
    ) -> None:
        require_library("httptools")
        self.max_in_flight = urls.require_positive("max_in_flight", max_in_flight)
        self._max_answer = urls.require_positive("max_answer", max_answer)
        self._base = urls.parse_base_url(_require_string(base_url))
        self._host = urls.encode_host(self._base.host)
        _reject_proxy(self._base, proxy, trust_env=trust_env)
        self._trust = TrustSettings.from_environment(ssl_context, os.environ, trust_env=trust_env)
        self.secrets = self._base.secrets
        host = f"[{self._host}]" if ":" in self._host else self._host
        self._default_headers = {"host": host if self._base.port is None else f"{host}:{self._base.port}"}
        if self._base.authorization is not None:
            self._default_headers["authorization"] = self._base.authorization
        self._last_head: tuple[str, str, Mapping[str, str], bytes] = ("", "", {}, b"")
        self._pool = LoopLocal(self._open_pool)
        self._last_pool: HttptoolsPool | None = None
        self._closed = False

    def __repr__(self) -> str:
        """Show the base URL, without user and password."""
        return f"<HttptoolsTransport to {self._base}{', closed' if self._closed else ''}>"

    @property
    def base_url(self) -> str:
        """The base URL of all requests, without user and password. Hooks receive this URL."""
        return str(self._base)

    def _open_pool(self) -> HttptoolsPool:
        # A separate module, because it imports httptools and asyncio.
        from outreach_async.transport._httptools_pool import Origin, open_pool

        is_encrypted = self._base.scheme == "https"
        port = self._base.port or urls.DEFAULT_PORTS[self._base.scheme]
        origin = Origin(self._host, port, self._trust.get_context("httptools") if is_encrypted else None)
        return open_pool(origin, self.max_in_flight, self._max_answer)

    def _get_pool(self) -> HttptoolsPool:
        """Return the pool of the running event loop. The last pool is cached, because `LoopLocal.get` is slow on asyncio."""
        pool = self._last_pool
        if pool is None or not pool.is_current() or self._pool.is_inherited:
            pool = self._last_pool = self._pool.get()
        return pool

    def _build_head(self, request: Request) -> bytes:
        """Return the head of a request, without its content-length and the empty line."""
        method, target = request.method, request.target
        fields = merge_headers(request, self._default_headers)
        fields.pop("content-length", None)
        lines = [
            f"{method} {self._base.path}{require_origin_form(target)} HTTP/1.1",
            *(f"{name}: {fields[name]}" for name in fields),
        ]
        return "".join(f"{line}\r\n" for line in lines).encode("ascii")

    def _encode(self, request: Request) -> bytes:
        # All requests of a bulk run have the same head.
        method, target, headers, head = self._last_head
        if request.method != method or request.target != target or request.headers != headers:
            head = self._build_head(request)
            self._last_head = (request.method, request.target, dict(request.headers), head)
        if request.body or request.method in METHODS_WITH_BODY:
            return b"%bcontent-length: %d\r\n\r\n%b" % (head, len(request.body), request.body)
        return head + b"\r\n"

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Send the request and read the complete response, whatever its status.

        Raises:
            TransportError: No complete response arrived.
            InvalidRequest: The request is invalid, or the transport is closed.
        """
        if self._closed:
            raise build_closed_error(self)
        mark_unsent(progress)
        message = self._encode(request)
        try:
            return await self._get_pool().send(message, request.method, progress)
        except OutreachError:
            raise
        except _CONNECTION_ERRORS as error:
            cause = error
        # Raised outside of the handler, to set no `__context__`. The frames of the cause are dropped: they show the request.
        drop_tracebacks(cause)
        what = "no connection to" if progress.sent is False else "no response from"
        raise build_transport_error(f"{what} {self._base}: {describe_cause(cause)}", progress) from cause

    def drop_idle(self) -> None:
        """Use no idle connection of the running event loop again. The client calls this when it has received a copy.

        Example:
            ```python
            transport = HttptoolsTransport("https://api.example")
            transport.drop_idle()
            await transport.aclose()
            ```
        """
        if (pool := self._pool.peek()) is not None:
            pool.drop_idle()

    async def aclose(self) -> None:
        """Close every connection and cancel every exchange in flight. You may call this more than once."""
        self._closed = True
        self._last_pool = None
        if (pool := self._pool.release()) is not None:
            await pool.aclose()


def _require_string(base_url: object) -> str:
    if not isinstance(base_url, str):
        expected = "a base URL such as 'https://api.example'"
        raise InvalidRequest(f"base_url: expected {expected}, got {type(base_url).__name__}; pass a URL")
    return base_url


def _reject_proxy(base: urls.BaseUrl, proxy: str | None, *, trust_env: bool) -> None:
    """Raise an error if a proxy is set. Requests that bypass the proxy may be forbidden, or may fail."""
    remedy = "use HttpxTransport or AiohttpTransport (on the command line: --backend httpx or --backend aiohttp)"
    if proxy is not None:
        raise InvalidRequest(f"proxy: expected None, got a proxy, which httptools does not support; {remedy}")
    from urllib.request import getproxies  # a slow import

    if trust_env and urls.choose_environment_proxy(base, getproxies()):
        text = f"expected no proxy for {base}, got a proxy, which httptools does not support"
        raise InvalidRequest(f"HTTP_PROXY, HTTPS_PROXY or ALL_PROXY: {text}; {remedy}, or name the host in NO_PROXY")
