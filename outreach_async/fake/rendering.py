"""Render campaigns, steps and mailboxes as JSON items with every field of the interface, in its order (rule W4)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, Literal

import attrs

from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.clock import DAY, ago, date_text
from outreach_async.fake.records import Campaign, Mailbox, Share, Step, Template
from outreach_async.fake.simulation.state import COUNTS, Flow
from outreach_async.fake.world import ListKind, World


@attrs.frozen
class Figures:
    """The format of percentages.

    Attributes:
        numbers: Whole percentages as integers, all as floats, or whole ones in either form.
        digits: Number of decimal places.
    """

    numbers: Literal["int_when_whole", "float", "mixed"]
    digits: int

    def percent(self, n: int, of: int, salt: str) -> float:
        """Return `100 * n / of`, rounded half to even; 0 if `of` is 0.

        Args:
            n: The part.
            of: The whole.
            salt: A name of the number, such as `camp_1.opens`. `mixed` derives the form from it: a number has the same form in
                every response.
        """
        value = _rounded(n, of, self.digits)
        whole = value.is_integer() and self.numbers != "float"
        return int(value) if whole and (self.numbers == "int_when_whole" or zlib.crc32(salt.encode()) & 1) else value


@lru_cache(maxsize=16_384)  # a page of mailboxes has thousands of percentages, and the next page mostly the same ones
def _rounded(n: int, of: int, digits: int) -> float:
    # Integer arithmetic: a float of 100 * n / of is rarely exact, and would put exact halves on the wrong side.
    if of <= 0:
        return 0.0
    scale = 10**digits
    quotient, rest = divmod(100 * scale * n, of)
    if 2 * rest > of or (2 * rest == of and quotient % 2):
        quotient += 1
    share: float = quotient / scale
    return share


COMPLETE: Final = "Complete"
NOT_STARTED: Final = "Not started"
UNKNOWN: Final = "Unknown"

UNBOUNDED_DAYS: Final = 9999
"""`days_left` of a campaign that no mailbox sends for, in days."""

_DAY_MS: Final = DAY * 1000


@attrs.frozen
class Estimate:
    """The estimated end of a campaign.

    Attributes:
        days: Whole days until the end.
        word: The word shown instead of a date, such as `Complete`; empty if there is a date.
    """

    days: int
    word: str = ""

    @property
    def display(self) -> str:
        """The value of `days_left_display`."""
        return self.word or f"{self.days} day{'' if self.days == 1 else 's'}"

    def date(self, now: float) -> str:
        """Return the end as a string: a date, or the word in its place."""
        return self.word or date_text(self.timestamp(now))

    def timestamp(self, now: float) -> int:
        """Return the end in Unix seconds."""
        return int(now) + self.days * DAY


def estimate(contacts: int, lefts: Sequence[int], waits: Sequence[int], capacity: Fraction) -> Estimate:
    """Estimate when a campaign ends.

    Args:
        contacts: Number of contacts in the campaign.
        lefts: Number of contacts each step is still to be sent to.
        waits: The wait of each step, in milliseconds.
        capacity: E-mails per day that its mailboxes can send for it.
    """
    left = sum(lefts)
    if not contacts:
        return Estimate(0, NOT_STARTED)
    if not left:
        return Estimate(0, COMPLETE)
    if capacity <= 0:
        return Estimate(UNBOUNDED_DAYS, UNKNOWN)
    first = next(index for index, count in enumerate(lefts) if count)
    return Estimate(max(1, math.ceil(left / capacity + Fraction(sum(waits[first:]), _DAY_MS))))


@attrs.frozen
class Items:
    """Renders records as items at one point in time.

    Attributes:
        world: The stored records.
        now: The current time in Unix seconds.
        figures: The format of percentages.
        list_date: The format of dates in the campaign list (rule T16).
    """

    world: World = attrs.field(repr=False)
    now: float
    figures: Figures
    list_date: Literal["timestamp", "text", "mixed"]

    @classmethod
    def of(cls, world: World, now: float, behaviour: Behaviour) -> Items:
        """Create a renderer that follows a behaviour."""
        return cls(world, now, Figures(behaviour.numbers, behaviour.percent_digits), behaviour.list_date)

    def listed(self, kind: ListKind, id_: str) -> dict[str, Any]:
        """Return an item of either list."""
        return self.campaign(self.world.campaigns[id_]) if kind == "campaign" else self.mailbox(self.world.mailboxes[id_])

    def campaign(self, campaign: Campaign) -> dict[str, Any]:
        """Return an item of the campaign list."""
        flow = self.world.simulation.flows[campaign.id]
        sent, opens, replies = (flow.total(COUNTS.index(count)) for count in ("sent", "opened_num", "replied_num"))
        end = self._end(campaign)
        return {
            "id": campaign.id,
            "status": campaign.status,
            "name": campaign.name,
            "steps": len(campaign.steps),
            "contacts": self._contacts(campaign),
            "opens": self.figures.percent(opens, sent, f"{campaign.id}.opens"),
            "initials": flow.sent(0) if campaign.steps else 0,
            "interested": self.figures.percent(flow.interested, sent, f"{campaign.id}.interested"),
            "replies": self.figures.percent(replies, sent, f"{campaign.id}.replies"),
            "bounces": self.figures.percent(flow.bounces, sent, f"{campaign.id}.bounces"),
            "last_activity": ago(_later(campaign.last_activity, flow.last), self.now),
            "opens_num": opens,
            "replies_num": replies,
            "bounces_num": flow.bounces,
            "interested_num": flow.interested,
            "days_left": end.days,
            "days_left_date": self._list_date(campaign, end),
            "days_left_display": end.display,
            "created": campaign.created,
        }

    def steps(self, campaign: Campaign) -> dict[str, Any]:
        """Return the response of list-steps, without `status`."""
        end = self._end(campaign)
        flow = self.world.simulation.flows[campaign.id]
        return {
            "days_left": end.days,
            "days_left_date": end.date(self.now),
            "days_left_display": end.display,
            "data": [self._step(step, place, flow) for place, step in enumerate(campaign.steps)],
        }

    def mailbox(self, mailbox: Mailbox) -> dict[str, Any]:
        """Return an item of the mailbox list."""
        ledger = self.world.simulation.seen(mailbox, int(self.now // DAY))
        item = dict(mailbox.values) if ledger is None else {**mailbox.values, **ledger.figures()}
        for name in ("opened_14days", "avg_open_rate", "avg_click_rate"):
            share = item[name]
            if isinstance(share, Share):
                item[name] = self.figures.percent(share.n, share.of, f"{mailbox.id}.{name}")
        if item["campaigns"] is None:
            item["campaigns"] = self.world.usage.campaigns.get(mailbox.id, 0)
        age = ago(mailbox.created, self.now)
        for name in ("age", "created"):
            if item[name] is None:
                item[name] = age
        if not isinstance(item["last_activity"], str):
            item["last_activity"] = ago(_later(mailbox.last_activity, ledger.last if ledger else None), self.now)
        return item

    def _contacts(self, campaign: Campaign) -> int:
        return campaign.contacts + self.world.enrolled[campaign.id]

    def _end(self, campaign: Campaign) -> Estimate:
        waits = [step.wait_time for step in campaign.steps]
        capacity = self.world.usage.capacity(campaign, self.world.mailboxes)
        return estimate(self._contacts(campaign), self.world.simulation.flows[campaign.id].lefts, waits, capacity)

    def _list_date(self, campaign: Campaign, end: Estimate) -> int | str:
        timestamp = self.list_date == "timestamp" or (self.list_date == "mixed" and zlib.crc32(campaign.id.encode()) & 1)
        # Without an estimate, the list shows the same word as list-steps: a timestamp would claim a date that nobody estimated.
        return end.timestamp(self.now) if timestamp and not end.word else end.date(self.now)

    def _step(self, step: Step, place: int, flow: Flow) -> dict[str, Any]:
        # Contacts that left the campaign early no longer go through the step: `out_of` is the sum of left and sent (rule T4).
        left, sent = flow.lefts[place], flow.sent(place)
        return {
            "id": step.id,
            "order": place + 1,
            "status": step.status,
            "type": "auto_email",
            "wait_time": step.wait_time,
            "left_to_send": left,
            "already_sent": sent,
            "out_of": left + sent,
            "templates": [self._template(*pair) for pair in zip(step.templates, flow.counts[place], strict=True)],
        }

    def _template(self, template: Template, counts: Sequence[int]) -> dict[str, Any]:
        sent, opened, clicked, replied, unsubscribed = counts

        def percent(n: int, name: str) -> float:
            return self.figures.percent(n, sent, f"{template.id}.{name}")

        return {
            "id": template.id,
            "test_letter": template.test_letter,
            "name": template.name,
            "status": template.status,
            "new_thread": template.new_thread,
            "subject": template.subject,
            "body_text": template.body_text,
            "sent": sent,
            "opened": percent(opened, "opened"),
            "opened_num": opened,
            "clicked": percent(clicked, "clicked"),
            "clicked_num": clicked,
            "replied": percent(replied, "replied"),
            "replied_num": replied,
            "unsubscribed": percent(unsubscribed, "unsubscribed"),
            "unsubscribed_num": unsubscribed,
        }


def _later(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
