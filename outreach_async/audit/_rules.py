"""The rules of the audit: their conditions, as pure functions, and the texts and thresholds from `data/rules.toml`.

A condition returns a `Violation` if the rule applies. They are about mailboxes, domains and servers, then about campaigns.

A relative time, such as `2 months ago`, is treated as an interval. A comparison such as "younger than 14 days" is true only if it
holds for the whole interval. An invalid number of a mailbox is replaced by NaN. Every comparison is written so that a condition
does not apply to NaN. Numbers of campaigns may be missing, too: a sum that contains such a number is `None`, and a condition that
compares a sum with a threshold is never met if the sum is `None`.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import attrs

from outreach_async.audit._findings import Condition, Rule, Severity, Thresholds, Violation
from outreach_async.audit._values import (
    DAY,
    MAX_FIGURE,
    Interval,
    figure_or_none,
    format_at_least,
    format_at_most,
    format_number,
    format_percent,
    lower_bound,
    parse_relative_time,
    sum_or_none,
    upper_bound,
    valid_or_none,
    valid_or_zero,
)
from outreach_async.audit.campaigns import CampaignRow
from outreach_async.errors import shorten
from outreach_async.models import (
    Campaign,
    CampaignStatus,
    Mailbox,
    MailboxStatus,
    MailboxType,
    Number,
    Step,
    StepStatus,
    StepType,
    Template,
    TemplateStatus,
    WorkspaceField,
)

WORKDAYS = 22  # in 30 days; e-mails are assumed to be sent only on working days


@attrs.frozen(kw_only=True)
class DomainFacts:
    """The input of a domain rule's condition: totals over its mailboxes. A mailbox listed in two workspaces counts once."""

    mailboxes: int
    sent_30days: Number
    lacking: tuple[str, ...]  # kinds of authentication that at least one mailbox lacks, such as `SPF record`


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
    """The input of a mailbox rule's condition: the mailbox, the time at which it was read, and the volume of its domain."""

    mailbox: Mailbox  # invalid numbers are replaced by NaN
    invalid: str = ""  # which numbers are invalid, such as `blacklists is below 0`
    now: float | None = None
    domain_limit: Number | None = None

    @property
    def volume(self) -> Number:
        """The e-mails that the domain may send a day. If they are unknown, it is assumed to have no other mailbox."""
        return valid_or_zero(self.mailbox.daily_limit) if self.domain_limit is None else self.domain_limit

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
        """Return whether the mailbox is certainly younger than `days` days; false if its age is unknown."""
        created, now = self.mailbox.created_at, self.now
        if now is not None and 0 < created <= now:  # fast path, which does not create an interval
            return now - created < days * DAY
        age = self.age
        return age is not None and age.most < days * DAY

    def older(self, days: float) -> bool:
        """Return whether the mailbox is certainly `days` days old or older; false if its age is unknown."""
        age = self.age
        return age is not None and age.least >= days * DAY


def build_case(mailbox: Mailbox, now: float | None = None, domain_limit: Number | None = None) -> Case:
    if _has_valid_figures(mailbox):
        return Case(mailbox, "", now, domain_limit)
    wrong = {name: figure for name in _NUMERIC_FIELDS if valid_or_none(figure := getattr(mailbox, name)) is None}
    invalid = ", ".join(f"{name} is {describe_invalid(figure)}" for name, figure in wrong.items())
    trusted: dict[str, Any] = dict.fromkeys(wrong, math.nan)
    return Case(attrs.evolve(mailbox, **trusted), invalid, now, domain_limit)


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


def build_missing_authentication(what: str, volume: Number, thresholds: Thresholds) -> Violation:
    if not volume >= thresholds["critical"]:
        return Violation(f"no {what}")
    return Violation(
        f"no {what}; the mailbox's domain may send {format_number(volume)} e-mails a day", severity=Severity.CRITICAL
    )


def _missing_authentication(field: str, name: str) -> Condition:

    def check_field(case: Case, thresholds: Thresholds) -> Violation | None:
        return None if getattr(case.mailbox, field) else build_missing_authentication(name, case.volume, thresholds)

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


# Campaigns, steps and workspaces.

DRAFT: Final = CampaignStatus.DRAFT.value
_LIVE: Final = CampaignStatus.LIVE.value
_PAUSED: Final = CampaignStatus.PAUSED.value
_LIVE_STEP: Final = StepStatus.LIVE.value
_LIVE_TEMPLATE: Final = TemplateStatus.LIVE.value
_COMPLETE: Final = "Complete"
_MAX_NAMED: Final = 5  # placeholders that a message names
_MAX_DAYS_LEFT: Final = 3650  # larger ones are of campaigns that cannot send


