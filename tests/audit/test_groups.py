from __future__ import annotations

import pytest
from hypothesis import given, settings
from support.audit import REPORTS, mailbox, mailboxes, reading, report
from support.examples import WITHOUT_SHRINKING, scaled

from outreach_async.audit import Group, Report, Severity
from outreach_async.errors import StatusError


def group(found: Report, kind: str, key: str) -> Group:
    (one,) = [each for each in found.groups if (each.kind, each.key) == (kind, key)]
    return one


BOXES = [
    *mailboxes(3, server_ip="192.0.2.7", daily_limit=30, sent_30days=500, type="SMTP & IMAP"),
    mailbox(id="mailbox_x", email="x@one.example", blacklists=3, server_ip="192.0.2.7", type="SMTP & IMAP"),
    *mailboxes(2, domain="two.example", dkim=False),
]


def test_mailboxes_are_grouped_by_workspace_domain_type_and_server() -> None:
    found = report(reading(BOXES))

    assert [(each.kind, each.key, each.mailboxes) for each in found.groups] == [
        ("workspace", "space_1", 6),
        ("domain", "two.example", 2),
        ("domain", "one.example", 4),
        ("type", "Google", 2),
        ("type", "SMTP & IMAP", 4),
        ("server_ip", "192.0.2.2", 2),
        ("server_ip", "192.0.2.7", 4),
    ]
    assert found.totals == {"workspace": 1, "domain": 2, "type": 2, "server_ip": 2}


def test_a_group_sums_its_mailboxes_and_counts_their_findings() -> None:
    one = group(report(reading(BOXES)), "server_ip", "192.0.2.7")
    assert (one.sent_30days, one.daily_limit, one.severity) == (2500, 130, Severity.CRITICAL)
    assert one.counts == {Severity.CRITICAL: 1, Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 0}
    assert one.score == 58.1  # 0.9 for the whole server, and 0.1 of that for 1,030 of 2,620


def test_read_errors_count_towards_the_workspace() -> None:
    found = report(reading(mailboxes(1), error=StatusError("no")))
    assert group(found, "workspace", "space_1").severity == "error"
    assert group(found, "workspace", "space_1").score == 100


@given(REPORTS)
@settings(max_examples=scaled(20), phases=WITHOUT_SHRINKING)
def test_groups_agree_with_the_scores_and_the_totals(found: Report) -> None:
    for kind, scores in (("workspace", found.scores.workspaces), ("domain", found.scores.domains)):
        assert {each.key: each.score for each in found.groups if each.kind == kind} == {
            key: score.score for key, score in scores.items()
        }
    for kind in ("workspace", "type", "server_ip"):
        assert sum(each.mailboxes for each in found.groups if each.kind == kind) == found.mailboxes
        shown = [each.score for each in found.groups if each.kind == kind]
        assert shown == sorted(shown)


def test_rows_are_the_mailboxes_with_findings_worst_first() -> None:
    rows = report(reading([*BOXES, mailbox(id="mailbox_y", domain_ip=None, sent_today=-1)])).rows

    assert [(row.id, row.score, row.severity, row.rules) for row in rows] == [
        ("mailbox_x", 9, "critical", ["OA110"]),
        ("mailbox_two.example_0", 50, "error", ["OA102"]),
        ("mailbox_two.example_1", 50, "error", ["OA102"]),
        ("mailbox_y", 50, "error", ["OA121", "OA160"]),
    ]
    assert (rows[0].blacklists, rows[0].type, rows[0].server_ip, rows[0].domain) == (3, "SMTP & IMAP", "192.0.2.7", "one.example")
    assert rows[3].sent_today == 0


@pytest.mark.thorough
def test_at_most_1000_rows_are_kept() -> None:
    boxes = [mailbox(id=f"mailbox_{n}", email=f"a@d{n}.example", spf=n % 2 == 0, domain_ip=None) for n in range(2_100)]
    found = report(reading(boxes))
    assert (len(found.rows), {row.score for row in found.rows}) == (1_000, {50})
    assert len(found.findings) == 3_150


def test_sums_are_integers_where_possible() -> None:
    tenths = [mailbox(id=f"mailbox_{sent}", sent_30days=sent, daily_limit=40) for sent in (0.1, 0.2, 0.7)]
    found = report(reading([*tenths, mailbox(id="mailbox_x", email="x@two.example", sent_30days=0.125, daily_limit=1)]))
    assert repr([group(found, "domain", key).sent_30days for key in ("one.example", "two.example")]) == "[1, 0.125]"
    assert repr(group(found, "domain", "one.example").daily_limit) == "120"


def test_a_shared_mailbox_without_a_domain_counts_once_for_its_server() -> None:
    shared = [mailbox(email="ann", type="SMTP & IMAP", blacklists=1), mailbox(id="mailbox_2", email="bob", type="SMTP & IMAP")]
    found = report(reading(shared), reading(shared, workspace="space_2"))
    assert [one.message for one in found.findings if one.rule == "OA172"] == [
        "2 mailboxes share this server (blacklisted: 1)"
    ] * 2
