"""The state of a fake, and the simulation: events in chronological order. `fake.sim` scripts the reactions of contacts.

Callers must hold the lock of the fake. Copies of the state are cheap (copy on write).

An e-mail is sent when it is due and its campaign is live, by the mailbox that sent the contact's first e-mail or, if it has no
capacity left that day, by the campaign's mailbox with the most capacity. If none has any, the e-mail waits until midnight (UTC).
Campaigns with waiting e-mails then take turns.

Reactions to e-mails are chosen with pseudorandom numbers. Each number is a hash of the seed and of names, such as the contact and
`open delay`. Therefore it does not depend on the order of calls, the size of time steps, or other contacts.

A mailbox is seeded with its statistics on one day. As time passes, they leave each window evenly, day by day.

An open or a bounce counts for the day on which the e-mail was sent. Otherwise, a rate could exceed 100 %.
"""

from __future__ import annotations

import bisect
import enum
import heapq
import re
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from copy import copy
from datetime import timedelta
from fractions import Fraction
from functools import partial
from typing import Annotated, Any, Final, Literal, NamedTuple

import attrs
import msgspec

from outreach_async._types import MAX_INTEGER, require_types
from outreach_async.fake._arguments import draw, generate_id, require_count, shown
from outreach_async.fake._clock import DAY
from outreach_async.fake._records import (
    COUNT_NAMES,
    FORTNIGHT,
    PERSONALIZED,
    WINDOWS,
    Campaign,
    Contact,
    Mailbox,
    Rates,
    Share,
    Step,
    Workspace,
)

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
DAY_US: Final = DAY * SECOND_US


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

    def start(
        self, campaigns: Mapping[str, Campaign], contacts: Iterable[Mapping[str, Contact]], seed: int
    ) -> Iterator[FutureEvent]:
        """Schedule the first events of campaigns that have none yet. Until then, seeding campaigns and contacts stays cheap."""
        new = [id_ for id_, flow in self.flows.items() if not flow.started]
        seeded = dict[str, list[FutureEvent]]()
        for id_ in new:
            seeded[id_] = []
            for event in self.flows[id_].seeded_events(campaigns[id_], seed):
                seeded[id_].append(event)
                yield event
        # All at once, because the caller may pause after each event.
        new = [id_ for id_ in new if not self.flows[id_].started]
        for id_ in new:
            self.mutable_flow(id_).started = True
            self.heap += seeded[id_]
        heapq.heapify(self.heap)
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
            if not any(flow.left_to_send):
                self.forget_usage()
            flow.join()
            if flow.started:
                self.simulation.schedule_first(self.campaigns[place.campaign], contact.id, key, to_microseconds(place.at))

    @property
    def usage(self) -> tuple[Counter[str], Counter[str]]:
        """The number of campaigns per mailbox, and of live ones with e-mails left (rules B4 and B5), cached until they change."""
        if self._usage is None:
            campaigns = self.campaigns.values()
            self._usage = (
                Counter(id_ for campaign in campaigns for id_ in campaign.mailboxes),
                Counter(
                    id_
                    for campaign in campaigns
                    if campaign.status == "live" and any(self.simulation.flows[campaign.id].left_to_send)
                    for id_ in campaign.mailboxes
                ),
            )
        return self._usage

    def forget_usage(self) -> None:
        self._usage = None

    def capacity(self, campaign: Campaign) -> Fraction:
        # The live campaigns of a mailbox that have e-mails left share its daily limit equally. The given campaign is treated as
        # live, whatever its status (rule T17).
        own, live = (0 if campaign.status == "live" else 1), self.usage[1]
        return sum((Fraction(self.mailboxes[id_].capacity, live[id_] + own) for id_ in campaign.mailboxes), Fraction(0))


# The simulation.

LIVE: Final = "live"


@attrs.frozen
class Activity:
    """A past event of the simulation, such as an open or a reply.

    Attributes:
        at: Time, in Unix seconds.
        kind: `sent`, `opened`, `clicked`, `replied`, `interested` (a reply
            that shows interest), `unsubscribed` or `bounced`.
        campaign: Campaign id.
        contact: Contact id; such as `#000000001` if the contact is only
            counted in its campaign, and not stored.
        step: `order` of the step, counted from 1.
        template: Template id.
        mailbox: Id of the mailbox that sent the e-mail.

    Example:
        ```python
        log = []
        fake.sim.watch(log.append)
        fake.add_contacts("space_1", [{"email": "ann@company.example"}], campaign="camp_1")
        fake.advance(hours=1)
        print([(activity.kind, activity.step) for activity in log][:1])  # -> [('sent', 1)]
        ```
    """

    at: float
    kind: str
    campaign: str
    contact: str
    step: int
    template: str
    mailbox: str


