"""Summarize a report for display: recommended actions, changes since an earlier audit, and the state of the mailboxes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from outreach_async.audit._findings import Finding, Severity
from outreach_async.audit._report import Delta, Diff, Report
from outreach_async.audit._rules import CATALOGUE, rule_title
from outreach_async.audit._scoring import MAX_SCORE, mailbox_score
from outreach_async.audit.policy import PolicyUsed
from outreach_async.audit.reports._campaign_view import campaign_label
from outreach_async.audit.reports._wording import figure_name, format_count, format_figure, format_time, replace_unprintable
from outreach_async.models import Number


@attrs.frozen(kw_only=True)
class Action:
    """Summary of all findings of one rule, with a recommended remedy."""

    rule: str
    title: str
    severity: Severity
    findings: int
    mailboxes: int
    groups: list[tuple[str, int]]
    example: str
    group_kind: str
    remedy: str
    condition: str
    source: str

    @property
    def extent(self) -> str:
        """The number of affected mailboxes and groups, such as `2 mailboxes on 3 domains`."""
        where = self.groups[0][0] if len(self.groups) == 1 else format_count(len(self.groups), self.group_kind)
        return f"{format_count(self.mailboxes, 'mailbox')} on {where}" if self.mailboxes else where


def build_actions(findings: Iterable[Finding], used: PolicyUsed) -> list[Action]:
    """Group findings by rule into actions, the most urgent first."""
    by_rule: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_rule[finding.rule].append(finding)
    actions = (_build_action(group, used) for group in by_rule.values())
    return sorted(actions, key=lambda action: (action.severity.rank, -action.findings, action.rule))


def subject_name(finding: Finding) -> str:
    """Return the name of a finding's subject: the address or id of a mailbox, or the name of a group."""
    return finding.email or finding.mailbox or group_name(finding)


def group_name(finding: Finding) -> str:
    """Return the name of a finding's group: its campaign or domain, or else its server or workspace."""
    if finding.campaign is not None:
        return campaign_label(finding.campaign_name, finding.campaign)
    return finding.domain or finding.server_ip or finding.workspace


def group_kind(finding: Finding) -> str:
    """Return the kind of a finding's group: campaign, domain, server or workspace."""
    if finding.campaign is not None:
        return "campaign"
    return "domain" if finding.domain else "server" if finding.server_ip else "workspace"


def group_key(finding: Finding) -> Hashable:
    """Return the key of a finding's group. A campaign is identified by its id, because its name may not be unique."""
    return group_name(finding) if finding.campaign is None else (finding.workspace, finding.campaign)


def worst_first_key(finding: Finding) -> tuple[int, str, str, str]:
    """Return a sort key that orders findings by severity, the worst first, then by domain, name and rule."""
    return finding.severity.rank, finding.domain or "", subject_name(finding), finding.rule


def _build_action(findings: Sequence[Finding], used: PolicyUsed) -> Action:
    first = min(findings, key=worst_first_key)
    rule = CATALOGUE.get(first.rule)  # a report of another version may contain unknown rules
    if rule:
        rule = attrs.evolve(rule, thresholds={**rule.thresholds, **used.thresholds.get(rule.id, {})})
    counts = Counter(map(group_key, findings))
    names = {group_key(finding): replace_unprintable(group_name(finding)) for finding in findings}
    groups = [(names[key], count) for key, count in counts.items()]
    remedy = rule.remedy if rule and len({finding.remedy for finding in findings}) > 1 else first.remedy
    return Action(
        rule=first.rule,
        title=rule_title(first.rule),
        severity=first.severity,
        findings=len(findings),
        mailboxes=count_mailboxes(findings),
        groups=sorted(groups, key=lambda group: (-group[1], group[0])),
        example=replace_unprintable(f"{subject_name(first)}: {first.message}"),
        group_kind=group_kind(first),
        remedy=replace_unprintable(remedy),
        condition=rule.condition if rule else "",
        source=rule.source if rule else "",
    )


def count_mailboxes(findings: Iterable[Finding]) -> int:
    """Return the number of different mailboxes that the findings are about."""
    return len({(finding.workspace, finding.mailbox, finding.email) for finding in findings if finding.mailbox or finding.email})


_SCORE: Final = "score"
_MAX_NAMES: Final = 5


@attrs.frozen(kw_only=True)
class FigureChange:
    """A number that changed since an earlier audit, prepared for display."""

    name: str
    has_name: bool
    figure: str
    before: str
    after: str
    better: bool | None


