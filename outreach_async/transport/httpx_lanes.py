"""Lanes that are single-connection transports of the library, called directly: a client's own work is not wanted here."""

from __future__ import annotations

import ssl
from functools import lru_cache, partial
from typing import Any, Final

from outreach_async.errors import InvalidRequest
from outreach_async.transport.arguments import require
from outreach_async.transport.bound import Bound
from outreach_async.transport.evidence import fields, origin_form, release
from outreach_async.transport.httpx_messages import Family, Route, body_class, read
from outreach_async.transport.lanes import Lanes
from outreach_async.transport.leftovers import Link
from outreach_async.transport.origin import BAD_HOST, BaseUrl, choose_proxy, credentials
from outreach_async.transport.tls import Trust
from outreach_async.transport.wire import Progress, Request, Response

_PROXY_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_URLS: Final = 256


class LaneRoute(Route):
    """Sends to a base URL on lanes.

    Args:
        base: The base URL.
        family: The library.
        most: Lanes.
        limit: Bytes of an answer's decoded body at most.
        trust: How to verify the service, and a proxy behind TLS.
        proxy: A proxy's URL; `None` for the environment's, if it is trusted.
        trust_env: Whether the environment's proxies count.

    Raises:
        InvalidRequest: The proxy can never be right, or SOCKS is not installed.
    """

    def __init__(
        self,
        base: BaseUrl,
        family: Family,
        most: int,
        limit: int,
        *,
        trust: Trust,
        proxy: str | None,
        trust_env: bool,
    ) -> None:
        super().__init__(family, most, limit)
        self.where = str(base)
        self._base = base
        self._trust = trust
        self._proxy = choose_proxy(base, proxy, _PROXY_SCHEMES, trust_env=trust_env)
        self.secrets = (*base.secrets, *credentials(self._proxy))
        if self._proxy and self._proxy.startswith("socks"):
            require("socksio", f"{family}[socks]")
        self._lanes = Bound(partial(self._start, most))
        self._url = lru_cache(_URLS)(self._join)  # parsing is dear, and all creates share one target

    async def exchange(self, request: Request, progress: Progress) -> Response:
        """Send on a lane, and read the answer."""
        return await self._lanes.get().run(partial(self._ride, request, progress), progress)

    async def _ride(self, request: Request, progress: Progress, lane: _Lane) -> Response:
        message = self.library.Request(
            request.method,
            self._url(request.target),
            headers=fields(request, self._own),
            stream=self._body(request.body, progress),
            extensions=lane.extensions,
        )
        release(progress, request, proof=True)
        answer = await lane.transport.handle_async_request(message)
        progress.sent = True
        response, lane.kept = await read(answer, self.limit, lane.settle(answer.extensions.get("network_stream")))
        return response

    def _start(self, most: int) -> Lanes[_Lane]:
        library, context = self.library, self._tls()
        try:
            self._root = library.URL(str(self._base))
            self._own = {"host": self._root.netloc.decode()}
        except (library.InvalidURL, UnicodeError):  # some hosts that IDNA cannot write are only found out by the second
            raise InvalidRequest(BAD_HOST) from None
        if self._base.authorization:
            self._own["authorization"] = self._base.authorization
        self._body = body_class(library)
        build = partial(
            library.AsyncHTTPTransport,
            verify=context,
            limits=library.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=None),
            proxy=self._proxy and library.Proxy(self._proxy, ssl_context=context if self._proxy.startswith("https:") else None),
        )
        return Lanes(most, lambda: _Lane(build()))

    def _tls(self) -> ssl.SSLContext:
        if not any(url.startswith("https:") for url in (self.where, self._proxy or "")):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used, so no certificates are read
        return self._trust.context(self.family)

    def _join(self, target: str) -> Any:
        return self._root.copy_with(raw_path=f"{self._base.path}{origin_form(target)}".encode())

    async def aclose(self) -> None:
        """End what is under way and close every lane."""
        if (lanes := self._lanes.release()) is not None:
            await lanes.aclose()


class _Lane:
    """One connection of the library.

    Attributes:
        extensions: Goes with the next request.
        kept: Nothing was seen behind the last response.
    """

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        # Cancelled within the TLS handshake, the library forgets its socket; until there is an answer we remember it.
        self.extensions: dict[str, Any] = {"trace": self._trace}
        self.kept = True
        self._opened: list[Any] = []
        self._link: Link | None = None

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith("connect_tcp.complete"):
            self._opened.append(info["return_value"])

    def settle(self, network: Any) -> Link | None:
        """Return the connection, which works. Tracing is over: it takes time, and nothing is opened any more."""
        self.extensions = {}
        if network is not None and (self._link is None or self._link.network is not network):
            self._link = Link(network)
        return self._link

    def reusable(self) -> bool:
        """Tell whether the connection is still open: an idle one that can be read has ended, or has bytes that none asked for."""
        return self.kept and (self._link is None or self._link.silent())  # without a connection, a mock answered

    async def aclose(self) -> None:
        """Close the connection, however far it has come."""
        await self.transport.aclose()
        for stream in self._opened:
            await stream.aclose()
