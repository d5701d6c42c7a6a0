"""Reading: large pages of mailboxes, as bytes and as models, and lists of a hundred pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

from benchmarks.groups.rounds import RAW, Bench, Job, into, present
from benchmarks.measuring import Figures, Whole, by_workers, repeated, run, whole
from benchmarks.peers import generated, loops, ours, raw
from benchmarks.results import Table
from benchmarks.workload import BIG, page_target, shape

_BIG: Final = shape(BIG, 1)
_TARGET: Final = page_target(_BIG, BIG, 1)
_IN_FLIGHT: Final = 4
_PAGES: Final = 100
_DISPLAY: Final = 500
_DELAY_MS: Final = 20

FETCHES: Final = {
    "httpx loop": ("httpx", partial(loops.fetch, "httpx", _TARGET)),
    "httpx2 loop": ("httpx2", partial(loops.fetch, "httpx2", _TARGET)),
    "aiohttp loop": ("aiohttp", partial(loops.fetch, "aiohttp", _TARGET)),
    "HttpxTransport over a client": ("", partial(ours.fetch, "httpx client", _TARGET)),
    "HttpxTransport": ("", partial(ours.fetch, "httpx", _TARGET)),
    "HttpxTransport, httpx2": ("httpx2", partial(ours.fetch, "httpx2", _TARGET)),
    "AiohttpTransport": ("aiohttp", partial(ours.fetch, "aiohttp", _TARGET)),
    "SocketTransport, httptools": ("httptools", partial(ours.fetch, "httptools", _TARGET)),
    RAW: ("", partial(raw.fetch, _TARGET)),
}

READS: Final = {
    "httpx loop, dicts": ("", partial(loops.fetch, "httpx", _TARGET, parse=True)),
    "aiohttp loop, dicts": ("aiohttp", partial(loops.fetch, "aiohttp", _TARGET, parse=True)),
    "openapi-python-client": ("openapi_python_client", partial(generated.mailboxes, _BIG, BIG)),
    "OutreachClient": ("", partial(ours.mailboxes, "httpx", _BIG, BIG)),
    "OutreachClient, httpx2": ("httpx2", partial(ours.mailboxes, "httpx2", _BIG, BIG)),
    "OutreachClient, aiohttp": ("aiohttp", partial(ours.mailboxes, "aiohttp", _BIG, BIG)),
    "OutreachClient, httptools": ("httptools", partial(ours.mailboxes, "httptools", _BIG, BIG)),
}

Walker = Callable[[str, int, str], AbstractAsyncContextManager[Whole]]
"""Opens a job that reads every page of a workspace at a URL, with a page size."""

WALKS: Final[Mapping[str, tuple[str, Walker]]] = {
    "httpx loop, dicts": ("", partial(loops.walk, "httpx")),
    "aiohttp loop, dicts": ("aiohttp", partial(loops.walk, "aiohttp")),
    "openapi-python-client": ("openapi_python_client", generated.walk),
    "OutreachClient, prefetch=1": ("", partial(ours.walk, "httpx", prefetch=1)),
    "OutreachClient, prefetch=4": ("", partial(ours.walk, "httpx")),
    "OutreachClient, httpx2, prefetch=4": ("httpx2", partial(ours.walk, "httpx2")),
    "OutreachClient, aiohttp, prefetch=4": ("aiohttp", partial(ours.walk, "aiohttp")),
    "OutreachClient, httptools, prefetch=4": ("httptools", partial(ours.walk, "httptools")),
}


def measure_page(row: str, url: str, count: int) -> Figures:
    """Measure the pages of one peer. Runs in the worker process."""
    opener = (FETCHES | READS)[row][1]
    return run(repeated(opener, by_workers, url, count, _IN_FLIGHT))


def measure_walk(row: str, url: str, pages: int, delay_ms: int) -> Figures:
    """Measure one peer on a whole list. Runs in the worker process."""
    job = WALKS[row][1](shape(_DISPLAY, pages, delay_ms), _DISPLAY, url)
    return run(whole(job, url, pages, pages * _DISPLAY))


def pages(bench: Bench) -> list[Table]:
    """Measure pages of 2,000 mailboxes."""
    fetch = Table("A page of 2,000 mailboxes (1.1 MB), bytes only, 4 in flight", "client CPU, us a page", ("httpx loop", RAW))
    read = Table("A page of 2,000 mailboxes, typed, 4 in flight", "client CPU, us a page", ("httpx loop, dicts",))
    for table, peers, count in ((fetch, FETCHES, 100), (read, READS, 30)):
        arguments = {"url": bench.service.url, "count": bench.sized(count, 8)}
        rows = present({row: needs for row, (needs, _) in peers.items()})
        bench.interleave([Job(row, "CPU", measure_page, {"row": row, **arguments}) for row in rows], into(table))
    return [fetch, read]


def walks(bench: Bench) -> list[Table]:
    """Measure lists of a hundred pages of 500 mailboxes, with a server that responds at once or after 20 ms."""
    cpu = Table(f"A walk over {_PAGES} pages of {_DISPLAY} mailboxes", "client CPU, us a page", ("httpx loop, dicts",))
    wall = Table(f"{cpu.title}: wall time", "us a page", ("httpx loop, dicts",))

    def take(job: Job, figures: Figures) -> None:
        cpu.add(job.row, job.column, figures["cpu"])
        wall.add(job.row, job.column, figures["wall"])

    rows = present({row: needs for row, (needs, _) in WALKS.items()})
    arguments = {"url": bench.service.url, "pages": bench.sized(_PAGES)}
    for delay, column in ((0, "answers at once"), (_DELAY_MS, f"answers after {_DELAY_MS} ms")):
        jobs = [Job(row, column, measure_walk, {"row": row, "delay_ms": delay, **arguments}) for row in rows]
        bench.interleave(jobs, take, rounds=2 if delay else 1000)
    return [cpu, wall]
