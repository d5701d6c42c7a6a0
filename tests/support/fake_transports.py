"""Transports to a fake service: in memory, through httpx and an ASGI application, and over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import httpx

from outreach_async.fake._fault_plan import Service
from outreach_async.fake._transport import FakeTransport, asgi_app
from outreach_async.fake.server import serve
from outreach_async.transport._httpx import HttpxTransport
from outreach_async.transport._wire import Transport

Connect = Callable[[Service], AbstractAsyncContextManager[Transport]]


@asynccontextmanager
async def in_memory(service: Service) -> AsyncIterator[Transport]:
    yield FakeTransport(service)


@asynccontextmanager
async def over_a_socket(service: Service) -> AsyncIterator[Transport]:
    async with serve(service) as url:
        transport = HttpxTransport(url)
        try:
            yield transport
        finally:
            await transport.aclose()


@asynccontextmanager
async def mounted(service: Service) -> AsyncIterator[Transport]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(asgi_app(service)), base_url="http://fake") as client:
        yield HttpxTransport(client)


LEVELS: tuple[Connect, ...] = (in_memory, mounted, over_a_socket)
