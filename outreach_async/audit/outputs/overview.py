"""A report as a person reads it: grouped by domain, the worst first, the rest summed. What draws it is decided elsewhere."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

import attrs

from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.outputs.actions import Action, actions, noun, place, who
from outreach_async.audit.outputs.changes import Changes, changes
from outreach_async.audit.outputs.words import NO_DOMAIN, counted, mailboxes, moment, printable
from outreach_async.audit.report import Report
from outreach_async.audit.rules import CATALOGUE

GRAVE: Final = (Severity.CRITICAL, Severity.ERROR, Severity.WARNING)
"""What a brief line counts."""

IN_DETAIL: Final = 10
"""Domains, and unread workspaces, that are shown in full."""

GOOD: Final = 90
POOR: Final = 60
"""Scores from which on a group is well, or middling."""


@attrs.frozen(kw_only=True)
class Issue:
    """What one rule found on a domain, at one severity.

    Attributes:
        rule: The rule's id.
        about: What is wrong, in a few words.
        severity: How bad it is.
        findings: How many there are.
        example: One of them: the address or id, and the message.
    """

    rule: str
    about: str
    severity: Severity
    findings: int
    example: str

    @property
    def title(self) -> str:
        """The rule's, and how many mailboxes it found wanting if not one."""
        return f"{self.about}: {mailboxes(self.findings)}" if self.findings > 1 else self.about

    @property
    def shown_example(self) -> str:
        """The example, marked as one where there is more to it."""
        return f"such as {self.example}" if self.findings > 1 else self.example


@attrs.frozen(kw_only=True)
class DomainView:
    """A domain that something was found on.

    Attributes:
        name: The domain.
        score: Its score; `None` if none of its mailboxes was judged.
        mailboxes: How many were judged.
        issues: What was found, the worst first.
    """

    name: str
    score: float | None
    mailboxes: int
    issues: list[Issue]

    @property
    def told(self) -> list[Issue]:
        """What deserves to be told: warnings and worse, or the notes where there is nothing else."""
        return [issue for issue in self.issues if issue.severity in GRAVE] or self.issues

    @property
    def severity(self) -> Severity:
        """The worst."""
        return self.issues[0].severity

    def count(self, severity: Severity) -> int:
        """How many findings of that severity there are."""
        return sum(issue.findings for issue in self.issues if issue.severity is severity)

    @property
    def points(self) -> str:
        """The score as a figure."""
        return "-" if self.score is None else f"{self.score:g}"

    @property
    def scored(self) -> str:
        """The score in words."""
        return "not scored" if self.score is None else f"score {self.points}"


@attrs.frozen(kw_only=True)
class Overview:
    """A report, arranged for people. Every text is fit for a terminal and a page.

    Attributes:
        headline: What was audited, and the score.
        verdict: What to make of it, in one sentence.
        tone: The worst severity, or `good` where nothing was found.
        tally: How many findings there are of each severity.
        when: When the audit was made.
        unread: What is missing from the reading: workspace and message.
        unread_names: Further workspaces, by name only.
        changes: What changed since an earlier audit; `None` if there was none to compare with.
        actions: What to do, the most urgent first.
        worst: The worst domains.
        rest: Further domains with an error or worse.
        summary: How the domains that are not named fare.
        unknowable: What no report can tell.
    """

    headline: str
    verdict: str
    tone: str
    tally: dict[Severity, int]
    when: str
    unread: list[str]
    unread_names: list[str]
    changes: Changes | None
    actions: list[Action]
    worst: list[DomainView]
    rest: list[DomainView]
    summary: str
    unknowable: list[str]


def overview(report: Report) -> Overview:
    """Arrange a report for people."""
    unread = [finding for finding in report.findings if _about_workspace(finding)]
    views = domain_views(report)
    worst, others = views[:IN_DETAIL], views[IN_DETAIL:]
    rest = [view for view in others if view.severity.reaches(Severity.ERROR)]
    clean = report.scores.domains.keys() - {finding.domain for finding in report.findings}
    tally = Counter(finding.severity for finding in report.findings)
    return Overview(
        headline=headline(report),
        verdict=verdict(report),
        tone=next((severity.value for severity in Severity if tally[severity]), "good"),
        tally={severity: tally[severity] for severity in Severity},
        when=moment(report.at),
        unread=[f"{printable(finding.workspace)}: {printable(finding.message)}" for finding in unread[:IN_DETAIL]],
        unread_names=[printable(finding.workspace) for finding in unread[IN_DETAIL:]],
        changes=changes(report),
        actions=actions(report.findings, report.policy),
        worst=worst,
        rest=rest,
        summary=_summary(mild=len(others) - len(rest), clean=len(clean)),
        unknowable=list(map(printable, report.not_judged)),
    )


