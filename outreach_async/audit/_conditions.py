"""The conditions of the audit rules about mailboxes, domains and servers, as pure functions.

A condition returns a `Violation` if the rule applies. `data/rules.toml` describes each condition, and has the thresholds.

A relative time, such as `2 months ago`, is treated as an interval. A comparison such as "younger than 14 days" is true only if it
holds for the whole interval. An invalid number is replaced by NaN. Every comparison is written so that a condition does not apply
to NaN.
"""

from __future__ import annotations

import math
from typing import Any, Final

import attrs

from outreach_async.audit._findings import Condition, Severity, Thresholds, Violation
from outreach_async.audit._values import (
    DAY,
    MAX_FIGURE,
    Interval,
    format_at_least,
    format_number,
    format_percent,
    lower_bound,
    parse_relative_time,
    valid_or_none,
    valid_or_zero,
)
from outreach_async.errors import shorten
from outreach_async.models import Mailbox, MailboxStatus, MailboxType, Number

WORKDAYS = 22  # in 30 days; e-mails are assumed to be sent only on working days


@attrs.frozen(kw_only=True)
class DomainFacts:
    """The input of a domain rule's condition: totals over its mailboxes. A mailbox listed in two workspaces counts once.

    Attributes:
        daily_limit: Sum of the daily limits, in e-mails per day.
        mailboxes, sent_30days: Number of mailboxes, and of the e-mails that they sent in 30 days.
        lacking: Kinds of authentication that at least one mailbox lacks, such as `SPF record`.

    Example:
        ```python
        mailbox = (await client.mailboxes.list()).data[1]
        print(check(mailbox, domain=DomainFacts(daily_limit=9000))[0].severity.value)  # -> critical
        ```
    """

    daily_limit: Number
    mailboxes: int = 1
    sent_30days: Number = 0
    lacking: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class ServerFacts:
    """The input of a server rule's condition: the server's mailboxes of type `SMTP & IMAP`, and how many are on a blacklist."""

    mailboxes: int
    listed: int


def check_domain_size(facts: DomainFacts, thresholds: Thresholds) -> Violation | None:
    if facts.mailboxes <= thresholds["mailboxes"]:
        return None
    return Violation(f"{facts.mailboxes:,} mailboxes share this domain", {"mailboxes": facts.mailboxes})


def check_bulk_authentication(facts: DomainFacts, thresholds: Thresholds) -> Violation | None:
    daily = facts.sent_30days / WORKDAYS
    if not facts.lacking or daily < thresholds["daily"]:
        return None
    lacking = " and ".join(f"some have no {what}" for what in facts.lacking)
    message = f"its mailboxes send about {format_number(int(daily))} e-mails per working day; {lacking}"
    return Violation(message, {"sent_30days": facts.sent_30days})


def check_shared_server(facts: ServerFacts, thresholds: Thresholds) -> Violation | None:
    if facts.mailboxes < thresholds["mailboxes"] or not facts.listed:
        return None
    message = f"{facts.mailboxes:,} mailboxes share this server (blacklisted: {facts.listed:,})"
    return Violation(message, {"mailboxes": facts.mailboxes, "listed": facts.listed})


_MAX_STRING_SHOWN: Final = 40  # characters of a quoted string: responses and policy files may contain strings of any length

_NUMERIC_FIELDS: Final = (
    "campaigns", "daily_limit", "blacklists", "sent_today", "sent_30days", "opened_14days", "sent_90days", "bounced_30days",
    "avg_open_rate", "avg_click_rate", "created_at",
)  # fmt: skip

_ACTIVE: Final = MailboxStatus.ACTIVE.value
_GOOGLE: Final = MailboxType.GOOGLE.value
_TYPES: Final = frozenset(kind.value for kind in MailboxType)
_STATUSES: Final = frozenset(status.value for status in MailboxStatus)


def email_domain(email: str) -> str | None:
    return email.rpartition("@")[2].strip().lower() or None if "@" in email else None


