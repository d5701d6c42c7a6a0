"""Transports to a fake service: in memory, and through httpx over a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from outreach_async import HttpxTransport, Transport
from outreach_async.fake import FakeTransport
from outreach_async.fake.faults import Service
from outreach_async.fake.server import serve

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


LEVELS: tuple[Connect, ...] = (in_memory, over_a_socket)