class FieldNames:
    def __init__(self, fields: Iterable[WorkspaceField]) -> None:
        self._codes: dict[str, str] = {}
        self._labels: dict[str, str] = {}
        self.suggest = cache(self._suggest)  # templates repeat their misspellings, and a search compares every field
        for field in fields:
            self._codes.setdefault(field.code.strip().lower(), field.code)
            for label in (field.label, *field.searchable):
                self._labels.setdefault(label.strip().lower(), field.code)

    def has(self, name: str) -> bool:
        return name.lower() in self._codes

    def _suggest(self, name: str) -> tuple[str | None, bool]:
        """Return the field code that `name` may mean, and whether `name` is probably a misspelling of it."""
        lower = name.lower()
        if code := self._labels.get(lower) or self._labels.get(lower.replace("_", " ")):
            return code, False
        near = get_close_matches(re.sub(r"[\s-]+", "_", lower), self._codes, n=1, cutoff=0.7)
        return (self._codes[near[0]], True) if near else (None, False)


@attrs.define(eq=False, kw_only=True)
class CampaignCase:
    """The input of a campaign rule's condition: the campaign, what was read of it, and totals over all templates and steps."""

    campaign: Campaign
    steps: Sequence[Step] | None = None
    fields: FieldNames | None = None
    now: float | None = None
    sent: Number | None = None
    replied: Number | None = None
    unsubscribed: Number | None = None
    left: Number | None = None
    predicted: float | None = None

    @property
    def age(self) -> float | None:
        """The age of the campaign in seconds; `None` if unknown."""
        created = figure_or_none(self.campaign.created)
        return None if self.now is None or not created or created > self.now else self.now - created


def build_campaign_case(
    campaign: Campaign, steps: Sequence[Step] | None = None, fields: FieldNames | None = None, now: float | None = None
) -> CampaignCase:
    case = CampaignCase(campaign=campaign, steps=steps, fields=fields, now=now)
    if steps is not None:
        templates = list(chain.from_iterable(step.templates for step in steps))
        case.sent = sum_or_none(template.sent for template in templates)
        case.replied = sum_or_none(template.replied_num for template in templates)
        case.unsubscribed = sum_or_none(template.unsubscribed_num for template in templates)
        case.left = sum_or_none(step.left_to_send for step in steps)
    return case


def estimate_end(case: CampaignCase) -> Number | None:
    """Return the estimated end of a campaign, in Unix seconds; `None` if it has ended or has no estimate."""
    date, days = figure_or_none(case.campaign.days_left_date), figure_or_none(case.campaign.days_left)
    if date:
        return date
    if case.now is None or not days or days > _MAX_DAYS_LEFT or case.campaign.days_left_date == _COMPLETE:
        return None
    return case.now + days * DAY


@attrs.define(eq=False, kw_only=True)
class StepCase:
    """The input of a step rule's condition: a step, and the case of its campaign."""

    step: Step
    of: CampaignCase

    @property
    def will_send(self) -> bool:
        """True if the step may still send: its campaign is a draft, or contacts are left or may be left to go through it."""
        left = figure_or_none(self.step.left_to_send)
        return self.of.campaign.status == DRAFT or left is None or left > 0

    @property
    def live_templates(self) -> list[Template]:
        """The step's templates with the status `live`."""
        return [template for template in self.step.templates if template.status == _LIVE_TEMPLATE]


@attrs.frozen(kw_only=True)
class WorkspaceFacts:
    """The input of a workspace rule's condition: totals over its mailboxes, and over live campaigns with e-mails left to send.

    Mailboxes and campaigns that may be younger than 30 days do not count.
    """

    mailboxes: int
    daily_limit: Number
    sent_30days: Number
    campaigns: int
    left_to_send: Number


def check_sending(case: CampaignCase, thresholds: Thresholds) -> Violation | None:
    ago = parse_relative_time(case.campaign.last_activity)
    # A campaign that has sent nothing has been idle since it was created.
    idle = ago.least if ago is not None else case.age if case.sent == 0 else None
    if case.campaign.status != _LIVE or not case.left or idle is None or not case.steps:
        return None
    wait = max(figure_or_none(step.wait_time) or 0 for step in case.steps) / 1000
    if idle <= thresholds["days"] * DAY + wait:
        return None
    message = f"no activity for {format_days(idle)} or more, but {format_quantity(case.left, 'e-mail')} left to send"
    return Violation(message, {"left_to_send": case.left})


