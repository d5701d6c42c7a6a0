"""The synchronous client: the same methods and results as the asynchronous one, in the caller's thread."""

from __future__ import annotations

import inspect
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import polars as pl
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import example, given
from hypothesis import strategies as st

from outreach_async import Mailbox, NewContact, OutreachClient, Progress, Request, Response, SharedRate
from outreach_async.bulk import ContactOutcome
from outreach_async.errors import BulkStopped, InvalidRequest, NotFound
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.hooks import AttemptStarted, Event
from outreach_async.resources import Campaigns, Contacts, Mailboxes, Workspaces
from outreach_async.sync import (
    CallerRows,
    ClientLoop,
    SyncCampaigns,
    SyncClient,
    SyncContacts,
    SyncMailboxes,
    SyncPage,
    SyncRun,
    SyncWorkspaces,
    run_loop,
)


@pytest.fixture
def fake() -> FakeService:
    fake = FakeService()
    fake.add_workspace("space_1", custom_fields=["Plan"])
    fake.add_owner_key("space_1", key="key_1")
    fake.add_mailboxes("space_1", 7)
    fake.add_campaign("space_1", id="camp_1", steps=["A"])
    return fake


@pytest.fixture
def client(fake: FakeService) -> Iterator[SyncClient]:
    with SyncClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1") as client:
        yield client


def emails(count: int) -> list[dict[str, str]]:
    return [{"email": f"user{number}@company.example"} for number in range(count)]


class Hanging:
    """A transport that never responds. At its first request it raises a Ctrl-C that does not wake the main thread up."""

    def __init__(self) -> None:
        self.sent = self.cancelled = 0
        self.closed = False

    async def send(self, _request: Request, _progress: Progress, /) -> Response:
        self.sent += 1
        if self.sent == 1:
            signal.raise_signal(signal.SIGINT)  # handled in the main thread, but delivered in this one
        try:
            await anyio.sleep_forever()
        finally:
            self.cancelled += 1
        raise AssertionError

    async def aclose(self) -> None:
        self.closed = True


def test_every_method_has_a_mirror_with_its_parameters() -> None:
    pairs = (OutreachClient, SyncClient), (Campaigns, SyncCampaigns), (Mailboxes, SyncMailboxes), (Contacts, SyncContacts)
    for original, mirror in (*pairs, (Workspaces, SyncWorkspaces)):
        names = {name for name in dir(original) if not name.startswith("_")} - {"aclose"}
        assert names == {name for name in dir(mirror) if not name.startswith("_")}
        for name in filter(lambda name: inspect.isfunction(getattr(original, name)), names):
            assert inspect.signature(getattr(mirror, name)).parameters == inspect.signature(getattr(original, name)).parameters
    assert inspect.signature(SyncContacts.create_many).return_annotation == "SyncRun"


OPEN_AT_THE_END = """
import os
from outreach_async.errors import InvalidRequest
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.sync import ClientLoop, run_loop, SyncClient
fake = FakeService()
fake.add_workspace("space_1")
client = SyncClient(transport=FakeTransport(fake), workspace="space_1").__enter__()
child = os.fork() if hasattr(os, "fork") else None
if child != 0:
    assert len(client.workspaces.fields()) == 36
    assert child is None or os.waitpid(child, 0)[1] == 0
else:
    try:
        client.workspaces.fields()
    except InvalidRequest as error:
        assert str(error).endswith("got one that was opened before this process was forked; make a new client")
    else:
        raise AssertionError
"""


@pytest.mark.thorough
@pytest.mark.covers
def test_an_open_client_delays_neither_the_end_of_a_process_nor_of_a_fork() -> None:
    # From Python 3.12 on, `fork` warns that the process has threads.
    subprocess.run([sys.executable, "-W", "ignore", "-c", OPEN_AT_THE_END], check=True, timeout=60)


def test_a_list_can_be_iterated_over_again_and_fetches_pages_on_demand(fake: FakeService, client: SyncClient) -> None:
    pager = client.mailboxes.list(display=2)
    assert not fake.requests
    first = next(iter(pager))
    assert len(fake.requests) == 1
    ids = [mailbox.id for mailbox in pager]
    assert (len(ids), ids[0]) == (7, first.id)
    assert pager.first() == first
    assert [mailbox.id for mailbox in client.mailboxes.list(display=2, max_items=3)] == ids[:3]
    assert [mailbox.id for page in pager.pages() for mailbox in page.data] == ids
    assert [mailbox.id for mailbox in pager.collect(prefetch=2)] == ids
    assert [mailbox.id for mailbox in client.mailboxes.list(page=2, display=2).page().data] == ids[2:4]


