"""Every rule, by what it judges: one mailbox, mailboxes that share something, and the reading itself."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from outreach_async.audit import shared
from outreach_async.audit.findings import Severity
from outreach_async.audit.mailbox_rules import MAILBOX_RULES
from outreach_async.audit.rule import DomainRule, MailboxRule, Rule, ServerRule

__all__ = [
    "CATALOGUE",
    "DOMAIN_RULES",
    "INCOMPLETE",
    "MAILBOX_RULES",
    "MISSING",
    "READING_RULES",
    "RULES",
    "SERVER_RULES",
    "UNDECODABLE",
    "UNKNOWABLE",
    "UNREADABLE",
    "DomainRule",
    "MailboxRule",
    "Rule",
    "ServerRule",
]

DOMAIN_RULES: Final[tuple[DomainRule, ...]] = (
    DomainRule(
        id="OA170",
        title="Too many mailboxes on a domain",
        severity=Severity.WARNING,
        wording="more than {mailboxes} mailboxes share a domain",
        thresholds=MappingProxyType({"mailboxes": 5}),
        applies=shared.crowded,
        source="3 to 5 mailboxes a domain (prospeo.io; happierleads: 4)",
        remedy="Send from more domains with fewer mailboxes each: what one of them does harms all on <domain>.",
    ),
    DomainRule(
        id="OA171",
        title="Bulk without proof of the sender",
        severity=Severity.CRITICAL,
        wording="the domain's sent_30days / 22 working days is {daily:,} or more while a mailbox of it lacks SPF, DKIM or DMARC",
        thresholds=MappingProxyType({"daily": 5000}),
        applies=shared.bulk_unproved,
        source="Gmail and Microsoft refuse e-mail of domains that send 5,000 a day without all three "
        "(support.google.com/mail/answer/81126; 550 5.7.515 since 2025-05-05)",
        remedy="Publish what is missing for <domain> before the next e-mail is sent.",
    ),
)

SERVER_RULES: Final[tuple[ServerRule, ...]] = (
    ServerRule(
        id="OA172",
        title="A server shared with a blacklisted mailbox",
        severity=Severity.WARNING,
        wording="{mailboxes} or more mailboxes of type SMTP & IMAP share a server_ip, and blacklists name one of them",
        thresholds=MappingProxyType({"mailboxes": 2}),
        applies=shared.listed_neighbours,
        source="blacklists name addresses of servers: all that send from one are refused together (inframail.io)",
        remedy="Move the mailboxes that are not listed to another server, and delist this one.",
    ),
)

RULES: Final[tuple[MailboxRule | DomainRule | ServerRule, ...]] = (*MAILBOX_RULES, *DOMAIN_RULES, *SERVER_RULES)
"""Every rule that a policy can turn off or move the thresholds of.

Example:
    ```python
    print([rule.id for rule in RULES if rule.scope == "domain"])  # -> ['OA170', 'OA171']
    ```
"""

UNREADABLE: Final = Rule(
    id="OA901",
    title="Workspace not read",
    severity=Severity.ERROR,
    wording="a page of the workspace's mailboxes could not be read",
    source="what cannot be read cannot be judged",
    remedy="Check the id of the workspace, the right to read it and the way to the service, then run the audit again.",
)
UNDECODABLE: Final = Rule(
    id="OA902",
    title="Mailbox not readable",
    severity=Severity.ERROR,
    wording="a mailbox is not what the service's interface says",
    source="section Mailbox of the service's interface",
    remedy="Look at the mailbox in the service, and report the fields that the message names to its support.",
)
MISSING: Final = Rule(
    id="OA903",
    title="Mailboxes not shown",
    severity=Severity.ERROR,
    wording="total_found counts more mailboxes than the pages showed",
    source="section List mailboxes of the service's interface",
    remedy="Run the audit again, as mailboxes may have been added meanwhile; if it stays, report the figures to the service's "
    "support.",
)

READING_RULES: Final[tuple[Rule, ...]] = (UNREADABLE, UNDECODABLE, MISSING)
"""What can be found wrong with the reading itself; any of them makes an audit incomplete. No policy turns them off."""

INCOMPLETE: Final = frozenset(rule.id for rule in READING_RULES)

CATALOGUE: Final[dict[str, Rule]] = {rule.id: rule for rule in (*RULES, *READING_RULES)}
"""Every rule by id.

Example:
    ```python
    print(CATALOGUE["OA901"].title)  # -> Workspace not read
    ```
"""

UNKNOWABLE: Final[tuple[str, ...]] = (
    "complaint rates (Gmail's bar is 0.3 %): see Google Postmaster Tools",
    "the DMARC policy itself (p=): look up the TXT record of _dmarc.<domain>",
    "which blacklists name a mailbox, only how many",
    "how many DNS look-ups an SPF record needs (10 at most)",
)
"""What the service's fields cannot tell, which every report for people says."""
