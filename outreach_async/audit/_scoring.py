"""Compute scores from 0 to 100 from the findings: for all mailboxes, and for each group of mailboxes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import nsmallest
from itertools import chain
from typing import Any, Final

import attrs

from outreach_async.audit._evaluation import FIGURES, FinalFindings, FlaggedMailbox
from outreach_async.audit._findings import GROUP_KINDS, Finding, Group, GroupKind, Row, Severity
from outreach_async.audit._totals import GroupTotals, MailboxTotals
from outreach_async.audit._values import to_json_values
from outreach_async.models import Number

MAX_SCORE: Final = 100
DEDUCTIONS: Final = {Severity.CRITICAL: 40, Severity.ERROR: 20, Severity.WARNING: 8, Severity.INFO: 0}
"""Points that a finding deducts from the score of a mailbox, by severity."""

CRITICAL_CAP: Final = 40
"""Maximum score of a domain with a critical finding about itself or one of its mailboxes.

The overall score has the same maximum if the audit has any critical finding.

The score of a domain is limited because all its mailboxes share one reputation. The overall score is limited because a
good score would contradict the verdict, which is to stop sending.
"""

MAX_SCORED_DOMAINS: Final = 10_000
"""Maximum number of domains with a score in a report. The worst domains are kept."""

MAX_GROUPS: Final = 1_000
"""Maximum number of groups of one kind in a report. The worst groups are kept.

Without a limit, a report about a million mailboxes may contain 250,000 domains.
"""

MAX_ROWS: Final = 1_000
"""Maximum number of mailboxes that a report lists individually. The worst mailboxes are kept."""


@attrs.frozen(kw_only=True)
class Score:
    """The score of a group of mailboxes.

    Attributes:
        score: Mean of the mailboxes' scores, weighted by the e-mails sent in 30 days, or unweighted if none were sent. Points for
            findings about the group itself are deducted from the mean.
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
        overall: Score of all mailboxes, at most 40 with a critical finding; `None` if no mailbox was checked.
        workspaces: Scores by workspace id, in the order of the audit.
        domains: Scores of at most 10,000 domains, the worst first. A domain with a critical finding scores at most 40.

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
        return to_json_values(self)


def deducted_points(findings: Iterable[Finding]) -> int:
    """Return the points to deduct for the findings about a mailbox or group. For each rule, only the worst finding counts."""
    points: dict[str, int] = {}
    for finding in findings:
        points[finding.rule] = max(DEDUCTIONS[finding.severity], points.get(finding.rule, 0))
    return min(MAX_SCORE, sum(points.values()))


def mailbox_score(findings: Iterable[Finding]) -> int:
    """Return the score of a mailbox from its findings: 100 minus the deductions, at least 0.

    Example:
        ```python
        print(mailbox_score(check((await client.mailboxes.list()).data[1])))  # -> 80
        ```
    """
    return MAX_SCORE - deducted_points(findings)


@attrs.define
class GroupStats:
    """The deducted points and the number of findings of a group of mailboxes."""

    weighted_points: Number = 0
    points: int = 0
    group_points: int = 0
    capped: bool = False
    counts: list[int] = attrs.field(factory=lambda: [0] * len(Severity))

    def add(self, ranks: Iterable[int], points: int = 0, sent: Number = 0) -> None:
        """Count findings about the group or one of its mailboxes. For a mailbox, also add its deducted points."""
        self.weighted_points += points * sent
        self.points += points
        for rank in ranks:
            self.counts[rank] += 1

    def score(self, total: MailboxTotals) -> float:
        mean = self.weighted_points / total.sent_30days if total.sent_30days else self.points / total.mailboxes
        score = max(0.0, MAX_SCORE - mean - self.group_points)
        return round(min(float(CRITICAL_CAP), score) if self.capped else score, 1)

    @property
    def severity(self) -> Severity | None:
        """Severity of the group's worst finding; `None` if there are no findings."""
        return next((severity for severity, count in zip(Severity, self.counts, strict=True) if count), None)


_NO_FINDINGS: Final = GroupStats()


