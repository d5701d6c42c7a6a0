"""The state of a fake: tables of records, request limits (rule E4), and the simulation. Callers must hold the lock of the fake.

The simulation has events, counts per mailbox and day, and queues of campaigns. Copies are cheap (copy on write).

Reactions to e-mails are chosen with pseudorandom numbers. Each number is a hash of the seed and of names, such as the contact and
`open delay`. Therefore it does not depend on the order of calls, the size of time steps, or other contacts.

A mailbox is seeded with its statistics on one day. As time passes, they leave each window evenly, day by day.

An open or a bounce counts for the day on which the e-mail was sent. Otherwise, a rate could exceed 100 %.
"""

from __future__ import annotations

import bisect
import enum
import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from email.utils import formatdate
from fractions import Fraction
from typing import Annotated, Any, Final, Literal, NamedTuple

import attrs
import msgspec

from outreach_async.fake import _clock as clock
from outreach_async.fake._arguments import draw, generate_id
from outreach_async.fake._error_responses import refusal_error
from outreach_async.fake._stored_records import (
    FORTNIGHT,
    WINDOWS,
    Campaign,
    Contact,
    Mailbox,
    Rates,
    Share,
    Workspace,
)
from outreach_async.fake.behaviour import RateLimit

# World files contain flows and statistics as they are: msgspec checks these bounds when it reads a file.
Count = Annotated[int, msgspec.Meta(ge=0)]


class EventKind(enum.IntEnum):
    """The kind of an event. Events at the same time are processed in the order of their kinds, so opens come before clicks."""

    DUE = 0
    """An e-mail is due."""
    OPEN = 1
    CLICK = 2
    REPLY = 3
    INTERESTED = 4
    UNSUBSCRIBE = 5
    BOUNCE = 6


# The value of `Activity.kind` for each `EventKind`.
KIND_NAMES: Final = ("sent", "opened", "clicked", "replied", "interested", "unsubscribed", "bounced")

# Times of events are integers in microseconds, so that sums have no rounding errors.
SECOND_US: Final = 1_000_000

MINUTE_US: Final = 60 * SECOND_US
DAY_US: Final = clock.DAY * SECOND_US


class FutureEvent(NamedTuple):
    at: int
    kind: int
    campaign: str
    contact: str
    step: int
    token: str
    end_step: int
    mailbox: str = ""
    template: int = 0
    day: int = 0


# Takes a name such as `open delay`, and returns a random number in [0, 1): always the same for the same name.
Draw = Callable[[str], float]

# The reactions to an e-mail: kinds of events, and microseconds from sending to each event.
ResponsePlan = tuple[tuple[int, int], ...]


def draw_responses(rates: Rates, draw_number: Draw) -> ResponsePlan:
    # A bounced e-mail is never opened, and an unopened e-mail gets no other reaction.
    if draw_number("bounce") < rates.bounce:
        return ((EventKind.BOUNCE, _interpolate(MINUTE_US, 30 * MINUTE_US, draw_number("bounce delay"))),)
    if draw_number("open") >= rates.effective_open:
        return ()
    # The cube makes early opens more probable: half of all opens happen within nine hours.
    opened = _interpolate(MINUTE_US, 3 * DAY_US, draw_number("open delay") ** 3)
    plan = [(EventKind.OPEN, opened)]
    if draw_number("click") * rates.effective_open < rates.click:
        plan.append((EventKind.CLICK, opened + _interpolate(SECOND_US, 10 * MINUTE_US, draw_number("click delay"))))
    # A reply and an unsubscribe each end the contact's path through the campaign, so at most one of them is drawn.
    if draw_number("reply") * rates.effective_open < rates.reply:
        kind = EventKind.INTERESTED if draw_number("interested") < rates.interested else EventKind.REPLY
        plan.append((kind, opened + _interpolate(MINUTE_US, 2 * DAY_US, draw_number("reply delay") ** 2)))
    elif draw_number("unsubscribe") * (rates.effective_open - rates.reply) < rates.unsubscribe:
        plan.append((EventKind.UNSUBSCRIBE, opened + _interpolate(SECOND_US, 10 * MINUTE_US, draw_number("unsubscribe delay"))))
    return tuple(plan)


def _interpolate(least: int, most: int, share: float) -> int:
    return least + int((most - least) * share)


