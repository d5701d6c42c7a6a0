"""A service that refuses single requests at random, whatever their rate: such refusals must not stop the flow."""

from __future__ import annotations

from functools import partial
from statistics import mean

import anyio
import pytest
from support.flow import Scenario
from support.rates import RateLimitedService, create_client

from outreach_async import NewContact, SharedRate
from outreach_async.testing import VirtualTime

ROWS = 4000
RATE = 900.0


async def create(scene: Scenario, clients: int) -> float:
    """Create contacts with one client, or with several that share a rate, and return the seconds that it takes."""
    service, rate = RateLimitedService(scene), RATE if clients == 1 else SharedRate(limit=RATE)

    async def work(number: int) -> None:
        async with create_client(service, scene.seed + number, rate=rate) as client:
            await client.contacts.create_many(NewContact(f"user{row}@c{number}.example") for row in range(ROWS // clients))

    async with anyio.create_task_group() as group:
        for number in range(clients):
            group.start_soon(work, number)
    return service.now()


def slowdown(backend: str, share: float, asks: float | None, clients: int, seed: int = 1) -> float:
    """Return the seconds as a multiple of the time at the full rate."""
    scene = Scenario(seconds=0, limits=[(0, 1e6)], latency=0.02, random_refusals=share, asks=asks, seed=seed)
    seconds = anyio.run(partial(create, scene, clients), backend=backend, backend_options=VirtualTime().options(backend))
    return seconds / (ROWS / RATE)


@pytest.mark.thorough
@pytest.mark.parametrize("clients", [1, 4])
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_one_random_refusal_in_200_requests_adds_at_most_half_of_the_time(backend: str, clients: int) -> None:
    assert slowdown(backend, 0.005, 0.05, clients) <= 1.5


@pytest.mark.thorough
@pytest.mark.parametrize("clients", [1, 4])
@pytest.mark.parametrize("asks", [0.05, None])
def test_random_refusals_add_as_little_time_on_average(asks: float | None, clients: int) -> None:
    assert mean(slowdown("asyncio", 0.005, asks, clients, seed) for seed in range(2, 6)) <= 1.5
