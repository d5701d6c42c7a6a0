"""What is to happen, in order of time, then kind; whoever came first goes first, as ids grow with time."""

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
"""What has happened, by kind."""

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
DAY: Final = 86_400 * SECOND
"""Times are whole microseconds: one step of time then ends where two halves of it do."""


class Event(NamedTuple):
    """Something that is to happen.

    Attributes:
        at: When, in Unix microseconds.
        kind: What; of two at one instant the lower comes first, so an open precedes what follows from it.
        campaign: The campaign's id.
        who: The contact's id; `#` and a number for those that are not stored one by one. `~` and a number behind it for another
            round of one who joined again.
        step: Place of the step, from 0.
        token: What the contact's chance is drawn by: the key of the e-mail, which does not change when others are added.
        stop: Place of the first step that the contact does not go through.
        mailbox: Id of the mailbox that wrote to the contact first; empty before that. Of an answer: the one that sent the e-mail.
        template: Place of the e-mail's template in its step.
        day: The UTC day on which the e-mail was sent, counted from 1970.
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
