"""Measure CPU time, wall time and latencies inside the client's process."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Literal, TypeVar
from urllib.request import urlopen

import anyio

T = TypeVar("T")

Loop = Literal["asyncio", "uvloop", "trio"]
Once = Callable[[], Awaitable[object]]
"""Sends one request and reads its response."""
Opener = Callable[[str, int], AbstractAsyncContextManager[Once]]
"""Opens a client for a URL and a number of concurrent requests, and yields a function that sends one request."""
Whole = Callable[[int], Awaitable[int]]
"""Processes a number of rows or pages, and returns the number of resulting rows or items."""
Figures = dict[str, float]

WARM_UP = 50
"""Number of requests before the measured ones, in addition to one per connection."""


class Spent:
    """The cost of a piece of work.

    Attributes:
        cpu: CPU time of this process in seconds, user and system.
        wall: Wall time in seconds.
        busy: CPU usage of the server meanwhile, in percent of a core; 0 without a server.
    """

    cpu = 0.0
    wall = 0.0
    busy = 0.0

    def each(self, count: int) -> Figures:
        """Return the cost in microseconds per unit of work."""
        return {"cpu": 1e6 * self.cpu / count, "wall": 1e6 * self.wall / count, "busy": self.busy}


@contextmanager
def spending() -> Iterator[Spent]:
    """Measure the block. Garbage is collected first, so that earlier work costs nothing here."""
    spent = Spent()
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    yield spent
    spent.cpu, spent.wall = time.process_time() - cpu, time.perf_counter() - wall


def run(main: Coroutine[Any, Any, T], loop: Loop = "asyncio") -> T:
    """Run a coroutine in a new event loop."""
    if loop == "trio":
        return anyio.run(_identity, main, backend="trio")
    factory = None
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


async def _identity(main: Coroutine[Any, Any, T]) -> T:
    return await main


async def by_workers(once: Once, count: int, concurrency: int) -> list[float]:
    """Send requests from a fixed number of tasks, the cheapest way to be concurrent. Return the seconds of each request."""
    left = iter(range(count))
    took: list[float] = []

    async def work() -> None:
        for _ in left:
            began = time.perf_counter()
            await once()
            took.append(time.perf_counter() - began)

    async with anyio.create_task_group() as group:
        for _ in range(concurrency):
            group.start_soon(work)
    return took


async def by_gather(once: Once, count: int, concurrency: int) -> list[float]:
    """Send requests as applications do: one task each, a semaphore and gather. Return the seconds of each request."""
    room = asyncio.Semaphore(concurrency)

    async def one() -> float:
        async with room:
            began = time.perf_counter()
            await once()
            return time.perf_counter() - began

    return await asyncio.gather(*(one() for _ in range(count)))


Driver = Callable[[Once, int, int], Awaitable[list[float]]]


def server_cpu(url: str) -> float:
    """Return the CPU time of the server so far, in seconds."""
    with urlopen(f"{url}/cpu") as answer:  # noqa: S310 - our own server
        return float(answer.read())


@contextmanager
def served(url: str) -> Iterator[Spent]:
    """Measure the block and the CPU usage of the server."""
    before = server_cpu(url)
    with spending() as spent:
        yield spent
    spent.busy = 100 * (server_cpu(url) - before) / spent.wall


async def repeated(opener: Opener, driver: Driver, url: str, count: int, concurrency: int) -> Figures:
    """Return CPU and wall time in microseconds per request, and the median and 99th percentile in milliseconds."""
    async with opener(url, concurrency) as once:
        await driver(once, concurrency + min(WARM_UP, count), concurrency)
        with served(url) as spent:
            took = await driver(once, count, concurrency)
    hundredths = statistics.quantiles(took, n=100)
    return {**spent.each(count), "p50": 1000 * hundredths[49], "p99": 1000 * hundredths[98]}


async def whole(opener: AbstractAsyncContextManager[Whole], url: str, count: int, expected: int) -> Figures:
    """Run a job after a warm-up, and return microseconds per row or page."""
    async with opener as job:
        await job(min(count, 4 * WARM_UP))
        with served(url) as spent:
            done = await job(count)
    assert done == expected, f"{done} instead of {expected}"
    return spent.each(count)


def timed(work: Callable[[], object], seconds: float) -> Figures:
    """Call a function repeatedly for about `seconds`, and return microseconds per call."""
    work()
    count, spent = 1, Spent()
    while spent.wall < seconds:
        count *= 2
        with spending() as spent:
            for _ in range(count):
                work()
    return spent.each(count)
