"""When a rule applies to a mailbox: pure conditions, which the table of rules puts figures to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from outreach_async.audit.figures import amount, known, percent, shown, wilson_lower
from outreach_async.models import Mailbox, Number
from outreach_async.vocabulary import MailboxStatus

_STATUS_SHOWN: Final = 40
"""Characters of a status that a message repeats: the service may send any text."""


@attrs.frozen(kw_only=True)
class DomainFacts:
    """What a rule may know of the domain that a mailbox shares with others.

    Attributes:
        daily_limit: E-mails a day that all its mailboxes together may send.
    """

    daily_limit: Number


def domain_of(email: str) -> str | None:
    """Return what follows the `@`, in lower case; `None` if there is nothing."""
    return email.rpartition("@")[2].strip().lower() or None if "@" in email else None


@attrs.frozen
class Case:
    """A mailbox as a rule sees it."""

    mailbox: Mailbox
    domain: DomainFacts


@attrs.frozen
class Sign:
    """What a condition saw.

    Attributes:
        message: In words, with its figures.
        figure: What the rule's thresholds are compared with.
        sure: Whether the figures are enough to be sure.
    """

    message: str
    figure: Number = 0
    sure: bool = True


Thresholds = Mapping[str, float]
Condition = Callable[[Case, Thresholds], Sign | None]


def lacks(what: str, published: Callable[[Mailbox], bool]) -> Condition:
    """Return the condition that the service does not find this way of proving the sender."""

    def condition(case: Case, at: Thresholds) -> Sign | None:
        if published(case.mailbox):
            return None
        volume = case.domain.daily_limit
        bulk = f", and its domain may send {shown(volume)} e-mails a day" if volume >= at["critical"] else ""
        return Sign(f"no {what}{bulk}", volume)

    return condition


def unauthenticated(case: Case, _at: Thresholds) -> Sign | None:
    """Nothing proves the sender: no SPF, no DKIM, no DMARC."""
    mailbox = case.mailbox
    return None if mailbox.spf or mailbox.dkim or mailbox.dmarc else Sign("none of SPF, DKIM and DMARC")


def listed(case: Case, at: Thresholds) -> Sign | None:
    """Blacklists name it."""
    lists = amount(case.mailbox.blacklists)
    return Sign(f"on {shown(lists)} blacklist{'' if lists == 1 else 's'}", lists) if lists >= at["error"] else None


def bouncing(case: Case, at: Thresholds) -> Sign | None:
    """Too much bounces; proved only by enough e-mails, by the lower bound of the rate rather than the rate."""
    bounced, sent = amount(case.mailbox.bounced_30days), amount(case.mailbox.sent_30days)
    if not sent or bounced / sent < at["warning"]:
        return None
    figure = wilson_lower(bounced, sent) if sent >= at["sample"] else 0.0
    sure = figure >= at["warning"]
    proof = f"95 % sure of {percent(figure)}" if sure else "too few to be sure"
    return Sign(f"{percent(bounced / sent)} bounced in 30 days ({shown(bounced)} of {shown(sent)}; {proof})", figure, sure)


def over_limit(case: Case, _at: Thresholds) -> Sign | None:
    """More was sent today than the limit allows."""
    sent, limit = known(case.mailbox.sent_today), known(case.mailbox.daily_limit)
    if sent is None or limit is None or sent <= limit:
        return None
    return Sign(f"{shown(sent)} e-mails sent today, over the daily limit of {shown(limit)}")


def inactive(case: Case, _at: Thresholds) -> Sign | None:
    """Campaigns count on a mailbox that is not active."""
    status, campaigns = str(case.mailbox.status), amount(case.mailbox.campaigns)
    if status == MailboxStatus.ACTIVE.value or not campaigns:
        return None
    text = status if len(status) <= _STATUS_SHOWN else f"{status[:_STATUS_SHOWN]}..."
    return Sign(f"its status is {text!r} while {shown(campaigns)} campaign{'' if campaigns == 1 else 's'} may use it")
