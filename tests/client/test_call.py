"""Slots and the retry budget."""

from __future__ import annotations

import anyio
from hypothesis import given
from hypothesis import strategies as st

from outreach_async._core.attempts import RetryBudget, Slots


async def test_slots_are_first_come_first_served() -> None:
    slots = Slots(1)
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
    slots = Slots(1)
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
    slots = Slots(1)
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
    if not served:  # otherwise, the task got the slot before its cancellation and keeps it
        slots.release()
    assert served == ["patient"]


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
