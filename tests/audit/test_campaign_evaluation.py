"""Rows, comparisons and findings of campaigns, and campaigns in two reports."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.audit import NOW, mailbox
from support.campaigns import DAY, campaign, case, judged, row, step, template, use_of

from outreach_async.audit import CampaignRow, CampaignTotals, Finding, Policy, Report, Scores, Severity
from outreach_async.audit.campaigns import CampaignResults, WorkspaceCampaigns, add_up, build_results

NUMBERS: Any = st.one_of(st.integers(-5, 10**7), st.sampled_from([math.nan, math.inf, -math.inf, 10**400, "x", None, True]))


def compared(*rows: CampaignRow, findings: Sequence[Finding] = (), **about: Any) -> Report:
    results = CampaignResults(checked=len(rows), totals={}, rows=list(rows))
    no_scores = Scores(overall=None, workspaces={}, domains={})
    values: dict[str, Any] = {"at": NOW, "workspaces": ["space_1"], "campaigns": results, **about}
    return Report(mailboxes=0, unreadable=[], findings=list(findings), scores=no_scores, **values)


def test_a_row_has_the_figures_of_the_campaign_and_of_its_steps() -> None:
    steps = [step(template(), template("B", sent=20)), step(template("C", sent=1), left_to_send=7)]
    found = row(campaign(days_left_date=1_800_000_000, replies_num=-1), steps)
    assert (found.sent, found.left_to_send, found.unsubscribed_num) == (1021, 507, 6)
    assert (found.end, found.planned_end, found.replies_num, found.contacts) == (1_800_000_000, 1_800_000_000, None, 1500)
    assert (found.severity, found.rules) == (Severity.ERROR, ["OA213"])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, NOW + 10 * DAY),
        ({"days_left": 0, "days_left_date": "Complete"}, None),
        ({"days_left": 3, "days_left_date": "Complete"}, None),
        ({"days_left": 9999, "days_left_date": "Unknown"}, None),
        ({"days_left": -1}, None),
        ({"days_left": math.nan, "days_left_date": math.nan}, None),
        ({"days_left": 3, "days_left_date": -7}, NOW + 3 * DAY),
    ],
)
def test_the_end_is_a_time_only_if_the_service_estimates_one(changes: dict[str, Any], expected: float | None) -> None:
    assert row(campaign(**changes)).end == expected
    assert judged(case(campaign(days_left=3), now=None)).rows[0].end is None


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_any_figures_are_judged_and_give_json(sent: Any, replied: Any, left: Any, order: Any) -> None:
    templates = [template(sent=sent, replied_num=replied), template("B", sent=left, replied_num=sent)]
    one = campaign(bounces_num=sent, contacts=left, days_left=order, created=replied, days_left_date=left)
    steps = [step(*templates, left_to_send=left, order=order, wait_time=sent)]
    found = judged(case(one, steps, fields_read=False))
    assert msgspec.convert(json.loads(json.dumps(msgspec.to_builtins(found), allow_nan=False)), WorkspaceCampaigns) == found


def test_young_mailboxes_and_young_campaigns_do_not_count_for_the_use_of_limits() -> None:
    boxes = [mailbox(), mailbox(created_at=NOW - 29 * DAY), mailbox(daily_limit=-1, sent_30days=math.nan)]
    young, empty = campaign(created=NOW - 29 * DAY), step(left_to_send=0)
    facts = use_of(boxes, row(), row(young), row(campaign(status="paused")), row(campaign(), [empty]), row(created=None))

    assert (facts.mailboxes, facts.daily_limit, facts.sent_30days) == (2, 40, 1000)
    assert (facts.campaigns, facts.left_to_send) == (1, 500)


def test_the_totals_of_a_workspace_leave_out_unknown_figures() -> None:
    rows = [row(), row(campaign(status="paused", bounces_num=-1)), row(campaign(), None)]
    assert add_up(rows) == CampaignTotals(
        campaigns=3, live=2, contacts=4500, sent=2000, replies_num=120, interested_num=30, bounces_num=10, left_to_send=500
    )


def test_rows_with_findings_come_first_and_then_live_ones() -> None:
    rows = [row(campaign(id="paused", status="paused")), row(campaign(id="live")), row(campaign(id="bad", contacts=0))]
    later = [row(campaign(id="other"))]
    found = build_results(["space_1", "space_2"], [WorkspaceCampaigns(rows=rows), WorkspaceCampaigns(rows=later)])

    assert found is not None
    assert [each.id for each in found.rows] == ["bad", "live", "other", "paused"]
    assert (found.checked, list(found.totals)) == (4, ["space_1", "space_2"])
    assert build_results(["space_1"], [None]) is None


def test_a_planned_end_is_kept_until_contacts_are_added() -> None:
    monday = compared(row(end=100 * DAY, planned_end=100 * DAY))
    tuesday = compared(row(end=102 * DAY, planned_end=102 * DAY), at=NOW + 1).since(monday)
    friday = compared(row(end=104 * DAY, planned_end=104 * DAY), at=NOW + 2).since(tuesday)
    added = compared(row(end=110 * DAY, planned_end=110 * DAY, contacts=1501), at=NOW + 3).since(friday)

    assert [each.campaigns and each.campaigns.rows[0].planned_end for each in (tuesday, friday, added)] == [
        100 * DAY, 100 * DAY, 110 * DAY,
    ]  # fmt: skip
    assert [[finding.rule for finding in each.findings] for each in (tuesday, friday, added)] == [[], ["OA204"], []]
    assert friday.diff is not None
    assert friday.campaigns is not None
    assert [(each.campaign, each.state) for each in friday.diff.new] == [("camp_1", "new")]
    assert (friday.campaigns.rows[0].rules, friday.campaigns.rows[0].severity) == (["OA204"], "warning")
    assert added.diff is not None
    assert [each.rule for each in added.diff.resolved] == ["OA204"]


def test_a_report_compared_twice_has_the_finding_about_the_slip_once() -> None:
    before, after = compared(row(planned_end=0)), compared(row(), at=NOW + 1)
    once = after.since(before)
    assert [each.rule for each in once.since(before).findings] == [each.rule for each in once.findings] == ["OA204"]
    assert once.since(before).campaigns == once.campaigns


def test_a_policy_turns_the_slip_off_and_a_new_campaign_has_none() -> None:
    off = attrs.evolve(compared(row(), at=NOW + 1), policy=Policy.of({"off": ["OA204"]}))
    assert off.since(compared(row(planned_end=0))).findings == []
    assert compared(row(), at=NOW + 1).since(compared(row(id="camp_2", planned_end=0))).findings == []


def finding(rule: str = "OA203", **about: Any) -> Finding:
    subject = {"workspace": "space_1", "campaign": "camp_1", "campaign_name": "Spring", **about}
    return Finding(rule=rule, severity=Severity.ERROR, message="it is", remedy="Mend it.", **subject)


def states(earlier: Report, later: Report) -> dict[str, list[str]]:
    diff = later.since(earlier).diff
    assert diff is not None
    names = ("new", "unchanged", "resolved", "not_judged")
    return {name: [each.campaign or each.rule for each in getattr(diff, name)] for name in names if getattr(diff, name)}


def test_findings_about_campaigns_and_steps_are_matched_by_their_ids() -> None:
    findings = [finding(), finding(campaign="camp_2"), finding("OA220", step="step_1"), finding("OA220", step="step_2")]
    renamed = [attrs.evolve(each, campaign_name="Summer") for each in findings[:3]]

    assert states(compared(findings=findings), compared(findings=renamed)) == {
        "unchanged": ["camp_1", "camp_2", "camp_1"],
        "resolved": ["camp_1"],
    }


@pytest.mark.parametrize(
    ("unread", "expected"),
    [
        ([], "resolved"),
        ([finding("OA914")], "not_judged"),
        ([finding("OA914", campaign="camp_2")], "resolved"),
        ([finding("OA911", campaign=None)], "not_judged"),
        ([finding("OA911", campaign=None, workspace="space_2")], "resolved"),
        ([finding("OA901", campaign=None)], "not_judged"),
    ],
)
def test_a_finding_is_resolved_only_if_its_campaign_was_read(unread: list[Finding], expected: str) -> None:
    found = states(compared(findings=[finding()]), compared(findings=unread))
    assert found[expected] == ["camp_1"]


def test_without_campaigns_no_finding_about_one_is_resolved() -> None:
    workspace = finding("OA240", campaign=None, campaign_name=None)
    assert states(compared(findings=[finding(), workspace]), compared(campaigns=None)) == {"not_judged": ["camp_1", "OA240"]}


def test_unread_campaigns_do_not_affect_findings_about_mailboxes() -> None:
    earlier = compared(findings=[finding("OA170", campaign=None, domain="one.example")])
    assert states(earlier, compared(findings=[finding("OA914")])) == {"new": ["camp_1"], "resolved": ["OA170"]}


def test_changed_figures_name_the_campaign_or_the_step() -> None:
    before = [finding(figures={"sent": 1}), finding("OA220", step="step_1", figures={"n": 1}), finding("MY1", figures={"x": 1})]
    after = [attrs.evolve(each, figures=dict.fromkeys(each.figures, 2)) for each in before]
    diff = compared(findings=after).since(compared(findings=before)).diff

    assert diff is not None
    assert [(each.kind, each.key, each.name) for each in diff.deltas] == [
        ("campaign", "camp_1", "Spring"), ("step", "step_1", "Spring"), ("campaign", "camp_1", "Spring"),
    ]  # fmt: skip


def test_the_number_of_campaigns_is_a_figure_of_the_audit() -> None:
    diff = compared(row(), row(id="camp_2")).since(compared(row())).diff
    assert diff is not None
    assert [(each.kind, each.figure, each.before, each.after) for each in diff.scores] == [("audit", "campaigns", 1, 2)]
