"""What becomes of an e-mail. Every draw is a hash of names: no order of calls, size of steps or other contact can change it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from outreach_async.fake.given import check_known
from outreach_async.fake.simulation.events import BOUNCE, CLICK, DAY, INTERESTED, MINUTE, OPEN, REPLY, SECOND, UNSUBSCRIBE

Draw = Callable[[str], float]
"""Draws a number from 0 up to, but not including, 1 for the name of what it decides."""

Plan = tuple[tuple[int, int], ...]
"""What becomes of an e-mail: kinds of events, and microseconds from the send to each."""

_PRECISION: Final = 53  # bits of a float's fraction


def draw(*names: object) -> float:
    """Draw a number from 0 up to, but not including, 1; always the same for the same names."""
    text = "|".join(map(str, names)).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return float(int.from_bytes(digest, "big") >> 64 - _PRECISION) / (1 << _PRECISION)


def _share(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"rates: {attribute.name} must be a number, not {type(value).__name__}")
    if not 0 <= value <= 1:
        raise ValueError(f"rates: {attribute.name}={value} must be from 0 to 1")


@attrs.frozen
class Rates:
    """How people answer.

    Attributes:
        open: Share of the e-mails that arrive. Whoever clicks, replies or unsubscribes has opened, so it counts as no lower than
            what those need.
        click: Share of the e-mails that arrive.
        reply: The same.
        bounce: Share of all e-mails: those that do not arrive.
        unsubscribe: Share of the e-mails that arrive; nobody both replies and unsubscribes.
        interested: Share of the replies.
    """

    open: float = attrs.field(default=0.4, validator=_share)
    click: float = attrs.field(default=0.05, validator=_share)
    reply: float = attrs.field(default=0.06, validator=_share)
    bounce: float = attrs.field(default=0.02, validator=_share)
    unsubscribe: float = attrs.field(default=0.01, validator=_share)
    interested: float = attrs.field(default=0.3, validator=_share)

    def changed(self, given: Mapping[str, float]) -> Rates:
        """Exchange some of the rates.

        Raises:
            TypeError: There is no such rate, or it is no number.
            ValueError: A rate is not from 0 to 1.
        """
        if not isinstance(given, Mapping):
            raise TypeError(f"rates must be a mapping of shares by name, not {type(given).__name__}")
        for name in given:
            check_known(name, attrs.fields_dict(Rates), "rates")
        return attrs.evolve(self, **given)

    @property
    def opening(self) -> float:
        """The share that opens, at least as many as those who go on to do something."""
        return min(1.0, max(self.open, self.click, self.reply + self.unsubscribe))


def plan(rates: Rates, chance: Draw) -> Plan:
    """Draw what becomes of an e-mail. What bounced is not opened; only what was opened leads to anything."""
    if chance("bounce") < rates.bounce:
        return ((BOUNCE, _between(MINUTE, 30 * MINUTE, chance("bounce delay"))),)
    if chance("open") >= rates.opening:
        return ()
    # Half of the opens come within nine hours.
    opened = _between(MINUTE, 3 * DAY, chance("open delay") ** 3)
    return ((OPEN, opened), *_clicks(rates, chance, opened), *_leaves(rates, chance, opened))


def _clicks(rates: Rates, chance: Draw, opened: int) -> Plan:
    if chance("click") * rates.opening < rates.click:
        return ((CLICK, opened + _between(SECOND, 10 * MINUTE, chance("click delay"))),)
    return ()


def _leaves(rates: Rates, chance: Draw, opened: int) -> Plan:
    """Draw whether the e-mail ends its contact's path."""
    if chance("reply") * rates.opening < rates.reply:
        kind = INTERESTED if chance("interested") < rates.interested else REPLY
        return ((kind, opened + _between(MINUTE, 2 * DAY, chance("reply delay") ** 2)),)
    if chance("unsubscribe") * (rates.opening - rates.reply) < rates.unsubscribe:
        return ((UNSUBSCRIBE, opened + _between(SECOND, 10 * MINUTE, chance("unsubscribe delay"))),)
    return ()


def _between(least: int, most: int, share: float) -> int:
    return least + int((most - least) * share)