def check_content(case: CampaignCase, _thresholds: Thresholds) -> Violation | None:
    campaign = case.campaign
    if campaign.status != _LIVE:
        return None
    counts = {"steps": campaign.steps, "contacts": campaign.contacts}
    empty = [name for name, count in counts.items() if figure_or_none(count) == 0]
    return Violation(f"it is live, but has no {' and no '.join(empty)}") if empty else None


def check_end(case: CampaignCase, _thresholds: Thresholds) -> Violation | None:
    if case.campaign.status != _LIVE or not case.sent or case.left != 0:
        return None
    return Violation(f"all {format_number(case.sent)} e-mails are sent, but the campaign is still live", {"sent": case.sent})


def check_stale_draft(case: CampaignCase, thresholds: Thresholds) -> Violation | None:
    return _check_stale(case, DRAFT, "the campaign is still a draft", thresholds["days"])


def check_paused(case: CampaignCase, thresholds: Thresholds) -> Violation | None:
    return _check_stale(case, _PAUSED, f"{format_quantity(case.left or 0, 'e-mail')} left to send", thresholds["days"])


def _check_stale(case: CampaignCase, status: str, consequence: str, days: float) -> Violation | None:
    age, ago = case.age, parse_relative_time(case.campaign.last_activity)
    if case.campaign.status != status or age is None or (status == _PAUSED and not case.left):
        return None
    idle = age if ago is None else min(age, ago.least)
    if idle <= days * DAY:
        return None
    return Violation(f"no activity for {format_days(idle)} or more, and {consequence}")


def check_campaign_bounces(case: CampaignCase, thresholds: Thresholds) -> Violation | None:
    return _check_rate("bounced", "bounces_num", figure_or_none(case.campaign.bounces_num), case.sent, thresholds)


def check_prediction(case: CampaignCase, thresholds: Thresholds) -> Violation | None:
    sent, bounced, predicted = case.sent, figure_or_none(case.campaign.bounces_num), case.predicted
    if predicted is None or not sent or bounced is None or bounced > sent or sent < thresholds["sample"]:
        return None
    if (lower := lower_bound(bounced, sent)) <= predicted + thresholds["margin"]:
        return None
    proof = f"at least {format_at_least(lower)} with 95 % confidence"
    found = f"{format_percent(bounced / sent)} bounced ({format_number(bounced)} of {format_number(sent)} e-mails; {proof})"
    expected = f"the gate predicted {format_percent(predicted)}"
    return Violation(f"{found}; {expected}", {"bounces_num": bounced, "sent": sent})


def check_unsubscribes(case: CampaignCase, thresholds: Thresholds) -> Violation | None:
    return _check_rate("unsubscribed", "unsubscribed_num", case.unsubscribed, case.sent, thresholds)


def _check_rate(verb: str, figure: str, events: Number | None, sent: Number | None, thresholds: Thresholds) -> Violation | None:
    if not sent or events is None or events > sent or sent < thresholds["sample"]:
        return None
    if severity_of(events / sent, thresholds) is None:  # the bound, which takes longer to compute, is lower still
        return None
    lower = lower_bound(events, sent)
    severity = severity_of(lower, thresholds)
    if severity is None:
        return None
    proof = f"at least {format_at_least(lower)} with 95 % confidence"
    message = f"{format_percent(events / sent)} {verb} ({format_number(events)} of {format_number(sent)} e-mails; {proof})"
    return Violation(message, {figure: events, "sent": sent}, severity)


def check_replies(case: CampaignCase, thresholds: Thresholds) -> Violation | None:
    sent, replied, age = case.sent, case.replied, case.age
    if not sent or replied is None or replied > sent or age is None or age < thresholds["days"] * DAY:
        return None
    if not replied / sent < thresholds["warning"]:  # the bound, which takes longer to compute, is higher still
        return None
    upper = upper_bound(replied, sent)
    if not upper < thresholds["warning"]:
        return None
    proof = f"at most {format_at_most(upper)} with 95 % confidence"
    message = f"{format_percent(replied / sent)} replied ({format_number(replied)} of {format_number(sent)} e-mails; {proof})"
    return Violation(message, {"replied_num": replied, "sent": sent})


