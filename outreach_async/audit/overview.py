"""A report as a person reads it: grouped by domain, the worst first, the rest summed. What draws it is decided elsewhere."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

import attrs

from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.report import Report
from outreach_async.audit.rules import CATALOGUE, UNKNOWABLE, Rule

GRAVE: Final = (Severity.CRITICAL, Severity.ERROR, Severity.WARNING)
"""What a brief line counts."""

IN_DETAIL: Final = 10
"""Domains, and unread workspaces, that are shown in full."""

NO_DOMAIN: Final = "(no domain)"


@attrs.frozen(kw_only=True)
class Issue:
    """What one rule found on a domain, at one severity.

    Attributes:
        rule: The rule.
        severity: How bad it is.
        findings: How many there are.
        example: One of them: the address or id, and the message.
    """

    rule: Rule
    severity: Severity
    findings: int
    example: str

    @property
    def title(self) -> str:
        """The rule's, and how many mailboxes it found wanting if not one."""
        return f"{self.rule.title}: {self.findings:,} mailboxes" if self.findings > 1 else self.rule.title

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
    """A report, arranged for people. Every text is fit for a terminal.

    Attributes:
        headline: What was audited, and the score.
        tally: How many findings there are of each severity.
        unread: What is missing from the reading: workspace and message.
        unread_names: Further workspaces, by name only.
        worst: The worst domains.
        rest: Further domains with an error or worse.
        summary: How the domains that are not named fare.
        remedies: Each rule that found something.
        unknowable: What no report can tell.
    """

    headline: str
    tally: dict[Severity, int]
    unread: list[str]
    unread_names: list[str]
    worst: list[DomainView]
    rest: list[DomainView]
    summary: str
    remedies: list[Rule]
    unknowable: tuple[str, ...] = UNKNOWABLE


def overview(report: Report) -> Overview:
    """Arrange a report for people."""
    unread = [finding for finding in report.findings if _about_workspace(finding)]
    views = _views(report)
    worst, others = views[:IN_DETAIL], views[IN_DETAIL:]
    rest = [view for view in others if view.severity.reaches(Severity.ERROR)]
    clean = report.scores.domains.keys() - {finding.domain for finding in report.findings}
    tally = Counter(finding.severity for finding in report.findings)
    fired = {finding.rule for finding in report.findings}
    return Overview(
        headline=_headline(report),
        tally={severity: tally[severity] for severity in Severity},
        unread=[f"{printable(finding.workspace)}: {printable(finding.message)}" for finding in unread[:IN_DETAIL]],
        unread_names=[printable(finding.workspace) for finding in unread[IN_DETAIL:]],
        worst=worst,
        rest=rest,
        summary=_summary(
            mild=len(others) - len(rest),
            clean=len(clean),
        ),
        remedies=[rule for rule in CATALOGUE.values() if rule.id in fired],
    )


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write a count with its noun."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def printable(text: str) -> str:
    """Return a text that can do a terminal no harm: what the service says may hold anything."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _about_workspace(finding: Finding) -> bool:
    return finding.sent_30days is None and finding.mailbox is None and finding.email is None


def _headline(report: Report) -> str:
    audited = ", ".join(
        (
            counted(report.mailboxes, "mailbox", "mailboxes"),
            counted(len(report.scores.domains), "domain"),
            counted(len(report.workspaces), "workspace"),
        )
    )
    overall = report.scores.overall
    return f"Mailbox audit: {audited}. {'No score.' if overall is None else f'Score {overall:g} of 100.'}"


def _summary(*, mild: int, clean: int) -> str:
    further = f"{counted(mild, 'further domain')} with warnings or notes only; " if mild else ""
    return f"{further}{counted(clean, 'domain')} without any finding."


def _views(report: Report) -> list[DomainView]:
    found: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if not _about_workspace(finding):
            found[finding.domain or NO_DOMAIN].append(finding)
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
    return [
        Issue(rule=CATALOGUE[rule], severity=each[0].severity, findings=len(each), example=_example(each[0]))
        for (_, rule), each in sorted(groups.items())
    ]


def _example(finding: Finding) -> str:
    return printable(f"{finding.email or finding.mailbox}: {finding.message}")
