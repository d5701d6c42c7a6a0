"""Format numbers and times for human-readable reports."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

from outreach_async.audit._values import DAY, HOUR, MINUTE, replace_unprintable
from outreach_async.errors import format_count
from outreach_async.models import Number

_YEAR_10000: Final = 253_402_300_800


def split_code(text: str) -> list[tuple[bool, str]]:
    return [(place % 2 == 1, part) for place, part in enumerate(text.split("`")) if part]


def format_figure(value: Number | None) -> str:
    """Format a whole number without decimals, and any other number with one. `None`, infinity and NaN become `-`."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


def format_time(at: float) -> str:
    """Format a time in Unix seconds as UTC; `an unknown time` if it is 0, or not in the years that calendars have.

    Example:
        ```python
        print(format_time(1_772_438_400))  # -> 2026-03-02 08:00 UTC
        ```
    """
    if not 0 < at < _YEAR_10000:
        return "an unknown time"
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def format_date(at: Number | None) -> str:
    return "-" if at is None or not 0 < at < _YEAR_10000 else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def format_span(seconds: float) -> str:
    """Format a duration in seconds as whole minutes, hours or days, such as `26 hours` or `2 days`."""
    if seconds < 2 * HOUR:
        return format_count(max(0, round(seconds / MINUTE)), "minute")
    return format_count(round(seconds / HOUR), "hour") if seconds < 2 * DAY else format_count(round(seconds / DAY), "day")


FIGURES: Final = {
    "score": ("score", 1),
    "severity": ("severity", -1),
    "critical": ("critical findings", -1),
    "error": ("errors", -1),
    "warning": ("warnings", -1),
    "info": ("notes", 0),
    "mailboxes": ("mailboxes", 0),
    "campaigns": ("campaigns", 0),
    "daily_limit": ("daily limit", 0),
    "sent": ("sent", 0),
    "sent_today": ("sent today", 0),
    "sent_30days": ("sent in 30 days", 0),
    "left_to_send": ("left to send", 0),
    "replied_num": ("replies", 1),
    "opened_14days": ("opened in 14 days, %", 1),
    "avg_open_rate": ("average open rate, %", 1),
    "avg_click_rate": ("average click rate, %", 1),
    "bounces_num": ("bounced", -1),
    "bounced_30days": ("bounced in 30 days", -1),
    "unsubscribed_num": ("unsubscribed", -1),
    "blacklists": ("blacklists", -1),
    "listed": ("blacklisted mailboxes", -1),
    "placeholders": ("unknown placeholders", -1),
    "days": ("delay, days", -1),
}
"""The name of every figure that can change between two audits, and whether an increase is better (1), worse (-1) or neither."""


def describe_figure(name: str) -> tuple[str, int]:
    """Return the name and the direction of a figure. One that only a user's own rule has is neither better nor worse."""
    return FIGURES.get(name) or (replace_unprintable(name.replace("_", " ")), 0)


def judge_change(name: str, before: Number | None, after: Number | None) -> str:
    """Return whether a figure became `better` or `worse`; an empty string if neither, or if a value is unknown."""
    direction = describe_figure(name)[1]
    if not direction or before is None or after is None or before == after:
        return ""
    return "better" if (after > before) == (direction > 0) else "worse"
