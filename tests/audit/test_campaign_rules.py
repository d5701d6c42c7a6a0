"""The rules about campaigns: each fires on its problem, and does not fire just below its threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from support.audit import NOW
from support.campaigns import DAY, USE, campaign, case, judged, row, step, template

from outreach_async.audit import CATALOGUE, RULES, Finding, Policy, explain
from outreach_async.audit.policy import rules_about
from outreach_async.models import Campaign, Step

DOUBTFUL: list[Any] = [-1, math.nan, math.inf, 10**400, "many", None, True]
DRAFT: dict[str, Any] = {"status": "draft", "last_activity": "Never"}


def sent(count: float, **counts: Any) -> list[Step]:
    """Return one step that sent this many e-mails, by default without replies."""
    return [step(template(sent=count, **{"replied_num": 0, "unsubscribed_num": 0, **counts}))]


def waits(*days: float) -> list[Step]:
    return [step(wait_time=each * DAY * 1000) for each in days]


def text(body: str | None, **changes: Any) -> list[Step]:
    return [step(template(subject=None, body_text=body), **changes)]


Subject = Any  # a campaign, its steps, a case, a row, or the use of a workspace

FIRING: dict[str, list[Subject]] = {
    "OA201": [
        campaign(last_activity="5 days ago"),
        case(campaign(last_activity="8 days ago"), waits(3, 3)),
        case(campaign(last_activity="5 days ago"), waits(-1)),
        case(campaign(last_activity="Never"), sent(0)),
        case(campaign(last_activity="Never", created=NOW - 4 * DAY - 1), sent(0)),
    ],
    "OA202": [case(campaign(steps=0), []), campaign(contacts=0)],
    "OA203": [[step(left_to_send=0)]],
    "OA204": [row(planned_end=NOW + 7 * DAY)],
    "OA205": [campaign(**DRAFT, created=NOW - 31 * DAY), campaign(status="draft", last_activity="2 months ago")],
    "OA206": [campaign(status="paused", last_activity="32 days ago")],
    "OA210": [case(campaign(bounces_num=29), sent(1000)), case(campaign(bounces_num=50), sent(50))],
    "OA211": [sent(299), sent(1000, replied_num=4)],
    "OA212": [sent(1000, unsubscribed_num=16), sent(50, unsubscribed_num=50)],
    "OA213": [
        campaign(bounces_num=1001),
        *(campaign(replies_num=figure) for figure in DOUBTFUL),
        *([step(left_to_send=figure)] for figure in DOUBTFUL),
        *(sent(figure) for figure in DOUBTFUL),
    ],
    "OA214": [
        case(campaign(bounces_num=29), sent(1000), predicted=0.0),
        case(campaign(bounces_num=70), sent(1000), predicted=0.03),
        case(campaign(bounces_num=50), sent(50), predicted=0.5),
    ],
    "OA220": [[step(template(status="off"))], [attrs.evolve(step(), templates=[])]],
    "OA221": [[step(status="off")]],
    "OA222": [text("{{frist_name}}"), text("Hello {{Plan}}"), text("{{who knows|friend}}"), text("{{custom_2}}")],
    "OA240": [USE],
    "OA290": [campaign(status="archived"), [step(type="call")]],
}
"""Campaigns, steps or facts that break each rule."""

SILENT: dict[str, list[Subject]] = {
    "OA201": [
        campaign(last_activity="3 days ago"),
        case(campaign(last_activity="7 days ago"), waits(0, 3, 1)),
        case(campaign(last_activity="Never", created=NOW - 4 * DAY), sent(0)),
        case(campaign(last_activity="9 days ago"), [step(left_to_send=0)]),
        case(campaign(last_activity="9 days ago"), None),
        campaign(last_activity="unknown"),
        campaign(status="paused", last_activity="9 days ago"),
    ],
    "OA202": [campaign(), case(campaign(status="draft", steps=0), []), campaign(contacts=-1)],
    "OA203": [[step(left_to_send=1)], case(campaign(status="paused"), [step(left_to_send=0)]), case(campaign(), None)],
    "OA204": [
        row(planned_end=NOW + 7.1 * DAY),
        row(campaign(status="paused"), planned_end=NOW),
        row(end=None, planned_end=NOW),
        row(planned_end=None),
    ],
    "OA205": [
        campaign(**DRAFT, created=NOW - 30 * DAY),
        campaign(status="draft", last_activity="10 days ago"),
        campaign(**DRAFT, created=NOW + DAY),
        campaign(created=NOW - 90 * DAY),
    ],
    "OA206": [
        campaign(status="paused", last_activity="20 days ago"),
        case(campaign(status="paused", last_activity="32 days ago"), [step(left_to_send=0)]),
    ],
    "OA210": [
        case(campaign(bounces_num=28), sent(1000)),
        case(campaign(bounces_num=49), sent(49)),
        case(campaign(bounces_num=-5), sent(1000)),
        case(campaign(bounces_num=51), sent(50)),
        case(campaign(bounces_num=500), sent(0)),
        case(campaign(bounces_num=900), None),
    ],
    "OA211": [
        sent(298),
        sent(1000, replied_num=5),
        case(campaign(created=NOW - 6 * DAY), sent(5000)),
        sent(0),
        sent(-1),
        sent(1000, replied_num=2000),
    ],
    "OA212": [
        sent(1000, unsubscribed_num=15),
        sent(49, unsubscribed_num=40),
        sent(1000, unsubscribed_num=-3),
        sent(50, unsubscribed_num=51),
    ],
    "OA213": [campaign(bounces_num=1000), case(campaign(bounces_num=9000), None)],
    "OA214": [
        campaign(bounces_num=900),
        case(campaign(bounces_num=28), sent(1000), predicted=0.0),
        case(campaign(bounces_num=70), sent(1000), predicted=0.05),
        case(campaign(bounces_num=49), sent(49), predicted=0.0),
        case(campaign(bounces_num=51), sent(50), predicted=0.0),
        case(campaign(bounces_num=-5), sent(1000), predicted=0.0),
        case(campaign(bounces_num=900), None, predicted=0.0),
    ],
    "OA220": [
        [step(template(status="off"), template("B"))],
        [step(template(status="off"), left_to_send=0)],
        [step(template(status="off"), status="off")],
    ],
    "OA221": [[step()], [step(status="off", left_to_send=0)], case(campaign(status="paused"), [step(status="off")])],
    "OA222": [
        text("{{first_name}} {{ FIRST_NAME }} {{company_name|you}} {{custom_1}} {{#if x}} {{>part}} { {x} } {{}}"),
        text(None),
        text("{{frist_name}}", left_to_send=0),
        [step(template(body_text="{{frist_name}}", status="off"))],
        case(campaign(), text("{{frist_name}}"), fields_read=False),
    ],
    "OA240": [
        attrs.evolve(USE, sent_30days=2640),
        attrs.evolve(USE, left_to_send=1999),
        attrs.evolve(USE, mailboxes=0, daily_limit=0, sent_30days=0, campaigns=0, left_to_send=0),
    ],
    "OA290": [campaign(), [step()]],
}
"""Campaigns, steps or facts that do not break the rule, although they may break others."""


def fired(rule: str, subject: Subject) -> bool:
    match subject:
        case Campaign():
            found = case(subject, [step()])
        case list():
            found = case(campaign(), subject)
        case _ if CATALOGUE[rule].scope in {"workspace", "comparison"}:
            return CATALOGUE[rule].applies(subject, CATALOGUE[rule].thresholds) is not None
        case _:
            found = subject
    return rule in judged(found).rows[0].rules


def check(one: Campaign, steps: Sequence[Step], policy: Policy | None = None) -> list[Finding]:
    return judged(case(one, steps), policy=policy).findings


def message(rule: str, subject: Campaign | Sequence[Step]) -> str:
    one, steps = (subject, [step()]) if isinstance(subject, Campaign) else (campaign(), subject)
    (found,) = (each for each in check(one, steps) if each.rule == rule)
    return f"{found.severity} {found.confidence}: {found.message}"


@pytest.mark.parametrize("rule", FIRING)
def test_each_rule_finds_its_problem(rule: str) -> None:
    assert [place for place, subject in enumerate(FIRING[rule]) if not fired(rule, subject)] == []


@pytest.mark.parametrize("rule", SILENT)
def test_each_rule_is_silent_just_below_its_threshold(rule: str) -> None:
    assert [place for place, subject in enumerate(SILENT[rule]) if fired(rule, subject)] == []


def test_every_rule_has_subjects_that_break_it_and_others_that_do_not() -> None:
    assert list(FIRING) == list(SILENT) == sorted(rule.id for rule in RULES if rule.about_campaigns)


@pytest.mark.parametrize(
    ("rule", "subject", "expected"),
    [
        (
            "OA201",
            campaign(last_activity="8 days ago"),
            "error high: no activity for 7 days or more, but 500 e-mails left to send",
        ),
        ("OA202", campaign(contacts=0, steps=0), "warning high: it is live, but has no steps and no contacts"),
        ("OA203", [step(left_to_send=0)], "info high: all 1,000 e-mails are sent, but the campaign is still live"),
        ("OA205", campaign(**DRAFT), "info high: no activity for 60 days or more, and the campaign is still a draft"),
        (
            "OA206",
            campaign(status="paused", last_activity="2 months ago"),
            "info high: no activity for 42 days or more, and 500 e-mails left to send",
        ),
        (
            "OA210",
            campaign(bounces_num=70),
            "error high: 7.0 % bounced (70 of 1,000 e-mails; at least 5.7 % with 95 % confidence)",
        ),
        (
            "OA211",
            sent(1000, replied_num=1),
            "warning high: 0.1 % replied (1 of 1,000 e-mails; at most 0.5 % with 95 % confidence)",
        ),
        (
            "OA212",
            sent(1000, unsubscribed_num=40, replied_num=40),
            "error high: 4.0 % unsubscribed (40 of 1,000 e-mails; at least 3.0 % with 95 % confidence)",
        ),
        ("OA213", campaign(bounces_num=1001), "error high: 1,001 e-mails bounced, but only 1,000 were sent"),
        ("OA213", [step(order=math.nan, left_to_send="x")], "error high: step ?: left_to_send is not a number"),
        (
            "OA213",
            [step(*(template(letter, sent=-1) for letter in "ABCDEF"))],
            "error high: " + ", ".join(f"step 1: template '{letter}': sent is below 0" for letter in "ABCDE") + " and 1 more",
        ),
        ("OA220", [step(template(status="off"))], "error high: step 1 has 1 template, and none is live"),
        ("OA221", [step(status="off")], "warning high: the status of step 1 is 'off', with 500 e-mails left to send"),
        ("OA222", text("{{frist_name}}"), "error high: step 1: no field provides {{frist_name}} (did you mean {{first_name}}?)"),
        ("OA222", text("{{first name}}"), "warning low: step 1: no field provides {{first name}} (did you mean {{first_name}}?)"),
        ("OA222", text("{{Plan}}"), "warning low: step 1: no field provides {{Plan}} (did you mean {{custom_1}}?)"),
        ("OA222", text("{{zzz}}"), "warning low: step 1: no field provides {{zzz}}"),
        (
            "OA222",
            text("".join(f"{{{{unknown {n}}}}}" for n in range(7))),
            "warning low: step 1: no field provides " + ", ".join(f"{{{{unknown {n}}}}}" for n in range(5)) + " and 2 more",
        ),
        ("OA290", [step(type="call")], "info high: a step has the unknown type 'call'"),
        ("OA290", campaign(status="archived"), "info high: its status is 'archived'"),
    ],
)
def test_a_message_has_the_figures(rule: str, subject: Campaign | Sequence[Step], expected: str) -> None:
    assert message(rule, subject) == expected


# The bound reaches 1, 2, 5 and 10 % of 1,000 at 16, 29, 63 and 117 events.
@pytest.mark.parametrize(
    ("rule", "events", "severity"),
    [
        ("OA210", 62, "warning"),
        ("OA210", 63, "error"),
        ("OA210", 116, "error"),
        ("OA210", 117, "critical"),
        ("OA212", 28, "warning"),
        ("OA212", 29, "error"),
    ],
)
def test_a_rate_is_judged_by_its_lower_bound(rule: str, events: int, severity: str) -> None:
    all_found = check(campaign(bounces_num=events), sent(1000, unsubscribed_num=events))
    (found,) = (each for each in all_found if each.rule == rule)
    assert found.severity == severity


def test_a_draft_without_live_templates_is_a_warning_and_without_a_time_not_old() -> None:
    (found,) = check(campaign(status="draft"), [step(template(status="off"))])
    assert (found.rule, found.severity.value) == ("OA220", "warning")
    assert judged(case(campaign(**DRAFT), sent(5000), now=None)).findings == []


def test_the_unused_limits_of_a_workspace_are_described_with_their_figures() -> None:
    def describe(**changes: Any) -> str:
        (rule,) = rules_about(Policy.default(), "workspace")
        violation = rule.applies(attrs.evolve(USE, **changes), rule.thresholds)
        assert violation is not None
        return violation.message

    assert describe() == (
        "2,639 e-mails sent in 30 days, 30.0 % of the 8,800 that 10 mailboxes may send; 2 live campaigns have 2,000 left to send"
    )
    assert describe(mailboxes=1, campaigns=1).endswith("that 1 mailbox may send; 1 live campaign has 2,000 left to send")


def test_the_slip_of_an_end_is_described_in_days() -> None:
    (rule,) = rules_about(Policy.default(), "comparison")
    violation = rule.applies(row(planned_end=NOW + 5.5 * DAY), rule.thresholds)
    assert violation is not None
    assert violation.message == "its estimated end slipped by 4 days since contacts were last added"
    assert violation.figures == {"days": 4}


def test_a_policy_changes_and_turns_off_rules_about_campaigns_and_steps() -> None:
    policy = Policy.of({"off": ["OA222"], "OA210": {"warning": 0.06, "error": 0.07}})
    found = check(campaign(bounces_num=60), text("{{frist_name}}"), policy)
    assert found == []
    assert rules_about(Policy.of({"off": ["OA204", "OA240"]}), "comparison") == ()
    assert "6 %" in explain("OA210", policy)


def test_explain_names_every_severity_that_a_condition_may_choose() -> None:
    assert "Severity: warning to error\n" in explain("OA222")
    assert "Severity: warning to error\n" in explain("OA220")
