"""Rule classes: what all rules share, and rules about mailboxes, domains and servers."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar, Final, Literal

import attrs

from outreach_async.audit.conditions import Condition
from outreach_async.audit.findings import Severity
from outreach_async.audit.shared import DomainCondition, ServerCondition, Thresholds

Scope = Literal["mailbox", "domain", "server_ip", "workspace"]
"""Subject of a rule's findings: one mailbox, all mailboxes of a domain or server, or the reading of a workspace."""

NO_THRESHOLDS: Final[Thresholds] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class Rule:
    """A rule of the audit.

    Attributes:
        id: Id such as `OA101`; never reused for another rule.
        title: Short title.
        severity: Severity of a finding, unless a threshold determines it.
        wording: Description of the condition, with thresholds as placeholders `{name}`.
        source: Source of the thresholds.
        remedy: Recommended action; `<domain>` stands for the mailbox's domain.
        thresholds: Thresholds by name; one named after a severity is the value from which a finding has that severity.
        scope: Subject of the findings.

    Example:
        ```python
        print(CATALOGUE["OA903"].condition)  # -> total_found is higher than the number of mailboxes listed
        ```
    """

    scope: ClassVar[Scope] = "workspace"

    id: str
    title: str
    severity: Severity
    wording: str
    source: str
    remedy: str
    thresholds: Thresholds = NO_THRESHOLDS

    @property
    def condition(self) -> str:
        """Description of the condition, with the thresholds filled in."""
        return self.wording.format_map(self.thresholds)


@attrs.frozen(kw_only=True)
class MailboxRule(Rule):
    """A rule about one mailbox.

    Attributes:
        applies: The condition, a function without side effects.
        lack: Name of the missing SPF, DKIM or DMARC if the rule is about one: its severity depends on the whole domain.

    Example:
        ```python
        rule = Policy.default().mailbox_rules[0]
        print(rule.id, rule.scope, rule.title)  # -> OA101 mailbox No SPF
        ```
    """

    scope: ClassVar[Scope] = "mailbox"

    applies: Condition = attrs.field(repr=False)
    lack: str | None = None


@attrs.frozen(kw_only=True)
class DomainRule(Rule):
    """A rule about all mailboxes of a domain.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        rule = Policy.default().domain_rules[0]
        print(rule.id, rule.scope, rule.condition)  # -> OA170 domain more than 5 mailboxes share a domain
        ```
    """

    scope: ClassVar[Scope] = "domain"

    applies: DomainCondition = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class ServerRule(Rule):
    """A rule about all mailboxes of a sending server.

    Attributes:
        applies: The condition, a function without side effects.

    Example:
        ```python
        rule = Policy.default().server_rules[0]
        print(rule.id, rule.scope, rule.title)  # -> OA172 server_ip Server shared with a blacklisted mailbox
        ```
    """

    scope: ClassVar[Scope] = "server_ip"

    applies: ServerCondition = attrs.field(repr=False)
