"""The simulation's state. Copies share flows and ledgers until one of them changes one (copy on write)."""

from __future__ import annotations

import heapq

import attrs

from outreach_async.fake.records import Campaign, Contact, Mailbox
from outreach_async.fake.relative import DAY
from outreach_async.fake.simulation.chance import Plan
from outreach_async.fake.simulation.events import SECOND, Event
from outreach_async.fake.simulation.flows import Flow
from outreach_async.fake.simulation.ledgers import Ledger

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
