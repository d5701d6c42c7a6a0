"""The cost of a rate limit that is never reached: bulk runs with none, with a configured one, and with a shared one."""

from __future__ import annotations

from typing import Final

from benchmarks.groups.rounds import Bench, Job, present
from benchmarks.measuring import Figures, Loop, run, whole
from benchmarks.peers import ours
from benchmarks.results import Table
from outreach_async import Rate, SharedRate

_CONCURRENCY: Final = 64
_ROWS: Final = 30_000
_UNREACHED: Final = 1e6
_NONE: Final = "create_many, null transport"

_RUNS: Final = {
    _NONE: ("null", "none"),
    "create_many, null transport, rate=": ("null", "configured"),
    "create_many, null transport, SharedRate": ("null", "shared"),
    "create_many, httptools": ("httptools", "none"),
    "create_many, httptools, rate=": ("httptools", "configured"),
    "create_many, httptools, SharedRate": ("httptools", "shared"),
    "create_many, aiohttp": ("aiohttp", "none"),
    "create_many, aiohttp, rate=": ("aiohttp", "configured"),
    "create_many, aiohttp, SharedRate": ("aiohttp", "shared"),
}


def measure(row: str, url: str, count: int, loop: Loop) -> Figures:
    """Measure one of them. Runs in the worker process."""
    backend, kind = _RUNS[row]
    rates: dict[str, float | Rate | None] = {"none": None, "configured": _UNREACHED, "shared": SharedRate(limit=_UNREACHED)}
    return run(whole(ours.bulk(backend, url, _CONCURRENCY, rate=rates[kind]), url, count, count), loop)


def rates(bench: Bench) -> list[Table]:
    """Measure runs without a rate, and with one that they never reach."""
    table = Table("Bulk runs with a rate that is never reached, 64 in flight", "client CPU, us a contact", (_NONE,))
    count = bench.sized(_ROWS, least=1000)
    jobs = [
        Job(row, loop, measure, {"row": row, "url": bench.service.url, "count": count, "loop": loop})
        for row in present({row: ours.BACKENDS.get(backend, "") for row, (backend, _) in _RUNS.items()})
        for loop in ("asyncio", "uvloop")
    ]
    bench.interleave(jobs, lambda job, figures: table.add(job.row, job.column, figures["cpu"]))
    return [table]
