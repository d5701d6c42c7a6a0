from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from support_audit import MAILBOXES, mailbox

from outreach_async.audit import CATALOGUE, RULES, DomainFacts, Finding, Severity, check
from outreach_async.models import Mailbox


def verdicts(box: Mailbox, **about: Any) -> dict[str, str]:
    return {finding.rule: finding.severity.value for finding in check(box, **about)}


def only(box: Mailbox, **about: Any) -> Finding:
    (finding,) = check(box, **about)
    return finding


def test_a_healthy_mailbox_has_no_finding() -> None:
    assert check(mailbox()) == []


@pytest.mark.parametrize(("field", "rule"), [("spf", "OA101"), ("dkim", "OA102"), ("dmarc", "OA103")])
def test_a_missing_proof_of_the_sender_is_an_error(field: str, rule: str) -> None:
    assert verdicts(mailbox(**{field: False})) == {rule: "error"}


@pytest.mark.parametrize(("field", "rule"), [("spf", "OA101"), ("dkim", "OA102"), ("dmarc", "OA103")])
def test_a_missing_proof_is_critical_where_the_domain_may_send_5000_a_day(field: str, rule: str) -> None:
    box = mailbox(**{field: False})

    assert verdicts(box, domain=DomainFacts(daily_limit=4999)) == {rule: "error"}
    assert verdicts(box, domain=DomainFacts(daily_limit=5000)) == {rule: "critical"}


def test_without_facts_a_domain_is_taken_to_send_from_the_one_mailbox() -> None:
    assert verdicts(mailbox(spf=False, daily_limit=5000)) == {"OA101": "critical"}
    assert "5,000 e-mails a day" in only(mailbox(spf=False, daily_limit=5000)).message


def test_a_mailbox_without_any_proof_is_critical_and_has_each_lack_named() -> None:
    box = mailbox(spf=False, dkim=False, dmarc=False)

    assert verdicts(box) == {"OA101": "error", "OA102": "error", "OA103": "error", "OA104": "critical"}
    assert "OA104" not in verdicts(mailbox(spf=False, dkim=False))


@pytest.mark.parametrize(
    ("lists", "expected"), [(0, {}), (1, {"OA110": "error"}), (2, {"OA110": "error"}), (3, {"OA110": "critical"})]
)
def test_one_blacklist_is_an_error_and_three_are_critical(lists: int, expected: dict[str, str]) -> None:
    assert verdicts(mailbox(blacklists=lists)) == expected


# The bound reaches t when the rate reaches t + 1.645 * sqrt(t * (1 - t) / 1000): 2, 5 and 10 % at 27.3, 61.3 and 115.6 bounces.
@pytest.mark.parametrize(
    ("bounced", "severity", "confidence"),
    [
        (20, "info", "low"),
        (27, "info", "low"),
        (28, "warning", "high"),
        (61, "warning", "high"),
        (62, "error", "high"),
        (115, "error", "high"),
        (116, "critical", "high"),
    ],
)
def test_bounces_are_as_bad_as_their_lower_bound_proves(bounced: int, severity: str, confidence: str) -> None:
    found = only(mailbox(sent_30days=1000, bounced_30days=bounced))

    assert (found.rule, found.severity, found.confidence) == ("OA120", severity, confidence)


def test_bounces_below_two_percent_are_no_finding() -> None:
    assert check(mailbox(sent_30days=1000, bounced_30days=19)) == []
    assert check(mailbox(sent_30days=1000, bounced_30days=19.99)) == []


def test_fewer_than_fifty_e_mails_prove_no_bounce_rate() -> None:
    assert verdicts(mailbox(sent_30days=50, bounced_30days=25)) == {"OA120": "critical"}

    found = only(mailbox(sent_30days=49, bounced_30days=49))

    assert (found.severity, found.confidence) == (Severity.INFO, "low")
    assert found.message == "100.0 % bounced in 30 days (49 of 49; too few to be sure)"


