"""What mailboxes that share a domain or a server show together, and when that is a finding: pure, as all conditions are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from outreach_async.audit.figures import shown
from outreach_async.audit.findings import Severity
from outreach_async.models import Number

WORKDAYS = 22
"""Of a month: what it sends in 30 days, it sends on these."""

Thresholds = Mapping[str, float]


@attrs.define(eq=False)
class Sign:
    """What a condition saw.

    Attributes:
        message: In words, with its figures.
        figures: The same figures as numbers.
        severity: How bad it is; `None` for as bad as the rule is.
        sure: Whether the figures are enough to be sure.

    Example:
        ```python
        sign = Sign("it is in no campaign", {"campaigns": 0}, Severity.WARNING)
        print(sign.sure)  # -> True
        ```
    """

    message: str
    figures: dict[str, Number] = attrs.field(factory=dict)
    severity: Severity | None = None
    sure: bool = True


@attrs.frozen(kw_only=True)
class DomainFacts:
    """What a rule may know of the domain that a mailbox shares with others; a mailbox that two workspaces show counts once.

    Attributes:
        daily_limit: E-mails a day that all its mailboxes together may send.
        mailboxes: How many there are.
        sent_30days: What they sent in 30 days.
        lacking: What some of its mailboxes lack to prove the sender, such as `SPF record`.

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
    """What a rule may know of a sending server.

    Attributes:
        mailboxes: How many mailboxes of type `SMTP & IMAP` send from it; those of Google share theirs with the world.
        listed: How many of them are on a blacklist.

    Example:
        ```python
        (rule,) = Policy.default().server_rules
        print(rule.applies(ServerFacts(mailboxes=3, listed=1), rule.thresholds).message)
        # -> 3 mailboxes share this server, and blacklists name 1 of them
        ```
    """

    mailboxes: int
    listed: int


DomainCondition = Callable[[DomainFacts, Thresholds], Sign | None]
ServerCondition = Callable[[ServerFacts, Thresholds], Sign | None]


def crowded(facts: DomainFacts, at: Thresholds) -> Sign | None:
    """More mailboxes share the domain than its reputation should carry."""
    if facts.mailboxes <= at["mailboxes"]:
        return None
    return Sign(f"{facts.mailboxes:,} mailboxes share this domain", {"mailboxes": facts.mailboxes})


def bulk_unproved(facts: DomainFacts, at: Thresholds) -> Sign | None:
    """The domain sends as much as bulk senders do without the proofs that those must give."""
    daily = facts.sent_30days / WORKDAYS
    if not facts.lacking or daily < at["daily"]:
        return None
    lacking = " and ".join(f"without {what}" for what in facts.lacking)
    message = f"it sends about {shown(int(daily))} e-mails a working day, from some mailboxes {lacking}"
    return Sign(message, {"sent_30days": facts.sent_30days})


def listed_neighbours(facts: ServerFacts, at: Thresholds) -> Sign | None:
    """Mailboxes share a server with one that blacklists name."""
    if facts.mailboxes < at["mailboxes"] or not facts.listed:
        return None
    message = f"{facts.mailboxes:,} mailboxes share this server, and blacklists name {facts.listed:,} of them"
    return Sign(message, {"mailboxes": facts.mailboxes, "listed": facts.listed})