@attrs.frozen(kw_only=True)
class Changes:
    """The changes since an earlier audit, prepared for display."""

    summary: str
    scope: str
    new: list[Action]
    resolved: list[Action]
    figure_changes: list[FigureChange]


def build_changes(report: Report) -> Changes | None:
    """Return the changes of a report for display; `None` if the report was not compared with an earlier report."""
    diff = report.diff
    if diff is None:
        return None
    since = format_time(diff.at)
    counts = f"{len(diff.new):,} new, {len(diff.resolved):,} resolved, {len(diff.unchanged):,} unchanged"
    unchecked = f", {len(diff.not_judged):,} not checked this time" if diff.not_judged else ""
    return Changes(
        summary=f"Nothing changed since {since}." if diff.empty else f"Findings since {since}: {counts}{unchecked}.",
        scope=_describe_scope(diff),
        new=build_actions(diff.new, report.policy),
        resolved=build_actions(diff.resolved, report.policy),
        figure_changes=list(map(_build_figure_change, sorted((*diff.scores, *diff.deltas), key=_importance_key))),
    )


def _describe_scope(diff: Diff) -> str:
    parts = {"only this audit covers": diff.added_workspaces, "only the earlier audit covers": diff.removed_workspaces}
    described = "; ".join(f"{words} {_name_some(names)}" for words, names in parts.items() if names)
    return f"The audits cover different workspaces: {described}." if described else ""


def _name_some(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES
    return f"{', '.join(map(replace_unprintable, names[:_MAX_NAMES]))}{f' and {more:,} more' if more > 0 else ''}"


def _build_figure_change(delta: Delta) -> FigureChange:
    # An increase of a score is better, and so is a decrease of a number in a finding. All other changes are neutral.
    gain = _compute_gain(delta) if delta.figure == _SCORE else -_compute_gain(delta) if delta.rule else 0.0
    return FigureChange(
        has_name=delta.kind != "audit",
        name="Overall" if delta.kind == "audit" else replace_unprintable(delta.name or delta.key),
        figure=figure_name(delta.figure),
        before=_format_value(delta, delta.before),
        after=_format_value(delta, delta.after),
        better=gain > 0 if gain else None,
    )


def _format_value(delta: Delta, value: Number | None) -> str:
    """Format a number for display. A severity, from 1 (info) to 4 (critical), is shown as its name."""
    if delta.figure == "severity" and value is not None and value in range(1, len(Severity) + 1):
        return list(Severity)[-int(value)].value
    return format_figure(value)


def _importance_key(delta: Delta) -> tuple[bool, bool, float, str]:
    return delta.kind != "audit", delta.figure != _SCORE, _compute_gain(delta), delta.key


def _compute_gain(delta: Delta) -> float:
    return 0.0 if delta.before is None or delta.after is None else float(delta.after) - float(delta.before)


SCORE_BANDS: Final = ((0, 19), (20, 39), (40, 59), (60, 79), (80, 99), (MAX_SCORE, MAX_SCORE))
"""Score ranges in which mailboxes are counted. Both bounds are inclusive."""


@attrs.frozen(kw_only=True)
class MailboxHealth:
    """Summary of the checked mailboxes."""

    boxes: Mapping[Severity, int]
    clean: int
    bands: Sequence[int]
    summary: str | None


def build_health(report: Report) -> MailboxHealth:
    """Summarize the checked mailboxes. Findings about the domains and servers themselves are not included."""
    by_mailbox: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in report.findings:
        if finding.mailbox is not None and finding.sent_30days is not None:
            by_mailbox[finding.workspace, finding.mailbox].append(finding)
    boxes: Counter[Severity] = Counter()
    bands = [0] * len(SCORE_BANDS)
    unsafe: list[Number] = []
    for findings in by_mailbox.values():
        severity = min(findings, key=lambda finding: finding.severity.rank).severity
        score = mailbox_score(findings)
        boxes[severity] += 1
        bands[next(index for index, (_, highest) in enumerate(SCORE_BANDS) if score <= highest)] += 1
        if severity.reaches(Severity.ERROR):
            unsafe.append(findings[0].sent_30days or 0)
    clean = max(0, report.mailboxes - len(by_mailbox))
    bands[-1] += clean
    total, part, summary = sum(score.sent_30days for score in report.scores.workspaces.values()), sum(unsafe), None
    if 0 < part <= total:
        share = f"{part:,.0f} of the {total:,.0f} e-mails of the last 30 days ({100 * part / total:.1f} %)"
        summary = f"{share} came from mailboxes that must be stopped or fixed."
    return MailboxHealth(boxes=boxes, clean=clean, bands=bands, summary=summary)
