"""Send requests over aiohttp, on asyncio only. aiohttp is not imported before the first request."""

from __future__ import annotations

import os
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from outreach_async._files.optional import require_library
from outreach_async.errors import InvalidRequest
from outreach_async.transport import _urls as urls
from outreach_async.transport._lifecycle import LoopLocal
from outreach_async.transport._response_reader import MAX_ANSWER
from outreach_async.transport._secret import drop_frames
from outreach_async.transport._sending import build_closed_error, mark_unsent
from outreach_async.transport._tls import TrustSettings
from outreach_async.transport._wire import Progress, Request, Response

_DEFAULT_CONNECTIONS: Final = 64
_PROXY_SCHEMES: Final = ("http", "https")


class AiohttpSession(Protocol):
    """Protocol that stands for `aiohttp.ClientSession` in type annotations."""

    # If annotations used aiohttp's own class, mypy would check aiohttp in every program that uses `outreach_async`. With an empty
    # mypy cache, checking httpx and aiohttp takes longer than checking everything else.

    @property
    def connector(self) -> Any:
        """The connector that opens connections."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Header fields sent with every request."""

    async def close(self) -> None:
        """Close all connections."""


AiohttpMiddleware: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
"""Type of an aiohttp client middleware. It stands for `aiohttp.ClientMiddlewareType`."""


