"""Summarize a report: its size, verdict, tasks and changes. Audits and briefs take all of their counts from this summary."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import ClassVar, Final

import attrs

from outreach_async.audit._findings import Finding, Severity, group_name, subject_name
from outreach_async.audit._report import SEVERITY_LEVELS, ChangeCounts, Report, findings_of
from outreach_async.audit._rules import CATALOGUE, INCOMPLETE, rule_title
from outreach_async.audit._values import format_span, format_time, replace_unprintable
from outreach_async.errors import format_count


@attrs.frozen(kw_only=True)
class Task:
    """The findings with the same rule and severity, with the recommended action. Each finding belongs to exactly one task.

    Attributes:
        rule, title, source, condition: As of the `Rule`, with the thresholds of the policy.
        severity, remedy: Severity of the findings, and the recommended action.
        findings, mailboxes: Number of findings, and of the different mailboxes that they are about.
        groups: Names of the domains, servers, workspaces or campaigns, each with its number of findings, the most first.
        group_kind: Kind of the groups: `domain`, `server`, `workspace` or `campaign`.
        example: Subject and message of one of the findings.
        new, worse: Numbers of findings that the earlier report does not have, and that were milder in it.
        new_groups: Like `groups`, but only for new findings.

    Example:
        ```python
        task, *_ = summarize(report).tasks
        print(task.severity, task.rule, task.title, task.extent)  # -> error OA101 No SPF 1 mailbox on north.example
        ```
    """

    rule: str
    title: str
    severity: Severity
    findings: int
    mailboxes: int
    groups: list[tuple[str, int]]
    group_kind: str
    example: str
    remedy: str
    condition: str
    source: str
    new: int
    new_groups: list[tuple[str, int]]
    worse: int

    @property
    def where(self) -> str:
        """The name of the group, or the number of groups, such as `3 domains`."""
        return self.groups[0][0] if len(self.groups) == 1 else format_count(len(self.groups), self.group_kind)

    @property
    def extent(self) -> str:
        """The number of affected mailboxes and groups, such as `2 mailboxes on 3 domains`."""
        return f"{format_count(self.mailboxes, 'mailbox')} on {self.where}" if self.mailboxes else self.where

    @property
    def news(self) -> str:
        """The numbers of new and worse findings, such as `5 new, 1 worse`; `new` if all of several findings are new."""
        if self.new == self.findings:
            return "new"
        return ", ".join(f"{count:,} {word}" for word, count in (("new", self.new), ("worse", self.worse)) if count)


@attrs.frozen(kw_only=True)
class Summary:
    """The conclusion of an audit, which all formats show: the verdict, the counts, what to stop, and the tasks.

    Attributes:
        at, since: Times of the audit and of the earlier one, in Unix seconds; `since` is `None` without an earlier one.
        size, verdict: Numbers of mailboxes, domains, workspaces and campaigns, and the conclusion, as text.
        mailboxes, names, service_clock: As in `Report`.
        score, score_before: Score of all mailboxes, and in the earlier report; `None` without checked mailboxes.
        counts: Number of findings by severity.
        changes: How the findings of the earlier report and of this one add up; `None` without an earlier one.
        stop: Subjects of critical findings, such as the addresses of mailboxes that must stop sending.
        tasks: The open tasks, the most severe first, and within a severity those with news.
        resolved: Earlier findings that no longer apply, by rule and severity.

    Example:
        ```python
        print(summarize(report).headline)  # -> Mailbox audit: 2 mailboxes, 1 domain, ... Score 74.5 of 100.
        ```
    """

    title: ClassVar[str] = "Mailbox audit"

    at: float
    since: float | None
    size: str
    verdict: str
    mailboxes: int
    score: float | None
    score_before: float | None
    counts: dict[Severity, int]
    changes: ChangeCounts | None
    stop: list[str]
    tasks: list[Task]
    resolved: list[Task]
    names: dict[str, str]
    service_clock: bool

    @property
    def headline(self) -> str:
        """The size and the score in one line."""
        score, before = self.score, self.score_before
        was = "" if before in {None, score} else f", was {before:g}"
        return f"{self.title}: {self.size}. {'No score.' if score is None else f'Score {score:g} of 100{was}.'}"

    @property
    def counted(self) -> str:
        """The numbers of findings by severity, such as `0 critical, 1 error, 0 warnings, 2 notes`."""
        return ", ".join(count_severity(severity, count) for severity, count in self.counts.items())

    @property
    def changed(self) -> str:
        """The numbers of new, resolved and unchanged findings, as a sentence."""
        changes = self.changes
        if changes is None or self.since is None:
            return "There is no earlier brief to compare with."
        since = f"Since {format_time(self.since)} ({format_span(self.at - self.since)})"
        unchecked = f", {changes.not_judged:,} not checked this time" if changes.not_judged else ""
        parts = f"{changes.new:,} new, {changes.resolved:,} resolved, {changes.unchanged:,} unchanged{unchecked}"
        return f"{since}: {format_count(changes.after, 'finding')}, {changes.before:,} before; {parts}."

    @property
    def audited(self) -> str:
        """The time of the audit, and whose clock it is if the clocks differ."""
        clocks = " by the service's clock, from which this computer's differs by more than a minute"
        return f"{format_time(self.at)}{clocks if self.service_clock else ''}"

    @property
    def score_note(self) -> str:
        """A sentence if the verdict is about campaigns, which do not lower the score; otherwise an empty string."""
        urgent = any(task.group_kind == "campaign" and task.severity.reaches(Severity.ERROR) for task in self.tasks)
        return "The score is about mailboxes: problems of campaigns do not lower it." if urgent else ""

    @property
    def tone(self) -> str:
        """The worst severity that has findings, which determines a colour; `good` without findings."""
        return next((severity.value for severity, count in self.counts.items() if count), "good")


def summarize(report: Report) -> Summary:
    """Return the conclusion of a report, and of its changes if `Report.since` has compared it.

    Example:
        ```python
        print(summarize(report).verdict)  # -> Fix 1 mailbox on 1 domain today; nothing is critical.
        ```
    """
    diff, score = report.diff, report.scores.overall
    critical = (finding for finding in findings_of(report, Severity.CRITICAL) if not is_about_reading(finding))
    stopped = sorted((worst_first_key(finding), subject_name(finding, report.names)) for finding in critical)
    old = {(delta.kind, delta.figure): delta.before for delta in diff.scores} if diff else {}
    worse = Counter(
        (delta.rule, delta.after)
        for delta in (diff.deltas if diff else ())
        if delta.figure == "severity" and (delta.before or 0) < (delta.after or 0)
    )
    return Summary(
        at=report.at,
        service_clock=report.service_clock,
        since=diff.at if diff else None,
        size=_format_size(report),
        verdict=_format_verdict(report),
        mailboxes=report.mailboxes,
        score=score,
        score_before=old.get(("audit", "score"), score) if diff else None,
        counts=report.counts,
        changes=diff.counts if diff else None,
        stop=list(dict.fromkeys(replace_unprintable(name) for _, name in stopped)),
        tasks=_build_tasks(report.findings, report, worse if diff else None),
        resolved=_build_tasks(diff.resolved if diff else (), report, None),
        names=report.names,
    )


def count_severity(severity: Severity, count: int) -> str:
    noun = "note" if severity is Severity.INFO else severity.value
    return f"{count:,} critical" if severity is Severity.CRITICAL else format_count(count, noun)


def _format_size(report: Report) -> str:
    domains = report.totals.get("domain", len(report.scores.domains))
    sizes = {"mailbox": report.mailboxes, "domain": domains, "workspace": len(report.workspaces)}
    if report.campaigns is not None:
        sizes["campaign"] = report.campaigns.checked
    return ", ".join(format_count(count, noun) for noun, count in sizes.items())


_VERDICTS: Final = {
    Severity.CRITICAL: "Stop sending from {extent} until the problem is fixed.",
    Severity.ERROR: "Fix {extent} today; nothing is critical.",
    Severity.WARNING: "Review {extent}; nothing is broken.",
    Severity.INFO: "No risks found; there are notes on {extent}.",
}


def _format_verdict(report: Report) -> str:
    if report.denied:
        return "Nothing could be read: the service denied access to every workspace."
    partly = "Not everything could be read. " if report.incomplete else ""
    for severity, verdict in _VERDICTS.items():
        found = [finding for finding in findings_of(report, severity) if not is_about_reading(finding)]
        parts = ([each for each in found if (each.campaign is None) is about_mailboxes] for about_mailboxes in (True, False))
        if extents := [_format_extent(part) for part in parts if part]:
            return f"{partly}{verdict.format(extent=' and '.join(extents))}"
    checked = report.mailboxes or (report.campaigns and report.campaigns.checked)
    return f"{partly}{'No problems found.' if checked else 'No mailboxes were checked.'}"


def _format_extent(findings: Sequence[Finding]) -> str:
    subjects, mailboxes = [_group_of(finding) for finding in findings], _count_mailboxes(findings)
    kinds = {kind for kind, _ in subjects}
    groups = format_count(len({key for _, key in subjects}), kinds.pop() if len(kinds) == 1 else "group")
    return f"{format_count(mailboxes, 'mailbox')} on {groups}" if mailboxes else groups


def _count_mailboxes(findings: Iterable[Finding]) -> int:
    return len({(each.workspace, each.mailbox, each.email) for each in findings if each.mailbox or each.email})


def _name_groups(findings: Sequence[Finding], names: Mapping[str, str]) -> list[tuple[str, int]]:
    counts = Counter(_group_of(finding)[1] for finding in findings)
    named = {_group_of(finding)[1]: replace_unprintable(group_name(finding, names)) for finding in findings}
    return sorted(((named[key], count) for key, count in counts.items()), key=lambda group: (-group[1], group[0]))


def is_about_reading(finding: Finding) -> bool:
    """Return whether a finding reports an error while reading a whole list, such as the mailboxes of a workspace."""
    subjects = (finding.domain, finding.mailbox, finding.email, finding.server_ip)
    return finding.rule in INCOMPLETE and not any(subjects) and finding.campaign is None


def workspace_label(workspace: str, names: Mapping[str, str]) -> str:
    name = names.get(workspace)
    return replace_unprintable(workspace if name is None else f"{name} ({workspace})")


def worst_first_key(finding: Finding) -> tuple[int, str, str, str]:
    return finding.severity.rank, finding.domain or "", subject_name(finding), finding.rule


def _group_of(finding: Finding) -> tuple[str, Hashable]:
    """Return the kind and the key of a finding's group. Names of campaigns and workspaces may not be unique, but ids are."""
    if finding.campaign is not None:
        return "campaign", (finding.workspace, finding.campaign)
    if finding.domain:
        return "domain", finding.domain
    return ("server", finding.server_ip) if finding.server_ip else ("workspace", finding.workspace)


