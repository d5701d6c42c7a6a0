"""The adapter for aiohttp: the fast one, on asyncio only. aiohttp is not imported before the first request."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final
from urllib.request import getproxies

from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.transport.answers import MAX_ANSWER, Intake
from outreach_async.transport.arguments import at_least_one, require
from outreach_async.transport.evidence import closed, fields, hold, lost, release, said
from outreach_async.transport.origin import BaseUrl, check_proxy, environment_proxy, parse_base_url
from outreach_async.transport.turns import Bound, Turns
from outreach_async.transport.wire import Progress, Request, Response

if TYPE_CHECKING:
    import aiohttp

_CONNECTIONS: Final = 64
_AUTOMATIC: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
_UNSENT: Final = ("ClientConnectorError", "ClientHttpProxyError", "ConnectionTimeoutError")


class AiohttpTransport:
    """Carries requests over aiohttp.

    From a base URL it makes a session in the running event loop, and another one should the event loop change. A user and
    password in the URL become basic authorization. The environment's proxies are used as httpx uses them.

    Over a session its connector, headers, proxies and traces are used as they are; its own `base_url` is required. The transport
    takes the session over: it closes it. The session's timeouts are switched off, no redirect is followed, and cookies that an
    answer sets are dropped from its jar.

    Args:
        service: The service's base URL, or an `aiohttp.ClientSession`.
        max_in_flight: Exchanges at once. From a URL the connections, 64 if not given. Over a session whatever its connector
            allows if not given.
        ssl_context: How to verify the service, and the client's own certificate. From a URL only.
        proxy: A proxy's URL instead of the environment's, `http` or `https`. From a URL only.
        trust_env: Whether the environment's proxies count. From a URL only.
        max_answer: Bytes of an answer's decoded body at most.
        middlewares: aiohttp's client middlewares to run around every request. Those of a session are not run: one of ours must
            stand within them, to keep aiohttp from silently sending a failed GET again, and a session shows no one its own.

    Attributes:
        max_in_flight: The same; `None` over a session for which none was given.

    Raises:
        InvalidRequest: An argument can never be right, or aiohttp is not installed.
    """

    def __init__(
        self,
        service: str | aiohttp.ClientSession,
        /,
        *,
        max_in_flight: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
        trust_env: bool = True,
        max_answer: int = MAX_ANSWER,
        middlewares: Sequence[aiohttp.ClientMiddlewareType] = (),
    ) -> None:
        require("aiohttp", "outreach_async[aiohttp]")
        self.max_in_flight = None if max_in_flight is None else at_least_one("max_in_flight", max_in_flight)
        self._limit = at_least_one("max_answer", max_answer)
        self._middlewares = middlewares
        if isinstance(service, str):
            self.max_in_flight = self.max_in_flight or _CONNECTIONS
            self._source: _Own | _Given = _Own(parse_base_url(service), ssl_context, proxy, trust_env=trust_env)
        elif ssl_context is not None or proxy is not None or not trust_env:
            raise InvalidRequest("ssl_context, proxy and trust_env are the session's to say; give them to its constructor")
        else:
            self._source = _Given(service)
        self._bound = Bound(self._start)
        self._closed = False

    def __repr__(self) -> str:
        """Show where requests go, without user and password."""
        return f"<AiohttpTransport to {self._source.where}{', closed' if self._closed else ''}>"

    def _start(self) -> tuple[Any, Turns]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise InvalidRequest("aiohttp runs on asyncio only; on trio take HttpxTransport") from None
        return self._source.session(), Turns(self.max_in_flight)

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Send the request and read the whole answer, whatever its status.

        Raises:
            TransportError: No whole answer arrived.
            InvalidRequest: The request cannot be sent, or the transport is closed.
        """
        if self._closed:
            raise closed(self)
        hold(progress)
        session, turns = self._bound.get()
        aiohttp = _library()
        try:
            return await turns.take(partial(self._exchange, session, request, progress), progress)
        except _Once as once:
            failure, cause = self._explain(once.error, progress)
        except (aiohttp.ClientError, OSError, RuntimeError, ValueError) as error:
            if isinstance(error, OutreachError):
                raise
            failure, cause = self._explain(error, progress)
        # Outside of the handlers, where an error that shows a secret would stay as the context.
        raise failure from cause
