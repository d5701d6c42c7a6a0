from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given
from support.audit import MAILBOXES, NOW, mailbox, mailboxes, reading, report
from support.tables import check_rows

from outreach_async.audit import CATALOGUE, RULES, Finding, Policy, Severity, check
from outreach_async.models import Mailbox

DAY = 86_400
DOUBTFUL = [-1, -0.5, math.nan, math.inf, -math.inf, 10**400]


def aged(days: float, **changes: Any) -> Mailbox:
    return mailbox(created_at=NOW - days * DAY, **changes)


FIRING: dict[str, list[Mailbox]] = {
    "OA101": [mailbox(spf=False)],
    "OA102": [mailbox(dkim=False)],
    "OA103": [mailbox(dmarc=False)],
    "OA104": [mailbox(spf=False, dkim=False, dmarc=False)],
    "OA110": [mailbox(blacklists=1)],
    "OA120": [mailbox(bounced_30days=28)],
    "OA121": [mailbox(bounced_30days=1001), *(mailbox(opened_14days=figure) for figure in DOUBTFUL)],
    "OA130": [mailbox(sent_today=41)],
    "OA131": [mailbox(daily_limit=101), aged(364, daily_limit=41)],
    "OA132": [aged(13, daily_limit=11), aged(27, daily_limit=31), mailbox(created_at=0, age="3 days", daily_limit=40)],
    "OA133": [mailbox(sent_30days=87), mailbox(sent_30days=0)],
    "OA140": [
        mailbox(last_activity="15 days ago"),
        mailbox(last_activity="a month ago"),
        mailbox(last_activity="337 hours ago"),  # 14 days and half an hour or more
        mailbox(last_activity="a month ago", campaigns=1),
    ],
    "OA141": [mailbox(status="error")],
    "OA150": [mailbox(opened_14days=25.7, sent_30days=100)],
    "OA151": [mailbox(avg_open_rate=90.5), mailbox(avg_click_rate=43)],
    "OA160": [mailbox(domain_ip=None)],
    "OA170": mailboxes(6),
    "OA171": [mailbox(sent_30days=110_000, dkim=False)],
    "OA172": [mailbox(id=f"mailbox_{n}", type="SMTP & IMAP", blacklists=n) for n in range(2)],
    "OA190": [mailbox(type="Outlook"), mailbox(status="warming", campaigns=0)],
}
"""Mailboxes that violate each rule: one by one, or together if the rule is about several."""

SILENT: dict[str, list[Mailbox]] = {
    "OA101": [mailbox(dkim=False, dmarc=False)],
    "OA102": [mailbox(spf=False, dmarc=False)],
    "OA103": [mailbox(spf=False, dkim=False)],
    "OA104": [mailbox(spf=False, dkim=False)],
    "OA110": [mailbox(blacklists=0), mailbox(blacklists=-1)],
    "OA120": [mailbox(bounced_30days=19), mailbox(sent_30days=0, bounced_30days=3)],
    "OA121": [mailbox(bounced_30days=1000)],
    "OA130": [mailbox(sent_today=40)],
    "OA131": [mailbox(daily_limit=100), mailbox(daily_limit=5000, type="SMTP & IMAP"), aged(365, daily_limit=41)],
    "OA132": [
        aged(13, daily_limit=10),
        aged(14, daily_limit=30),
        aged(28, daily_limit=40),
        mailbox(created_at=0, age="a month", daily_limit=40),
        mailbox(created_at=0, age="unknown", created="", daily_limit=40),
    ],
    "OA133": [mailbox(sent_30days=88), aged(29, daily_limit=10, sent_30days=0), mailbox(sent_30days=-1)],
    "OA140": [
        mailbox(last_activity="14 days ago"),
        mailbox(last_activity="1 month ago"),  # 14 days or more: half of the shortest month
        mailbox(last_activity="a month ago", campaigns=0),
        mailbox(last_activity="Never"),
    ],
    "OA141": [mailbox(status="error", campaigns=0)],
    "OA150": [
        mailbox(opened_14days=25.8),
        mailbox(opened_14days=0, sent_30days=99),
        mailbox(opened_14days=0, last_activity="20 days ago"),
        mailbox(opened_14days=0, avg_open_rate=0),
    ],
    "OA151": [mailbox(avg_open_rate=90), mailbox(avg_click_rate=42.9), mailbox(avg_open_rate=0, avg_click_rate=0)],
    "OA160": [mailbox(domain_ip="192.0.2.1")],
    "OA170": mailboxes(5),
    "OA171": [mailbox(sent_30days=109_999, dkim=False), mailbox(sent_30days=110_000)],
    "OA172": [mailbox(id=f"mailbox_{n}", type=kind, blacklists=1) for n, kind in enumerate(("Google", "SMTP & IMAP"))],
    "OA190": [mailbox(type="SMTP & IMAP"), mailbox(type="Google")],
}
"""Mailboxes that do not violate the rule, although they may violate others."""


