"""The adapter for httpx and httpx2: from a base URL on lanes of its own, or over a configured client.

Neither library is imported before the first request, and the one not asked for never is.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Final

import anyio

from outreach_async.errors import InvalidRequest, OutreachError, forget_frames
from outreach_async.secret import opaque
from outreach_async.transport.answers import MAX_ANSWER
from outreach_async.transport.arguments import at_least_one, refuse_beside, require
from outreach_async.transport.clients import HttpxClient
from outreach_async.transport.evidence import closed, hold, lost, said
from outreach_async.transport.httpx_lanes import LaneRoute
from outreach_async.transport.httpx_messages import FAMILIES, Family
from outreach_async.transport.origin import parse_base_url
from outreach_async.transport.tls import Trust
from outreach_async.transport.wire import Progress, Request, Response

if TYPE_CHECKING:
    from outreach_async.transport.httpx_client import ClientRoute

_LANES: Final = 64
_UNSENT: Final = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol")
_BROKEN: Final = (
    AttributeError,  # anyio's own on uvloop, over a connection that was reset as soon as it was made
    OSError,  # ssl.SSLError among them
    RuntimeError,  # a closed event loop, a closed client
    anyio.BrokenResourceError,
    anyio.BusyResourceError,
    anyio.ClosedResourceError,
    anyio.EndOfStream,
)


class HttpxTransport:
    """Carries requests over httpx or its fork httpx2.

    From a base URL it keeps single-connection transports of the library, a lane for each exchange at once: at 64 in flight they
    take about 0.3 times the CPU time of an `httpx.AsyncClient` with its pool, 0.6 times of httpx2's. A user and password become
    basic authorization. The environment's proxies and certificates (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`,
    `SSL_CERT_FILE`, `SSL_CERT_DIR`) are used as httpx uses them, and read when the transport is made. Transports that trust the
    same certificates share one SSL context. In another event loop it opens new connections.

    Over a client its pool, authentication, proxies, mounts and mock transports are used as they are; its own `base_url` is
    required. The transport takes the client over: it closes it, and replaces the client's cookie jar by one that keeps the
    client's own cookies and none from answers. The client's timeouts are switched off and no redirect is followed. It works in
    the first event loop that uses it. It costs the client's own work and its pool's: at 64 in flight some 3 times the CPU time of
    lanes with httpx, 1.6 times with httpx2. And it can cost the pool: httpx 0.28, and more rarely httpx2 over TLS, can lose
    connections for good when requests are cancelled together, until none is left and every request waits for its timeout. From
    a URL that cannot happen.

    After a fork a transport that the parent has used refuses to work in the child, and closing it there closes nothing of the
    parent's; one that was only made works in both.

    Args:
        service: The service's base URL, or an `httpx.AsyncClient` or `httpx2.AsyncClient`.
        family: The library to use from a URL, `httpx` if not given; for a client its class tells.
        max_in_flight: Exchanges at once. From a URL the lanes, 64 if not given. Over a client whatever its pool allows if not
            given: httpx shows no one the limits of a pool.
        ssl_context: How to verify the service and a proxy behind TLS, and the client's own certificate, instead of what the
            environment and the library trust. From a URL only.
        proxy: A proxy's URL instead of the environment's, `http`, `https` or `socks5`, with user and password if it asks for
            them. From a URL only.
        trust_env: Whether the environment's proxies and certificates count. From a URL only.
        max_answer: Bytes of an answer's decoded body at most.

    Attributes:
        max_in_flight: The same; `None` over a client for which none was given.
        secrets: Passwords and authorizations of the URL, the proxy and the client's header fields; the client of the service
            masks them in errors. What a client's `auth` adds is not known.

    Raises:
        InvalidRequest: An argument can never be right, or what it needs is not installed.

    Example:
        ```python
        transport = HttpxTransport("https://api.example/v1", max_in_flight=16, proxy="http://proxy.example:8080")
        print(transport)  # -> <HttpxTransport to https://api.example/v1 by httpx>
        ```
    """

    @opaque
    def __init__(
        self,
        service: str | HttpxClient,
        /,
        *,
        family: Family | None = None,
        max_in_flight: int | None = None,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
        trust_env: bool = True,
        max_answer: int = MAX_ANSWER,
    ) -> None:
        most = None if max_in_flight is None else at_least_one("max_in_flight", max_in_flight)
        limit = at_least_one("max_answer", max_answer)
        if isinstance(service, str):
            self._route: LaneRoute | ClientRoute = LaneRoute(
                parse_base_url(service),
                _installed(family or "httpx"),
                most or _LANES,
                limit,
                trust=Trust.of(ssl_context, os.environ, trust_env=trust_env),
                proxy=proxy,
                trust_env=trust_env,
            )
        else:
            refuse_beside("client", ssl_context=ssl_context, proxy=proxy, trust_env=None if trust_env else False)
            from outreach_async.transport.httpx_client import ClientRoute  # it imports what only a client needs

            self._route = ClientRoute(service, family, most, limit)
        self.max_in_flight = self._route.most
        self.secrets = self._route.secrets
        self._closed = False

    def __repr__(self) -> str:
        """Show where requests go, without user and password."""
        return f"<HttpxTransport to {self._route.where} by {self._route.family}{', closed' if self._closed else ''}>"

    @property
    def base_url(self) -> str:
        """What stands before every target, without user and password: hooks are told."""
        return self._route.where

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Send the request and read the whole answer, whatever its status.

        Raises:
            TransportError: No whole answer arrived.
            InvalidRequest: The request cannot be sent, or the transport is closed.
        """
        if self._closed:
            raise closed(self)
        hold(progress)
        try:
            return await self._route.exchange(request, progress)
        except (*_BROKEN, self._route.library.HTTPError, self._route.library.InvalidURL) as error:
            failure, cause = self._explain(error, progress)
        # Outside of the handler, where an error that shows a secret would stay as the context.
        if cause is not None:
            forget_frames(cause)  # whose locals are the library's, header fields among them
        raise failure from cause

    def _explain(self, error: Exception, progress: Progress) -> tuple[OutreachError, Exception | None]:
        library = self._route.library
        if isinstance(error, library.LocalProtocolError | library.InvalidURL) and progress.sent is not True:
            # Its text shows what is wrong, which may be a field of the client's own, with a secret in it.
            return InvalidRequest(
                "the request is no valid HTTP: its method, its target, or a field of the client's own; mend that"
            ), None
        if isinstance(error, tuple(getattr(library, name) for name in _UNSENT)) and progress.sent is None:
            progress.sent = False
        what = "no connection to" if progress.sent is False else "no answer from"
        return lost(f"{what} {self._route.where}: {said(error)}", progress), error

    async def aclose(self) -> None:
        """Close every connection and end every exchange under way. Closing twice is allowed."""
        self._closed = True
        await self._route.aclose()


def _installed(family: str) -> Family:
    if family not in FAMILIES:
        raise InvalidRequest(f"family: expected one of {', '.join(FAMILIES)}; pass one of them")
    if family != "httpx":
        require(family, f"outreach_async[{family}]")
    return FAMILIES[family]
