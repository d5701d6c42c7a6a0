"""Recommended actions: one for each rule with findings, the most urgent first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from outreach_async.audit.findings import Finding, Severity
from outreach_async.audit.outputs.words import counted, mailboxes, printable
from outreach_async.audit.policy import PolicyUsed
from outreach_async.audit.rule import Rule
from outreach_async.audit.rules import CATALOGUE

_EXAMPLES: Final = 3


@attrs.frozen(kw_only=True)
class Action:
    """The action for all findings of one rule.

    Attributes:
        rule: Id of the rule.
        title: Title of the rule.
        severity: Severity of the worst finding.
        findings: Number of findings.
        mailboxes: Number of affected mailboxes.
        places: Affected domains (or servers, or workspaces) with their number of findings, the highest first.
        noun: Kind of the places: domain, server or workspace.
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
    places: list[tuple[str, int]]
    examples: list[str]
    noun: str
    remedy: str
    condition: str
    source: str

    @property
    def extent(self) -> str:
        """The affected mailboxes and places, in a few words."""
        where = self.places[0][0] if len(self.places) == 1 else counted(len(self.places), self.noun)
        return f"{mailboxes(self.mailboxes)} on {where}" if self.mailboxes else where


def actions(findings: Iterable[Finding], used: PolicyUsed) -> list[Action]:
    """Group findings by rule into actions, the most urgent first.

    Args:
        findings: The findings, in any order.
        used: The policy of the audit.
    """
    by_rule: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_rule[finding.rule].append(finding)
    return sorted((_action(each, used) for each in by_rule.values()), key=_urgency)


def who(finding: Finding) -> str:
    """Return the name of a finding's subject, as the service returned it."""
    return finding.email or finding.mailbox or place(finding)


def place(finding: Finding) -> str:
    """Return the place of a finding: its domain, or its server, or its workspace."""
    return finding.domain or finding.server_ip or finding.workspace


def noun(finding: Finding) -> str:
    """Return the kind of a finding's place: domain, server or workspace."""
    return "domain" if finding.domain else "server" if finding.server_ip else "workspace"


def worst_first(finding: Finding) -> tuple[int, str, str, str]:
    """Return the sort key of a finding: severity, then domain, name and rule."""
    return finding.severity.rank, finding.domain or "", who(finding), finding.rule


def _urgency(action: Action) -> tuple[int, int, str]:
    return action.severity.rank, -action.findings, action.rule


def _action(findings: Sequence[Finding], used: PolicyUsed) -> Action:
    first, *_ = ordered = sorted(findings, key=worst_first)
    rule = _judged_by(first.rule, used)
    remedies = {finding.remedy for finding in findings}
    places = Counter(printable(place(finding)) for finding in findings)
    return Action(
        rule=first.rule,
        title=rule.title if rule else first.rule,
        severity=first.severity,
        findings=len(findings),
        mailboxes=len({(each.workspace, each.mailbox, each.email) for each in findings if each.mailbox or each.email}),
        places=sorted(places.items(), key=lambda place: (-place[1], place[0])),
        examples=[printable(f"{who(finding)}: {finding.message}") for finding in ordered[:_EXAMPLES]],
        noun=noun(first),
        remedy=printable(rule.remedy if rule and len(remedies) > 1 else first.remedy),
        condition=rule.condition if rule else "",
        source=rule.source if rule else "",
    )


def _judged_by(name: str, used: PolicyUsed) -> Rule | None:
    """Return a rule with the thresholds of the audit; `None` for an unknown rule (from another version)."""
    rule = CATALOGUE.get(name)
    return rule and attrs.evolve(rule, thresholds={**rule.thresholds, **used.thresholds.get(name, {})})
