"""What every report for people says the same way: counts, figures, dates, and texts that can do no harm."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

from outreach_async.models import Number

NO_DOMAIN: Final = "(no domain)"

_YEAR_10000: Final = 253_402_300_800

NOTHING: Final = "-"
"""What stands for a figure that there is none of."""


def printable(text: str) -> str:
    """Return a text that can do a terminal or a page no harm: what the service says may hold anything."""
    return text if text.isprintable() else "".join(character if character.isprintable() else "?" for character in text)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write a count with its noun."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def mailboxes(count: int) -> str:
    """Write how many mailboxes."""
    return counted(count, "mailbox", "mailboxes")


def figure(value: Number | None) -> str:
    """Write a figure, whole where it is whole."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


def moment(at: float) -> str:
    """Write a time.

    Args:
        at: Unix seconds; 0 in reports that do not say.
    """
    if not 0 < at < _YEAR_10000:
        return "an unknown time"
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def figure_name(name: str) -> str:
    """Return what people call a figure.

    Args:
        name: As the wire or a rule calls it.
    """
    return _FIGURES.get(name) or printable(name.replace("_", " "))


_FIGURES: Final = {
    "bounced_30days": "bounced in 30 days",
    "sent_30days": "sent in 30 days",
    "opened_14days": "opened in 14 days, %",
    "avg_open_rate": "average open rate, %",
    "daily_limit": "limit a day",
    "sent_today": "sent today",
}
