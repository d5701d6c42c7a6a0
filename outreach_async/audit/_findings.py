"""Define the rules and findings of an audit, and the report's entries for mailboxes and groups of mailboxes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.models import Number

Thresholds: TypeAlias = Mapping[str, float]
"""Thresholds of a rule, by name."""

FindingState = Literal["new", "unchanged", "resolved"]
"""State of a finding compared with an earlier audit. `resolved` means that an earlier finding no longer applies."""

RuleScope = Literal["mailbox", "domain", "server_ip", "workspace", "campaign", "step", "comparison"]
"""Subject of a rule's findings. `domain` and `server_ip` stand for all mailboxes of a domain or server. `workspace` includes
errors that occur while a workspace is read. `comparison` stands for a campaign in two audits."""

GroupKind = Literal["workspace", "domain", "type", "server_ip"]

GROUP_KINDS: Final[tuple[GroupKind, ...]] = get_args(GroupKind)

_PERCENT: Final = re.compile(r"(?<=\d)(?:\.0)?%")
"""Pattern of `%` or `.0%` after a digit. Reports show both `2%` and `2.0%` as `2 %`."""


class Severity(StrEnum):
    """Severity of a finding. The members are ordered from the worst to the mildest.

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
        """Return whether this severity is at least as bad as the severity `bar`.

        Example:
            ```python
            print(Severity.CRITICAL.reaches(Severity.ERROR), Severity.INFO.reaches(Severity.ERROR))  # -> True False
            ```
        """
        return self.rank <= bar.rank


_RANKS: Final = {severity: rank for rank, severity in enumerate(Severity)}


def require_severity(name: str) -> Severity:
    if name not in list(Severity):
        raise InvalidRequest(f"severity: expected one of {', '.join(Severity)}, got {name!r}; pass one of them")
    return Severity(name)


HEALTHY_PERCENT: Final = {Severity.CRITICAL: 10, Severity.ERROR: 50, Severity.WARNING: 90, Severity.INFO: 100}
"""Percentage of a mailbox's score that remains with a finding, by severity. The percentages of several rules are multiplied."""


@attrs.define(eq=False)
class Violation:
    """A problem found by a rule's condition. A condition that does not apply returns `None` instead.

    Attributes:
        message: Description of the problem, with the relevant numbers.
        figures: The numbers in the message, by name.
        severity: Severity of the finding; `None` to use the severity of the rule.
        sure: Whether the sample is large enough to be certain of the finding.

    Example:
        ```python
        violation = Violation("not in any campaign", {"campaigns": 0}, Severity.WARNING)
        print(violation.sure)  # -> True
        ```
    """

    message: str
    figures: dict[str, Number] = attrs.field(factory=dict)
    severity: Severity | None = None
    sure: bool = True


Condition: TypeAlias = Callable[[Any, Thresholds], Violation | None]
"""The condition of a rule: a function of the facts about a subject and of the thresholds."""


@attrs.frozen(kw_only=True)
class Rule:
    """A rule of the audit.

    Attributes:
        id: Id such as `OA101`; never reused for another rule.
        title: Short title.
        severity: Severity of a finding, unless a threshold determines it.
        wording: Description of the condition, with thresholds as placeholders `{name}`.
        source: Source of the thresholds.
        remedy: Recommended action; `<domain>` stands for the domain of the finding.
        thresholds: Thresholds by name. A threshold named after a severity is the limit for that severity.
        others: Further severities that a finding can have, besides `severity` and those named in `thresholds`.
        scope: Subject of the findings: `mailbox`, `domain`, `server_ip`, `campaign`, `step`, `workspace` or `comparison`.
        applies: The condition: a pure function of the facts about a subject and the thresholds, which returns a `Violation`
            or `None`. The facts are, by scope, a `Case`, `DomainFacts`, `ServerFacts`, `CampaignCase`, `StepCase` or
            `WorkspaceFacts`, and the `CampaignRow` of a report that is compared with an earlier one.
        lack: What a mailbox lacks if the rule applies, such as `SPF record`. The daily limit of its domain then determines the
            severity. `None` for other rules.

    Example:
        ```python
        rule = CATALOGUE["OA101"]
        print(rule.id, rule.scope, rule.title)  # -> OA101 mailbox No SPF
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
    def severities(self) -> list[Severity]:
        """Severities that a finding of the rule can have, mildest first."""
        known = {self.severity, *self.others}
        return [severity for severity in reversed(Severity) if severity in known or severity in self.thresholds]

    @property
    def severity_range(self) -> str:
        """The mildest and the worst severity of the rule's findings, such as `error to critical`."""
        mildest, worst = self.severities[0], self.severities[-1]
        return mildest.value if mildest is worst else f"{mildest} to {worst}"

    @property
    def condition(self) -> str:
        """Description of the rule's condition, with the thresholds filled in."""
        return _PERCENT.sub(" %", self.wording.format_map(self.thresholds))


