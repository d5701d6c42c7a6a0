"""The cost of a journal: throughput of bulk runs with and without one, compared with a plain loop of requests."""

from __future__ import annotations

from typing import Final

from benchmarks.groups.rounds import Bench, Job, present
from benchmarks.measuring import Figures, Loop, by_workers, run, served, whole
from benchmarks.peers import ours
from benchmarks.results import Table

_CONCURRENCY: Final = 64
_ROWS: Final = 30_000
_BARE: Final = "a bare loop of the same sends, aiohttp"

_RUNS: Final = {
    "create_many, httptools": ("httptools", False),
    "create_many, httptools, journal": ("httptools", True),
    "create_many, aiohttp": ("aiohttp", False),
    "create_many, aiohttp, journal": ("aiohttp", True),
    "create_many, httpx": ("httpx", False),
    "create_many, httpx, journal": ("httpx", True),
    "create_many, null transport": ("null", False),
    "create_many, null transport, journal": ("null", True),
}


def measure(row: str, url: str, count: int, loop: Loop) -> Figures:
    """Measure one of them. Runs in the worker process."""
    if row == _BARE:
        return run(_bare(url, count), loop)
    backend, journal = _RUNS[row]
    return run(whole(ours.bulk(backend, url, _CONCURRENCY, journal=journal), url, count, count), loop)


async def _bare(url: str, count: int) -> Figures:
    """Send prepared requests on the same transport, from as many tasks."""
    async with ours.post("aiohttp", url, _CONCURRENCY) as once:
        await by_workers(once, 200, _CONCURRENCY)
        with served(url) as spent:
            await by_workers(once, count, _CONCURRENCY)
    return spent.each(count)


def journal(bench: Bench) -> list[Table]:
    """Measure runs with and without a journal."""
    wall = Table("Bulk runs with and without a journal, 64 in flight", "us a contact", (_BARE,))
    rate = Table("Bulk runs with and without a journal: throughput", "contacts a second")
    count = bench.sized(_ROWS, least=1000)
    rows = present({_BARE: "aiohttp"} | {row: ours.BACKENDS.get(backend, "") for row, (backend, _) in _RUNS.items()})
    jobs = [
        Job(row, "asyncio", measure, {"row": row, "url": bench.service.url, "count": count // _slow(row), "loop": "asyncio"})
        for row in rows
    ]

    def take(job: Job, figures: Figures) -> None:
        wall.add(job.row, "wall", figures["wall"])
        wall.add(job.row, "CPU", figures["cpu"])
        rate.add(job.row, "asyncio", 1e6 / figures["wall"])

    bench.interleave(jobs, take)
    wall.notes.append("CPU includes all threads, also the journal's. Each contact has fifteen fields and is built on demand.")
    return [wall, rate]


def _slow(row: str) -> int:
    return 4 if "httpx" in row else 1
