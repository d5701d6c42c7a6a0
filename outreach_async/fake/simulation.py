"""Advance the simulation, and script the reactions of contacts with `fake.sim`. Events are processed in chronological order.

An e-mail is sent when it is due and its campaign is live, by the mailbox that sent the contact's first e-mail or, if it has no
capacity left that day, by the campaign's mailbox with the most capacity. If none has any, the e-mail waits until midnight (UTC).
Campaigns with waiting e-mails then take turns.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

import attrs

from outreach_async.fake._arguments import draw, require_count
from outreach_async.fake._stored_records import PERSONALIZED, Campaign, Mailbox, Step
from outreach_async.fake._world import (
    COUNT_INDEXES,
    DAY_US,
    ENDED,
    ENDING_KINDS,
    KIND_NAMES,
    NO_STATS,
    SECOND_US,
    CampaignFlow,
    EventKind,
    FutureEvent,
    ResponsePlan,
    World,
    draw_responses,
)

LIVE: Final = "live"


@attrs.frozen
class Activity:
    """An event of the simulation that has happened, such as an open or a reply.

    Attributes:
        at: Time, in Unix seconds.
        kind: `sent`, `opened`, `clicked`, `replied`, `interested` (a reply that shows interest), `unsubscribed` or `bounced`.
        campaign: Campaign id.
        contact: Contact id; such as `#000000001` if the contact is only counted in its campaign, and not stored.
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

    def run(self, until: int) -> None:
        """Process every event up to and including the time `until`, in Unix microseconds."""
        state = self.world.simulation
        state.start(self.world.campaigns, self.world.contacts.values(), self.seed)
        while True:
            first = state.heap[0].at if state.heap else None
            # Contacts that already wait are served before contacts that become due at the same time.
            if state.wake is not None and state.wake <= until and (first is None or state.wake <= first):
                now, state.wake = state.wake, None
                waiting = [campaign for campaign in self.world.campaigns.values() if campaign.status == LIVE]
                while waiting:
                    waiting = [campaign for campaign in waiting if self._send_next(campaign, now)]
                if any(flow.queue and self.world.campaigns[id_].status == LIVE for id_, flow in state.flows.items()):
                    state.schedule_wake(_midnight(now))
            elif first is not None and first <= until:
                event = heapq.heappop(state.heap)
                if event.kind == EventKind.DUE:
                    self._process_due(event)
                else:
                    self._process_response(event)
            else:
                return

    # Sending.

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

Span = str | float | timedelta
"""A span of time: a string such as `90s`, `2h` or `1d12h`, a number of seconds, or a timedelta."""

SPAN_NAMES: Final = {
    EventKind.OPEN: "opens_after",
    EventKind.CLICK: "clicks_after",
    EventKind.REPLY: "replies_after",
    EventKind.UNSUBSCRIBE: "unsubscribes_after",
    EventKind.BOUNCE: "bounces_after",
}
"""The argument of a script that sets when a reaction happens."""

_UNIT_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SPAN_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)", re.ASCII)


class SimulationControl:
    """Scripts the reactions of contacts, and calls listeners with events. Each fake has an instance, `fake.sim`."""

    def __init__(self, store: Callable[[str, str | None, int, ResponsePlan], None]) -> None:
        self._store = store
        self.listeners: list[Listener] = []
        """Functions to call with each event when it happens."""

    def watch(self, listener: Listener) -> None:
        """Call a listener with the `Activity` of every event from now on, in chronological order. `reset` removes all listeners.

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
        """Script the reactions of a contact to an e-mail that has not been sent yet.

        Omitted reactions do not happen, except that a click, reply or unsubscribe implies an open: if `opens_after` is omitted,
        with the first of these reactions.

        Args:
            contact: The contact's e-mail address, even if the contact is not stored yet; or the id of a stored contact.
            step: `order` of the step, counted from 1.
            campaign: Campaign id; `None` for any campaign.
            opens_after: Time from sending the e-mail to opening it: `"2h"`, `"1d12h"`, seconds or a timedelta.
            clicks_after: Time from sending to the click.
            replies_after: Time from sending to the reply. It ends the campaign for the contact, as the next two do.
            unsubscribes_after: Time from sending to the unsubscribe.
            bounces_after: Time from sending to the bounce.
            interested: Whether the reply shows interest.

        Raises:
            TypeError: A span or the step has the wrong type.
            ValueError: The reactions contradict each other, a span is malformed, or the contact or campaign does not exist.

        Example:
            ```python
            camp = fake.add_campaign("space_1", status="live", mailboxes=["mailbox_1"], steps=["A"])
            fake.sim.script("ann@company.example", campaign=camp, replies_after="2h", interested=True)
            fake.add_contacts("space_1", [{"email": "ann@company.example"}], campaign=camp)
            fake.advance(days=2)
            print((await client.campaigns.list()).data[-1].interested_num)  # -> 1
            ```
        """
        spans = dict(zip(SPAN_NAMES, (opens_after, clicks_after, replies_after, unsubscribes_after, bounces_after), strict=True))
        delays = {
            EventKind.INTERESTED if interested and kind == EventKind.REPLY else kind: span_to_microseconds(SPAN_NAMES[kind], span)
            for kind, span in spans.items()
            if span is not None
        }
        if type(interested) is not bool:
            raise TypeError(f"interested: expected true or false, got {interested!r}; pass true if the reply shows interest")
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
    """Convert a span of time to microseconds."""
    if isinstance(span, bool) or not isinstance(span, str | int | float | timedelta):
        kind = type(span).__name__
        raise TypeError(f"{name}: expected a span of time, got {kind}; use a string such as '2h', seconds or a timedelta")
    if isinstance(span, str):
        parts = _SPAN_PART.findall(span)
        is_valid = bool(parts) and "".join(number + unit for number, unit in parts) == span
        seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    else:
        seconds = span.total_seconds() if isinstance(span, timedelta) else span
        is_valid = 0 <= seconds < float("inf")
    if not is_valid:
        raise ValueError(f"{name}: expected a span of time such as 90s, 2h or 1d12h, of at least 0 seconds, got {span!r}")
    return round(seconds * SECOND_US)
