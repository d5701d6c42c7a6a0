"""Async iterables as input: one task reads and closes each, and their own scopes work as in a plain `async for`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import anyio
import pytest
from support.runs import client, drain, rows
from support.time import virtual_time
from support.transport import Script, added, status

from outreach_async import (
    BulkReport,
    BulkStopped,
    ContactOutcome,
    NewContact,
    Outcome,
    Progress,
    Request,
    Response,
    Store,
)
from outreach_async.sync import SyncClient

MODES: dict[str, dict[str, Any]] = {"plain": {}, "journal": {"journal": True}, "spool": {"journal": True, "spool": True}}
MODES["ledger"] = {"ledger": True, "changed": "ignore"}
"""The options of a run, by how it reads its rows."""


@pytest.fixture(params=MODES)
def options(request: pytest.FixtureRequest, journal: Store, folder: Any) -> dict[str, Any]:
    places = {"journal": journal, "ledger": Store(folder / "contacts.ledger", inline=True)}
    return {name: places[name] if value is True and name in places else value for name, value in MODES[request.param].items()}


class Watched:
    """Rows of an async generator that records which tasks advanced it, and how often it was closed."""

    def __init__(self, count: int, *, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.tasks: set[int] = set()
        self.closed = 0
        self._count, self._seconds, self._error = count, seconds, error

    async def __aiter__(self) -> AsyncGenerator[NewContact]:
        try:
            for row in rows(self._count):
                self.tasks.add(anyio.get_current_task().id)
                await anyio.sleep(self._seconds)
                yield row
            if self._error is not None:
                raise self._error
        finally:
            self.tasks.add(anyio.get_current_task().id)
            self.closed += 1


async def leave(outcomes: Any) -> None:
    await anext(outcomes)


async def drain_early(outcomes: Any) -> None:
    await anext(outcomes)
    outcomes.drain()
    await drain(outcomes, [])


async def fail(outcomes: Any) -> None:
    await anext(outcomes)
    raise KeyError("of the caller")


async def be_cancelled(outcomes: Any) -> None:
    with anyio.CancelScope() as scope:
        await anext(outcomes)
        scope.cancel()
        await drain(outcomes, [])


async def read_all(outcomes: Any) -> None:
    await drain(outcomes, [])


ENDS: dict[str, tuple[Callable[[Any], Any], Response, Exception | None, type[Exception] | None]] = {
    "all rows are read": (read_all, added(), None, None),
    "the caller leaves": (leave, added(), None, None),
    "the caller drains the run": (drain_early, added(), None, None),
    "the caller fails": (fail, added(), None, KeyError),
    "the caller is cancelled": (be_cancelled, added(), None, None),
    "the rows fail": (read_all, added(), LookupError("no such table"), LookupError),
    "the service refuses the run": (read_all, status(401), None, BulkStopped),
}
"""How a run ends: what the caller does, the service's answer, the error of the rows, and the error that is raised."""


@virtual_time
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("seconds", [0.0, 0.1], ids=["quick", "slow"])
async def test_one_task_reads_and_closes_an_async_iterable_however_the_run_ends(
    options: dict[str, Any], end: Any, seconds: float
) -> None:
    act, answer, error, raised = end
    watched = Watched(40, seconds=seconds, error=error)
    found: BaseException | None = None
    try:
        async with client(Script(answer, seconds=0.01)).contacts.create_many(watched, concurrency=4, **options) as outcomes:
            await act(outcomes)
    except Exception as caught:  # noqa: BLE001 - compared below
        found = caught
    assert found is None if raised is None else isinstance(found, raised), found
    assert (len(watched.tasks), watched.closed) == (1, 1)
    assert watched.tasks != {anyio.get_current_task().id}


class Stop(Exception):
    """An error of an iterable's own task group."""


async def end_within_own_time_limit() -> AsyncIterator[NewContact]:
    with anyio.move_on_after(1.05):
        for row in rows(1000):
            await anyio.sleep(0.1)
            yield row