Listener = Callable[[Activity], object]


@attrs.define
class SimulationEngine:
    """Processes the events of a simulation in chronological order."""

    world: World
    seed: int
    listeners: Sequence[Listener] = ()
    slice_size: int = 20
    """The number of e-mails and reactions in a slice: 1 to 2 ms. A request of another client meanwhile waits for about five."""

    def run(self, until: int) -> Generator[None, None, None]:
        """Process every event up to and including the time `until`, in Unix microseconds, and yield after each slice of them.

        Between two slices, the state is that of a run that continues: another run up to a later time completes both.
        """
        state, done = self.world.simulation, 0
        for count, _ in enumerate(state.start(self.world.campaigns, self.world.contacts.values(), self.seed), 1):
            if count % (10 * self.slice_size) == 0:  # scheduling an event is far cheaper than processing it
                yield
        while True:
            if done >= self.slice_size:
                done = 0
                yield
            first = state.heap[0].at if state.heap else None
            # Contacts that already wait are served before contacts that become due at the same time.
            if state.wake is not None and state.wake <= until and (first is None or state.wake <= first):
                done += self._send_queued(state.wake)
            elif first is not None and first <= until:
                event = heapq.heappop(state.heap)
                done += 1
                if event.kind == EventKind.DUE:
                    self._process_due(event)
                else:
                    self._process_response(event)
            else:
                return

    # Sending.

    def _send_queued(self, now: int) -> int:
        """Send queued e-mails, at most about a slice of them, and schedule the rest. Return how many sendings were tried."""
        state, tried = self.world.simulation, 0
        state.wake = None
        waiting = [campaign for campaign in self.world.campaigns.values() if campaign.status == LIVE]
        while waiting and tried < self.slice_size:
            tried += len(waiting)
            waiting = [campaign for campaign in waiting if self._send_next(campaign, now)]
        if waiting:
            state.schedule_wake(now)  # the next slice continues with the next turn
        elif any(flow.queue and self.world.campaigns[id_].status == LIVE for id_, flow in state.flows.items()):
            state.schedule_wake(_midnight(now))
        return tried

    def _process_due(self, event: FutureEvent) -> None:
        campaign = self.world.campaigns[event.campaign]
        step = campaign.steps[event.step]
        if step.status != LIVE or all(template.status != LIVE for template in step.templates):
            # The contact stays in `left_to_send`: no operation can make a step or template live. Its progress shows a reader of
            # world files that the contact has joined, although no event of it is left.
            self.world.simulation.mutable_flow(campaign.id).progress.setdefault(event.contact, event.step)
            return
        self.world.simulation.mutable_flow(campaign.id).queue.append(event)
        if campaign.status == LIVE and not self._send_next(campaign, event.at):
            self.world.simulation.schedule_wake(_midnight(event.at))

    def _send_next(self, campaign: Campaign, now: int) -> bool:
        flow = self.world.simulation.mutable_flow(campaign.id)
        while flow.queue and flow.progress.get(flow.queue[0].contact) == ENDED:
            flow.queue.popleft()
        if not flow.queue:
            return False
        day, mailbox = now // DAY_US, flow.queue[0].mailbox
        if mailbox not in campaign.mailboxes or self._remaining_capacity(day, mailbox) <= 0:
            mailbox = self._roomiest_mailbox(campaign, day)
        if mailbox:
            self._send(campaign, flow, flow.queue.popleft(), self.world.mailboxes[mailbox], now)
        return bool(mailbox)

    def _roomiest_mailbox(self, campaign: Campaign, day: int) -> str:
        """Return the campaign's mailbox with the most capacity, the first of equals; empty if none has any."""
        pools, capacity = self.world.simulation.pools, partial(self._remaining_capacity, day)
        known_day, pool = pools.get(campaign.id, (-1, []))
        if known_day != day:
            pool = [(-capacity(id_), place, id_) for place, id_ in enumerate(campaign.mailboxes)]
            heapq.heapify(pool)
            pools[campaign.id] = day, pool
        # Capacity only shrinks within a day, so an outdated one is too high: update the first until it is up to date.
        while pool and pool[0][0] < 0:
            negative, place, id_ = pool[0]
            if negative == (current := -capacity(id_)):
                return id_
            heapq.heapreplace(pool, (current, place, id_))
        return ""

    def _remaining_capacity(self, day: int, mailbox: str) -> int:
        box = self.world.mailboxes[mailbox]
        return box.capacity - self.world.simulation.stats.get(mailbox, NO_STATS).sent_on(box, day)

    def _send(self, campaign: Campaign, flow: CampaignFlow, due: FutureEvent, box: Mailbox, now: int) -> None:
        place, step = due.step, campaign.steps[due.step]
        draw_number = partial(draw, self.seed, campaign.id, due.token, place)
        template = choose_template(step, flow.counts[place], draw_number)
        day = now // DAY_US
        flow.counts[place][template][0] += 1
        flow.left_to_send[place] -= 1
        if not any(flow.left_to_send):
            self.world.forget_usage()
        flow.progress[due.contact] = place + 1
        self.world.simulation.mutable_stats(box.id).sent[day] += 1
        sent = due._replace(at=now, template=template, day=day, mailbox=box.id)
        self._record_activity(sent, flow)
        # A script for this campaign takes precedence over a script for any campaign. Responses are drawn only if there is no
        # script: a script without reactions is an empty plan.
        scripts = self.world.simulation.scripts
        plan = scripts.get((due.token, campaign.id, place), scripts.get((due.token, "", place)))
        if plan is None:
            plan = draw_responses(step.templates[template].rates or campaign.rates, draw_number)
        for kind, delay in plan:
            heapq.heappush(self.world.simulation.heap, sent._replace(at=now + delay, kind=kind))
        if place + 1 < due.end_step:
            at = now + campaign.steps[place + 1].wait_time * 1000
            heapq.heappush(self.world.simulation.heap, due._replace(at=at, step=place + 1, mailbox=due.mailbox or box.id))

    # Responses.

    def _process_response(self, event: FutureEvent) -> None:
        flow = self.world.simulation.mutable_flow(event.campaign)
        if event.kind in ENDING_KINDS:
            coming = flow.progress.get(event.contact, 0)
            if coming == ENDED:
                return  # a path ends only once: ignore the later of two endings
            for step in range(coming, event.end_step):  # no e-mail of these steps is left to send (rule T4)
                flow.left_to_send[step] -= 1
            if not any(flow.left_to_send):
                self.world.forget_usage()
            flow.progress[event.contact] = ENDED
        ledger = self.world.simulation.mutable_stats(event.mailbox)
        if event.kind == EventKind.BOUNCE:
            flow.bounces += 1
            ledger.bounced[event.day] += 1
        else:
            flow.counts[event.step][event.template][COUNT_INDEXES[event.kind]] += 1
        if event.kind == EventKind.OPEN:
            ledger.opened[event.day] += 1
        ledger.clicks += event.kind == EventKind.CLICK
        flow.interested += event.kind == EventKind.INTERESTED
        self._record_activity(event, flow)

    def _record_activity(self, event: FutureEvent, flow: CampaignFlow) -> None:
        """Store the time of an event as the last activity of its campaign and mailbox, and pass the event to the listeners."""
        at = event.at / SECOND_US
        flow.last_activity = self.world.simulation.stats[event.mailbox].last_activity = at
        if self.listeners:
            template = self.world.campaigns[event.campaign].steps[event.step].templates[event.template].id
            order, kind = event.step + 1, KIND_NAMES[event.kind]
            activity = Activity(at, kind, event.campaign, event.contact, order, template, event.mailbox)
            for listener in self.listeners:
                listener(activity)


