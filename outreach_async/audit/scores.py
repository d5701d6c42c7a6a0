"""Scores from 0 to 100, computed from the findings."""

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
"""Points that each rule that applies deducts from a mailbox."""

CRITICAL_CAP: Final = 40
"""Maximum score of a domain with a critical finding about it or one of its mailboxes; the mailboxes share its reputation."""

DOMAINS_KEPT: Final = 10_000
"""Maximum domains with a score in a report, the worst ones."""


@attrs.frozen(kw_only=True)
class Score:
    """The score of a group of mailboxes.

    Attributes:
        score: Mean of the mailboxes' scores, weighted by the e-mails sent in 30 days, or unweighted if none were sent. Points for
            findings about the group as a whole are deducted from it.
        mailboxes: Number of checked mailboxes.
        sent_30days: E-mails sent in 30 days.

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
    """The scores of an audit. Workspaces and domains without checked mailboxes have no score.

    Attributes:
        overall: Score of all mailboxes; `None` if there are none.
        workspaces: Scores by workspace id, in the order of the audit.
        domains: Scores by domain, the worst first, at most 10,000; at most 40 points if a finding is critical.

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
        """Return the scores as JSON-compatible values.

        Example:
            ```python
            report = await audit(client, ["space_1"])
            print(sorted(report.scores.to_dict()))  # -> ['domains', 'overall', 'workspaces']
            ```
        """
        values: dict[str, Any] = plain(self)
        return values


def lost(findings: Iterable[Finding]) -> int:
    """Return the points deducted by findings about one subject; each rule deducts once, by its worst finding."""
    each: dict[str, int] = {}
    for finding in findings:
        each[finding.rule] = max(DEDUCTIONS[finding.severity], each.get(finding.rule, 0))
    return min(FULL, sum(each.values()))


def mailbox_score(findings: Iterable[Finding]) -> int:
    """Return the score of a mailbox from its findings: 100 minus the deductions, at least 0.

    Example:
        ```python
        print(mailbox_score(check((await client.mailboxes.list()).data[1])))  # -> 80
        ```
    """
    return FULL - lost(findings)


@attrs.define
class Losses:
    """Points lost by the mailboxes of a group and by the group as a whole.

    Attributes:
        weighed: Sum of each mailbox's lost points times its e-mails sent in 30 days.
        even: Sum of each mailbox's lost points.
        together: Points lost by the group as a whole.
        capped: Whether a critical finding caps the score.
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
