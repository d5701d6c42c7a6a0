"""The state of a fake: tables of records, and request limits (rule E4). Callers must hold the lock of the fake."""

from __future__ import annotations

import bisect
import math
from collections import Counter
from collections.abc import Mapping
from copy import copy
from email.utils import formatdate
from fractions import Fraction
from typing import Any, Literal

import attrs

from outreach_async.fake._arguments import generate_id
from outreach_async.fake._error_responses import refusal_error
from outreach_async.fake._simulation_state import Simulation, to_microseconds
from outreach_async.fake._stored_records import Campaign, Contact, Mailbox, Workspace
from outreach_async.fake.behaviour import RateLimit


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
    _usage: MailboxUsage | None = attrs.field(default=None, init=False, eq=False, repr=False)

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

    def reserve_id(self, id_: str, prefix: str) -> str:
        if not id_.startswith(prefix) or id_ == prefix:
            raise ValueError(f"id: expected a string that starts with {prefix}, got {id_!r}")
        if id_ in self.ids:
            raise ValueError(f"id: {id_!r} is already in use; pass another id, or omit id to generate an id")
        self.ids.add(id_)
        return id_

    def add_workspace(self, workspace: Workspace) -> None:
        self.workspaces[workspace.id] = workspace
        self.contacts[workspace.id] = {}
        self.creation_order[workspace.id, "campaign"] = []
        self.creation_order[workspace.id, "mailbox"] = []

    def add_mailbox(self, mailbox: Mailbox) -> None:
        self.mailboxes[mailbox.id] = mailbox
        bisect.insort(self.creation_order[mailbox.workspace, "mailbox"], (mailbox.created, mailbox.id))

    def set_mailbox(self, mailbox: Mailbox, now: float) -> None:
        """Replace a mailbox, and schedule a new attempt to send queued e-mails, because its limit may have changed."""
        self.mailboxes[mailbox.id] = mailbox
        self.simulation.schedule_wake(to_microseconds(now))

    def add_campaign(self, campaign: Campaign, now: float) -> None:
        self.campaigns[campaign.id] = campaign
        self.enrolled_counts[campaign.id] = 0
        self.simulation.add_campaign(campaign, now)
        bisect.insort(self.creation_order[campaign.workspace, "campaign"], (campaign.created, campaign.id))
        self._usage = None

    def set_campaign(self, campaign: Campaign, now: float) -> None:
        self.campaigns[campaign.id] = campaign
        self.simulation.schedule_wake(to_microseconds(now))
        self._usage = None

    def last_activity(self, kind: ListKind, id_: str) -> float:
        """Return the time of the last activity of a campaign or mailbox, in Unix seconds; 0 if there was no activity."""
        moving = (self.simulation.flows if kind == "campaign" else self.simulation.stats).get(id_)
        item = self.campaigns[id_] if kind == "campaign" else self.mailboxes[id_]
        return max(item.last_activity or 0, (moving.last_activity if moving else None) or 0)

    def store_contact(self, workspace: str, key: str, contact: Contact) -> None:
        """Store or replace a contact, and add it to its new campaigns, as one change (rule C23)."""
        contacts = self.contacts[workspace]
        before = contacts.get(key)
        contacts[key] = contact
        self.simulation.enrol(contact, before, key, self.campaigns)
        # A contact never leaves a campaign, so the enrolments after the old ones are new.
        for enrolment in contact.enrolments[len(before.enrolments) if before else 0 :]:
            self.enrolled_counts[enrolment.campaign] += 1

    @property
    def usage(self) -> MailboxUsage:
        """The number of campaigns per mailbox. The value is cached until a campaign is added or changed."""
        if self._usage is None:
            campaigns = self.campaigns.values()
            self._usage = MailboxUsage(
                Counter(id_ for campaign in campaigns for id_ in campaign.mailboxes),
                Counter(id_ for campaign in campaigns if campaign.status == "live" for id_ in campaign.mailboxes),
            )
        return self._usage


@attrs.frozen
class MailboxUsage:
    """The number of campaigns per mailbox (rules B4 and B5)."""

    campaigns: Mapping[str, int]
    live: Mapping[str, int]

    def capacity(self, campaign: Campaign, mailboxes: Mapping[str, Mailbox]) -> Fraction:
        # The live campaigns of a mailbox share its daily limit equally. The given campaign is treated as live, whatever its
        # status (rule T17).
        own = 0 if campaign.status == "live" else 1
        shares = (Fraction(mailboxes[id_].capacity, self.live.get(id_, 0) + own) for id_ in campaign.mailboxes)
        return sum(shares, Fraction(0))
