"""A report prepared for display: grouped by domain, the worst first, with the rest summarized. Writers render it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

import attrs

from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.report import Report
from outreach_async.audit.reports.summary import (
    Action,
    Changes,
    build_actions,
    build_changes,
    group_kind,
    group_name,
    subject_name,
)
from outreach_async.audit.reports.wording import NO_DOMAIN, format_count, format_mailboxes, format_time, replace_unprintable
from outreach_async.audit.rules import CATALOGUE

COUNTED_SEVERITIES: Final = (Severity.CRITICAL, Severity.ERROR, Severity.WARNING)
"""Severities with a count in the short line of a domain."""

MAX_DETAILED: Final = 10
"""Maximum domains, and unread workspaces, that are shown in full."""

GOOD_SCORE: Final = 90
FAIR_SCORE: Final = 60
"""Lowest scores that count as good (90) and as fair (60)."""


@attrs.frozen(kw_only=True)
class Issue:
    """The findings of one rule on a domain, at one severity.

    Attributes:
        rule: Id of the rule.
        rule_title: Title of the rule.
        severity: Severity of the findings.
        findings: Number of findings.
        example: One finding: the address or id, and the message.
    """

    rule: str
    rule_title: str
    severity: Severity
    findings: int
    example: str

    @property
    def title(self) -> str:
        """Title of the rule, with the number of mailboxes if it is more than one."""
        return f"{self.rule_title}: {format_mailboxes(self.findings)}" if self.findings > 1 else self.rule_title

    @property
    def labelled_example(self) -> str:
        """The example, marked as such if there are several findings."""
        return f"for example {self.example}" if self.findings > 1 else self.example


@attrs.frozen(kw_only=True)
class DomainView:
    """A domain with findings.

    Attributes:
        name: Name of the domain.
        score: Score of the domain; `None` if none of its mailboxes was checked.
        mailboxes: Number of checked mailboxes.
        issues: Findings grouped by rule and severity, the worst first.
    """

    name: str
    score: float | None
    mailboxes: int
    issues: list[Issue]

    @property
    def visible_issues(self) -> list[Issue]:
        """The issues to show: warnings and worse, or the notes if there is nothing else."""
        return [issue for issue in self.issues if issue.severity in COUNTED_SEVERITIES] or self.issues

    @property
    def severity(self) -> Severity:
        """Severity of the worst issue."""
        return self.issues[0].severity

    def count(self, severity: Severity) -> int:
        """Return the number of findings with this severity."""
        return sum(issue.findings for issue in self.issues if issue.severity is severity)

    @property
    def points(self) -> str:
        """The score as a number, or `-`."""
        return "-" if self.score is None else f"{self.score:g}"

    @property
    def score_label(self) -> str:
        """The score in words."""
        return "not scored" if self.score is None else f"score {self.points}"


@attrs.frozen(kw_only=True)
class Overview:
    """A report prepared for display. Every string is safe for a terminal and a page.

    Attributes:
        headline: Size of the audit, and the score.
        verdict: Conclusion in one sentence.
        tone: The worst severity, or `good` if there are no findings.
        counts: Number of findings by severity.
        audited_at: Time of the audit.
        unread: Reading errors, each as workspace and message.
        unread_names: Ids of further workspaces with reading errors.
        changes: Changes since an earlier audit; `None` if the report was not compared.
        actions: Recommended actions, the most urgent first.
        worst_domains: The worst domains.
        other_domains: Further domains with an error or worse.
        summary: Number of the domains that are not named.
        unknowable: Properties that the audit cannot check.
    """

    headline: str
    verdict: str
    tone: str
    counts: dict[Severity, int]
    audited_at: str
    unread: list[str]
    unread_names: list[str]
    changes: Changes | None
    actions: list[Action]
    worst_domains: list[DomainView]
    other_domains: list[DomainView]
    summary: str
    unknowable: list[str]


def build_overview(report: Report) -> Overview:
    """Prepare a report for display."""
    unread = [finding for finding in report.findings if _is_about_workspace(finding)]
    views = build_domain_views(report)
    worst, others = views[:MAX_DETAILED], views[MAX_DETAILED:]
    rest = [view for view in others if view.severity.reaches(Severity.ERROR)]
    clean = report.scores.domains.keys() - {finding.domain for finding in report.findings}
    tally = Counter(finding.severity for finding in report.findings)
    return Overview(
        headline=format_headline(report),
        verdict=format_verdict(report),
        tone=next((severity.value for severity in Severity if tally[severity]), "good"),
        counts={severity: tally[severity] for severity in Severity},
        audited_at=format_time(report.at),
        unread=[
            f"{replace_unprintable(finding.workspace)}: {replace_unprintable(finding.message)}"
            for finding in unread[:MAX_DETAILED]
        ],
        unread_names=[replace_unprintable(finding.workspace) for finding in unread[MAX_DETAILED:]],
        changes=build_changes(report),
        actions=build_actions(report.findings, report.policy),
        worst_domains=worst,
        other_domains=rest,
        summary=_format_other_domains(mild=len(others) - len(rest), clean=len(clean)),
        unknowable=list(map(replace_unprintable, report.not_judged)),
    )


def format_headline(report: Report) -> str:
    """Return the size of the audit and its score, in one line."""
    overall = report.scores.overall
    return f"Mailbox audit: {format_size(report)}. {'No score.' if overall is None else f'Score {overall:g} of 100.'}"


def format_size(report: Report) -> str:
    """Return the number of mailboxes, domains and workspaces."""
    domains, workspaces = len(report.scores.domains), len(report.workspaces)
    return f"{format_mailboxes(report.mailboxes)}, {format_count(domains, 'domain')}, {format_count(workspaces, 'workspace')}"


def format_verdict(report: Report) -> str:
    """Return the conclusion of a report."""
    if report.denied:
        return "Nothing could be read: the service denied access to every workspace."
    partly = "Not everything could be read. " if report.incomplete else ""
    return f"{partly}{_format_state(report)}"


def _format_state(report: Report) -> str:
    judged = [finding for finding in report.findings if not _is_about_workspace(finding)]
    for severity, saying in _VERDICTS.items():
        found = [finding for finding in judged if finding.severity is severity]
        if found:
            return saying.format(extent=_format_extent(found))
    return "No problems found." if report.mailboxes else "No mailboxes were checked."


_VERDICTS: Final = {
    Severity.CRITICAL: "Stop sending from {extent} until the problem is fixed.",
    Severity.ERROR: "Fix {extent} today; nothing is critical.",
    Severity.WARNING: "Review {extent}; nothing is broken.",
    Severity.INFO: "Nothing is unsafe; there are notes on {extent}.",
}


def _format_extent(findings: Iterable[Finding]) -> str:
    given = list(findings)
    boxes = {(each.workspace, each.mailbox, each.email) for each in given if each.mailbox or each.email}
    kinds = {group_kind(each) for each in given}
    on = format_count(len({group_name(each) for each in given}), kinds.pop() if len(kinds) == 1 else "place")
    return f"{format_mailboxes(len(boxes))} on {on}" if boxes else on


def score_tone(score: float | None) -> str:
    """Return the tone of a score: `good`, `warning`, `critical`, or `info` without a score."""
    if score is None:
        return "info"
    return "good" if score >= GOOD_SCORE else "warning" if score >= FAIR_SCORE else "critical"


def _is_about_workspace(finding: Finding) -> bool:
    return not (finding.domain or finding.mailbox or finding.email or finding.server_ip)


def _format_other_domains(*, mild: int, clean: int) -> str:
    further = f"{format_count(mild, 'more domain')} with warnings or notes only; " if mild else ""
    return f"{further}{format_count(clean, 'domain')} without findings."


def build_domain_views(report: Report) -> list[DomainView]:
    """Return the domains with findings, the worst first."""
    found: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if not _is_about_workspace(finding):
            found[finding.domain or (NO_DOMAIN if finding.server_ip is None else f"server {finding.server_ip}")].append(finding)
    return sorted((_build_domain_view(report, name, findings) for name, findings in found.items()), key=_domain_rank)


def _domain_rank(view: DomainView) -> tuple[int, float, int, str]:
    return view.severity.rank, -1.0 if view.score is None else view.score, -view.mailboxes, view.name


def _build_domain_view(report: Report, name: str, findings: Iterable[Finding]) -> DomainView:
    score = report.scores.domains.get(name)
    return DomainView(
        name=replace_unprintable(name),
        score=score.score if score else None,
        mailboxes=score.mailboxes if score else 0,
        issues=_build_issues(findings),
    )


def _build_issues(findings: Iterable[Finding]) -> list[Issue]:
    groups: defaultdict[tuple[int, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.severity.rank, finding.rule].append(finding)
    return [_build_issue(rule, each) for (_, rule), each in sorted(groups.items())]


def _build_issue(rule: str, findings: list[Finding]) -> Issue:
    known = CATALOGUE.get(rule)
    first = findings[0]
    return Issue(
        rule=rule,
        rule_title=known.title if known else rule,
        severity=first.severity,
        findings=len(findings),
        example=replace_unprintable(f"{subject_name(first)}: {first.message}"),
    )