def test_a_page_of_a_list_leads_to_the_page_after_it(client: SyncClient) -> None:
    page: SyncPage[Mailbox] | None = client.mailboxes.list(display=3).page()
    sizes = list[int]()
    while page is not None:
        sizes.append(len(page))
        page = page.next_page()
    assert sizes == [3, 3, 1]


def test_single_calls_return_what_the_service_answers(fake: FakeService, client: SyncClient) -> None:
    assert [campaign.id for campaign in client.campaigns.list()] == ["camp_1"]
    assert len(client.campaigns.steps("camp_1").data) == 1
    assert "custom_1" in {field.code for field in client.workspaces.fields()}
    assert client.contacts.create(NewContact("ann@company.example"), campaign="camp_1").status == "added"
    assert client.request("GET", "/workspaces/space_1/all-fields").status == 200
    assert [contact["email"] for contact in fake.contacts("space_1")] == ["ann@company.example"]


def test_neither_the_repr_of_a_client_nor_the_frames_of_its_errors_hold_a_key(client: SyncClient) -> None:
    assert repr(client) == "<SyncClient <FakeTransport to FakeService> workspace='space_1'>"
    with pytest.raises(NotFound) as caught:
        client.campaigns.steps("camp_gone")
    assert caught.value.attempts == 1
    frames = [entry.frame for entry in caught.traceback]
    assert not any("key_1" in repr(frame.f_locals) for frame in frames if "outreach_async" in str(frame.code.path))


def test_a_key_of_a_call_replaces_the_key_of_the_client(fake: FakeService, client: SyncClient) -> None:
    fake.add_workspace("space_2")
    key = fake.add_owner_key("space_2")
    other = client.with_options(workspace="space_2", owner_key=key)
    assert other.contacts.create({"email": "ann@company.example"}).status == "added"
    created = client.contacts.create({"email": "ann@company.example"}, workspace="space_2", owner_key=key)
    assert created.status == "skipped"
    assert client.contacts.create_many(emails(3), workspace="space_2", owner_key=key).wait().rows == 3
    assert len(fake.contacts("space_2")) == 4


def test_a_client_outside_its_block_says_how_to_open_it(fake: FakeService) -> None:
    client = SyncClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1")
    with pytest.raises(InvalidRequest, match=r"^client: expected an open client, got a closed one; use it inside `with"):
        client.workspaces.fields()
    with client:
        assert client.workspaces.fields()
    with pytest.raises(InvalidRequest, match=r"^client: expected an open client"):
        client.contacts.create_many(emails(1)).wait()


def test_a_copy_closes_nothing(client: SyncClient) -> None:
    with client.with_options(timeout=1.0) as copy:
        assert copy.workspaces.fields()
    assert client.workspaces.fields()


def test_the_thread_ends_with_the_block(fake: FakeService) -> None:
    before = set(threading.enumerate())
    with SyncClient(transport=FakeTransport(fake), workspace="space_1", rate=SharedRate()) as client:
        assert client.workspaces.fields()
        assert len(set(threading.enumerate()) - before) == 1
    assert not set(threading.enumerate()) - before


def test_an_invalid_argument_is_refused_without_a_thread() -> None:
    before = set(threading.enumerate())
    with pytest.raises(InvalidRequest, match=r"^base_url: missing"):
        SyncClient()
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize("many", [False, True])
def test_ctrl_c_cancels_the_requests_in_flight_and_closes_the_client(many: bool) -> None:
    transport, before = Hanging(), set(threading.enumerate())

    def script() -> None:
        with SyncClient(transport=transport, workspace="space_1", owner_key="key_1", deadline=None) as client:
            if many:
                client.contacts.create_many(emails(1000), concurrency=8).wait()
            else:
                client.contacts.create(NewContact("ann@company.example"))

    with pytest.raises(KeyboardInterrupt):
        script()
    assert transport.sent == transport.cancelled >= 1
    assert transport.closed
    assert not set(threading.enumerate()) - before


