"""Scores from 0 to 100, which the findings reproduce."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import attrs

from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.plain import plain
from outreach_async.audit.tallies import Total
from outreach_async.models import Number

FULL: Final = 100
DEDUCTIONS: Final = {Severity.CRITICAL: 40, Severity.ERROR: 20, Severity.WARNING: 8, Severity.INFO: 0}
"""What each rule that applies takes from a mailbox."""

CRITICAL_CAP: Final = 40
"""The most that a domain gets while a finding about it or one of its mailboxes is critical: they share its reputation."""

DOMAINS_KEPT: Final = 10_000
"""Domains that a report scores at most, the worst ones."""


@attrs.frozen(kw_only=True)
class Score:
    """The score of a group of mailboxes.

    Attributes:
        score: The mean of its mailboxes' scores, each weighing what it sent in 30 days; evenly where none sent anything. What was
            found about the group as a whole is deducted from it.
        mailboxes: How many were judged.
        sent_30days: What they sent.

    Example:
        ```python
        report = await audit(client, ["space_1"])
        print(report.scores.workspaces["space_1"].score)  # -> 89.8
        ```
    """

    score: float
    mailboxes: int
    sent_30days: Number


@attrs.frozen(kw_only=True)
class Scores:
    """The scores of an audit; only what has a judged mailbox has one.

    Attributes:
        overall: Of all mailboxes; `None` if there are none.
        workspaces: By id, in the order of the audit.
        domains: By name, the worst first and 10,000 at most; capped at 40 where a finding is critical.

    Example:
        ```python
        report = await audit(client, ["space_1"])
        print(report.scores.overall, list(report.scores.domains))  # -> 89.8 ['north.example']
        ```
    """

    overall: float | None
    workspaces: dict[str, Score]
    domains: dict[str, Score]

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as JSON values.

        Example:
            ```python
            report = await audit(client, ["space_1"])
            print(sorted(report.scores.to_dict()))  # -> ['domains', 'overall', 'workspaces']
            ```
        """
        values: dict[str, Any] = plain(self)
        return values


def lost(findings: Iterable[Finding]) -> int:
    """Return what the findings about one thing take from its points: each rule deducts once, its worst."""
    each: dict[str, int] = {}
    for finding in findings:
        each[finding.rule] = max(DEDUCTIONS[finding.severity], each.get(finding.rule, 0))
    return min(FULL, sum(each.values()))


def mailbox_score(findings: Iterable[Finding]) -> int:
    """Return what the findings of one mailbox leave of its 100 points.

    Example:
        ```python
        print(mailbox_score(check((await client.mailboxes.list()).data[1])))  # -> 80
        ```
    """
    return FULL - lost(findings)


@attrs.define
class Losses:
    """What the mailboxes of a group lost, and the group as a whole.

    Attributes:
        weighed: The points that each lost, times what it sent in 30 days.
        even: The points that each lost.
        together: The points that the group lost as a whole.
        capped: Whether a critical finding caps it.
    """

    weighed: Number = 0
    even: int = 0
    together: int = 0
    capped: bool = False

    def score(self, total: Total) -> float:
        """Return the score of the group."""
        mean = self.weighed / total.sent_30days if total.sent_30days else self.even / total.mailboxes
        score = max(0.0, FULL - mean - self.together)
        return round(min(float(CRITICAL_CAP), score) if self.capped else score, 1)
