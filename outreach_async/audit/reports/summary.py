"""Summaries that every report shows: recommended actions, changes since an earlier audit, and the state of the mailboxes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.policy import PolicyUsed
from outreach_async.audit.report import Delta, Diff, Report
from outreach_async.audit.reports.wording import (
    figure_name,
    format_count,
    format_figure,
    format_mailboxes,
    format_time,
    replace_unprintable,
)
from outreach_async.audit.rules import CATALOGUE, Rule
from outreach_async.audit.scoring import MAX_SCORE, mailbox_score
from outreach_async.models import Number

_MAX_EXAMPLES: Final = 3


@attrs.frozen(kw_only=True)
class Action:
    """The action for all findings of one rule.

    Attributes:
        rule: Id of the rule.
        title: Title of the rule.
        severity: Severity of the worst finding.
        findings: Number of findings.
        mailboxes: Number of affected mailboxes.
        groups: Affected domains (or servers, or workspaces) with their number of findings, the highest first.
        group_kind: Kind of the places: domain, server or workspace.
        examples: Up to three findings, the worst first, each as address or id and message.
        remedy: Recommended action.
        condition: Description of the rule's condition.
        source: Source of the rule's thresholds.
    """

    rule: str
    title: str
    severity: Severity
    findings: int
    mailboxes: int
    groups: list[tuple[str, int]]
    examples: list[str]
    group_kind: str
    remedy: str
    condition: str
    source: str

    @property
    def extent(self) -> str:
        """The affected mailboxes and places, in a few words."""
        where = self.groups[0][0] if len(self.groups) == 1 else format_count(len(self.groups), self.group_kind)
        return f"{format_mailboxes(self.mailboxes)} on {where}" if self.mailboxes else where


def build_actions(findings: Iterable[Finding], used: PolicyUsed) -> list[Action]:
    """Group findings by rule into actions, the most urgent first.

    Args:
        findings: The findings, in any order.
        used: The policy of the audit.
    """
    by_rule: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_rule[finding.rule].append(finding)
    return sorted((_build_action(each, used) for each in by_rule.values()), key=_urgency_key)


def subject_name(finding: Finding) -> str:
    """Return the name of a finding's subject, as the service returned it."""
    return finding.email or finding.mailbox or group_name(finding)


def group_name(finding: Finding) -> str:
    """Return the place of a finding: its domain, or its server, or its workspace."""
    return finding.domain or finding.server_ip or finding.workspace


def group_kind(finding: Finding) -> str:
    """Return the kind of a finding's place: domain, server or workspace."""
    return "domain" if finding.domain else "server" if finding.server_ip else "workspace"


def worst_first_key(finding: Finding) -> tuple[int, str, str, str]:
    """Return the sort key of a finding: severity, then domain, name and rule."""
    return finding.severity.rank, finding.domain or "", subject_name(finding), finding.rule


def _urgency_key(action: Action) -> tuple[int, int, str]:
    return action.severity.rank, -action.findings, action.rule


def _build_action(findings: Sequence[Finding], used: PolicyUsed) -> Action:
    first, *_ = ordered = sorted(findings, key=worst_first_key)
    rule = _find_rule(first.rule, used)
    remedies = {finding.remedy for finding in findings}
    places = Counter(replace_unprintable(group_name(finding)) for finding in findings)
    return Action(
        rule=first.rule,
        title=rule.title if rule else first.rule,
        severity=first.severity,
        findings=len(findings),
        mailboxes=len({(each.workspace, each.mailbox, each.email) for each in findings if each.mailbox or each.email}),
        groups=sorted(places.items(), key=lambda place: (-place[1], place[0])),
        examples=[replace_unprintable(f"{subject_name(finding)}: {finding.message}") for finding in ordered[:_MAX_EXAMPLES]],
        group_kind=group_kind(first),
        remedy=replace_unprintable(rule.remedy if rule and len(remedies) > 1 else first.remedy),
        condition=rule.condition if rule else "",
        source=rule.source if rule else "",
    )


def _find_rule(name: str, used: PolicyUsed) -> Rule | None:
    """Return a rule with the thresholds of the audit; `None` for an unknown rule (from another version)."""
    rule = CATALOGUE.get(name)
    return rule and attrs.evolve(rule, thresholds={**rule.thresholds, **used.thresholds.get(name, {})})


MAX_CHANGES: Final = 10
"""Maximum changed figures in the terminal, text and Markdown formats."""

_SCORE: Final = "score"
_SEVERITY: Final = "severity"


@attrs.frozen(kw_only=True)
class FigureChange:
    """A changed figure.

    Attributes:
        name: Subject of the figure.
        figure: Display name of the figure.
        before: Earlier value.
        after: Current value.
        better: Whether the change is an improvement; `None` if it is neither better nor worse.
    """

    name: str
    figure: str
    before: str
    after: str
    better: bool | None

    @property
    def description(self) -> str:
        """The change as one line."""
        return f"{self.name}: {self.figure} {self.before} -> {self.after}"


@attrs.frozen(kw_only=True)
class Changes:
    """The changes since an earlier audit.

    Attributes:
        since: Time of the earlier audit.
        summary: Number of changes, in one sentence.
        new: New findings by rule, the most urgent first.
        resolved: Resolved findings by rule, the most urgent first.
        counts: Number of new, resolved and unchanged findings.
        figure_changes: Changed figures: those of the whole audit first, then scores, the largest loss first.
    """

    since: str
    summary: str
    new: list[Action]
    resolved: list[Action]
    counts: dict[str, int]
    figure_changes: list[FigureChange]


