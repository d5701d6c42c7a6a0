from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit import SHARED_FLEETS, Shown, mailbox, reading, report
from support.examples import WITHOUT_SHRINKING, scaled

from outreach_async.audit import Finding, Report, Score
from outreach_async.audit.reports import summarize
from outreach_async.models import Mailbox, Undecodable

PERCENT = {"critical": 10, "error": 50, "warning": 90, "info": 100}
STATES: list[dict[str, Any]] = [{}, {"bounced_30days": 40}, {"blacklists": 1}, {"blacklists": 3}]
"""Changes that make a mailbox that sent 1,000 e-mails healthy, and give it a warning, an error and a critical finding."""


@pytest.mark.parametrize(
    ("changes", "score"),
    [
        ({}, 100),
        ({"blacklists": 1}, 50),
        ({"blacklists": 3}, 10),
        ({"bounced_30days": 40}, 90),
        ({"bounced_30days": 20}, 100),
        ({"blacklists": 1, "spf": False}, 25),
        ({"spf": False, "dkim": False, "dmarc": False}, 1),
        ({"spf": False, "dkim": False, "dmarc": False, "blacklists": 9}, 0),
    ],
)
def test_the_finding_of_each_rule_keeps_a_part_of_the_score(changes: dict[str, Any], score: int) -> None:
    found = report(reading([mailbox(**changes)]))
    assert [row.score for row in found.rows] == [score] * bool(found.findings)
    assert found.scores.overall == pytest.approx(score, abs=0.5)


def test_a_score_is_weighted_by_the_volume_of_the_mailboxes() -> None:
    boxes = [mailbox(id="mailbox_1", sent_30days=900, spf=False), mailbox(id="mailbox_2", sent_30days=100)]
    scores = report(reading(boxes)).scores
    assert scores.overall == 56.1  # half of 930 of 1,060
    assert scores.domains == {"one.example": Score(score=56.1, mailboxes=2, sent_30days=1000)}
    assert scores.workspaces == {"space_1": Score(score=56.1, mailboxes=2, sent_30days=1000)}


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ([*[0] * 200, 3], [*[0] * 200, *[3] * 100]),
        ([*[0] * 99, 3], [2] * 100),
        ([1] * 20, [*[0] * 10, *[3] * 10]),
        ([*[0] * 297, *[3] * 3], [3] * 3),
        ([*[0] * 18, 2, 2], [*[0] * 18, 3, 3]),
    ],
    ids=[
        "1 critical of 201, 100 of 300",
        "1 critical of 100, all with an error",
        "all with a warning, half critical",
        "3 critical of 300, 3 of 3",
        "2 with an error, 2 critical",
    ],
)
def test_workspaces_are_ordered_as_a_person_would(better: list[int], worse: list[int]) -> None:
    scores = report(fleet(better), fleet(worse, workspace="space_2")).scores.workspaces
    assert scores["space_1"].score > scores["space_2"].score


def fleet(states: Iterable[int], *, workspace: str = "space_1", sent: Iterable[int] | None = None) -> Shown:
    boxes = [
        mailbox(id=f"mailbox_{place}", email=f"m@{workspace.replace('_', '-')}-{place}.example", **STATES[state])
        for place, state in enumerate(states)
    ]
    if sent is not None:
        boxes = [attrs.evolve(box, sent_30days=volume) for box, volume in zip(boxes, sent, strict=True)]
    return reading(boxes, workspace=workspace)


@given(st.lists(st.tuples(st.sampled_from(range(4)), st.integers(0, 1000)), max_size=5), st.integers(0, 1000))
def test_a_score_falls_with_a_critical_finding_and_rises_without(others: list[tuple[int, int]], sent: int) -> None:
    states, volumes = [state for state, _ in others], [volume for _, volume in others]
    before, after = (report(fleet([*states, state], sent=[*volumes, sent])) for state in (0, 3))
    for one, other in zip(scores_of(before), scores_of(after), strict=True):
        assert one > other


def scores_of(found: Report) -> list[float]:
    """Return the scores of the whole audit and of each group that contains all of its mailboxes."""
    assert found.scores.overall is not None
    return [found.scores.overall, *(group.score for group in found.groups if group.mailboxes == found.mailboxes)]


@given(st.lists(st.sampled_from(range(4)), min_size=1, max_size=6), st.data())
def test_a_score_moves_in_the_direction_of_the_headline(states: list[int], data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(range(len(states))))
    worse = [*states[:place], data.draw(st.sampled_from(range(states[place], 4))), *states[place + 1 :]]
    before, after = report(fleet(states)), report(fleet(worse))

    # The headline names the worst severity and its number of mailboxes.
    assert (list(after.counts.values()) > list(before.counts.values())) == (scores_of(after) < scores_of(before))
    for found in (before, after):
        assert (found.scores.overall == 100) == ("No problems found." in summarize(found).verdict)


def test_a_finding_on_a_server_counts_for_mailboxes_of_its_own_type() -> None:
    boxes = [mailbox(id="mailbox_1", type="SMTP & IMAP", blacklists=1), mailbox(id="mailbox_2", type="SMTP & IMAP")]
    found = report(reading([*boxes, mailbox(id="mailbox_3")]))
    assert found.scores.overall == 78.3  # 45, 90 and 100
    assert {group.key: group.score for group in found.groups if group.kind == "type"} == {"SMTP & IMAP": 67.5, "Google": 100}


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
@given(SHARED_FLEETS)
@settings(max_examples=scaled(60), phases=WITHOUT_SHRINKING)
def test_every_score_is_the_weighted_mean_of_its_mailboxes(spaces: list[Shown]) -> None:
    found = report(*spaces)
    weights: defaultdict[tuple[str, str], list[tuple[Fraction, Fraction]]] = defaultdict(list)
    for each in spaces:
        for box in each.mailboxes:
            score, domain = _score_of(box, each.reading.workspace, found.findings), email_domain(box.email)
            weighted = Fraction(round(1000 * (box.sent_30days if 0 <= box.sent_30days <= 10**15 else 0)), 1000) + 30, score
            keys = {"workspace": each.reading.workspace, "type": str(box.type), "server_ip": box.server_ip, "domain": domain}
            for kind, key in keys.items():
                weights[kind, str(key)].append(weighted)
            weights["audit", ""].append(weighted)

    means = {
        group: sum(weight * score for weight, score in boxes) / sum(weight for weight, _ in boxes)
        for group, boxes in weights.items()
    }
    assert found.scores.overall == (pytest.approx(float(means["audit", ""]), abs=0.101) if means else None)
    for group in found.groups:
        assert 0 <= float(means[group.kind, group.key]) - group.score < 0.101
        assert (means[group.kind, group.key] == 100) == (group.score == 100)


def email_domain(email: str) -> str | None:
    return email.rpartition("@")[2].strip().lower() or None if "@" in email else None


def _score_of(box: Mailbox, workspace: str, findings: Iterable[Finding]) -> Fraction:
    server = box.server_ip if box.type == "SMTP & IMAP" else None
    worst: dict[str, int] = {}
    for finding in findings:
        own = (finding.workspace, finding.mailbox) == (workspace, box.id) and finding.sent_30days is not None
        about_domain = finding.mailbox is None and finding.domain is not None and finding.domain == email_domain(box.email)
        about_server = finding.server_ip is not None and finding.server_ip == server
        if own or about_domain or about_server:
            worst[finding.rule] = min(PERCENT[finding.severity], worst.get(finding.rule, 100))
    return 100 * Fraction(math.prod(worst.values()), 100 ** len(worst))
