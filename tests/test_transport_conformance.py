"""One suite over every transport and everything that can stand behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import httpx
import httpx2
import pytest
import respx
from support_conformance import CHECKS, Check, Echo, Open
from support_transports import LOOPS

from outreach_async.fake.asgi import asgi_app
from outreach_async.fake.server import serve
from outreach_async.fake.transport import FakeTransport
from outreach_async.transport.aiohttp import AiohttpTransport
from outreach_async.transport.httpx import HttpxTransport
from outreach_async.transport.wire import Request, Transport

NOWHERE: Final = "http://service.example"


@asynccontextmanager
async def fake(echo: Echo) -> AsyncIterator[Transport]:
    yield FakeTransport(echo)


@asynccontextmanager
async def lanes_on_a_socket(echo: Echo) -> AsyncIterator[Transport]:
    async with serve(echo) as url:
        transport = HttpxTransport(url)
        yield transport
        await transport.aclose()


@asynccontextmanager
async def httpx2_lanes_on_a_socket(echo: Echo) -> AsyncIterator[Transport]:
    async with serve(echo) as url:
        transport = HttpxTransport(url, family="httpx2")
        yield transport
        await transport.aclose()


@asynccontextmanager
async def client_on_a_socket(echo: Echo) -> AsyncIterator[Transport]:
    async with serve(echo) as url:
        transport = HttpxTransport(httpx.AsyncClient(base_url=url))
        yield transport
        await transport.aclose()


@asynccontextmanager
async def httpx2_client_on_a_socket(echo: Echo) -> AsyncIterator[Transport]:
    async with serve(echo) as url:
        transport = HttpxTransport(httpx2.AsyncClient(base_url=url))
        yield transport
        await transport.aclose()


@asynccontextmanager
async def client_on_asgi(echo: Echo) -> AsyncIterator[Transport]:
    yield HttpxTransport(httpx.AsyncClient(base_url=NOWHERE, transport=httpx.ASGITransport(asgi_app(echo))))


@asynccontextmanager
async def httpx2_client_on_asgi(echo: Echo) -> AsyncIterator[Transport]:
    yield HttpxTransport(httpx2.AsyncClient(base_url=NOWHERE, transport=httpx2.ASGITransport(asgi_app(echo))))


@asynccontextmanager
async def client_on_a_mock_transport(echo: Echo) -> AsyncIterator[Transport]:
    mock = httpx.MockTransport(lambda request: mocked(echo, request))
    yield HttpxTransport(httpx.AsyncClient(base_url=NOWHERE, transport=mock))


@asynccontextmanager
async def lanes_under_respx(echo: Echo) -> AsyncIterator[Transport]:
    with respx.mock(base_url=NOWHERE) as router:
        router.route().mock(side_effect=lambda request: mocked(echo, request))
        yield HttpxTransport(NOWHERE)


@asynccontextmanager
async def client_under_respx(echo: Echo) -> AsyncIterator[Transport]:
    with respx.mock(base_url=NOWHERE) as router:
        router.route().mock(side_effect=lambda request: mocked(echo, request))
        yield HttpxTransport(httpx.AsyncClient(base_url=NOWHERE))


@asynccontextmanager
async def aiohttp_on_a_socket(echo: Echo) -> AsyncIterator[Transport]:
    async with serve(echo) as url:
        transport = AiohttpTransport(url)
        yield transport
        await transport.aclose()


@asynccontextmanager
async def aiohttp_session_on_a_socket(echo: Echo) -> AsyncIterator[Transport]:
    async with serve(echo) as url:
        transport = AiohttpTransport(aiohttp.ClientSession(f"{url}/"))
        yield transport
        await transport.aclose()


def mocked(echo: Echo, request: httpx.Request) -> httpx.Response:
    """Answer a request that httpx would have sent."""
    fields = {name.lower(): value for name, value in request.headers.items()}
    answer = echo.handle(Request(request.method, request.url.raw_path.decode(), fields, request.content))
    return httpx.Response(answer.status, headers=dict(answer.headers), content=answer.body)


ROUTES: Final[dict[str, Open]] = {
    route.__name__: route
    for route in (
        fake,
        lanes_on_a_socket,
        httpx2_lanes_on_a_socket,
        client_on_a_socket,
        httpx2_client_on_a_socket,
        client_on_asgi,
        httpx2_client_on_asgi,
        client_on_a_mock_transport,
        lanes_under_respx,
        client_under_respx,
        aiohttp_on_a_socket,
        aiohttp_session_on_a_socket,
    )
}
PAIRS: Final[list[Any]] = [
    pytest.param(route, backend, id=f"{name}-{loop}")
    for name, route in ROUTES.items()
    for loop, backend in LOOPS.items()
    if loop == "asyncio" or not name.startswith("aiohttp")
]


@pytest.mark.parametrize(("route", "anyio_backend"), PAIRS, indirect=["anyio_backend"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_every_transport_conforms(route: Open, check: Check) -> None:
    await check(route)