@attrs.define(eq=False)  # not frozen: every mailbox needs a case, and creating a frozen object takes twice as long
class Case:
    """The input of a mailbox rule's condition: the mailbox, the time at which it was read, and facts about its domain.

    Attributes:
        mailbox: The mailbox; invalid numbers are replaced by NaN.
        invalid: Description of the invalid numbers, such as `blacklists is below 0`; empty if every number is valid.
        now: Time at which the mailbox was read, in Unix seconds; `None` if unknown.
        facts: Facts about the mailbox's domain; `None` if unknown.

    Example:
        ```python
        print(Case((await client.mailboxes.list()).data[0], now=fake.now).younger(14))  # -> False
        ```
    """

    mailbox: Mailbox
    invalid: str = ""
    now: float | None = None
    facts: DomainFacts | None = None

    @property
    def domain(self) -> DomainFacts:
        """The facts about the mailbox's domain. If these facts are unknown, the domain is assumed to have no other mailbox."""
        return self.facts or DomainFacts(daily_limit=valid_or_zero(self.mailbox.daily_limit))

    @property
    def age(self) -> Interval | None:
        """The age of the mailbox in seconds, as an interval; `None` if it is unknown.

        Without a valid `created_at` and `now`, it is computed from the relative time in `age` or `created`.
        """
        created, now = self.mailbox.created_at, self.now
        if now is not None and 0 < created <= now:
            return Interval(now - created, now - created)
        return parse_relative_time(self.mailbox.age) or parse_relative_time(self.mailbox.created)

    def younger(self, days: float) -> bool:
        """Return whether the mailbox is certainly younger than `days` days; false if its age is unknown.

        Example:
            ```python
            print(Case((await client.mailboxes.list()).data[0], now=fake.now).younger(1))  # -> False
            ```
        """
        created, now = self.mailbox.created_at, self.now
        if now is not None and 0 < created <= now:  # fast path, which does not create an interval
            return now - created < days * DAY
        age = self.age
        return age is not None and age.most < days * DAY

    def older(self, days: float) -> bool:
        """Return whether the mailbox is certainly `days` days old or older; false if its age is unknown.

        Example:
            ```python
            print(Case((await client.mailboxes.list()).data[0], now=fake.now).older(1))  # -> True
            ```
        """
        age = self.age
        return age is not None and age.least >= days * DAY


def build_case(mailbox: Mailbox, now: float | None = None, facts: DomainFacts | None = None) -> Case:
    if _has_valid_figures(mailbox):
        return Case(mailbox, "", now, facts)
    wrong = {name: figure for name in _NUMERIC_FIELDS if valid_or_none(figure := getattr(mailbox, name)) is None}
    invalid = ", ".join(f"{name} is {describe_invalid(figure)}" for name, figure in wrong.items())
    trusted: dict[str, Any] = dict.fromkeys(wrong, math.nan)
    return Case(attrs.evolve(mailbox, **trusted), invalid, now, facts)


def _has_valid_figures(box: Mailbox) -> bool:
    return (
        0 <= box.campaigns <= MAX_FIGURE
        and 0 <= box.daily_limit <= MAX_FIGURE
        and 0 <= box.blacklists <= MAX_FIGURE
        and 0 <= box.sent_today <= MAX_FIGURE
        and 0 <= box.sent_30days <= MAX_FIGURE
        and 0 <= box.opened_14days <= MAX_FIGURE
        and 0 <= box.sent_90days <= MAX_FIGURE
        and 0 <= box.bounced_30days <= MAX_FIGURE
        and 0 <= box.avg_open_rate <= MAX_FIGURE
        and 0 <= box.avg_click_rate <= MAX_FIGURE
        and 0 <= box.created_at <= MAX_FIGURE
    )


def build_missing_authentication(what: str, domain: DomainFacts, thresholds: Thresholds) -> Violation:
    volume = domain.daily_limit
    if not volume >= thresholds["critical"]:
        return Violation(f"no {what}")
    return Violation(
        f"no {what}; the mailbox's domain may send {format_number(volume)} e-mails a day", severity=Severity.CRITICAL
    )


def _missing_authentication(field: str, name: str) -> Condition:

    def check_field(case: Case, thresholds: Thresholds) -> Violation | None:
        return None if getattr(case.mailbox, field) else build_missing_authentication(name, case.domain, thresholds)

    return check_field


