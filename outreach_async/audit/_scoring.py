"""Compute scores from 0 to 100 from the findings: for all mailboxes, and for each group of mailboxes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import chain
from typing import Any, Final

import attrs

from outreach_async.audit._evaluation import FIGURES, OWN_SERVER_TYPE, AuditState, FinalFindings, FlaggedMailbox
from outreach_async.audit._findings import GROUP_KINDS, HEALTHY_PERCENT, Finding, Group, GroupKind, Row, Severity
from outreach_async.audit._totals import OWN_SERVER, MailboxTotals, to_thousandths
from outreach_async.audit._values import to_json_values
from outreach_async.models import Number

MAX_SCORE: Final = 100
BASE_EMAILS: Final = 30
"""E-mails that every mailbox counts for, in addition to those it sent in 30 days.

A finding about a mailbox that has sent nothing yet therefore lowers the score, and mailboxes have equal weight if none has sent.
"""

_WHOLE: Final = 1_000_000
"""The share of a healthy mailbox. Shares are integers, because sums of integers do not depend on the order of addition."""

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
        score: Mean of the mailboxes' scores, weighted by the e-mails sent; see `Scores`.
        mailboxes: Number of checked mailboxes.
        sent_30days: E-mails sent in 30 days.

    Example:
        ```python
        report = await audit(client, ["space_1"])
        print(report.scores.workspaces["space_1"].score)  # -> 74.5
        ```
    """

    score: float
    mailboxes: int
    sent_30days: Number


@attrs.frozen(kw_only=True)
class Scores:
    """The scores of an audit. Workspaces and domains without checked mailboxes have no score.

    The score of a workspace, a domain, a server, a type or the whole audit is the mean score of its mailboxes. Here, the findings
    about the domain and the server of a mailbox count as if they were its own. The weight of a mailbox is the number of e-mails
    that it sent in 30 days, plus 30, so that a mailbox that has sent nothing yet counts too. Means are rounded down to one
    decimal: 100 means that there is no warning or worse.

    Each further finding lowers the score, and each resolved one raises it: with 1 critical mailbox of 201 that send equally, the
    score is 99.5; with 100 of 300, it is 70. A severity says how urgent a problem is, and the score says how much of the sending
    is affected. Findings about campaigns do not count, because the service does not say which mailboxes send for a campaign.

    Attributes:
        overall: Score of all mailboxes, computed like that of any group; `None` if no mailbox was checked.
        workspaces: Scores by workspace id, in the order of the audit.
        domains: Scores of at most 10,000 domains, those with the worst finding first.

    Example:
        ```python
        report = await audit(client, ["space_1"])
        print(report.scores.overall, list(report.scores.domains))  # -> 74.5 ['north.example']
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


def _healthy_share(findings: Iterable[Finding]) -> int:
    """Return the share of a mailbox, domain or server that remains healthy. For each rule, only the worst finding counts."""
    percents: dict[str, int] = {}
    for finding in findings:
        percents[finding.rule] = min(HEALTHY_PERCENT[finding.severity], percents.get(finding.rule, 100))
    return int(_WHOLE * math.prod(percents.values()) // 100 ** len(percents))


def mailbox_score(findings: Iterable[Finding]) -> int:
    """Return the score of a mailbox from its own findings.

    The score is 100, multiplied by 0.1 for each critical finding, 0.5 for each error and 0.9 for each warning. Several findings
    of one rule count once.

    Example:
        ```python
        print(mailbox_score(check((await client.mailboxes.list()).data[1])))  # -> 50
        ```
    """
    return round(MAX_SCORE * _healthy_share(findings) / _WHOLE)


def _weight(mailboxes: int, sent: Number) -> int:
    """Return the weight of mailboxes in a mean: the e-mails they sent, in thousandths, plus `BASE_EMAILS` for each."""
    return to_thousandths(sent) + to_thousandths(BASE_EMAILS) * mailboxes


@attrs.define
class GroupStats:
    """What a group of mailboxes loses to findings (shares multiplied by weights), and the number of its findings."""

    lost: int = 0
    counts: list[int] = attrs.field(factory=lambda: [0] * len(Severity))

    def add(self, ranks: Iterable[int], lost: int = 0) -> None:
        """Count findings about the group or one of its mailboxes, and add what they cost."""
        self.lost += lost
        for rank in ranks:
            self.counts[rank] += 1

    def score(self, total: MailboxTotals) -> float:
        whole = _WHOLE * _weight(total.mailboxes, total.sent_30days)
        return max(0, 10 * MAX_SCORE * (whole - self.lost) // whole) / 10

    @property
    def severity(self) -> Severity | None:
        """Severity of the group's worst finding; `None` if there are no findings."""
        return next((severity for severity, count in zip(Severity, self.counts, strict=True) if count), None)


