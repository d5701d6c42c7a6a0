"""The base class of all rules, and the result of their conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Literal, TypeAlias

import attrs

from outreach_async.audit.findings import Severity
from outreach_async.models import Number

Thresholds: TypeAlias = Mapping[str, float]


@attrs.define(eq=False)
class Sign:
    """A problem found by a rule's condition. A condition that does not apply returns `None` instead.

    Attributes:
        message: Description of the problem, with its figures.
        figures: The numbers in the message, by name.
        severity: Severity of the finding; `None` to use the severity of the rule.
        sure: Whether the sample is large enough for a high confidence in the finding.

    Example:
        ```python
        sign = Sign("not in any campaign", {"campaigns": 0}, Severity.WARNING)
        print(sign.sure)  # -> True
        ```
    """

    message: str
    figures: dict[str, Number] = attrs.field(factory=dict)
    severity: Severity | None = None
    sure: bool = True


RuleScope = Literal["mailbox", "domain", "server_ip", "workspace", "campaign", "step"]
"""Subject of a rule's findings: one mailbox, all mailboxes of a domain or server, a workspace or errors while reading it, one
campaign, or one step of a campaign."""

_PERCENT: Final = re.compile(r"(?<=\d)(?:\.0)?%")
"""Percent signs as `str.format` writes them. Reports write `2 %` everywhere."""


@attrs.frozen(kw_only=True)
class Rule:
    """A rule of the audit.

    Attributes:
        id: Id such as `OA101`; never reused for another rule.
        title: Short title.
        severity: Severity of a finding, unless a threshold determines the severity.
        wording: Description of the condition, with thresholds as placeholders `{name}`.
        source: Source of the thresholds.
        remedy: Recommended action; `<domain>` stands for the mailbox's domain, and names and DNS records are in backticks.
        thresholds: Thresholds by name. A threshold named after a severity is the limit for that severity.
        others: Severities that the condition may choose besides `severity` and those that are thresholds.
        scope: Subject of the findings.

    Example:
        ```python
        print(CATALOGUE["OA903"].condition)  # -> total_found is higher than the number of mailboxes listed
        ```
    """

    scope: ClassVar[RuleScope] = "workspace"

    id: str
    title: str
    severity: Severity
    wording: str
    source: str
    remedy: str
    thresholds: Thresholds = MappingProxyType({})
    others: tuple[Severity, ...] = ()

    @property
    def severities(self) -> list[Severity]:
        """Severities that a finding can have, mildest first.

        Example:
            ```python
            print([severity.value for severity in CATALOGUE["OA110"].severities])  # -> ['error', 'critical']
            ```
        """
        known = {self.severity, *self.others}
        return [severity for severity in reversed(Severity) if severity in known or severity in self.thresholds]

    @property
    def severity_range(self) -> str:
        """The mildest and the worst severity of the rule's findings, such as `error to critical`.

        Example:
            ```python
            print(CATALOGUE["OA110"].severity_range, "-", CATALOGUE["OA160"].severity_range)  # -> error to critical - info
            ```
        """
        mildest, worst = self.severities[0], self.severities[-1]
        return mildest.value if mildest is worst else f"{mildest} to {worst}"

    @property
    def condition(self) -> str:
        """Description of the condition, with the thresholds filled in."""
        return _PERCENT.sub(" %", self.wording.format_map(self.thresholds))
