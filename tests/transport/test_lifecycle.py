"""Values that belong to one event loop, the limit of concurrent exchanges, and pooled connections.

An exchange in a cancelled scope never starts, and waiting exchanges start in order.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from support.listener import OK, PATIENCE, Listener, Peer, serve
from support.transports import EVERY_LOOP, POST, SOCKETS, Make, connected, over

from outreach_async import Progress, Response
from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport._lifecycle import KEEPALIVE_EXPIRY, InFlight, LoopLocal, discard_all_after_fork

pytestmark = pytest.mark.anyio

ANSWER = Response(200)


def test_a_forked_child_neither_uses_nor_releases_a_value_of_its_parent() -> None:
    used, unused = LoopLocal(object), LoopLocal(object)

    async def get(bound: LoopLocal[object]) -> object:
        return bound.get()

    async def release(bound: LoopLocal[object]) -> object:
        return bound.release()

    anyio.run(get, used)
    discard_all_after_fork()
    assert used.is_inherited
    assert anyio.run(release, used) is None
    with pytest.raises(InvalidRequest, match="before this process was forked"):
        anyio.run(get, used)
    assert anyio.run(get, unused) is not None


def held(started: list[int], number: int, gate: anyio.Event) -> Callable[[], Awaitable[Response]]:
    async def exchange() -> Response:
        started.append(number)
        await gate.wait()
        return Response(200)

    return exchange


async def test_an_exchange_cancelled_as_its_turn_comes_never_starts() -> None:
    started: list[int] = []
    in_flight, gate, scope = InFlight(1), anyio.Event(), anyio.CancelScope()

    async def wait_in_scope() -> None:
        with scope:
            await in_flight.run(held(started, 1, gate), Progress())

    async def finish_first() -> None:
        await in_flight.run(held(started, 0, gate), Progress())
        scope.cancel()  # the slot was just given to the waiting exchange, which has not resumed yet

    async with anyio.create_task_group() as group:
        group.start_soon(finish_first)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(wait_in_scope)
        await anyio.wait_all_tasks_blocked()
        gate.set()
    assert started == [0]


async def test_waiting_exchanges_start_in_order_and_before_newcomers() -> None:
    started: list[int] = []
    in_flight, gates = InFlight(1), [anyio.Event() for _ in range(4)]

    async def finish_first() -> None:
        await in_flight.run(held(started, 0, gates[0]), Progress())
        group.start_soon(in_flight.run, held(started, 3, gates[3]), Progress())  # arrives while the slot is being handed over

    async with anyio.create_task_group() as group:
        group.start_soon(finish_first)
        await anyio.wait_all_tasks_blocked()
        for number in (1, 2):
            group.start_soon(in_flight.run, held(started, number, gates[number]), Progress())
            await anyio.wait_all_tasks_blocked()
        for gate in gates:
            gate.set()
    assert started == [0, 1, 2, 3]


async def test_closing_waits_until_every_exchange_has_ended() -> None:
    in_flight, ended = InFlight(None), list[int]()

    async def exchange(steps: int) -> Response:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
            ended.append(steps)
        return ANSWER

    async def send(steps: int) -> None:
        with pytest.raises(TransportError, match="closed while the request was in flight"):
            await in_flight.run(partial(exchange, steps), Progress())

    async with anyio.create_task_group() as group:
        group.start_soon(send, 1)
        group.start_soon(send, 9)
        await anyio.wait_all_tasks_blocked()
        await in_flight.aclose()
        assert ended == [1, 9]


# Pools of connections.


class Pool:
    """A transport with a pool of its own, whose clock the test advances."""

    def __init__(self, transport: Any, listener: Listener) -> None:
        self.now = 0.0
        self._transport, self._listener = transport, listener
        transport._senders.get()._clock = lambda: self.now

    async def send(self) -> int:
        """Send a request, and return the number of the connection that carried it."""
        before = [len(peer.received) for peer in self._listener.peers]
        await self._transport.send(POST, Progress())
        sizes = [len(peer.received) for peer in self._listener.peers]
        return next(number for number, size in enumerate(sizes) if [size] != before[number : number + 1])

    async def send_together(self, count: int) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(self._transport.send, POST, Progress())

    async def wait_until_left(self, most: int) -> None:
        await anyio.to_thread.run_sync(self._listener.wait_idle, most)


@asynccontextmanager
async def pooled(make: Make, count: int) -> AsyncIterator[Pool]:
    """Yield a pool with `count` connections that are idle."""
    barrier = threading.Barrier(count)

    def answer_together(peer: Peer) -> None:
        peer.request()
        if len(listener.peers) <= count:
            barrier.wait(PATIENCE)
        peer.send(OK)
        serve()(peer)

    async with connected(make, answer_together, max_in_flight=3) as (transport, listener):
        pool = Pool(transport, listener)
        await pool.send_together(count)
        yield pool


@over("httpx", *SOCKETS, loops=EVERY_LOOP)
async def test_the_most_recently_used_connection_is_used_first(make: Make) -> None:
    async with pooled(make, 3) as pool:
        last = await pool.send()
        assert [await pool.send() for _ in range(3)] == [last] * 3
        await pool.wait_until_left(3)


@over("httpx", *SOCKETS, loops=EVERY_LOOP)
async def test_connections_idle_too_long_are_closed_at_the_next_request(make: Make) -> None:
    async with pooled(make, 3) as pool:
        pool.now += KEEPALIVE_EXPIRY / 2
        last = await pool.send()
        pool.now += KEEPALIVE_EXPIRY / 2 + 0.001
        assert await pool.send() == last
        await pool.wait_until_left(1)
        pool.now += KEEPALIVE_EXPIRY + 0.001
        assert await pool.send() == 3
        await pool.wait_until_left(1)


@over("httpx", *SOCKETS, loops=EVERY_LOOP)
async def test_the_next_request_or_the_end_closes_dropped_connections(make: Make) -> None:
    async with pooled(make, 2) as pool:
        pool._transport.drop_idle()
        assert await pool.send() == 2
        await pool.wait_until_left(1)
        pool._transport.drop_idle()
        await pool._transport.aclose()
        await pool.wait_until_left(0)


class Value:
    def __init__(self) -> None:
        self.closed_in: Any = None

    async def aclose(self) -> None:
        self.closed_in = anyio.lowlevel.current_token().native_token


def test_the_values_of_ended_loops_are_dropped_when_a_value_is_made() -> None:
    local = LoopLocal(Value)

    async def get() -> Value:
        return local.get()

    values = [anyio.run(get, backend=backend) for backend in ("asyncio", "trio", "asyncio")]
    assert len(set(map(id, values))) == 3
    assert list(local._values.values()) == [values[-1]]


def test_releasing_the_values_of_ended_loops_closes_nothing() -> None:
    local = LoopLocal(Value)

    async def get() -> Value:
        return local.get()

    async def release() -> Value | None:
        return local.release()

    for backend in ("asyncio", "trio"):
        value = anyio.run(get, backend=backend)
        assert anyio.run(release) is None
        assert value.closed_in is None
