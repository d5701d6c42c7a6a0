"""When a rule applies to a mailbox: pure conditions, which the table of rules puts figures to.

Doubt speaks for the mailbox. Of a span of time a condition takes the end that would not raise an alarm. A figure that counts
nothing is a NaN here: every condition compares so that what a NaN makes false is the alarm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import attrs

from outreach_async.audit.figures import MOST, amount, known, percent, shown, wilson_lower
from outreach_async.audit.findings import Severity
from outreach_async.audit.relative import DAY, Interval, parse
from outreach_async.audit.shared import WORKDAYS, DomainFacts, Sign, Thresholds
from outreach_async.models import Mailbox, Number
from outreach_async.vocabulary import MailboxStatus, MailboxType

_TEXT_SHOWN: Final = 40
"""Characters of a text of the service that a message repeats: it may send any."""

_COUNTED: Final = (
    "campaigns", "daily_limit", "blacklists", "sent_today", "sent_30days", "opened_14days", "sent_90days", "bounced_30days",
    "avg_open_rate", "avg_click_rate", "created_at",
)  # fmt: skip

_ACTIVE: Final = MailboxStatus.ACTIVE.value
_GOOGLE: Final = MailboxType.GOOGLE.value
_TYPES: Final = frozenset(each.value for each in MailboxType)
_STATUSES: Final = frozenset(each.value for each in MailboxStatus)


def domain_of(email: str) -> str | None:
    """Return what follows the `@`, in lower case; `None` if there is nothing."""
    return email.rpartition("@")[2].strip().lower() or None if "@" in email else None


@attrs.define(eq=False)  # made for every mailbox: a frozen one takes twice as long
class Case:
    """A mailbox as a rule sees it.

    Attributes:
        mailbox: The mailbox; each of its figures counts something, or is NaN.
        doubts: What is wrong with the figures that are NaN, in words.
        now: When it was read, Unix seconds; `None` if nobody knows.
        facts: What is known of its domain, if anything is.

    Example:
        ```python
        mailbox = (await client.mailboxes.list()).data[0]
        print(Case.of(mailbox).mailbox == mailbox, Case.of(mailbox).doubts == "")  # -> True True
        ```
    """

    mailbox: Mailbox
    doubts: str = ""
    now: float | None = None
    facts: DomainFacts | None = None

    @classmethod
    def of(cls, mailbox: Mailbox, now: float | None = None, facts: DomainFacts | None = None) -> Case:
        """Make a case of a mailbox as the service showed it.

        Example:
            ```python
            case = Case.of((await client.mailboxes.list()).data[0], now=fake.now)
            print(case.now)  # -> 1767225600.0
            ```
        """
        if _sane(mailbox):
            return cls(mailbox, "", now, facts)
        wrong = {name: figure for name in _COUNTED if known(figure := getattr(mailbox, name)) is None}
        doubts = ", ".join(f"{name} is {_doubt(figure)}" for name, figure in wrong.items())
        trusted: dict[str, Any] = dict.fromkeys(wrong, math.nan)
        return cls(attrs.evolve(mailbox, **trusted), doubts, now, facts)

    @property
    def domain(self) -> DomainFacts:
        """What is known of its domain, or that it sends from this mailbox alone."""
        return self.facts or DomainFacts(daily_limit=amount(self.mailbox.daily_limit))

    def age(self) -> Interval | None:
        """Return how long ago it was created: by `created_at`, or else by the service's words; `None` if neither tells.

        Example:
            ```python
            case = Case.of((await client.mailboxes.list()).data[0], now=fake.now)
            print(case.age().most / 86_400 > 14)  # -> True
            ```
        """
        created, now = self.mailbox.created_at, self.now
        if now is not None and 0 < created <= now:
            return Interval(now - created, now - created)
        return parse(self.mailbox.age) or parse(self.mailbox.created)

    def younger(self, days: float) -> bool:
        """Tell whether it is surely younger than that.

        Example:
            ```python
            case = Case.of((await client.mailboxes.list()).data[0], now=fake.now)
            print(case.younger(14))  # -> False
            ```
        """
        created, now = self.mailbox.created_at, self.now
        if now is not None and 0 < created <= now:  # as most are, and in a hurry
            return now - created < days * DAY
        age = self.age()
        return age is not None and age.most < days * DAY


def _sane(box: Mailbox) -> bool:
    """Tell whether every figure counts something; a NaN is never within bounds."""
    return (
        0 <= box.campaigns <= MOST
        and 0 <= box.daily_limit <= MOST
        and 0 <= box.blacklists <= MOST
        and 0 <= box.sent_today <= MOST
        and 0 <= box.sent_30days <= MOST
        and 0 <= box.opened_14days <= MOST
        and 0 <= box.sent_90days <= MOST
        and 0 <= box.bounced_30days <= MOST
        and 0 <= box.avg_open_rate <= MOST
        and 0 <= box.avg_click_rate <= MOST
        and 0 <= box.created_at <= MOST
    )


Condition = Callable[[Case, Thresholds], Sign | None]


def lack(what: str, domain: DomainFacts, at: Thresholds) -> Sign:
    """Return the sign that a mailbox of that domain lacks a proof of the sender; how bad it is, the domain's volume says."""
    volume = domain.daily_limit
    if not volume >= at["critical"]:
        return Sign(f"no {what}")
    return Sign(f"no {what}, and its domain may send {shown(volume)} e-mails a day", severity=Severity.CRITICAL)