def fired(rule: str, boxes: list[Mailbox]) -> list[bool]:
    """Return whether the rule fires for each mailbox, or for all of them together."""
    if CATALOGUE[rule].scope == "mailbox":
        return [rule in verdicts(box, now=NOW) for box in boxes]
    together = [boxes] if rule != "OA171" else [[box] for box in boxes]
    return [rule in {finding.rule for finding in report(reading(each)).findings} for each in together]


@pytest.mark.parametrize("rule", FIRING)
def test_each_rule_finds_its_problem(rule: str) -> None:
    assert all(fired(rule, FIRING[rule]))


@pytest.mark.parametrize("rule", SILENT)
def test_each_rule_is_silent_just_below_its_threshold(rule: str) -> None:
    assert not any(fired(rule, SILENT[rule]))


def test_every_rule_has_mailboxes_that_violate_it_and_others_that_do_not() -> None:
    assert list(FIRING) == list(SILENT) == sorted(rule.id for rule in RULES if not rule.about_campaigns)
    assert all(FIRING.values())
    assert all(SILENT.values())


def verdicts(box: Mailbox, **about: Any) -> dict[str, str]:
    return {finding.rule: finding.severity.value for finding in check(box, **about)}


def only(box: Mailbox, **about: Any) -> Finding:
    (finding,) = check(box, **about)
    return finding


@pytest.mark.parametrize(("field", "rule"), [("spf", "OA101"), ("dkim", "OA102"), ("dmarc", "OA103")])
def test_missing_authentication_is_critical_at_5000_e_mails_a_day(field: str, rule: str) -> None:
    box = mailbox(**{field: False})
    assert verdicts(box, domain_limit=4999) == {rule: "error"}
    assert verdicts(box, domain_limit=5000) == {rule: "critical"}


def bounced(count: float, sent: int = 1000) -> dict[str, Any]:
    return {"bounced_30days": count, "sent_30days": sent, "daily_limit": 20}


def google(limit: int) -> dict[str, Any]:
    return {"daily_limit": limit, "sent_30days": 20_000}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"spf": False}, {"OA101": "error"}),
        ({"dkim": False}, {"OA102": "error"}),
        ({"dmarc": False}, {"OA103": "error"}),
        (
            {"spf": False, "dkim": False, "dmarc": False},
            {"OA101": "error", "OA102": "error", "OA103": "error", "OA104": "critical"},
        ),
        ({"spf": False, "daily_limit": 5000, "sent_30days": 50_000, "type": "SMTP & IMAP"}, {"OA101": "critical"}),
        ({"blacklists": 2}, {"OA110": "error"}),
        ({"blacklists": 3}, {"OA110": "critical"}),
        # The bound reaches 2, 5 and 10 % of 1,000 at 29, 63 and 117 bounces.
        (bounced(19.99), {}),
        *((bounced(count), {"OA120": "info"}) for count in (20, 28)),
        *((bounced(count), {"OA120": "warning"}) for count in (29, 62)),
        *((bounced(count), {"OA120": "error"}) for count in (63, 116)),
        *((bounced(count, sent), {"OA120": "critical"}) for count, sent in ((117, 1000), (25, 50))),
        (bounced(49, 49), {"OA120": "info"}),
        (bounced(90, 60), {"OA120": "critical", "OA121": "error"}),
        ({"sent_today": 1, "daily_limit": 0}, {"OA130": "error"}),
        *((google(limit), {}) for limit in (40, 100)),
        *((google(limit), {"OA131": "warning"}) for limit in (101, 500)),
        *((google(limit), {"OA131": "error"}) for limit in (501, 2000)),
        (google(2001), {"OA131": "critical"}),
        ({"status": "disconnected", "campaigns": 0}, {"OA190": "info"}),
        ({"status": "disconnected", "campaigns": 1}, {"OA141": "error", "OA190": "info"}),
    ],
)
def test_figures_have_their_severities(changes: dict[str, Any], expected: dict[str, str]) -> None:
    assert verdicts(mailbox(**changes), now=NOW) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spf": False, "daily_limit": 5000, "sent_30days": 50_000}, "may send 5,000 e-mails a day"),
        (bounced(28), "2.8 % bounced in 30 days (28 of 1,000; too few e-mails to be certain)"),
        (bounced(49, 49), "100.0 % bounced in 30 days (49 of 49; too few e-mails to be certain)"),
        ({"sent_today": 41}, "41 e-mails sent today, over the daily limit of 40"),
        ({"status": "disconnected", "campaigns": 1}, "its status is 'disconnected', but the mailbox is in 1 campaign"),
        ({"type": "Outlook", "status": "warming", "campaigns": 0}, "its type is 'Outlook' and its status is 'warming'"),
        ({"avg_click_rate": 44}, "a click rate of 44.0 % with an open rate of 43.0 % indicates automated clicks"),
    ],
)
def test_a_message_has_the_figures(changes: dict[str, Any], message: str) -> None:
    found = check(mailbox(**changes), now=NOW)[0]
    assert message in found.message
    assert (found.confidence == "low") is ("too few" in message)


