"""The simulation's state. A copy shares every flow and ledger; whoever changes one first makes it its own."""

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
"""The token of a contact's chance, the campaign's id or nothing for any, and the place of the step."""


@attrs.define
class Simulation:
    """What is under way.

    Attributes:
        heap: What is to happen.
        flows: Campaigns in motion, by id.
        ledgers: Mailboxes' counts, by id; of those that were looked at since the day they were seeded.
        scripts: What becomes of the e-mails that a test wrote the script for.
        wake: When queues are to be looked at again, Unix microseconds; `None` if nothing waits for that.
    """

    heap: list[Event] = attrs.field(factory=list, repr=False)
    flows: dict[str, Flow] = attrs.Factory(dict)
    ledgers: dict[str, Ledger] = attrs.Factory(dict)
    scripts: dict[ScriptKey, Plan] = attrs.Factory(dict)
    wake: int | None = None
    _own: set[str] = attrs.field(factory=set, init=False, eq=False, repr=False)
    """Flows and ledgers that no copy shares."""

    def copy(self) -> Simulation:
        """Copy the tables; what they hold is shared until it is changed."""
        self._own.clear()
        return Simulation(list(self.heap), dict(self.flows), dict(self.ledgers), dict(self.scripts), self.wake)

    # Looking for the sake of a change.

    def flow(self, campaign: str) -> Flow:
        """Get a campaign's flow, to change it."""
        flow = self.flows[campaign]
        if campaign not in self._own:
            flow = self.flows[campaign] = flow.copy()
            self._own.add(campaign)
        return flow

    def ledger(self, mailbox: Mailbox, day: int) -> Ledger:
        """Get a mailbox's ledger as of a day, to change it."""
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
        """Get a mailbox's ledger as of a day, to look at it; `None` if its figures are those it was seeded with."""
        ledger = self.ledgers.get(mailbox.id)
        if ledger is None:
            return self.ledger(mailbox, day) if day > mailbox.as_of // DAY else None
        return ledger if ledger.day >= day else self.ledger(mailbox, day)

    # What comes from without.

    def add_campaign(self, campaign: Campaign, now: float) -> None:
        """Set a campaign in motion."""
        self.flows[campaign.id] = Flow.of(campaign, micros(now))
        self._own.add(campaign.id)

    def enrol(self, contact: Contact, before: Contact | None, token: str) -> None:
        """Take a contact into the campaigns that it was not in before; a place with another time is another round."""
        old = before.enrolments if before else ()
        for was, place in zip(old, contact.enrolments, strict=False):
            if was != place:
                self.flow(place.campaign).join_again(contact.id, token, micros(place.at))
        # A contact never leaves a campaign: the later places are the new ones.
        for place in contact.enrolments[len(old) :]:
            self.flow(place.campaign).join(contact.id, token, micros(place.at))

    def wake_at(self, at: int) -> None:
        """Look at the queues at a time, or earlier if that is settled already."""
        self.wake = at if self.wake is None else min(self.wake, at)

    def set_out(self, campaigns: dict[str, Campaign], seed: int) -> None:
        """Send everybody who joined on their way."""
        for id_ in [id_ for id_, flow in self.flows.items() if flow.joined or not flow.begun]:
            for event in self.flow(id_).departures(campaigns[id_], seed):
                heapq.heappush(self.heap, event)


def micros(moment: float) -> int:
    """Turn Unix seconds into whole microseconds."""
    return round(moment * SECOND)
