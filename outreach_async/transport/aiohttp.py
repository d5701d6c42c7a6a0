"""The transport for aiohttp: the fastest, on asyncio only. aiohttp is not imported before the first request."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from outreach_async.errors import InvalidRequest
from outreach_async.secret import opaque
from outreach_async.transport.clients import AiohttpMiddleware, AiohttpSession
from outreach_async.transport.lifecycle import Bound
from outreach_async.transport.response_reader import MAX_ANSWER
from outreach_async.transport.sending import closed, hold
from outreach_async.transport.tls import Trust
from outreach_async.transport.urls import (
    BaseUrl,
    at_least_one,
    authorizations,
    choose_proxy,
    credentials,
    library_of,
    parse_base_url,
    refuse_beside,
    require,
)
from outreach_async.transport.wire import Progress, Request, Response, Transport

_CONNECTIONS: Final = 64
_PROXY_SCHEMES: Final = ("http", "https")


class AiohttpTransport:
    """Sends requests over aiohttp.

    Made from a base URL, it opens a session in the running event loop, and a new one if the event loop changes. A user and
    password in the URL are sent as basic authorization. The environment's proxies and certificates (`HTTP_PROXY`, `HTTPS_PROXY`,
    `ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`, `SSL_CERT_DIR`) are used as httpx uses them, with certifi's certificates by default:
    aiohttp itself supports only some of these variables. They are read when the transport is made.

    Made from a session, it uses the session's connector, headers, proxies and traces unchanged. The session must have a
    `base_url`. The transport takes ownership of the session and closes it. The session's timeouts are disabled, redirects are not
    followed, and cookies set by a response are removed from its jar.

    After a fork, a transport that the parent has used raises an error in the child, and closing it there does not affect the
    parent's connections. A transport that was made from a URL but not used works in both.

    Args:
        service: The service's base URL, or an `aiohttp.ClientSession`.
        max_in_flight: Exchanges at once. For a URL the number of connections, by default 64. For a session by default whatever
            its connector allows.
        ssl_context: How to verify the service and an HTTPS proxy, and the client certificate, instead of the defaults of the
            environment and certifi. URL only.
        proxy: A proxy URL that overrides the environment's: `http` or `https`, with user and password if required. URL only.
        trust_env: Whether to use the environment's proxies and certificates. URL only.
        max_answer: Limit of a decoded response body, in bytes.
        middlewares: aiohttp client middlewares to run around every request. Those of a session do not run: the transport's own
            must wrap them, to stop aiohttp from silently sending a failed GET again, and a session does not expose its
            middlewares.

    Attributes:
        max_in_flight: The same; `None` for a session without an explicit value.
        secrets: Passwords and authorization values of the URL (also the session's), the proxy and the session's header fields,
            which the `OutreachClient` masks in errors.

    Raises:
        InvalidRequest: An argument is invalid, or aiohttp is not installed.

    Example:
        ```python
        transport = AiohttpTransport("https://api.example/v1", max_in_flight=16)
        print(transport)  # -> <AiohttpTransport to https://api.example/v1>
        ```
    """

    @opaque
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
        require("aiohttp", "outreach_async[aiohttp]")
        self.max_in_flight = None if max_in_flight is None else at_least_one("max_in_flight", max_in_flight)
        self._limit = at_least_one("max_answer", max_answer)
        self._middlewares = middlewares
        self._base: BaseUrl | None = None
        self._place: BaseUrl | None
        self._session: AiohttpSession | None = None
        self._proxy: str | None = None
        self._home: object = None
        self._trust = Trust.of(ssl_context, os.environ, trust_env=trust_env)
        if isinstance(service, str):
            self._base = self._place = parse_base_url(service)
            self._proxy = choose_proxy(self._base, proxy, _PROXY_SCHEMES, trust_env=trust_env)
            self.max_in_flight = self.max_in_flight or _CONNECTIONS
            self.secrets = (*self._base.secrets, *credentials(self._proxy))
        else:
            refuse_beside("session", ssl_context=ssl_context, proxy=proxy, trust_env=None if trust_env else False)
            if library_of(service, "ClientSession") != "aiohttp":
                raise InvalidRequest(
                    f"transport: expected a base URL or an aiohttp.ClientSession, got {type(service).__name__}; pass one of them"
                )
            self._session = service
            self._place = _place_of(service)
            self.secrets = (*(self._place.secrets if self._place else ()), *authorizations(service.headers))
            with suppress(RuntimeError):  # the session was made outside of an event loop
                self._home = _running_loop()
        self._wire = Bound(self._start)
        self._closed = False

    def __repr__(self) -> str:
        """Show the base URL, without user and password."""
        return f"<AiohttpTransport to {self._place or 'a session'}{', closed' if self._closed else ''}>"

    @property
    def base_url(self) -> str | None:
        """The URL prepended to every target, without user and password, for hooks; `None` for a session without a visible one."""
        return None if self._place is None else str(self._place)

    def _start(self) -> Transport:
        try:
            loop = _running_loop()
        except RuntimeError:
            raise InvalidRequest("transport: aiohttp runs on asyncio only; on trio use HttpxTransport") from None
        if self._session is not None and self._home not in {None, loop}:
            raise InvalidRequest("transport: the session belongs to another event loop; make a new one in this event loop")
        self._home = loop if self._session is not None else None
        return self._wired()

    def _wired(self) -> Transport:
        # Separate, because mypy follows the imports of a method that assigns attributes, here into all of aiohttp.
        from outreach_async.transport import aiohttp_session

        place = aiohttp_session.place(self._base)
        given: Any = self._session
        session = given or aiohttp_session.open_session(self._context(), self._proxy)
        return aiohttp_session.Wire(session, place, self.max_in_flight, self._limit, self._middlewares)

    def _context(self) -> ssl.SSLContext | None:
        """Return the SSL context if a connection needs one."""
        urls = f"{self._base} {self._proxy}"
        return self._trust.context("aiohttp") if "https:" in urls else None

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Send the request and read the complete response, whatever its status.

        Raises:
            TransportError: No complete response arrived.
            InvalidRequest: The request is invalid, or the transport is closed.
        """
        if self._closed:
            raise closed(self)
        hold(progress)
        return await self._wire.get().send(request, progress)

    async def aclose(self) -> None:
        """Close every connection and cancel every exchange in flight. You may call this more than once."""
        self._closed = True
        if (wire := self._wire.release()) is not None:
            await wire.aclose()
        elif self._session is not None and not self._wire.inherited:
            await self._session.close()


def _place_of(session: AiohttpSession) -> BaseUrl | None:
    """Return the base URL of a session. aiohttp has no public name for it."""
    with suppress(InvalidRequest):
        return parse_base_url(str(getattr(session, "_base_url", None)))
    return None


def _running_loop() -> object:
    import asyncio

    return asyncio.get_running_loop()
