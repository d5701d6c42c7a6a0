"""All transports that use sockets, and the event loops that each supports."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, TypeVar

import aiohttp
import anyio
import httpx
import httpx2
import pytest
from support.listener import Behaviour, Listener

from outreach_async import AiohttpTransport, HttpxTransport, Progress, Request, SocketTransport, Transport
from outreach_async.errors import TransportError
from outreach_async.transport._socket_reader import HeadParser, parse_by_h11

Make = Callable[..., Transport]
_Made = TypeVar("_Made", bound=Transport)

POST: Final = Request(
    "POST", "/contacts", {"content-type": "application/json"}, b'{"owner_key": "key_secret", "email": "a@b.co"}'
)
GET: Final = Request("GET", "/campaigns?workspace=space_1&page=1")
NOWHERE: Final = "http://service.example"


CLIENTS: Final = ("httpx_client", "httpx2_client", "aiohttp_session")
"""Transports over a client or session of the user."""


def own_client(name: str, url: str, **options: Any) -> tuple[Any, Make]:
    """Return a client or session of the user, and the class of its transport."""
    if name == "aiohttp_session":
        return aiohttp.ClientSession(f"{url}/", **options), AiohttpTransport
    library: Any = httpx if name == "httpx_client" else httpx2
    options.setdefault("verify", url.startswith("https:"))  # loading certificates is slow
    return library.AsyncClient(base_url=url, trust_env=False, **options), HttpxTransport


def _over_client(
    name: str, url: str, *, tls: ssl.SSLContext | None = None, proxy: str | None = None, **options: Any
) -> Transport:
    trust = {"connector": aiohttp.TCPConnector(ssl=tls or True)} if name == "aiohttp_session" else {"verify": tls or False}
    client, adapt = own_client(name, url, proxy=proxy, **trust)
    return adapt(client, **options)


class H11Transport(SocketTransport):
    """`SocketTransport` as without the extra `httptools`."""

    def _choose_parser(self) -> HeadParser:
        return parse_by_h11


MAKERS: Final[dict[str, Make]] = {
    "httpx": lambda url, tls=None, **options: HttpxTransport(url, ssl_context=tls, **options),
    "httpx2": lambda url, tls=None, **options: HttpxTransport(url, family="httpx2", ssl_context=tls, **options),
    "aiohttp": lambda url, tls=None, **options: AiohttpTransport(url, ssl_context=tls, **options),
    "sockets": lambda url, tls=None, **options: SocketTransport(url, ssl_context=tls, **options),
    "sockets_h11": lambda url, tls=None, **options: H11Transport(url, ssl_context=tls, **options),
    **{name: partial(_over_client, name) for name in CLIENTS},
}
"""Functions that create a transport to a URL. Call them in a running event loop."""

PROXYING: Final = ("httpx", "httpx2", "aiohttp")
"""Transports created from a URL that support proxies."""

SOCKETS: Final = ("sockets", "sockets_h11")
"""`SocketTransport` with each parser."""

OWN: Final = (*PROXYING, *SOCKETS)
"""Transports created from a URL. They can prove that nothing was sent."""

ALL: Final = (*OWN, *CLIENTS)

Loops = Mapping[str, tuple[str, dict[str, Any]]]

LOOPS: Final[Loops] = {"asyncio": ("asyncio", {"debug": False}), "trio": ("trio", {})}

EVERY_LOOP: Final[Loops] = {**LOOPS, "uvloop": ("asyncio", {"use_uvloop": True})}
"""All event loops, including uvloop where it is installed."""


def runs_on(name: str, loop: str) -> bool:
    """Return whether a transport supports an event loop and the event loop is installed."""
    return (loop != "trio" or not name.startswith("aiohttp")) and (loop != "uvloop" or find_spec("uvloop") is not None)


def pairs(*names: str, loops: Loops = LOOPS) -> list[tuple[str, str]]:
    """Return each transport with each event loop that it supports."""
    return [(name, loop) for name in names for loop in loops if runs_on(name, loop)]


def over(*names: str, loops: Loops = LOOPS) -> pytest.MarkDecorator:
    """Run an async test over transports, each on every event loop that it supports. The test takes the argument `make`."""
    found = [pytest.param(MAKERS[name], loops[loop], id=f"{name}-{loop}") for name, loop in pairs(*names, loops=loops)]
    return pytest.mark.parametrize(("make", "anyio_backend"), found, indirect=["anyio_backend"])


@asynccontextmanager
async def connected(
    make: Callable[..., _Made], *behaviours: Behaviour, server: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[tuple[_Made, Listener]]:
    """Yield a transport to a new listener, and the listener."""
    with Listener(*behaviours, tls=server) as listener:
        transport = make(listener.url, **options)
        yield transport, listener
        await transport.aclose()


async def fail(transport: Transport, request: Request) -> tuple[TransportError, Progress]:
    """Send a request that must fail, close the transport, and return the error and the progress."""
    progress = Progress()
    with anyio.fail_after(60), pytest.raises(TransportError) as caught:
        await transport.send(request, progress)
    await transport.aclose()
    return caught.value, progress