@attrs.define
class MailboxStats:
    """A mailbox's e-mails, opens and bounces by the day on which the e-mail was sent, without the seeded statistics."""

    sent: Counter[int] = attrs.Factory(Counter)
    opened: Counter[int] = attrs.Factory(Counter)
    bounced: Counter[int] = attrs.Factory(Counter)
    clicks: Count = 0
    last_activity: float | None = None

    def copy(self) -> MailboxStats:
        return attrs.evolve(self, sent=self.sent.copy(), opened=self.opened.copy(), bounced=self.bounced.copy())

    def sent_on(self, box: Mailbox, day: int) -> int:
        return self.sent[day] + (box.seeded.get("sent_today", 0) if day == box.seeded_day else 0)

    def item_values(self, box: Mailbox, day: int) -> Mapping[str, Any]:
        """Return the statistics on a day by their names in the mailbox list, without those that keep their seeded values."""
        days, seeded = max(0, day - box.seeded_day), box.seeded
        if not days and not self.sent:
            return {}
        figures: dict[str, Any] = {
            name: _remaining(seeded[name], window, box.seeded_age, days, up=counter == "sent")
            + _sum_window(getattr(self, counter), day, window)
            for name, (counter, window) in WINDOWS.items()
            if name in seeded
        }
        sent = self.sent.total()
        for name, passed, part, whole in (
            ("opened_14days", days, _sum_window(self.opened, day, FORTNIGHT), _sum_window(self.sent, day, FORTNIGHT)),
            ("avg_open_rate", 0, self.opened.total(), sent),
            ("avg_click_rate", 0, self.clicks, sent),
        ):
            if old := seeded.get(name):
                old_part, old_whole = (
                    _remaining(count, FORTNIGHT, box.seeded_age, passed, up=up)
                    for count, up in ((old.part, False), (old.whole, True))
                )
                figures[name] = Share(old_part + part, old_whole + whole)
        return figures


NO_STATS: Final = MailboxStats()


