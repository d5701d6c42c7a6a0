from __future__ import annotations

import json
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from support.audit import REPORTS, mailbox, mailboxes, reading, report
from support.examples import scaled

from outreach_async.audit import Policy, Report, Severity, Violation, check, mailbox_score
from outreach_async.models import Undecodable

DEDUCTIONS = {"critical": 40, "error": 20, "warning": 8, "info": 0}


@pytest.mark.parametrize(
    ("changes", "points"),
    [
        ({}, 100),
        ({"blacklists": 1}, 80),
        ({"blacklists": 3}, 60),
        ({"bounced_30days": 40}, 92),
        ({"bounced_30days": 20}, 100),
        ({"blacklists": 1, "spf": False}, 60),
        ({"spf": False, "dkim": False, "dmarc": False}, 0),
        ({"spf": False, "dkim": False, "dmarc": False, "blacklists": 9}, 0),
    ],
)
def test_each_rule_deducts_by_its_severity_down_to_zero(changes: dict[str, Any], points: int) -> None:
    assert mailbox_score(check(mailbox(**changes))) == points


def test_a_rule_deducts_once_for_its_worst_finding() -> None:
    mild, grave = check(mailbox(blacklists=1)), check(mailbox(blacklists=3))

    assert mailbox_score([*mild, *grave, *mild]) == 60


def test_a_domain_score_is_weighted_by_the_volume_of_its_mailboxes() -> None:
    boxes = [mailbox(id="mailbox_1", sent_30days=900, spf=False), mailbox(id="mailbox_2", sent_30days=100)]

    scores = report(reading(boxes)).scores

    assert scores.overall == 82.0
    assert scores.to_dict()["domains"] == {"one.example": {"score": 82.0, "mailboxes": 2, "sent_30days": 1000}}
    assert scores.to_dict()["workspaces"] == {"space_1": {"score": 82.0, "mailboxes": 2, "sent_30days": 1000}}


def test_mailboxes_that_sent_nothing_have_equal_weight() -> None:
    boxes = [mailbox(id="mailbox_1", sent_30days=0, spf=False), mailbox(id="mailbox_2", sent_30days=0)]

    assert report(reading(boxes)).scores.overall == 90.0


def test_an_impossible_volume_has_no_weight() -> None:
    boxes = [mailbox(id="mailbox_1", sent_30days=-1), mailbox(id="mailbox_2", sent_30days=10, bounced_30days=0)]

    scores = report(reading(boxes)).scores

    assert (scores.overall, scores.domains["one.example"].sent_30days) == (100.0, 10)  # a finding would deduct 20 points


def test_a_critical_finding_caps_its_domain_and_the_total() -> None:
    boxes = [*mailboxes(1, blacklists=3), *mailboxes(4, domain="two.example"), *mailboxes(5)[1:]]

    scores = report(reading(boxes)).scores

    assert scores.domains["one.example"].score == 40
    assert scores.domains["two.example"].score == 100
    assert scores.workspaces["space_1"].score == pytest.approx(95.6)
    assert scores.overall == 40


def test_a_finding_on_a_domain_is_deducted_from_the_domain_only() -> None:
    scores = report(reading(mailboxes(6))).scores

    assert (scores.domains["one.example"].score, scores.overall) == (92, 100)


def test_a_critical_finding_on_a_domain_caps_its_score() -> None:
    boxes = [*mailboxes(5, sent_30days=22_000), *mailboxes(5, domain="two.example")]
    boxes[0] = mailbox(dkim=False, sent_30days=22_000)

    found = report(reading(boxes))

    assert [one.rule for one in found.findings] == ["OA171", "OA102"]
    assert found.scores.overall == 40
    assert found.scores.domains["one.example"].score == 40
    assert found.scores.domains["two.example"].score == 100


