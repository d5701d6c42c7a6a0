"""Render campaigns, steps and mailboxes as JSON items with every field, in the order of the interface (rule W4)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

import attrs

from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.clock import DAY, format_age, format_date
from outreach_async.fake.records import Campaign, Mailbox, Share, Step, Template
from outreach_async.fake.simulation.state import COUNT_NAMES, CampaignFlow
from outreach_async.fake.world import World


def format_percent(n: int, of: int, salt: str, behaviour: Behaviour) -> float:
    """Return `100 * n / of`, rounded half to even; 0 if `of` is 0.

    Args:
        n: The part.
        of: The whole.
        salt: Name of the number, such as `camp_1.opens`. If `behaviour.numbers` is `mixed`, the name decides whether a whole
            percentage is an integer or a float, so that the number has the same type in every response.
        behaviour: The behaviour, which decides the number of decimal places and the type of whole percentages.
    """
    value = _round_percent(n, of, behaviour.percent_digits)
    whole = value.is_integer() and behaviour.numbers != "float"
    return int(value) if whole and (behaviour.numbers == "int_when_whole" or zlib.crc32(salt.encode()) & 1) else value


@lru_cache(maxsize=16_384)  # a page of mailboxes shows thousands of percentages; the next page repeats most
def _round_percent(n: int, of: int, digits: int) -> float:
    # Integer arithmetic: the float 100 * n / of is rarely exact, and would round some halves to the wrong side.
    if of <= 0:
        return 0.0
    scale = 10**digits
    quotient, rest = divmod(100 * scale * n, of)
    if 2 * rest > of or (2 * rest == of and quotient % 2):
        quotient += 1
    return float(quotient / scale)


UNBOUNDED_DAYS: Final = 9999
"""`days_left` of a campaign that no mailbox can send for."""

_DAY_MS: Final = DAY * 1000
_TEMPLATE_FIELDS: Final = ("id", "test_letter", "name", "status", "new_thread", "subject", "body_text")


@attrs.frozen
class CompletionEstimate:
    """The estimated end of a campaign.

    Attributes:
        days: Whole days until the end.
        placeholder: The word shown instead of a date, such as `Complete`; empty if there is a date.
    """

    days: int
    placeholder: str = ""

    @property
    def display(self) -> str:
        """The value of `days_left_display` in responses, such as `5 days`."""
        return self.placeholder or f"{self.days} day{'' if self.days == 1 else 's'}"

    def date(self, now: float) -> str:
        """Return the end as a string: the date, or `placeholder` if there is no date."""
        return self.placeholder or format_date(self.timestamp(now))

    def timestamp(self, now: float) -> int:
        """Return the end in Unix seconds."""
        return int(now) + self.days * DAY


def estimate_completion(contacts: int, lefts: Sequence[int], waits: Sequence[int], capacity: Fraction) -> CompletionEstimate:
    """Estimate when a campaign ends.

    Args:
        contacts: Number of contacts in the campaign.
        lefts: Number of contacts left to send to, for each step.
        waits: The wait before each step, in milliseconds.
        capacity: Number of e-mails per day that the campaign can send.
    """
    left = sum(lefts)
    if not contacts:
        return CompletionEstimate(0, "Not started")
    if not left:
        return CompletionEstimate(0, "Complete")
    if capacity <= 0:
        return CompletionEstimate(UNBOUNDED_DAYS, "Unknown")
    first = next(index for index, count in enumerate(lefts) if count)
    return CompletionEstimate(max(1, math.ceil(left / capacity + Fraction(sum(waits[first:]), _DAY_MS))))


@attrs.frozen
class ItemRenderer:
    """Renders records as JSON items for one point in time.

    Attributes:
        world: The stored records.
        now: The current time in Unix seconds.
        behaviour: The behaviour, which decides the format of percentages and dates (rules T8 and T16).
    """

    world: World = attrs.field(repr=False)
    now: float
    behaviour: Behaviour

    def percent(self, n: int, of: int, salt: str) -> float:
        """Return a percentage in the behaviour's format."""
        return format_percent(n, of, salt, self.behaviour)

    def render_campaign(self, campaign: Campaign) -> dict[str, Any]:
        """Return an item of the campaign list."""
        flow = self.world.simulation.flows[campaign.id]
        sent, opens, replies = (flow.total(COUNT_NAMES.index(count)) for count in ("sent", "opened_num", "replied_num"))
        end = self._estimate_end(campaign)
        return {
            "id": campaign.id,
            "status": campaign.status,
            "name": campaign.name,
            "steps": len(campaign.steps),
            "contacts": campaign.contacts + self.world.enrolled_counts[campaign.id],
            "opens": self.percent(opens, sent, f"{campaign.id}.opens"),
            "initials": flow.sent(0) if campaign.steps else 0,
            "interested": self.percent(flow.interested, sent, f"{campaign.id}.interested"),
            "replies": self.percent(replies, sent, f"{campaign.id}.replies"),
            "bounces": self.percent(flow.bounces, sent, f"{campaign.id}.bounces"),
            "last_activity": format_age(_latest(campaign.last_activity, flow.last_activity), self.now),
            "opens_num": opens,
            "replies_num": replies,
            "bounces_num": flow.bounces,
            "interested_num": flow.interested,
            "days_left": end.days,
            "days_left_date": self._render_list_date(campaign, end),
            "days_left_display": end.display,
            "created": campaign.created,
        }

    def render_steps(self, campaign: Campaign) -> dict[str, Any]:
        """Return the response of list-steps, without `status`."""
        end, flow = self._estimate_end(campaign), self.world.simulation.flows[campaign.id]
        return {
            "days_left": end.days,
            "days_left_date": end.date(self.now),
            "days_left_display": end.display,
            "data": [self._render_step(step, place, flow) for place, step in enumerate(campaign.steps)],
        }

    def render_mailbox(self, mailbox: Mailbox) -> dict[str, Any]:
        """Return an item of the mailbox list."""
        ledger = self.world.simulation.current_stats(mailbox, int(self.now // DAY))
        item = dict(mailbox.values) if ledger is None else {**mailbox.values, **ledger.item_values()}
        for name in ("opened_14days", "avg_open_rate", "avg_click_rate"):
            share = item[name]
            if isinstance(share, Share):
                item[name] = self.percent(share.part, share.whole, f"{mailbox.id}.{name}")
        if item["campaigns"] is None:
            item["campaigns"] = self.world.usage.campaigns.get(mailbox.id, 0)
        for name in ("age", "created"):
            if item[name] is None:
                item[name] = format_age(mailbox.created, self.now)
        if not isinstance(item["last_activity"], str):
            item["last_activity"] = format_age(_latest(mailbox.last_activity, ledger.last_activity if ledger else None), self.now)
        return item

    def _estimate_end(self, campaign: Campaign) -> CompletionEstimate:
        world, waits = self.world, [step.wait_time for step in campaign.steps]
        contacts, lefts = campaign.contacts + world.enrolled_counts[campaign.id], world.simulation.flows[campaign.id].left_to_send
        return estimate_completion(contacts, lefts, waits, world.usage.capacity(campaign, world.mailboxes))

    def _render_list_date(self, campaign: Campaign, end: CompletionEstimate) -> int | str:
        list_date = self.behaviour.list_date
        timestamp = list_date == "timestamp" or (list_date == "mixed" and zlib.crc32(campaign.id.encode()) & 1)
        # Without an estimate, the list has the same word as list-steps, because a timestamp would look like an estimate.
        return end.timestamp(self.now) if timestamp and not end.placeholder else end.date(self.now)

    def _render_step(self, step: Step, place: int, flow: CampaignFlow) -> dict[str, Any]:
        # `out_of` does not include contacts that left the campaign before this step (rule T4).
        left, sent = flow.left_to_send[place], flow.sent(place)
        return {
            "id": step.id,
            "order": place + 1,
            "status": step.status,
            "type": "auto_email",
            "wait_time": step.wait_time,
            "left_to_send": left,
            "already_sent": sent,
            "out_of": left + sent,
            "templates": [self._render_template(*pair) for pair in zip(step.templates, flow.counts[place], strict=True)],
        }

    def _render_template(self, template: Template, counts: Sequence[int]) -> dict[str, Any]:
        item = {name: getattr(template, name) for name in _TEMPLATE_FIELDS}
        item["sent"] = sent = counts[0]
        for name, n in zip(COUNT_NAMES[1:], counts[1:], strict=True):
            share = name.removesuffix("_num")
            item |= {share: self.percent(n, sent, f"{template.id}.{share}"), name: n}
        return item


def _latest(one: float | None, other: float | None) -> float | None:
    return max((moment for moment in (one, other) if moment is not None), default=None)
