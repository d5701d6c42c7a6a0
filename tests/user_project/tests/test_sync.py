import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from outreach_async import BulkProgress, BulkSuspended, HttpxTransport, Outcome, OutreachClient
from outreach_async.fake import FakeService, FakeTransport, faults
from outreach_async.testing import VirtualTime

from crm_sync.metrics import Metrics
from crm_sync.sync import sync
from crm_sync.transport import Tagged

CRM = Callable[[int], Path]


@pytest.mark.outreach(world={"workspaces": [{"id": "space_crm", "custom_fields": {"custom_4": "Plan"}}]})
def test_everybody_becomes_a_contact_with_the_plan_in_its_own_field(
    outreach_client: OutreachClient, outreach_fake: FakeService, outreach_workspace: str, crm: CRM, tmp_path: Path
) -> None:
    report = asyncio.run(sync(outreach_client, crm(7), tmp_path / "run.db"))
    assert report.outcomes[Outcome.ADDED] == 7
    assert [contact["fields"]["custom_4"] for contact in outreach_fake.contacts(outreach_workspace)] == ["gold"] * 7


@pytest.mark.asyncio
async def test_progress_is_shown_for_every_hundred_people(outreach_client: OutreachClient, crm: CRM, tmp_path: Path) -> None:
    shown: list[BulkProgress] = []
    await sync(outreach_client, crm(250), tmp_path / "run.db", show=shown.append)
    assert len(shown) == 2
    assert {progress.total for progress in shown} == {250}


@pytest.mark.anyio
@pytest.mark.outreach(faults={"create_contact": [faults.commit_then(faults.reset())]})
async def test_a_lost_response_is_reported(outreach_client: OutreachClient, crm: CRM, tmp_path: Path) -> None:
    messages: list[str] = []
    report = await sync(outreach_client, crm(3), tmp_path / "run.db", complain=messages.append)
    assert (report.uncertain, len(messages)) == (1, 1)
    assert "one of added" in messages[0]


@pytest.mark.anyio
@pytest.mark.outreach(faults={"create_contact": [faults.status(429, retry_after=600)]})
async def test_a_wait_of_ten_minutes_is_respected(
    outreach_client: OutreachClient, outreach_virtual_time: VirtualTime, crm: CRM, tmp_path: Path
) -> None:
    report = await sync(outreach_client, crm(3), tmp_path / "run.db")
    assert report.outcomes[Outcome.ADDED] == 3
    assert outreach_virtual_time.elapsed >= 600


@pytest.mark.anyio
@pytest.mark.outreach(faults={"create_contact": [faults.status(503)] * 200}, unfired="ignore")
async def test_an_outage_suspends_the_run_and_the_next_one_continues(
    outreach_client: OutreachClient,
    outreach_fake: FakeService,
    outreach_workspace: str,
    outreach_virtual_time: VirtualTime,
    crm: CRM,
    tmp_path: Path,
) -> None:
    database = crm(40)
    with pytest.raises(BulkSuspended) as suspended:
        await sync(outreach_client, database, tmp_path / "run.db")
    assert suspended.value.resumable
    outreach_fake.faults.clear()
    report = await sync(outreach_client, database, tmp_path / "run.db")
    assert report.rows == len(outreach_fake.contacts(outreach_workspace)) == 40
    assert outreach_virtual_time.elapsed >= 60


@pytest.mark.anyio
@pytest.mark.outreach(behaviour="pairwise")
async def test_nobody_is_lost_under_any_interpretation_of_the_interface(
    outreach_client: OutreachClient, outreach_fake: FakeService, outreach_workspace: str, crm: CRM, tmp_path: Path
) -> None:
    report = await sync(outreach_client, crm(6), tmp_path / "run.db")
    assert report.rows == len(outreach_fake.contacts(outreach_workspace)) == 6


@pytest.mark.anyio
async def test_people_are_sent_over_a_real_port_and_each_request_names_its_run(
    outreach_url: str, outreach_fake: FakeService, outreach_workspace: str, outreach_owner_key: str, crm: CRM, tmp_path: Path
) -> None:
    tagged = Tagged(HttpxTransport(outreach_url), "nightly")
    async with OutreachClient(transport=tagged, workspace=outreach_workspace, owner_key=outreach_owner_key) as client:
        report = await sync(client, crm(3), tmp_path / "run.db")
    assert report.outcomes[Outcome.ADDED] == len(outreach_fake.contacts(outreach_workspace)) == 3
    assert [request.headers["x-run"] for request in outreach_fake.requests] == ["nightly"] * 4
    assert tagged.slowest > 0


@pytest.mark.anyio
@pytest.mark.outreach(faults={"create_contact": [faults.status(503), faults.ok]})
async def test_metrics_count_rows_retries_and_states(
    outreach_fake: FakeService,
    outreach_workspace: str,
    outreach_owner_key: str,
    outreach_virtual_time: VirtualTime,
    crm: CRM,
    tmp_path: Path,
) -> None:
    metrics = Metrics()
    client = OutreachClient(
        transport=FakeTransport(outreach_fake), workspace=outreach_workspace, owner_key=outreach_owner_key, hooks=[metrics]
    )
    async with client:
        await sync(client, crm(2), tmp_path / "run.db")
    assert metrics.counts["added"] == 2
    assert metrics.counts["status 503"] == 1
    assert metrics.states[0] == "running"
    assert metrics.states[-1] == "finished"
