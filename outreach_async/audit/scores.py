"""Scores from 0 to 100, which the findings reproduce."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs

from outreach_async.audit.figures import amount
from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.judging import Seen
from outreach_async.models import Number

FULL: Final = 100
DEDUCTIONS: Final = {Severity.CRITICAL: 40, Severity.ERROR: 20, Severity.WARNING: 8, Severity.INFO: 0}
"""What each rule that applies takes from a mailbox."""

CRITICAL_CAP: Final = 40
"""The most that a domain gets while any of its mailboxes has a critical finding: they share its reputation."""


@attrs.frozen(kw_only=True)
class Score:
    """The score of a group of mailboxes.

    Attributes:
        score: The mean of its mailboxes' scores, each weighing what it sent in 30 days; evenly where none sent anything.
        mailboxes: How many were judged.
        sent_30days: What they sent.
    """

    score: float
    mailboxes: int
    sent_30days: Number


@attrs.frozen(kw_only=True)
class Scores:
    """The scores of an audit; only what has a judged mailbox has one.

    Attributes:
        overall: Of all mailboxes; `None` if there are none.
        workspaces: By id.
        domains: By name, capped at 40 where a finding is critical.
    """

    overall: float | None
    workspaces: dict[str, Score]
    domains: dict[str, Score]

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as JSON values."""
        return attrs.asdict(self)


def mailbox_score(findings: Iterable[Finding]) -> int:
    """Return what the findings of one mailbox leave of its 100 points: each rule deducts once, its worst."""
    lost: dict[str, int] = {}
    for finding in findings:
        lost[finding.rule] = max(DEDUCTIONS[finding.severity], lost.get(finding.rule, 0))
    return max(0, FULL - sum(lost.values()))


def score(seen: Sequence[Seen], findings: Iterable[Finding]) -> Scores:
    """Score the judged mailboxes by their findings; findings without a weight, about the reading, deduct nothing."""
    weighty = [finding for finding in findings if finding.sent_30days is not None]
    points = _points(weighty)
    critical = {finding.domain for finding in weighty if finding.severity is Severity.CRITICAL}
    domains = _grouped(seen, points, lambda box: box.domain)
    return Scores(
        overall=_mean(seen, points).score if seen else None,
        workspaces=_grouped(seen, points, lambda box: box.workspace),
        domains={name: _capped(each) if name in critical else each for name, each in domains.items()},
    )


Points = dict[tuple[str, str | None], int]


def _points(findings: Iterable[Finding]) -> Points:
    """Return the score of each mailbox that has findings, by workspace and id."""
    each: defaultdict[tuple[str, str | None], list[Finding]] = defaultdict(list)
    for finding in findings:
        each[finding.workspace, finding.mailbox].append(finding)
    return {key: mailbox_score(found) for key, found in each.items()}


def _grouped(seen: Iterable[Seen], points: Points, key: Callable[[Seen], str | None]) -> dict[str, Score]:
    groups: defaultdict[str | None, list[Seen]] = defaultdict(list)
    for box in seen:
        groups[key(box)].append(box)
    return {name: _mean(boxes, points) for name, boxes in groups.items() if name is not None}


def _mean(boxes: Sequence[Seen], points: Points) -> Score:
    scores = [points.get((box.workspace, box.mailbox.id), FULL) for box in boxes]
    weights = [amount(box.mailbox.sent_30days) for box in boxes]
    sent = sum(weights)
    if not sent:
        weights = [1] * len(boxes)
    mean = math.fsum(each * weight for each, weight in zip(scores, weights, strict=True)) / math.fsum(weights)
    return Score(score=round(mean, 1), mailboxes=len(boxes), sent_30days=sent)


def _capped(score: Score) -> Score:
    return attrs.evolve(score, score=min(float(CRITICAL_CAP), score.score))