Worse = Mapping[tuple[str | None, float | None], int]
"""Number of findings that became more severe, by rule and new severity level."""


def _build_tasks(findings: Iterable[Finding], report: Report, worse: Worse | None) -> list[Task]:
    found: defaultdict[tuple[str, Severity], list[Finding]] = defaultdict(list)
    for finding in findings:
        found[finding.rule, finding.severity].append(finding)
    tasks = [_build_task(each, report, worse) for each in found.values()]
    return sorted(tasks, key=lambda task: (task.severity.rank, not (task.new or task.worse), -task.findings, task.rule))


def _build_task(findings: Sequence[Finding], report: Report, worse: Worse | None) -> Task:
    first = min(findings, key=worst_first_key)
    rule = CATALOGUE.get(first.rule)  # a report of another version may contain unknown rules
    if rule:
        rule = attrs.evolve(rule, thresholds={**rule.thresholds, **report.policy.thresholds.get(rule.id, {})})
    has_several_remedies = any(finding.remedy != first.remedy for finding in findings)
    # The states of a report that is not compared are those of an earlier comparison.
    new = [finding for finding in findings if finding.state == "new"] if worse is not None else []
    return Task(
        rule=first.rule,
        title=rule_title(first.rule),
        severity=first.severity,
        findings=len(findings),
        mailboxes=_count_mailboxes(findings),
        groups=_name_groups(findings, report.names),
        group_kind=_group_of(first)[0],
        example=replace_unprintable(f"{subject_name(first, report.names)}: {first.message}"),
        remedy=replace_unprintable(rule.remedy if rule and has_several_remedies else first.remedy),
        condition=rule.condition if rule else "",
        source=rule.source if rule else "",
        new=len(new),
        new_groups=_name_groups(new, report.names),
        worse=worse.get((first.rule, SEVERITY_LEVELS[first.severity]), 0) if worse else 0,
    )