class InterruptedPortal:
    """A portal that is interrupted, as by Ctrl-C, before or after it starts its first task."""

    def __init__(self, portal: BlockingPortal, *, after: bool) -> None:
        self._portal, self._after = portal, after
        self._interrupted = False

    def start_task_soon(self, *arguments: Any) -> Any:
        interrupt, self._interrupted = not self._interrupted, True
        future = self._portal.start_task_soon(*arguments) if self._after or not interrupt else None
        if interrupt:
            raise KeyboardInterrupt
        return future


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", ["call", "run"])
def test_ctrl_c_while_a_call_or_run_starts_cancels_it(kind: str, after: bool) -> None:
    ends = []

    async def hang() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ends.append(kind)

    @asynccontextmanager
    async def hanging_run() -> AsyncIterator[None]:
        await hang()
        yield

    loop = ClientLoop()
    with start_blocking_portal() as portal:  # waits for its tasks
        loop.portal = cast("BlockingPortal", InterruptedPortal(portal, after=after))
        with pytest.raises(KeyboardInterrupt):
            loop.run(hang) if kind == "call" else SyncRun(cast("Any", hanging_run()), CallerRows([]), loop).wait()
    assert ends == [kind] * after


@pytest.mark.parametrize("stage", ["entered", "left"])
def test_ctrl_c_while_a_run_or_client_is_entered_or_left_cancels_it(stage: str) -> None:
    ends = []

    async def hang() -> None:
        signal.raise_signal(signal.SIGINT)  # in this thread, so that it does not wake the main thread up
        try:
            await anyio.sleep_forever()
        finally:
            ends.append(stage)

    @asynccontextmanager
    async def hanging() -> AsyncIterator[None]:
        if stage == "entered":
            await hang()
        yield
        await hang()

    loop = ClientLoop()
    with start_blocking_portal() as loop.portal, pytest.raises(KeyboardInterrupt), loop.hold(hanging()):
        assert stage == "left"
    assert ends == [stage]


def test_an_error_of_a_block_propagates_unless_closing_fails() -> None:
    seen = []

    @asynccontextmanager
    async def manager(*, fails: bool) -> AsyncIterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the error is checked below
            seen.append(error)
        if fails:
            raise OSError("closing failed")

    loop = ClientLoop()
    with start_blocking_portal() as loop.portal:
        with loop.hold(manager(fails=False)):
            pass
        with pytest.raises(KeyError), loop.hold(manager(fails=False)):
            raise KeyError("block")
        with pytest.raises(OSError, match="closing failed"), loop.hold(manager(fails=True)):
            raise KeyError("block")
    assert [str(error) for error in seen] == ["", ""]  # not the exception of the block, which belongs to another thread


class Gevent:
    """Stands for `gevent.monkey` after a call of `patch_all`, which has replaced these locks."""

    def __init__(self, replaced: object) -> None:
        self._replaced = replaced

    def is_module_patched(self, name: str) -> bool:
        return name == "threading"

    def get_original(self, module: str, name: str) -> object:
        assert (module, name) == ("threading", "Lock")
        return self._replaced


def test_where_threads_are_greenlets_the_clients_of_a_thread_share_a_loop() -> None:
    modules = {"gevent.monkey": Gevent(replaced=object())}

    def loop_of_another_thread() -> BlockingPortal:
        with run_loop(modules) as loop:
            return loop

    with run_loop(modules) as first, run_loop(modules) as second, start_blocking_portal() as thread:
        assert first is second
        assert thread.call(loop_of_another_thread) is not first
    with run_loop(modules) as later:
        assert later is not first
        assert later.call(threading.get_ident) != threading.get_ident()
    with run_loop({}) as first, run_loop({}) as second:
        assert first is not second


def test_gevent_that_replaces_threads_too_late_is_named() -> None:
    late = {"gevent.monkey": Gevent(replaced=threading.Lock)}
    with pytest.raises(InvalidRequest, match=r"gevent: expected monkey.patch_all\(\) before other imports, .*; call it first"):
        run_loop(late)


@pytest.mark.thorough
def test_a_run_that_ctrl_c_interrupted_can_be_resumed(fake: FakeService, client: SyncClient, tmp_path: Path) -> None:
    journal = tmp_path / "run.db"

    def script() -> None:
        with client.contacts.create_many(emails(2000), concurrency=4, journal=journal) as outcomes:
            next(outcomes)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        script()
    assert 0 < len(fake.contacts("space_1")) < 2000
    assert client.contacts.create_many(emails(2000), journal=journal, resume=True).wait().rows == 2000
    assert len(fake.contacts("space_1")) == 2000


@pytest.mark.thorough
@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 1750])
@pytest.mark.parametrize("order", ["completion", "input"])
def test_every_row_has_one_outcome(fake: FakeService, client: SyncClient, count: int, order: Any) -> None:
    with client.contacts.create_many(iter(emails(count)), order=order) as outcomes:
        indexes = [outcome.index for outcome in outcomes]
        assert list(outcomes) == []
    assert sorted(indexes) == list(range(count))
    assert order == "completion" or indexes == sorted(indexes)
    assert outcomes.report.rows == len(fake.contacts("space_1")) == count