def test_a_critical_finding_on_a_server_caps_only_the_total() -> None:
    (rule,) = Policy.default().server_rules
    policy = attrs.evolve(
        Policy.default(), server_rules=(attrs.evolve(rule, applies=lambda *_: Violation("full", {}, Severity.CRITICAL)),)
    )
    boxes = [mailbox(id="mailbox_1", type="SMTP & IMAP", blacklists=1), mailbox(id="mailbox_2", type="SMTP & IMAP")]

    found = report(reading(boxes), policy=policy)

    assert (found.scores.overall, found.scores.domains["one.example"].score) == (40, 90)


def test_the_findings_are_the_worst_first_in_the_order_of_mailboxes() -> None:
    boxes = [mailbox(id="mailbox_1", spf=False), mailbox(id="mailbox_2", blacklists=3), mailbox(id="mailbox_3", dkim=False)]

    found = report(reading(boxes))

    assert [(one.mailbox, one.rule) for one in found.findings] == [
        ("mailbox_2", "OA110"),
        ("mailbox_1", "OA101"),
        ("mailbox_3", "OA102"),
    ]
    assert found.counts == {"critical": 1, "error": 2, "warning": 0, "info": 0}


@pytest.mark.thorough
def test_the_worst_domains_come_first_up_to_the_limit() -> None:
    boxes = [mailbox(id=f"mailbox_{n}", email=f"a@d{n:05}.example", spf=n != 10_000) for n in range(10_001)]

    found = report(reading(boxes))

    assert list(found.scores.domains)[:2] == ["d10000.example", "d00000.example"]
    assert (len(found.scores.domains), found.totals["domain"]) == (10_000, 10_001)
    assert len([group for group in found.groups if group.kind == "domain"]) == 1_000


def test_an_unreadable_copy_of_a_mailbox_does_not_lower_its_score() -> None:
    fault = Undecodable(
        index=0, id="mailbox_1", error="$.data[0].spf: expected bool, got str", fields={"email": "ann@one.example"}
    )

    assert report(reading([mailbox(id="mailbox_1")], undecodable=[fault])).scores.overall == 100


def test_what_was_not_judged_has_no_score() -> None:
    scores = report(reading([]), reading([], workspace="space_2", missing=3)).scores

    assert (scores.overall, scores.workspaces, scores.domains) == (None, {}, {})


@pytest.mark.thorough
@given(REPORTS)
@settings(max_examples=scaled(30))
def test_the_findings_reproduce_the_scores(found: Report) -> None:
    """Recompute the scores from the JSON alone: deductions per mailbox, weighted by volume, over the totals of each group."""
    answer = json.loads(json.dumps(found.to_dict()))

    for group, key in (("workspaces", itemgetter("workspace")), ("domains", itemgetter("domain"))):
        for name, score in answer["scores"][group].items():
            assert score["score"] == pytest.approx(_recomputed(answer, name, score, key), abs=0.051)
    if answer["mailboxes"]:
        total = _sum(answer["scores"]["workspaces"])
        assert answer["scores"]["overall"] == pytest.approx(_recomputed(answer, None, total, lambda _: None), abs=0.051)


def _recomputed(answer: Any, name: str | None, total: Any, key: Callable[[Any], str | None]) -> float:
    lost: dict[Any, dict[str, int]] = {}
    weights: dict[Any, float] = {}
    together = 0
    mine = [finding for finding in answer["findings"] if finding["sent_30days"] is not None and key(finding) == name]
    for finding in mine:
        points = DEDUCTIONS[finding["severity"]]
        if finding["mailbox"] is None:
            together += points if name in answer["scores"]["domains"] else 0
            continue
        box = finding["workspace"], finding["mailbox"]
        lost.setdefault(box, {})[finding["rule"]] = points
        weights[box] = finding["sent_30days"] if total["sent_30days"] else 1
    deducted = sum(min(100, sum(rules.values())) * weights[box] for box, rules in lost.items())
    mean: float = max(0, 100 - deducted / (total["sent_30days"] or total["mailboxes"]) - together)
    capped = (name is None or name in answer["scores"]["domains"]) and "critical" in [finding["severity"] for finding in mine]
    return min(mean, 40) if capped else mean


def _sum(groups: dict[str, Any]) -> Any:
    return {figure: sum(group[figure] for group in groups.values()) for figure in ("mailboxes", "sent_30days")}
