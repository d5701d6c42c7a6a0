"""Prepare a report for display: its verdict, its findings grouped by domain, and trends over earlier audits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from outreach_async.audit._findings import Finding, Severity
from outreach_async.audit._report import HistoryPoint, Report
from outreach_async.audit._rules import INCOMPLETE, rule_title
from outreach_async.audit._scoring import Score
from outreach_async.audit.reports import _summary as summaries
from outreach_async.audit.reports._campaign_view import CampaignView, build_campaign_view
from outreach_async.audit.reports._wording import format_count, format_figure, format_time, replace_unprintable
from outreach_async.models import Number

COUNTED_SEVERITIES: Final = (Severity.CRITICAL, Severity.ERROR, Severity.WARNING)
"""Severities with a column of their own in the table of domains."""

MAX_DETAILED: Final = 10
"""Maximum number of domains that are shown in detail. Also the maximum number of reading errors whose message is shown."""

MAX_POINTS: Final = 30
"""Maximum number of audits that a trend line shows."""

GOOD_SCORE: Final = 90
"""Lowest score that counts as good."""

FAIR_SCORE: Final = 60
"""Lowest score that counts as fair; a lower score is critical."""

AUTHENTICATION_RULES: Final = {"SPF": "OA101", "DKIM": "OA102", "DMARC": "OA103"}
"""Ids of the rules that report missing SPF, DKIM and DMARC."""

_COUNT_NAMES: Final = {Severity.CRITICAL: "Critical", Severity.ERROR: "Errors", Severity.WARNING: "Warnings"}

_BARS: Final = "▁▂▃▄▅▆▇█"


@attrs.frozen(kw_only=True)
class Issue:
    """The findings about a domain that have the same rule and severity."""

    rule: str
    title: str
    severity: Severity
    findings: int
    subject: str
    message: str


@attrs.frozen
class Authentication:
    """The share of a domain's mailboxes that have one mechanism (SPF, DKIM or DMARC), prepared for display."""

    name: str
    status: str
    share: str
    detail: str = ""

    @property
    def tone(self) -> str:
        """Tone of the status: `good`, `warning` or `error`; `unknown` if the status is unknown."""
        return {"yes": "good", "some": "warning", "no": "error"}.get(self.status, "unknown")


@attrs.frozen(kw_only=True)
class DomainView:
    """A domain with findings, prepared for display. A server with findings is shown like a domain."""

    name: str
    score: float | None
    mailboxes: int
    authentication: list[Authentication]
    issues: list[Issue]

    @property
    def visible_issues(self) -> list[Issue]:
        """The issues to show: warnings and worse, or all issues if there are only notes."""
        return [issue for issue in self.issues if issue.severity in COUNTED_SEVERITIES] or self.issues

    @property
    def severity(self) -> Severity:
        """Severity of the worst issue."""
        return self.issues[0].severity

    def count(self, severity: Severity) -> int:
        """Return the number of findings about the domain that have this severity."""
        return sum(issue.findings for issue in self.issues if issue.severity is severity)

    @property
    def points(self) -> str:
        """The score as a string, such as `80`; `-` if there is no score."""
        return "-" if self.score is None else f"{self.score:g}"

    @property
    def tone(self) -> str:
        """Tone of the domain's score, as defined by `score_tone`."""
        return score_tone(self.score, self.severity)

    @property
    def score_label(self) -> str:
        return "not scored" if self.score is None else f"score {self.points}"


@attrs.frozen
class Trend:
    """The values of one number, such as the score, over several audits."""

    name: str
    values: Sequence[Number | None]

    @property
    def first(self) -> str:
        """The oldest value, formatted for display."""
        return format_figure(self.values[0])

    @property
    def last(self) -> str:
        """The latest value, formatted for display."""
        return format_figure(self.values[-1])

    @property
    def heights(self) -> list[float | None]:
        """The values, scaled from 0 (lowest) to 1 (highest); 0.5 if all are equal, and `None` if missing."""
        known = [value for value in self.values if value is not None]
        low, high = min(known, default=0), max(known, default=0)
        return [None if value is None else (value - low) / (high - low) if high > low else 0.5 for value in self.values]

    @property
    def sparkline(self) -> str:
        """The values as a line of block characters, with a middle dot for a missing value."""
        return "".join("·" if height is None else _BARS[round(height * (len(_BARS) - 1))] for height in self.heights)


@attrs.frozen
class Trends:
    """The history of an audit, prepared for display."""

    summary: str
    trends: list[Trend]


