"""Several clients that create contacts on a simulated service and share one rate, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import count
from typing import Final

import anyio
import attrs
from support.flow import Carrier, Scenario, Service

from outreach_async import NewContact, OutreachClient, Progress, Rate, Request, Response, RetryPolicy, SharedRate
from outreach_async.testing import VirtualTime

WARM_UP: Final = 20.0
"""Seconds in which the clients learn the limit. They are not measured."""
MEASURED: Final = 100.0
"""Seconds that are measured, after the warm-up."""


@attrs.frozen
class Shares:
    """The results of clients that shared a rate."""

    limit: float
    successes: Sequence[Sequence[float]]
    refusals: Sequence[float]

    def counts(self, begins: float = WARM_UP, ends: float = WARM_UP + MEASURED) -> list[int]:
        """Return the number of successes of each client between two times."""
        return [sum(begins <= at < ends for at in each) for each in self.successes]

    def goodput(self, begins: float = WARM_UP, ends: float = WARM_UP + MEASURED) -> float:
        """Return the successes between two times as a fraction of the requests that the service allowed."""
        return sum(self.counts(begins, ends)) / (self.limit * (ends - begins))

    def refused(self, begins: float = WARM_UP, ends: float = WARM_UP + MEASURED) -> float:
        """Return the 429 responses between two times as a fraction of all responses."""
        refusals = sum(begins <= at < ends for at in self.refusals)
        return refusals / max(1, refusals + sum(self.counts(begins, ends)))

    def fairness(self) -> float:
        """Return the successes of the slowest client divided by those of the fastest."""
        return min(self.counts()) / max(self.counts())


class CountingCarrier(Carrier):
    """The transport of one client to the simulated service. It records the times of the client's successes."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.succeeded: list[float] = []

    async def send(self, request: Request, progress: Progress, /) -> Response:
        response = await super().send(request, progress)
        if response.status < 300:
            self.succeeded.append(self.service.now())
        return response


async def create_contacts(carrier: CountingCarrier, rate: Rate | None, seed: int) -> None:
    """Create contacts until cancelled."""
    client = OutreachClient(
        transport=carrier,
        owner_key="key_1",
        workspace="space_1",
        rate=rate,
        retry=RetryPolicy(jitter=random.Random(seed).random),  # noqa: S311 - a simulation that can be repeated
    )
    rows = (NewContact(f"user{number}@a.example") for number in count())
    async with client, client.contacts.create_many(rows) as outcomes:
        async for outcome in outcomes:
            assert outcome.certain, outcome


async def play(scene: Scenario, lifetimes: Sequence[tuple[float, float]], rate: Rate | None) -> Shares:
    """Run one client per lifetime, given as the seconds of its start and end, and return the results."""
    service = Service(scene)
    carriers = [CountingCarrier(service) for _ in lifetimes]

    async def live(number: int) -> None:
        begins, ends = lifetimes[number]
        await anyio.sleep(begins)
        with anyio.move_on_after(ends - begins):
            await create_contacts(carriers[number], rate, 1000 * scene.seed + number)

    async with anyio.create_task_group() as clients:
        for number in range(len(lifetimes)):
            clients.start_soon(live, number)
    return Shares(scene.limits[0][1], [carrier.succeeded for carrier in carriers], [at for at, _ in service.refused])


def simulate_shares(
    limit: float, clients: int, *, retry_after: float | None = None, seed: int = 0, backend: str = "asyncio"
) -> Shares:
    """Run clients through the warm-up and the measured time, and return the results."""
    scene = Scenario(seconds=WARM_UP + MEASURED, limits=[(0, limit)], asks=retry_after, seed=seed)
    starts = random.Random(seed)  # noqa: S311 - a simulation that can be repeated
    lifetimes = [(starts.random(), scene.seconds) for _ in range(clients)]
    options = VirtualTime().options(backend)

    async def run() -> Shares:
        return await play(scene, lifetimes, SharedRate())

    return anyio.run(run, backend=backend, backend_options=options)
