"""All rules, by their subject: one mailbox, the mailboxes of a domain or server, and the reading itself."""

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
        source="recommended: 3 to 5 mailboxes per domain (prospeo.io; happierleads: 4)",
        remedy="Use more domains with fewer mailboxes each: all mailboxes on <domain> share its reputation.",
    ),
    DomainRule(
        id="OA171",
        title="Bulk sending without full authentication",
        severity=Severity.CRITICAL,
        wording="the domain's sent_30days / 22 working days is {daily:,} or more, and a mailbox of it lacks SPF, DKIM or DMARC",
        thresholds=MappingProxyType({"daily": 5000}),
        applies=shared.bulk_unproved,
        source="Gmail and Microsoft reject e-mail from domains that send 5,000 a day without all three "
        "(support.google.com/mail/answer/81126; 550 5.7.515 since 2025-05-05)",
        remedy="Publish the missing records for <domain> before sending the next e-mail.",
    ),
)

SERVER_RULES: Final[tuple[ServerRule, ...]] = (
    ServerRule(
        id="OA172",
        title="Server shared with a blacklisted mailbox",
        severity=Severity.WARNING,
        wording="{mailboxes} or more mailboxes of type SMTP & IMAP share a server_ip, and one of them is blacklisted",
        thresholds=MappingProxyType({"mailboxes": 2}),
        applies=shared.listed_neighbours,
        source="blacklists list server addresses: all mailboxes on a listed server are rejected together (inframail.io)",
        remedy="Move the mailboxes that are not blacklisted to another server, and have this one delisted.",
    ),
)

RULES: Final[tuple[MailboxRule | DomainRule | ServerRule, ...]] = (*MAILBOX_RULES, *DOMAIN_RULES, *SERVER_RULES)
"""Every rule that a policy can turn off or adjust.

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
    source="mailboxes that cannot be read cannot be checked",
    remedy="Check the workspace id, the permission to read it and the connection to the service, then run the audit again.",
)
UNDECODABLE: Final = Rule(
    id="OA902",
    title="Mailbox not readable",
    severity=Severity.ERROR,
    wording="a mailbox does not match the service's interface",
    source="section Mailbox of the service's interface",
    remedy="Inspect the mailbox in the service, and report the fields named in the message to the service's support.",
)
MISSING: Final = Rule(
    id="OA903",
    title="Mailboxes not listed",
    severity=Severity.ERROR,
    wording="total_found is higher than the number of mailboxes listed",
    source="section List mailboxes of the service's interface",
    remedy="Run the audit again: mailboxes may have been added during the audit. If the finding persists, report the figures to "
    "the service's support.",
)

READING_RULES: Final[tuple[Rule, ...]] = (UNREADABLE, UNDECODABLE, MISSING)
"""Rules about the reading itself. Any finding of them makes an audit incomplete; a policy cannot turn them off."""

INCOMPLETE: Final = frozenset(rule.id for rule in READING_RULES)

CATALOGUE: Final[dict[str, Rule]] = {rule.id: rule for rule in (*RULES, *READING_RULES)}
"""Every rule by id.

Example:
    ```python
    print(CATALOGUE["OA901"].title)  # -> Workspace not read
    ```
"""

UNKNOWABLE: Final[tuple[str, ...]] = (
    "complaint rates (Gmail's limit is 0.3 %): see Google Postmaster Tools",
    "the DMARC policy itself (p=): look up the TXT record at _dmarc.<domain>",
    "which blacklists list a mailbox (the service only shows how many)",
    "the number of DNS lookups of an SPF record (10 at most)",
)
"""Properties that the service's fields do not show. Every human-readable report lists them."""
