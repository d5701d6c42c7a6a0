"""Figures that can be trusted, and what a few bounces prove."""

from __future__ import annotations

import math
from typing import Final

from outreach_async.models import Number

_Z: Final = 1.6448536269514722
"""Standard deviations that 95 % of a normal distribution lie above, on one side: what makes the bound a 95 % lower bound."""


MOST: Final = 10**15
"""Beyond this nothing is counted, and sums of figures stay exact below it."""


def known(value: Number) -> Number | None:
    """Return a figure that counts something, or `None` for one that cannot: negative, not a number, or beyond any count."""
    return value if 0 <= value <= MOST else None


def amount(value: Number) -> Number:
    """Return a figure to add up; one that counts nothing adds nothing."""
    return known(value) or 0


def shown(value: Number) -> str:
    """Write a known figure for people, whole where it is whole."""
    return f"{int(value):,}" if value == int(value) else f"{value:,.2f}"


def percent(share: float) -> str:
    """Write a share for people."""
    return f"{100 * share:.1f} %"


def wilson_lower(events: Number, trials: Number) -> float:
    """Return the share that lies below the true one with 95 % confidence (Wilson's score interval, one side).

    Of healthy mailboxes (1 % of 200 e-mails bounce) a naive rate puts every twentieth above 2 %, this one in a thousand; and it
    still finds 99.5 % of those that truly bounce 5 % of 660.

    Args:
        events: How often it happened; more than `trials` counts as always.
        trials: How often it could have happened, above 0.
    """
    rate = min(1.0, events / trials)
    square = _Z * _Z / trials
    margin = math.sqrt(square * (rate * (1 - rate) + square / 4))
    return min(rate, max(0.0, (rate + square / 2 - margin) / (1 + square)))