@attrs.frozen(kw_only=True)
class Overview:
    """A report prepared for display. Every string is safe to print in a terminal."""

    headline: str
    verdict: str
    score: float | None
    tone: str
    counts: dict[Severity, int]
    audited_at: str
    unread: list[tuple[str, str]]
    unread_names: list[str]
    changes: summaries.Changes | None
    campaigns: CampaignView | None
    trends: Trends | None
    actions: list[summaries.Action]
    worst_domains: list[DomainView]
    other_domains: list[DomainView]
    summary: str
    unknowable: list[str]

    @property
    def counts_line(self) -> str:
        """The number of findings by severity, in one line."""
        return format_counts(self.counts)


def build_overview(report: Report) -> Overview:
    """Prepare a report for display."""
    unread = [finding for finding in report.findings if _is_about_reading(finding)]
    names = [replace_unprintable(finding.workspace) for finding in unread]
    errors = [replace_unprintable(finding.message) for finding in unread[:MAX_DETAILED]]
    views = build_domain_views(report)
    worst, others = views[:MAX_DETAILED], views[MAX_DETAILED:]
    rest = [view for view in others if view.severity.reaches(Severity.ERROR)]
    mild = len(others) - len(rest)
    clean = report.scores.domains.keys() - {finding.domain for finding in report.findings}
    further = f"{format_count(mild, 'more domain')} with warnings or notes only; " if mild else ""
    return Overview(
        headline=format_headline(report),
        verdict=format_verdict(report),
        score=report.scores.overall,
        tone=next((severity.value for severity, count in report.counts.items() if count), "good"),
        counts=report.counts,
        audited_at=format_time(report.at),
        unread=list(zip(names, errors, strict=False)),
        unread_names=names[MAX_DETAILED:],
        changes=summaries.build_changes(report),
        campaigns=build_campaign_view(report.campaigns),
        trends=build_trends(report),
        actions=summaries.build_actions(report.findings, report.policy),
        worst_domains=worst,
        other_domains=rest,
        summary=f"{further}{format_count(len(clean), 'domain')} without findings.",
        unknowable=list(map(replace_unprintable, report.not_judged)),
    )


def format_headline(report: Report) -> str:
    """Return the size of the audit and its score, in one line."""
    overall = report.scores.overall
    return f"Mailbox audit: {format_size(report)}. {'No score.' if overall is None else f'Score {overall:g} of 100.'}"


def format_counts(counts: Mapping[Severity, int]) -> str:
    """Return the number of findings by severity, such as `1 critical, 2 errors, 0 warnings, 1 note`."""
    return ", ".join(count_severity(severity, count) for severity, count in counts.items())


def count_severity(severity: Severity, count: int) -> str:
    """Return the number of findings of one severity as text, such as `2 errors` or `1 critical`."""
    noun = "note" if severity is Severity.INFO else severity.value
    return f"{count:,} critical" if severity is Severity.CRITICAL else format_count(count, noun)


def format_size(report: Report) -> str:
    """Return the numbers of mailboxes, domains and workspaces, and of campaigns if the audit read campaigns."""
    sizes = {"mailbox": report.mailboxes, "domain": len(report.scores.domains), "workspace": len(report.workspaces)}
    if report.campaigns is not None:
        sizes["campaign"] = report.campaigns.checked
    return ", ".join(format_count(count, noun) for noun, count in sizes.items())


_VERDICTS: Final = {
    Severity.CRITICAL: "Stop sending from {extent} until the problem is fixed.",
    Severity.ERROR: "Fix {extent} today; nothing is critical.",
    Severity.WARNING: "Review {extent}; nothing is broken.",
    Severity.INFO: "No risks found; there are notes on {extent}.",
}


def format_verdict(report: Report) -> str:
    """Return the conclusion of a report, in one or two sentences."""
    if report.denied:
        return "Nothing could be read: the service denied access to every workspace."
    partly = "Not everything could be read. " if report.incomplete else ""
    for severity, verdict in _VERDICTS.items():
        findings = [finding for finding in report.findings if finding.severity is severity and not _is_about_reading(finding)]
        if findings:
            return f"{partly}{verdict.format(extent=_format_extent(findings))}"
    checked = report.mailboxes or (report.campaigns and report.campaigns.checked)
    return f"{partly}{'No problems found.' if checked else 'No mailboxes were checked.'}"


def _format_extent(findings: Sequence[Finding]) -> str:
    about_campaigns = [finding for finding in findings if finding.campaign is not None]
    others = [finding for finding in findings if finding.campaign is None]
    return " and ".join(_format_groups(part) for part in (others, about_campaigns) if part)


