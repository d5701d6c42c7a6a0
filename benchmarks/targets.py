"""Performance targets: upper or lower bounds of a measurement, or of the ratio of two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from benchmarks.groups.bulk import FLOOR
from benchmarks.groups.parts import DASK, DRIVER, FILE
from benchmarks.groups.posts import ON_TRIO
from benchmarks.groups.startup import DRY_RUN
from benchmarks.groups.sync import ASYNC, COUNTS, SYNC, column_of
from benchmarks.report import short
from benchmarks.results import Table

Cell = tuple[str, str]
"""A row and a column of a table."""


@attrs.frozen
class Target:
    """A performance target.

    Attributes:
        text: Description.
        group: Group of benchmarks, and the index of its table.
        cell: The measurement.
        bound: Upper bound, or lower bound with `is_least`.
        over: Measurement to divide by; `None` for no ratio.
        is_least: Whether `bound` is a lower bound.
    """

    text: str
    group: tuple[str, int]
    cell: Cell
    bound: float
    over: Cell | None = None
    is_least: bool = False

    def value(self, table: Table) -> float | None:
        """Return the measured value; `None` if it was not measured."""
        figure = table.median(*self.cell)
        base = 1.0 if self.over is None else table.median(*self.over)
        return figure / base if figure is not None and base else None

    def judge(self, value: float) -> str:
        """Return the bound and the verdict, as cells of a Markdown table."""
        holds = value >= self.bound if self.is_least else value <= self.bound
        return f"{'>=' if self.is_least else '<='} {short(self.bound)} | {'holds' if holds else 'missed'}"


_LANES: Final = "HttpxTransport"
_LATE: Final = "answers after 20 ms"
_LOOP_64: Final = ("httpx loop", "64")
_LOOP_BULK: Final = ("httpx loop", "asyncio")
_LOOP_AIOHTTP: Final = ("aiohttp loop", "asyncio")
_UNKNOWN: Final = "the same, an unknown field in every mailbox"
_LOOP_WALK: Final = ("httpx loop, dicts", _LATE)
_CLIENT: Final = "from outreach_async import OutreachClient"
_FAST_BULK: Final = ("create_many, aiohttp", "asyncio")
_FAST_WALK: Final = "OutreachClient, aiohttp, prefetch=4"
_FASTEST: Final = "SocketTransport, httptools"
_FASTEST_BULK: Final = "create_many, httptools"
_NO_RATE: Final = ("create_many, null transport", "asyncio")
_HTTPX: Final = ("import httpx", "CPU")
_LONG: Final = "long create_many"
_MSGSPEC: Final = ("msgspec, the same classes", "CPU")
_RESPX: Final = ("httpx on respx, a callback", "CPU")
_CREATE_BY_RESPX: Final = ("contacts.create on respx, a callback", "CPU")
_BESIDE: Final = "a creation, us"

TARGETS: Final = (
    Target("a configured rate / none", ("rates", 0), ("create_many, null transport, rate=", "asyncio"), 1.03, _NO_RATE),
    Target("a shared rate / none", ("rates", 0), ("create_many, null transport, SharedRate", "asyncio"), 1.06, _NO_RATE),
    Target("HttpxTransport / one httpx.AsyncClient, 64 in flight", ("posts", 0), (_LANES, "64"), 0.3, _LOOP_64),
    Target("HttpxTransport p99 / p50, 64 in flight", ("posts", 1), (_LANES, "64: p99"), 2, (_LANES, "64: p50")),
    Target("create_many's own us a contact, 64 in flight", ("own", 0), ("create_many, less the transport", "64"), 25),
    Target("decoding / msgspec into the same classes", ("decode", 0), ("converters.loads", "CPU"), 1.5, _MSGSPEC),
    Target("bytes kept a mailbox", ("decode", 1), ("converters.loads", "kept"), 1000),
    Target("bulk on aiohttp / httpx loop", ("bulk", 0), _FAST_BULK, 1 / 10, _LOOP_BULK),
    Target("bulk on httptools / a typed loop written by hand", ("bulk", 0), (_FASTEST_BULK, "asyncio"), 2.2, (FLOOR, "asyncio")),
    Target("bulk on httptools / aiohttp loop", ("bulk", 0), (_FASTEST_BULK, "asyncio"), 0.45, _LOOP_AIOHTTP),
    Target("bulk on aiohttp / aiohttp loop", ("bulk", 0), _FAST_BULK, 1.25, _LOOP_AIOHTTP),
    Target("a page with an unknown field in every mailbox / msgspec", ("decode", 0), (_UNKNOWN, "CPU"), 2.2, _MSGSPEC),
    Target(
        "SocketTransport, httptools / raw client, 64 in flight",
        ("posts", 0),
        (_FASTEST, "64"),
        2.5,
        ("raw asyncio.Protocol", "64"),
    ),
    Target("SocketTransport, httptools / one httpx.AsyncClient, 64 in flight", ("posts", 0), (_FASTEST, "64"), 0.02, _LOOP_64),
    Target("SocketTransport, httptools, 256 in flight / 64", ("posts", 0), (_FASTEST, "256"), 1.1, (_FASTEST, "64")),
    Target("SocketTransport, httptools / HttpxTransport on trio", ("posts", 0), (_FASTEST, ON_TRIO), 0.25, (_LANES, ON_TRIO)),
    Target(
        "contacts a CPU second on httptools / httpx loop", ("bulk", 1), (_FASTEST_BULK, "asyncio"), 25, _LOOP_BULK, is_least=True
    ),
    Target("the same with a journal", ("bulk", 1), (f"{_FASTEST_BULK}, journal", "asyncio"), 22, _LOOP_BULK, is_least=True),
    *(
        Target(f"SyncClient / OutreachClient in bulk, {column}", ("sync", 0), (SYNC, column), 2, (ASYNC, column))
        for column in (column_of(backend, journal=journal) for backend in COUNTS for journal in (False, True))
    ),
    Target("bulk by default / httpx loop", ("bulk", 0), ("create_many", "asyncio"), 1 / 2.5, _LOOP_BULK),
    Target("walk / httpx loop, wall time", ("walks", 1), ("OutreachClient, prefetch=4", _LATE), 1 / 3, _LOOP_WALK),
    Target("walk on aiohttp / httpx loop, wall time", ("walks", 1), (_FAST_WALK, _LATE), 1 / 3, _LOOP_WALK),
    Target(
        "import outreach_async / import httpx", ("imports", 0), ("import outreach_async", "CPU"), 0.5, ("import httpx", "CPU")
    ),
    Target("importing OutreachClient / import httpx", ("imports", 0), (_CLIENT, "CPU"), 0.5, _HTTPX),
    Target("import --help / import httpx", ("commands", 0), ("outreach-async import --help", "CPU"), 1.2, _HTTPX),
    Target("a dry run of ten rows / import httpx", ("commands", 0), (DRY_RUN, "CPU"), 2.0, _HTTPX),
    Target("ms of mypy without a cache, over an empty file", ("checks", 0), ("import outreach_async", "CPU"), 2000),
    Target("a row of 1,000,000 / of 10,000", ("linear", 0), (_LONG, "1,000,000 rows"), 1.1, (_LONG, "10,000 rows")),
    Target("the fake with a null handler / respx", ("fake", 0), ("FakeTransport, a null handler", "CPU"), 1 / 20, _RESPX),
    Target("a create on the fake / on respx", ("fake", 0), ("contacts.create on the fake", "CPU"), 1 / 4, _CREATE_BY_RESPX),
    Target("a creation beside 100,000 / 1,000", ("fake", 1), (_BESIDE, "100,000 contacts"), 1.3, (_BESIDE, "1,000 contacts")),
    Target("ms of a snapshot of 100,000 contacts", ("fake", 1), ("a snapshot, ms", "100,000 contacts"), 20),
    Target("2,000 mailboxes / json.dumps of them", ("fake", 2), ("served, ms", "CPU"), 3, ("json.dumps of the same, ms", "CPU")),
    Target(
        "bulk on aiohttp with a journal / without, wall time",
        ("journal", 0),
        ("create_many, aiohttp, journal", "wall"),
        1 / 0.85,
        ("create_many, aiohttp", "wall"),
    ),
    Target(
        "a run of 50,000 / of 5,000 with a journal, memory",
        ("memory", 0),
        ("create_many, journal", "50,000 rows"),
        1.1,
        ("create_many, journal", "5,000 rows"),
    ),
    Target("judging 10,000 mailboxes / decoding them", ("audit", 0), ("check of each", "CPU"), 4, ("decoding", "CPU")),
    Target("MiB of auditing 100,000 mailboxes, all with findings", ("audit", 1), ("audit", "100,000 mailboxes"), 200),
    Target("a row of a worker / of create_many, aiohttp", ("parts", 0), (DASK, "aiohttp"), 1.3, (FILE, "aiohttp")),
    Target("a row of the driver / of create_many, aiohttp", ("parts", 0), (DRIVER, "aiohttp"), 0.2, (FILE, "aiohttp")),
    Target("a row of a worker / of create_many, httpx", ("parts", 0), (DASK, "httpx"), 1.3, (FILE, "httpx")),
    Target("a row of the driver / of create_many, httpx", ("parts", 0), (DRIVER, "httpx"), 0.2, (FILE, "httpx")),
    Target("a page of 1,000 / of 10", ("linear", 0), ("collect", "1,000 pages of 100"), 1.1, ("collect", "10 pages of 100")),
)


def judged(found: Mapping[str, list[Table]]) -> Iterator[str]:
    """Yield a Markdown table of the measured targets, with verdicts."""
    yield "## Targets\n\n| | measured | bound | |\n|---|---:|---:|---|"
    for target in TARGETS:
        name, index = target.group
        value = target.value(found[name][index]) if name in found else None
        if value is not None:
            yield f"| {target.text} | {short(value)} | {target.judge(value)} |"
    yield ""