def test_an_impossible_value_causes_one_finding_and_no_others() -> None:
    def check(field: str, doubtful: float) -> None:
        box = mailbox(**{field: doubtful})

        assert verdicts(box, now=NOW) == {"OA121": "error"}
        assert only(box, now=NOW).message.startswith(f"{field} is ")

    fields = (
        *("campaigns", "daily_limit", "blacklists", "sent_today", "sent_30days", "opened_14days", "sent_90days"),
        *("bounced_30days", "avg_open_rate", "avg_click_rate", "created_at"),
    )
    check_rows(itertools.product(fields, DOUBTFUL), check)


def test_the_age_comes_from_the_creation_time_or_else_from_the_relative_text() -> None:
    young = {"daily_limit": 40, "age": "2 days", "created": "2 days ago"}

    assert "OA132" not in verdicts(mailbox(**young), now=NOW)
    assert verdicts(mailbox(**young)) == {"OA132": "warning"}  # without the current time
    assert verdicts(mailbox(**young, created_at=NOW + DAY), now=NOW) == {"OA132": "warning"}  # a creation time in the future
    assert verdicts(mailbox(**{**young, "age": "Never"})) == {"OA132": "warning"}
    assert only(mailbox(**young)).message == "its daily limit is 40 at an age of 3 days"
    assert only(mailbox(**{**young, "age": "5 minutes"})).message == "its daily limit is 40 at an age of less than a day"


def test_each_workspace_has_the_finding_on_its_domain() -> None:
    shown = [reading(mailboxes(1), workspace=f"space_{n}") for n in (3, 1)]
    found = report(*shown, reading(mailboxes(7)[1:], workspace="space_2"))

    assert [(crowd.workspace, crowd.mailboxes, crowd.sent_30days) for crowd in found.findings] == [
        *(("space_3", 1, 1000), ("space_1", 1, 1000), ("space_2", 6, 6000))
    ]
    for crowd in found.findings:
        assert (crowd.rule, crowd.mailbox, crowd.domain, crowd.figures) == ("OA170", None, "one.example", {"mailboxes": 7})
        assert crowd.message == "7 mailboxes share this domain"


def test_findings_about_several_mailboxes_describe_them() -> None:
    bulk = [mailbox(id=f"mailbox_{n}", sent_30days=60_000, spf=n > 0, dmarc=n > 0) for n in range(2)]
    listed = [mailbox(id=f"mailbox_{n}", email=f"a@d{n}.example", type="SMTP & IMAP", blacklists=n) for n in range(2)]
    shared = report(reading(listed)).findings[-1]

    assert [one.message for one in report(reading(bulk)).findings if one.rule == "OA171"] == [
        "its mailboxes send about 5,454 e-mails per working day; some have no SPF record and some have no DMARC policy"
    ]
    assert (shared.rule, shared.server_ip, shared.domain) == ("OA172", "192.0.2.2", None)
    assert shared.message == "2 mailboxes share this server (blacklisted: 1)"


def test_mailboxes_without_a_domain_share_none() -> None:
    assert report(reading([mailbox(id=f"mailbox_{n}", email="") for n in range(9)])).findings == []


@given(MAILBOXES)
def test_any_mailbox_can_be_judged_and_findings_are_in_table_order(box: Mailbox) -> None:
    found = [finding.rule for finding in check(box, workspace="space_1", now=NOW)]
    assert found == [rule.id for rule in RULES if rule.id in found]
    assert check(box, now=NOW) == check(box, Policy.default(), NOW)


def test_a_finding_says_where_what_and_what_to_do() -> None:
    assert only(mailbox(dmarc=False, email="Ann@One.Example"), workspace="space_7").to_dict() == {
        "rule": "OA103",
        "severity": "error",
        "workspace": "space_7",
        "mailbox": "mailbox_1",
        "email": "Ann@One.Example",
        "domain": "one.example",
        "message": "no DMARC policy",
        "remedy": "Publish a TXT record at `_dmarc.one.example`: `v=DMARC1; p=none; rua=mailto:dmarc@one.example` (or another "
        "address that you read).",
        "confidence": "high",
        "sent_30days": 1000,
        "server_ip": None,
        "mailboxes": None,
        "campaign": None,
        "campaign_name": None,
        "step": None,
        "figures": {},
        "state": None,
    }


@pytest.mark.parametrize("address", ["", "ann", "ann@", "ann@  "])
def test_a_mailbox_whose_address_has_no_domain_is_judged(address: str) -> None:
    found = only(mailbox(email=address, spf=False))
    assert (found.domain, found.email) == (None, address)
    assert found.remedy.startswith("Publish one TXT record at `the domain` that")


def test_every_rule_has_a_description_and_a_source() -> None:
    assert list(CATALOGUE) == [rule.id for rule in RULES] + [name for name in CATALOGUE if name.startswith("OA9")]
    assert all(rule.title and rule.condition and rule.source and rule.remedy.endswith(".") for rule in CATALOGUE.values())


def test_severities_are_ordered_from_the_worst() -> None:
    assert sorted(Severity, key=lambda severity: severity.rank) == ["critical", "error", "warning", "info"]
    assert Severity.CRITICAL.reaches(Severity.ERROR)
    assert Severity.ERROR.reaches(Severity.ERROR)
    assert not Severity.WARNING.reaches(Severity.ERROR)
