"""Compute scores from 0 to 100 from the findings: for all mailboxes, and for each group of mailboxes."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from heapq import nsmallest
from typing import Any, Final

import attrs

from outreach_async.audit._evaluation import AuditState
from outreach_async.audit._findings import GROUP_KINDS, HEALTHY_PERCENT, Finding, Group, GroupKind, Row, Severity
from outreach_async.audit._flagged import FIGURES, FindingList, Flagged, refer
from outreach_async.audit._totals import OWN_SERVER, MailboxTotals, to_thousandths
from outreach_async.models import Number

MAX_SCORE: Final = 100
BASE_EMAILS: Final = 30
"""E-mails that every mailbox counts for, besides those it sent in 30 days, so that one that has sent nothing counts too."""

_SEVERITIES: Final = len(Severity)
_KEPT_PERCENT: Final = tuple(HEALTHY_PERCENT[severity] for severity in Severity)
_WHOLE: Final = 1_000_000
"""The share of a healthy mailbox. Shares are integers, because sums of integers do not depend on the order of addition."""

MAX_SCORED_DOMAINS: Final = 10_000  # in a report: the worst
MAX_GROUPS: Final = 1_000  # of each kind in a report, the worst; a million mailboxes may have 250,000 domains
MAX_ROWS: Final = 1_000  # mailboxes that a report lists individually, the worst


@attrs.frozen(kw_only=True)
class Score:
    """The score of a group of mailboxes.

    Attributes:
        score: Mean of the mailboxes' scores, weighted by the e-mails sent; see `Scores`.
        mailboxes, sent_30days: Number of checked mailboxes, and of the e-mails that they sent in 30 days.

    Example:
        ```python
        print(report.scores.workspaces["space_1"].score)  # -> 74.5
        ```
    """

    score: float
    mailboxes: int
    sent_30days: Number


@attrs.frozen(kw_only=True)
class Scores:
    """The scores of an audit. Workspaces and domains without checked mailboxes have no score.

    A score is the mean of the mailboxes' scores, in which the findings about a mailbox's domain and server count as its own. The
    weight of a mailbox is the number of e-mails that it sent in 30 days, plus 30, so that one that has sent nothing counts too.
    Means are rounded down to one decimal: 100 means that there is no warning or worse.

    Each further finding lowers the score, and each resolved one raises it: with 1 critical mailbox of 201 that send equally, the
    score is 99.5; with 100 of 300, it is 70. A severity says how urgent a problem is, and the score says how much of the sending
    is affected. Findings about campaigns do not count, because the service does not say which mailboxes send for a campaign.

    Attributes:
        overall: Score of all mailboxes, computed like that of any group; `None` if no mailbox was checked.
        workspaces: Scores by workspace id, in the order of the audit.
        domains: Scores of at most 10,000 domains, those with the worst finding first.

    Example:
        ```python
        print(report.scores.overall)  # -> 74.5
        ```
    """

    overall: float | None
    workspaces: dict[str, Score]
    domains: dict[str, Score]


@cache
def _share_of(ranks: tuple[int, ...]) -> int:
    return int(_WHOLE * math.prod(_KEPT_PERCENT[rank] for rank in ranks) // 100 ** len(ranks))


def _healthy_share(findings: Iterable[Finding]) -> int:
    """Return the share of a mailbox, domain or server that its findings leave. Only the worst finding of each rule counts."""
    worst: dict[str, int] = {}
    for finding in findings:
        worst[finding.rule] = min(finding.severity.rank, worst.get(finding.rule, len(Severity)))
    return _share_of(tuple(worst.values()))


def mailbox_score(findings: Iterable[Finding]) -> int:
    return round(MAX_SCORE * _healthy_share(findings) / _WHOLE)


def _weight(mailboxes: int, sent: Number) -> int:
    """Return the weight of mailboxes in a mean: the e-mails they sent, in thousandths, plus `BASE_EMAILS` for each."""
    return to_thousandths(sent) + to_thousandths(BASE_EMAILS) * mailboxes


class GroupStats:
    """The number of findings about the groups of one kind, and what they lose to findings (shares multiplied by weights)."""

    def __init__(self, size: int) -> None:
        self.lost = [0] * size
        self._counts = array("q", bytes(8 * size * _SEVERITIES))

    def add(self, index: int, ranks: Iterable[int], lost: int = 0) -> None:
        """Count findings about a group or one of its mailboxes, and add what they cost. An index of -1 stands for no group."""
        if index >= 0:
            self.lost[index] += lost
            for rank in ranks:
                self._counts[_SEVERITIES * index + rank] += 1

    def counts_of(self, index: int) -> dict[Severity, int]:
        return dict(zip(Severity, self._counts[_SEVERITIES * index : _SEVERITIES * (index + 1)], strict=True))

    def severity(self, index: int) -> Severity | None:
        return next((severity for severity, count in self.counts_of(index).items() if count), None)

    def is_clean(self, index: int) -> bool:
        return not self.lost[index] and self.severity(index) is None


def _mean_score(lost: int, total: MailboxTotals) -> float:
    whole = _WHOLE * _weight(total.mailboxes, total.sent_30days)
    return max(0, 10 * MAX_SCORE * (whole - lost) // whole) / 10


class GroupScores:
    # A finding about a domain or server costs each of its mailboxes a share, with or without findings of their own.

    def __init__(self, state: AuditState, others: Mapping[str, Sequence[Finding]], about_groups: Sequence[Finding]) -> None:
        """`others` are the findings about workspaces and campaigns, by workspace."""
        self._state = state
        self._totals = state.totals
        self._names = {kind: list(totals) for kind, totals in self._totals.items()}
        self._stats = {kind: GroupStats(len(totals)) for kind, totals in self._totals.items()}
        self._lost = 0
        self._shared = self._add_group_findings(about_groups)
        if any(self._shared.values()):
            self._add_shared_losses()
        self.findings = FindingList(state.builder)
        self._worst_mailboxes = nsmallest(MAX_ROWS, self._add_findings(others))
        self.findings.extend(about_groups)
        self._worst = {kind: self._worst_indexes(kind) for kind in GROUP_KINDS}

    def _add_group_findings(self, findings: Iterable[Finding]) -> dict[GroupKind, dict[int, int]]:
        """Count the findings about domains and servers. Return the share of each that remains healthy, unless it is whole."""
        grouped: dict[GroupKind, defaultdict[int, list[Finding]]] = {kind: defaultdict(list) for kind in ("domain", "server_ip")}
        for finding in findings:
            kind: GroupKind = "domain" if finding.server_ip is None else "server_ip"
            index = self._totals[kind].index(finding.server_ip or finding.domain or "")
            grouped[kind][index].append(finding)
            self._stats[kind].add(index, [finding.severity.rank])
        return {
            kind: {index: share for index, about in groups.items() if (share := _healthy_share(about)) < _WHOLE}
            for kind, groups in grouped.items()
        }

    def _shared_share(self, domain: int, server: int, flags: int) -> int:
        share = self._shared["domain"].get(domain, _WHOLE)
        # Findings about servers count mailboxes of type `SMTP & IMAP` only.
        return share * self._shared["server_ip"].get(server, _WHOLE) // _WHOLE if flags & OWN_SERVER else share

    def _add_shared_losses(self) -> None:
        lost = {kind: stats.lost for kind, stats in self._stats.items()}
        domains, servers, types = lost["domain"], lost["server_ip"], lost["type"]
        base = to_thousandths(BASE_EMAILS)
        for workspace, columns in zip(self._state.workspaces, self._state.columns, strict=True):
            whole = 0
            for _, domain, server, type_, sent, _, flags in columns.rows():
                share = self._shared_share(domain, server, flags)
                if share < _WHOLE:
                    part = (_WHOLE - share) * (sent + base)
                    whole += part
                    servers[server] += part
                    types[type_] += part
                    if domain >= 0:
                        domains[domain] += part
            if whole:
                self._stats["workspace"].add(self._totals["workspace"].index(workspace), (), whole)
                self._lost += whole

    def _add_findings(self, others: Mapping[str, Sequence[Finding]]) -> Iterator[tuple[int, int, Number, int, int]]:
        """Add all findings in their order. Yield the mailboxes with findings, each with its place and a key for sorting."""
        for place, workspace in enumerate(self._state.workspaces):
            index, found = self._totals["workspace"].index(workspace), others.get(workspace, ())
            for number, mailbox in enumerate(self._state.flagged[place]):
                yield *self._add_mailbox(place, number, mailbox, index), place, number
            self.findings.extend(found)
            self._stats["workspace"].add(index, [finding.severity.rank for finding in found])

    def _add_mailbox(self, place: int, number: int, mailbox: Flagged, workspace: int) -> tuple[int, int, Number]:
        columns, builder = self._state.columns[place], self._state.builder
        domain, server, type_ = columns.domains[mailbox.row], columns.servers[mailbox.row], columns.types[mailbox.row]
        name = None if domain < 0 else self._names["domain"][domain]
        ranks = tuple([builder.rank(violation, name) for violation in mailbox.violations])
        for at, rank in enumerate(ranks):
            self.findings.append(rank, refer(place, number, at))
        own, sent = _share_of(ranks), mailbox.figures[0]
        shared = self._shared_share(domain, server, columns.flags[mailbox.row])
        lost = (shared - shared * own // _WHOLE) * _weight(1, sent)
        self._lost += lost
        stats = self._stats
        stats["workspace"].add(workspace, ranks, lost)
        stats["domain"].add(domain, ranks, lost)
        stats["type"].add(type_, ranks, lost)
        stats["server_ip"].add(server, ranks, lost)
        return own, min(ranks), -sent

    def _worst_indexes(self, kind: GroupKind) -> list[int]:
        totals, stats, names = self._totals[kind], self._stats[kind], self._names[kind]
        most = MAX_SCORED_DOMAINS if kind == "domain" else MAX_GROUPS

        def rank(index: int) -> tuple[int, float, int, str]:
            total, severity = totals[names[index]], stats.severity(index) or Severity.INFO
            return severity.rank, _mean_score(stats.lost[index], total), -total.mailboxes, names[index]

        worst = nsmallest(most, (index for index in range(len(names)) if not stats.is_clean(index)), key=rank)
        clean = ((-totals.mailbox_count(name), name, index) for index, name in enumerate(names) if stats.is_clean(index))
        return worst + [index for *_, index in nsmallest(most - len(worst), clean)]

    def scores(self) -> Scores:
        totals = self._totals["workspace"]
        workspaces = {key: totals[key] for key in sorted(totals, key=lambda key: totals[key].first)}
        overall = MailboxTotals(
            sum(total.mailboxes for total in workspaces.values()), sum(total.sent_30days for total in workspaces.values())
        )
        places = {key: index for index, key in enumerate(self._names["workspace"])}
        return Scores(
            overall=_mean_score(self._lost, overall) if overall.mailboxes else None,
            workspaces={key: self._group_score("workspace", places[key]) for key in workspaces},
            domains={self._names["domain"][index]: self._group_score("domain", index) for index in self._worst["domain"]},
        )

    def _group_score(self, kind: GroupKind, index: int) -> Score:
        total = self._totals[kind][self._names[kind][index]]
        score = _mean_score(self._stats[kind].lost[index], total)
        return Score(score=score, mailboxes=total.mailboxes, sent_30days=total.sent_30days)

    def groups(self) -> list[Group]:
        return [self._build_group(kind, index) for kind in GROUP_KINDS for index in self._worst[kind][:MAX_GROUPS]]

    def _build_group(self, kind: GroupKind, index: int) -> Group:
        key, stats = self._names[kind][index], self._stats[kind]
        total = self._totals[kind][key]
        return Group(
            kind=kind,
            key=str(key),
            mailboxes=total.mailboxes,
            score=_mean_score(stats.lost[index], total),
            severity=stats.severity(index),
            counts=stats.counts_of(index),
            sent_30days=total.sent_30days,
            daily_limit=total.daily_limit,
        )

    def rows(self) -> list[Row]:
        places = [(place, number) for *_, place, number in self._worst_mailboxes]
        built = {each: self._build_row(*each) for each in sorted(places)}  # in the order in which they are stored
        return [built[each] for each in places]

    def _build_row(self, place: int, number: int) -> Row:
        mailbox, columns = self._state.flagged[place][number], self._state.columns[place]
        findings = [self._state.builder.build(place, mailbox, violation) for violation in mailbox.violations]
        figures: dict[str, Any] = dict(zip(FIGURES, mailbox.figures, strict=True))
        return Row(
            id=mailbox.id,
            email=mailbox.email,
            workspace=self._state.workspaces[place],
            domain=findings[0].domain,
            type=self._names["type"][columns.types[mailbox.row]],
            status=mailbox.status,
            server_ip=self._names["server_ip"][columns.servers[mailbox.row]],
            score=mailbox_score(findings),
            severity=min((finding.severity for finding in findings), key=lambda severity: severity.rank),
            rules=[finding.rule for finding in findings],
            **figures,
        )