def _midnight(now: int) -> int:
    return (now // DAY_US + 1) * DAY_US


def choose_template(step: Step, counts: Sequence[Sequence[int]], draw_number: Callable[[str], float]) -> int:
    """Choose the template of an e-mail (rule T7)."""
    # A random share of e-mails gets the personalized template. The other templates (A, B, ...) take turns for all other e-mails.
    live = [place for place, template in enumerate(step.templates) if template.status == LIVE]
    if len(live) == 1:
        return live[0]
    own = [place for place in live if step.templates[place].test_letter == PERSONALIZED]
    if own and draw_number("personalized") * len(live) < len(own):
        live = own
    elif own:
        live = [place for place in live if place not in own]
    return live[sum(counts[place][0] for place in live) % len(live)]


# `fake.sim`.

# A string such as `90s`, `2h` or `1d12h`, a number of seconds, or a timedelta.
Span = str | float | timedelta

# The argument of a script that sets when a reaction happens.
SPAN_NAMES: Final = {
    EventKind.OPEN: "opens_after",
    EventKind.CLICK: "clicks_after",
    EventKind.REPLY: "replies_after",
    EventKind.UNSUBSCRIBE: "unsubscribes_after",
    EventKind.BOUNCE: "bounces_after",
}

_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)", re.ASCII)