def headline(report: Report) -> str:
    """Say what was audited, when, and how it scores."""
    overall = report.scores.overall
    return f"Mailbox audit: {audited(report)}. {'No score.' if overall is None else f'Score {overall:g} of 100.'}"


def audited(report: Report) -> str:
    """Say how much was audited."""
    domains, workspaces = len(report.scores.domains), len(report.workspaces)
    return f"{mailboxes(report.mailboxes)}, {counted(domains, 'domain')}, {counted(workspaces, 'workspace')}"


def verdict(report: Report) -> str:
    """Say in one sentence what to make of a report."""
    if report.denied:
        return "Nothing could be read: the service refused every workspace."
    partly = "Not everything could be read. " if report.incomplete else ""
    return f"{partly}{_state(report)}"


def _state(report: Report) -> str:
    judged = [finding for finding in report.findings if not _about_workspace(finding)]
    for severity, saying in _SAYINGS.items():
        found = [finding for finding in judged if finding.severity is severity]
        if found:
            return saying.format(extent=_extent(found))
    return "No mailbox was found unsafe." if report.mailboxes else "No mailbox was judged."


_SAYINGS: Final = {
    Severity.CRITICAL: "Stop sending from {extent} until it is put right.",
    Severity.ERROR: "Repair {extent} today; nothing is critical.",
    Severity.WARNING: "Keep an eye on {extent}; nothing is broken.",
    Severity.INFO: "Nothing is unsafe; there are notes on {extent}.",
}


def _extent(findings: Iterable[Finding]) -> str:
    given = list(findings)
    boxes = {(each.workspace, each.mailbox, each.email) for each in given if each.mailbox or each.email}
    kinds = {noun(each) for each in given}
    on = counted(len({place(each) for each in given}), kinds.pop() if len(kinds) == 1 else "place")
    return f"{mailboxes(len(boxes))} on {on}" if boxes else on


def tone_of(score: float | None) -> str:
    """Return how good a score is, as the severity that it looks like."""
    if score is None:
        return "info"
    return "good" if score >= GOOD else "warning" if score >= POOR else "critical"


def _about_workspace(finding: Finding) -> bool:
    return not (finding.domain or finding.mailbox or finding.email or finding.server_ip)


def _summary(*, mild: int, clean: int) -> str:
    further = f"{counted(mild, 'further domain')} with warnings or notes only; " if mild else ""
    return f"{further}{counted(clean, 'domain')} without any finding."


def domain_views(report: Report) -> list[DomainView]:
    """Return the domains that something was found on, the worst first."""
    found: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if not _about_workspace(finding):
            found[finding.domain or (NO_DOMAIN if finding.server_ip is None else f"server {finding.server_ip}")].append(finding)
    return sorted((_view(report, name, findings) for name, findings in found.items()), key=_worst_first)


def _worst_first(view: DomainView) -> tuple[int, float, int, str]:
    return view.severity.rank, -1.0 if view.score is None else view.score, -view.mailboxes, view.name


def _view(report: Report, name: str, findings: Iterable[Finding]) -> DomainView:
    score = report.scores.domains.get(name)
    return DomainView(
        name=printable(name),
        score=score.score if score else None,
        mailboxes=score.mailboxes if score else 0,
        issues=_issues(findings),
    )


def _issues(findings: Iterable[Finding]) -> list[Issue]:
    groups: defaultdict[tuple[int, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.severity.rank, finding.rule].append(finding)
    return [_issue(rule, each) for (_, rule), each in sorted(groups.items())]


def _issue(rule: str, findings: list[Finding]) -> Issue:
    known = CATALOGUE.get(rule)
    first = findings[0]
    return Issue(
        rule=rule,
        about=known.title if known else rule,
        severity=first.severity,
        findings=len(findings),
        example=printable(f"{who(first)}: {first.message}"),
    )