_NO_FINDINGS: Final = GroupStats()


class GroupScores:
    """Computes the scores, the groups and the mailbox rows of a report."""

    # A finding about a domain or server costs each of its mailboxes a share, with or without findings of their own.

    def __init__(self, state: AuditState, final: FinalFindings) -> None:
        self._totals = state.totals
        self._overall = GroupStats()
        self._ranked: list[tuple[int, int, Number, int]] = []
        self._flagged = list(chain.from_iterable(final.flagged))
        self._stats: dict[GroupKind, defaultdict[str, GroupStats]] = {kind: defaultdict(GroupStats) for kind in GROUP_KINDS}
        for finding in chain.from_iterable(chain(final.campaigns, final.errors)):
            self._stats["workspace"][finding.workspace].add([finding.severity.rank])
        self._shared = self._add_group_findings(final.group_findings)
        if any(self._shared.values()):
            self._add_shared_losses(state)
        for place, flagged in enumerate(self._flagged):
            self._add_mailbox(flagged, place)
        self._worst = {kind: self._worst_keys(kind) for kind in GROUP_KINDS}

    def _add_group_findings(self, findings: Iterable[Finding]) -> dict[GroupKind, dict[str, int]]:
        """Count the findings about domains and servers. Return the share of each that remains healthy, unless it is whole."""
        grouped: dict[GroupKind, defaultdict[str, list[Finding]]] = {kind: defaultdict(list) for kind in ("domain", "server_ip")}
        for finding in findings:
            kind: GroupKind = "domain" if finding.server_ip is None else "server_ip"
            key = finding.server_ip or finding.domain or ""
            grouped[kind][key].append(finding)
            self._stats[kind][key].add([finding.severity.rank])
        return {
            kind: {key: share for key, about in groups.items() if (share := _healthy_share(about)) < _WHOLE}
            for kind, groups in grouped.items()
        }

    def _shared_share(self, domain: str | None, server_ip: str, *, own_server: bool) -> int:
        """Return the share of a mailbox that remains after the findings about its domain and its server."""
        share = self._shared["domain"].get(domain or "", _WHOLE)
        # Findings about servers count mailboxes of type `SMTP & IMAP` only.
        return share * self._shared["server_ip"].get(server_ip, _WHOLE) // _WHOLE if own_server else share

    def _add_shared_losses(self, state: AuditState) -> None:
        domains, servers, types = (list(self._totals[kind]) for kind in ("domain", "server_ip", "type"))
        for workspace, columns in zip(state.workspaces, state.columns, strict=True):
            for _, domain_index, server_index, type_index, sent, _, flags in columns.rows():
                domain, server_ip = None if domain_index < 0 else domains[domain_index], servers[server_index]
                share = self._shared_share(domain, server_ip, own_server=bool(flags & OWN_SERVER))
                if share < _WHOLE:
                    lost = (_WHOLE - share) * (sent + to_thousandths(BASE_EMAILS))
                    for group in self._groups_of(workspace, domain, types[type_index], server_ip):
                        group.lost += lost

    def _groups_of(self, workspace: str, domain: str | None, type_: str, server_ip: str) -> Iterator[GroupStats]:
        yield from (self._overall, self._stats["workspace"][workspace])
        yield from (self._stats["type"][type_], self._stats["server_ip"][server_ip])
        if domain is not None:
            yield self._stats["domain"][domain]

    def _add_mailbox(self, flagged: FlaggedMailbox, place: int) -> None:
        findings, domain = flagged.findings, flagged.findings[0].domain
        own, sent = _healthy_share(findings), findings[0].sent_30days or 0
        ranks = [finding.severity.rank for finding in findings]  # computed once: a mailbox belongs to up to five groups
        self._ranked.append((own, min(ranks), -sent, place))
        shared = self._shared_share(domain, flagged.server_ip, own_server=flagged.type == OWN_SERVER_TYPE)
        lost = (shared - shared * own // _WHOLE) * _weight(1, sent)
        for group in self._groups_of(flagged.workspace, domain, flagged.type, flagged.server_ip):
            group.add(ranks, lost)

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
