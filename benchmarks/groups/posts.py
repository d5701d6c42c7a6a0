"""Single creations over keep-alive connections by concurrency: bytes to bytes, and with models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from typing import Final

import attrs

from benchmarks.groups.rounds import RAW, Bench, Busy, Job, present
from benchmarks.measuring import Driver, Figures, Loop, Opener, by_gather, by_workers, repeated, run
from benchmarks.peers import generated, loops, ours, raw
from benchmarks.results import Table


@attrs.frozen
class Peer:
    """A peer to compare with.

    Attributes:
        opener: Opens its client.
        driver: Runs its requests concurrently.
        count: Requests in a full round, which takes about half a second.
        needs: Module that must be installed; empty for none.
        most: Highest concurrency to measure. Some peers take very long beyond it.
        on_trio: Whether to measure it on trio as well.
    """

    opener: Opener
    driver: Driver
    count: int
    needs: str = ""
    most: int = 256
    on_trio: bool = False


POSTS: Final[Mapping[str, Peer]] = {
    "httpx loop": Peer(partial(loops.post, "httpx"), by_gather, 300),
    "httpx loop, a connection each": Peer(partial(loops.post, "httpx, a connection each"), by_gather, 100, most=64),
    "httpx loop, a client each": Peer(partial(loops.post, "httpx, a client each"), by_gather, 600),
    "httpx2 loop": Peer(partial(loops.post, "httpx2"), by_gather, 400, "httpx2"),
    "aiohttp loop": Peer(partial(loops.post, "aiohttp"), by_gather, 3000, "aiohttp"),
    "HttpxTransport over a client": Peer(partial(ours.post, "httpx client"), by_workers, 300),
    "HttpxTransport": Peer(partial(ours.post, "httpx"), by_workers, 1200, on_trio=True),
    "HttpxTransport, httpx2": Peer(partial(ours.post, "httpx2"), by_workers, 1200, "httpx2"),
    "AiohttpTransport": Peer(partial(ours.post, "aiohttp"), by_workers, 3000, "aiohttp"),
    "SocketTransport": Peer(partial(ours.post, "sockets"), by_workers, 4000, on_trio=True),
    "SocketTransport, httptools": Peer(partial(ours.post, "httptools"), by_workers, 6000, "httptools", on_trio=True),
    RAW: Peer(raw.post, by_workers, 8000),
}

CREATES: Final[Mapping[str, Peer]] = {
    "httpx loop": Peer(partial(loops.create, "httpx"), by_gather, 300),
    "httpx loop, a client each": Peer(partial(loops.create, "httpx, a client each"), by_gather, 600),
    "httpx2 loop": Peer(partial(loops.create, "httpx2"), by_gather, 400, "httpx2"),
    "aiohttp loop": Peer(partial(loops.create, "aiohttp"), by_gather, 3000, "aiohttp"),
    "openapi-python-client": Peer(generated.create, by_gather, 300, "openapi_python_client"),
    "OutreachClient": Peer(partial(ours.create, "httpx"), by_gather, 1200),
    "OutreachClient, httpx2": Peer(partial(ours.create, "httpx2"), by_gather, 1200, "httpx2"),
    "OutreachClient, aiohttp": Peer(partial(ours.create, "aiohttp"), by_gather, 3000, "aiohttp"),
    "OutreachClient, httptools": Peer(partial(ours.create, "httptools"), by_gather, 5000, "httptools"),
    "OutreachClient, null transport": Peer(partial(ours.create, "null"), by_gather, 5000),
    RAW: Peer(raw.post, by_workers, 8000),
}

ON_TRIO: Final = "64 on trio"
"""The column of the peers that run on trio."""

_QUICK: Final = (1, 64)
"""Concurrencies to measure in a quick run."""

_PEERS: Final = {"posts": POSTS, "creates": CREATES}


def measure(*, kind: str, row: str, url: str, concurrency: int, count: int, loop: Loop) -> Figures:
    """Measure one peer. Runs in the worker process."""
    peer = _PEERS[kind][row]
    return run(repeated(peer.opener, peer.driver, url, count, concurrency), loop)


def posts(bench: Bench) -> list[Table]:
    """Measure creations with bytes in and bytes out."""
    return _measured(bench, "posts", "Single POSTs, bytes in and bytes out", [1, 16, 64, 256])


def creates(bench: Bench) -> list[Table]:
    """Measure creations with a contact in and a result out."""
    return _measured(bench, "creates", "Single creations, contact in and result out", [1, 64])


def _measured(bench: Bench, kind: str, title: str, concurrencies: list[int]) -> list[Table]:
    peers = _PEERS[kind]
    cpu = Table(title, "client CPU, us a request, by requests in flight", ("httpx loop", RAW))
    latency = Table(f"{title}: latency", "ms, by requests in flight")
    busy = Busy()

    def take(job: Job, figures: Figures) -> None:
        cpu.add(job.row, job.column, figures["cpu"])
        busy.add(job, figures)
        if "on" not in job.column:
            latency.add(job.row, f"{job.column}: p50", figures["p50"])
            latency.add(job.row, f"{job.column}: p99", figures["p99"])

    bench.interleave(_jobs(bench, kind, concurrencies), take)
    cpu.notes.append(busy.said())
    cpu.notes.append(
        "The httpx loops use the default limits of httpx, which cost less than one connection per request in flight."
    )
    cpu.notes.append("Loops and clients: one task per request, a semaphore and gather. Transports alone: worker tasks.")
    assert set(cpu.samples) <= set(peers)
    return [cpu, latency]


def _jobs(bench: Bench, kind: str, concurrencies: list[int]) -> list[Job]:
    settings: list[tuple[str, int, Loop]] = [(str(number), number, "asyncio") for number in concurrencies]
    settings = [setting for setting in settings if not bench.quick or setting[1] in _QUICK]
    if find_spec("uvloop") and not bench.quick:
        settings.append(("64 on uvloop", 64, "uvloop"))
    if find_spec("trio") and kind == "posts":
        settings.append((ON_TRIO, 64, "trio"))
    peers = _PEERS[kind]
    return [
        Job(
            row,
            column,
            measure,
            {"kind": kind, "row": row, "url": bench.service.url, "loop": loop, **_size(bench, peers[row], most)},
        )
        for column, most, loop in settings
        for row in present(
            {row: peer.needs for row, peer in peers.items() if most <= peer.most and (loop != "trio" or peer.on_trio)}
        )
    ]


def _size(bench: Bench, peer: Peer, concurrency: int) -> dict[str, int]:
    return {"concurrency": concurrency, "count": bench.sized(peer.count, concurrency)}
