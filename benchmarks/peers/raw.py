"""The lower bound: an asyncio.Protocol that writes prepared requests and only looks for the end of each response."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

from benchmarks.measuring import Once
from benchmarks.workload import BODY


class _Connection(asyncio.Protocol):
    """One connection, with one exchange at a time."""

    def __init__(self) -> None:
        self._left = -1
        self._answer: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class is not a subclass
        if hasattr(transport, "max_size"):
            # asyncio allocates this many bytes for every read. With its default of 256 KiB, the cost of a request is either 15 or
            # 35 us, depending on the state of malloc.
            transport.max_size = 65_536

    def data_received(self, data: bytes) -> None:
        if self._left < 0:
            end = data.index(b"\r\n\r\n") + 4
            at = data.index(b"content-length: ") + 16
            self._left = int(data[at : data.index(b"\r\n", at)]) - (len(data) - end)
        else:
            self._left -= len(data)
        if not self._left and self._answer is not None:
            self._left = -1
            self._answer.set_result(None)

    async def exchange(self, request: bytes) -> None:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        await self._answer

    def close(self) -> None:
        self._transport.close()


@asynccontextmanager
async def _pool(url: str, request: bytes, concurrency: int, pace: float = 0.0) -> AsyncIterator[Once]:
    host, _, port = url.removeprefix("http://").partition(":")
    loop = asyncio.get_running_loop()
    idle = [(await loop.create_connection(_Connection, host, int(port)))[1] for _ in range(concurrency)]

    async def once() -> None:
        connection = idle.pop()
        await connection.exchange(request)
        idle.append(connection)
        if pace:
            end = time.process_time() + pace
            while time.process_time() < end:
                pass

    yield once
    for connection in idle:
        connection.close()


def post(url: str, concurrency: int, pace: float = 0.0) -> AbstractAsyncContextManager[Once]:
    """Create the same contact repeatedly, with a busy wait of `pace` seconds after each response."""
    head = f"POST /contacts HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    return _pool(url, head.encode() + BODY, concurrency, pace)


def fetch(target: str, url: str, concurrency: int) -> AbstractAsyncContextManager[Once]:
    """Get the same target repeatedly."""
    return _pool(url, f"GET {target} HTTP/1.1\r\nhost: x\r\n\r\n".encode(), concurrency)
