"""The limit of concurrent exchanges: one in a cancelled scope never starts, and waiting ones start in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import pytest

from outreach_async.transport.lifecycle import InFlight, LoopLocal
from outreach_async.transport.wire import Progress, Response

pytestmark = pytest.mark.anyio


def held(started: list[int], number: int, gate: anyio.Event) -> Callable[[], Awaitable[Response]]:
    """Return an exchange that records its start and waits for a gate."""

    async def exchange() -> Response:
        started.append(number)
        await gate.wait()
        return Response(200)

    return exchange


@pytest.mark.parametrize("limit", [1, None])
async def test_an_exchange_in_a_cancelled_scope_never_starts(limit: int | None) -> None:
    started: list[int] = []
    in_flight, gate = InFlight(limit), anyio.Event()
    gate.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await in_flight.run(held(started, 0, gate), Progress())
    assert scope.cancelled_caught
    assert started == []
    await in_flight.run(held(started, 1, gate), Progress())  # the cancelled one has released its slot
    assert started == [1]


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


async def test_a_value_is_made_again_only_when_the_token_changes() -> None:
    token, made = "first", iter(range(3))
    local = LoopLocal(lambda: next(made), lambda: token)
    assert [local.get(), local.get()] == [0, 0]
    token = "second"
    assert local.get() == 1
    token = "third"
    assert local.release() is None