def _format_groups(findings: Sequence[Finding]) -> str:
    mailboxes = summaries.count_mailboxes(findings)
    kinds = {summaries.group_kind(finding) for finding in findings}
    noun = kinds.pop() if len(kinds) == 1 else "group"
    groups = format_count(len(set(map(summaries.group_key, findings))), noun)
    return f"{format_count(mailboxes, 'mailbox')} on {groups}" if mailboxes else groups


def score_tone(score: float | None, severity: Severity | None = None) -> str:
    """Return the tone of a score, which determines its colour: `good`, `warning` or `critical`; `info` if there is no score."""
    if score is None:
        return "info"
    if severity is Severity.CRITICAL:
        return "critical"
    return "good" if score >= GOOD_SCORE else "warning" if score >= FAIR_SCORE else "critical"


def _is_about_reading(finding: Finding) -> bool:
    """Return whether a finding reports an error while reading a whole list, such as the mailboxes of a workspace."""
    return finding.rule in INCOMPLETE and not _has_mailboxes(finding) and finding.campaign is None


def _has_mailboxes(finding: Finding) -> bool:
    return bool(finding.domain or finding.mailbox or finding.email or finding.server_ip)


def build_domain_views(report: Report) -> list[DomainView]:
    """Return the domains and servers with findings, the worst first."""
    by_domain: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if _has_mailboxes(finding):
            name = finding.domain or ("(no domain)" if finding.server_ip is None else f"server {finding.server_ip}")
            by_domain[name].append(finding)
    authentication = build_authentication(report)
    views = (
        _build_domain_view(report.scores.domains.get(name), name, findings, authentication)
        for name, findings in by_domain.items()
    )
    return sorted(
        views, key=lambda view: (view.severity.rank, -1.0 if view.score is None else view.score, -view.mailboxes, view.name)
    )


def _build_domain_view(
    score: Score | None, name: str, findings: Iterable[Finding], authentication: Callable[[str, int], list[Authentication]]
) -> DomainView:
    groups: defaultdict[tuple[int, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.severity.rank, finding.rule].append(finding)
    return DomainView(
        name=replace_unprintable(name),
        score=score.score if score else None,
        mailboxes=score.mailboxes if score else 0,
        authentication=authentication(name, score.mailboxes if score else 0),
        issues=[_build_issue(group) for _, group in sorted(groups.items())],
    )


def _build_issue(findings: Sequence[Finding]) -> Issue:
    first, count = findings[0], len(findings)
    title = rule_title(first.rule)
    return Issue(
        rule=first.rule,
        title=f"{title}: {format_count(count, 'mailbox')}" if count > 1 else title,
        severity=first.severity,
        findings=count,
        subject=replace_unprintable(summaries.subject_name(first)),
        message=replace_unprintable(first.message),
    )


def build_authentication(report: Report) -> Callable[[str, int], list[Authentication]]:
    """Return a function that builds the `Authentication` list of a domain."""
    # The arguments of the function are the name of the domain and its number of checked mailboxes.
    counts = Counter((finding.domain, finding.rule) for finding in report.findings)

    def describe(domain: str, mailboxes: int) -> list[Authentication]:
        return [
            Authentication(name, "-", "")
            if rule in report.policy.off or not mailboxes
            else _describe_authentication(name, max(0, mailboxes - counts[domain, rule]), mailboxes)
            for name, rule in AUTHENTICATION_RULES.items()
        ]

    return describe


def _describe_authentication(name: str, having: int, mailboxes: int) -> Authentication:
    share = f"{having / mailboxes:.3f}"
    if 0 < having < mailboxes:
        return Authentication(name, "some", share, f"{having:,} of {mailboxes:,}")
    return Authentication(name, "yes" if having else "no", share)


def build_trends(report: Report) -> Trends | None:
    """Return the trends of the earlier audits in a report's history and of the report itself; `None` if there is no history."""
    if not report.history:
        return None
    points = [*report.history, HistoryPoint.of(report)][-MAX_POINTS:]
    others = sum(point.scope != points[-1].scope for point in points)
    differ = format_count(others, "of them does not cover", "of them do not cover")
    scope = f" {differ} the same workspaces as this audit." if others else ""
    counts = [Trend(name, [point.counts.get(severity, 0) for point in points]) for severity, name in _COUNT_NAMES.items()]
    return Trends(
        summary=f"{format_count(len(points), 'audit')} since {format_time(points[0].at)}.{scope}",
        trends=[
            Trend("Score", [point.score for point in points]),
            *counts,
            Trend("Mailboxes", [point.mailboxes for point in points]),
        ],
    )