@attrs.frozen(kw_only=True)
class Finding:
    """A problem that an audit found.

    Attributes:
        rule: Id of the rule, such as `OA101`.
        severity: Severity of the finding.
        workspace: Id of the workspace.
        mailbox: Id of the mailbox; `None` if the finding is not about a single mailbox, or if the id could not be read.
        email: Address of the mailbox, as the service returned it.
        domain: Domain of the mailbox, or the domain that the finding is about, in lower case.
        message: Description of the problem, with the relevant numbers.
        remedy: Recommended action.
        confidence: `low` if the sample is too small to be certain; otherwise `high`.
        sent_30days: E-mails that the mailbox, domain or server sent in 30 days; `None` if the finding affects no score.
        server_ip: Address of the sending server if the finding is about its mailboxes.
        campaign: Id of the campaign if the finding is about a campaign or one of its steps.
        campaign_name: Name of the campaign, as the service returned it.
        step: Id of the step if the finding is about a step.
        figures: The numbers that the finding is based on, by name; a number from the service has the name of its field.
        state: State compared with an earlier audit; `None` if there was no comparison.

    Example:
        ```python
        (finding,) = check((await client.mailboxes.list()).data[1])
        print(finding.rule, finding.severity, finding.message)  # -> OA101 error no SPF record
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
    campaign: str | None = None
    campaign_name: str | None = None
    step: str | None = None
    figures: dict[str, Number] = attrs.field(factory=dict, hash=False)
    state: FindingState | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON-compatible values.

        Example:
            ```python
            (finding,) = check((await client.mailboxes.list()).data[1])
            print(finding.to_dict()["email"])  # -> bob@north.example
            ```
        """
        values = {name: getattr(self, name) for name in _FIELDS}
        return {**values, "severity": self.severity.value, "figures": dict(self.figures)}


_FIELDS: Final = tuple(field.name for field in attrs.fields(Finding))


def build_finding(
    rule: Rule, violation: Violation, workspace: str, domain: str | None = None, sent_30days: Number | None = None, **subject: Any
) -> Finding:
    """Build a finding from a rule and the `Violation` that its condition returned. `subject` contains further fields."""
    return Finding(
        rule=rule.id,
        severity=violation.severity or rule.severity,
        workspace=workspace,
        domain=domain,
        message=violation.message,
        remedy=_fill_remedy(rule.remedy, domain),
        confidence="high" if violation.sure else "low",
        sent_30days=sent_30days,
        figures=violation.figures,
        **subject,
    )


def apply_rules(rules: Iterable[Rule], facts: object, workspace: str, **subject: Any) -> list[Finding]:
    """Return a finding for each rule that the facts about a subject break."""
    return [
        build_finding(rule, violation, workspace, **subject)
        for rule in rules
        if (violation := rule.applies(facts, rule.thresholds)) is not None
    ]


@lru_cache(maxsize=4_096)  # findings of the same rule and domain share one string
def _fill_remedy(remedy: str, domain: str | None) -> str:
    return remedy.replace("<domain>", domain) if domain else remedy


@attrs.frozen(kw_only=True)
class Group:
    """A group of mailboxes with the same workspace, domain, type or sending server.

    Attributes:
        kind: Name of the property that the mailboxes share, such as `domain`.
        key: The workspace id, the domain, the type as the service returned it, or the server's address.
        mailboxes: Number of checked mailboxes; a mailbox listed in two workspaces counts twice.
        score: Score of the group, from 0 to 100.
        severity: Severity of the worst finding; `None` if there are no findings.
        counts: Number of findings by severity, including findings about the group itself.
        sent_30days: E-mails that the group's mailboxes sent in 30 days.
        daily_limit: Sum of the daily limits, in e-mails per day.

    Example:
        ```python
        report = await audit(client, ["space_1"])
        print([(group.key, group.mailboxes, group.score) for group in report.groups if group.kind == "domain"])
        # -> [('north.example', 2, 74.5)]
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


@attrs.frozen(kw_only=True)
class Row:
    """A mailbox with findings, for tables and charts. Invalid numbers are 0.

    Attributes:
        id: Id of the mailbox.
        email: Address of the mailbox.
        workspace: Id of the workspace.
        domain: Part of the address after the `@`, in lower case.
        type: Mailbox type, as the service returned it.
        status: Mailbox status, as the service returned it.
        server_ip: Address of the sending server.
        score: Score of the mailbox from its own findings, from 0 to 100.
        severity: Severity of the worst finding.
        rules: Ids of the rules that have findings about the mailbox.
        daily_limit: Maximum e-mails per day.
        sent_today: E-mails sent today.
        sent_30days: E-mails sent in 30 days.
        bounced_30days: E-mails bounced in 30 days.
        blacklists: Number of blacklists that list the mailbox.
        opened_14days: Open rate of the last 14 days, in percent.
        avg_open_rate: Average open rate, in percent.

    Example:
        ```python
        (row,) = (await audit(client, ["space_1"])).rows
        print(row.email, row.score, row.rules)  # -> bob@north.example 50 ['OA101']
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
