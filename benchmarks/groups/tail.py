"""The slowest rows at a fixed rate, with a journal on a slow disk: how long after its turn the response to a row arrives."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs

from benchmarks.groups.rounds import Bench, Job
from benchmarks.measuring import Figures, run
from benchmarks.results import Table
from benchmarks.workload import ANSWER_FIELDS, CREATED, FIELDS, OWNER_KEY, WORKSPACE, numbered
from outreach_async import OutreachClient, Progress, Request, Response, Store
from outreach_async.store import Identity
from outreach_async.store._writer import JournalWriter

_RATE: Final = 1000
_ROWS: Final = 12_000
_SKIPPED: Final = 2_000
"""Rows until the windows of the journal have grown to the rate."""
_ANSWER: Final = 0.02
"""Seconds that the service takes for a response."""
_COMMIT: Final = 0.05
_LISTED, _ARRIVING = "rows of a list", "rows that arrive one by one"
_NONE, _QUICK, _SLOW = "no journal", "journal", "journal, commits of 50 ms"


@attrs.define(eq=False, slots=False)
class _SlowJournal(Store):
    """A journal on a disk whose commits take a while."""

    def writer(self, identity: Identity, **options: Any) -> JournalWriter:
        writer: Any = super().writer(identity, **options)
        for name in "mark", "record":
            setattr(writer, name, _delayed(getattr(writer, name)))
        return writer  # type: ignore[no-any-return]


def _delayed(write: Callable[..., None]) -> Callable[..., None]:
    def wait_and_write(*arguments: Any) -> None:
        time.sleep(_COMMIT)  # in the thread of the journal
        write(*arguments)

    return wait_and_write


class _Service:
    """A transport whose responses take a while, with the time at which each row was answered."""

    def __init__(self) -> None:
        self.answered: dict[int, float] = {}

    async def send(self, request: Request, progress: Progress, /) -> Response:
        progress.sent = True
        await asyncio.sleep(_ANSWER)
        number = int(json.loads(request.body)["email"].partition("@")[0])
        self.answered[number] = time.perf_counter()
        return Response(201, ANSWER_FIELDS, numbered(CREATED))

    async def aclose(self) -> None: ...


def _row(number: int) -> dict[str, str]:
    return {"email": f"{number}@company.example", **FIELDS}


async def _measure(journal: str, rows: str, count: int) -> Figures:
    service, begun = _Service(), time.perf_counter() + 0.1

    async def arriving() -> AsyncIterator[dict[str, str]]:
        for number in range(count):
            if (wait := begun + number / _RATE - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            yield _row(number)

    def listed() -> Iterator[dict[str, str]]:
        return map(_row, range(count))

    with TemporaryDirectory() as folder:
        store = {_NONE: None, _QUICK: Store(Path(folder, "run.db")), _SLOW: _SlowJournal(Path(folder, "run.db"))}[journal]
        rate = _RATE if rows == _LISTED else None
        async with OutreachClient(transport=service, owner_key=OWNER_KEY, workspace=WORKSPACE, rate=rate) as client:
            source: Any = listed() if rows == _LISTED else arriving()
            async with client.contacts.create_many(source, concurrency=200, journal=store) as outcomes:
                async for _ in outcomes:
                    pass
    times = service.answered
    # A client that sends at its own rate has no schedule but that rate, so its first rows show when the schedule began.
    first = begun if rows == _ARRIVING else min(times[number] - number / _RATE for number in range(_SKIPPED, count)) - _ANSWER
    late = sorted(times[number] - first - number / _RATE for number in range(_SKIPPED, count))
    return {"p50": 1000 * late[len(late) // 2], "p99": 1000 * late[len(late) * 99 // 100], "most": 1000 * late[-1]}


def measure(journal: str, rows: str, count: int) -> Figures:
    """Measure one cell. Runs in the worker process."""
    return run(_measure(journal, rows, count))


def tail(bench: Bench) -> list[Table]:
    """Measure rows at a rate of 1,000 a second, without a journal, with one, and with one on a slow disk."""
    tables = []
    for rows in _LISTED, _ARRIVING:
        table = Table(f"Time from the turn of a row to its response at {_RATE:,} rows/s: {rows}", "ms", (_NONE,))
        count = bench.sized(_ROWS, least=2 * _SKIPPED)
        jobs = [Job(row, rows, measure, {"journal": row, "rows": rows, "count": count}) for row in (_NONE, _QUICK, _SLOW)]

        def take(job: Job, figures: Figures, table: Table = table) -> None:
            for name, value in figures.items():
                table.add(job.row, name, value)

        bench.interleave(jobs, take, rounds=3)
        table.notes.append(f"The service answers after {1000 * _ANSWER:.0f} ms.")
        tables.append(table)
    return tables
