"""Audits that read campaigns from a service: their requests, and reading errors."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from support.audit import NOW, mailbox, mailboxes, wire
from support.campaigns import CampaignService, World, campaign, step, template
from support.time import virtual_time

from outreach_async import OutreachClient, Progress, Request, Response, RetryPolicy
from outreach_async.audit import Policy, Report, audit
from outreach_async.fake import FakeService, FakeTransport

BOXES = [wire(box) for box in mailboxes(3)]


def listed(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [wire(campaign(**{"id": f"camp_{place}", "name": f"C{place}", **each})) for place, each in enumerate(changes)]


def service_of(*changes: dict[str, Any], steps: Any = (), **about: Any) -> CampaignService:
    return CampaignService({"space_1": World(listed(*changes), BOXES, **about)}, dict(steps))


async def read(service: CampaignService, *spaces: str, **options: Any) -> Report:
    async with OutreachClient(transport=service, retry=RetryPolicy(backoff=0.0)) as client:
        return await audit(client, spaces or ["space_1"], **{"campaigns": True, "clock": lambda: NOW, **options})


def shown(report: Report) -> list[tuple[str, str | None]]:
    return [(finding.rule, finding.campaign) for finding in report.findings]


def asked(service: CampaignService, part: str) -> int:
    return sum(part in target for target in service.requests)


async def test_one_steps_request_is_sent_for_each_campaign_and_one_for_the_fields() -> None:
    service = service_of({}, {"status": "draft"}, {"status": "paused"}, {"steps": 0, "status": "paused"})
    report = await read(service)

    assert (asked(service, "/steps"), asked(service, "all-fields"), len(service.requests)) == (3, 1, 6)
    assert report.findings == []
    assert report.campaigns is not None
    assert (report.campaigns.checked, report.exit_code("info")) == (4, 0)
    assert [(row.id, row.sent) for row in report.campaigns.rows] == [
        ("camp_0", 1000), ("camp_1", 1000), ("camp_2", 1000), ("camp_3", None),
    ]  # fmt: skip


async def test_a_name_that_the_service_cut_inside_an_emoji_hides_no_campaign() -> None:
    fake = FakeService(seed=1)
    space = fake.add_workspace()
    fake.add_mailbox(space)
    cut, _ = (fake.add_campaign(space, name=name) for name in ("Sale \ud83d", "Whole"))
    async with OutreachClient(transport=FakeTransport(fake), workspace=space) as client:
        assert {each.name async for each in client.campaigns.list()} == {"Sale \ufffd", "Whole"}
        report = await audit(client, [space], campaigns=True)
        assert (await client.campaigns.steps(cut)).status == "ok"
    assert report.campaigns is not None
    assert (report.campaigns.checked, [finding for finding in report.findings if finding.rule == "OA911"]) == (2, [])


async def test_an_audit_without_campaigns_asks_only_for_mailboxes() -> None:
    service = service_of({})
    report = await read(service, campaigns=False)
    assert (len(service.requests), report.campaigns) == (1, None)
    assert not any("campaigns" in line for line in report.not_judged)


async def test_steps_and_fields_that_no_rule_needs_are_not_requested() -> None:
    plain = [wire(step(template(subject=None, body_text="Hi")))]
    service = service_of({"status": "draft"}, {}, steps={"camp_1": plain})
    await read(service, policy=Policy.of({"off": ["OA220", "OA222"]}))
    assert (asked(service, "/steps"), asked(service, "all-fields")) == (1, 0)

    for steps, policy in (({"camp_0": plain}, Policy.default()), ({}, Policy.of({"off": ["OA222"]}))):
        await read(service := service_of({}, steps=steps), policy=policy)
        assert asked(service, "all-fields") == 0


async def test_findings_name_the_workspace_the_campaign_and_the_step() -> None:
    typo = [wire(step(template(body_text="Hi {{frist_name}}"), id="step_7"))]
    report = await read(service_of({"name": "Summer"}, steps={"camp_0": typo}))

    (finding,) = report.findings
    assert (finding.rule, finding.workspace, finding.campaign, finding.campaign_name, finding.step, finding.mailbox) == (
        "OA222", "space_1", "camp_0", "Summer", "step_7", None,
    )  # fmt: skip
    assert any("Apple Mail" in line for line in report.not_judged)


async def test_campaigns_that_cannot_be_read_are_a_finding_and_mailboxes_are_judged() -> None:
    service = CampaignService({"space_1": World(403, [wire(mailbox(spf=False))]), "space_2": World(listed({}), BOXES)})
    report = await read(service, "space_1", "space_2")

    assert [finding.rule for finding in report.findings] == ["OA101", "OA911"]
    assert "its campaigns could not be read: " in report.findings[1].message
    assert "403" in report.findings[1].message
    assert (report.unreadable, report.denied, report.incomplete, report.exit_code()) == (["space_1"], False, True, 3)
    assert report.campaigns is not None
    assert [report.campaigns.totals[space].campaigns for space in ("space_1", "space_2")] == [0, 1]


async def test_unreadable_and_unlisted_campaigns_are_findings() -> None:
    service = service_of(*({} for _ in range(150)))
    service.worlds["space_1"].uncounted = 100
    broken = listed(*({} for _ in range(150)))
    broken[120] = {"id": "camp_120", "name": "Odd", "steps": "many"}
    service.worlds["space_1"].campaigns = broken

    report = await read(service)

    (odd, missing) = report.findings
    assert (odd.rule, odd.campaign, odd.campaign_name) == ("OA912", "camp_120", "Odd")
    assert "$.data[20]" in odd.message
    assert (missing.rule, missing.message) == (
        "OA913", "the service reports more campaigns than it listed (missing: 100)",
    )  # fmt: skip
    assert report.campaigns is not None
    assert (report.campaigns.checked, report.unreadable, report.exit_code()) == (149, [], 3)


@virtual_time
@pytest.mark.parametrize("status", [404, 500])
async def test_steps_that_cannot_be_read_are_a_finding_and_other_campaigns_are_judged(status: int) -> None:
    report = await read(service_of({}, {"contacts": 0}, {}, steps={"camp_1": status}))

    assert shown(report) == [("OA914", "camp_1"), ("OA202", "camp_1")]
    assert "its steps could not be read: " in report.findings[0].message
    assert str(status) in report.findings[0].message
    assert (report.unreadable, report.exit_code()) == ([], 3)
    assert report.campaigns is not None
    assert sorted((row.id, row.left_to_send) for row in report.campaigns.rows if row.id != "camp_1") == [
        ("camp_0", 500), ("camp_2", 500),
    ]  # fmt: skip


@virtual_time
@pytest.mark.parametrize("status", [403, 500])
async def test_fields_that_cannot_be_read_are_one_finding_however_many_campaigns(status: int) -> None:
    typo = [wire(step(template(body_text="Hi {{frist_name}}")))]
    service = service_of({}, {}, {}, steps=dict.fromkeys(["camp_0", "camp_1", "camp_2"], typo), fields=status)
    report = await read(service)

    assert shown(report) == [("OA915", None)]
    assert "placeholders were not checked" in report.findings[0].message
    assert report.exit_code() == 3


async def test_a_workspace_whose_mailboxes_cannot_be_read_is_not_asked_for_campaigns() -> None:
    service = CampaignService({"space_1": World(listed({}), 403)})
    report = await read(service, "space_1", "camp_1")
    assert [finding.rule for finding in report.findings] == ["OA901", "OA901"]
    assert asked(service, "campaigns") == 0
    assert (report.denied, report.unreadable) == (False, ["space_1", "camp_1"])


@virtual_time
@pytest.mark.parametrize("in_flight", [4, 30])
async def test_steps_are_read_concurrently_within_the_limit_of_the_client(in_flight: int) -> None:
    worlds = {f"space_{n}": World(listed(*({"id": f"camp_{n}_{m}"} for m in range(n * 20))), BOXES) for n in range(1, 4)}
    service = CampaignService(worlds)
    service.latency = 1.0
    async with OutreachClient(transport=service, max_in_flight=in_flight) as client:
        report = await audit(client, worlds, campaigns=True)

    assert report.campaigns is not None
    assert (report.campaigns.checked, service.most_in_flight) == (120, in_flight)


@pytest.mark.thorough
@virtual_time
async def test_only_as_many_campaigns_wait_in_memory_as_the_client_reads_at_once() -> None:
    class Counting(CampaignService):
        most_tasks = 0

        async def send(self, request: Request, progress: Progress, /) -> Response:
            self.most_tasks = max(self.most_tasks, len(anyio.get_running_tasks()))
            return await super().send(request, progress)

    service = Counting(service_of(*({} for _ in range(300))).worlds)
    service.latency = 1.0
    async with OutreachClient(transport=service, max_in_flight=4) as client:
        await audit(client, ["space_1"], campaigns=True)

    assert service.most_tasks < 30


@virtual_time
async def test_campaigns_not_read_before_the_deadline_are_findings() -> None:
    service = service_of(*({} for _ in range(90)))
    service.latency = 1.0
    report = await read(service, deadline=4.5)

    assert {finding.rule for finding in report.findings} == {"OA914"}
    assert 0 < len(report.findings) < 90
    assert "the deadline of 4.5 s for the audit passed" in report.findings[0].message
    assert report.exit_code() == 3
    assert [finding.rule for finding in (await read(service, deadline=1.5)).findings] == ["OA911"]


@pytest.mark.parametrize(
    ("changes", "off", "expected"),
    [
        ({}, [], True),
        ({"steps": 0}, [], False),
        ({"steps": -1}, [], True),
        ({"status": "draft"}, [], True),
        ({"status": "draft"}, ["OA220"], True),
        ({"status": "draft"}, ["OA220", "OA222"], False),
        ({}, ["OA220", "OA222"], True),
    ],
)
async def test_steps_are_read_only_if_a_rule_needs_them(changes: dict[str, Any], off: list[str], expected: bool) -> None:
    service = service_of(changes)
    await read(service, policy=Policy.of({"off": off}))
    assert asked(service, "/steps") == expected


async def test_unused_limits_are_a_finding_about_the_workspace() -> None:
    idle = [wire(box) for box in mailboxes(4, sent_30days=50, daily_limit=20)]
    service = CampaignService({"space_1": World(listed({}), idle)})
    (finding,) = (await read(service)).findings
    assert (finding.rule, finding.campaign, finding.mailbox, finding.workspace) == ("OA240", None, None, "space_1")
    assert finding.figures == {"sent_30days": 200, "daily_limit": 80, "left_to_send": 500}


async def test_limits_are_not_judged_if_not_every_mailbox_was_read() -> None:
    class Failing(CampaignService):
        def _page(self, kind: str, workspace: str, page: int, display: int) -> dict[str, Any] | int:
            return 404 if page == 2 and kind == "mailboxes" else super()._page(kind, workspace, page, display)

    idle = [wire(box) for box in mailboxes(6, sent_30days=50, daily_limit=20)]

    report = await read(Failing({"space_1": World(listed({}), idle)}), display=2)

    assert [finding.rule for finding in report.findings] == ["OA901"]
    assert report.campaigns is not None
    assert report.campaigns.checked == 1


@pytest.mark.parametrize("id_", ["", "camp_/../x", "camp_" + "x" * 5000])
async def test_a_campaign_with_an_odd_id_does_not_stop_the_audit(id_: str) -> None:
    report = await read(service_of({}, {"id": id_}, steps={id_: 404}))
    assert report.campaigns is not None
    assert report.campaigns.checked == 2
    assert {finding.rule for finding in report.findings} <= {"OA914"}
