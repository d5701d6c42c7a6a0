"""A run is a coroutine: task groups accept it, and one that is never started warns."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from support.scenarios import KEY, SPACE, new_fake

from outreach_async import BulkReport, InvalidRequest, OutreachClient
from outreach_async.bulk import BulkRun
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.rates import SharedRate
from outreach_async.sync import SyncClient

ROWS = [{"email": "ann@company.example"}]
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


def client_of(fake: FakeService, **options: Any) -> OutreachClient:
    return OutreachClient(transport=FakeTransport(fake), workspace=SPACE, owner_key=KEY, **options)


def create() -> BulkRun:
    return client_of(new_fake()).contacts.create_many(ROWS)


async def test_a_run_that_is_never_started_warns_and_sends_nothing() -> None:
    fake = new_fake()
    run = client_of(fake).contacts.create_many(ROWS)
    with pytest.warns(RuntimeWarning, match=r"^create_many: .* nothing was sent; await it, or use it in 'async with'$") as caught:
        del run
    assert len(caught) == 1
    assert fake.contacts(SPACE) == []


async def test_with_origin_tracking_the_warning_names_the_place_of_creation() -> None:
    before = sys.get_coroutine_origin_tracking_depth()
    sys.set_coroutine_origin_tracking_depth(1)
    try:
        run = create()
    finally:
        sys.set_coroutine_origin_tracking_depth(before)
    with pytest.warns(RuntimeWarning, match=rf"Run created at \(most recent call last\)\n  File \"{__file__}\", .* in create\n"):
        del run


def test_a_synchronous_run_that_is_never_started_names_its_own_remedy() -> None:
    with SyncClient(transport=FakeTransport(new_fake()), workspace=SPACE, owner_key=KEY) as client:
        run: Any = client.contacts.create_many(ROWS)
        with pytest.warns(RuntimeWarning, match="; call wait\\(\\), or use it in 'with'$"):
            del run


def fail_to_build(client: OutreachClient) -> None:
    with pytest.raises(InvalidRequest):
        client.contacts.create_many(ROWS, concurrency=0)


def close(client: OutreachClient) -> None:
    client.contacts.create_many(ROWS).close()


def end_the_interpreter(client: OutreachClient) -> None:
    run = client.contacts.create_many(ROWS)
    run.__del__(lambda: True)
    run.close()


@pytest.mark.parametrize("use", [fail_to_build, close, end_the_interpreter])
async def test_nothing_warns_of_a_run_that_is_not_forgotten(use: Callable[[OutreachClient], None]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        use(client_of(new_fake()))


async def test_a_run_that_cannot_start_raises_and_does_not_warn() -> None:
    with pytest.raises(InvalidRequest):
        await client_of(new_fake(), rate=SharedRate(5)).contacts.create_many(ROWS)


async def test_a_task_group_runs_it() -> None:
    fake = new_fake()
    async with anyio.create_task_group() as group:
        group.start_soon(client_of(fake).contacts.create_many, ROWS)
    assert [contact["email"] for contact in fake.contacts(SPACE)] == ["ann@company.example"]


@on_asyncio
async def test_asyncio_makes_a_task_of_it() -> None:
    async with asyncio.TaskGroup() as group:
        task: asyncio.Task[BulkReport] = group.create_task(create())
    assert task.result().rows == 1
    assert "coro=<create_many()>" in repr(task)
    assert [report.rows for report in await asyncio.gather(create(), create())] == [1, 1]


@on_asyncio
async def test_a_task_of_a_run_can_be_cancelled() -> None:
    task = asyncio.create_task(create())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@on_asyncio
async def test_a_run_that_has_ended_can_be_closed() -> None:
    run = create()
    assert (await asyncio.create_task(run)).rows == 1
    run.close()
