"""The cost of the client itself, on a transport that does nothing, and its growth with the amount of work."""

from __future__ import annotations

from typing import Final

from benchmarks.groups.rounds import Bench, Job, into
from benchmarks.measuring import Figures, Spent, by_workers, run, spending
from benchmarks.peers import ours
from benchmarks.peers.nothing import NullTransport
from benchmarks.results import Table
from benchmarks.workload import OWNER_KEY, WORKSPACE, Pages
from outreach_async import OutreachClient, Progress, Request

_NULL: Final = "the null transport alone"
_DISPLAY: Final = 100
_ROWS: Final = 20_000
_SIZES: Final = (10_000, 100_000, 1_000_000)
_WALKS: Final = (10, 100, 1_000)


async def _bulk(count: int, concurrency: int) -> Spent:
    rows = list(ours.contacts(count))
    async with ours.bulk("null", "", concurrency, lambda number: rows[:number]) as job:
        await job(1000)
        with spending() as spent:
            assert await job(count) == count
    return spent


async def _long(count: int, concurrency: int) -> Spent:
    async with ours.bulk("null", "", concurrency) as job:
        with spending() as spent:
            assert await job(count) == count
    return spent


async def _singles(count: int, concurrency: int) -> Spent:
    async with ours.create("null", "", concurrency, ours.contact(1)) as once:
        await by_workers(once, 1000, concurrency)
        with spending() as spent:
            await by_workers(once, count, concurrency)
    return spent


async def _nothing(count: int, concurrency: int) -> Spent:
    carrier, request = NullTransport(), Request("POST", "/contacts")
    with spending() as spent:
        await by_workers(lambda: carrier.send(request, Progress()), count, concurrency)
    return spent


async def _walk(count: int, _concurrency: int) -> Spent:
    carrier = NullTransport(Pages(_DISPLAY, count))
    again = max(1, _WALKS[-1] // count)
    async with OutreachClient(transport=carrier, owner_key=OWNER_KEY, workspace=WORKSPACE) as client:
        await client.mailboxes.list(display=_DISPLAY)
        with spending() as spent:
            for _ in range(again):
                items = await client.mailboxes.list(display=_DISPLAY).collect(prefetch=4)
                assert len(items) == count * _DISPLAY
    spent.cpu /= again
    return spent


_WORK: Final = {"contacts.create": _singles, "create_many": _bulk, _NULL: _nothing, "long create_many": _long, "collect": _walk}


def measure(work: str, count: int, concurrency: int) -> Figures:
    """Measure one kind of work. Runs in the worker process."""
    return run(_WORK[work](count, concurrency)).each(count)


def own(bench: Bench) -> list[Table]:
    """Measure the client's own cost per contact."""
    table = Table("The client's own cost, over a transport that answers at once", "CPU, us a contact, by requests in flight")
    arguments = {"count": bench.sized(_ROWS)}
    jobs = [
        Job(work, str(concurrency), measure, {"work": work, "concurrency": concurrency, **arguments})
        for work in (_NULL, "contacts.create", "create_many")
        for concurrency in (1, 64)
    ]
    bench.interleave(jobs, into(table))
    for work in ("contacts.create", "create_many"):
        _subtract(table, work)
    table.notes.append("The contacts are built beforehand. Every outcome is read.")
    return [table]


def _subtract(table: Table, work: str) -> None:
    """Add a row with the cost of the transport subtracted, round by round."""
    for column in table.columns:
        for whole, carried in zip(table.samples[work][column], table.samples[_NULL][column], strict=True):
            table.add(f"{work}, less the transport", column, whole - carried)


def linear(bench: Bench) -> list[Table]:
    """Measure longer and longer runs and lists. The cost per row and page must stay the same."""
    table = Table("Long runs and walks over the null transport", "CPU, us a row or page")
    for work, sizes, unit in (("long create_many", _SIZES, "rows"), ("collect", _WALKS, "pages of 100")):
        counts = [size // 10 for size in sizes[:-1]] if bench.quick else sizes
        jobs = [Job(work, f"{size:,} {unit}", measure, {"work": work, "count": size, "concurrency": 64}) for size in counts]
        bench.interleave(jobs, into(table), rounds=2)
    return [table]
