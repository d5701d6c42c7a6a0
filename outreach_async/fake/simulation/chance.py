"""Define the events of the simulation, and draw the responses to an e-mail.

Every random number is a hash of names that identify its purpose. It therefore does not depend on the order of calls, the size of
time steps, or other contacts.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import attrs

from outreach_async.fake.arguments import check_known


class EventKind(enum.IntEnum):
    """The kind of an event. Events at the same time are processed in the order of their kinds, so opens come before clicks."""

    DUE = 0
    """An e-mail is due."""
    OPEN = 1
    CLICK = 2
    REPLY = 3
    INTERESTED = 4
    """A reply that shows interest."""
    UNSUBSCRIBE = 5
    BOUNCE = 6


KIND_NAMES: Final = ("sent", "opened", "clicked", "replied", "interested", "unsubscribed", "bounced")
"""The value of `Activity.kind` for each `EventKind`, in the order of `EventKind`."""

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
DAY: Final = 86_400 * SECOND
"""One day in microseconds. Times are whole microseconds, so that sums are exact: two half days are exactly one day."""


class FutureEvent(NamedTuple):
    """A scheduled event.

    Attributes:
        at: Time, in Unix microseconds.
        kind: An `EventKind`.
        campaign: The campaign's id.
        contact: The contact's id. A contact that exists only in a campaign's seeded counts has `#` and a number as its id. If a
            contact has rejoined the campaign, `~` and the number of times that it has rejoined are appended.
        step: Index of the step, from 0.
        token: Name of the contact in random draws. For a stored contact, this is its normalized e-mail address, which does not
            change when other contacts are added; for any other contact, it is the value of `contact`.
        end_step: Index of the first step that the contact does not reach.
        mailbox: For an e-mail that is due, id of the mailbox that sent the contact's first e-mail; empty if there was none. For a
            response, id of the mailbox that sent the e-mail.
        template: Index of the e-mail's template in its step.
        day: UTC day on which the e-mail was sent, in days since 1970.
    """

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


Draw = Callable[[str], float]
"""A function that returns a random number in [0, 1) for a name such as `open delay`. The same name gives the same number."""

ResponsePlan = tuple[tuple[int, int], ...]
"""The responses to an e-mail: the kind of event of each response, and the microseconds from sending to the event."""


def draw(*names: object) -> float:
    """Return a pseudorandom number in [0, 1) that depends only on the names."""
    text = "|".join(map(str, names)).encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return (number >> 11) / 2**53  # use 53 of the 64 bits, the precision of a float


def _validate_share(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"rates: expected a number for {attribute.name}, got {type(value).__name__}; pass a number such as 0.4")
    if not 0 <= value <= 1:
        raise ValueError(f"rates: expected a number from 0 to 1 for {attribute.name}, got {value}; pass a share such as 0.4")


@attrs.frozen
class Rates:
    """The probabilities of the responses to an e-mail.

    Attributes:
        open: Share of delivered e-mails that are opened. Clicks, replies and unsubscribes require an open: if this share is too
            low for them, the lowest sufficient share is used instead.
        click: Share of delivered e-mails with a click.
        reply: Share of delivered e-mails with a reply.
        bounce: Share of all e-mails that bounce. All other e-mails are delivered.
        unsubscribe: Share of delivered e-mails with an unsubscribe. No e-mail has both a reply and an unsubscribe.
        interested: Share of replies that show interest.
    """

    open: float = attrs.field(default=0.4, validator=_validate_share)
    click: float = attrs.field(default=0.05, validator=_validate_share)
    reply: float = attrs.field(default=0.06, validator=_validate_share)
    bounce: float = attrs.field(default=0.02, validator=_validate_share)
    unsubscribe: float = attrs.field(default=0.01, validator=_validate_share)
    interested: float = attrs.field(default=0.3, validator=_validate_share)

    def with_changes(self, changes: Mapping[str, float]) -> Rates:
        """Return a copy with some rates replaced.

        Raises:
            TypeError: `changes` is not a mapping, or a rate is unknown or not a number.
            ValueError: A rate is not from 0 to 1.
        """
        if not isinstance(changes, Mapping):
            raise TypeError(f"rates: expected a mapping of rate names to numbers, got {type(changes).__name__}; pass a dict")
        for name in changes:
            check_known(name, attrs.fields_dict(Rates), "rates")
        return attrs.evolve(self, **changes)

    @property
    def effective_open(self) -> float:
        """Share of delivered e-mails that are opened: `open`, or more if clicks, replies and unsubscribes require more opens."""
        return min(1.0, max(self.open, self.click, self.reply + self.unsubscribe))


def draw_responses(rates: Rates, draw_number: Draw) -> ResponsePlan:
    """Draw the responses to an e-mail. A bounced e-mail is never opened, and an unopened e-mail gets no other response."""
    if draw_number("bounce") < rates.bounce:
        return ((EventKind.BOUNCE, _interpolate(MINUTE, 30 * MINUTE, draw_number("bounce delay"))),)
    if draw_number("open") >= rates.effective_open:
        return ()
    # The cube makes early opens more probable: half of all opens happen within nine hours.
    opened = _interpolate(MINUTE, 3 * DAY, draw_number("open delay") ** 3)
    plan = [(EventKind.OPEN, opened)]
    if draw_number("click") * rates.effective_open < rates.click:
        plan.append((EventKind.CLICK, opened + _interpolate(SECOND, 10 * MINUTE, draw_number("click delay"))))
    # A reply and an unsubscribe each end the contact's path through the campaign, so at most one of them is drawn.
    if draw_number("reply") * rates.effective_open < rates.reply:
        kind = EventKind.INTERESTED if draw_number("interested") < rates.interested else EventKind.REPLY
        plan.append((kind, opened + _interpolate(MINUTE, 2 * DAY, draw_number("reply delay") ** 2)))
    elif draw_number("unsubscribe") * (rates.effective_open - rates.reply) < rates.unsubscribe:
        plan.append((EventKind.UNSUBSCRIBE, opened + _interpolate(SECOND, 10 * MINUTE, draw_number("unsubscribe delay"))))
    return tuple(plan)


def _interpolate(least: int, most: int, share: float) -> int:
    return least + int((most - least) * share)
