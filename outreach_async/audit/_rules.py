"""Define the audit rules about mailboxes, domains and servers, and about errors while reading mailboxes."""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar, Final, TypeAlias

import attrs

from outreach_async.audit import _conditions as conditions
from outreach_async.audit._campaign_rules import (
    CAMPAIGN_READING_RULES,
    CAMPAIGN_RULES,
    COMPARISON_RULES,
    STEP_RULES,
    WORKSPACE_RULES,
    CampaignRule,
    ComparisonRule,
    StepRule,
    WorkspaceRule,
)
from outreach_async.audit._conditions import Condition, DomainCondition, ServerCondition
from outreach_async.audit._findings import Rule, RuleScope, Severity, Thresholds


@attrs.frozen(kw_only=True)
class MailboxRule(Rule):
    """A rule about one mailbox.

    Attributes:
        applies: The condition, a function without side effects.
        lack: What a mailbox lacks if the rule applies, such as `SPF record`; `None` if the rule is not about SPF, DKIM or
            DMARC. If `lack` is set, the total daily limit of the domain determines the severity.

    Example:
        ```python
        rule = Policy.default().mailbox_rules[0]
        print(rule.id, rule.scope, rule.title)  # -> OA101 mailbox No SPF
        ```
    """

    scope: ClassVar[RuleScope] = "mailbox"

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

    scope: ClassVar[RuleScope] = "domain"

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

    scope: ClassVar[RuleScope] = "server_ip"

    applies: ServerCondition = attrs.field(repr=False)


_BULK_SOURCE: Final = (
    "Gmail requires SPF or DKIM of every sender, and SPF, DKIM and DMARC of senders of 5,000 e-mails a day or more "
    "(support.google.com/mail/answer/81126); since 2025-05-05 Microsoft rejects e-mails of such senders if one of the three is "
    "missing (550 5.7.515)"
)


def _authentication_rule(id_: str, *, name: str, lack: str, remedy: str) -> MailboxRule:
    """Return a rule that reports mailboxes without `name`, which is `SPF`, `DKIM` or `DMARC`."""
    field = name.lower()
    return MailboxRule(
        id=id_,
        title=f"No {name}",
        severity=Severity.ERROR,
        wording=f"{field} is false; critical if the daily limits of the domain's mailboxes add up to {{critical:,}} or more",
        thresholds=MappingProxyType({"critical": 5000}),
        applies=conditions.missing_authentication(field, lack),
        lack=lack,
        source=_BULK_SOURCE,
        remedy=remedy,
    )


_BOUNCE_THRESHOLDS: Final[Thresholds] = MappingProxyType({"warning": 0.02, "error": 0.05, "critical": 0.10, "sample": 50})