class SimulationControl:
    """Scripts the reactions of contacts, and calls listeners with events.

    Each fake has an instance, `fake.sim`.

    Attributes:
        listeners: Functions to call with each event when it happens.

    Example:
        ```python
        fake.sim.script("ann@company.example", opens_after="10m", replies_after="2h")
        ```
    """

    def __init__(self, store: Callable[[str, str | None, int, ResponsePlan], None]) -> None:
        self._store = store
        self.listeners: list[Listener] = []

    def watch(self, listener: Listener) -> None:
        """Call a listener with the `Activity` of every event from now on.

        Events are in chronological order. `reset` removes all listeners.

        Example:
            ```python
            fake.sim.watch(print)
            ```
        """
        self.listeners.append(listener)

    def script(
        self,
        contact: str,
        step: int = 1,
        *,
        campaign: str | None = None,
        opens_after: Span | None = None,
        clicks_after: Span | None = None,
        replies_after: Span | None = None,
        unsubscribes_after: Span | None = None,
        bounces_after: Span | None = None,
        interested: bool = False,
    ) -> None:
        """Script a contact's reactions to an e-mail that is not yet sent.

        Omitted reactions do not happen, except that a click, reply or
        unsubscribe implies an open: if `opens_after` is omitted, with the
        first of these reactions.

        Args:
            contact: The contact's e-mail address, even if the contact is
                not stored yet; or the id of a stored contact.
            step: `order` of the step, counted from 1.
            campaign: Campaign id; `None` for any campaign.
            opens_after: Time from sending the e-mail to opening it:
                `"2h"`, `"1d12h"`, seconds or a timedelta.
            clicks_after: Time from sending to the click.
            replies_after: Time from sending to the reply. It ends the
                campaign for the contact, as the next two do.
            unsubscribes_after: Time from sending to the unsubscribe.
            bounces_after: Time from sending to the bounce.
            interested: Whether the reply shows interest.

        Raises:
            TypeError: A span or the step has the wrong type.
            ValueError: The reactions contradict each other, a span is
                malformed, or the contact or campaign does not exist.

        Example:
            ```python
            camp = fake.add_campaign("space_1", status="live", mailboxes=["mailbox_1"], steps=["A"])
            fake.sim.script("ann@company.example", campaign=camp, replies_after="2h", interested=True)
            fake.add_contacts("space_1", [{"email": "ann@company.example"}], campaign=camp)
            fake.advance(days=2)
            print((await client.campaigns.list()).data[-1].interested_num)  # -> 1
            ```
        """
        require_types(SimulationControl.script, {"campaign": campaign})
        spans = dict(zip(SPAN_NAMES, (opens_after, clicks_after, replies_after, unsubscribes_after, bounces_after), strict=True))
        delays = {
            EventKind.INTERESTED if interested and kind == EventKind.REPLY else kind: span_to_microseconds(SPAN_NAMES[kind], span)
            for kind, span in spans.items()
            if span is not None
        }
        if type(interested) is not bool:
            raise TypeError(f"interested: expected true or false, got {shown(interested)}; pass true if the reply shows interest")
        plan = _build_plan(delays, interested=interested)
        if not require_count("step", step):
            raise ValueError("step: expected an integer of at least 1, got 0; the first step is 1")
        self._store(contact, campaign, step - 1, plan)


def _build_plan(spans: Mapping[EventKind, int], *, interested: bool) -> ResponsePlan:
    later = [span for kind, span in spans.items() if kind not in {EventKind.OPEN, EventKind.BOUNCE}]
    if interested and EventKind.INTERESTED not in spans:
        problem = "interested: expected replies_after too, because only a reply shows interest; pass it, or omit interested"
    elif EventKind.BOUNCE in spans and len(spans) > 1:
        problem = "bounces_after: expected no other reaction to the e-mail; omit bounces_after or the other reactions"
    elif EventKind.UNSUBSCRIBE in spans and spans.keys() & {EventKind.REPLY, EventKind.INTERESTED}:
        problem = "replies_after, unsubscribes_after: expected one, because each ends the campaign for the contact; omit one"
    elif later and spans.get(EventKind.OPEN, 0) > min(later):
        problem = "opens_after: expected a time no later than any other reaction; shorten or omit opens_after"
    else:
        opened = {EventKind.OPEN: min(later)} if later and EventKind.OPEN not in spans else {}
        return tuple(sorted((opened | dict(spans)).items()))
    raise ValueError(problem)


def span_to_microseconds(name: str, span: Span) -> int:
    if isinstance(span, bool) or not isinstance(span, str | int | float | timedelta):
        kind = type(span).__name__
        raise TypeError(f"{name}: expected a span of time, got {kind}; use a string such as '2h', seconds or a timedelta")
    if isinstance(span, str):
        parts = _SPAN_PART.findall(span)
        is_valid = bool(parts) and "".join(number + unit for number, unit in parts) == span
        seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    else:
        seconds = span.total_seconds() if isinstance(span, timedelta) else span
        is_valid = 0 <= seconds < MAX_INTEGER
    if not is_valid:
        raise ValueError(f"{name}: expected a span of time such as 90s, 2h or 1d12h, of at least 0 seconds, got {shown(span)}")
    return round(seconds * SECOND_US)
