"""The state of the simulation: events, counts per mailbox and day, and queues of campaigns. Copies are cheap (copy on write).

Reactions to e-mails are chosen with pseudorandom numbers. Each number is a hash of the seed and of names, such as the contact and
`open delay`. Therefore it does not depend on the order of calls, the size of time steps, or other contacts.

A mailbox is seeded with its statistics on one day, the seeded day. As time passes, the seeded e-mails leave the 30-day and 90-day
counts. The e-mails of the seeded day leave each count all at once. Earlier e-mails leave gradually: the simulation assumes that
they were sent evenly over the 29 days before the seeded day, and evenly over the 60 days before those 29 days.

An open or a bounce counts for the day on which the e-mail was sent, not for the day of the event. Otherwise, an open rate or a
bounce rate could exceed 100 %.
"""

from __future__ import annotations

import enum
import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs

from outreach_async.fake import _clock as clock
from outreach_async.fake._arguments import draw
from outreach_async.fake._stored_records import Campaign, Contact, Mailbox, Rates, Share


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


FORTNIGHT: Final = 14
MONTH: Final = 30
QUARTER: Final = 90


@attrs.frozen
class SeededStats:
    day: int
    sent_today: int
    sent_30days: int
    sent_90days: int
    bounced_30days: int
    opened_14days: Share
    opens: Share
    clicks: Share
    pinned: frozenset[str]

    @classmethod
    def from_mailbox(cls, mailbox: Mailbox) -> SeededStats:
        values = mailbox.values
        counts = {
            name: values[name] if type(values[name]) is int and values[name] >= 0 else None
            for name in ("sent_today", "sent_30days", "sent_90days", "bounced_30days")
        }
        today, month, quarter, bounced = (count or 0 for count in counts.values())
        shares = {
            "opened_14days": _share_or_none(values["opened_14days"], month * FORTNIGHT // MONTH),
            "avg_open_rate": _share_or_none(values["avg_open_rate"], quarter),
            "avg_click_rate": _share_or_none(values["avg_click_rate"], quarter),
        }
        opened, opens, clicks = (share or Share(0, 0) for share in shares.values())
        pinned = frozenset(name for name, value in {**counts, **shares}.items() if value is None)
        return cls(int(mailbox.as_of // clock.DAY), today, month, quarter, bounced, opened, opens, clicks, pinned)

    def sent_30days_after(self, days: int) -> int:
        """Return how many seeded e-mails the 30-day count still includes on a later day."""
        return (self.sent_today if days < MONTH else 0) + _remaining(self.sent_30days - self.sent_today, MONTH - 1, days)

    def sent_90days_after(self, days: int) -> int:
        """Return how many seeded e-mails the 90-day count still includes on a later day."""
        today = self.sent_today if days < QUARTER else 0
        month = _remaining(self.sent_30days - self.sent_today, MONTH - 1, max(0, days - QUARTER + MONTH))
        return today + month + _remaining(self.sent_90days - self.sent_30days, QUARTER - MONTH, days)

    def bounced_after(self, days: int) -> int:
        """Return how many seeded bounces the 30-day count still includes on a later day."""
        # The number decreases in proportion to `sent_30days_after(days)`.
        if not self.sent_30days:
            return self.bounced_30days if days == 0 else 0
        return self.bounced_30days * self.sent_30days_after(days) // self.sent_30days


def _share_or_none(value: Any, of: int) -> Share | None:
    if isinstance(value, Share):
        return value if 0 <= value.part <= value.whole else None
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100  # noqa: PLR2004 - a percentage
    return Share(round(of * value / 100), of) if fits else None


def _remaining(total: int, days: int, passed: int) -> int:
    """Return the part of a total that remains after `passed` days. This part decreases evenly to zero over `days` days."""
    return total * max(0, days - passed) // days


@attrs.define
class MailboxStats:
    """A mailbox's e-mails, opens and bounces by the day on which the e-mail was sent, beside the seeded statistics."""

    seeded: SeededStats
    sent: Counter[int] = attrs.Factory(Counter)
    opened: Counter[int] = attrs.Factory(Counter)
    bounced: Counter[int] = attrs.Factory(Counter)
    clicks: int = 0
    last_activity: float | None = None

    def copy(self) -> MailboxStats:
        return attrs.evolve(self, sent=self.sent.copy(), opened=self.opened.copy(), bounced=self.bounced.copy())

    def sent_on(self, day: int) -> int:
        """Return the number of e-mails sent on a day, including seeded e-mails."""
        return self.sent[day] + (self.seeded.sent_today if day == self.seeded.day else 0)

    def item_values(self, day: int) -> Mapping[str, Any]:
        """Return the statistics on a day by their names in the mailbox list, without those that keep their seeded values."""
        seeded, days = self.seeded, max(0, day - self.seeded.day)
        if not days and not self.sent:
            return {}
        opened, whole = (_remaining(n, FORTNIGHT, days) for n in (seeded.opened_14days.part, seeded.opened_14days.whole))
        figures = {
            "sent_today": self.sent_on(day),
            "sent_30days": seeded.sent_30days_after(days) + _sum_window(self.sent, day, MONTH),
            "opened_14days": Share(
                opened + _sum_window(self.opened, day, FORTNIGHT), whole + _sum_window(self.sent, day, FORTNIGHT)
            ),
            "sent_90days": seeded.sent_90days_after(days) + _sum_window(self.sent, day, QUARTER),
            "bounced_30days": seeded.bounced_after(days) + _sum_window(self.bounced, day, MONTH),
            "avg_open_rate": Share(seeded.opens.part + self.opened.total(), seeded.opens.whole + self.sent.total()),
            "avg_click_rate": Share(seeded.clicks.part + self.clicks, seeded.clicks.whole + self.sent.total()),
        }
        return {name: value for name, value in figures.items() if name not in seeded.pinned}


def _sum_window(counts: Counter[int], last: int, days: int) -> int:
    return sum(count for day, count in counts.items() if last - days < day <= last)


# The order of a template's counts in `CampaignFlow.counts`.
COUNT_NAMES: Final = ("sent", "opened_num", "clicked_num", "replied_num", "unsubscribed_num")

# The place in `COUNT_NAMES` of the count that an event of each `EventKind` increments. A bounce increments none (rule T10).
COUNT_INDEXES: Final = (0, 1, 2, 3, 3, 4)

ENDING_KINDS: Final = frozenset({EventKind.REPLY, EventKind.INTERESTED, EventKind.UNSUBSCRIBE, EventKind.BOUNCE})

ENDED: Final = -1  # the progress of a contact whose path has ended

# The contact's id, the `FutureEvent.token`, and the time of joining in Unix microseconds.
PendingJoin = tuple[str, str, int]


@attrs.define
class CampaignFlow:
    """A campaign's queue and current counts. The counts start at the seeded values, which the campaign's record keeps."""

    seeded_at: int
    counts: list[list[list[int]]]
    left_to_send: list[int]
    bounces: int
    interested: int
    last_activity: float | None = None
    started: bool = False
    pending_joins: list[PendingJoin] = attrs.Factory(list)
    queue: deque[FutureEvent] = attrs.Factory(deque)
    progress: dict[str, int] = attrs.Factory(dict)
    rounds: dict[str, int] = attrs.Factory(dict)

    def copy(self) -> CampaignFlow:
        return attrs.evolve(
            self,
            counts=[[list(part) for part in step] for step in self.counts],
            left_to_send=list(self.left_to_send),
            pending_joins=list(self.pending_joins),
            queue=self.queue.copy(),
            progress=dict(self.progress),
            rounds=dict(self.rounds),
        )

    def sent(self, step: int) -> int:
        return sum(part[0] for part in self.counts[step])

    def total(self, place: int) -> int:
        """Return the sum of a count over all templates (rule T10). `place` is the index of the count in `COUNT_NAMES`."""
        return sum(part[place] for step in self.counts for part in step)

    # Joining and leaving.

    def join(self, contact: str, token: str, at: int) -> None:
        """Add a contact to the campaign, and count it in `left_to_send` of every step (rule T5)."""
        self.pending_joins.append((contact, token, at))
        for step in range(len(self.left_to_send)):
            self.left_to_send[step] += 1

    def rejoin(self, contact: str, token: str, at: int) -> None:
        """Restart a contact at the first step. Its old path ends, but e-mails already sent to it remain counted."""
        number = self.rounds.get(contact, 0)
        self.end_path(_name_in_round(contact, number), len(self.left_to_send))
        self.rounds[contact] = number + 1
        self.join(_name_in_round(contact, number + 1), token, at)

    def end_path(self, contact: str, stop: int) -> bool:
        """End a contact's path: the contact no longer counts in `left_to_send` of any step (rule T4)."""
        coming = self.progress.get(contact, 0)
        if coming == ENDED:
            return False
        for step in range(coming, stop):
            self.left_to_send[step] -= 1
        self.progress[contact] = ENDED
        return True

    def start_pending(self, campaign: Campaign, seed: int) -> Iterator[FutureEvent]:
        """Yield the first event of every contact whose first event has not been scheduled yet. Each event is yielded once."""
        waits = [step.wait_time * 1000 for step in campaign.steps]
        if not self.started:
            self.started = True
            for number, (start, stop) in enumerate(build_paths([step.left_to_send for step in campaign.steps])):
                contact = f"#{number:09}"
                # A seeded contact past the first step has already waited for part of its wait time. That part is random.
                passed = draw(seed, campaign.id, contact, start, "wait") if start else 0.0
                at = self.seeded_at + waits[start] - int(waits[start] * passed)
                yield FutureEvent(at, EventKind.DUE, campaign.id, contact, start, contact, stop)
        joined, self.pending_joins = self.pending_joins, []
        if waits:
            for contact, token, at in joined:
                # No e-mail can be due before the campaign was seeded.
                yield FutureEvent(max(at + waits[0], self.seeded_at), EventKind.DUE, campaign.id, contact, 0, token, len(waits))


def _name_in_round(contact: str, number: int) -> str:
    return f"{contact}~{number}" if number else contact


def build_paths(lefts: Sequence[int]) -> list[tuple[int, int]]:
    """Return a path through the steps for each seeded contact. `lefts[step]` is the number of paths that contain `step`."""
    ended: list[tuple[int, int]] = []
    running: list[int] = []
    for step, left in enumerate(lefts):
        while len(running) > left:
            ended.append((running.pop(), step))
        running += [step] * (left - len(running))
    return ended + [(start, len(lefts)) for start in running]


# The `FutureEvent.token` of the contact, a campaign id (empty for any campaign), and the step's index.
ScriptKey = tuple[str, str, int]


@attrs.define
class Simulation:
    heap: list[FutureEvent] = attrs.field(factory=list, repr=False)
    flows: dict[str, CampaignFlow] = attrs.Factory(dict)
    stats: dict[str, MailboxStats] = attrs.Factory(dict)
    scripts: dict[ScriptKey, ResponsePlan] = attrs.Factory(dict)
    wake: int | None = None
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

    def mutable_stats(self, mailbox: Mailbox) -> MailboxStats:
        # If a copy of the simulation may share the statistics, the statistics are copied first.
        if mailbox.id not in self._owned_ids:
            ledger = self.stats.get(mailbox.id)
            self.stats[mailbox.id] = ledger.copy() if ledger else MailboxStats(SeededStats.from_mailbox(mailbox))
            self._owned_ids.add(mailbox.id)
        return self.stats[mailbox.id]

    def stats_of(self, mailbox: Mailbox) -> MailboxStats:
        """Return a mailbox's statistics. Do not modify the result: a copy of the simulation may share it."""
        return self.stats.get(mailbox.id) or self.mutable_stats(mailbox)

    # Changes from outside the simulation.

    def add_campaign(self, campaign: Campaign, now: float) -> None:
        counts = [[[getattr(template, name) for name in COUNT_NAMES] for template in step.templates] for step in campaign.steps]
        lefts, at = [step.left_to_send for step in campaign.steps], to_microseconds(now)
        self.flows[campaign.id] = CampaignFlow(at, counts, lefts, campaign.bounces_num, campaign.interested_num)
        self._owned_ids.add(campaign.id)

    def enrol(self, contact: Contact, before: Contact | None, token: str) -> None:
        """Add a contact to its new campaigns, and restart it in each campaign that it has joined again."""
        old = before.enrolments if before else ()
        for was, place in zip(old, contact.enrolments, strict=False):
            if was != place:
                self.mutable_flow(place.campaign).rejoin(contact.id, token, to_microseconds(place.at))
        # A contact never leaves a campaign, so new enrolments are at the end.
        for place in contact.enrolments[len(old) :]:
            self.mutable_flow(place.campaign).join(contact.id, token, to_microseconds(place.at))

    def schedule_wake(self, at: int) -> None:
        """Schedule a time to send queued e-mails. An earlier time that is already scheduled is kept."""
        self.wake = at if self.wake is None else min(self.wake, at)

    def schedule_pending(self, campaigns: dict[str, Campaign], seed: int) -> None:
        """Schedule the first event of every contact whose first event has not been scheduled yet."""
        for id_ in [id_ for id_, flow in self.flows.items() if flow.pending_joins or not flow.started]:
            for event in self.mutable_flow(id_).start_pending(campaigns[id_], seed):
                heapq.heappush(self.heap, event)


def to_microseconds(moment: float) -> int:
    return round(moment * SECOND_US)
