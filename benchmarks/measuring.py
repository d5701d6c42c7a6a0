"""Measuring inside the client's process: CPU time first, wall time and latencies second."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Literal, TypeVar
from urllib.request import urlopen

T = TypeVar("T")

Loop = Literal["asyncio", "uvloop"]
Once = Callable[[], Awaitable[object]]
"""One request and its answer."""
Opener = Callable[[str, int], AbstractAsyncContextManager[Once]]
"""Makes a client of a URL for so many requests at once, and gives what sends one."""
Whole = Callable[[int], Awaitable[int]]
"""Does a job of so many rows or pages, and returns how many rows or items came of it."""
Figures = dict[str, float]

WARM_UP = 50
"""Requests before the measured ones, beside one for each connection."""


class Spent:
    """What a piece of work took.

    Attributes:
        cpu: Seconds of CPU time of this process, user and system.
        wall: Seconds.
        busy: Percent of a core that the server took meanwhile, where one was used.
    """

    cpu = 0.0
    wall = 0.0
    busy = 0.0

    def each(self, count: int) -> Figures:
        """Return microseconds for each of so many."""
        return {"cpu": 1e6 * self.cpu / count, "wall": 1e6 * self.wall / count, "busy": self.busy}


@contextmanager
def spending() -> Iterator[Spent]:
    """Measure what is done inside; earlier garbage is not counted."""
    spent = Spent()
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    yield spent
    spent.cpu, spent.wall = time.process_time() - cpu, time.perf_counter() - wall


def run(main: Coroutine[Any, Any, T], loop: Loop = "asyncio") -> T:
    """Run to the end in a fresh event loop."""
    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


async def by_workers(once: Once, count: int, concurrency: int) -> list[float]:
    """Send from so many tasks that pull from one source: the least that concurrency costs. Return each request's seconds."""
    left = iter(range(count))
    took: list[float] = []

    async def work() -> None:
        for _ in left:
            began = time.perf_counter()
            await once()
            took.append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())
    return took


async def by_gather(once: Once, count: int, concurrency: int) -> list[float]:
    """Send as applications do: a task for each request, a semaphore, and gather. Return each request's seconds."""
    room = asyncio.Semaphore(concurrency)

    async def one() -> float:
        async with room:
            began = time.perf_counter()
            await once()
            return time.perf_counter() - began

    return await asyncio.gather(*(one() for _ in range(count)))


Driver = Callable[[Once, int, int], Awaitable[list[float]]]


def server_cpu(url: str) -> float:
    """Return the seconds of CPU time that the server has taken so far."""
    with urlopen(f"{url}/cpu") as answer:  # noqa: S310 - our own server
        return float(answer.read())


@contextmanager
def served(url: str) -> Iterator[Spent]:
    """Measure what is done inside, and how busy it keeps the server."""
    before = server_cpu(url)
    with spending() as spent:
        yield spent
    spent.busy = 100 * (server_cpu(url) - before) / spent.wall


async def repeated(opener: Opener, driver: Driver, url: str, count: int, concurrency: int) -> Figures:
    """Return microseconds of CPU and wall time a request, and the median and 99th percentile of their milliseconds."""
    async with opener(url, concurrency) as once:
        await driver(once, concurrency + min(WARM_UP, count), concurrency)
        with served(url) as spent:
            took = await driver(once, count, concurrency)
    hundredths = statistics.quantiles(took, n=100)
    return {**spent.each(count), "p50": 1000 * hundredths[49], "p99": 1000 * hundredths[98]}


async def whole(opener: AbstractAsyncContextManager[Whole], url: str, count: int, expected: int) -> Figures:
    """Do a job twice, the first time to warm up; return microseconds for each of its `count` rows or pages."""
    async with opener as job:
        await job(min(count, 4 * WARM_UP))
        with served(url) as spent:
            done = await job(count)
    assert done == expected, f"{done} instead of {expected}"
    return spent.each(count)


def timed(work: Callable[[], object], seconds: float) -> Figures:
    """Call something again and again for about so long; return microseconds a call."""
    work()
    count, spent = 1, Spent()
    while spent.wall < seconds:
        count *= 2
        with spending() as spent:
            for _ in range(count):
                work()
    return spent.each(count)
