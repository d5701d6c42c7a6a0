"""Bulk creation of contacts end to end, from rows to outcomes, with 64 concurrent requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Final

from benchmarks.groups.rounds import RAW, Bench, Busy, Job, present
from benchmarks.measuring import Figures, Loop, Whole, by_workers, run, whole
from benchmarks.peers import generated, loops, ours, raw
from benchmarks.results import Table

_CONCURRENCY: Final = 64


@asynccontextmanager
async def raw_bulk(url: str, concurrency: int) -> AsyncIterator[Whole]:
    """Create the same contact repeatedly with the raw client."""
    async with raw.post(url, concurrency) as once:

        async def job(count: int) -> int:
            return len(await by_workers(once, count, concurrency))

        yield job


Maker = Callable[[str, int], AbstractAsyncContextManager[Whole]]
"""Opens a job that creates contacts at a URL, with a number of concurrent requests."""

BULKS: Final[Mapping[str, tuple[str, Maker, int]]] = {
    "httpx loop": ("", partial(loops.bulk, "httpx"), 400),
    "httpx loop, a client each": ("", partial(loops.bulk, "httpx, a client each"), 800),
    "httpx2 loop": ("httpx2", partial(loops.bulk, "httpx2"), 500),
    "aiohttp loop": ("aiohttp", partial(loops.bulk, "aiohttp"), 3000),
    "openapi-python-client": ("openapi_python_client", generated.bulk, 400),
    "create_many": ("", partial(ours.bulk, "httpx"), 1500),
    "create_many, journal": ("", partial(ours.bulk, "httpx", journal=True), 1500),
    "create_many, httpx2": ("httpx2", partial(ours.bulk, "httpx2"), 1500),
    "create_many, httpx2, journal": ("httpx2", partial(ours.bulk, "httpx2", journal=True), 1500),
    "create_many, aiohttp": ("aiohttp", partial(ours.bulk, "aiohttp"), 4000),
    "create_many, aiohttp, journal": ("aiohttp", partial(ours.bulk, "aiohttp", journal=True), 4000),
    "create_many, httptools": ("httptools", partial(ours.bulk, "httptools"), 8000),
    "create_many, httptools, journal": ("httptools", partial(ours.bulk, "httptools", journal=True), 8000),
    "create_many, null transport": ("", partial(ours.bulk, "null"), 8000),
    "create_many, null transport, 100 campaigns": ("", partial(ours.bulk, "null", rows=ours.in_campaigns), 8000),
    RAW: ("", raw_bulk, 10000),
}
"""For each peer: the module it needs, its factory, and the number of contacts in a full round."""


def measure(row: str, url: str, count: int, loop: Loop) -> Figures:
    """Measure one peer. Runs in the worker process."""
    return run(whole(BULKS[row][1](url, _CONCURRENCY), url, count, count), loop)


def bulk(bench: Bench) -> list[Table]:
    """Measure bulk creation."""
    cpu = Table("Bulk creation end to end, 64 in flight", "client CPU, us a contact", ("httpx loop", RAW))
    rate = Table("Bulk creation end to end, 64 in flight: contacts", "a second of client CPU", ("httpx loop", RAW))
    busy = Busy()

    def take(job: Job, figures: Figures) -> None:
        cpu.add(job.row, job.column, figures["cpu"])
        rate.add(job.row, job.column, 1e6 / figures["cpu"])
        busy.add(job, figures)

    bench.interleave(_jobs(bench), take)
    cpu.notes.append(busy.said())
    cpu.notes.append("With a journal, CPU includes the journal's thread.")
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
