"""Draw the responses to an e-mail, and order the events that follow from them.

Every draw is a hash of names. The order of calls, the size of time steps and other contacts do not affect it.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import attrs

from outreach_async.fake.arguments import check_known


class EventKind(enum.IntEnum):
    """The kind of an event. Of two events at one instant the lower kind is first, so an open precedes its consequences."""

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
"""Names of past events, by kind."""

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
DAY: Final = 86_400 * SECOND
"""Times are whole microseconds: sums are exact, so one advance ends exactly where two halves of it end."""


class FutureEvent(NamedTuple):
    """A future event.

    Attributes:
        at: Time, in Unix microseconds.
        kind: An `EventKind`.
        campaign: The campaign's id.
        contact: The contact's id; `#` and a number for a seeded contact that is not stored. `~` and a number follow it in the
            later rounds of a contact that rejoined.
        step: Index of the step, from 0.
        token: Name for the contact's draws: the key of its e-mail address, which does not change when others are added.
        end_step: Index of the first step that the contact does not reach.
        mailbox: Id of the mailbox that sent the contact's first e-mail; empty before it. In a response, the mailbox that sent the
            e-mail.
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
"""Draws a number in [0, 1) by the name of the decision."""

ResponsePlan = tuple[tuple[int, int], ...]
"""The responses to an e-mail: kinds of events, and microseconds from the sending to each."""


def draw(*names: object) -> float:
    """Return a number in [0, 1) that depends only on the names."""
    text = "|".join(map(str, names)).encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return (number >> 11) / 2**53  # 53 of the 64 bits: as many as the fraction of a float has


def _validate_share(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"rates: expected a number for {attribute.name}, got {type(value).__name__}")
    if not 0 <= value <= 1:
        raise ValueError(f"rates: expected {attribute.name} from 0 to 1, got {value}")


@attrs.frozen
class Rates:
    """The probabilities of responses.

    Attributes:
        open: Share of delivered e-mails. Clicking, replying and unsubscribing require an open, so the share is raised to what
            they need.
        click: Share of delivered e-mails.
        reply: Share of delivered e-mails.
        bounce: Share of all e-mails: those that are not delivered.
        unsubscribe: Share of delivered e-mails. No contact both replies and unsubscribes.
        interested: Share of replies.
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
            TypeError: A rate is unknown, or not a number.
            ValueError: A rate is not from 0 to 1.
        """
        if not isinstance(changes, Mapping):
            raise TypeError(f"rates: expected a mapping of shares by name, got {type(changes).__name__}")
        for name in changes:
            check_known(name, attrs.fields_dict(Rates), "rates")
        return attrs.evolve(self, **changes)

    @property
    def effective_open(self) -> float:
        """Share of delivered e-mails that are opened, including those needed for clicks, replies and unsubscribes."""
        return min(1.0, max(self.open, self.click, self.reply + self.unsubscribe))


def draw_responses(rates: Rates, draw_number: Draw) -> ResponsePlan:
    """Draw the responses to an e-mail. A bounced e-mail is not opened, and an unopened one has no other response."""
    if draw_number("bounce") < rates.bounce:
        return ((EventKind.BOUNCE, _interpolate(MINUTE, 30 * MINUTE, draw_number("bounce delay"))),)
    if draw_number("open") >= rates.effective_open:
        return ()
    # The cube makes early opens more probable: half of them come within nine hours.
    opened = _interpolate(MINUTE, 3 * DAY, draw_number("open delay") ** 3)
    plan = [(EventKind.OPEN, opened)]
    if draw_number("click") * rates.effective_open < rates.click:
        plan.append((EventKind.CLICK, opened + _interpolate(SECOND, 10 * MINUTE, draw_number("click delay"))))
    # The contact's path ends with a reply, with an unsubscribe, or not at all.
    if draw_number("reply") * rates.effective_open < rates.reply:
        kind = EventKind.INTERESTED if draw_number("interested") < rates.interested else EventKind.REPLY
        plan.append((kind, opened + _interpolate(MINUTE, 2 * DAY, draw_number("reply delay") ** 2)))
    elif draw_number("unsubscribe") * (rates.effective_open - rates.reply) < rates.unsubscribe:
        plan.append((EventKind.UNSUBSCRIBE, opened + _interpolate(SECOND, 10 * MINUTE, draw_number("unsubscribe delay"))))
    return tuple(plan)


def _interpolate(least: int, most: int, share: float) -> int:
    return least + int((most - least) * share)
