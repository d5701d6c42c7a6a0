"""Define the rules and findings of an audit, and the report's entries for mailboxes and groups of mailboxes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from outreach_async.audit._values import replace_unprintable, table_row
from outreach_async.errors import shorten
from outreach_async.models import Number

Thresholds: TypeAlias = Mapping[str, float]

FindingState = Literal["new", "unchanged", "resolved"]
"""State of a finding compared with an earlier audit. `resolved` means that an earlier finding no longer applies."""

RuleScope = Literal["mailbox", "domain", "server_ip", "workspace", "campaign", "step", "comparison"]
"""Subject of a rule's findings. `domain` and `server_ip` stand for all mailboxes of a domain or server. `workspace` includes
errors that occur while a workspace is read. `comparison` stands for a campaign in two audits."""

GroupKind = Literal["workspace", "domain", "type", "server_ip"]

GROUP_KINDS: Final[tuple[GroupKind, ...]] = get_args(GroupKind)
_MAX_NAME_SHOWN: Final = 60  # characters of a campaign's name
_PERCENT: Final = re.compile(r"(?<=\d)(?:\.0)?%")  # reports show both `2%` and `2.0%` as `2 %`


Action: TypeAlias = Literal["stop", "fix", "watch"]
"""What to do with a mailbox or a campaign: `stop` sending from it now, `fix` it today, or `watch` it."""

ACTIONS: Final[tuple[Action, ...]] = get_args(Action)


class Severity(StrEnum):
    """Severity of a finding.

    The members are ordered from the worst to the mildest.

    Example:
        ```python
        print([severity.value for severity in Severity], Severity.ERROR.rank)  # -> ['critical', 'error', 'warning', 'info'] 1
        ```
    """

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """Position in the order of severities; 0 is the worst."""
        return _RANKS[self]

    def reaches(self, bar: Severity) -> bool:
        """Return whether this severity is at least as bad as `bar`.

        Example:
            ```python
            print(Severity.CRITICAL.reaches(Severity.ERROR), Severity.INFO.reaches(Severity.ERROR))  # -> True False
            ```
        """
        return self.rank <= bar.rank


_RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}
HEALTHY_PERCENT: Final = {Severity.CRITICAL: 10, Severity.ERROR: 50, Severity.WARNING: 90, Severity.INFO: 100}
"""Percentage of a mailbox's score that remains with a finding, by severity. The percentages of several rules are multiplied."""


@attrs.define(eq=False)
class Violation:
    """A problem found by a rule's condition. A condition that does not apply returns `None` instead."""

    message: str
    figures: dict[str, Number] = attrs.field(factory=dict)
    severity: Severity | None = None  # `None` for that of the rule
    sure: bool = True  # whether the sample is large enough


Condition: TypeAlias = Callable[[Any, Thresholds], Violation | None]  # of the facts about a subject


@attrs.frozen(kw_only=True)
class Rule:
    """A rule of the audit.

    Attributes:
        id, title: Id such as `OA101`, never reused for another rule, and a
            short title.
        severity: Severity of a finding, unless a threshold determines it.
        wording, source: Description of the condition, with thresholds as
            placeholders `{name}`, and where they come from.
        remedy: What solves the problem; `<domain>` stands for the domain
            of the finding. If it is critical, what to pause comes first.
        thresholds: Thresholds by name. A threshold named after a severity
            is the limit for that severity.
        others: Further severities that a finding can have, besides
            `severity` and those named in `thresholds`.
        scope: Subject of the findings: `mailbox`, `domain`, `server_ip`,
            `campaign`, `step`, `workspace` or `comparison`.
        applies: The condition: a pure function of the facts about a
            subject and the thresholds.
        lack: What a mailbox lacks if the rule applies, such as
            `SPF record`; the daily limit of its domain then determines the
            severity.

    Example:
        ```python
        print(CATALOGUE["OA101"].scope, CATALOGUE["OA101"].title)  # -> mailbox No SPF
        ```
    """

    id: str
    title: str
    severity: Severity
    wording: str
    source: str
    remedy: str
    applies: Condition = attrs.field(repr=False)
    thresholds: Thresholds = MappingProxyType({})
    others: tuple[Severity, ...] = ()
    scope: RuleScope = "mailbox"
    lack: str | None = None

    @property
    def about_campaigns(self) -> bool:
        """Whether it is about campaigns, their steps, or errors reading them."""
        return self.id.startswith(("OA2", "OA91"))

    @property
    def severities(self) -> list[Severity]:
        """Severities that a finding of the rule can have, mildest first."""
        known = {self.severity, *self.others}
        return [severity for severity in reversed(Severity) if severity in known or severity in self.thresholds]

    @property
    def severity_range(self) -> str:
        """Mildest and worst severity of findings, as `error to critical`."""
        mildest, worst = self.severities[0], self.severities[-1]
        return mildest.value if mildest is worst else f"{mildest} to {worst}"

    @property
    def condition(self) -> str:
        """Description of the rule's condition, with the thresholds filled in."""
        return _PERCENT.sub(" %", self.wording.format_map(self.thresholds))


