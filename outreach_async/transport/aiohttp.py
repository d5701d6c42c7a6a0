"""The adapter for aiohttp: the fast one, on asyncio only. aiohttp is not imported before the first request."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from outreach_async.errors import InvalidRequest
from outreach_async.secret import opaque
from outreach_async.transport.answers import MAX_ANSWER
from outreach_async.transport.arguments import at_least_one, library_of, refuse_beside, require
from outreach_async.transport.bound import Bound
from outreach_async.transport.clients import AiohttpMiddleware, AiohttpSession
from outreach_async.transport.evidence import closed, hold
from outreach_async.transport.origin import BaseUrl, authorizations, choose_proxy, credentials, parse_base_url
from outreach_async.transport.tls import Trust
from outreach_async.transport.wire import Progress, Request, Response, Transport

_CONNECTIONS: Final = 64
_PROXY_SCHEMES: Final = ("http", "https")


class AiohttpTransport:
    """Carries requests over aiohttp.

    From a base URL it makes a session in the running event loop, and another one should the event loop change. A user and
    password in the URL become basic authorization. The environment's proxies and certificates (`HTTP_PROXY`, `HTTPS_PROXY`,
    `ALL_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`, `SSL_CERT_DIR`) are used as httpx uses them, with certifi's certificates if none are
    named: aiohttp by itself would heed some of the variables and not others. They are read when the transport is made.

    Over a session its connector, headers, proxies and traces are used as they are; its own `base_url` is required. The transport
    takes the session over: it closes it. The session's timeouts are switched off, no redirect is followed, and cookies that an
    answer sets are dropped from its jar.

    After a fork a transport that the parent has used refuses to work in the child, and closing it there closes nothing of the
    parent's; one that was only made from a URL works in both.

    Args:
        service: The service's base URL, or an `aiohttp.ClientSession`.
        max_in_flight: Exchanges at once. From a URL the connections, 64 if not given. Over a session whatever its connector
            allows if not given.
        ssl_context: How to verify the service and a proxy behind TLS, and the client's own certificate, instead of what the
            environment and certifi say. From a URL only.
        proxy: A proxy's URL instead of the environment's, `http` or `https`, with user and password if it asks for them. From a
            URL only.
        trust_env: Whether the environment's proxies and certificates count. From a URL only.
        max_answer: Bytes of an answer's decoded body at most.
        middlewares: aiohttp's client middlewares to run around every request. Those of a session are not run: one of ours must
            stand around them, to keep aiohttp from silently sending a failed GET again, and a session shows no one its own.

    Attributes:
        max_in_flight: The same; `None` over a session for which none was given.
        secrets: Passwords and authorizations of the URL, the session's own too, of the proxy and of the session's header fields;
            the client of the service masks them in errors.

    Raises:
        InvalidRequest: An argument can never be right, or aiohttp is not installed.

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
            with suppress(RuntimeError):  # made outside of any event loop
                self._home = _running_loop()
        self._wire = Bound(self._start)
        self._closed = False

    def __repr__(self) -> str:
        """Show where requests go, without user and password."""
        return f"<AiohttpTransport to {self._place or 'a session'}{', closed' if self._closed else ''}>"

    @property
    def base_url(self) -> str | None:
        """What stands before every target, without user and password, for hooks; `None` over a session that does not tell."""
        return None if self._place is None else str(self._place)

    def _start(self) -> Transport:
        try:
            loop = _running_loop()
        except RuntimeError:
            raise InvalidRequest("transport: aiohttp runs on asyncio only; on trio take HttpxTransport") from None
        if self._session is not None and self._home not in {None, loop}:
            raise InvalidRequest("transport: the session belongs to another event loop; make a new one in this")
        self._home = loop if self._session is not None else None
        return self._wired()

    def _wired(self) -> Transport:
        # In a method that sets nothing: for one that does, mypy reads what it imports, here all of aiohttp.
        from outreach_async.transport import aiohttp_session

        place = aiohttp_session.place(self._base)
        given: Any = self._session
        session = given or aiohttp_session.open_session(self._context(), self._proxy)
        return aiohttp_session.Wire(session, place, self.max_in_flight, self._limit, self._middlewares)

    def _context(self) -> ssl.SSLContext | None:
        """Return the context if any connection needs one."""
        urls = f"{self._base} {self._proxy}"
        return self._trust.context("aiohttp") if "https:" in urls else None

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Send the request and read the whole answer, whatever its status.

        Raises:
            TransportError: No whole answer arrived.
            InvalidRequest: The request cannot be sent, or the transport is closed.
        """
        if self._closed:
            raise closed(self)
        hold(progress)
        return await self._wire.get().send(request, progress)

    async def aclose(self) -> None:
        """Close every connection and end every exchange under way. Closing twice is allowed."""
        self._closed = True
        if (wire := self._wire.release()) is not None:
            await wire.aclose()
        elif self._session is not None and not self._wire.inherited:
            await self._session.close()


def _place_of(session: AiohttpSession) -> BaseUrl | None:
    """Return a session's own base URL, for which aiohttp has no public name."""
    with suppress(InvalidRequest):
        return parse_base_url(str(getattr(session, "_base_url", None)))
    return None


def _running_loop() -> object:
    import asyncio

    return asyncio.get_running_loop()
