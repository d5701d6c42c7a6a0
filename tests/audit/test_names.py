"""Names of workspaces stand beside their ids in every view of a report and a brief."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import attrs
import pytest
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families
from support.audit_reports import finding, make_report

from outreach_async import OutreachClient
from outreach_async.audit import Report, audit
from outreach_async.audit.reports import REPORT_FORMATS, schema, write
from outreach_async.audit.reports.brief import Brief, build_brief
from outreach_async.fake import FakeService, FakeTransport

NAMES = {"space_1": "Acme | GmbH", "space_2": "zenith", "space_other": "someone else"}
AUDITED = ["space_1", "space_2", "space_gone"]


def two_workspaces() -> FakeService:
    service = FakeService()
    for number in (1, 2):
        service.add_workspace(f"space_{number}")
        boxes = service.add_mailboxes(f"space_{number}", 2, spf=False)
        campaign = service.add_campaign(f"space_{number}", name="Spring", status="live", mailboxes=boxes, steps=["A"])
        service.add_contacts(f"space_{number}", 5, campaign=campaign)
    return service


async def audited(**options: Any) -> Report:
    service = two_workspaces()
    async with OutreachClient(transport=FakeTransport(service)) as client:
        return await audit(client, AUDITED, campaigns=True, clock=lambda: service.now, **options)


async def test_a_report_has_the_names_of_its_workspaces_only() -> None:
    report = await audited(names=NAMES)
    assert report.names == {"space_1": "Acme | GmbH", "space_2": "zenith"}
    assert [report.name_of(space) for space in AUDITED] == ["Acme | GmbH", "zenith", "space_gone"]
    assert Report.from_dict(json.loads(json.dumps(report.to_dict()))) == report
    Draft202012Validator(schema()).validate(report.to_dict())
    Draft202012Validator(schema(Brief)).validate(json.loads(write(build_brief(report), "json")))


async def test_names_change_nothing_else_in_a_report() -> None:
    assert attrs.evolve(await audited(names=NAMES), names={}) == await audited()


@pytest.mark.parametrize("form", sorted({*REPORT_FORMATS} - {"csv", "prometheus"}))
async def test_every_view_names_the_workspaces_that_it_shows(form: str) -> None:
    report = await audited(names={"space_gone": "Bolt", **NAMES})
    page, brief = write(report, form), write(build_brief(report), form)
    assert ("Bolt" in page, "someone else" in page + brief) == (True, False)
    if form != "json":
        assert "Bolt (space_gone)" in page
        assert "Acme | GmbH (space_1)" in brief


async def test_findings_in_a_spreadsheet_have_the_name_of_their_workspace() -> None:
    rows = list(csv.DictReader(io.StringIO(write(await audited(names=NAMES), "csv"))))
    named = {(row["workspace"], row["workspace_name"]) for row in rows}
    assert named == {("space_1", "Acme | GmbH"), ("space_2", "zenith"), ("space_gone", "")}


async def test_gauges_of_workspaces_have_a_label_with_the_name() -> None:
    samples = [
        sample.labels
        for family in text_string_to_metric_families(write(await audited(names=NAMES), "prometheus"))
        for sample in family.samples
    ]
    of_workspaces = [labels for labels in samples if "workspace" in labels]
    assert {(labels["workspace"], labels["name"]) for labels in of_workspaces} == {
        ("space_1", "Acme | GmbH"),
        ("space_2", "zenith"),
        ("space_gone", "space_gone"),
    }
    assert not any("name" in labels for labels in samples if "workspace" not in labels)


async def test_changes_of_workspaces_are_named() -> None:
    before = await audited(names={"space_1": "old name", "space_2": "zenith"})
    earlier = attrs.evolve(before, workspaces=[*before.workspaces, "space_3"], names={**before.names, "space_3": "left"})
    service = two_workspaces()
    service.add_mailboxes("space_1", 40)
    async with OutreachClient(transport=FakeTransport(service)) as client:
        report = await audit(client, AUDITED, clock=lambda: service.now + 1, names=NAMES)
    compared = report.since(earlier)
    assert "Acme | GmbH" in {delta.name for delta in compared.diff.scores if delta.kind == "workspace"}  # type: ignore[union-attr]  # compared
    assert "only the earlier audit covers left (space_3)" in " ".join(write(compared, "terminal").split())


def test_workspaces_of_the_same_name_stay_two() -> None:
    findings = [finding("OA901", workspace=space, mailbox=None, email=None, domain=None) for space in ("space_1", "space_2")]
    report = attrs.evolve(make_report(findings=findings), names={"space_1": "same", "space_2": "same"})
    (task,) = build_brief(report).tasks
    assert task.groups == [("same", 1), ("same", 1)]
