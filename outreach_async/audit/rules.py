"""The rules as a table: id, severity, condition, threshold, source and remedy of each."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import attrs

from outreach_async.audit import conditions
from outreach_async.audit.conditions import Condition, Thresholds
from outreach_async.audit.findings import Severity
from outreach_async.models import Number


@attrs.frozen(kw_only=True)
class Rule:
    """What an audit can find.

    Attributes:
        id: Such as `OA101`; never used again for anything else.
        title: In a few words.
        severity: How bad it is where no threshold says worse.
        condition: When it applies, in words.
        source: Where the figures come from.
        remedy: What to do; `<domain>` stands for the mailbox's domain.
    """

    id: str
    title: str
    severity: Severity
    condition: str
    source: str
    remedy: str

    def remedy_for(self, domain: str | None) -> str:
        """Return what to do about a mailbox of that domain."""
        return self.remedy.replace("<domain>", domain) if domain else self.remedy


@attrs.frozen(kw_only=True)
class MailboxRule(Rule):
    """A rule that judges one mailbox.

    Attributes:
        applies: The condition as a pure function.
        thresholds: Its figures by name: under a severity's name, the figure from which on the finding is that bad.
    """

    applies: Condition = attrs.field(repr=False)
    thresholds: Thresholds = attrs.field(default=MappingProxyType({}))

    def grade(self, figure: Number) -> Severity:
        """Return how bad that figure is."""
        reached = (severity for severity in Severity if figure >= self.thresholds.get(severity, float("inf")))
        return next(reached, self.severity)


_BULK: Final = MappingProxyType({"critical": 5000})
_BULK_SOURCE: Final = (
    "Gmail asks every sender for SPF or DKIM, and from 5,000 e-mails a day for SPF, DKIM and DMARC "
    "(support.google.com/mail/answer/81126); Microsoft refuses the same volume without them by 550 5.7.515 since 2025-05-05"
)

RULES: Final[tuple[MailboxRule, ...]] = (
    MailboxRule(
        id="OA101",
        title="No SPF",
        severity=Severity.ERROR,
        condition="spf is false; critical if the domain's mailboxes have a daily_limit of 5,000 or more in all",
        thresholds=_BULK,
        applies=conditions.lacks("SPF record", lambda mailbox: mailbox.spf),
        source=_BULK_SOURCE,
        remedy="Publish one TXT record at <domain> that starts with v=spf1, includes each service that sends for it, and ends "
        "with ~all or -all.",
    ),
    MailboxRule(
        id="OA102",
        title="No DKIM",
        severity=Severity.ERROR,
        condition="dkim is false; critical if the domain's mailboxes have a daily_limit of 5,000 or more in all",
        thresholds=_BULK,
        applies=conditions.lacks("DKIM signature", lambda mailbox: mailbox.dkim),
        source=_BULK_SOURCE,
        remedy="Enable DKIM signing at the provider of the mailbox, and publish the key that it shows under "
        "<selector>._domainkey.<domain>.",
    ),
    MailboxRule(
        id="OA103",
        title="No DMARC",
        severity=Severity.ERROR,
        condition="dmarc is false; critical if the domain's mailboxes have a daily_limit of 5,000 or more in all",
        thresholds=_BULK,
        applies=conditions.lacks("DMARC policy", lambda mailbox: mailbox.dmarc),
        source=_BULK_SOURCE,
        remedy="Publish a TXT record at _dmarc.<domain>: v=DMARC1; p=none; rua=mailto: and an address whose reports are read.",
    ),
    MailboxRule(
        id="OA104",
        title="Nothing proves the sender",
        severity=Severity.CRITICAL,
        condition="spf, dkim and dmarc are all false",
        applies=conditions.unauthenticated,
        source=_BULK_SOURCE,
        remedy="Stop sending from <domain> until SPF and DKIM pass and a DMARC policy is published; then begin again with few "
        "e-mails a day.",
    ),
    MailboxRule(
        id="OA110",
        title="On blacklists",
        severity=Severity.ERROR,
        condition="blacklists is 1 or more; critical from 3",
        thresholds=MappingProxyType({"error": 1, "critical": 3}),
        applies=conditions.listed,
        source="lists of Spamhaus's rank lead to rejections within hours, the others after a review (inframail.io)",
        remedy="Pause its campaigns, look <domain> and its server_ip up at check.spamhaus.org and mxtoolbox.com/blacklists, "
        "remove the cause, then ask each list to delist them.",
    ),
    MailboxRule(
        id="OA120",
        title="Bounces",
        severity=Severity.INFO,
        condition="bounced_30days / sent_30days is 2 % or more: warning from 2 %, error from 5 %, critical from 10 %, each by "
        "the rate's 95 % lower bound over at least 50 e-mails; info where the e-mails are too few to be sure",
        thresholds=MappingProxyType({"warning": 0.02, "error": 0.05, "critical": 0.10, "sample": 50}),
        applies=conditions.bouncing,
        source="Amazon SES: stay below 2 %, review from 5 %, pause from 10 % (AWS reputation metrics); "
        "WarmySender counts from 50 e-mails",
        remedy="Pause its campaigns, verify the addresses still to be written to, remove those that fail, and resume with fewer "
        "e-mails a day.",
    ),
    MailboxRule(
        id="OA130",
        title="Over its daily limit",
        severity=Severity.ERROR,
        condition="sent_today is above daily_limit",
        applies=conditions.over_limit,
        source="the mailbox's own daily_limit",
        remedy="Find out what else sends through this account or lowered its limit today, and ask the service's support why the "
        "limit did not hold.",
    ),
    MailboxRule(
        id="OA141",
        title="Not active, yet in campaigns",
        severity=Severity.ERROR,
        condition="status is not active while campaigns is above 0",
        applies=conditions.inactive,
        source="the one status that the service's interface shows is active",
        remedy="Reconnect the mailbox in the service and send a test, or take it out of its campaigns.",
    ),
)
"""Every rule about a mailbox, in the order of their findings."""

UNREADABLE: Final = Rule(
    id="OA901",
    title="Workspace not read",
    severity=Severity.ERROR,
    condition="a page of the workspace's mailboxes could not be read",
    source="what cannot be read cannot be judged",
    remedy="Check the id of the workspace, the right to read it and the way to the service, then run the audit again.",
)
UNDECODABLE: Final = Rule(
    id="OA902",
    title="Mailbox not readable",
    severity=Severity.ERROR,
    condition="a mailbox is not what the service's interface says",
    source="section Mailbox of the service's interface",
    remedy="Look at the mailbox in the service, and report the fields that the message names to its support.",
)
MISSING: Final = Rule(
    id="OA903",
    title="Mailboxes not shown",
    severity=Severity.ERROR,
    condition="total_found counts more mailboxes than the pages showed",
    source="section List mailboxes of the service's interface",
    remedy="Run the audit again, as mailboxes may have been added meanwhile; if it stays, report the figures to the service's "
    "support.",
)

READING_RULES: Final[tuple[Rule, ...]] = (UNREADABLE, UNDECODABLE, MISSING)
"""What can be found wrong with the reading itself; any of them makes an audit incomplete."""

INCOMPLETE: Final = frozenset(rule.id for rule in READING_RULES)

CATALOGUE: Final = {rule.id: rule for rule in (*RULES, *READING_RULES)}
"""Every rule by id."""

UNKNOWABLE: Final[tuple[str, ...]] = (
    "complaint rates (Gmail's bar is 0.3 %): see Google Postmaster Tools",
    "the DMARC policy itself (p=): look up the TXT record of _dmarc.<domain>",
    "which blacklists name a mailbox, only how many",
    "how many DNS look-ups an SPF record needs (10 at most)",
)
"""What the service's fields cannot tell, which every report for people says."""
