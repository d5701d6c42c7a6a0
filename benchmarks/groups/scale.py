"""Bulk creation at scale, end to end with a journal: contacts a second on one and two cores, and the cost of ten million."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial
from typing import Final, TypeAlias

import attrs

from benchmarks.groups.rounds import Bench, Busy, Job, present
from benchmarks.machine import pin_process
from benchmarks.measuring import Figures, Whole, run, served, spending
from benchmarks.peers import loops, ours
from benchmarks.results import Table
from benchmarks.worker import Worker

_CONCURRENCY: Final = 64
_WARM_UP: Final = 200
_TEN_MILLION: Final = 10_000_000
_SHORT: Final = 100_000
_LONG: Final = 1_000_000
_TENTH: Final = 10

LOOP: Final = "httpx loop"
FASTEST: Final = "create_many, httptools, journal"
ONE_CORE: Final = "1 core"
TWO_CORES: Final = "2 cores"
_CORES: Final = {ONE_CORE: 1, TWO_CORES: 2}

Maker: TypeAlias = Callable[[str, int], AbstractAsyncContextManager[Whole]]


@attrs.frozen
class _Creator:
    """A way to create contacts.

    Attributes:
        maker: Opens a job that creates contacts at a URL, with a number of concurrent requests.
        count: Contacts of each process in a full round on one and two cores.
        part: Divisor of the contacts from which the cost of ten million is extrapolated: slow peers create fewer.
        needs: Module that must be installed; empty for none.
    """

    maker: Maker
    count: int
    part: int
    needs: str = ""


_CREATORS: Final[Mapping[str, _Creator]] = {
    LOOP: _Creator(partial(loops.bulk, "httpx"), 1_000, 100),
    "httpx loop, a client each": _Creator(partial(loops.bulk, "httpx, a client each"), 2_000, 50),
    "aiohttp loop": _Creator(partial(loops.bulk, "aiohttp"), 8_000, 10, "aiohttp"),
    "create_many, journal": _Creator(partial(ours.bulk, "httpx", journal=True), 4_000, 10),
    "create_many, aiohttp, journal": _Creator(partial(ours.bulk, "aiohttp", journal=True), 8_000, 2, "aiohttp"),
    FASTEST: _Creator(partial(ours.bulk, "httptools", journal=True), 20_000, 1, "httptools"),
}
_NO_JOURNAL: Final = "The loops have no journal: they cannot resume, and report no outcomes."


async def _created(row: str, url: str, count: int) -> Figures:
    """Create contacts, and return the cost of all of them in seconds."""
    async with _CREATORS[row].maker(url, _CONCURRENCY) as job:
        with spending() as spent:
            assert await job(count) == count
    return {"cpu": spent.cpu, "wall": spent.wall}


def create_on_core(row: str, url: str, count: int, number: int) -> Figures:
    """Create contacts on one core, with the journal's thread. Runs in a worker process."""
    pin_process(number)
    return run(_created(row, url, count))


def measure_cores(row: str, url: str, count: int, cores: int) -> Figures:
    """Measure one process per core, each with its own journal. Runs in the worker process, which starts these processes."""
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker()) for _ in range(cores)]
        pool = stack.enter_context(ThreadPoolExecutor(cores))
        calls = [partial(worker.call, create_on_core, row=row, url=url, number=number) for number, worker in enumerate(workers)]
        list(pool.map(lambda call: call(count=_WARM_UP), calls))
        with served(url) as spent:
            found = list(pool.map(lambda call: call(count=count), calls))
    created = cores * count
    cpu = sum(figures["cpu"] for figures in found)
    return {"rate": created / spent.wall, "cpu": 1e6 * cpu / created, "busy": spent.busy}


def cores(bench: Bench) -> list[Table]:
    """Measure the contacts a second on one core and on two."""
    rate = Table("Bulk creation end to end by cores, 64 in flight a process", "contacts a second", (LOOP, "aiohttp loop"))
    cpu = Table("Bulk creation end to end by cores: CPU", "CPU of all client processes, us a contact", (LOOP, "aiohttp loop"))
    gain = Table("Bulk creation end to end: contacts a second on two cores, times those on one", "ratio")
    busy = Busy()

    def take(job: Job, figures: Figures) -> None:
        rate.add(job.row, job.column, figures["rate"])
        cpu.add(job.row, job.column, figures["cpu"])
        busy.add(job, figures)
        if job.column == TWO_CORES:
            gain.add(job.row, "gain", figures["rate"] / rate.samples[job.row][ONE_CORE][-1])

    columns = {name: number for name, number in _CORES.items() if number <= (os.cpu_count() or 1)}
    rows = present({row: creator.needs for row, creator in _CREATORS.items()})
    jobs = [
        Job(row, column, measure_cores, {"row": row, "url": bench.service.url, "cores": number, "count": count})
        for row in rows
        for count in [bench.sized(_CREATORS[row].count)]
        for column, number in columns.items()
    ]
    bench.interleave(jobs, take)
    rate.notes += [
        "Wall time, from the rows to the last outcome. Each core has one process with its own journal.",
        "The service is pinned to the last core. With two cores in all, the second process shares that core with it.",
        busy.said(),
        _NO_JOURNAL,
    ]
    return [rate, gain, cpu] if gain.samples else [rate, cpu]


def measure_long(row: str, url: str, count: int) -> Figures:
    """Measure a run, and one a tenth as long before it. Runs in the worker process."""
    run(_created(row, url, _WARM_UP))
    fewer = run(_created(row, url, count // _TENTH))
    spent = run(_created(row, url, count))
    return {name: figure / count for name, figure in spent.items()} | {"growth": spent["cpu"] / fewer["cpu"] / _TENTH}


def million(bench: Bench) -> list[Table]:
    """Extrapolate the cost of ten million contacts from one run per peer, of up to one million."""
    most = _LONG if bench.long else bench.sized(_SHORT)
    cost = Table(f"Ten million contacts, extrapolated from at most {most:,}, 64 in flight", "minutes", (LOOP, "aiohttp loop"))
    growth = Table(f"CPU of a contact in a run of up to {most:,}, times that in a run a tenth as long", "ratio")

    def take(job: Job, figures: Figures) -> None:
        cost.add(job.row, "client CPU", figures["cpu"] * _TEN_MILLION / 60)
        cost.add(job.row, "wall time", figures["wall"] * _TEN_MILLION / 60)
        growth.add(job.row, "growth", figures["growth"])

    rows = present({row: creator.needs for row, creator in _CREATORS.items()})
    counts = {row: most // _CREATORS[row].part for row in rows}
    jobs = [Job(row, "", measure_long, {"row": row, "url": bench.service.url, "count": counts[row]}) for row in rows]
    bench.interleave(jobs, take, rounds=1)
    measured = "; ".join(f"{row}: {count:,}" for row, count in counts.items())
    cost.notes += [f"Measured once, in proportion to the contacts created: {measured}.", _NO_JOURNAL]
    if not bench.long:
        cost.notes.append(f"`--long` extrapolates from {_LONG:,} contacts instead.")
    return [cost, growth]