@pytest.mark.thorough
@pytest.mark.parametrize("repeats", ["serial", "last"])
def test_a_journal_can_be_read_and_finished_runs_are_reported_again(client: SyncClient, tmp_path: Path, repeats: Any) -> None:
    options: dict[str, Any] = {"journal": tmp_path / "run.db", "repeats": repeats}
    rows = [*emails(700), *emails(100)]
    report = client.contacts.create_many(rows, **options).wait()
    assert (report.rows, report.repeats) == (800, 0 if repeats == "serial" else 100)
    again = client.contacts.create_many(rows, **options, resume=True).wait()
    assert again.outcomes == report.outcomes
    with pytest.raises(InvalidRequest, match="already exists"):
        client.contacts.create_many(rows, **options).wait()


@pytest.mark.thorough
def test_rows_are_read_in_the_thread_of_the_caller(client: SyncClient) -> None:
    connection = sqlite3.connect(":memory:")  # raises in any other thread
    connection.execute("CREATE TABLE people (email TEXT)")
    connection.executemany("INSERT INTO people VALUES (?)", [(row["email"],) for row in emails(1200)])
    rows = ({"email": email} for (email,) in connection.execute("SELECT email FROM people"))
    assert client.contacts.create_many(rows).wait().rows == 1200
    connection.close()


def test_rows_are_read_only_as_they_are_needed(client: SyncClient) -> None:
    rows = iter(emails(50_000))
    with client.contacts.create_many(rows, concurrency=4) as outcomes:
        next(outcomes)
    assert len(list(rows)) > 45_000


def test_a_data_frame_is_a_source_of_rows(client: SyncClient) -> None:
    with client.contacts.create_many(pl.DataFrame(emails(3))) as outcomes:
        assert outcomes.progress.total == 3
        assert len(list(outcomes)) == 3
        assert outcomes.progress.rows == 3
    with client.contacts.create_many(iter(emails(3)), total=9) as outcomes:
        assert outcomes.progress.total == 9


@pytest.mark.parametrize("count", [0, 3, 500, 620])
def test_an_exception_of_the_rows_is_raised_after_the_outcomes_before_it(client: SyncClient, count: int) -> None:
    def rows() -> Iterator[dict[str, str]]:
        yield from emails(count)
        raise ZeroDivisionError

    seen: list[int] = []
    with pytest.raises(ZeroDivisionError), client.contacts.create_many(rows()) as outcomes:
        seen.extend(outcome.index for outcome in outcomes)
    assert sorted(seen) == list(range(count))


def test_an_error_that_ends_the_run_is_raised_after_its_outcomes(client: SyncClient) -> None:
    seen, stopped = list[int](), pytest.raises(BulkStopped, match="the first 50 rows were all rejected")
    with stopped, client.contacts.create_many([{"email": "@"}] * 200, concurrency=1) as outcomes:
        seen.extend(outcome.index for outcome in outcomes)
    assert len(seen) >= 50


class Gate:
    """Counts what was sent, so that an iterable can wait for it."""

    def __init__(self) -> None:
        self.sent = threading.Semaphore(0)

    def __call__(self, event: Event) -> None:
        if isinstance(event, AttemptStarted):
            self.sent.release()


@contextmanager
def run_of(fake: FakeService, rows: CallerRows, *hooks: Any, **options: Any) -> Iterator[SyncRun]:
    loop = ClientLoop()
    client = OutreachClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1", hooks=hooks)
    with start_blocking_portal() as loop.portal:
        yield SyncRun(client.contacts.create_many(rows, **options), rows, loop)


@pytest.mark.parametrize("seconds", [0.0, 0.03])  # with 0.03, each row takes longer than a batch may take
def test_a_row_is_sent_while_the_iterable_waits_for_the_next_one(fake: FakeService, seconds: float) -> None:
    gate, read = Gate(), list[object]()

    def rows() -> Iterator[dict[str, str]]:
        for row in emails(4):
            assert not read or gate.sent.acquire(timeout=30), "the row before was held back"
            read.append(row)
            yield row

    with run_of(fake, CallerRows(rows(), clock=lambda: seconds * len(read)), gate) as run, run as outcomes:
        assert sorted(outcome.index for outcome in outcomes) == [0, 1, 2, 3]