def build_changes(report: Report) -> Changes | None:
    """Return the changes of a report; `None` if it was not compared with an earlier one."""
    diff = report.diff
    if diff is None:
        return None
    counts = {
        "new": len(diff.new),
        "resolved": len(diff.resolved),
        "unchanged": len(diff.unchanged),
    }
    since = format_time(diff.at)
    return Changes(
        since=since,
        summary=_format_summary(diff, counts, since),
        new=build_actions(diff.new, report.policy),
        resolved=build_actions(diff.resolved, report.policy),
        counts=counts,
        figure_changes=list(_build_figure_changes((*diff.scores, *diff.deltas))),
    )


def _format_summary(diff: Diff, counts: dict[str, int], since: str) -> str:
    if diff.empty:
        return f"Nothing changed since {since}."
    told = [f"{counts['new']:,} new", f"{counts['resolved']:,} resolved", f"{counts['unchanged']:,} unchanged"]
    if diff.not_judged:
        told.append(f"{len(diff.not_judged):,} not checked this time")
    return f"Findings since {since}: {', '.join(told)}."


def _build_figure_changes(deltas: Iterable[Delta]) -> Iterable[FigureChange]:
    for delta in sorted(deltas, key=_importance_key):
        yield FigureChange(
            name="Overall" if delta.kind == "audit" else replace_unprintable(delta.name or delta.key),
            figure=figure_name(delta.figure),
            before=_format_value(delta, delta.before),
            after=_format_value(delta, delta.after),
            better=_is_better(delta),
        )


def _format_value(delta: Delta, value: Number | None) -> str:
    """Format a figure; severities are numbered from 1, the mildest."""
    if delta.figure == _SEVERITY and value is not None and value in range(1, len(Severity) + 1):
        return list(Severity)[-int(value)].value
    return format_figure(value)


def _importance_key(delta: Delta) -> tuple[bool, bool, float, str]:
    return delta.kind != "audit", delta.figure != _SCORE, _compute_gain(delta), delta.key


def _compute_gain(delta: Delta) -> float:
    return 0.0 if delta.before is None or delta.after is None else float(delta.after) - float(delta.before)


def _is_better(delta: Delta) -> bool | None:
    """Return whether a change is an improvement: a higher score, or a lower figure of a finding."""
    gain = _compute_gain(delta) if delta.figure == _SCORE else -_compute_gain(delta) if delta.rule else 0.0
    return gain > 0 if gain else None


SCORE_BANDS: Final = ((0, 19), (20, 39), (40, 59), (60, 79), (80, 99), (MAX_SCORE, MAX_SCORE))
"""Ranges of scores that are counted together, both ends included."""


@attrs.frozen(kw_only=True)
class MailboxHealth:
    """Summary of the checked mailboxes.

    Attributes:
        boxes: Number of mailboxes by the severity of their worst finding.
        clean: Number of mailboxes without findings.
        bands: Number of mailboxes with a score in each of `SCORE_BANDS`.
        unsafe_sent: E-mails sent in 30 days by mailboxes with a critical finding or an error.
        sent: E-mails sent in 30 days by all mailboxes.
    """

    boxes: Mapping[Severity, int]
    clean: int
    bands: Sequence[int]
    unsafe_sent: Number
    sent: Number

    @property
    def summary(self) -> str | None:
        """The share of e-mails sent by unsafe mailboxes, in one sentence; `None` if it is zero or inconsistent."""
        if not 0 < self.unsafe_sent <= self.sent:
            return None
        share = 100 * self.unsafe_sent / self.sent
        return (
            f"Mailboxes to stop or fix sent {self.unsafe_sent:,.0f} of the {self.sent:,.0f} e-mails of the last 30 days "
            f"({share:.1f} %)."
        )


def build_health(report: Report) -> MailboxHealth:
    """Summarize the checked mailboxes; findings about a domain or server as a whole are not included."""
    found = _group_by_mailbox(report.findings)
    worst = {
        key: min((each.severity for each in findings), key=lambda severity: severity.rank) for key, findings in found.items()
    }
    scores = Counter(_band_index(mailbox_score(findings)) for findings in found.values())
    clean = max(0, report.mailboxes - len(found))
    scores[_band_index(MAX_SCORE)] += clean
    boxes = Counter(worst.values())
    unsafe = (found[key][0].sent_30days or 0 for key, severity in worst.items() if severity.reaches(Severity.ERROR))
    return MailboxHealth(
        boxes={severity: boxes[severity] for severity in Severity},
        clean=clean,
        bands=[scores[at] for at in range(len(SCORE_BANDS))],
        unsafe_sent=sum(unsafe),
        sent=sum(score.sent_30days for score in report.scores.workspaces.values()),
    )


def _group_by_mailbox(findings: Iterable[Finding]) -> dict[tuple[str, str], list[Finding]]:
    found: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.mailbox is not None and finding.sent_30days is not None:
            found[finding.workspace, finding.mailbox].append(finding)
    return found


def _band_index(score: int) -> int:
    return next(at for at, (_, highest) in enumerate(SCORE_BANDS) if score <= highest)