@table_row
@attrs.frozen(kw_only=True)
class Finding:
    """A problem that an audit found.

    Attributes:
        rule, severity: Id of the rule, such as `OA101`, and the severity
            of the finding.
        workspace: Id of the workspace.
        mailbox: Id of the mailbox; `None` if the finding is not about a
            single mailbox, or if the id could not be read.
        email: Address of the mailbox, as the service returned it.
        domain: Domain of the mailbox, or the domain that the finding is
            about, in lower case.
        message, remedy: The problem, with the relevant numbers, and what
            solves it. It says "pause" only if the finding is critical.
        confidence: `low` if the sample is too small to be certain;
            otherwise `high`.
        sent_30days: E-mails that the mailbox, domain or server sent in 30
            days; `None` if the finding affects no score.
        server_ip: Address of the sending server if the finding is about
            its mailboxes.
        mailboxes: Number of the workspace's mailboxes on the domain or
            server that the finding is about; `None` for other findings.
        campaign, campaign_name, step: Campaign, and id of the step, that
            the finding is about.
        figures: The numbers that the finding is based on, by name; a
            number from the service has the name of its field.
        state: State compared with an earlier audit; `None` without one.

    Example:
        ```python
        print(report.findings[0].rule, report.findings[0].message)  # -> OA101 no SPF record
        ```
    """

    rule: str
    severity: Severity
    workspace: str
    mailbox: str | None = None
    email: str | None = None
    domain: str | None = None
    message: str
    remedy: str
    confidence: Literal["high", "low"] = "high"
    sent_30days: Number | None = None
    server_ip: str | None = None
    mailboxes: int | None = None
    campaign: str | None = None
    campaign_name: str | None = None
    step: str | None = None
    figures: dict[str, Number] = attrs.field(factory=dict, hash=False)
    state: FindingState | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON-compatible values.

        Example:
            ```python
            print(report.findings[0].to_dict()["email"])  # -> bob@north.example
            ```
        """
        values = {name: getattr(self, name) for name in _FIELDS}
        return {**values, "severity": self.severity.value, "figures": dict(self.figures)}


_FIELDS: Final = tuple(field.name for field in attrs.fields(Finding))


def build_finding(
    rule: Rule, violation: Violation, workspace: str, domain: str | None = None, sent_30days: Number | None = None, **subject: Any
) -> Finding:
    return Finding(
        rule=rule.id,
        severity=(severity := violation.severity or rule.severity),
        workspace=workspace,
        domain=domain,
        message=violation.message,
        remedy=fill_remedy(rule.scope, rule.remedy, severity, domain),
        confidence="high" if violation.sure else "low",
        sent_30days=sent_30days,
        figures=violation.figures,
        **subject,
    )


def subject_name(finding: Finding, names: Mapping[str, str] = MappingProxyType({})) -> str:
    return finding.email or finding.mailbox or group_name(finding, names)


def group_name(finding: Finding, names: Mapping[str, str]) -> str:
    if finding.campaign is not None:
        return campaign_label(finding.campaign_name, finding.campaign)
    return finding.domain or finding.server_ip or names.get(finding.workspace, finding.workspace)


def campaign_label(name: str | None, campaign: str) -> str:
    return replace_unprintable(shorten(name or campaign, _MAX_NAME_SHOWN))


_PAUSE: Final[Mapping[RuleScope, str]] = {
    "mailbox": "Pause the mailbox: take it out of its campaigns. ",
    "domain": "Pause the mailboxes of <domain>: take them out of their campaigns. ",
    "campaign": "Pause the campaign. ",
}
"""How the remedy of a critical finding begins. What it tells to pause is what `decide` tells to stop."""


@lru_cache(maxsize=4_096)  # findings of the same rule and domain share one string
def fill_remedy(scope: RuleScope, remedy: str, severity: Severity, domain: str | None) -> str:
    text = f"{_PAUSE[scope]}{remedy}" if severity is Severity.CRITICAL else remedy
    return text.replace("<domain>", domain or "the domain")


def decide(findings: Iterable[Finding]) -> Action | None:
    """Decide what to do with a mailbox or a campaign from all findings about it, its domain and its server."""
    worst = min((finding.severity.rank for finding in findings), default=len(ACTIONS))
    return ACTIONS[worst] if worst < len(ACTIONS) else None


@table_row
@attrs.frozen(kw_only=True)
class MailboxAction:
    """What to do with a mailbox.

    The worst finding about it, its domain or its server decides.

    Attributes:
        action: `stop` (critical), `fix` (error) or `watch` (warning).
        workspace, mailbox, email, domain, sent_30days: As in `Finding`.

    Example:
        ```python
        print([(each.action, each.email) for each in report.actions])  # -> [('fix', 'bob@north.example')]
        ```
    """

    action: Action
    workspace: str
    mailbox: str
    email: str | None
    domain: str | None
    sent_30days: Number


def apply_rules(rules: Iterable[Rule], facts: object, workspace: str, **subject: Any) -> list[Finding]:
    return [
        build_finding(rule, violation, workspace, **subject)
        for rule in rules
        if (violation := rule.applies(facts, rule.thresholds)) is not None
    ]


@table_row
@attrs.frozen(kw_only=True)
class Group:
    """Mailboxes with the same workspace, domain, type or sending server.

    Attributes:
        kind, key: What the mailboxes share, such as `domain`, and its
            value: an id, a domain, a type or an address.
        mailboxes: Number of checked mailboxes; a mailbox listed in two
            workspaces counts twice.
        score: Score of the group, from 0 to 100.
        severity: Severity of the worst finding; `None` without findings.
        counts: Number of findings by severity, including findings about
            the group itself.
        sent_30days, daily_limit: E-mails sent in 30 days, and the sum of
            the daily limits, in e-mails per day.

    Example:
        ```python
        print([(group.key, group.score) for group in report.groups if group.kind == "domain"])  # -> [('north.example', 74.5)]
        ```
    """

    kind: GroupKind
    key: str
    mailboxes: int
    score: float
    severity: Severity | None
    counts: dict[Severity, int]
    sent_30days: Number
    daily_limit: Number


@table_row
@attrs.frozen(kw_only=True)
class Row:
    """A mailbox with findings, for tables and charts. Invalid numbers are 0.

    Attributes:
        id, email, type, status, server_ip: As the service returned them.
        workspace: Id of the workspace.
        domain: Part of the address after the `@`, in lower case.
        score: Score of the mailbox, from 0 to 100, from the findings about
            it, its domain and its server.
        severity, rules: Severity of the worst finding, and the ids of the
            rules of all.
        daily_limit, sent_today, sent_30days, bounced_30days: Numbers of
            e-mails.
        blacklists: Number of blacklists that list the mailbox.
        opened_14days, avg_open_rate: Open rate of the last 14 days, and
            the average, in percent.

    Example:
        ```python
        print(report.rows[0].email, report.rows[0].score)  # -> bob@north.example 50
        ```
    """

    id: str
    email: str
    workspace: str
    domain: str | None
    type: str
    status: str
    server_ip: str
    score: int
    severity: Severity
    rules: list[str]
    daily_limit: Number
    sent_today: Number
    sent_30days: Number
    bounced_30days: Number
    blacklists: Number
    opened_14days: Number
    avg_open_rate: Number
