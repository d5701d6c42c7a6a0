"""All transports that use sockets, and the event loops that each supports."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Final

import aiohttp
import anyio
import httpx
import httpx2
import pytest

from outreach_async.errors import TransportError
from outreach_async.transport._aiohttp import AiohttpTransport
from outreach_async.transport._httptools import HttptoolsTransport
from outreach_async.transport._httpx import HttpxTransport
from outreach_async.transport._wire import Progress, Request, Transport

Make = Callable[..., Transport]

POST: Final = Request(
    "POST", "/contacts", {"content-type": "application/json"}, b'{"owner_key": "key_secret", "email": "a@b.co"}'
)
GET: Final = Request("GET", "/campaigns?workspace=space_1&page=1")
NOWHERE: Final = "http://service.example"


def _httpx_client(url: str, *, tls: ssl.SSLContext | None = None, proxy: str | None = None, **options: Any) -> Transport:
    return HttpxTransport(httpx.AsyncClient(base_url=url, verify=tls or False, proxy=proxy, trust_env=False), **options)


def _httpx2_client(url: str, *, tls: ssl.SSLContext | None = None, proxy: str | None = None, **options: Any) -> Transport:
    return HttpxTransport(httpx2.AsyncClient(base_url=url, verify=tls or False, proxy=proxy, trust_env=False), **options)


def _aiohttp_session(url: str, *, tls: ssl.SSLContext | None = None, proxy: str | None = None, **options: Any) -> Transport:
    connector = aiohttp.TCPConnector(ssl=tls or True)
    return AiohttpTransport(aiohttp.ClientSession(f"{url}/", connector=connector, proxy=proxy), **options)


MAKERS: Final[dict[str, Make]] = {
    "httpx": lambda url, tls=None, **options: HttpxTransport(url, ssl_context=tls, **options),
    "httpx2": lambda url, tls=None, **options: HttpxTransport(url, family="httpx2", ssl_context=tls, **options),
    "aiohttp": lambda url, tls=None, **options: AiohttpTransport(url, ssl_context=tls, **options),
    "httptools": lambda url, tls=None, **options: HttptoolsTransport(url, ssl_context=tls, **options),
    "httpx_client": _httpx_client,
    "httpx2_client": _httpx2_client,
    "aiohttp_session": _aiohttp_session,
}
"""Functions that create a transport to a URL. Call them in a running event loop."""

PROXYING: Final = ("httpx", "httpx2", "aiohttp")
"""Transports created from a URL that support proxies."""

OWN: Final = (*PROXYING, "httptools")
"""Transports created from a URL. They can prove that nothing was sent."""

ALL: Final = (*OWN, "httpx_client", "httpx2_client", "aiohttp_session")

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


async def fail(transport: Transport, request: Request) -> tuple[TransportError, Progress]:
    """Send a request that must fail, close the transport, and return the error and the progress."""
    progress = Progress()
    with anyio.fail_after(60), pytest.raises(TransportError) as caught:
        await transport.send(request, progress)
    await transport.aclose()
    return caught.value, progress