_CAMPAIGN_FIGURES: Final = (
    "steps", "contacts", "opens", "interested", "replies", "bounces", "opens_num", "replies_num", "bounces_num", "interested_num",
    "created",
)  # fmt: skip
_STEP_FIGURES: Final = ("wait_time", "left_to_send", "already_sent", "out_of")
_TEMPLATE_FIGURES: Final = ("sent", "opened_num", "clicked_num", "replied_num", "unsubscribed_num")


def check_campaign_figures(case: CampaignCase, _thresholds: Thresholds) -> Violation | None:
    invalid = list(_invalid_figures(case.campaign, _CAMPAIGN_FIGURES, ""))
    for step in case.steps or ():
        where = f"step {_name_order(step.order)}: "
        invalid += _invalid_figures(step, _STEP_FIGURES, where)
        for template in step.templates:
            invalid += _invalid_figures(template, _TEMPLATE_FIGURES, f"{where}template {quote(template.test_letter)}: ")
    if invalid:
        more = f" and {len(invalid) - _MAX_NAMED:,} more" if len(invalid) > _MAX_NAMED else ""
        return Violation(f"{', '.join(invalid[:_MAX_NAMED])}{more}")
    bounced = figure_or_none(case.campaign.bounces_num)
    if case.sent is None or bounced is None or bounced <= case.sent:
        return None
    message = f"{format_number(bounced)} e-mails bounced, but only {format_number(case.sent)} were sent"
    return Violation(message, {"bounces_num": bounced, "sent": case.sent})


def _invalid_figures(item: object, names: Iterable[str], where: str) -> Iterable[str]:
    for name in names:
        value: Any = getattr(item, name)
        if figure_or_none(value) is None:
            is_number = isinstance(value, int | float)
            yield f"{where}{name} is {describe_invalid(value) if is_number else 'not a number'}"


def _name_order(order: object) -> str:
    number = figure_or_none(order)
    return "?" if number is None else format_number(number)


def check_known_states(case: CampaignCase, _thresholds: Thresholds) -> Violation | None:
    unknown = [] if case.campaign.status in set(CampaignStatus) else [f"its status is {quote(case.campaign.status)}"]
    steps = case.steps or ()
    types = dict.fromkeys(step.type for step in steps if step.type not in set(StepType))
    unknown += [f"a step has the unknown type {quote(kind)}" for kind in types]
    return Violation(" and ".join(unknown[:_MAX_NAMED])) if unknown else None


def check_live_templates(case: StepCase, _thresholds: Thresholds) -> Violation | None:
    if not case.will_send or case.live_templates or case.step.status != _LIVE_STEP:
        return None
    count = format_quantity(len(case.step.templates), "template")
    severity = None if case.of.campaign.status == _LIVE else Severity.WARNING
    return Violation(f"step {_name_order(case.step.order)} has {count}, and none is live", severity=severity)


def check_step_status(case: StepCase, _thresholds: Thresholds) -> Violation | None:
    left = figure_or_none(case.step.left_to_send)
    if case.of.campaign.status != _LIVE or case.step.status == _LIVE_STEP or not left:
        return None
    message = f"the status of step {_name_order(case.step.order)} is {quote(case.step.status)}"
    return Violation(f"{message}, with {format_quantity(left, 'e-mail')} left to send", {"left_to_send": left})


_PLACEHOLDER: Final = re.compile(r"\{\{([^{}]{1,200})\}\}")
_PLACEHOLDER_NAME: Final = re.compile(r"[^\W\d][\w .-]{0,79}")


def find_placeholders(step: Step) -> list[str]:
    """Return the distinct names of the placeholders in the live templates of a step. This function performs no I/O."""
    # Many services treat the part after a `|` as a fallback, so only the name before the `|` is returned. Names that start with a
    # symbol, such as `#if`, are keywords of a template language, and are ignored.
    names: dict[str, None] = {}
    for template in step.templates:
        if template.status == _LIVE_TEMPLATE:
            for text in (template.subject, template.body_text):
                for match in _PLACEHOLDER.finditer(text or ""):
                    name = match[1].partition("|")[0].strip()
                    if _PLACEHOLDER_NAME.fullmatch(name):
                        names[name] = None
    return list(names)


def check_placeholders(case: StepCase, _thresholds: Thresholds) -> Violation | None:
    fields = case.of.fields
    if fields is None or not case.will_send:
        return None
    unknown = [name for name in find_placeholders(case.step) if not fields.has(name)]
    if not unknown:
        return None
    described, misspelled = [], False
    for name in unknown[:_MAX_NAMED]:
        code, is_near = fields.suggest(name)
        misspelled |= is_near
        described.append(f"{{{{{name}}}}}" + (f" (did you mean {{{{{code}}}}}?)" if code else ""))
    more = f" and {len(unknown) - _MAX_NAMED:,} more" if len(unknown) > _MAX_NAMED else ""
    message = f"step {_name_order(case.step.order)}: no field provides {', '.join(described)}{more}"
    return Violation(message, {"placeholders": len(unknown)}, None if misspelled else Severity.WARNING, sure=misspelled)