SPF: Final = "SPF record"
DKIM: Final = "DKIM signature"
DMARC: Final = "DMARC policy"


def no_spf(case: Case, at: Thresholds) -> Sign | None:
    """The service finds no SPF."""
    return None if case.mailbox.spf else lack(SPF, case.domain, at)


def no_dkim(case: Case, at: Thresholds) -> Sign | None:
    """The service finds no DKIM."""
    return None if case.mailbox.dkim else lack(DKIM, case.domain, at)


def no_dmarc(case: Case, at: Thresholds) -> Sign | None:
    """The service finds no DMARC."""
    return None if case.mailbox.dmarc else lack(DMARC, case.domain, at)


def unauthenticated(case: Case, _at: Thresholds) -> Sign | None:
    """Nothing proves the sender: no SPF, no DKIM, no DMARC."""
    mailbox = case.mailbox
    return None if mailbox.spf or mailbox.dkim or mailbox.dmarc else Sign("none of SPF, DKIM and DMARC")


def listed(case: Case, at: Thresholds) -> Sign | None:
    """Blacklists name it."""
    lists = case.mailbox.blacklists
    if not lists:
        return None
    grade = _grade(lists, at)
    return Sign(f"on {_counted(lists, 'blacklist')}", {"blacklists": lists}, grade) if grade else None


def bouncing(case: Case, at: Thresholds) -> Sign | None:
    """Too much bounces; proved only by enough e-mails, by the lower bound of the rate rather than the rate."""
    bounced, sent = case.mailbox.bounced_30days, case.mailbox.sent_30days
    if not sent or not bounced / sent >= at["warning"]:
        return None
    figure = wilson_lower(bounced, sent) if sent >= at["sample"] else 0.0
    grade = _grade(figure, at)
    proof = f"95 % sure of {percent(figure)}" if grade else "too few to be sure"
    message = f"{percent(bounced / sent)} bounced in 30 days ({shown(bounced)} of {shown(sent)}; {proof})"
    return Sign(message, {"bounced_30days": bounced, "sent_30days": sent}, grade, sure=grade is not None)


def doubtful(case: Case, _at: Thresholds) -> Sign | None:
    """A figure cannot be: it is below 0, no number or beyond any count, or more bounced than was sent."""
    if case.doubts:
        return Sign(case.doubts)
    bounced, sent = case.mailbox.bounced_30days, case.mailbox.sent_30days
    if bounced <= sent:
        return None
    message = f"{shown(bounced)} e-mails bounced in 30 days, and only {shown(sent)} were sent"
    return Sign(message, {"bounced_30days": bounced, "sent_30days": sent})


def over_limit(case: Case, _at: Thresholds) -> Sign | None:
    """More was sent today than the limit allows."""
    sent, limit = case.mailbox.sent_today, case.mailbox.daily_limit
    if not sent > limit:
        return None
    message = f"{shown(sent)} e-mails sent today, over the daily limit of {shown(limit)}"
    return Sign(message, {"sent_today": sent, "daily_limit": limit})


def over_provider(case: Case, at: Thresholds) -> Sign | None:
    """A Google mailbox may send more a day than Google allows, or than cold e-mail bears."""
    limit = case.mailbox.daily_limit
    if not (limit > at["young"] or limit > at["warning"]) or case.mailbox.type != _GOOGLE:
        return None
    figures = {"daily_limit": limit}
    for severity, cap in ((Severity.CRITICAL, "Google's daily cap"), (Severity.ERROR, "the daily cap of a Google trial")):
        if limit > at[severity]:
            return Sign(f"its daily limit of {shown(limit)} is above {cap}, {shown(at[severity])}", figures, severity)
    if limit > at["warning"]:
        return Sign(f"its daily limit of {shown(limit)} is above {shown(at['warning'])}", figures)
    if limit > at["young"] and case.younger(at["days"]):
        return Sign(f"its daily limit is {shown(limit)} at an age of {_age(case)}", figures)
    return None