class GroupScores:
    """Computes the scores, the groups and the mailbox rows of a report."""

    def __init__(self, totals: dict[GroupKind, GroupTotals], final: FinalFindings) -> None:
        self._totals = totals
        self._overall = GroupStats()
        self._ranked: list[tuple[int, int, Number, int]] = []
        self._flagged = list(chain.from_iterable(final.flagged))
        self._stats: dict[GroupKind, defaultdict[str, GroupStats]] = {kind: defaultdict(GroupStats) for kind in GROUP_KINDS}
        for place, flagged in enumerate(self._flagged):
            self._add_mailbox(flagged, place)
        for finding in chain.from_iterable(chain(final.campaigns, final.errors)):
            self._stats["workspace"][finding.workspace].add([finding.severity.rank])
            self._overall.capped |= finding.severity is Severity.CRITICAL
        for finding in final.group_findings:
            self._add_group_finding(finding)
        self._worst = {kind: self._worst_keys(kind) for kind in GROUP_KINDS}

    def _add_mailbox(self, flagged: FlaggedMailbox, place: int) -> None:
        findings, stats = flagged.findings, self._stats
        points, sent, domain = deducted_points(findings), findings[0].sent_30days or 0, findings[0].domain
        ranks = [finding.severity.rank for finding in findings]  # computed once: a mailbox belongs to up to five groups
        is_critical = min(ranks) == Severity.CRITICAL.rank
        self._overall.capped |= is_critical
        self._ranked.append((-points, min(ranks), -sent, place))
        groups = [
            self._overall,
            stats["workspace"][flagged.workspace],
            stats["type"][flagged.type],
            stats["server_ip"][flagged.server_ip],
        ]
        if domain is not None:
            groups.append(stats["domain"][domain])
            groups[-1].capped |= is_critical
        for group in groups:
            group.add(ranks, points, sent)

    def _add_group_finding(self, finding: Finding) -> None:
        about_server, is_critical = finding.server_ip is not None, finding.severity is Severity.CRITICAL
        group = self._stats["server_ip" if about_server else "domain"][finding.server_ip or finding.domain or ""]
        group.add([finding.severity.rank])
        group.group_points += deducted_points([finding])
        group.capped |= is_critical and not about_server
        self._overall.capped |= is_critical

    def _worst_keys(self, kind: GroupKind) -> list[str]:
        totals, stats = self._totals[kind], self._stats[kind]
        most = MAX_SCORED_DOMAINS if kind == "domain" else MAX_GROUPS

        def rank(key: str) -> tuple[int, float, int, str]:
            group, total = stats[key], totals[key]
            return (group.severity or Severity.INFO).rank, group.score(total), -total.mailboxes, key

        worst = nsmallest(most, (key for key in totals if key in stats), key=rank)
        clean = ((-totals.mailbox_count(key), key) for key in totals if key not in stats)
        return worst + [key for _, key in nsmallest(most - len(worst), clean)]

    def scores(self) -> Scores:
        """Return the overall score, the score of each workspace, and the scores of the worst `MAX_SCORED_DOMAINS` domains."""
        totals = self._totals["workspace"]
        workspaces = {key: totals[key] for key in sorted(totals, key=lambda key: totals[key].first)}
        overall = MailboxTotals(
            sum(total.mailboxes for total in workspaces.values()), sum(total.sent_30days for total in workspaces.values())
        )
        return Scores(
            overall=self._overall.score(overall) if overall.mailboxes else None,
            workspaces={key: self._group_score("workspace", key) for key in workspaces},
            domains={key: self._group_score("domain", key) for key in self._worst["domain"]},
        )

    def _group_score(self, kind: GroupKind, key: str) -> Score:
        total, stats = self._totals[kind][key], self._stats[kind].get(key, _NO_FINDINGS)
        return Score(score=stats.score(total), mailboxes=total.mailboxes, sent_30days=total.sent_30days)

    def groups(self) -> list[Group]:
        """Return the groups, the worst of each kind first."""
        return [self._build_group(kind, key) for kind in GROUP_KINDS for key in self._worst[kind][:MAX_GROUPS]]

    def _build_group(self, kind: GroupKind, key: str) -> Group:
        total, stats = self._totals[kind][key], self._stats[kind].get(key, _NO_FINDINGS)
        return Group(
            kind=kind,
            key=str(key),
            mailboxes=total.mailboxes,
            score=stats.score(total),
            severity=stats.severity,
            counts=dict(zip(Severity, stats.counts, strict=True)),
            sent_30days=total.sent_30days,
            daily_limit=total.daily_limit,
        )

    def rows(self) -> list[Row]:
        """Return the mailboxes with findings, the worst first."""
        return [_build_row(self._flagged[place]) for *_, place in nsmallest(MAX_ROWS, self._ranked)]


def _build_row(flagged: FlaggedMailbox) -> Row:
    findings = flagged.findings
    figures: dict[str, Any] = dict(zip(FIGURES, flagged.figures, strict=True))
    return Row(
        id=flagged.id,
        email=flagged.email,
        workspace=flagged.workspace,
        domain=findings[0].domain,
        type=flagged.type,
        status=flagged.status,
        server_ip=flagged.server_ip,
        score=mailbox_score(findings),
        severity=min(findings, key=lambda finding: finding.severity.rank).severity,
        rules=[finding.rule for finding in findings],
        **figures,
    )
