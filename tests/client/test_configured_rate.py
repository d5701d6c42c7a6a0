"""The configured rate of a client, through the whole client; and reads that are refused."""

from __future__ import annotations

import contextlib
import math
import random
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.flow import Scenario
from support.rates import RateLimitedService, create_client, most_in_excess, run_hosts
from support.time import virtual_time
from support.transport import Script, added, lost, page, status

from outreach_async import InvalidRequest, NewContact, OutreachClient, OutreachError, RateLimited, RetryPolicy, SharedRate
from outreach_async.audit import audit
from outreach_async.testing import VirtualTime


async def mix(rate: float, seed: int, latency: float, in_flight: int) -> list[float]:
    """Use a client and a copy of it concurrently against a service with faults; return when attempts started."""
    chance = random.Random(seed)  # noqa: S311 - a reproducible simulation
    outages: list[Any] = [(at, at + 1, chance.choice(["refused", "503", "429"])) for at in (3.0, 8.0)]
    scene = Scenario(seconds=0, limits=[(0, chance.choice([5, 50, 1e6]))], latency=latency, outages=outages, seed=seed)
    service = RateLimitedService(scene)
    client = create_client(service, seed, rate=rate, max_in_flight=in_flight)
    copy = client.with_options(workspace="space_2")

    async def call(number: int) -> None:
        await anyio.sleep(chance.uniform(0, 10))
        one = chance.choice([client, copy])
        with contextlib.suppress(OutreachError):
            await (one.mailboxes.list() if number % 2 else one.contacts.create(NewContact(f"single{number}@a.example")))

    with anyio.move_on_after(20):
        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(call, number)
            group.start_soon(audit, client, [f"space_{number}" for number in range(30)])
            for one in (client, copy):
                group.start_soon(create_some, one)
    return service.started


async def create_some(client: OutreachClient) -> None:
    await client.contacts.create_many(NewContact(f"user{number}@a.example") for number in range(200))


@pytest.mark.thorough
@settings(max_examples=scaled(25), deadline=None)
@given(
    st.sampled_from([0.3, 1.0, 7.0, 10.0, 33.3, 200.0]),
    st.integers(0, 1000),
    st.sampled_from([0.01, 0.2, 3.0]),
    st.integers(1, 64),
    st.sampled_from(["asyncio", "trio"]),
)
def test_all_calls_together_keep_to_the_configured_rate(
    rate: float, seed: int, latency: float, in_flight: int, backend: str
) -> None:
    run = partial(mix, rate, seed, latency, in_flight)
    starts = anyio.run(run, backend=backend, backend_options=VirtualTime().options(backend))
    assert len(starts) > 1
    assert most_in_excess(starts, rate) <= 1e-6


@pytest.mark.nightly
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_eight_hosts_that_divide_a_limit_get_all_of_it(backend: str) -> None:
    scene = Scenario(seconds=60, limits=[(0, 50)])
    run = partial(run_hosts, scene, 8, rate=50 / 8)
    result = anyio.run(run, backend=backend, backend_options=VirtualTime().options(backend))
    assert result.goodput >= 0.99
    assert result.refusals <= 0.01
    assert result.fairness >= 0.9


@virtual_time
async def test_copies_share_the_rate_and_slots_that_become_free_give_no_burst() -> None:
    script = Script(30.0, added())
    client = OutreachClient(transport=script, owner_key="key_1", workspace="space_1", rate=2.0, max_in_flight=4)
    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        for number in range(8):
            one = client if number % 2 else client.with_options(workspace="space_2")
            group.start_soon(one.contacts.create, NewContact(f"user{number}@a.example"))
    assert [at - began for at in script.times[:4]] == pytest.approx([0, 0.5, 1, 1.5])
    assert most_in_excess(script.times, 2.0) <= 1e-6


@pytest.mark.parametrize("rate", [0, -1, math.nan, math.inf, 10**400, True, "50", SharedRate])
def test_an_invalid_rate_is_refused(rate: Any) -> None:
    with pytest.raises(InvalidRequest, match="rate: expected a finite number of requests per second greater than 0, got"):
        OutreachClient("https://api.example", rate=rate)


def test_the_environment_sets_the_rate_unless_an_argument_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTREACH_RATE", "12.5")
    assert OutreachClient("https://api.example")._engine.limiter.limit == 12.5
    assert OutreachClient("https://api.example", rate=3)._engine.limiter.limit == 3
    monkeypatch.setenv("OUTREACH_RATE", "")
    assert OutreachClient("https://api.example")._engine.limiter.limit is None


@pytest.mark.parametrize("text", ["fast", "0", "nan", "1e999", "-2"])
def test_an_invalid_rate_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OUTREACH_RATE", text)
    with pytest.raises(InvalidRequest, match=f"OUTREACH_RATE: expected a finite number .*, got '{text}'; set it to"):
        OutreachClient("https://api.example")


def client_of(script: Script, **options: Any) -> OutreachClient:
    options = {"retry": RetryPolicy(jitter=lambda: 0.5, budget=50), **options}
    return OutreachClient(transport=script, owner_key="key_1", workspace="space_1", **options)


@virtual_time
@pytest.mark.parametrize("refusal", [status(429), status(429, retry_after="1"), status(503, retry_after="1")], ids=repr)
async def test_a_refused_read_is_retried_until_its_deadline(refusal: Any) -> None:
    script, began = Script(*[refusal] * 8, page()), anyio.current_time()
    await client_of(script).campaigns.list()
    assert len(script.requests) == 9
    endless = Script(refusal)
    began = anyio.current_time()
    with pytest.raises(OutreachError) as caught:
        await client_of(endless).campaigns.list(deadline=60)
    assert caught.value.attempts > 4
    assert 20 <= anyio.current_time() - began <= 60


@virtual_time
async def test_refused_reads_leave_the_retry_budget_to_other_calls() -> None:
    script = Script(*[status(429)] * 12, page())
    client = client_of(script)
    await client.campaigns.list()
    script.entries = [lost(), lost(), lost(), added()]
    assert (await client.contacts.create(NewContact("a@a.example"))).attempts == 4


@virtual_time
async def test_a_refused_creation_or_a_read_without_a_deadline_has_four_attempts() -> None:
    script = Script(status(429))
    with pytest.raises(RateLimited) as caught:
        await client_of(script).contacts.create(NewContact("a@a.example"))
    assert caught.value.attempts == 4
    with pytest.raises(RateLimited) as caught:
        await client_of(script).campaigns.list(deadline=None)
    assert caught.value.attempts == 4


@pytest.mark.thorough
@virtual_time
async def test_two_runs_of_a_client_share_what_they_learn() -> None:
    service = RateLimitedService(Scenario(seconds=0, limits=[(0, 20)]))
    client = create_client(service)
    rows = [NewContact(f"user{number}@a.example") for number in range(400)]
    await client.contacts.create_many(rows)
    refused = len(service.refused)
    await client.contacts.create_many(rows)
    assert len(service.refused) - refused < refused / 4


@virtual_time
async def test_a_paused_run_does_not_hold_up_other_calls() -> None:
    script = Script(lost())
    client = client_of(script)
    async with anyio.create_task_group() as group:
        group.start_soon(partial(client.contacts.create_many(NewContact(f"u{n}@a.example") for n in range(100))._run_to_end))
        await anyio.sleep(5)
        script.entries = [page()]
        began = anyio.current_time()
        await client.campaigns.list()
        assert anyio.current_time() - began < 0.1
        group.cancel_scope.cancel()
