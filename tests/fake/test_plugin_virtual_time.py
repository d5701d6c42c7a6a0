"""Virtual time: waiting takes no real time on either event loop, and the clock of the fake follows."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from outreach_async import NewContact, OutreachClient, Store
from outreach_async.fake import Behaviour, FakeService, FakeTransport, RateLimit
from outreach_async.testing import VirtualTime, VirtualTimeLoop

START = 1767225600  # 2026-01-01T00:00:00Z

both = pytest.mark.parametrize("backend", ["asyncio", "trio"])


def run(virtual: VirtualTime, work: Callable[[], Awaitable[Any]], backend: str) -> Any:
    return anyio.run(work, backend=backend, backend_options=virtual.options(backend))


@both
@given(waits=st.lists(st.floats(0.001, 86400), max_size=5))
def test_each_sleep_advances_virtual_time_and_takes_no_real_time(backend: str, waits: list[float]) -> None:
    virtual = VirtualTime()

    async def work() -> list[float]:
        seen = []
        for wait in waits:
            before = anyio.current_time()
            await anyio.sleep(wait)
            seen.append(anyio.current_time() - before)
        return seen

    began = time.monotonic()
    assert run(virtual, work, backend) == pytest.approx(waits)
    assert virtual.elapsed == pytest.approx(sum(waits))
    assert time.monotonic() - began < 10


@both
@given(wakes=st.lists(st.integers(0, 10**6), min_size=1, max_size=8, unique=True))
def test_tasks_wake_in_the_order_of_their_times(backend: str, wakes: list[int]) -> None:
    woken: list[int] = []

    async def sleeper(seconds: int) -> None:
        await anyio.sleep(seconds)
        woken.append(seconds)

    async def work() -> None:
        async with anyio.create_task_group() as group:
            for seconds in wakes:
                group.start_soon(sleeper, seconds)

    run(VirtualTime(), work, backend)
    assert woken == sorted(wakes)


@both
def test_time_continues_from_run_to_run(backend: str) -> None:
    virtual = VirtualTime("2026-01-01T12:00:00+01:00")

    async def work() -> float:
        await anyio.sleep(10)
        return virtual()

    noon = START + 11 * 3600
    assert [run(virtual, work, each) for each in (backend, "asyncio", "trio")] == [noon + 10, noon + 20, noon + 30]
    assert repr(virtual) == "<VirtualTime: 30 s after its start>"


@both
def test_an_hour_of_backoff_matches_the_rate_limit_and_takes_no_real_time(backend: str) -> None:
    virtual = VirtualTime()
    limit = RateLimit(2, per=1800, scope="all")
    fake = FakeService(clock=virtual, behaviour=Behaviour(rate_limit=limit))
    space = fake.add_workspace()
    key = fake.add_owner_key(space)

    async def work() -> list[int]:
        async with OutreachClient(transport=FakeTransport(fake), owner_key=key, workspace=space, deadline=None) as client:
            for number in range(6):
                await client.contacts.create(NewContact(f"{number}@a.example"))
        return [math.floor((entry.at - START) / 1800) for entry in fake.requests if entry.status == 201]

    began = time.monotonic()
    assert run(virtual, work, backend) == [0, 0, 1, 1, 2, 2]
    assert virtual.elapsed >= 3600
    assert time.monotonic() - began < 10


@both
@pytest.mark.parametrize("options", [{}, "own"], ids=["real", "another virtual"])
def test_reading_it_in_another_event_loop_is_an_error(backend: str, options: Any) -> None:
    virtual = VirtualTime()

    async def work() -> None:
        await anyio.sleep(0.001)
        with pytest.raises(RuntimeError, match=r"expected the event loop that drives this clock, .* options\(\) to anyio.run"):
            virtual()

    anyio.run(work, backend=backend, backend_options=VirtualTime().options(backend) if options else {})


def test_it_stands_still_outside_event_loops() -> None:
    virtual = VirtualTime()
    assert (virtual(), virtual()) == (START, START)
    with pytest.raises(ValueError, match="expected an ISO 8601 time"):
        VirtualTime("noon")


@pytest.mark.parametrize(
    ("name", "others", "expected_options"),
    [
        ("asyncio", {}, {}),
        ("asyncio", {"debug": True, "use_uvloop": True, "loop_factory": asyncio.new_event_loop}, {"debug": True}),
        ("trio", {}, {}),
        ("trio", {"strict_exception_groups": True, "clock": None}, {"strict_exception_groups": True}),
    ],
    ids=["asyncio", "asyncio with options", "trio", "trio with options"],
)
def test_options_of_a_backend_are_kept_except_those_that_set_a_clock(
    name: str, others: dict[str, Any], expected_options: dict[str, Any]
) -> None:
    options = VirtualTime().options(name, others)
    chosen = options.pop("loop_factory" if name == "asyncio" else "clock")
    assert chosen is not None
    assert options == expected_options


def test_while_a_loop_without_timers_waits_for_a_thread_time_stands_still() -> None:
    loop = VirtualTimeLoop()
    looked = 0
    select = loop._jump_selector.select

    def spy(timeout: float | None = None) -> Any:
        nonlocal looked
        looked += 1
        return select(timeout)

    loop._jump_selector.select = spy  # type: ignore[method-assign]  # a spy
    waiting = loop.create_future()
    thread = threading.Timer(0.02, lambda: loop.call_soon_threadsafe(waiting.set_result, "done"))
    thread.start()
    assert loop.run_until_complete(waiting) == "done"
    assert loop.time() == 0
    assert looked < 10
    thread.join()
    loop.close()


def test_a_trio_loop_without_timers_blocks_until_a_thread_wakes_it() -> None:
    blocked = threading.Event()

    class Watcher(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            if timeout:
                blocked.set()

    async def wait_in_a_thread() -> bool:
        return await anyio.to_thread.run_sync(blocked.wait, 10)

    virtual = VirtualTime()
    assert anyio.run(wait_in_a_thread, backend="trio", backend_options=virtual.options("trio", {"instruments": [Watcher()]}))
    assert virtual.elapsed == 0


@both
@pytest.mark.parametrize("medium", ["file", "objects"])
def test_time_stands_still_while_a_thread_writes_a_journal(backend: str, medium: str, tmp_path: Path) -> None:
    virtual = VirtualTime()
    fake = FakeService(clock=virtual)
    space = fake.add_workspace()
    store = Store(tmp_path / "run.db" if medium == "file" else tmp_path.as_uri(), linger=0.0)

    async def tick() -> None:
        for _ in iter(int, 1):  # forever
            await anyio.sleep(100)

    async def work() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tick)
            transport, key = FakeTransport(fake), fake.add_owner_key(space)
            async with OutreachClient(transport=transport, owner_key=key, workspace=space, rate=1) as client:
                await client.contacts.create_many([{"email": f"{at}@a.example"} for at in range(5)], journal=store)
            tasks.cancel_scope.cancel()

    run(virtual, work, backend)
    assert virtual.elapsed == pytest.approx(4, abs=1)
