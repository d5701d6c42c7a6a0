"""`fake.sim`: what a test has people do, and what it sees them do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Final

from outreach_async.fake.given import text, whole
from outreach_async.fake.records import Contact
from outreach_async.fake.seeding import Seeder
from outreach_async.fake.simulation.chance import Plan
from outreach_async.fake.simulation.engine import Listener
from outreach_async.fake.simulation.events import BOUNCE, CLICK, INTERESTED, OPEN, REPLY, SECOND, UNSUBSCRIBE

Span = str | float | timedelta
"""A span of time: text such as `90s`, `2h` or `1d12h`, seconds, or a timedelta."""

_UNITS: Final = {
    "ms": SECOND // 1000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
    "d": 86_400 * SECOND,
    "w": 604_800 * SECOND,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)", re.ASCII)


class Control:
    """What a test has people do, and what it sees them do.

    Args:
        seeding: Gives what fills the world.
    """

    def __init__(self, seeding: Callable[[], AbstractContextManager[Seeder]]) -> None:
        self._seeding = seeding
        self.listeners: list[Listener] = []
        """Who is told what happens, while it happens."""

    def watch(self, listener: Listener) -> None:
        """Have a listener told of every e-mail, open, click, reply, unsubscribing and bounce from now on, in order of time.

        It takes an `outreach_async.fake.Activity`; a list's `append` makes a log. `reset` lets listeners go; snapshots and world
        files do not hold them.

        Example:
            ```python
            log = []
            fake.sim.watch(log.append)
            fake.add_contacts("space_1", [{"email": "ann@company.example"}], campaign="camp_1")
            fake.advance(days=1)
            print(log[0].kind, log[0].campaign)  # -> sent camp_1
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
        """Settle what a contact does with an e-mail that is still to be sent; what is not said does not happen.

        Whoever clicks, replies or unsubscribes has opened: at that time at the latest.

        Args:
            contact: Its e-mail, whether it is stored yet or not; or the id of a stored one.
            step: The step's order, from 1.
            campaign: Campaign id; any campaign if not given.
            opens_after: Span from the send to the open: `"2h"`, `"1d12h"`, seconds or a timedelta. The others likewise.
            clicks_after: To the click.
            replies_after: To the reply, which ends the contact's path through the campaign.
            unsubscribes_after: To the unsubscribing, which ends it too.
            bounces_after: To the bounce, which ends it too.
            interested: Whether the reply shows interest.

        Raises:
            TypeError: A span or the step is of the wrong kind.
            ValueError: The parts do not fit together, a span is malformed, or there is no such contact or campaign.

        Example:
            ```python
            camp = fake.add_campaign("space_1", status="live", mailboxes=["mailbox_1"], steps=["A"])
            fake.sim.script("ann@company.example", campaign=camp, replies_after="2h", interested=True)
            fake.add_contacts("space_1", [{"email": "ann@company.example"}], campaign=camp)
            fake.advance(days=2)
            print((await client.campaigns.list()).data[-1].interested_num)  # -> 1
            ```
        """
        spans = {
            OPEN: opens_after,
            CLICK: clicks_after,
            INTERESTED if interested else REPLY: replies_after,
            UNSUBSCRIBE: unsubscribes_after,
            BOUNCE: bounces_after,
        }
        plan = _plan({kind: microseconds(span) for kind, span in spans.items() if span is not None}, interested=interested)
        if not whole("step", step):
            raise ValueError("step=0: the first step is 1")
        with self._seeding() as seeder:
            if campaign is not None and campaign not in seeder.world.campaigns:
                raise ValueError(f"there is no campaign {campaign!r}: add it first")
            seeder.world.simulation.scripts[_token(seeder, contact), campaign or "", step - 1] = plan


def _token(seeder: Seeder, contact: str) -> str:
    """Find what a contact's chance is drawn by."""
    if "@" in text("contact", contact) or not contact.startswith("contact_"):
        return seeder.key(contact.strip())
    tables: Mapping[str, Mapping[str, Contact]] = seeder.world.contacts
    for contacts in tables.values():
        for key, stored in contacts.items():
            if stored.id == contact:
                return key
    raise ValueError(f"there is no contact {contact!r}: add it first, or give its e-mail")


def _plan(spans: Mapping[int, int], *, interested: bool) -> Plan:
    if interested and INTERESTED not in spans:
        raise ValueError("interested=True is about a reply: say replies_after as well")
    if BOUNCE in spans and len(spans) > 1:
        raise ValueError("what bounces is neither opened nor answered: leave the others out, or bounces_after")
    if UNSUBSCRIBE in spans and spans.keys() & {REPLY, INTERESTED}:
        raise ValueError("replies_after and unsubscribes_after both end the path: say one of them")
    later = [span for kind, span in spans.items() if kind not in {OPEN, BOUNCE}]
    if later and spans.get(OPEN, 0) > min(later):
        raise ValueError("opens_after must not be later than what the open leads to: say a shorter span, or leave it out")
    opened = {OPEN: min(later)} if later and OPEN not in spans else {}
    return tuple(sorted((opened | dict(spans)).items()))


def microseconds(span: Span) -> int:
    """Read a span of time.

    Returns:
        Whole microseconds.

    Raises:
        TypeError: It is no text, number or timedelta.
        ValueError: The text is no span, or the span is negative or not finite.
    """
    if isinstance(span, str):
        return _read(span)
    if isinstance(span, bool) or not isinstance(span, int | float | timedelta):
        raise TypeError(f"a span of time must be a text such as '2h', seconds or a timedelta, not {type(span).__name__}")
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"a span of time must be finite and not negative, not {span}")
    return round(seconds * SECOND)


def _read(span: str) -> int:
    parts = _PART.findall(span)
    if not parts or "".join(number + unit for number, unit in parts) != span:
        raise ValueError(f"{span!r} is no span of time such as 90s, 2h or 1d12h")
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))
