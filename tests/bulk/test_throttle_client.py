"""The throttle with contacts that are really created: client, bulk run and engine against a simulated service."""

from __future__ import annotations

import anyio
import pytest
from support.flow import Scenario, simulate_whole
from support.time import virtual_time
from support.transport import Script, added, status

from outreach_async import NewContact, Outcome, OutreachClient, Response, RetryPolicy

SCENES = {
    "100/s": (Scenario(seconds=30, limits=[(0, 100)]), 0.04),
    "down for five minutes": (Scenario(seconds=450, limits=[(0, 10)], outages=[(60, 360, "refused")]), 0.08),
    "hanging for five minutes": (Scenario(seconds=480, limits=[(0, 10)], outages=[(60, 360, "hanging")]), 0.08),
}
"""Scenarios with the maximum share of 429 responses: in so short a run, the first attempts of 64 workers are a large part."""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("scene", "backend"),
    [*(("100/s", "asyncio"), ("100/s", "trio")), *(("down for five minutes", "asyncio"), ("hanging for five minutes", "trio"))],
)
def test_a_real_run_behaves_as_the_throttle_promises(scene: str, backend: str) -> None:
    played, refusals = SCENES[scene]
    run = simulate_whole(played, backend)
    assert run.shortfalls(refusals=refusals) == []


@virtual_time
@pytest.mark.parametrize("refusal", [status(429), status(429, retry_after="0")], ids=["no Retry-After", "Retry-After: 0"])
async def test_a_run_whose_first_twenty_requests_are_throttled_ends_in_30_seconds(refusal: Response) -> None:
    script = Script(*[refusal] * 20, added())
    client = OutreachClient(
        transport=script, owner_key="key_1", workspace="space_1", retry=RetryPolicy(jitter=lambda: 1.0), max_in_flight=8
    )
    rows = (NewContact(f"user{number}@a.example") for number in range(300))
    began = anyio.current_time()
    report = await client.contacts.create_many(rows, concurrency=8)
    assert (report.outcomes[Outcome.ADDED], len(script.requests)) == (300, 320)
    assert anyio.current_time() - began <= 30