MAILBOX_RULES: Final[tuple[MailboxRule, ...]] = (
    _authentication_rule(
        "OA101",
        name="SPF",
        lack="SPF record",
        remedy="Publish one TXT record at `<domain>` that starts with `v=spf1`, includes every service that sends for it, and "
        "ends with `~all` or `-all`.",
    ),
    _authentication_rule(
        "OA102",
        name="DKIM",
        lack="DKIM signature",
        remedy="Enable DKIM signing at the mailbox provider, and publish the key it shows at `<selector>._domainkey.<domain>`.",
    ),
    _authentication_rule(
        "OA103",
        name="DMARC",
        lack="DMARC policy",
        remedy="Publish a TXT record at `_dmarc.<domain>`: `v=DMARC1; p=none; rua=mailto:dmarc@<domain>` (or another "
        "address that you read).",
    ),
    MailboxRule(
        id="OA104",
        title="No sender authentication",
        severity=Severity.CRITICAL,
        wording="spf, dkim and dmarc are all false",
        applies=conditions.check_authentication,
        source=_BULK_SOURCE,
        remedy="Stop sending from <domain> until SPF and DKIM pass and a DMARC policy is published; then restart with a few "
        "e-mails a day.",
    ),
    MailboxRule(
        id="OA110",
        title="On blacklists",
        severity=Severity.ERROR,
        wording="blacklists is {error} or more; critical if {critical} or more",
        thresholds=MappingProxyType({"error": 1, "critical": 3}),
        applies=conditions.check_blacklists,
        source="a major blacklist such as Spamhaus causes rejections within hours; the other blacklists are less urgent "
        "(inframail.io)",
        remedy="Pause the mailbox's campaigns, look up <domain> and the server_ip at check.spamhaus.org and "
        "mxtoolbox.com/blacklists, fix the cause, then ask each list to delist them.",
    ),
    MailboxRule(
        id="OA120",
        title="High bounce rate",
        severity=Severity.INFO,
        wording="bounced_30days / sent_30days is {warning:.1%} or more; if {sample} or more e-mails were sent, the lower 95 % "
        "confidence bound (Clopper-Pearson) of this rate sets the severity: warning from {warning:.1%}, error from {error:.1%}, "
        "critical from {critical:.1%}; in all other cases, the severity is info",
        thresholds=_BOUNCE_THRESHOLDS,
        applies=conditions.check_bounce_rate,
        source="Amazon SES recommends a bounce rate below 2 %, reviews accounts from 5 % and may pause them from 10 % (AWS "
        "reputation metrics); WarmySender: sample of 50 e-mails or more",
        remedy="Pause the mailbox's campaigns, verify the addresses of the remaining contacts, remove those that fail, and "
        "resume with fewer e-mails a day.",
    ),
    MailboxRule(
        id="OA121",
        title="Impossible figures",
        severity=Severity.ERROR,
        wording="bounced_30days is above sent_30days, or a figure is negative, not a number or implausibly large",
        applies=conditions.check_figures,
        source='section "Mailbox" of the API documentation: these fields are counts, percentages and a time',
        remedy="Do not rely on the figures of this mailbox; report the figures named in the message to the service's support.",
    ),
    MailboxRule(
        id="OA130",
        title="Over its daily limit",
        severity=Severity.ERROR,
        wording="sent_today is above daily_limit",
        applies=conditions.check_daily_limit,
        source="the mailbox's own daily_limit",
        remedy="Check whether anything else sends through this account, or whether its limit was lowered today; ask the "
        "service's support why the limit was not enforced.",
    ),
    MailboxRule(
        id="OA131",
        title="Daily limit too high for Google",
        severity=Severity.WARNING,
        wording="type is Google and daily_limit is above {warning:,}, or above {young:,} while the mailbox is younger than "
        "{days:,} days; the severity is error if daily_limit is above {error:,}, and critical if it is above {critical:,}",
        thresholds=MappingProxyType({"warning": 100, "young": 40, "days": 365, "error": 500, "critical": 2000}),
        applies=conditions.check_provider_limit,
        source="lemlist: never above 100 a day, 40 in the first year (help.lemlist.com/4508367, 7328886); Google Workspace "
        "allows 2,000 e-mails a day, and 500 in a trial (support.google.com/a/answer/166852)",
        remedy="Lower the daily limit of the mailbox, and spread its volume over more mailboxes.",
    ),
    MailboxRule(
        id="OA132",
        title="Daily limit too high for a new mailbox",
        severity=Severity.WARNING,
        wording="the mailbox is younger than {first_days} days and daily_limit is above {first:,}, or it is younger than "
        "{second_days} days and daily_limit is above {second:,}",
        thresholds=MappingProxyType({"first_days": 14, "first": 10, "second_days": 28, "second": 30}),
        applies=conditions.check_warm_up,
        source="warm up a mailbox for 21 to 28 days before cold e-mail; start the warm-up with 10 to 20 e-mails at a time "
        "(wordtothewise.com 2017; allstonlabs; coldconvert; mailflo)",
        remedy="Lower the daily limit of the mailbox, then raise it by a few e-mails a day over four weeks.",
    ),
    MailboxRule(
        id="OA133",
        title="Unused capacity",
        severity=Severity.INFO,
        wording="sent_30days is below {share:.1%} of daily_limit x 22 (working days), unless the mailbox is younger than {days} "
        "days",
        thresholds=MappingProxyType({"share": 0.10, "days": 30}),
        applies=conditions.check_unused_capacity,
        source="the mailbox's own daily_limit, multiplied by the 22 working days of a month",
        remedy="Add the mailbox to campaigns, or cancel it to save its cost.",
    ),
    MailboxRule(
        id="OA140",
        title="No activity, but in campaigns",
        severity=Severity.WARNING,
        wording="last_activity is certainly more than {days} days ago, and campaigns is above 0",
        thresholds=MappingProxyType({"days": 14}),
        applies=conditions.check_activity,
        source="a mailbox in campaigns sends on working days; two weeks without activity suggest a lost connection",
        remedy="Reconnect the mailbox in the service and send a test e-mail, or remove it from its campaigns.",
    ),
    MailboxRule(
        id="OA141",
        title="Not active, but in campaigns",
        severity=Severity.ERROR,
        wording="status is not active and campaigns is above 0",
        applies=conditions.check_status,
        source="active is the only mailbox status in the API documentation",
        remedy="Reconnect the mailbox in the service and send a test e-mail, or remove it from its campaigns.",
    ),
    MailboxRule(
        id="OA150",
        title="Falling open rate",
        severity=Severity.WARNING,
        wording="opened_14days is below {share:.1%} of avg_open_rate, sent_30days is {sample} or more, and last_activity is "
        "unknown or may be less than {days} days ago",
        thresholds=MappingProxyType({"share": 0.60, "sample": 100, "days": 14}),
        applies=conditions.check_open_rate,
        source="only the trend of an open rate is meaningful, and a sudden drop is a warning sign (coldmailopenrate; "
        "coldconvert; benchmarkemail 2025)",
        remedy="Run an inbox placement test; if e-mails of the mailbox miss the inbox, pause its campaigns and warm it up again.",
    ),
    MailboxRule(
        id="OA151",
        title="Automated opens or clicks",
        severity=Severity.INFO,
        wording="avg_open_rate is above {opens} %, or avg_click_rate is at least as high as avg_open_rate",
        thresholds=MappingProxyType({"opens": 90}),
        applies=conditions.check_automated_opens,
        source="Apple Mail prefetches images and causes 50 to 60 % of recorded opens; security scanners follow links "
        "(benchmarkemail 2025, citing Litmus)",
        remedy="Measure the mailbox's campaigns by replies; its opens and clicks are not meaningful.",
    ),
    MailboxRule(
        id="OA160",
        title="Domain without an IP address",
        severity=Severity.INFO,
        wording="domain_ip is null",
        applies=conditions.check_domain_ip,
        source="recipients open a sender's domain in a browser, and do not trust a domain without a website",
        remedy="Add an A record for <domain>, or redirect the domain to the company's website.",
    ),
    MailboxRule(
        id="OA190",
        title="Unknown type or status",
        severity=Severity.INFO,
        wording="type or status has a value that is not in the API documentation",
        applies=conditions.check_known_values,
        source="the API documentation shows the types Google and SMTP & IMAP, and the status active",
        remedy="Inspect the mailbox in the service; if the value is normal, turn this rule off in the policy.",
    ),
)
"""The rules about one mailbox, in the order in which a mailbox's findings are listed."""