def test_more_bounces_than_e_mails_are_judged_as_if_all_bounced() -> None:
    assert verdicts(mailbox(sent_30days=60, bounced_30days=90)) == {"OA120": "critical"}


def test_a_mailbox_that_sent_nothing_has_no_bounce_rate() -> None:
    assert check(mailbox(sent_30days=0, bounced_30days=3)) == []


def test_more_e_mails_today_than_the_limit_allows_are_an_error() -> None:
    assert check(mailbox(sent_today=40, daily_limit=40)) == []
    assert only(mailbox(sent_today=41, daily_limit=40)).message == "41 e-mails sent today, over the daily limit of 40"
    assert verdicts(mailbox(sent_today=41, daily_limit=40)) == {"OA130": "error"}
    assert verdicts(mailbox(sent_today=1, daily_limit=0)) == {"OA130": "error"}


def test_a_mailbox_that_is_not_active_is_an_error_only_while_campaigns_use_it() -> None:
    assert check(mailbox(status="disconnected", campaigns=0)) == []
    assert verdicts(mailbox(status="disconnected", campaigns=1)) == {"OA141": "error"}
    assert only(mailbox(status="disconnected", campaigns=1)).message == "its status is 'disconnected' while 1 campaign may use it"


def test_a_long_status_is_cut_in_the_message() -> None:
    assert len(only(mailbox(status="x" * 5000)).message) < 100


@pytest.mark.parametrize("doubtful", [-1, -0.5, math.nan, math.inf, -math.inf, 10**400])
@pytest.mark.parametrize(
    "field", ["campaigns", "daily_limit", "blacklists", "sent_today", "sent_30days", "bounced_30days", "sent_90days"]
)
def test_a_figure_that_counts_nothing_is_no_reason_for_a_finding(field: str, doubtful: float) -> None:
    assert check(mailbox(**{field: doubtful})) == []


@given(MAILBOXES)
def test_any_mailbox_can_be_judged_and_the_findings_follow_the_table(box: Mailbox) -> None:
    found = [finding.rule for finding in check(box, workspace="space_1")]

    assert found == [rule.id for rule in RULES if rule.id in found]
    assert check(box, workspace="space_1") == check(box, workspace="space_1")


def test_a_finding_says_where_what_and_what_to_do() -> None:
    assert only(mailbox(dmarc=False, email="Ann@One.Example"), workspace="space_7").to_dict() == {
        "rule": "OA103",
        "severity": "error",
        "workspace": "space_7",
        "mailbox": "mailbox_1",
        "email": "Ann@One.Example",
        "domain": "one.example",
        "message": "no DMARC policy",
        "remedy": "Publish a TXT record at _dmarc.one.example: v=DMARC1; p=none; rua=mailto: and an address whose reports are "
        "read.",
        "confidence": "high",
        "sent_30days": 1000,
    }


@pytest.mark.parametrize("address", ["", "ann", "ann@", "ann@  "])
def test_an_address_without_a_domain_is_judged_all_the_same(address: str) -> None:
    found = only(mailbox(email=address, spf=False))

    assert (found.domain, found.email) == (None, address)
    assert "<domain>" in found.remedy


def test_every_rule_of_the_table_says_what_it_is_and_where_it_comes_from() -> None:
    assert [rule.id for rule in RULES] == ["OA101", "OA102", "OA103", "OA104", "OA110", "OA120", "OA130", "OA141"]
    assert list(CATALOGUE) == [*(rule.id for rule in RULES), "OA901", "OA902", "OA903"]
    for rule in CATALOGUE.values():
        assert rule.title
        assert rule.condition
        assert rule.source
        assert rule.remedy.endswith(".")


def test_severities_are_ordered_from_the_worst() -> None:
    assert sorted(Severity, key=lambda severity: severity.rank) == ["critical", "error", "warning", "info"]
    assert Severity.CRITICAL.reaches(Severity.ERROR)
    assert Severity.ERROR.reaches(Severity.ERROR)
    assert not Severity.WARNING.reaches(Severity.ERROR)
