"""Bulk creation of contacts end to end, from rows to outcomes, with 64 concurrent requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Final

from benchmarks.groups.rounds import RAW, Bench, Busy, Job, present
from benchmarks.measuring import Figures, Loop, Whole, by_workers, run, spending, whole
from benchmarks.peers import floor, generated, loops, ours, raw
from benchmarks.results import Table
from benchmarks.workload import rows

_CONCURRENCY: Final = 64
FLOOR: Final = "a typed loop written by hand"
PACED: Final = "raw asyncio.Protocol, paced"


@asynccontextmanager
async def raw_bulk(url: str, concurrency: int) -> AsyncIterator[Whole]:
    """Create the same contact repeatedly with the raw client."""
    async with raw.post(url, concurrency) as once:

        async def job(count: int) -> int:
            return len(await by_workers(once, count, concurrency))

        yield job


_ours = partial(ours.bulk, rows=rows)


@asynccontextmanager
async def _paced_bulk(url: str, concurrency: int) -> AsyncIterator[Whole]:
    """Create the same contact repeatedly with the raw client, which works for as long per request as `create_many` does."""
    count = 2000
    async with _ours("null", url, concurrency) as job:
        await job(count)
        with spending() as spent:
            await job(count)
    async with raw.post(url, concurrency, spent.cpu / count) as once:

        async def paced(count: int) -> int:
            return len(await by_workers(once, count, concurrency))

        yield paced


Maker = Callable[[str, int], AbstractAsyncContextManager[Whole]]
"""Opens a job that creates contacts at a URL, with a number of concurrent requests."""

BULKS: Final[Mapping[str, tuple[str, Maker, int]]] = {
    "httpx loop": ("", partial(loops.bulk, "httpx"), 400),
    "httpx loop, a client each": ("", partial(loops.bulk, "httpx, a client each"), 800),
    "httpx2 loop": ("httpx2", partial(loops.bulk, "httpx2"), 500),
    "aiohttp loop": ("aiohttp", partial(loops.bulk, "aiohttp"), 3000),
    "openapi-python-client": ("openapi_python_client", generated.bulk, 400),
    "create_many": ("", partial(_ours, "httpx"), 1500),
    "create_many, journal": ("", partial(_ours, "httpx", journal=True), 1500),
    "create_many, httpx2": ("httpx2", partial(_ours, "httpx2"), 1500),
    "create_many, httpx2, journal": ("httpx2", partial(_ours, "httpx2", journal=True), 1500),
    "create_many, aiohttp": ("aiohttp", partial(_ours, "aiohttp"), 4000),
    "create_many, aiohttp, journal": ("aiohttp", partial(_ours, "aiohttp", journal=True), 4000),
    "create_many, sockets": ("", partial(_ours, "sockets"), 4000),
    "create_many, httptools": ("httptools", partial(_ours, "httptools"), 8000),
    "create_many, httptools, journal": ("httptools", partial(_ours, "httptools", journal=True), 8000),
    "create_many, null transport": ("", partial(_ours, "null"), 8000),
    "create_many, null transport, contacts": ("", partial(ours.bulk, "null"), 8000),
    "create_many, null transport, 100 campaigns": ("", partial(ours.bulk, "null", rows=ours.in_campaigns), 8000),
    FLOOR: ("", floor.bulk, 10000),
    PACED: ("", _paced_bulk, 8000),
    RAW: ("", raw_bulk, 10000),
}
"""For each peer: the module it needs, its factory, and the number of contacts in a full round."""


def measure(row: str, url: str, count: int, loop: Loop) -> Figures:
    """Measure one peer. Runs in the worker process."""
    return run(whole(BULKS[row][1](url, _CONCURRENCY), url, count, count), loop)


def bulk(bench: Bench) -> list[Table]:
    """Measure bulk creation."""
    cpu = Table("Bulk creation end to end, 64 in flight", "client CPU, us a contact", ("httpx loop", "aiohttp loop", FLOOR))
    rate = Table("Bulk creation end to end, 64 in flight: contacts", "a second of client CPU", ("httpx loop", RAW))
    busy = Busy()

    def take(job: Job, figures: Figures) -> None:
        cpu.add(job.row, job.column, figures["cpu"])
        rate.add(job.row, job.column, 1e6 / figures["cpu"])
        busy.add(job, figures)

    bench.interleave(_jobs(bench), take)
    cpu.notes.append(busy.said())
    cpu.notes.append("With a journal, CPU includes the journal's thread.")
    cpu.notes.append(
        f"Every client reads the rows of a CSV file. {FLOOR}: a loop on asyncio.Protocol that encodes and decodes with msgspec, "
        f"without retries, limits, deadlines or checks. {PACED}: the raw client, with a busy wait of as long per request as "
        "create_many takes on a null transport. Waking up a server that sleeps costs the client CPU time, and only a client that "
        "is faster than the server avoids it."
    )
    cpu.notes.append("The raw client sends one prepared body and reads only the length of each response.")
    return [cpu, rate]


def _jobs(bench: Bench) -> list[Job]:
    kinds = present({"asyncio": ""} if bench.quick else {"asyncio": "", "uvloop": "uvloop"})
    rows = present({row: needs for row, (needs, _, _) in BULKS.items()})
    return [
        Job(row, loop, measure, {"row": row, "url": bench.service.url, "count": bench.sized(BULKS[row][2]), "loop": loop})
        for loop in kinds
        for row in rows
    ]
