"""Prepare a report for display: its verdict, its findings grouped by domain, and trends over earlier audits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from outreach_async.audit._findings import Finding, Severity
from outreach_async.audit._report import Delta, Diff, HistoryPoint, Report, findings_of
from outreach_async.audit._rules import rule_title
from outreach_async.audit._scoring import Score
from outreach_async.audit.reports._summary import is_about_mailboxes, is_about_reading, subject_name, workspace_label
from outreach_async.audit.reports._wording import (
    better_or_worse,
    figure_meaning,
    format_count,
    format_figure,
    format_time,
    replace_unprintable,
)
from outreach_async.models import Number

COUNTED_SEVERITIES: Final = (Severity.CRITICAL, Severity.ERROR, Severity.WARNING)
"""Severities with a column of their own in the table of domains."""

MAX_DETAILED: Final = 10
"""Maximum number of domains that are shown in detail. Also the maximum number of reading errors whose message is shown."""

MAX_POINTS: Final = 30
"""Maximum number of audits that a trend line shows."""

GOOD_SCORE: Final = 90
"""Lowest score that counts as good."""

FAIR_SCORE: Final = 40
"""Lowest score that counts as fair; a lower score is critical."""

AUTHENTICATION_RULES: Final = {"SPF": "OA101", "DKIM": "OA102", "DMARC": "OA103"}
"""Ids of the rules that report missing SPF, DKIM and DMARC."""

_COUNT_NAMES: Final = {Severity.CRITICAL: "Critical", Severity.ERROR: "Errors", Severity.WARNING: "Warnings"}

_BARS: Final = "▁▂▃▄▅▆▇█"
_SCORE: Final = "score"
_MAX_NAMES: Final = 5


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
class AuditTrends:
    """The history of an audit, prepared for display."""

    summary: str
    trends: list[Trend]


@attrs.frozen(kw_only=True)
class FigureChange:
    """A number that changed since an earlier audit, prepared for display."""

    name: str
    has_name: bool
    figure: str
    before: str
    after: str
    better: bool | None

    @property
    def note(self) -> str:
        """The direction of the change as text: ` (better)`, ` (worse)` or nothing."""
        return better_or_worse(self.better)


@attrs.frozen(kw_only=True)
class Overview:
    """The details of a report, prepared for display. Every string is safe to print in a terminal."""

    unread: list[tuple[str, str]]
    unread_names: list[str]
    scope: str
    figure_changes: list[FigureChange]
    trends: AuditTrends | None
    worst_domains: list[DomainView]
    other_domains: list[DomainView]
    rest: str
    unknowable: list[str]


def build_overview(report: Report) -> Overview:
    """Prepare the details of a report for display."""
    unread = [finding for finding in findings_of(report, Severity.ERROR) if is_about_reading(finding)]
    names = [workspace_label(finding.workspace, report.names) for finding in unread]
    errors = [replace_unprintable(finding.message) for finding in unread[:MAX_DETAILED]]
    views = build_domain_views(report)
    worst, others = views[:MAX_DETAILED], views[MAX_DETAILED:]
    grave = [view for view in others if view.severity.reaches(Severity.ERROR)]
    mild = len(others) - len(grave)
    clean = report.scores.domains.keys() - {finding.domain for finding in report.findings}
    further = f"{format_count(mild, 'more domain')} with warnings or notes only; " if mild else ""
    deltas = (*report.diff.scores, *report.diff.deltas) if report.diff else ()
    return Overview(
        unread=list(zip(names, errors, strict=False)),
        unread_names=names[MAX_DETAILED:],
        scope=_describe_scope(report.diff, report.names) if report.diff else "",
        figure_changes=list(map(_build_figure_change, sorted(deltas, key=_importance_key))),
        trends=build_trends(report),
        worst_domains=worst,
        other_domains=grave,
        rest=f"{further}{format_count(len(clean), 'domain')} without findings.",
        unknowable=list(map(replace_unprintable, report.not_judged)),
    )


def _describe_scope(diff: Diff, names: Mapping[str, str]) -> str:
    parts = {"only this audit covers": diff.added_workspaces, "only the earlier audit covers": diff.removed_workspaces}
    described = "; ".join(f"{words} {_name_some(spaces, names)}" for words, spaces in parts.items() if spaces)
    return f"The audits cover different workspaces: {described}." if described else ""


def _name_some(workspaces: Sequence[str], names: Mapping[str, str]) -> str:
    more, shown = len(workspaces) - _MAX_NAMES, [workspace_label(each, names) for each in workspaces[:_MAX_NAMES]]
    return f"{', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}"


def _build_figure_change(delta: Delta) -> FigureChange:
    meaning = figure_meaning(delta.figure)
    return FigureChange(
        has_name=delta.kind != "audit",
        name="Overall" if delta.kind == "audit" else replace_unprintable(delta.name or delta.key),
        figure=meaning.label,
        before=_format_value(delta, delta.before),
        after=_format_value(delta, delta.after),
        better=meaning.is_better(delta.before, delta.after),
    )


def _format_value(delta: Delta, value: Number | None) -> str:
    """Format a number for display. A severity, from 1 (info) to 4 (critical), is shown as its name."""
    if delta.figure == "severity" and value is not None and value in range(1, len(Severity) + 1):
        return list(Severity)[-int(value)].value
    return format_figure(value)


def _importance_key(delta: Delta) -> tuple[bool, bool, float, str]:
    """Return a sort key: the whole audit first, then scores, and among figures the one that became worst first."""
    gain = 0.0 if delta.before is None or delta.after is None else delta.after - delta.before
    return delta.kind != "audit", delta.figure != _SCORE, figure_meaning(delta.figure).direction * gain, delta.key


def score_tone(score: float | None, severity: Severity | None = None) -> str:
    """Return the tone of a score, which determines its colour: `good`, `warning` or `critical`; `info` if there is no score."""
    if score is None:
        return "info"
    if severity is Severity.CRITICAL:
        return "critical"
    is_good = score >= GOOD_SCORE and severity is not Severity.ERROR  # the colour is never milder than the verdict
    return "good" if is_good else "warning" if score >= FAIR_SCORE else "critical"


def build_domain_views(report: Report) -> list[DomainView]:
    """Return the domains and servers with findings, the worst first."""
    by_domain: defaultdict[str, dict[tuple[int, str], tuple[Finding, int]]] = defaultdict(dict)
    for finding in report.findings:
        if is_about_mailboxes(finding):
            name = finding.domain or ("(no domain)" if finding.server_ip is None else f"server {finding.server_ip}")
            first, count = by_domain[name].get(key := (finding.severity.rank, finding.rule), (finding, 0))
            by_domain[name][key] = first, count + 1
    authentication = build_authentication(report)
    views = (
        _build_domain_view(report.scores.domains.get(name), name, groups, authentication) for name, groups in by_domain.items()
    )
    return sorted(
        views, key=lambda view: (view.severity.rank, -1.0 if view.score is None else view.score, -view.mailboxes, view.name)
    )


def _build_domain_view(
    score: Score | None,
    name: str,
    groups: Mapping[tuple[int, str], tuple[Finding, int]],
    authentication: Callable[[str, int], list[Authentication]],
) -> DomainView:
    return DomainView(
        name=replace_unprintable(name),
        score=score.score if score else None,
        mailboxes=score.mailboxes if score else 0,
        authentication=authentication(name, score.mailboxes if score else 0),
        issues=[_build_issue(*groups[key]) for key in sorted(groups)],
    )


def _build_issue(first: Finding, count: int) -> Issue:
    title = rule_title(first.rule)
    return Issue(
        rule=first.rule,
        title=f"{title}: {format_count(count, 'mailbox')}" if count > 1 else title,
        severity=first.severity,
        findings=count,
        subject=replace_unprintable(subject_name(first)),
        message=replace_unprintable(first.message),
    )


def build_authentication(report: Report) -> Callable[[str, int], list[Authentication]]:
    """Return a function that builds the `Authentication` list of a domain."""
    # The arguments of the function are the name of the domain and its number of checked mailboxes.
    rules = set(AUTHENTICATION_RULES.values())
    counts = Counter((finding.domain, finding.rule) for finding in report.findings if finding.rule in rules)

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


def build_trends(report: Report) -> AuditTrends | None:
    """Return the trends of the earlier audits in a report's history and of the report itself; `None` if there is no history."""
    if not report.history:
        return None
    points = [*report.history, HistoryPoint.of(report)][-MAX_POINTS:]
    others = sum(point.scope != points[-1].scope for point in points)
    differ = format_count(others, "of them does not cover", "of them do not cover")
    scope = f" {differ} the same workspaces as this audit." if others else ""
    counts = [Trend(name, [point.counts.get(severity, 0) for point in points]) for severity, name in _COUNT_NAMES.items()]
    return AuditTrends(
        summary=f"{format_count(len(points), 'audit')} since {format_time(points[0].at)}.{scope}",
        trends=[
            Trend("Score", [point.score for point in points]),
            *counts,
            Trend("Mailboxes", [point.mailboxes for point in points]),
        ],
    )
