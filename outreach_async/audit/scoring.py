"""Scores from 0 to 100, computed from the findings: in all, and for each group of mailboxes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import nsmallest
from itertools import chain
from typing import Any, Final

import attrs

from outreach_async.audit.evaluation import FinalFindings, FlaggedMailbox
from outreach_async.audit.findings import (
    GROUP_KINDS,
    MAX_GROUPS,
    MAX_ROWS,
    Finding,
    Group,
    GroupKind,
    GroupTotals,
    MailboxTotals,
    Row,
    Severity,
    to_json_values,
)
from outreach_async.audit.values import valid_or_zero
from outreach_async.models import Number

MAX_SCORE: Final = 100
DEDUCTIONS: Final = {Severity.CRITICAL: 40, Severity.ERROR: 20, Severity.WARNING: 8, Severity.INFO: 0}
"""Points that each rule that applies deducts from a mailbox."""

CRITICAL_CAP: Final = 40
"""Maximum score of a domain with a critical finding about it or one of its mailboxes; the mailboxes share its reputation."""

MAX_SCORED_DOMAINS: Final = 10_000
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
        values: dict[str, Any] = to_json_values(self)
        return values


def deducted_points(findings: Iterable[Finding]) -> int:
    """Return the points deducted by findings about one subject; each rule deducts once, by its worst finding."""
    each: dict[str, int] = {}
    for finding in findings:
        each[finding.rule] = max(DEDUCTIONS[finding.severity], each.get(finding.rule, 0))
    return min(MAX_SCORE, sum(each.values()))


def mailbox_score(findings: Iterable[Finding]) -> int:
    """Return the score of a mailbox from its findings: 100 minus the deductions, at least 0.

    Example:
        ```python
        print(mailbox_score(check((await client.mailboxes.list()).data[1])))  # -> 80
        ```
    """
    return MAX_SCORE - deducted_points(findings)


@attrs.define
class ScoreDeductions:
    """Points lost by the mailboxes of a group and by the group as a whole.

    Attributes:
        weighted_points: Sum of each mailbox's lost points times its e-mails sent in 30 days.
        points: Sum of each mailbox's lost points.
        group_points: Points lost by the group as a whole.
        capped: Whether a critical finding caps the score.
    """

    weighted_points: Number = 0
    points: int = 0
    group_points: int = 0
    capped: bool = False

    def score(self, total: MailboxTotals) -> float:
        """Return the score of the group."""
        mean = self.weighted_points / total.sent_30days if total.sent_30days else self.points / total.mailboxes
        score = max(0.0, MAX_SCORE - mean - self.group_points)
        return round(min(float(CRITICAL_CAP), score) if self.capped else score, 1)


_RANKS: Final = {severity: severity.rank for severity in Severity}

_NO_FINDINGS_RANK: Final = len(Severity)
"""Rank of a group without findings; it sorts after the mildest severity."""


@attrs.define
class _GroupStats(ScoreDeductions):
    """Lost points and number of findings of a group."""

    counts: dict[Severity, int] = attrs.field(factory=lambda: dict.fromkeys(Severity, 0))

    def add(self, points: int, sent: Number, severities: Iterable[Severity]) -> None:
        """Add the findings of one mailbox."""
        self.weighted_points += points * sent
        self.points += points
        for severity in severities:
            self.counts[severity] += 1

    @property
    def severity(self) -> Severity | None:
        """Severity of the worst finding."""
        return next((severity for severity, count in self.counts.items() if count), None)


_NO_FINDINGS = _GroupStats()


class GroupScores:
    """The groups of an audit, with their scores.

    Args:
        tallies: Sums of the checked mailboxes.
        settled: All findings.
    """

    def __init__(self, tallies: dict[GroupKind, GroupTotals], settled: FinalFindings) -> None:
        self._totals = tallies
        self._findings = settled
        self._overall = _GroupStats()
        self._ranked: list[tuple[int, int, Number, int]] = []
        self._flagged = list(chain.from_iterable(settled.flagged))
        self._stats: dict[GroupKind, defaultdict[str, _GroupStats]] = {kind: defaultdict(_GroupStats) for kind in GROUP_KINDS}
        for place, judged in enumerate(self._flagged):
            self._add_mailbox(judged, place)
        for unread in settled.errors:
            for finding in unread:
                self._stats["workspace"][finding.workspace].add(0, 0, [finding.severity])
        for finding in settled.group_findings:
            self._add_group_finding(finding)
        self._worst = {
            kind: self._worst_keys(kind, MAX_SCORED_DOMAINS if kind == "domain" else MAX_GROUPS) for kind in GROUP_KINDS
        }

    def _add_mailbox(self, judged: FlaggedMailbox, place: int) -> None:
        mailbox, findings, marks = judged.mailbox, judged.findings, self._stats
        points, sent, domain = deducted_points(findings), valid_or_zero(mailbox.sent_30days), findings[0].domain
        severities = [finding.severity for finding in findings]
        worst = min([_RANKS[severity] for severity in severities])
        self._overall.add(points, sent, severities)
        self._ranked.append((-points, worst, -sent, place))
        groups = [marks["workspace"][judged.workspace], marks["type"][mailbox.type], marks["server_ip"][mailbox.server_ip]]
        if domain is not None:
            groups.append(marks["domain"][domain])
            groups[-1].capped |= worst == 0
        for mark in groups:
            mark.add(points, sent, severities)

    def _add_group_finding(self, finding: Finding) -> None:
        about_server = finding.server_ip is not None
        mark = self._stats["server_ip" if about_server else "domain"][finding.server_ip or finding.domain or ""]
        mark.add(0, 0, [finding.severity])
        mark.group_points += deducted_points([finding])
        mark.capped |= not about_server and finding.severity is Severity.CRITICAL

    def _worst_keys(self, kind: GroupKind, most: int) -> list[str]:
        tally, marks = self._totals[kind], self._stats[kind]
        worst = nsmallest(most, (key for key in tally if key in marks), key=lambda key: _group_rank(marks[key], tally[key], key))
        well = ((-tally.mailbox_count(key), key) for key in tally if key not in marks)
        return worst + [key for _, key in nsmallest(most - len(worst), well)]

    def scores(self) -> Scores:
        """Return the scores."""
        workspaces, domains = self._totals["workspace"], self._worst["domain"]
        every = MailboxTotals(
            sum(workspaces[key].mailboxes for key in workspaces), sum(workspaces[key].sent_30days for key in workspaces)
        )
        return Scores(
            overall=self._overall.score(every) if every.mailboxes else None,
            workspaces={
                key: self._group_score("workspace", key) for key in sorted(workspaces, key=lambda key: workspaces[key].first)
            },
            domains={key: self._group_score("domain", key) for key in domains},
        )

    def _group_score(self, kind: GroupKind, key: str) -> Score:
        total, mark = self._totals[kind][key], self._stats[kind].get(key, _NO_FINDINGS)
        return Score(score=mark.score(total), mailboxes=total.mailboxes, sent_30days=total.sent_30days)

    def totals(self) -> dict[GroupKind, int]:
        """Return the number of groups of each kind."""
        return {kind: len(tally) for kind, tally in self._totals.items()}

    def groups(self) -> list[Group]:
        """Return the groups, the worst of each kind first."""
        return [self._build_group(kind, key) for kind in GROUP_KINDS for key in self._worst[kind][:MAX_GROUPS]]

    def _build_group(self, kind: GroupKind, key: str) -> Group:
        total, mark = self._totals[kind][key], self._stats[kind].get(key, _NO_FINDINGS)
        return Group(
            kind=kind,
            key=str(key),
            mailboxes=total.mailboxes,
            score=mark.score(total),
            severity=mark.severity,
            counts=dict(mark.counts),
            sent_30days=total.sent_30days,
            daily_limit=total.daily_limit,
        )

    def rows(self) -> list[Row]:
        """Return the mailboxes with findings, the worst first."""
        return [_build_row(self._flagged[place]) for *_, place in nsmallest(MAX_ROWS, self._ranked)]


def _group_rank(mark: _GroupStats, total: MailboxTotals, key: str) -> tuple[int, float, int, str]:
    return _NO_FINDINGS_RANK if mark.severity is None else mark.severity.rank, mark.score(total), -total.mailboxes, key


def _build_row(judged: FlaggedMailbox) -> Row:
    mailbox, findings = judged.mailbox, judged.findings
    return Row(
        id=mailbox.id,
        email=mailbox.email,
        workspace=judged.workspace,
        domain=findings[0].domain,
        type=str(mailbox.type),
        status=str(mailbox.status),
        server_ip=mailbox.server_ip,
        score=mailbox_score(findings),
        severity=min((finding.severity for finding in findings), key=lambda severity: severity.rank),
        rules=[finding.rule for finding in findings],
        daily_limit=valid_or_zero(mailbox.daily_limit),
        sent_today=valid_or_zero(mailbox.sent_today),
        sent_30days=valid_or_zero(mailbox.sent_30days),
        bounced_30days=valid_or_zero(mailbox.bounced_30days),
        blacklists=valid_or_zero(mailbox.blacklists),
        opened_14days=valid_or_zero(mailbox.opened_14days),
        avg_open_rate=valid_or_zero(mailbox.avg_open_rate),
    )