def check_unused_limits(facts: WorkspaceFacts, thresholds: Thresholds) -> Violation | None:
    allowed = facts.daily_limit * WORKDAYS
    if not facts.left_to_send >= thresholds["days"] * facts.daily_limit or not facts.sent_30days < thresholds["share"] * allowed:
        return None
    share = format_percent(facts.sent_30days / allowed)
    used = f"{format_number(facts.sent_30days)} e-mails sent in 30 days, {share} of the {format_number(allowed)} that"
    mailboxes = f"{facts.mailboxes:,} mailbox{'' if facts.mailboxes == 1 else 'es'} may send"
    left = f"{format_quantity(facts.campaigns, 'live campaign')} {'has' if facts.campaigns == 1 else 'have'}"
    figures = {"sent_30days": facts.sent_30days, "daily_limit": facts.daily_limit, "left_to_send": facts.left_to_send}
    return Violation(f"{used} {mailboxes}; {left} {format_number(facts.left_to_send)} left to send", figures)


def check_slip(row: CampaignRow, thresholds: Thresholds) -> Violation | None:
    if row.status != _LIVE or row.end is None or row.planned_end is None:
        return None
    days = (row.end - row.planned_end) / DAY
    if days < thresholds["days"]:
        return None
    return Violation(
        f"its estimated end slipped by {format_days(days * DAY)} since contacts were last added", {"days": int(days)}
    )


# The rules.


def _load() -> Iterator[Rule]:
    known = {**globals(), "": lambda _facts, _thresholds: None}
    text = (files("outreach_async.audit") / "data" / "rules.toml").read_text(encoding="utf-8")
    for name, values in tomllib.loads(text).items():
        yield Rule(
            id=name,
            severity=Severity(values.pop("severity")),
            thresholds=MappingProxyType(values.pop("thresholds", {})),
            others=tuple(map(Severity, values.pop("others", ()))),
            applies=known[values.pop("condition", "")],
            **values,
        )


CATALOGUE: Final[dict[str, Rule]] = {rule.id: rule for rule in _load()}
"""Every rule by id.

Example:
    ```python
    print(CATALOGUE["OA901"].title)  # -> Workspace not read
    ```
"""

READING_RULES: Final = tuple(rule for name, rule in CATALOGUE.items() if name.startswith("OA9"))
"""Rules about errors while reading. A policy cannot turn them off. Their findings make the audit incomplete."""

RULES: Final = tuple(rule for rule in CATALOGUE.values() if rule not in READING_RULES)
"""Every rule that a policy can turn off or adjust.

Example:
    ```python
    print([rule.id for rule in RULES if rule.scope == "domain"])  # -> ['OA170', 'OA171']
    ```
"""

(
    UNREADABLE, UNDECODABLE, MISSING,
    CAMPAIGNS_UNREAD, CAMPAIGN_UNDECODABLE, CAMPAIGNS_MISSING, STEPS_UNREAD, FIELDS_UNREAD,
) = READING_RULES  # fmt: skip

INCOMPLETE: Final = frozenset(rule.id for rule in READING_RULES)
ABOUT_CAMPAIGNS: Final = frozenset(rule.id for rule in CATALOGUE.values() if rule.about_campaigns)
"""Ids of the rules about campaigns, their steps and errors while reading them. Only an audit of campaigns applies these rules."""


def rule_title(name: str) -> str:
    return CATALOGUE[name].title if name in CATALOGUE else name


UNKNOWABLE: Final[tuple[str, ...]] = (
    "complaint rates (Gmail's limit is 0.3 %): see Google Postmaster Tools",
    "the DMARC policy itself (p=): look up the TXT record `_dmarc` of each domain",
    "the names of the blacklists that list a mailbox (the service shows only their number)",
    "the number of DNS lookups of an SPF record (the limit is 10)",
)
"""Properties that an audit cannot check, because the service's fields do not show them. Human-readable reports list them."""

UNKNOWABLE_OF_CAMPAIGNS: Final[tuple[str, ...]] = (
    "open rates of campaigns: Apple Mail loads the images of e-mails that nobody opens, so opens prove nothing",
)