def _remaining(total: int, window: int, age: int, passed: int, *, up: bool) -> int:
    """Return what a window of some days still has of a total that was spread evenly over it, or over the days of the mailbox."""
    # Sent e-mails are rounded up, and their opens and bounces down, so that no rate rises.
    days = min(window, age)
    left = total * min(days, max(0, window - passed))
    return -(-left // days) if up else left // days


def _sum_window(counts: Counter[int], last: int, days: int) -> int:
    return sum(count for day, count in counts.items() if last - days < day <= last)


# The order of a template's counts in `CampaignFlow.counts`.
COUNT_NAMES: Final = ("sent", "opened_num", "clicked_num", "replied_num", "unsubscribed_num")

# The place in `COUNT_NAMES` of the count that an event of each `EventKind` increments. A bounce increments none (rule T10).
COUNT_INDEXES: Final = (0, 1, 2, 3, 3, 4)

ENDING_KINDS: Final = frozenset({EventKind.REPLY, EventKind.INTERESTED, EventKind.UNSUBSCRIBE, EventKind.BOUNCE})

ENDED: Final = -1  # the progress of a contact whose path has ended


@attrs.define
class CampaignFlow:
    """A campaign's queue and current counts. The counts start at the seeded values, which the campaign's record keeps."""

    seeded_at: Count
    counts: list[list[Annotated[list[Count], msgspec.Meta(min_length=len(COUNT_NAMES), max_length=len(COUNT_NAMES))]]]
    left_to_send: list[Count]
    bounces: Count
    interested: Count
    last_activity: float | None = None
    started: bool = False
    queue: deque[FutureEvent] = attrs.Factory(deque)
    progress: dict[str, Annotated[int, msgspec.Meta(ge=ENDED)]] = attrs.Factory(dict)

    def copy(self) -> CampaignFlow:
        return attrs.evolve(
            self,
            counts=[[list(part) for part in step] for step in self.counts],
            left_to_send=list(self.left_to_send),
            queue=self.queue.copy(),
            progress=dict(self.progress),
        )

    def sent(self, step: int) -> int:
        return sum(part[0] for part in self.counts[step])

    def total(self, place: int) -> int:
        """Return the sum of a count over all templates (rule T10). `place` is the index of the count in `COUNT_NAMES`."""
        return sum(part[place] for step in self.counts for part in step)

    # Joining and leaving.

    def join(self) -> None:
        """Count one more contact in `left_to_send` of every step (rule T5)."""
        for step in range(len(self.left_to_send)):
            self.left_to_send[step] += 1

    def seeded_events(self, campaign: Campaign, seed: int) -> Iterator[FutureEvent]:
        """Yield the first event of every contact that is only counted in the initial data of its campaign."""
        waits = [step.wait_time * 1000 for step in campaign.steps]
        # The first and the last step of each contact: a step with fewer contacts than the one before ends the paths of some.
        paths: list[tuple[int, int]] = []
        running: list[int] = []
        for step, left in enumerate(each.left_to_send for each in campaign.steps):
            while len(running) > left:
                paths.append((running.pop(), step))
            running += [step] * (left - len(running))
        for number, (start, stop) in enumerate([*paths, *((start, len(waits)) for start in running)]):
            contact = f"#{number:09}"
            # A seeded contact past the first step has already waited for part of its wait time. That part is random.
            passed = draw(seed, campaign.id, contact, start, "wait") if start else 0.0
            at = self.seeded_at + waits[start] - int(waits[start] * passed)
            yield FutureEvent(at, EventKind.DUE, campaign.id, contact, start, contact, stop)


# The `FutureEvent.token` of the contact, a campaign id (empty for any campaign), and the step's index.
ScriptKey = tuple[str, str, int]


@attrs.define
class Simulation:
    heap: list[FutureEvent] = attrs.field(factory=list, repr=False)
    flows: dict[str, CampaignFlow] = attrs.Factory(dict)
    stats: dict[str, MailboxStats] = attrs.Factory(dict)
    scripts: dict[ScriptKey, ResponsePlan] = attrs.Factory(dict)
    wake: int | None = None
    # Mailboxes of a campaign on one day, as a heap by remaining capacity, which may be outdated.
    pools: dict[str, tuple[int, list[tuple[int, int, str]]]] = attrs.field(factory=dict, init=False, eq=False, repr=False)
    # Campaigns and mailboxes whose flows and statistics no copy shares: they may be changed in place.
    _owned_ids: set[str] = attrs.field(factory=set, init=False, eq=False, repr=False)

    def copy(self) -> Simulation:
        """Return a copy. Flows and statistics are shared until the copy or the original changes them."""
        # All flows and statistics are shared from now on. Code that changes one of them must copy it first.
        self._owned_ids.clear()
        return Simulation(list(self.heap), dict(self.flows), dict(self.stats), dict(self.scripts), self.wake)

    # Copy on write.

    def mutable_flow(self, campaign: str) -> CampaignFlow:
        # If a copy of the simulation may share the flow, the flow is copied first.
        flow = self.flows[campaign]
        if campaign not in self._owned_ids:
            flow = self.flows[campaign] = flow.copy()
            self._owned_ids.add(campaign)
        return flow

    def mutable_stats(self, mailbox: str) -> MailboxStats:
        # If a copy of the simulation may share the statistics, the statistics are copied first.
        if mailbox not in self._owned_ids:
            self.stats[mailbox] = self.stats.get(mailbox, NO_STATS).copy()
            self._owned_ids.add(mailbox)
        return self.stats[mailbox]

    # Changes from outside the simulation.

    def start(self, campaigns: Mapping[str, Campaign], contacts: Iterable[Mapping[str, Contact]], seed: int) -> None:
        """Schedule the first events of campaigns that have none yet. Until then, seeding campaigns and contacts stays cheap."""
        new = {id_ for id_, flow in self.flows.items() if not flow.started}
        for id_ in new:
            flow = self.mutable_flow(id_)
            flow.started = True
            for event in flow.seeded_events(campaigns[id_], seed):
                heapq.heappush(self.heap, event)
        for table in contacts if new else ():
            for token, contact in table.items():
                for place in contact.enrolments:
                    if place.campaign in new:
                        self.schedule_first(campaigns[place.campaign], contact.id, token, to_microseconds(place.at))

    def schedule_first(self, campaign: Campaign, contact: str, token: str, at: int) -> None:
        """Schedule the first e-mail to a contact that has joined a campaign at a time."""
        if campaign.steps:
            flow = self.flows[campaign.id]
            # No e-mail can be due before the campaign was seeded.
            at = max(at + campaign.steps[0].wait_time * 1000, flow.seeded_at)
            heapq.heappush(self.heap, FutureEvent(at, EventKind.DUE, campaign.id, contact, 0, token, len(campaign.steps)))

    def apply_change(self, now: int) -> None:
        """Send queued e-mails now, because a campaign has changed, or the limit of a mailbox."""
        self.pools.clear()
        self.schedule_wake(now)

    def schedule_wake(self, at: int) -> None:
        """Schedule a time to send queued e-mails. An earlier time that is already scheduled is kept."""
        self.wake = at if self.wake is None else min(self.wake, at)


def to_microseconds(moment: float) -> int:
    return round(moment * SECOND_US)


# The tables.


class Limiter:
    def __init__(self) -> None:
        self._window = -1
        self._counts: dict[str, int] = {}

    def admit(self, scope: str, limit: RateLimit, now: float) -> None:
        window = math.floor(now / limit.per)
        if window != self._window:
            self._window = window
            self._counts.clear()  # every scope has the same windows, so old counts are no longer needed
        if self._counts.get(scope, 0) >= limit.limit:
            end = (window + 1) * limit.per
            wait = formatdate(math.ceil(end), usegmt=True) if limit.retry_after == "date" else str(max(1, math.ceil(end - now)))
            message = "too many requests; retry after the time in the header retry-after"
            raise refusal_error(429, "rate_limited", message, headers={"retry-after": wait})
        self._counts[scope] = self._counts.get(scope, 0) + 1


ListKind = Literal["campaign", "mailbox"]

# The sort key of lists: the creation time in Unix seconds, then the id (rule P10).
CreationKey = tuple[float, str]


@attrs.define
class World:
    workspaces: dict[str, Workspace] = attrs.Factory(dict)
    owner_keys: dict[str, frozenset[str]] = attrs.field(factory=dict, repr=False)
    mailboxes: dict[str, Mailbox] = attrs.Factory(dict)
    campaigns: dict[str, Campaign] = attrs.Factory(dict)
    contacts: dict[str, dict[str, Contact]] = attrs.Factory(dict)
    enrolled_counts: dict[str, int] = attrs.Factory(dict)
    creation_order: dict[tuple[str, ListKind], list[CreationKey]] = attrs.Factory(dict)
    ids: set[str] = attrs.field(factory=set, repr=False)
    counters: dict[str, int] = attrs.Factory(dict)
    simulation: Simulation = attrs.field(factory=Simulation, repr=False)
    _usage: tuple[Counter[str], Counter[str]] | None = attrs.field(default=None, init=False, eq=False, repr=False)

    def copy(self) -> World:
        """Return a copy of the tables; the immutable records are shared."""
        tables: dict[str, Any] = {field.name: copy(getattr(self, field.name)) for field in attrs.fields(World) if field.init}
        for name in ("contacts", "creation_order"):  # tables of tables
            tables[name] = {key: copy(table) for key, table in tables[name].items()}
        return World(**tables | {"simulation": self.simulation.copy()})

    def new_id(self, seed: int, prefix: str) -> str:
        while True:
            number = self.counters.get(prefix, 0)
            self.counters[prefix] = number + 1
            id_ = generate_id(seed, prefix, number)
            if id_ not in self.ids:
                self.ids.add(id_)
                return id_

    def add_campaign(self, campaign: Campaign, now: float) -> None:
        self.campaigns[campaign.id] = campaign
        self.enrolled_counts[campaign.id] = 0
        counts = [[[getattr(template, name) for name in COUNT_NAMES] for template in step.templates] for step in campaign.steps]
        lefts, at = [step.left_to_send for step in campaign.steps], to_microseconds(now)
        flow = CampaignFlow(at, counts, lefts, campaign.bounces_num, campaign.interested_num)
        self.simulation.flows[campaign.id] = flow
        bisect.insort(self.creation_order[campaign.workspace, "campaign"], (campaign.created, campaign.id))
        self._usage = None

    def set_campaign(self, campaign: Campaign, now: float) -> None:
        self.campaigns[campaign.id] = campaign
        self.simulation.apply_change(to_microseconds(now))
        self._usage = None

    def last_activity(self, kind: ListKind, id_: str) -> float | None:
        """Return the time of the last activity of a campaign or mailbox, in Unix seconds; `None` if there was no activity."""
        moving = (self.simulation.flows if kind == "campaign" else self.simulation.stats).get(id_)
        seeded = (self.campaigns if kind == "campaign" else self.mailboxes)[id_].last_activity
        return max((at for at in (seeded, moving.last_activity if moving else None) if at is not None), default=None)

    def store_contact(self, workspace: str, key: str, contact: Contact) -> None:
        """Store or replace a contact, and add it to its new campaigns, as one change (rule C23)."""
        contacts = self.contacts[workspace]
        before = contacts.get(key)
        contacts[key] = contact
        # A contact never leaves a campaign, so the enrolments after the old ones are new.
        for place in contact.enrolments[len(before.enrolments) if before else 0 :]:
            self.enrolled_counts[place.campaign] += 1
            flow = self.simulation.mutable_flow(place.campaign)
            flow.join()
            if flow.started:
                self.simulation.schedule_first(self.campaigns[place.campaign], contact.id, key, to_microseconds(place.at))

    @property
    def usage(self) -> tuple[Counter[str], Counter[str]]:
        """The number of campaigns and of live campaigns per mailbox (rules B4 and B5), cached until a campaign changes."""
        if self._usage is None:
            campaigns = self.campaigns.values()
            self._usage = (
                Counter(id_ for campaign in campaigns for id_ in campaign.mailboxes),
                Counter(id_ for campaign in campaigns if campaign.status == "live" for id_ in campaign.mailboxes),
            )
        return self._usage

    def capacity(self, campaign: Campaign) -> Fraction:
        # The live campaigns of a mailbox share its daily limit equally. The given campaign is treated as live, whatever its
        # status (rule T17).
        own, live = (0 if campaign.status == "live" else 1), self.usage[1]
        return sum((Fraction(self.mailboxes[id_].capacity, live[id_] + own) for id_ in campaign.mailboxes), Fraction(0))
