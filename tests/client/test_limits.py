"""What the tasks of a client share: slots, the Retry-After gate and the retry budget."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.time import virtual_time

from outreach_async import RateLimited
from outreach_async.limits import FailedAttempt, RequestSlots, RetryAfterGate, RetryBudget, reset_all_after_fork
from outreach_async.retry import FailureKind


async def test_slots_are_first_come_first_served() -> None:
    slots = RequestSlots(1)
    await slots.acquire()
    served: list[int] = []

    async def ask(number: int) -> None:
        await slots.acquire()
        served.append(number)

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(ask, number)
            await anyio.wait_all_tasks_blocked()
        for _ in range(5):
            slots.release()
            await anyio.wait_all_tasks_blocked()
    assert served == [0, 1, 2, 3, 4]


async def test_a_cancelled_wait_takes_no_slot() -> None:
    slots = RequestSlots(1)
    await slots.acquire()
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(slots.acquire)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    slots.release()
    assert slots.try_acquire()
    assert not slots.try_acquire()


async def test_a_slot_handed_to_a_wait_just_cancelled_goes_to_the_next() -> None:
    slots = RequestSlots(1)
    await slots.acquire()
    scope = anyio.CancelScope()
    served: list[str] = []

    async def doomed() -> None:
        with scope:
            await slots.acquire()

    async def patient() -> None:
        await slots.acquire()
        served.append("patient")

    async with anyio.create_task_group() as group:
        group.start_soon(doomed)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(patient)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()
        slots.release()
    if not served:  # the task got the slot before its cancellation, and keeps it
        slots.release()
    assert served == ["patient"]


def refused(at: float, retry_after: float) -> FailedAttempt:
    error = RateLimited("429", status_code=429)
    return FailedAttempt(error=error, kind=FailureKind.REFUSED, retry_after=retry_after, started=at, ended=at)


@virtual_time
async def test_a_gate_closed_again_opens_at_the_later_time() -> None:
    gate = RetryAfterGate()
    began = anyio.current_time()
    gate.close(refused(began, 5.0), 5.0)
    async with anyio.create_task_group() as group:
        group.start_soon(gate.wait)
        await anyio.wait_all_tasks_blocked()
        gate.close(refused(began, 20.0), 20.0)
        gate.close(refused(began, 10.0), 10.0)
    assert anyio.current_time() - began == pytest.approx(20)
    assert gate.reason == "the service answered 429 and asked to wait 20 s"


def test_a_gate_closed_in_one_event_loop_is_open_in_the_next(anyio_backend: tuple[str, dict[str, Any]]) -> None:
    gate = RetryAfterGate()

    async def hold() -> None:
        now = anyio.current_time()
        gate.close(refused(now, 1e9), 1e9)
        assert gate.opens_at(now) > now

    async def pass_through() -> None:
        assert gate.opens_at(anyio.current_time()) < anyio.current_time()
        await gate.wait()

    anyio.run(hold, backend=anyio_backend[0])
    anyio.run(pass_through, backend=anyio_backend[0])


@given(st.integers(0, 50), st.lists(st.tuples(st.booleans(), st.integers(0, 20))))
def test_a_retry_budget_stays_between_zero_and_its_size(size: int, moves: list[tuple[bool, int]]) -> None:
    budget = RetryBudget(size)
    for spends, amount in moves:
        before = budget.remaining
        if spends:
            assert budget.try_spend(amount) is (amount <= before)
        else:
            budget.refund(amount)
        assert 0 <= budget.remaining <= size


FORKING = """
import os
from outreach_async.limits import RequestSlots
slots = RequestSlots(2)
slots.try_acquire()
slots.try_acquire()
child = os.fork()
if child == 0:
    os._exit(slots.free)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
assert slots.free == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="on Windows no process is forked")
def test_in_a_forked_child_every_slot_is_free() -> None:
    subprocess.run([sys.executable, "-c", FORKING], check=True)


def test_slots_taken_before_a_fork_are_free_after_it() -> None:
    slots = RequestSlots(2)
    assert slots.try_acquire()
    assert slots.try_acquire()
    reset_all_after_fork()
    assert slots.try_acquire()
