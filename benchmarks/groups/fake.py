"""Tests without a network: the client on the fake, and on other mocks."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from functools import partial
from itertools import islice
from statistics import median
from typing import Any, Final

from benchmarks.groups.rounds import Bench, Job, into, present
from benchmarks.measuring import WARM_UP, Figures, Whole, run, spending, timed
from benchmarks.peers import mocks, ours
from benchmarks.peers.loops import JSON
from benchmarks.results import Table
from benchmarks.workload import ANSWER_FIELDS, BIG, BODY, CREATED, OWNER_KEY, WORKSPACE, bodies, email, page_target
from outreach_async import HttpxTransport, OutreachClient, Progress, Request, Response
from outreach_async.fake import FakeTransport
from outreach_async.fake.faults import Exchange

_FEW: Final = 1_000
_SOME: Final = 20_000
_BATCH: Final = 1_000
_MANY: Final = 100_000


class _Null:
    """A service with one prepared response, to measure the transport alone."""

    _done: Final = Exchange(Response(201, ANSWER_FIELDS, CREATED), None)

    def exchange(self, _request: Request, /) -> Exchange:
        return self._done


# The cost of a request, independent of its content.


@asynccontextmanager
async def _nothing() -> AsyncIterator[Whole]:
    transport, request = FakeTransport(_Null()), Request("POST", "/contacts", JSON, BODY)

    async def job(count: int) -> int:
        for _ in range(count):
            assert (await transport.send(request, Progress())).body is CREATED
        return count

    yield job


@asynccontextmanager
async def _raw(
    make: Callable[[], Any], patched: Callable[[], AbstractContextManager[None]] = nullcontext
) -> AsyncIterator[Whole]:
    async def job(count: int) -> int:
        for body in bodies(count):
            answer = await client.post("/contacts", json=body)
            assert answer.json()["status"] == "added"
        return count

    with patched():
        async with mocks.httpx_client(make()) as client:
            yield job


# The cost of a creation with the complete client.


@asynccontextmanager
async def _created(
    make: Callable[[], Any], patched: Callable[[], AbstractContextManager[None]] = nullcontext, *, in_bulk: bool = False
) -> AsyncIterator[Whole]:
    async def singly(count: int) -> int:
        for contact in ours.contacts(count):
            await client.contacts.create(contact, strict_validation=False)
        return count

    async def together(count: int) -> int:
        return (await client.contacts.create_many(ours.contacts(count), strict_validation=False)).rows

    with patched():
        async with OutreachClient(transport=make(), owner_key=OWNER_KEY, workspace=WORKSPACE) as client:
            yield together if in_bulk else singly


def _on_the_fake() -> FakeTransport:
    return FakeTransport(ours.stocked_fake())


def _on_httpx() -> HttpxTransport:
    import httpx

    return HttpxTransport(httpx.AsyncClient(base_url=mocks.URL))


_BY_RESPX: Final = "httpx on respx, a callback"
_CLIENT_BY_RESPX: Final = "contacts.create on respx, a callback"
_NULL: Final = "FakeTransport, a null handler"
_ONE: Final = "contacts.create on the fake"
_ROWS: Final[dict[str, tuple[str, Callable[[], AbstractAsyncContextManager[Whole]], int]]] = {
    _BY_RESPX: ("respx", partial(_raw, lambda: None, mocks.respx_router), 1000),
    "httpx on pytest-httpx, a callback": ("pytest_httpx", partial(_raw, lambda: None, mocks.pytest_httpx_mock), 1000),
    "httpx on ASGITransport, starlette": ("starlette", partial(_raw, mocks.starlette_transport), 1000),
    "httpx on httpx.MockTransport": ("", partial(_raw, mocks.mock_transport), 3000),
    _NULL: ("", _nothing, 20000),
    _CLIENT_BY_RESPX: ("respx", partial(_created, _on_httpx, mocks.respx_router), 1000),
    _ONE: ("", partial(_created, _on_the_fake), 5000),
    "create_many on the fake": ("", partial(_created, _on_the_fake, in_bulk=True), 10000),
}


async def _timed(row: str, count: int) -> Figures:
    async with _ROWS[row][1]() as job:
        await job(WARM_UP)
        with spending() as spent:
            assert await job(count) == count
    return spent.each(count)


def measure(row: str, count: int) -> Figures:
    """Measure one of them. Runs in the worker process."""
    return run(_timed(row, count))


# The fake alone.


def create(sizes: list[int], count: int) -> Figures:
    """Measure creations by the number of stored contacts, alternating between sizes. Runs in the worker process."""
    fakes = {f"{stored:,} contacts": ours.stocked_fake(stored) for stored in sizes}
    took: dict[str, list[float]] = {column: [] for column in fakes}
    requests = (Request("POST", "/contacts", JSON, json.dumps(body).encode()) for body in bodies(count))
    while batch := list(islice(requests, _BATCH)):
        for column, fake in fakes.items():
            with spending() as spent:
                for request in batch:
                    assert fake.handle(request).status == 201
            took[column].append(spent.each(len(batch))["cpu"])
    return {column: median(figures) for column, figures in took.items()}


def snapshot(stored: int) -> Figures:
    """Measure a snapshot by the number of stored contacts, in milliseconds. Runs in the worker process."""
    return {"cpu": timed(ours.stocked_fake(stored).snapshot, 0.3)["cpu"] / 1000}


def page(count: int) -> Figures:
    """Measure a page of 2,000 mailboxes and its encoding alone, alternating, in milliseconds. Runs in the worker process."""
    fake, request = ours.stocked_fake(mailboxes=BIG), Request("GET", page_target(WORKSPACE, BIG, 1))
    document = json.loads(fake.handle(request).body)
    took: dict[str, list[float]] = {_SERVED: [], _DUMPED: []}
    for _ in range(count):
        for row, work in ((_SERVED, lambda: fake.handle(request)), (_DUMPED, lambda: json.dumps(document))):
            with spending() as spent:
                work()
            took[row].append(spent.each(1)["cpu"] / 1000)
    return {row: median(figures) for row, figures in took.items()}


def kept(stored: int) -> Figures:
    """Measure the memory of a stored contact, in bytes. Runs in the worker process."""
    fake = ours.stocked_fake()
    requests = [Request("POST", "/contacts", JSON, json.dumps(body).encode()) for body in bodies(stored)]
    tracemalloc.start()
    for request in requests:
        fake.handle(request)
    fake.requests.clear()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fake.contact(WORKSPACE, email(1)) is not None
    return {"cpu": taken / stored}


_CREATION: Final = "a creation, us"
_SNAPSHOT: Final = "a snapshot, ms"
_SERVED: Final = "served, ms"
_DUMPED: Final = "json.dumps of the same, ms"
_KEPT: Final = "bytes kept a contact of 15 fields"


def _ways(bench: Bench) -> Table:
    table = Table("Creations in memory, for tests", "CPU, us a contact", (_BY_RESPX,))
    rows = present({row: needs for row, (needs, _, _) in _ROWS.items()})
    jobs = [Job(row, "CPU", measure, {"row": row, "count": bench.sized(_ROWS[row][2])}) for row in rows]
    bench.interleave(jobs, into(table))
    table.notes.append("The fake parses, validates and stores each contact. The mocks parse its e-mail and respond with `added`.")
    return table


def _sizes(bench: Bench) -> Table:
    table = Table("The fake by what it holds", "CPU, us or ms a call; bytes")
    jobs = [
        Job(_SNAPSHOT, f"{_MANY:,} contacts", snapshot, {"stored": _MANY}),
        Job(_KEPT, f"{_SOME:,} contacts", kept, {"stored": _SOME}),
    ]
    creations = Job(_CREATION, "", create, {"sizes": [_FEW, _MANY], "count": bench.sized(10_000)})
    bench.interleave([creations], partial(_by_column, table))
    bench.interleave(jobs, into(table))
    return table


def _mailboxes(bench: Bench) -> Table:
    table = Table("A page of 2,000 mailboxes by the fake", "CPU, ms a page", (_DUMPED,))
    bench.interleave([Job("page", "CPU", page, {"count": bench.sized(50)})], partial(_by_row, table))
    return table


def _by_column(table: Table, job: Job, figures: Figures) -> None:
    for column, figure in figures.items():
        table.add(job.row, column, figure)


def _by_row(table: Table, job: Job, figures: Figures) -> None:
    for row, figure in figures.items():
        table.add(row, job.column, figure)


def fake(bench: Bench) -> list[Table]:
    """Measure creations without a network, and the fake alone."""
    return [_ways(bench), _sizes(bench), _mailboxes(bench)]
