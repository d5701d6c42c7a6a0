"""Campaigns in every output: terminal, Markdown, HTML, CSV, JSON and Prometheus."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from support.audit import NOW
from support.audit_reports import list_actions
from support.campaigns import WORKSPACE_CAMPAIGNS, campaign, case, judged, row, step, template
from support.examples import scaled

from outreach_async.audit import Finding, Report, Scores, Severity
from outreach_async.audit.campaigns import CampaignResults, WorkspaceCampaigns, build_results
from outreach_async.audit.reports import schema, summarize, write

FORMS = ("terminal", "markdown", "html")


def report_of(*found: WorkspaceCampaigns, **about: Any) -> Report:
    """Return the report of an audit that read these campaigns, and no mailboxes."""
    spaces = [f"space_{place}" for place in range(1, len(found) + 1)]
    findings = sorted((each for part in found for each in part.findings), key=lambda each: each.severity.rank)
    values: dict[str, Any] = {"workspaces": spaces, "at": NOW, "campaigns": build_results(spaces, found), **about}
    return Report(mailboxes=0, unreadable=[], findings=findings, scores=Scores(overall=None, workspaces={}, domains={}), **values)


STEPS = [step(template(replied_num=90))]
SPRING = case(campaign(days_left_date=1_800_000_000), STEPS)
EMPTY = case(campaign(id="camp_2", name="", status="live", contacts=0, steps=0), None)


@pytest.mark.parametrize("form", FORMS)
def test_a_report_shows_the_campaigns_that_were_read(form: str) -> None:
    text = " ".join(write(report_of(judged(SPRING, EMPTY)), form).replace("\u00a0", " ").split())
    assert all(part in text for part in ("Spring", "camp_2", "2027-01-15", "2 campaigns (2 live)"))
    assert "Campaigns" not in write(attrs.evolve(report_of(), campaigns=None, not_judged=[]), form)


def test_only_the_worst_campaigns_are_listed_as_text() -> None:
    cases = [case(campaign(id=f"camp_{place}", name=f"C{place}"), STEPS) for place in range(23)]
    assert "and 3 more campaigns." in write(report_of(judged(*cases)), "terminal")


def test_the_verdict_counts_campaigns_with_the_same_name_apart() -> None:
    first, second = (judged(case(campaign(contacts=0)), workspace=space) for space in ("space_1", "space_2"))
    found = report_of(first, second)
    assert summarize(found).verdict == "Watch 2 campaigns; nothing is broken."
    assert summarize(found).size == "0 mailboxes, 0 domains, 2 workspaces, 2 campaigns"
    assert "2 campaigns" in write(found, "terminal")


def test_the_verdict_names_mailboxes_and_campaigns() -> None:
    found = report_of(judged(case(campaign(contacts=0))))
    box: dict[str, Any] = {"mailbox": "mailbox_1", "email": "a@one.example", "domain": "one.example"}
    other = attrs.evolve(found.findings[0], rule="OA150", campaign=None, campaign_name=None, **box)
    both = attrs.evolve(found, findings=[other, *found.findings], actions=list_actions([attrs.evolve(other, sent_30days=9)]))
    assert summarize(both).verdict == "Watch 1 mailbox on 1 domain and 1 campaign; nothing is broken."


def test_a_campaign_with_many_bounces_is_on_the_list_of_what_to_pause() -> None:
    def bounced(count: int, space: str) -> WorkspaceCampaigns:
        return judged(case(campaign(bounces_num=count), STEPS), workspace=space)

    found = report_of(bounced(300, "space_1"), bounced(100, "space_2"))
    remedies = {each.workspace: each.remedy for each in found.findings if each.rule == "OA210"}
    assert remedies["space_1"].startswith("Pause the campaign. Verify the addresses")
    assert remedies["space_2"].startswith("Verify the addresses")
    assert summarize(found).campaign_actions["stop"] == {"space_1": ["Spring"]}
    assert summarize(found).verdict.startswith("Stop sending from 1 campaign until")
    assert "STOP NOW: 1 CAMPAIGN\n  space_1: campaign Spring\n" in write(found, "terminal")


def test_an_audit_of_clean_campaigns_found_no_problems() -> None:
    assert summarize(report_of(judged(case()))).verdict == "No problems found."
    assert summarize(report_of(judged())).verdict == "No mailboxes were checked."


def test_campaigns_that_were_not_read_are_listed_but_unused_limits_are_not() -> None:
    unused = Finding(rule="OA240", severity=Severity.WARNING, workspace="space_1", message="unused", remedy="Use them.")
    unread = attrs.evolve(unused, rule="OA911", severity=Severity.ERROR, message="could not be read")
    texts = [write(attrs.evolve(report_of(judged(case())), findings=[each]), "terminal") for each in (unused, unread)]
    assert ["NOT READ AND NOT CHECKED" in text for text in texts] == [False, True]
    assert "Unused daily limits: space_1" in " ".join(texts[0].split())


def test_missing_figures_are_shown_as_a_dash() -> None:
    unknown = CampaignResults(checked=1, totals={}, rows=[row(campaign(), None, end=None)])
    (line,) = [line for line in write(report_of(campaigns=unknown), "terminal").splitlines() if line.startswith("Spring ")]
    assert line.split() == ["Spring", "live", "-", "-", "10", "-", "-", "-"]


def test_csv_has_the_campaign_and_the_step_of_a_finding() -> None:
    head, *lines = write(report_of(judged(case(campaign(), [step(status="off")]))), "csv").splitlines()
    assert "campaign,campaign_name,step" in head
    assert any("camp_1,Spring,step_1" in line for line in lines)


def test_gauges_add_up_the_campaigns_of_each_workspace() -> None:
    page = write(report_of(judged(SPRING, EMPTY), judged(case(), workspace="space_2")), "prometheus")
    assert 'outreach_audit_workspace_campaigns{workspace="space_1"} 2.0' in page
    assert 'outreach_audit_workspace_campaign_left_to_send_emails{workspace="space_2"} 500.0' in page
    assert "camp_1" not in page
    assert "workspace_campaigns" not in write(attrs.evolve(report_of(), campaigns=None), "prometheus")


@given(WORKSPACE_CAMPAIGNS.map(report_of))
@settings(max_examples=scaled(40))
def test_any_texts_stay_on_their_line_conform_to_the_schema_and_read_back(found: Report) -> None:
    for form in ("terminal", "markdown"):
        assert all(line.isprintable() for line in write(found, form).split("\n"))
    assert all(len(line) <= 80 for line in write(found, "terminal").split("\n"))
    assert "<script>alert" not in write(found, "html")
    values = json.loads(write(found, "json"))
    Draft202012Validator(schema()).validate(values)
    assert Report.from_dict(values).campaigns == found.campaigns
