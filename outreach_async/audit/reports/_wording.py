"""Format counts, numbers and times for human-readable reports, and make strings safe to print."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

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


def figure_name(name: str) -> str:
    """Return the display name of a metric, such as `sent in 30 days`."""
    return _FIGURE_NAMES.get(name) or replace_unprintable(name.replace("_", " "))


_FIGURE_NAMES: Final = {
    "bounced_30days": "bounced in 30 days",
    "sent_30days": "sent in 30 days",
    "opened_14days": "opened in 14 days, %",
    "avg_open_rate": "average open rate, %",
    "daily_limit": "daily limit",
    "sent_today": "sent today",
    "bounces_num": "bounced",
    "replied_num": "replies",
    "unsubscribed_num": "unsubscribed",
    "left_to_send": "left to send",
}
