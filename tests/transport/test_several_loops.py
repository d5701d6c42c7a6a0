"""One transport in several event loops, one after the other, in turn, or in threads: each has its own connections."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from support.listener import Listener, serve
from support.transports import MAKERS, OWN, POST, SOCKETS

from outreach_async import AiohttpTransport, HttpxTransport, Progress, SocketTransport, Transport

ROUNDS: Final = 5
PATIENCE: Final = 10


@contextmanager
def two_loops() -> Iterator[list[asyncio.AbstractEventLoop]]:
    loops = [asyncio.new_event_loop() for _ in range(2)]
    yield loops
    for loop in loops:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def make(name: str, url: str) -> Transport:
    return MAKERS[name](url)


@pytest.mark.parametrize("name", OWN)
def test_two_loops_in_turn_use_a_connection_each_and_both_are_closed(name: str) -> None:
    with Listener(serve()) as listener, two_loops() as (first, second):
        transport = first.run_until_complete(make(name, listener.url))
        for _ in range(ROUNDS):
            for loop in (first, second):
                loop.run_until_complete(transport.send(POST, Progress()))
        assert (len(listener.requests), len(listener.peers)) == (2 * ROUNDS, 2)
        first.run_until_complete(transport.aclose())
        for _ in range(5):
            second.run_until_complete(asyncio.sleep(0))  # each loop closes its own connections as soon as it runs
        listener.wait_idle()


class OtherLoop:
    """A thread with an event loop that sends requests, and then lives until it is released."""

    def __init__(self, transport: Transport, backend: str) -> None:
        self._transport = transport
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=anyio.run, args=(self._send,), kwargs={"backend": backend})
        self._thread.start()

    async def _send(self) -> None:
        self._token = anyio.lowlevel.current_token()
        self._release = anyio.Event()
        for _ in range(ROUNDS):
            await self._transport.send(POST, Progress())
        self._is_done.set()
        await self._release.wait()

    def wait(self) -> None:
        assert self._is_done.wait(PATIENCE)

    def end(self) -> None:
        anyio.from_thread.run_sync(self._release.set, token=self._token)
        self._thread.join(PATIENCE)


@pytest.mark.parametrize("name", ["httpx", *SOCKETS])
def test_closing_closes_the_connections_of_loops_in_other_threads(name: str) -> None:
    with Listener(serve()) as listener:
        transport = anyio.run(make, name, listener.url)
        first = OtherLoop(transport, "trio")
        first.wait()
        others = [first, *(OtherLoop(transport, backend) for backend in ("asyncio", "asyncio", "trio"))]
        for other in others:
            other.wait()
        assert (len(listener.requests), len(listener.peers), listener.connections) == (4 * ROUNDS, 4, 4)
        anyio.run(transport.aclose)
        listener.wait_idle()
        for other in others:
            other.end()


# Values of each loop.


@pytest.mark.parametrize("kind", [HttpxTransport, AiohttpTransport, SocketTransport])
async def test_a_transport_without_connections_has_none_to_drop(kind: Any) -> None:
    kind("http://127.0.0.1:9").drop_idle()
