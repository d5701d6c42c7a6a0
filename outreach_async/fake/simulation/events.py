"""Future events, ordered by time and kind. Further ties go to the contact that joined first, because ids grow with time."""

from __future__ import annotations

from typing import Final, NamedTuple

DUE: Final = 0
"""An e-mail is due."""
OPEN: Final = 1
CLICK: Final = 2
REPLY: Final = 3
INTERESTED: Final = 4
"""A reply that shows interest."""
UNSUBSCRIBE: Final = 5
BOUNCE: Final = 6

NAMES: Final = ("sent", "opened", "clicked", "replied", "interested", "unsubscribed", "bounced")
"""Names of past events, by kind."""

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
DAY: Final = 86_400 * SECOND
"""Times are whole microseconds: sums are exact, so one advance ends exactly where two halves of it end."""


class Event(NamedTuple):
    """A future event.

    Attributes:
        at: Time, in Unix microseconds.
        kind: Kind of the event. Of two events at one instant the lower kind is first, so an open precedes its consequences.
        campaign: The campaign's id.
        who: The contact's id; `#` and a number for a seeded contact that is not stored. `~` and a number follow it in the
            later rounds of a contact that rejoined.
        step: Index of the step, from 0.
        token: Name for the contact's draws: the key of its e-mail address, which does not change when others are added.
        stop: Index of the first step that the contact does not reach.
        mailbox: Id of the mailbox that sent the contact's first e-mail; empty before it. In a response, the mailbox that sent the
            e-mail.
        template: Index of the e-mail's template in its step.
        day: UTC day on which the e-mail was sent, in days since 1970.
    """

    at: int
    kind: int
    campaign: str
    who: str
    step: int
    token: str
    stop: int
    mailbox: str = ""
    template: int = 0
    day: int = 0