DOMAIN_RULES: Final[tuple[DomainRule, ...]] = (
    DomainRule(
        id="OA170",
        title="Too many mailboxes on a domain",
        severity=Severity.WARNING,
        wording="more than {mailboxes} mailboxes share a domain",
        thresholds=MappingProxyType({"mailboxes": 5}),
        applies=conditions.check_domain_size,
        source="recommended: 3 to 5 mailboxes per domain (prospeo.io; happierleads: 4)",
        remedy="Use more domains with fewer mailboxes each: all mailboxes on <domain> share its reputation.",
    ),
    DomainRule(
        id="OA171",
        title="Bulk sending without full authentication",
        severity=Severity.CRITICAL,
        wording="the mailboxes of the domain send {daily:,} or more e-mails per working day (sent_30days / 22), and at least one "
        "of them lacks SPF, DKIM or DMARC",
        thresholds=MappingProxyType({"daily": 5000}),
        applies=conditions.check_bulk_authentication,
        source="Gmail and Microsoft reject e-mail from a domain that sends 5,000 a day, unless it has SPF, DKIM and DMARC "
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
        applies=conditions.check_shared_server,
        source="a blacklist contains server addresses, so e-mails from every mailbox on a listed server are rejected "
        "(inframail.io)",
        remedy="Move the mailboxes that are not blacklisted to another server, and ask the blacklists to delist this server.",
    ),
)