async def exceed_own_time_limit() -> AsyncIterator[NewContact]:
    with anyio.fail_after(1.05):
        for row in rows(1000):
            yield row
            await anyio.sleep(0.01)


async def lose_own_task() -> AsyncIterator[NewContact]:
    async def break_down() -> None:
        await anyio.sleep(0.5)
        raise Stop

    async with anyio.create_task_group() as group:
        group.start_soon(break_down)
        for row in rows(1000):
            await anyio.sleep(0.02)
            yield row


async def read_in_own_task() -> AsyncIterator[NewContact]:
    send, receive = anyio.create_memory_object_stream[NewContact](5)

    async def fill() -> None:
        async with send:
            for row in rows(30):
                await send.send(row)

    async with receive, anyio.create_task_group() as group:
        group.start_soon(fill)
        async for row in receive:
            yield row


async def hold_a_lock() -> AsyncIterator[NewContact]:
    async with anyio.Lock():
        for row in rows(30):
            yield row


async def outcome_of(awaitable: Any) -> Any:
    """Return what an operation returns or, if it raises, the types of its exceptions."""
    try:
        return await awaitable
    except ExceptionGroup as group:
        return [type(each) for each in group.exceptions]
    except Exception as error:  # noqa: BLE001 - compared
        return type(error)


async def read_plainly(source: AsyncIterator[Any]) -> int:
    return len([row async for row in source])


async def rows_of(run: Any) -> int:
    report: BulkReport = await run
    return report.rows


SCOPES = [end_within_own_time_limit, exceed_own_time_limit, lose_own_task, read_in_own_task, hold_a_lock]


@virtual_time
@pytest.mark.parametrize("source", SCOPES)
@pytest.mark.parametrize("seconds", [0.0, 3.0])
async def test_scopes_of_an_iterable_end_its_rows_as_in_a_plain_loop(
    source: Callable[[], AsyncIterator[Any]], options: dict[str, Any], seconds: float
) -> None:
    run = client(Script(added(), seconds=seconds)).contacts.create_many(source(), concurrency=4, **options)
    found, expected = await outcome_of(rows_of(run)), await outcome_of(read_plainly(source()))
    assert type(found) is type(expected)
    if isinstance(found, int) and source is end_within_own_time_limit:  # which passes too while the run is busy
        assert 0 < found <= expected
    else:
        assert found == expected


@virtual_time
@pytest.mark.parametrize("source", [end_within_own_time_limit, read_in_own_task])
@pytest.mark.parametrize("act", [leave, drain_early])
async def test_a_run_can_be_left_inside_the_scopes_of_its_rows(source: Any, act: Any, options: dict[str, Any]) -> None:
    async with client(Script(added())).contacts.create_many(source(), concurrency=4, **options) as outcomes:
        await act(outcomes)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("fails", [False, True])
async def test_closing_rows_inside_a_task_group_raises_only_errors_of_the_rows(fails: bool) -> None:
    ended: list[str] = []

    async def stream() -> AsyncIterator[NewContact]:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(asyncio.sleep(3600))
            try:
                for row in rows(1000):
                    yield row
            finally:
                task.cancel()
                ended.append("closed")
                if fails:
                    raise LookupError("rollback failed")

    async def run() -> None:
        async with client(Script(added())).contacts.create_many(stream(), concurrency=2) as outcomes:
            await leave(outcomes)

    assert (await outcome_of(run()), ended) == ([LookupError] if fails else None, ["closed"])


@virtual_time
async def test_a_drained_run_does_not_wait_for_the_next_row(options: dict[str, Any]) -> None:
    async def endless() -> AsyncIterator[NewContact]:
        for row in rows(3):
            yield row
        await anyio.sleep_forever()

    if options.get("spool"):  # no row is sent before the last one is read
        return
    async with client(Script(added())).contacts.create_many(endless(), **options) as outcomes:
        for _ in range(3):
            await anext(outcomes)
        outcomes.drain()
        with pytest.raises(StopAsyncIteration):
            await anext(outcomes)