def cold(case: Case, at: Thresholds) -> Sign | None:
    """A new mailbox may send more a day than one that is still being warmed up should."""
    limit = case.mailbox.daily_limit
    if not limit > at["first"] or not case.younger(at["second_days"]):
        return None
    if limit > at["second"] or case.younger(at["first_days"]):
        return Sign(f"its daily limit is {shown(limit)} at an age of {_age(case)}", {"daily_limit": limit})
    return None


def unused(case: Case, at: Thresholds) -> Sign | None:
    """It sends next to nothing of what it may; one that is surely new is given time."""
    sent, limit = case.mailbox.sent_30days, case.mailbox.daily_limit
    if not sent < at["share"] * limit * WORKDAYS or case.younger(at["days"]):
        return None
    message = f"{shown(sent)} e-mails sent in 30 days of the {shown(limit * WORKDAYS)} that its daily limit allows"
    return Sign(message, {"sent_30days": sent, "daily_limit": limit})


def idle(case: Case, at: Thresholds) -> Sign | None:
    """Campaigns count on a mailbox that has done nothing for long."""
    campaigns = case.mailbox.campaigns
    if not campaigns > 0:
        return None
    ago = parse(case.mailbox.last_activity)
    if ago is None or ago.least <= at["days"] * DAY:
        return None
    message = f"no activity for {_days(ago.least)} or more while {_counted(campaigns, 'campaign')} may use it"
    return Sign(message, {"campaigns": campaigns})


def inactive(case: Case, _at: Thresholds) -> Sign | None:
    """Campaigns count on a mailbox that is not active."""
    campaigns = case.mailbox.campaigns
    if case.mailbox.status == _ACTIVE or not campaigns > 0:
        return None
    message = f"its status is {_quoted(case.mailbox.status)} while {_counted(campaigns, 'campaign')} may use it"
    return Sign(message, {"campaigns": campaigns})


def fading(case: Case, at: Thresholds) -> Sign | None:
    """Far fewer open of late than usually: its e-mails may be going to spam."""
    opened, usual = case.mailbox.opened_14days, case.mailbox.avg_open_rate
    if not opened < at["share"] * usual or not case.mailbox.sent_30days >= at["sample"]:
        return None
    ago = parse(case.mailbox.last_activity)
    if ago is not None and ago.least >= at["days"] * DAY:  # nothing was sent that could have been opened
        return None
    message = f"{opened:.1f} % opened in 14 days, where {usual:.1f} % are usual for it"
    return Sign(message, {"opened_14days": opened, "avg_open_rate": usual})


def prefetched(case: Case, at: Thresholds) -> Sign | None:
    """So many open or click that it is machines: they fetch pictures ahead and follow links."""
    opens, clicks = case.mailbox.avg_open_rate, case.mailbox.avg_click_rate
    if opens > at["opens"]:
        return Sign(f"an open rate of {opens:.1f} % is the work of machines", {"avg_open_rate": opens})
    if clicks >= opens and clicks > 0:
        message = f"a click rate of {clicks:.1f} % beside an open rate of {opens:.1f} % is the work of machines"
        return Sign(message, {"avg_open_rate": opens, "avg_click_rate": clicks})
    return None


def homeless(case: Case, _at: Thresholds) -> Sign | None:
    """Its domain leads nowhere."""
    return _HOMELESS if case.mailbox.domain_ip is None else None


_HOMELESS: Final = Sign("its domain has no address")  # of a quarter of all mailboxes, perhaps


def strange(case: Case, _at: Thresholds) -> Sign | None:
    """Its type or its status has a value that nobody has seen before."""
    box = case.mailbox
    if box.type in _TYPES and box.status in _STATUSES:
        return None
    seen = [("type", box.type, _TYPES), ("status", box.status, _STATUSES)]
    return Sign(" and ".join(f"its {name} is {_quoted(value)}" for name, value, values in seen if value not in values))


def _grade(figure: Number, at: Thresholds) -> Severity | None:
    """Return the worst severity whose threshold the figure reaches."""
    return next((severity for severity in Severity if severity in at and figure >= at[severity]), None)


def _counted(count: Number, noun: str) -> str:
    return f"{shown(count)} {noun}{'' if count == 1 else 's'}"


def _age(case: Case) -> str:
    age = case.age()
    return _days(age.most if age else 0)


def _days(seconds: float) -> str:
    days = int(seconds // DAY)
    return "less than a day" if days < 1 else _counted(days, "day")


def _quoted(text: str) -> str:
    return repr(str(text) if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]}...")


def _doubt(figure: Number) -> str:
    if figure < 0:
        return "below 0"
    return "beyond any count" if figure > MOST else "not a number"
