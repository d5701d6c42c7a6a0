"""The rules about one mailbox as a table: id, severity, condition, thresholds, source and remedy of each."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from outreach_async.audit import conditions
from outreach_async.audit.findings import Severity
from outreach_async.audit.rule import MailboxRule

_BULK: Final = MappingProxyType({"critical": 5000})
_BULK_WORDS: Final = "critical if the domain's mailboxes have a daily_limit of {critical:,} or more in all"
_BULK_SOURCE: Final = (
    "Gmail asks every sender for SPF or DKIM, and from 5,000 e-mails a day for SPF, DKIM and DMARC "
    "(support.google.com/mail/answer/81126); Microsoft refuses the same volume without them by 550 5.7.515 since 2025-05-05"
)

MAILBOX_RULES: Final[tuple[MailboxRule, ...]] = (
    MailboxRule(
        id="OA101",
        title="No SPF",
        severity=Severity.ERROR,
        wording=f"spf is false; {_BULK_WORDS}",
        thresholds=_BULK,
        applies=conditions.no_spf,
        lack=conditions.SPF,
        source=_BULK_SOURCE,
        remedy="Publish one TXT record at <domain> that starts with v=spf1, includes each service that sends for it, and ends "
        "with ~all or -all.",
    ),
    MailboxRule(
        id="OA102",
        title="No DKIM",
        severity=Severity.ERROR,
        wording=f"dkim is false; {_BULK_WORDS}",
        thresholds=_BULK,
        applies=conditions.no_dkim,
        lack=conditions.DKIM,
        source=_BULK_SOURCE,
        remedy="Enable DKIM signing at the provider of the mailbox, and publish the key that it shows under "
        "<selector>._domainkey.<domain>.",
    ),
    MailboxRule(
        id="OA103",
        title="No DMARC",
        severity=Severity.ERROR,
        wording=f"dmarc is false; {_BULK_WORDS}",
        thresholds=_BULK,
        applies=conditions.no_dmarc,
        lack=conditions.DMARC,
        source=_BULK_SOURCE,
        remedy="Publish a TXT record at _dmarc.<domain>: v=DMARC1; p=none; rua=mailto: and an address whose reports are read.",
    ),
    MailboxRule(
        id="OA104",
        title="Nothing proves the sender",
        severity=Severity.CRITICAL,
        wording="spf, dkim and dmarc are all false",
        applies=conditions.unauthenticated,
        source=_BULK_SOURCE,
        remedy="Stop sending from <domain> until SPF and DKIM pass and a DMARC policy is published; then begin again with few "
        "e-mails a day.",
    ),
    MailboxRule(
        id="OA110",
        title="On blacklists",
        severity=Severity.ERROR,
        wording="blacklists is {error} or more; critical from {critical}",
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
        wording="bounced_30days / sent_30days is {warning:.1%} or more: warning from {warning:.1%}, error from {error:.1%}, "
        "critical from {critical:.1%}, each by the rate's 95 % lower bound (Wilson's) over at least {sample} e-mails; info where "
        "the e-mails are too few to be sure",
        thresholds=MappingProxyType({"warning": 0.02, "error": 0.05, "critical": 0.10, "sample": 50}),
        applies=conditions.bouncing,
        source="Amazon SES: stay below 2 %, review from 5 %, pause from 10 % (AWS reputation metrics); "
        "WarmySender counts from 50 e-mails",
        remedy="Pause its campaigns, verify the addresses still to be written to, remove those that fail, and resume with fewer "
        "e-mails a day.",
    ),
    MailboxRule(
        id="OA121",
        title="Figures that cannot be",
        severity=Severity.ERROR,
        wording="bounced_30days is above sent_30days, or a figure is negative, not a number or beyond any count",
        applies=conditions.doubtful,
        source="section Mailbox of the service's interface: they are counts, percentages and a time",
        remedy="Do not trust the figures of this mailbox; report those that the message names to the service's support.",
    ),
    MailboxRule(
        id="OA130",
        title="Over its daily limit",
        severity=Severity.ERROR,
        wording="sent_today is above daily_limit",
        applies=conditions.over_limit,
        source="the mailbox's own daily_limit",
        remedy="Find out what else sends through this account or lowered its limit today, and ask the service's support why the "
        "limit did not hold.",
    ),
    MailboxRule(
        id="OA131",
        title="Daily limit too high for Google",
        severity=Severity.WARNING,
        wording="type is Google and daily_limit is above {warning:,}, or above {young:,} while it is younger than {days:,} days; "
        "error above {error:,}, critical above {critical:,}",
        thresholds=MappingProxyType({"warning": 100, "young": 40, "days": 365, "error": 500, "critical": 2000}),
        applies=conditions.over_provider,
        source="lemlist: never above 100 a day, 40 in the first year (help.lemlist.com/4508367, 7328886); Google Workspace stops "
        "at 2,000 a day, a trial at 500 (support.google.com/a/answer/166852)",
        remedy="Lower its daily limit, and spread what it sends over more mailboxes.",
    ),
    MailboxRule(
        id="OA132",
        title="Daily limit too high for a new mailbox",
        severity=Severity.WARNING,
        wording="it is younger than {first_days} days with a daily_limit above {first:,}, or younger than {second_days} days "
        "with one above {second:,}",
        thresholds=MappingProxyType({"first_days": 14, "first": 10, "second_days": 28, "second": 30}),
        applies=conditions.cold,
        source="warm up for 21 to 28 days before cold e-mail, with 10 to 20 at a time (wordtothewise.com 2017; allstonlabs; "
        "coldconvert; mailflo)",
        remedy="Lower its daily limit, and raise it by a few e-mails a day over four weeks.",
    ),
    MailboxRule(
        id="OA133",
        title="Unused capacity",
        severity=Severity.INFO,
        wording="sent_30days is below {share:.1%} of daily_limit x 22 working days, unless it is younger than {days} days",
        thresholds=MappingProxyType({"share": 0.10, "days": 30}),
        applies=conditions.unused,
        source="the mailbox's own daily_limit over the working days of a month",
        remedy="Add it to campaigns, or save what it costs.",
    ),
    MailboxRule(
        id="OA140",
        title="No activity, yet in campaigns",
        severity=Severity.WARNING,
        wording="last_activity is surely more than {days} days ago while campaigns is above 0",
        thresholds=MappingProxyType({"days": 14}),
        applies=conditions.idle,
        source="a mailbox that campaigns use sends on working days; two weeks without are a lost connection",
        remedy="Reconnect the mailbox in the service and send a test, or take it out of its campaigns.",
    ),
    MailboxRule(
        id="OA141",
        title="Not active, yet in campaigns",
        severity=Severity.ERROR,
        wording="status is not active while campaigns is above 0",
        applies=conditions.inactive,
        source="the one status that the service's interface shows is active",
        remedy="Reconnect the mailbox in the service and send a test, or take it out of its campaigns.",
    ),
    MailboxRule(
        id="OA150",
        title="Opens are falling",
        severity=Severity.WARNING,
        wording="opened_14days is below {share:.1%} of avg_open_rate, with sent_30days of {sample} or more and activity within "
        "{days} days",
        thresholds=MappingProxyType({"share": 0.60, "sample": 100, "days": 14}),
        applies=conditions.fading,
        source="open rates tell a direction, not a level, and a sudden drop is a signal (coldmailopenrate; coldconvert; "
        "benchmarkemail 2025)",
        remedy="Send a placement test to see whether it reaches inboxes; if not, pause its campaigns and warm it up again.",
    ),
    MailboxRule(
        id="OA151",
        title="Opens that machines make",
        severity=Severity.INFO,
        wording="avg_open_rate is above {opens} %, or avg_click_rate is as high as avg_open_rate",
        thresholds=MappingProxyType({"opens": 90}),
        applies=conditions.prefetched,
        source="50 to 60 % of opens are pictures that Apple Mail fetches ahead, and scanners follow links (benchmarkemail 2025, "
        "by Litmus)",
        remedy="Judge its campaigns by replies; its opens and clicks say nothing.",
    ),
    MailboxRule(
        id="OA160",
        title="Domain without an address",
        severity=Severity.INFO,
        wording="domain_ip is null",
        applies=conditions.homeless,
        source="who looks a sender up opens its domain; one that leads nowhere earns no trust",
        remedy="Give <domain> an A record, or redirect it to the company's site.",
    ),
    MailboxRule(
        id="OA190",
        title="A value never seen before",
        severity=Severity.INFO,
        wording="type or status is a value that the service's interface does not show",
        applies=conditions.strange,
        source="section Mailbox of the service's interface shows Google, SMTP & IMAP, and active",
        remedy="Look at the mailbox in the service; if the value is an ordinary one, turn this rule off by the policy.",
    ),
)
"""In the order of their findings."""