check_spf: Final = _missing_authentication("spf", "SPF record")
check_dkim: Final = _missing_authentication("dkim", "DKIM signature")
check_dmarc: Final = _missing_authentication("dmarc", "DMARC policy")


def check_authentication(case: Case, _thresholds: Thresholds) -> Violation | None:
    mailbox = case.mailbox
    return None if mailbox.spf or mailbox.dkim or mailbox.dmarc else Violation("SPF, DKIM and DMARC are all missing")


def check_blacklists(case: Case, thresholds: Thresholds) -> Violation | None:
    lists = case.mailbox.blacklists
    severity = severity_of(lists, thresholds) if lists else None
    return Violation(f"on {format_quantity(lists, 'blacklist')}", {"blacklists": lists}, severity) if severity else None


def check_bounce_rate(case: Case, thresholds: Thresholds) -> Violation | None:
    # The lower confidence bound of the rate, which is below the measured rate, determines the severity. If the bound reaches no
    # threshold, or the sample is too small, the violation's `sure` is false, and the finding has the severity of the rule.
    bounced, sent = case.mailbox.bounced_30days, case.mailbox.sent_30days
    if not sent or not bounced / sent >= thresholds["warning"]:
        return None
    lower = lower_bound(bounced, sent) if sent >= thresholds["sample"] else 0.0
    severity = severity_of(lower, thresholds)
    proof = f"at least {format_at_least(lower)} with 95 % confidence" if severity else "too few e-mails to be certain"
    message = f"{format_percent(bounced / sent)} bounced in 30 days ({format_number(bounced)} of {format_number(sent)}; {proof})"
    return Violation(message, {"bounced_30days": bounced, "sent_30days": sent}, severity, sure=severity is not None)


def check_figures(case: Case, _thresholds: Thresholds) -> Violation | None:
    if case.invalid:
        return Violation(case.invalid)
    bounced, sent = case.mailbox.bounced_30days, case.mailbox.sent_30days
    if bounced <= sent:
        return None
    message = f"{format_number(bounced)} e-mails bounced in 30 days, but only {format_number(sent)} were sent"
    return Violation(message, {"bounced_30days": bounced, "sent_30days": sent})


def check_daily_limit(case: Case, _thresholds: Thresholds) -> Violation | None:
    sent, limit = case.mailbox.sent_today, case.mailbox.daily_limit
    if not sent > limit:
        return None
    message = f"{format_number(sent)} e-mails sent today, over the daily limit of {format_number(limit)}"
    return Violation(message, {"sent_today": sent, "daily_limit": limit})


def check_provider_limit(case: Case, thresholds: Thresholds) -> Violation | None:
    limit = case.mailbox.daily_limit
    if not (limit > thresholds["young"] or limit > thresholds["warning"]) or case.mailbox.type != _GOOGLE:
        return None
    figures = {"daily_limit": limit}
    for severity, cap in ((Severity.CRITICAL, "Google's daily cap"), (Severity.ERROR, "the daily cap of a Google trial")):
        if limit > thresholds[severity]:
            message = f"its daily limit of {format_number(limit)} is above {cap}, {format_number(thresholds[severity])}"
            return Violation(message, figures, severity)
    if limit > thresholds["warning"]:
        return Violation(f"its daily limit of {format_number(limit)} is above {format_number(thresholds['warning'])}", figures)
    if case.younger(thresholds["days"]):
        return Violation(f"its daily limit is {format_number(limit)} at an age of {_format_age(case)}", figures)
    return None


def check_warm_up(case: Case, thresholds: Thresholds) -> Violation | None:
    limit = case.mailbox.daily_limit
    if not limit > thresholds["first"] or not case.younger(thresholds["second_days"]):
        return None
    if limit > thresholds["second"] or case.younger(thresholds["first_days"]):
        return Violation(f"its daily limit is {format_number(limit)} at an age of {_format_age(case)}", {"daily_limit": limit})
    return None


