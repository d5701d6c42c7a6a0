"""The synchronous client beside the asynchronous one: bulk creation over a real socket, and on the fake in memory."""

from __future__ import annotations

from typing import Final

from benchmarks.groups.rounds import Bench, Job, into, present
from benchmarks.measuring import Figures, run, served, whole
from benchmarks.peers import ours
from benchmarks.results import Table

_CONCURRENCY: Final = 64
_WARM_UP: Final = 200

ASYNC: Final = "create_many"
SYNC: Final = "create_many, SyncClient"
COUNTS: Final = {"httpx": 1_500, "aiohttp": 4_000, "httptools": 8_000, "fake": 5_000}
"""For each transport: the number of contacts in a full round."""


def measure(row: str, url: str, count: int, backend: str, *, journal: bool) -> Figures:
    """Measure one of the clients. Runs in the worker process."""
    if row == ASYNC:
        return run(whole(ours.bulk(backend, url, _CONCURRENCY, journal=journal), url, count, count))
    with ours.sync_bulk(backend, url, _CONCURRENCY, journal=journal) as job:
        job(_WARM_UP)
        with served(url) as spent:
            assert job(count) == count
    return spent.each(count)


def column_of(backend: str, *, journal: bool = False) -> str:
    """Return the column of a transport."""
    return f"{backend}, journal" if journal else backend


def sync(bench: Bench) -> list[Table]:
    """Measure bulk runs of both clients, alternating."""
    table = Table("Bulk creation by the synchronous client, 64 in flight", "CPU of all threads, us a contact", (ASYNC,))
    settings = [
        (backend, journal)
        for backend in present({backend: ours.BACKENDS.get(backend, "") for backend in COUNTS})
        for journal in (False, True)
    ]
    jobs = [
        Job(
            row,
            column_of(backend, journal=journal),
            measure,
            {"row": row, "url": bench.service.url, "count": count, "backend": backend, "journal": journal},
        )
        for backend, journal in settings
        for count in [bench.sized(COUNTS[backend], least=1_000)]
        for row in (ASYNC, SYNC)
    ]
    bench.interleave(jobs, into(table))
    table.notes.append("`fake` is the fake in memory: no socket, and the CPU includes the work of the service.")
    return [table]