@virtual_time
async def test_a_run_left_while_its_rows_are_spooled_reads_them_again(journal: Store) -> None:
    create = client(Script(added())).contacts.create_many
    async with create(Watched(50, seconds=1), journal=journal, spool=True) as outcomes:
        await anyio.sleep(20)
        outcomes.drain()
        await drain(outcomes, [])
    assert outcomes.report.rows == 0
    assert (await create(Watched(50), journal=journal, spool=True, resume=True)).outcomes[Outcome.ADDED] == 50


@virtual_time
async def test_a_resumed_run_left_inside_a_marked_window_can_be_resumed_again(journal: Store) -> None:
    create = client(Script(added())).contacts.create_many
    async with create(Watched(50), journal=journal, concurrency=2) as outcomes:
        await anext(outcomes)
    for _ in range(2):
        async with create(Watched(50, seconds=1), journal=journal, resume=True) as outcomes:
            await anyio.sleep(1.5)
            outcomes.drain()
            await drain(outcomes, [])
    assert (await create(Watched(50), journal=journal, resume=True)).rows == 50


@virtual_time
async def test_no_row_of_a_stream_is_read_without_an_outcome() -> None:
    counted, read = [0], list[ContactOutcome]()

    async def stream() -> AsyncIterator[NewContact]:
        for row in rows(1000):
            counted[0] += 1
            yield row

    async with client(Script(*[added()] * 30, status(401))).contacts.create_many(stream(), concurrency=8) as outcomes:
        with pytest.raises(BulkStopped):
            await drain(outcomes, read)
    assert sorted(outcome.index for outcome in read) == [*range(counted[0])]


@virtual_time
async def test_an_error_of_closing_the_rows_is_raised_unless_the_block_raises() -> None:
    async def stream() -> AsyncIterator[NewContact]:
        try:
            for row in rows(1000):
                yield row
        finally:
            raise LookupError("rollback failed")

    async def run(act: Callable[[Any], Any]) -> None:
        async with client(Script(added())).contacts.create_many(stream(), concurrency=2) as outcomes:
            await act(outcomes)

    with pytest.raises(LookupError):
        await run(leave)
    with pytest.raises(KeyError):
        await run(fail)


@virtual_time
@pytest.mark.parametrize("count", [0, 5, 260])
@pytest.mark.parametrize("is_async", [False, True])
async def test_an_error_of_the_rows_comes_after_the_outcomes_of_those_before_it(
    options: dict[str, Any], count: int, is_async: bool
) -> None:
    def broken() -> Iterator[NewContact]:
        yield from rows(count)
        raise LookupError("no such file")

    source, found = Watched(count, error=LookupError("no such file")) if is_async else broken(), list[ContactOutcome]()
    async with client(Script(added())).contacts.create_many(source, **options) as outcomes:
        with pytest.raises(LookupError, match="no such file"):
            await drain(outcomes, found)
    assert len(found) == (0 if "spool" in options else count)


class WithoutClose:
    """An iterator of another class, which has no method to close it."""

    def __init__(self, count: int) -> None:
        self._rows = rows(count)

    def __aiter__(self) -> WithoutClose:
        return self

    async def __anext__(self) -> NewContact:
        await anyio.sleep(0.01)
        for row in self._rows:
            return row
        raise StopAsyncIteration


@virtual_time
async def test_an_iterator_without_a_method_to_close_it_is_read_to_its_end() -> None:
    assert (await client(Script(added())).contacts.create_many(WithoutClose(20))).rows == 20
    with anyio.move_on_after(60) as scope:
        async with client(Script(added())).contacts.create_many(WithoutClose(1000), concurrency=1) as outcomes:
            await anext(outcomes)
            await anyio.sleep_forever()  # nobody receives the outcomes, so no further row is wanted
    assert scope.cancelled_caught


# Cancelled from inside


async def await_a_cancelled_future() -> AsyncIterator[NewContact]:
    for row in rows(5):
        yield row
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def cancel_own_task() -> AsyncIterator[NewContact]:
    task = asyncio.current_task()
    assert task is not None
    for number, row in enumerate(rows(50)):
        if number == 5:
            task.cancel()
        yield row


