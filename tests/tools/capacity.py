"""Print the capacity table in the guide of `spread`: hours, hosts, and the journal objects and bytes of large imports.

Run: python -m tools.capacity

Below the table, compares the model of journals with imports in virtual time.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Iterator
from typing import Final

import anyio
import attrs

from outreach_async import ObjectJournal, OutreachClient, Progress, Request, Response, Transport
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.fake.faults import latency
from outreach_async.testing import VirtualTime

ROW_CPU: Final = 1_300e-6
"""Seconds of CPU time per row on the default transport, in a Dask worker and the driver: `python -m benchmarks --only spread`."""
PROCESS_MEMORY: Final = 100e6
"""Peak memory of a Dask worker in bytes. It does not grow with the number of rows."""
OBJECT_BYTES: Final = 95
"""Bytes per object of a journal, without its rows; measured with `simulate_objects`."""
ROW_BYTES: Final = 19
"""Bytes per row of a journal, if the service's ids are random and have 24 hexadecimal digits."""

HOST_CPUS: Final = 4
HOST_MEMORY: Final = 16e9
USABLE: Final = 0.7
"""Fraction of a host's CPU time and memory that workers may use."""
PATIENCE: Final = 24 * 3600.0
"""Maximum duration of an import in seconds, unless the permitted rate makes it longer."""
PART_ROWS: Final = 1_000_000
"""Maximum number of rows in a part: the size of a row group that pyarrow writes."""

CASES: Final = (
    (100_000, 1, 10),
    (1_000_000, 1, 100),
    (10_000_000, 1, 100),
    (100_000_000, 1, 100),
    (100_000_000, 1, 2_000),
    (10_000_000, 100, 10),
    (100_000_000, 1_000, 10),
    (100_000_000, 10_000, 10),
)
"""Number of contacts, number of workspaces that share them evenly, and requests per second permitted for each workspace."""


@attrs.frozen
class Capacity:
    """The requirements of an import."""

    workers: int
    hosts: int
    hours: float
    objects: float
    size: float


def plan_capacity(contacts: int, workspaces: int, permitted: float) -> Capacity:
    """Return the requirements of an import that finishes within a day, or as fast as the service permits if that is slower."""
    fastest = USABLE / ROW_CPU
    most = workspaces * math.ceil(permitted / fastest)
    pace = min(permitted, fastest)
    workers = min(most, math.ceil(contacts / (pace * PATIENCE)))
    rate = min(workers * pace, workspaces * permitted)
    hosts = max(rate * ROW_CPU / HOST_CPUS, workers * PROCESS_MEMORY / HOST_MEMORY) / USABLE
    parts = max(workspaces, math.ceil(contacts / PART_ROWS))
    objects = parts * count_objects(contacts / parts, rate / workers)
    return Capacity(workers, math.ceil(hosts), contacts / rate / 3600, objects, objects * OBJECT_BYTES + contacts * ROW_BYTES)


def count_objects(rows: float, rate: float) -> float:
    """Return the number of objects in a journal: batches of outcomes, marks of windows, and four for its start and end."""
    batch = max(1.0, min(rate, 512.0))  # a batch waits at most one second
    window = max(64.0, min(2 * rate, 1000.0))  # the rows sent in two seconds
    return rows / batch + rows / window + 4


class RandomIds:
    """A transport that replaces contact ids with random ids of the service's length, because random ids compress badly."""

    def __init__(self, transport: Transport, seed: int) -> None:
        self._transport = transport
        self._random = random.Random(seed)  # noqa: S311 - reproducible ids, not secrets

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Send a request, and return the response with a random id."""
        response = await self._transport.send(request, progress)
        id_ = b"contact_" + self._random.randbytes(12).hex().encode()
        return attrs.evolve(response, body=re.sub(rb"contact_[0-9a-f]+", id_, response.body))

    async def aclose(self) -> None:
        """Close the transport."""
        await self._transport.aclose()


async def _import(rows: int, rate: float, clock: VirtualTime, url: str) -> None:
    fake = FakeService(clock=clock)
    space = fake.add_workspace()
    fake.faults.add(latency(0.1))
    people = ({"email": f"user{number}@company.example"} for number in range(rows))
    key = fake.add_owner_key(space)
    async with OutreachClient(
        transport=RandomIds(FakeTransport(fake), rows), owner_key=key, workspace=space, rate=rate
    ) as client:
        await client.contacts.create_many(people, journal=ObjectJournal(url, inline=True, clock=anyio.current_time))


def simulate_objects(rows: int, rate: float) -> tuple[int, int]:
    """Import rows at a given rate in virtual time, and return the number of journal objects and their total bytes."""
    clock, url = VirtualTime(), f"memory://capacity-{rows}-{rate:g}"
    anyio.run(_import, rows, rate, clock, url, backend_options=clock.options("asyncio"))
    objects = ObjectJournal(url).objects
    sizes = [len(objects.read(name)) for name in objects.names()]
    return len(sizes), sum(sizes)


def make_table() -> Iterator[str]:
    """Yield the lines of the table in the guide."""
    yield "contacts     workspaces  permitted  workers  hosts  hours  objects  journals"
    for contacts, workspaces, permitted in CASES:
        need = plan_capacity(contacts, workspaces, permitted)
        yield (
            f"{contacts:<11,}  {workspaces:>10,}  {f'{permitted:,}/s':>9}  {need.workers:>7,}  {need.hosts:>5,}"
            f"  {_round(need.hours):>5}  {_round(need.objects):>7}  {_round(need.size / 1e6):>5} MB"
        )


def _round(figure: float) -> str:
    """Return a number with two significant digits."""
    digits = 1 - math.floor(math.log10(figure))
    return f"{round(figure, digits):,.{max(0, digits)}f}"


def main() -> None:
    sys.stdout.write("\n".join(make_table()) + "\n\n")
    for rows, rate in ((600, 1.0), (2_000, 10.0), (5_000, 100.0), (20_000, 1_000.0)):
        objects, size = simulate_objects(rows, rate)
        expected = count_objects(rows, rate)
        sys.stdout.write(
            f"{rows:,} rows at {rate:,g}/s: {objects} objects (model: {expected:.0f}), {size / rows:.1f} bytes/row\n"
        )


if __name__ == "__main__":
    main()