def test_the_outcomes_of_slow_rows_are_returned_before_the_next_row_is_read(fake: FakeService) -> None:
    read, seen = list[object](), list[int]()

    def rows() -> Iterator[dict[str, str]]:
        for row in emails(3):
            assert len(seen) == len(read)
            read.append(row)
            yield row

    with run_of(fake, CallerRows(rows(), clock=lambda: 600.0 * len(read))) as run, run as outcomes:
        for outcome in outcomes:
            seen.append(outcome.index)
    assert seen == [0, 1, 2]


class Steps:
    """Rows that take a drawn number of seconds each, on a clock of their own, and may end with an exception."""

    def __init__(self, steps: list[tuple[float, str]], error: Exception | None) -> None:
        self._steps, self._error = steps, error
        self.now, self.read, self.threads = 0.0, list[str](), set[int]()

    def __iter__(self) -> Iterator[dict[str, str]]:
        for seconds, email in self._steps:
            self.now += seconds
            self.read.append(email)
            self.threads.add(threading.get_ident())
            yield {"email": email}
        if self._error is not None:
            raise self._error


def describe(outcome: ContactOutcome) -> tuple[object, ...]:
    return outcome.index, outcome.contact, outcome.status, str(outcome.error), outcome.repeats, outcome.target


STEPS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.001, 0.03, 5.0]), st.sampled_from(["", *(row["email"] for row in emails(40))])), max_size=60
)
ERRORS = st.sampled_from([None, ZeroDivisionError("rows"), OSError("rows")])


def new_service() -> FakeService:
    service = FakeService()
    service.add_workspace("space_1")
    service.add_owner_key("space_1", key="key_1")
    return service


@given(STEPS, ERRORS, st.integers(1, 8), st.booleans())
@example([(0.0, row["email"]) for row in emails(700)], None, 8, True)
def test_a_run_has_the_outcomes_and_the_end_of_an_asynchronous_one(
    steps: list[tuple[float, str]], error: Exception | None, concurrency: int, is_awaited: bool
) -> None:
    options: dict[str, Any] = {"concurrency": concurrency, "order": "input", "stop_after_rejects": None}
    expected, found = list[object](), list[object]()

    async def run_in_loop() -> None:
        transport = FakeTransport(new_service())
        async with OutreachClient(transport=transport, workspace="space_1", owner_key="key_1") as client:
            run = client.contacts.create_many(iter(Steps(steps, error)), **options)
            if is_awaited:
                expected.append((await run).outcomes)
                return
            async with run as outcomes:
                async for outcome in outcomes:
                    expected.append(describe(outcome))

    def run_in_thread() -> None:
        rows = Steps(steps, error)
        with run_of(new_service(), CallerRows(iter(rows), clock=lambda: rows.now), **options) as run:
            if is_awaited:
                found.append(run.wait().outcomes)
            else:
                with run as outcomes:
                    found.extend(map(describe, outcomes))
        assert rows.threads <= {threading.get_ident()}

    for work, ends in ((partial(anyio.run, run_in_loop), expected), (run_in_thread, found)):
        try:
            work()
        except (ZeroDivisionError, OSError) as caught:
            ends.append(repr(caught))
    assert found == expected


@given(st.lists(st.integers(0, 12), max_size=12))
def test_at_most_750_rows_wait_for_a_run_and_never_few(takes: list[int]) -> None:
    rows, taken = Steps([(0.0, row["email"]) for row in emails(8000)], None), list[object]()
    source = CallerRows(iter(rows), clock=lambda: rows.now)

    async def take(batches: int) -> None:
        for _ in range(batches):
            if len(taken) < len(rows.read):
                taken.extend(await anext(source))

    with start_blocking_portal() as portal:
        for batches in takes:
            source.read(portal.start_task_soon)
            assert 250 < len(rows.read) - len(taken) <= 750
            portal.call(take, batches)
    assert taken == [{"email": email} for email in rows.read[: len(taken)]]


def test_a_drained_run_ends_early(client: SyncClient) -> None:
    with client.contacts.create_many(iter(emails(20_000)), concurrency=4) as outcomes:
        next(outcomes)
        outcomes.drain()
        rest = len(list(outcomes))
    assert outcomes.report.rows == rest + 1 < 20_000


def test_an_async_iterable_is_refused(client: SyncClient) -> None:
    async def rows() -> AsyncIterator[dict[str, str]]:
        yield {"email": "ann@company.example"}

    with pytest.raises(InvalidRequest, match=r"^rows: expected an iterable, got an async iterable; use OutreachClient, or pass"):
        client.contacts.create_many(rows())
