"""What a rule is, whatever it judges."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar, Final, Literal

import attrs

from outreach_async.audit.conditions import Condition
from outreach_async.audit.findings import Severity
from outreach_async.audit.shared import DomainCondition, ServerCondition, Thresholds

Scope = Literal["mailbox", "domain", "server_ip", "workspace"]
"""What a rule's findings are about: one mailbox, those of a domain, those of a server, or the reading of a workspace."""

NO_THRESHOLDS: Final[Thresholds] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class Rule:
    """What an audit can find.

    Attributes:
        id: Such as `OA101`; never used again for anything else.
        title: In a few words.
        severity: How bad it is where no threshold says otherwise.
        wording: When it applies, in words that name thresholds as `{name}`.
        source: Where the figures come from.
        remedy: What to do; `<domain>` stands for the mailbox's domain.
        thresholds: Its figures by name: under a severity's name, the figure from which on the finding is that bad.
        scope: What its findings are about.

    Example:
        ```python
        print(CATALOGUE["OA903"].condition)  # -> total_found counts more mailboxes than the pages showed
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
        """When it applies, in words, with its thresholds."""
        return self.wording.format_map(self.thresholds)


@attrs.frozen(kw_only=True)
class MailboxRule(Rule):
    """A rule that judges one mailbox.

    Attributes:
        applies: The condition as a pure function.
        lack: What the mailbox lacks to prove the sender, if the rule is about that: how bad it is hangs on the whole domain.

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
    """A rule that judges the mailboxes of a domain together.

    Attributes:
        applies: The condition as a pure function.

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
    """A rule that judges the mailboxes of a sending server together.

    Attributes:
        applies: The condition as a pure function.

    Example:
        ```python
        rule = Policy.default().server_rules[0]
        print(rule.id, rule.scope, rule.title)  # -> OA172 server_ip A server shared with a blacklisted mailbox
        ```
    """

    scope: ClassVar[Scope] = "server_ip"

    applies: ServerCondition = attrs.field(repr=False)
