"""The simulation's state: mailboxes' counts per day, campaigns in motion, and cheap copies (copy on write).

The figures that a mailbox was seeded with belong to one day. As time passes they leave the windows as if they had been sent
evenly: those of the day itself count on that day, the rest of the 30 days leaves over the next 29 days, and the rest of the 90
days over 60. Opens and bounces belong to the day on which their e-mail was sent, so that no share exceeds the whole.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from outreach_async.fake.clock import DAY
from outreach_async.fake.records import Campaign, Contact, Mailbox, Share
from outreach_async.fake.simulation.chance import (
    BOUNCE,
    CLICK,
    DUE,
    INTERESTED,
    OPEN,
    REPLY,
    SECOND,
    UNSUBSCRIBE,
    Event,
    Plan,
    draw,
)

FORTNIGHT: Final = 14
MONTH: Final = 30
QUARTER: Final = 90


@attrs.frozen
class Past:
    """The figures that a mailbox was seeded with.

    Attributes:
        day: UTC day of the figures, in days since 1970.
        today: E-mails sent on that day.
        month: E-mails sent in the 30 days up to it.
        quarter: E-mails sent in the 90 days up to it.
        bounced: Bounces of the 30 days.
        opened: Share opened of 14 days.
        opens: Share opened of all e-mails.
        clicks: Share clicked of all e-mails.
        pinned: Figures set to values that no service could have counted; they stay unchanged.
    """

    day: int
    today: int
    month: int
    quarter: int
    bounced: int
    opened: Share
    opens: Share
    clicks: Share
    pinned: frozenset[str]

    @classmethod
    def of(cls, mailbox: Mailbox) -> Past:
        """Read a mailbox's figures. Invalid ones count as 0."""
        values = mailbox.values
        counts = {name: _count(values[name]) for name in ("sent_today", "sent_30days", "sent_90days", "bounced_30days")}
        today, month, quarter, bounced = (count or 0 for count in counts.values())
        shares = {
            "opened_14days": _share(values["opened_14days"], month * FORTNIGHT // MONTH),
            "avg_open_rate": _share(values["avg_open_rate"], quarter),
            "avg_click_rate": _share(values["avg_click_rate"], quarter),
        }
        opened, opens, clicks = (share or Share(0, 0) for share in shares.values())
        pinned = frozenset(name for name, value in {**counts, **shares}.items() if value is None)
        return cls(int(mailbox.as_of // DAY), today, month, quarter, bounced, opened, opens, clicks, pinned)

    def month_after(self, days: int) -> int:
        """Return the e-mails still in the window of 30 days after a number of days."""
        return (self.today if days < MONTH else 0) + _rest(self.month - self.today, MONTH - 1, days)

    def quarter_after(self, days: int) -> int:
        """Return the e-mails still in the window of 90 days after a number of days."""
        rest = _rest(self.month - self.today, MONTH - 1, max(0, days - QUARTER + MONTH))
        return (self.today if days < QUARTER else 0) + rest + _rest(self.quarter - self.month, QUARTER - MONTH, days)

    def bounced_after(self, days: int) -> int:
        """Return the bounces still in the window of 30 days after a number of days, always in the same proportion."""
        return self.bounced * self.month_after(days) // self.month if self.month else self.bounced * (days == 0)

    def opened_after(self, days: int) -> Share:
        """Return the opened e-mails, and all e-mails, still in the window of 14 days after a number of days."""
        return Share(_rest(self.opened.n, FORTNIGHT, days), _rest(self.opened.of, FORTNIGHT, days))


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _share(value: Any, of: int) -> Share | None:
    """Return a rate as a share; a plain percentage refers to the total that the other figures suggest."""
    if isinstance(value, Share):
        return value if 0 <= value.n <= value.of else None
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100  # noqa: PLR2004 - a percentage
    return Share(round(of * value / 100), of) if fits else None


def _rest(total: int, days: int, passed: int) -> int:
    """Return what remains of a total that leaves evenly over a number of days."""
    return total * max(0, days - passed) // days


@attrs.define
class Ledger:
    """A mailbox's counts by day, and the sums over the windows that end with its latest day.

    Attributes:
        past: The seeded figures; the other counts do not include them.
        day: The latest day, in days since 1970.
        sent: E-mails by day, as a ring: a day's index is its number modulo the length.
        opened: Opened e-mails by the day of their sending, as a ring.
        bounced: Bounced e-mails by the day of their sending, as a ring.
        fortnight: E-mails sent in 14 days, including the latest.
        month: E-mails sent in 30 days.
        quarter: E-mails sent in 90 days.
        opened_sum: Opened e-mails of 14 days.
        bounced_sum: Bounced e-mails of 30 days.
        life: E-mails sent in total.
        opens: Opens in total.
        clicks: Clicks in total.
        last: Time of the last event, in Unix seconds; `None` before the first.
    """

    past: Past
    day: int
    sent: list[int] = attrs.field(factory=lambda: [0] * QUARTER)
    opened: list[int] = attrs.field(factory=lambda: [0] * FORTNIGHT)
    bounced: list[int] = attrs.field(factory=lambda: [0] * MONTH)
    fortnight: int = 0
    month: int = 0
    quarter: int = 0
    opened_sum: int = 0
    bounced_sum: int = 0
    life: int = 0
    opens: int = 0
    clicks: int = 0
    last: float | None = None

    @classmethod
    def of(cls, mailbox: Mailbox) -> Ledger:
        """Return the ledger of a mailbox as it was seeded."""
        past = Past.of(mailbox)
        return cls(past, past.day)

    def copy(self) -> Ledger:
        """Return a copy that shares no mutable value."""
        return attrs.evolve(self, sent=list(self.sent), opened=list(self.opened), bounced=list(self.bounced))

    def roll(self, day: int) -> None:
        """Advance to a day. Time never goes back, so an earlier day changes nothing."""
        for _ in range(min(day - self.day, QUARTER)):
            self._turn()
        self.day = max(self.day, day)

    def _turn(self) -> None:
        """Remove the oldest day from every window. After 90 turns all windows are empty, so `roll` needs no more of them."""
        self.day += 1
        self.fortnight -= self.sent[(self.day - FORTNIGHT) % QUARTER]
        self.month -= self.sent[(self.day - MONTH) % QUARTER]
        self.quarter -= self.sent[self.day % QUARTER]
        self.sent[self.day % QUARTER] = 0
        self.opened_sum -= self.opened[self.day % FORTNIGHT]
        self.opened[self.day % FORTNIGHT] = 0
        self.bounced_sum -= self.bounced[self.day % MONTH]
        self.bounced[self.day % MONTH] = 0

    @property
    def today(self) -> int:
        """E-mails sent on the latest day."""
        return self.sent[self.day % QUARTER] + (self.past.today if self.day == self.past.day else 0)

    def count_sent(self) -> None:
        """Count an e-mail sent on the latest day."""
        self.sent[self.day % QUARTER] += 1
        self.fortnight += 1
        self.month += 1
        self.quarter += 1
        self.life += 1

    def count_opened(self, day: int) -> None:
        """Count the open of an e-mail that was sent on a day."""
        self.opens += 1
        if self.day - day < FORTNIGHT:
            self.opened[day % FORTNIGHT] += 1
            self.opened_sum += 1

    def count_bounced(self, day: int) -> None:
        """Count the bounce of an e-mail that was sent on a day."""
        if self.day - day < MONTH:
            self.bounced[day % MONTH] += 1
            self.bounced_sum += 1

    def figures(self) -> Mapping[str, Any]:
        """Return the figures of the mailbox's item as of the latest day, without those that stay as they were seeded."""
        past, days = self.past, self.day - self.past.day
        if not days and not self.life:
            return {}
        opened = past.opened_after(days)
        figures = {
            "sent_today": self.today,
            "sent_30days": past.month_after(days) + self.month,
            "opened_14days": Share(opened.n + self.opened_sum, opened.of + self.fortnight),
            "sent_90days": past.quarter_after(days) + self.quarter,
            "bounced_30days": past.bounced_after(days) + self.bounced_sum,
            "avg_open_rate": Share(past.opens.n + self.opens, past.opens.of + self.life),
            "avg_click_rate": Share(past.clicks.n + self.clicks, past.clicks.of + self.life),
        }
        return {name: value for name, value in figures.items() if name not in past.pinned}


COUNTS: Final = ("sent", "opened_num", "clicked_num", "replied_num", "unsubscribed_num")
"""The counts of each template, in this order."""

PLACES: Final = {DUE: 0, OPEN: 1, CLICK: 2, REPLY: 3, INTERESTED: 3, UNSUBSCRIBE: 4}
"""Index of the count that an event increases. A bounce increases none (rule T10)."""

ENDS: Final = frozenset({REPLY, INTERESTED, UNSUBSCRIBE, BOUNCE})
"""Kinds of events that end a contact's path."""

ENDED: Final = -1
"""Takes the place of the next step when a path has ended."""

Joined = tuple[str, str, int]
"""A contact that joined: its id, the token of its draws, and the time, in Unix microseconds."""


@attrs.define
class Flow:
    """A campaign's queue and counts. The campaign's record holds the seeded values.

    Attributes:
        since: Time at which the campaign was seeded, in Unix microseconds.
        counts: The five counts of every template of every step.
        lefts: Contacts left to send to, by step.
        bounces: Number of bounced e-mails.
        interested: Number of replies that show interest.
        last: Time of the last event, in Unix seconds; `None` before the first.
        begun: Whether the seeded contacts are under way.
        joined: Contacts that joined and are not under way yet.
        queue: Due e-mails that could not be sent yet.
        progress: The next step of each contact that has received one, or `ENDED`.
        rounds: Number of times a contact has rejoined.
    """

    since: int
    counts: list[list[list[int]]]
    lefts: list[int]
    bounces: int
    interested: int
    last: float | None = None
    begun: bool = False
    joined: list[Joined] = attrs.Factory(list)
    queue: deque[Event] = attrs.Factory(deque)
    progress: dict[str, int] = attrs.Factory(dict)
    rounds: dict[str, int] = attrs.Factory(dict)

    @classmethod
    def of(cls, campaign: Campaign, now: int) -> Flow:
        """Return the flow of a campaign as it was seeded."""
        counts = [[[getattr(part, name) for name in COUNTS] for part in step.templates] for step in campaign.steps]
        lefts = [step.left_to_send for step in campaign.steps]
        return cls(now, counts, lefts, campaign.bounces_num, campaign.interested_num)

    def copy(self) -> Flow:
        """Return a copy that shares no mutable value."""
        return attrs.evolve(
            self,
            counts=[[list(part) for part in step] for step in self.counts],
            lefts=list(self.lefts),
            joined=list(self.joined),
            queue=self.queue.copy(),
            progress=dict(self.progress),
            rounds=dict(self.rounds),
        )

    def sent(self, step: int) -> int:
        """Return the number of contacts that have completed a step."""
        return sum(part[0] for part in self.counts[step])

    def total(self, place: int) -> int:
        """Return the sum of one of the counts over every template (rule T10)."""
        return sum(part[place] for step in self.counts for part in step)

    # Joining and leaving.

    def join(self, who: str, token: str, at: int) -> None:
        """Add a contact to the campaign (rule T5)."""
        self.joined.append((who, token, at))
        for step in range(len(self.lefts)):
            self.lefts[step] += 1

    def join_again(self, who: str, token: str, at: int) -> None:
        """Restart a contact. Its old path ends, and its e-mails remain counted."""
        number = self.rounds.get(who, 0)
        self.end(_in_round(who, number), len(self.lefts))
        self.rounds[who] = number + 1
        self.join(_in_round(who, number + 1), token, at)

    def end(self, who: str, stop: int) -> bool:
        """End a contact's path: no step has it left to send to any more (rule T4).

        Returns:
            Whether the path had not ended before.
        """
        coming = self.progress.get(who, 0)
        if coming == ENDED:
            return False
        for step in range(coming, stop):
            self.lefts[step] -= 1
        self.progress[who] = ENDED
        return True

    def has_ended(self, who: str) -> bool:
        """Return whether a contact's path has ended."""
        return self.progress.get(who) == ENDED

    def departures(self, campaign: Campaign, seed: int) -> Iterator[Event]:
        """Yield the first event of every contact that is not under way yet. Each contact departs once."""
        waits = [step.wait_time * 1000 for step in campaign.steps]
        if not self.begun:
            self.begun = True
            for number, (start, stop) in enumerate(paths([step.left_to_send for step in campaign.steps])):
                who = f"#{number:09}"
                # A seeded contact beyond the first step has waited for a part of its time; nobody knows how long, so draw it.
                passed = draw(seed, campaign.id, who, start, "wait") if start else 0.0
                at = self.since + waits[start] - int(waits[start] * passed)
                yield Event(at, DUE, campaign.id, who, start, who, stop)
        joined, self.joined = self.joined, []
        if waits:
            for who, token, at in joined:
                # An e-mail that was due before the world was created is due at its creation.
                yield Event(max(at + waits[0], self.since), DUE, campaign.id, who, 0, token, len(waits))


def _in_round(who: str, number: int) -> str:
    return f"{who}~{number}" if number else who


def paths(lefts: Sequence[int]) -> list[tuple[int, int]]:
    """Return paths of contacts that leave each step with the given number of contacts to send to.

    Returns:
        For each contact, its first step and the first step that it does not reach.
    """
    ended: list[tuple[int, int]] = []
    running: list[int] = []
    for step, left in enumerate(lefts):
        while len(running) > left:
            ended.append((running.pop(), step))
        running += [step] * (left - len(running))
    return ended + [(start, len(lefts)) for start in running]


ScriptKey = tuple[str, str, int]
"""A contact's token, the id of a campaign or an empty string for any, and the index of the step."""


@attrs.define
class Simulation:
    """The state of the simulation.

    Attributes:
        heap: Future events, as a heap.
        flows: Campaigns in motion, by id.
        ledgers: Mailbox counts by id, for the mailboxes that were read or used since the day they were seeded.
        scripts: Scripted responses to e-mails.
        wake: Time to serve the queues again, in Unix microseconds; `None` if no queue waits.
    """

    heap: list[Event] = attrs.field(factory=list, repr=False)
    flows: dict[str, Flow] = attrs.Factory(dict)
    ledgers: dict[str, Ledger] = attrs.Factory(dict)
    scripts: dict[ScriptKey, Plan] = attrs.Factory(dict)
    wake: int | None = None
    _own: set[str] = attrs.field(factory=set, init=False, eq=False, repr=False)
    """Ids of the flows and ledgers that no copy shares, and which may be changed in place."""

    def copy(self) -> Simulation:
        """Return a copy of the tables. It shares their values until one side changes them."""
        self._own.clear()
        return Simulation(list(self.heap), dict(self.flows), dict(self.ledgers), dict(self.scripts), self.wake)

    # Access for changes.

    def flow(self, campaign: str) -> Flow:
        """Return a campaign's flow for changes, copied first if it is shared."""
        flow = self.flows[campaign]
        if campaign not in self._own:
            flow = self.flows[campaign] = flow.copy()
            self._own.add(campaign)
        return flow

    def ledger(self, mailbox: Mailbox, day: int) -> Ledger:
        """Return a mailbox's ledger as of a day for changes, copied first if it is shared."""
        ledger = self.ledgers.get(mailbox.id)
        if ledger is None:
            ledger = self.ledgers[mailbox.id] = Ledger.of(mailbox)
            self._own.add(mailbox.id)
        elif mailbox.id not in self._own:
            ledger = self.ledgers[mailbox.id] = ledger.copy()
            self._own.add(mailbox.id)
        if day > ledger.day:
            ledger.roll(day)
        return ledger

    def seen(self, mailbox: Mailbox, day: int) -> Ledger | None:
        """Return a mailbox's ledger as of a day, to read; `None` if its figures are still the seeded ones."""
        ledger = self.ledgers.get(mailbox.id)
        if ledger is None:
            return self.ledger(mailbox, day) if day > mailbox.as_of // DAY else None
        return ledger if ledger.day >= day else self.ledger(mailbox, day)

    # Changes from outside.

    def add_campaign(self, campaign: Campaign, now: float) -> None:
        """Start a campaign's simulation."""
        self.flows[campaign.id] = Flow.of(campaign, micros(now))
        self._own.add(campaign.id)

    def enrol(self, contact: Contact, before: Contact | None, token: str) -> None:
        """Add a contact to its new campaigns. A changed time of joining means that the contact rejoined."""
        old = before.enrolments if before else ()
        for was, place in zip(old, contact.enrolments, strict=False):
            if was != place:
                self.flow(place.campaign).join_again(contact.id, token, micros(place.at))
        # A contact never leaves a campaign, so the additional enrolments are at the end.
        for place in contact.enrolments[len(old) :]:
            self.flow(place.campaign).join(contact.id, token, micros(place.at))

    def wake_at(self, at: int) -> None:
        """Serve the queues at a time, or earlier if that is scheduled already."""
        self.wake = at if self.wake is None else min(self.wake, at)

    def set_out(self, campaigns: dict[str, Campaign], seed: int) -> None:
        """Schedule the first event of every contact that joined."""
        for id_ in [id_ for id_, flow in self.flows.items() if flow.joined or not flow.begun]:
            for event in self.flow(id_).departures(campaigns[id_], seed):
                heapq.heappush(self.heap, event)


def micros(moment: float) -> int:
    """Return Unix seconds as whole microseconds."""
    return round(moment * SECOND)
