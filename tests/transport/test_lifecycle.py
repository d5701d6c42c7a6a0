"""Values that belong to one event loop, the limit of concurrent exchanges, and pooled connections.

An exchange in a cancelled scope never starts, and waiting exchanges start in order. The connection that was used last is
reused first. A connection serves one request at a time, and is closed after anything except a complete response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from outreach_async import Progress, Response
from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport._lifecycle import KEEPALIVE_EXPIRY, ConnectionPool, InFlight, LoopLocal, discard_all_after_fork

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


class Spy:
    def __init__(self, number: int) -> None:
        self.number = number
        self.closed = False
        self.open_elsewhere = True

    def is_reusable(self) -> bool:
        return self.open_elsewhere

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.closed = True


class PoolHarness:
    """A pool of spies with a clock that the test advances."""

    def __init__(self, most: int) -> None:
        self.spies: list[Spy] = []
        self.now = 1000.0
        self.pool = ConnectionPool(most, self._build, lambda: self.now)

    def _build(self) -> Spy:
        self.spies.append(Spy(len(self.spies)))
        return self.spies[-1]

    async def send(self, exchange: Callable[[Spy], Awaitable[Response]] | None = None) -> int:
        used = []

        async def noted(connection: Spy) -> Response:
            used.append(connection.number)
            return ANSWER if exchange is None else await exchange(connection)

        assert await self.pool.run_on_connection(noted, Progress()) is ANSWER
        return used[0]

    async def send_together(self, count: int) -> None:
        together = anyio.Event()
        started = []

        async def wait(connection: Spy) -> Response:
            started.append(connection)
            if len(started) == count:
                together.set()
            await together.wait()
            return ANSWER

        async with anyio.create_task_group() as group:
            for _ in range(count):
                group.start_soon(self.send, wait)

    @property
    def closed(self) -> list[int]:
        return [spy.number for spy in self.spies if spy.closed]


async def test_the_most_recently_used_connection_is_used_first() -> None:
    harness = PoolHarness(3)
    await harness.send_together(3)
    last = await harness.send()
    assert [await harness.send() for _ in range(3)] == [last] * 3


async def test_connections_idle_too_long_are_closed_at_the_next_request() -> None:
    harness = PoolHarness(3)
    await harness.send_together(3)
    harness.now += KEEPALIVE_EXPIRY / 2
    last = await harness.send()
    harness.now += KEEPALIVE_EXPIRY / 2 + 0.001
    assert await harness.send() == last
    assert harness.closed == [number for number in range(3) if number != last]
    harness.now += KEEPALIVE_EXPIRY + 0.001
    assert await harness.send() == 3
    assert harness.closed == [0, 1, 2]


async def test_dropped_connections_are_closed_at_the_next_request_or_at_the_end() -> None:
    harness = PoolHarness(3)
    await harness.send_together(2)
    harness.pool.drop_idle()
    assert harness.closed == []
    assert await harness.send() == 2
    assert harness.closed == [0, 1]
    harness.pool.drop_idle()
    await harness.pool.aclose()
    assert harness.closed == [0, 1, 2]


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