class OfAnotherClass:
    """An iterator that is no generator, whose task is cancelled while it waits until its sixth row is wanted."""

    def __init__(self) -> None:
        self._rows = rows(50)
        self._read = 0

    def __aiter__(self) -> OfAnotherClass:
        return self

    async def __anext__(self) -> NewContact:
        self._read += 1
        if self._read == 5:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
            asyncio.get_running_loop().call_soon(task.cancel)
        if self._read > 5:
            await asyncio.sleep(3600)
        return next(self._rows)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("source", [await_a_cancelled_future, cancel_own_task, OfAnotherClass])
async def test_rows_cancelled_from_inside_stop_the_run_with_its_report(source: Any, options: dict[str, Any]) -> None:
    async with client(Script(added())).contacts.create_many(source(), **options) as outcomes:
        with pytest.raises(BulkStopped, match="the iterable of rows raised CancelledError, although the run was not") as caught:
            await drain(outcomes, [])
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    assert caught.value.report == outcomes.report.to_dict()
    if "spool" not in options:
        assert outcomes.report.rows >= 5


class Cancelling(Script):
    """A transport whose seventh request is cancelled from inside."""

    async def send(self, request: Request, progress: Progress, /) -> Response:
        number = len(self.requests)
        response = await super().send(request, progress)
        if number == 6:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(1)
        return response


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_request_cancelled_from_inside_stops_the_run_with_its_report(options: dict[str, Any]) -> None:
    found: list[ContactOutcome] = []
    async with client(Cancelling(added())).contacts.create_many([*rows(40)], concurrency=4, **options) as outcomes:
        with pytest.raises(BulkStopped, match="a request raised CancelledError, although the run was not") as caught:
            await drain(outcomes, found)
    assert caught.value.report == outcomes.report.to_dict()
    if not options:
        (lost,) = [outcome for outcome in found if outcome.status is Outcome.UNKNOWN]
        assert lost.index == 6
        assert sorted(outcome.index for outcome in found) == [*range(len(found))]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_list_of_campaigns_cancelled_from_inside_stops_the_run(options: dict[str, Any]) -> None:
    class Unlisted(Script):
        async def send(self, request: Request, progress: Progress, /) -> Response:
            if request.method == "GET":
                raise asyncio.CancelledError
            return await super().send(request, progress)

    contacts = [{"email": f"user{number}@a.example", "campaign": "Spring"} for number in range(9)]
    with pytest.raises(BulkStopped, match="although the run was not cancelled") as caught:
        await client(Unlisted(added())).contacts.create_many(contacts, **options)
    assert caught.value.report is not None


# Threads


def test_a_sync_client_drops_its_rows_in_the_thread_that_reads_them() -> None:
    threads: list[int] = []

    def generate() -> Iterator[NewContact]:
        try:
            yield from rows(10_000)
        finally:
            threads.append(threading.get_ident())

    with SyncClient(transport=Script(added()), owner_key="key_1", workspace="space_1") as caller:
        run = caller.contacts.create_many(generate(), concurrency=2)
        with run as outcomes:
            next(outcomes)
        assert threads == [threading.get_ident()]


@virtual_time
async def test_a_generator_that_nobody_else_needs_is_closed_when_the_run_ends() -> None:
    closed: list[str] = []

    def generate() -> Iterator[NewContact]:
        try:
            yield from rows(1000)
        finally:
            closed.append("closed")

    async with client(Script(added())).contacts.create_many(generate(), concurrency=2) as outcomes:
        await anext(outcomes)
        assert not closed
    assert closed == ["closed"]
    assert outcomes.report.rows == 1


@virtual_time
async def test_rows_that_the_caller_closes_itself_may_be_closed_twice() -> None:
    async with aclosing(aiter(Watched(30))) as watched:
        assert (await client(Script(added())).contacts.create_many(watched)).rows == 30
