"""`fake.sim`: script the reactions of contacts, and listen to events."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Final

from outreach_async.fake.arguments import require_count, require_string
from outreach_async.fake.builder import Seeder
from outreach_async.fake.simulation.chance import SECOND, EventKind, ResponsePlan
from outreach_async.fake.simulation.engine import Listener

Span = str | float | timedelta
"""A span of time: a string such as `90s`, `2h` or `1d12h`, a number of seconds, or a timedelta."""

_UNIT_MILLISECONDS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SPAN_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)", re.ASCII)


class SimulationControl:
    """Scripts the reactions of contacts, and calls listeners with events. Each fake has an instance, `fake.sim`.

    Args:
        seeding: Function that returns a context manager for changes to the stored data. It yields a `Seeder`.
    """

    def __init__(self, seeding: Callable[[], AbstractContextManager[Seeder]]) -> None:
        self._transaction = seeding
        self.listeners: list[Listener] = []
        """Functions to call with each event when it happens."""

    def watch(self, listener: Listener) -> None:
        """Call a listener with every e-mail, open, click, reply, unsubscribe and bounce from now on, in order of time.

        The listener receives an `outreach_async.fake.Activity`. To collect all events, pass the `append` method of a list.
        `reset` removes all listeners. Snapshots and world files do not contain listeners.

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
        """Script the reactions of a contact to an e-mail that has not been sent yet. Omitted reactions do not happen.

        A click, reply or unsubscribe requires an open. If `opens_after` is omitted, the open happens together with the first of
        these reactions.

        Args:
            contact: The contact's e-mail address, even if the contact is not stored yet; or the id of a stored contact.
            step: `order` of the step, from 1.
            campaign: Campaign id; `None` for any campaign.
            opens_after: Time from sending to the open: `"2h"`, `"1d12h"`, seconds or a timedelta.
            clicks_after: Time from sending to the click, in the same format.
            replies_after: Time from sending to the reply, which ends the contact's path through the campaign.
            unsubscribes_after: Time from sending to the unsubscribe, which also ends the path.
            bounces_after: Time from sending to the bounce, which also ends the path.
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
        spans = {
            EventKind.OPEN: opens_after,
            EventKind.CLICK: clicks_after,
            EventKind.INTERESTED if interested else EventKind.REPLY: replies_after,
            EventKind.UNSUBSCRIBE: unsubscribes_after,
            EventKind.BOUNCE: bounces_after,
        }
        plan = _build_plan(
            {kind: span_to_microseconds(span) for kind, span in spans.items() if span is not None}, interested=interested
        )
        if not require_count("step", step):
            raise ValueError("step: expected 1 or more, got 0; the first step is 1")
        with self._transaction() as seeder:
            if campaign is not None and campaign not in seeder.world.campaigns:
                raise ValueError(f"there is no campaign {campaign!r}; add the campaign first")
            seeder.world.simulation.scripts[_find_token(seeder, contact), campaign or "", step - 1] = plan


def _find_token(seeder: Seeder, contact: str) -> str:
    """Return the token that identifies a contact in random draws.

    Raises:
        ValueError: There is no contact with this id.
    """
    if "@" in require_string("contact", contact) or not contact.startswith("contact_"):
        return seeder.email_key(contact.strip())
    for contacts in seeder.world.contacts.values():
        for key, stored in contacts.items():
            if stored.id == contact:
                return key
    raise ValueError(f"there is no contact {contact!r}; add the contact first, or pass its e-mail address")


def _build_plan(spans: Mapping[int, int], *, interested: bool) -> ResponsePlan:
    if interested and EventKind.INTERESTED not in spans:
        raise ValueError(
            "interested: expected replies_after too, because only a reply shows interest; pass it or omit interested"
        )
    if EventKind.BOUNCE in spans and len(spans) > 1:
        raise ValueError("bounces_after: expected no other reaction to the e-mail; omit bounces_after or the others")
    if EventKind.UNSUBSCRIBE in spans and spans.keys() & {EventKind.REPLY, EventKind.INTERESTED}:
        raise ValueError("replies_after, unsubscribes_after: expected at most one, as each ends the contact's path; omit one")
    later = [span for kind, span in spans.items() if kind not in {EventKind.OPEN, EventKind.BOUNCE}]
    if later and spans.get(EventKind.OPEN, 0) > min(later):
        raise ValueError("opens_after: must not be longer than the span of another reaction; shorten or omit opens_after")
    opened = {EventKind.OPEN: min(later)} if later and EventKind.OPEN not in spans else {}
    return tuple(sorted((opened | dict(spans)).items()))


def span_to_microseconds(span: Span) -> int:
    """Parse a span of time.

    Returns:
        Whole microseconds.

    Raises:
        TypeError: The span is not a string, a number or a timedelta.
        ValueError: The string is malformed, or the span is negative or not finite.
    """
    if isinstance(span, str):
        return _parse_span(span)
    if isinstance(span, bool) or not isinstance(span, int | float | timedelta):
        raise TypeError(f"expected a span of time (a string such as '2h', seconds or a timedelta), got {type(span).__name__}")
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"expected a span of time that is finite and not negative, got {span}")
    return round(seconds * SECOND)


def _parse_span(span: str) -> int:
    parts = _SPAN_PART.findall(span)
    if not parts or "".join(number + unit for number, unit in parts) != span:
        raise ValueError(f"expected a span of time such as 90s, 2h or 1d12h, got {span!r}")
    return round(sum(float(number) * _UNIT_MILLISECONDS[unit] * 1000 for number, unit in parts))
