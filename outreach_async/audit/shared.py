"""Facts about the mailboxes of a domain or server, and the conditions of the rules about them, as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from outreach_async.audit.figures import shown
from outreach_async.audit.findings import Severity
from outreach_async.models import Number

WORKDAYS = 22
"""Working days in 30 days; e-mails are assumed to be sent on these."""

Thresholds = Mapping[str, float]


@attrs.define(eq=False)
class Sign:
    """The result of a condition that applies.

    Attributes:
        message: Description of the problem, with its figures.
        figures: The figures of the message, as numbers.
        severity: Severity; `None` for the rule's own severity.
        sure: Whether the sample is large enough to be certain.

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


@attrs.frozen(kw_only=True)
class DomainFacts:
    """Facts about a domain, for rules. A mailbox listed in two workspaces counts once.

    Attributes:
        daily_limit: Sum of the mailboxes' daily limits, in e-mails per day.
        mailboxes: Number of mailboxes.
        sent_30days: E-mails sent by the mailboxes in 30 days.
        lacking: Authentication that some of the mailboxes lack, such as `SPF record`.

    Example:
        ```python
        mailbox = (await client.mailboxes.list()).data[1]
        facts = DomainFacts(daily_limit=9000, mailboxes=90, sent_30days=200_000)
        print([finding.severity.value for finding in check(mailbox, domain=facts)])  # -> ['critical']
        ```
    """

    daily_limit: Number
    mailboxes: int = 1
    sent_30days: Number = 0
    lacking: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class ServerFacts:
    """Facts about a sending server, for rules.

    Attributes:
        mailboxes: Number of mailboxes of type `SMTP & IMAP` on the server. Google mailboxes do not count: all Google customers
            share their servers.
        listed: Number of these mailboxes that are on a blacklist.

    Example:
        ```python
        (rule,) = Policy.default().server_rules
        print(rule.applies(ServerFacts(mailboxes=3, listed=1), rule.thresholds).message)
        # -> 3 mailboxes share this server (blacklisted: 1)
        ```
    """

    mailboxes: int
    listed: int


DomainCondition = Callable[[DomainFacts, Thresholds], Sign | None]
ServerCondition = Callable[[ServerFacts, Thresholds], Sign | None]


def crowded(facts: DomainFacts, at: Thresholds) -> Sign | None:
    """Apply if too many mailboxes share the domain's reputation."""
    if facts.mailboxes <= at["mailboxes"]:
        return None
    return Sign(f"{facts.mailboxes:,} mailboxes share this domain", {"mailboxes": facts.mailboxes})


def bulk_unproved(facts: DomainFacts, at: Thresholds) -> Sign | None:
    """Apply if the domain sends in bulk without the authentication that bulk senders need."""
    daily = facts.sent_30days / WORKDAYS
    if not facts.lacking or daily < at["daily"]:
        return None
    lacking = " and ".join(f"some have no {what}" for what in facts.lacking)
    message = f"its mailboxes send about {shown(int(daily))} e-mails per working day; {lacking}"
    return Sign(message, {"sent_30days": facts.sent_30days})


def listed_neighbours(facts: ServerFacts, at: Thresholds) -> Sign | None:
    """Apply if mailboxes share a server with a blacklisted mailbox."""
    if facts.mailboxes < at["mailboxes"] or not facts.listed:
        return None
    message = f"{facts.mailboxes:,} mailboxes share this server (blacklisted: {facts.listed:,})"
    return Sign(message, {"mailboxes": facts.mailboxes, "listed": facts.listed})
