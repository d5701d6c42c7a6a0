"""Format counts, numbers and times for human-readable reports, and make strings safe to print."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

import attrs

from outreach_async.models import Number

_YEAR_10000: Final = 253_402_300_800
_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400


def replace_unprintable(text: str) -> str:
    """Replace unprintable characters with `?`, because strings from the service may contain control characters."""
    return text if text.isprintable() else "".join(character if character.isprintable() else "?" for character in text)


def split_code(text: str) -> list[tuple[bool, str]]:
    """Split a string at its backticks. Each piece has a flag, which is true for code, such as a DNS record."""
    return [(place % 2 == 1, part) for place, part in enumerate(text.split("`")) if part]


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun, such as `1 mailbox` or `2 mailboxes`."""
    regular = f"{noun}{'es' if noun.endswith('x') else 's'}"
    return f"{count:,} {noun if count == 1 else plural or regular}"


def format_figure(value: Number | None) -> str:
    """Format a whole number without decimals, and any other number with one. `None`, infinity and NaN become `-`."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


def format_time(at: float) -> str:
    """Format a time in UTC, such as `2026-03-02 08:00 UTC`; `an unknown time` if the time is unknown."""
    if not 0 < at < _YEAR_10000:
        return "an unknown time"
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def format_date(at: Number | None) -> str:
    """Format a date in UTC, such as `2026-03-02`; `-` if the time is unknown."""
    return "-" if at is None or not 0 < at < _YEAR_10000 else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def format_span(seconds: float) -> str:
    """Format a duration in seconds as whole minutes, hours or days, such as `26 hours` or `2 days`."""
    if seconds < 2 * _HOUR:
        return format_count(max(0, round(seconds / _MINUTE)), "minute")
    return format_count(round(seconds / _HOUR), "hour") if seconds < 2 * _DAY else format_count(round(seconds / _DAY), "day")


@attrs.frozen
class FigureMeaning:
    """The name of a figure in views, its unit if it needs one, and whether an increase is better (1), worse (-1) or neither."""

    name: str
    direction: int = 0
    unit: str = ""

    @property
    def label(self) -> str:
        """The name with the unit, such as `average open rate, %`."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def is_better(self, before: Number | None, after: Number | None) -> bool | None:
        """Return whether a change is an improvement; `None` if it is neither better nor worse, or a value is unknown."""
        if not self.direction or before is None or after is None or before == after:
            return None
        return (after > before) == (self.direction > 0)


FIGURE_MEANINGS: Final = {
    "score": FigureMeaning("score", 1),
    "severity": FigureMeaning("severity", -1),
    "critical": FigureMeaning("critical findings", -1),
    "error": FigureMeaning("errors", -1),
    "warning": FigureMeaning("warnings", -1),
    "info": FigureMeaning("notes"),
    "mailboxes": FigureMeaning("mailboxes"),
    "campaigns": FigureMeaning("campaigns"),
    "daily_limit": FigureMeaning("daily limit"),
    "sent": FigureMeaning("sent"),
    "sent_today": FigureMeaning("sent today"),
    "sent_30days": FigureMeaning("sent in 30 days"),
    "left_to_send": FigureMeaning("left to send"),
    "replied_num": FigureMeaning("replies", 1),
    "opened_14days": FigureMeaning("opened in 14 days", 1, "%"),
    "avg_open_rate": FigureMeaning("average open rate", 1, "%"),
    "avg_click_rate": FigureMeaning("average click rate", 1, "%"),
    "bounces_num": FigureMeaning("bounced", -1),
    "bounced_30days": FigureMeaning("bounced in 30 days", -1),
    "unsubscribed_num": FigureMeaning("unsubscribed", -1),
    "blacklists": FigureMeaning("blacklists", -1),
    "listed": FigureMeaning("blacklisted mailboxes", -1),
    "placeholders": FigureMeaning("unknown placeholders", -1),
    "days": FigureMeaning("delay", -1, "days"),
    "evidence": FigureMeaning("evidence"),
}
"""The meaning of every figure that can change between two audits. More e-mails sent are neither better nor worse."""


def better_or_worse(better: bool | None) -> str:  # noqa: FBT001 - the only argument
    """Return the direction of a change as text: ` (better)`, ` (worse)` or nothing."""
    return {True: " (better)", False: " (worse)", None: ""}[better]


def figure_meaning(name: str) -> FigureMeaning:
    """Return the meaning of a figure. A figure that only a user's own rule has is neither better nor worse."""
    return FIGURE_MEANINGS.get(name) or FigureMeaning(replace_unprintable(name.replace("_", " ")))