def check_unused_capacity(case: Case, thresholds: Thresholds) -> Violation | None:
    sent, limit = case.mailbox.sent_30days, case.mailbox.daily_limit
    if not sent < thresholds["share"] * limit * WORKDAYS or not case.older(thresholds["days"]):
        return None
    allowed = format_number(limit * WORKDAYS)
    message = f"{format_number(sent)} e-mails sent in 30 days; the mailbox's daily limit allows {allowed} in that time"
    return Violation(message, {"sent_30days": sent, "daily_limit": limit})


def check_activity(case: Case, thresholds: Thresholds) -> Violation | None:
    campaigns = case.mailbox.campaigns
    if not campaigns > 0:
        return None
    ago = parse_relative_time(case.mailbox.last_activity)
    if ago is None or ago.least <= thresholds["days"] * DAY:
        return None
    message = f"no activity for {format_days(ago.least)} or more, but the mailbox is in {format_quantity(campaigns, 'campaign')}"
    return Violation(message, {"campaigns": campaigns})


def check_status(case: Case, _thresholds: Thresholds) -> Violation | None:
    campaigns = case.mailbox.campaigns
    if case.mailbox.status == _ACTIVE or not campaigns > 0:
        return None
    message = f"its status is {quote(case.mailbox.status)}, but the mailbox is in {format_quantity(campaigns, 'campaign')}"
    return Violation(message, {"campaigns": campaigns})


def check_open_rate(case: Case, thresholds: Thresholds) -> Violation | None:
    opened, usual = case.mailbox.opened_14days, case.mailbox.avg_open_rate
    if not opened < thresholds["share"] * usual or not case.mailbox.sent_30days >= thresholds["sample"]:
        return None
    ago = parse_relative_time(case.mailbox.last_activity)
    if ago is None or ago.most >= thresholds["days"] * DAY:  # perhaps no e-mails were sent recently, so none could be opened
        return None
    message = f"an open rate of {opened:.1f} % in the last 14 days; the mailbox's average is {usual:.1f} %"
    return Violation(message, {"opened_14days": opened, "avg_open_rate": usual})


def check_automated_opens(case: Case, thresholds: Thresholds) -> Violation | None:
    opens, clicks = case.mailbox.avg_open_rate, case.mailbox.avg_click_rate
    if opens > thresholds["opens"]:
        return Violation(f"an open rate of {opens:.1f} % indicates automated opens", {"avg_open_rate": opens})
    if clicks >= opens and clicks > 0:
        message = f"a click rate of {clicks:.1f} % with an open rate of {opens:.1f} % indicates automated clicks"
        return Violation(message, {"avg_open_rate": opens, "avg_click_rate": clicks})
    return None


def check_domain_ip(case: Case, _thresholds: Thresholds) -> Violation | None:
    return _NO_DOMAIN_IP if case.mailbox.domain_ip is None else None


_NO_DOMAIN_IP: Final = Violation("its domain has no IP address")  # one object for all mailboxes, to save memory


def check_known_values(case: Case, _thresholds: Thresholds) -> Violation | None:
    box = case.mailbox
    if box.type in _TYPES and box.status in _STATUSES:
        return None
    values = (("type", box.type, _TYPES), ("status", box.status, _STATUSES))
    return Violation(" and ".join(f"its {name} is {quote(value)}" for name, value, known in values if value not in known))


def severity_of(figure: Number, thresholds: Thresholds) -> Severity | None:
    return next((severity for severity in Severity if severity in thresholds and figure >= thresholds[severity]), None)


def format_quantity(count: Number, noun: str) -> str:
    return f"{format_number(count)} {noun}{'' if count == 1 else 's'}"


def _format_age(case: Case) -> str:
    age = case.age
    return format_days(age.most if age else 0)


def format_days(seconds: float) -> str:
    days = int(seconds // DAY)
    return "less than a day" if days < 1 else format_quantity(days, "day")


def quote(text: str) -> str:
    return repr(shorten(str(text), _MAX_STRING_SHOWN))


def describe_invalid(figure: Number) -> str:
    if figure < 0:
        return "below 0"
    return "implausibly large" if figure > MAX_FIGURE else "not a number"
