"""Validate and format numbers and times, compute confidence bounds, and parse relative times."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import field, make_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeVar

import attrs

from outreach_async.errors import InvalidRequest, format_count
from outreach_async.models import Number

Class = TypeVar("Class", bound=type)


def to_json_values(value: Any) -> dict[str, Any]:
    """Convert an attrs object to a dict of JSON-compatible values, with the fields in the order of the class."""
    return attrs.asdict(value, value_serializer=lambda _owner, _field, item: item.value if isinstance(item, Enum) else item)


def table_row(kind: Class) -> Class:
    """Decorate an attrs class: pandas and polars then make tables of lists of its objects, as they do of dataclasses."""
    fields = []
    for each in attrs.fields(kind):
        default: Any = each.default
        if default is attrs.NOTHING:
            options: dict[str, Any] = {}
        else:
            options = {"default_factory": default.factory} if isinstance(default, attrs.Factory) else {"default": default}  # type: ignore[arg-type]  # its stub is a function
        fields.append((each.name, each.type or Any, field(**options)))
    made: Any = make_dataclass(kind.__name__, fields, init=False, repr=False, eq=False, kw_only=True)
    kind.__dataclass_fields__ = made.__dataclass_fields__  # type: ignore[attr-defined]  # it is added here
    return kind


_LOG_RISK: Final = math.log(0.05) - 1e-8
"""Logarithm of the risk that a confidence bound is wrong: just below 5 %, so that rounding errors never raise it above 5 %."""
_MAX_TRIALS: Final = 1_000_000
MAX_FIGURE: Final = 10**15
"""The largest plausible number in a response. Floating-point numbers represent all whole numbers up to this size exactly."""


def valid_or_none(value: Number) -> Number | None:
    return value if 0 <= value <= MAX_FIGURE else None


def figure_or_none(value: object) -> Number | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_FIGURE:
        return value
    return None


def sum_or_none(values: Iterable[object]) -> Number | None:
    """Return the sum of the values; `None` if any value is missing or an invalid number."""
    figures = [figure_or_none(value) for value in values]
    return sum(figure for figure in figures if figure is not None) if None not in figures else None


def valid_or_zero(value: Number) -> Number:
    return valid_or_none(value) or 0


def format_number(value: Number) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,.2f}"


def format_percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def format_at_least(share: float) -> str:
    """Format a lower bound as a percentage, rounded down: a rate above the bound is not always above the rounded bound."""
    return format_percent(math.floor(1000 * share) / 1000)


def format_at_most(share: float) -> str:
    return format_percent(math.ceil(1000 * share) / 1000)


def lower_bound(events: Number, trials: Number) -> float:
    """Return the lower bound of the true rate with 95 % confidence (the exact one-sided bound of Clopper and Pearson)."""
    # A rule compares this bound with its threshold, because the measured rate of a small sample is inaccurate. If the true rate
    # is below the threshold, the bound reaches the threshold in at most 5 % of the cases, for every threshold and sample. For
    # example, assume a threshold of 2 % for the bounce rate. A mailbox with a true rate of 1 % has sent 200 e-mails: its measured
    # rate exceeds the threshold in 1 of 20 cases, but the bound does so in only 1 of 1,000 cases. Another mailbox with a true
    # rate of 5 % has sent 660 e-mails: the bound exceeds the threshold in 99.5 % of the cases.
    # Rounding in these directions, and fewer trials at the same rate, only lower the bound.
    count, least = math.ceil(trials), math.floor(min(events, trials))
    if count > _MAX_TRIALS:
        count, least = _MAX_TRIALS, least * _MAX_TRIALS // count
    if not least:
        return 0.0
    # The bound is the rate at which `least` or more events have a probability of 5 %. The logarithm of this probability is a
    # concave function of the logarithm of the rate. Newton's method therefore converges from any start, and from below.
    combinations = math.lgamma(count + 1) - math.lgamma(least + 1) - math.lgamma(count - least + 1)
    log_rate, step = math.log(least / (count + 1)), math.inf
    while abs(step) > 1e-9:  # noqa: PLR2004 - relative error; the next step would be far smaller
        rate = math.exp(log_rate)
        log_exactly = combinations + least * log_rate + (count - least) * math.log1p(-rate)
        ratio = _tail_ratio(least, count, rate / (1 - rate))
        step = (log_exactly + math.log(ratio) - _LOG_RISK) * ratio / least
        log_rate -= step
    return math.exp(log_rate)


def _tail_ratio(least: int, count: int, odds: float) -> float:
    """Return the probability of `least` or more events, divided by the probability of exactly `least` events."""
    total = term = 1.0
    for events in range(least, count):
        term *= (count - events) / (events + 1) * odds
        total += term
        if term < 1e-17 * total:
            break
    return total


def upper_bound(events: Number, trials: Number) -> float:
    return 1.0 - lower_bound(trials - min(events, trials), trials)


MINUTE: Final = 60.0
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


@attrs.frozen
class Interval:
    """The time since an event, as a range in seconds. The range is negative for an event in the future."""

    least: float
    most: float


# A relative time such as `2 months ago` is rounded, so it is parsed as the interval of all times that it may mean. The library
# dayjs rounds to the nearest number, and writes `a day`. Others round down, and write `1 day`. The intervals allow for both.
_UNITS: Final = {
    "second": (Interval(0, 44.5), 1.0, 1.0),
    "minute": (Interval(44.5, 89.5), MINUTE, MINUTE),
    "hour": (Interval(44.5 * MINUTE, 89.5 * MINUTE), HOUR, HOUR),
    "day": (Interval(21.5 * HOUR, 35.5 * HOUR), DAY, DAY),
    "week": (Interval(6.5 * DAY, 14 * DAY), 7 * DAY, 7 * DAY),  # dayjs has no weeks, but similar libraries do
    # dayjs writes `a month` for up to 45 days, or for up to 1.5 months, and `a year` for 10.5 to 18 months.
    "month": (Interval(25.5 * DAY, 46.5 * DAY), 28 * DAY, 31 * DAY),
    "year": (Interval(10.5 * 28 * DAY, 549 * DAY), 365 * DAY, 366 * DAY),
}
"""For each unit: the durations in seconds that it can mean after `a` or `an`, and its minimum and maximum length."""

_NOW_WORDS: Final = frozenset({"just now", "now", "a few seconds", "few seconds", "seconds"})
_RELATIVE_TIME: Final = re.compile(r"(?:(an?)|(\d{1,6})) (second|minute|hour|day|week|month|year)s?")


@lru_cache(maxsize=16_384)  # the same words occur thousands of times in a page of mailboxes
def parse_relative_time(text: str) -> Interval | None:
    words = " ".join(text.lower().split())
    if words.startswith("in "):
        span = _parse_span(words[3:])
        return span and Interval(-span.most, -span.least)
    return _parse_span(words.removesuffix(" ago"))


def _parse_span(words: str) -> Interval | None:
    if words in _NOW_WORDS:
        return _UNITS["second"][0]
    found = _RELATIVE_TIME.fullmatch(words)
    if found is None:
        return None
    article, count, unit = found.groups()
    single, shortest, longest = _UNITS[unit]
    # The count was rounded either to the nearest number or down.
    return single if article else Interval(max(0.0, (int(count) - 0.5) * shortest), (int(count) + 1) * longest)


def replace_unprintable(text: str) -> str:
    """Replace unprintable characters with `?`, because strings from the service may contain control characters."""
    return text if text.isprintable() else "".join(character if character.isprintable() else "?" for character in text)


_YEAR_10000: Final = 253_402_300_800


def require_time(_instance: object, field: attrs.Attribute[float], value: float) -> None:
    if not 0 <= value < _YEAR_10000:  # also not a number
        got = f"expected a time in Unix seconds, before the year 10000, got {value!r}"
        raise InvalidRequest(f"{field.name}: {got}; correct the clock or the file that it is from")


def format_figure(value: Number | None) -> str:
    """Format a whole number without decimals, and any other number with one. `None`, infinity and NaN become `-`."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    return f"{int(value):,}" if value == int(value) else f"{value:,.1f}"


def format_time(at: float) -> str:
    """Format Unix seconds as UTC; `an unknown time` if 0 or out of range.

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