AdjustableRule: TypeAlias = MailboxRule | DomainRule | ServerRule | CampaignRule | ComparisonRule | StepRule | WorkspaceRule
"""A rule that a policy can turn off or adjust."""

_ABOUT_CAMPAIGNS: Final[tuple[AdjustableRule, ...]] = (*CAMPAIGN_RULES, *COMPARISON_RULES, *STEP_RULES, *WORKSPACE_RULES)

RULES: Final[tuple[AdjustableRule, ...]] = (*MAILBOX_RULES, *DOMAIN_RULES, *SERVER_RULES, *_ABOUT_CAMPAIGNS)
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
    wording="a mailbox does not match the API documentation",
    source='section "Mailbox" of the API documentation',
    remedy="Inspect the mailbox in the service, and report the fields named in the message to the service's support.",
)
MISSING: Final = Rule(
    id="OA903",
    title="Mailboxes not listed",
    severity=Severity.ERROR,
    wording="total_found is higher than the number of mailboxes listed",
    source='section "List mailboxes" of the API documentation',
    remedy="Run the audit again: mailboxes may have been added during the audit. If the finding persists, report the figures to "
    "the service's support.",
)

READING_RULES: Final[tuple[Rule, ...]] = (UNREADABLE, UNDECODABLE, MISSING, *CAMPAIGN_READING_RULES)
"""Rules about errors while reading. A policy cannot turn them off. Their findings make the audit incomplete."""

INCOMPLETE: Final = frozenset(rule.id for rule in READING_RULES)

ABOUT_CAMPAIGNS: Final = frozenset(rule.id for rule in (*_ABOUT_CAMPAIGNS, *CAMPAIGN_READING_RULES))
"""Ids of the rules about campaigns, their steps and errors while reading them. Only an audit of campaigns applies these rules."""

CATALOGUE: Final[dict[str, Rule]] = {rule.id: rule for rule in (*RULES, *READING_RULES)}
"""Every rule by id.

Example:
    ```python
    print(CATALOGUE["OA901"].title)  # -> Workspace not read
    ```
"""


def rule_title(name: str) -> str:
    """Return the title of the rule with this id, or the id itself if the rule is not in the catalogue."""
    return CATALOGUE[name].title if name in CATALOGUE else name


UNKNOWABLE: Final[tuple[str, ...]] = (
    "complaint rates (Gmail's limit is 0.3 %): see Google Postmaster Tools",
    "the DMARC policy itself (p=): look up the TXT record at `_dmarc.<domain>`",
    "the names of the blacklists that list a mailbox (the service shows only their number)",
    "the number of DNS lookups of an SPF record (the limit is 10)",
)
"""Properties that an audit cannot check, because the service's fields do not show them. Human-readable reports list them."""

UNKNOWABLE_OF_CAMPAIGNS: Final[tuple[str, ...]] = (
    "open rates of campaigns: Apple Mail loads the images of e-mails that nobody opens, so opens prove nothing",
    "comparisons of personalized templates with A/B variants: the contacts of a personalized template are not chosen at random",
    "whether the service assigns A/B variants independently of the recipients: if not, verdicts about variants may be false",
)
"""Properties that an audit of campaigns cannot check."""