class AiohttpTransport:
    """Sends requests over aiohttp.

    A transport made from a base URL opens a session when the first request is sent, in each event loop, also in other threads.
    `max_in_flight` limits each session. A user and password in the URL are sent as basic authorization. The variables
    `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE` and `SSL_CERT_DIR` have the same effect as with httpx;
    aiohttp itself supports only some of them. They are read when the transport is made. By default, the transport trusts
    certifi's certificates.

    A transport made from a session uses the session's connector, headers, proxies and traces unchanged. The session must have a
    `base_url`. The transport takes ownership of the session and closes it. The session's timeouts are disabled, redirects are not
    followed, and cookies set by a response are removed from the session's cookie jar.

    A transport that was used before a fork raises an error in the child process. Closing it in the child does not affect the
    connections of the parent. A transport that was made from a URL but not used before the fork works in both processes.

    Args:
        service: The service's base URL, or an `aiohttp.ClientSession`.
        max_in_flight: Maximum number of concurrent exchanges. For a URL, the default is 64, and the number is also the maximum
            number of connections. For a session, only the limit of its connector applies by default.
        ssl_context: SSL context for connections to the service and to an HTTPS proxy. It replaces the certificates of the
            environment and of certifi. It may contain a client certificate. Only for a URL.
        proxy: A proxy URL that overrides the environment's proxy: `http` or `https`, with user and password if required. Only for
            a URL.
        trust_env: Whether to use the environment's proxies and certificates. Only for a URL.
        max_answer: Maximum size of a decoded response body, in bytes.
        middlewares: aiohttp client middlewares to run around every request. The middlewares of a session do not run; to run
            them, pass them here too. The transport always runs a middleware of its own, which stops aiohttp from silently sending
            a failed GET again.

    Attributes:
        max_in_flight: The maximum number of concurrent exchanges; `None` for a session if no `max_in_flight` was passed.
        secrets: Passwords and authorization values in the base URL, the proxy URL and the session's header fields.
            `OutreachClient` masks them in errors.

    Raises:
        InvalidRequest: An argument is invalid, or aiohttp is not installed.

    Example:
        ```python
        transport = AiohttpTransport("https://api.example/v1", max_in_flight=16)
        print(transport)  # -> <AiohttpTransport to https://api.example/v1>
        ```
    """

    @drop_frames
    def __init__(
        self,
        service: str | AiohttpSession,
        /,
        *,
        max_in_flight: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
        trust_env: bool = True,
        max_answer: int = MAX_ANSWER,
        middlewares: Sequence[AiohttpMiddleware] = (),
    ) -> None:
        require_library("aiohttp")
        self.max_in_flight = None if max_in_flight is None else urls.require_positive("max_in_flight", max_in_flight)
        self._max_answer = urls.require_positive("max_answer", max_answer)
        self._middlewares = middlewares
        self._base: urls.BaseUrl | None = None
        self._visible_base: urls.BaseUrl | None
        self._session: AiohttpSession | None = None
        self._proxy: str | None = None
        self._event_loop: object = None
        self._trust = TrustSettings.from_environment(ssl_context, os.environ, trust_env=trust_env)
        if isinstance(service, str):
            self._base = self._visible_base = urls.parse_base_url(service)
            self._proxy = urls.choose_proxy(self._base, proxy, _PROXY_SCHEMES, trust_env=trust_env)
            self.max_in_flight = self.max_in_flight or _DEFAULT_CONNECTIONS
            self.secrets = (*self._base.secrets, *urls.url_secrets(self._proxy))
        else:
            urls.reject_options("session", ssl_context=ssl_context, proxy=proxy, trust_env=None if trust_env else False)
            if urls.find_library(service, "ClientSession") != "aiohttp":
                expected = "a base URL or an aiohttp.ClientSession"
                raise InvalidRequest(f"transport: expected {expected}, got {type(service).__name__}; pass one of them")
            self._session = service
            self._visible_base = None
            with suppress(InvalidRequest):  # aiohttp has no public name for a session's base URL
                self._visible_base = urls.parse_base_url(str(getattr(service, "_base_url", None)))
            self.secrets = (*(self._visible_base.secrets if self._visible_base else ()), *urls.header_secrets(service.headers))
            self._event_loop = _running_loop()
        self._sender = LoopLocal(self._open_sender, _running_loop)
        self._closed = False

    def __repr__(self) -> str:
        """Show the base URL, without user and password."""
        return f"<AiohttpTransport to {self._visible_base or 'a session'}{', closed' if self._closed else ''}>"

    @property
    def base_url(self) -> str | None:
        """The base URL of all requests, without user and password. Hooks receive this URL.

        It is `None` for a session without a valid base URL.
        """
        return None if self._visible_base is None else str(self._visible_base)

    def _open_sender(self) -> Any:
        loop = _running_loop()
        if loop is None:
            raise InvalidRequest("transport: aiohttp supports only asyncio, got another event loop; on trio, use HttpxTransport")
        if self._session is not None and self._event_loop not in {None, loop}:
            text = "transport: the session belongs to another event loop; make a new session in this event loop"
            raise InvalidRequest(text)
        self._event_loop = loop if self._session is not None else None
        return self._build_sender()

    def _build_sender(self) -> Any:
        # A separate method, because mypy follows the imports in a method that assigns attributes. Here, this would make mypy
        # check all of aiohttp.
        from outreach_async.transport import _aiohttp_session as aiohttp_session

        destination = aiohttp_session.resolve_destination(self._base)
        context = self._trust.get_context("aiohttp") if "https:" in f"{self._base} {self._proxy}" else None
        session: Any = self._session or aiohttp_session.open_session(context, self._proxy)
        return aiohttp_session.SessionSender(session, destination, self.max_in_flight, self._max_answer, self._middlewares)

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Send the request and read the complete response, whatever its status.

        Raises:
            TransportError: No complete response arrived.
            InvalidRequest: The request is invalid, or the transport is closed.
        """
        if self._closed:
            raise build_closed_error(self)
        mark_unsent(progress)
        response: Response = await self._sender.get().send(request, progress)
        return response

    def drop_idle(self) -> None:
        """Use no idle connection of the running event loop again. The client calls this when it has received a copy.

        Example:
            ```python
            transport = AiohttpTransport("https://api.example")
            transport.drop_idle()
            await transport.aclose()
            ```
        """
        if (sender := self._sender.peek()) is not None:
            sender.drop_idle()

    async def aclose(self) -> None:
        """Close every connection and cancel every exchange in flight. You may call this more than once."""
        self._closed = True
        if (sender := self._sender.release()) is not None:
            await sender.aclose()
        elif self._session is not None and not self._sender.is_inherited:
            await self._session.close()


def _running_loop() -> object:
    """Return the running event loop of asyncio; `None` if there is none. Ten times as fast as anyio's `current_token`."""
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
