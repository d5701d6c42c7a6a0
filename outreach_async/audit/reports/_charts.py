"""Lay out charts over time, with dates and a scale. Pure: the templates only draw what is here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final

import attrs

from outreach_async.audit._values import valid_or_none
from outreach_async.audit.reports._days import Series, known_figure
from outreach_async.audit.reports._wording import format_figure
from outreach_async.models import Number

LEFT: Final = 46
RIGHT: Final = 416
TOP: Final = 9
FLOOR: Final = 72
"""The area of the values, in units of the chart's viewBox."""

_MAX_DATES: Final = 4
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@attrs.frozen(kw_only=True)
class Chart:
    """A chart over time. The paths are in units of the viewBox; `spoken` is the text alternative."""

    title: str
    note: str
    tone: str
    bars: str = ""
    estimates: str = ""
    gaps: str = ""
    line: str = ""
    ticks: list[tuple[float, str]]
    dates: list[tuple[float, str, str]]
    spoken: str


def format_day(day: date) -> str:
    """Return a day such as `1 Mar`."""
    return f"{day.day} {_MONTHS[day.month - 1]}"


def draw_days(series: Series, name: str, title: str, note: str, tone: str) -> Chart:
    """Draw a bar for each day. An estimate is paler, and a mark on the axis stands for an unknown day."""
    first, last = min(series), max(series)
    days = [first + timedelta(days=place) for place in range((last - first).days + 1)]
    values = [known_figure(series.get(day), name) for day in days]
    top, step = _ceiling(values), (RIGHT - LEFT) / len(days)
    width = max(1.0, step - min(2.0, step / 4))
    bars: list[str] = []
    estimates: list[str] = []
    gaps: list[str] = []
    for place, (day, value) in enumerate(zip(days, values, strict=True)):
        x = LEFT + place * step
        if value is None:
            gaps.append(f"M{x:.1f} {FLOOR}h{width:.1f}")
        elif value:
            height = max(1.0, (FLOOR - TOP) * (value / top))
            parts = estimates if series[day].estimated else bars
            parts.append(f"M{x:.1f} {FLOOR}v{-height:.1f}h{width:.1f}v{height:.1f}z")
    shown = _choose_dates(len(days))
    return Chart(
        title=title,
        note=note,
        tone=tone,
        bars="".join(bars),
        estimates="".join(estimates),
        gaps="".join(gaps),
        ticks=_ticks(top),
        dates=[(LEFT + (place + 0.5) * step, format_day(days[place]), _anchor(place, len(days))) for place in shown],
        spoken=f"{title}, {format_day(first)} to {format_day(last)}: {', '.join(map(format_figure, values))}",
    )


def draw_line(points: Sequence[tuple[float, Number | None]], title: str, tone: str, *, top: Number | None = None) -> Chart:
    """Draw a line through known values. Each point has a time in Unix seconds, and its place on the axis follows the time."""
    known = [(at, value if value is None else valid_or_none(value)) for at, value in points]
    ceiling = top or _ceiling([value for _, value in known])
    first, last = known[0][0], known[-1][0]
    span = max(last - first, 1.0)
    places = [(LEFT + (RIGHT - LEFT) * (at - first) / span, value) for at, value in known]
    drawn = [(x, FLOOR - (FLOOR - TOP) * min(1.0, value / ceiling)) for x, value in places if value is not None]
    days = [datetime.fromtimestamp(at, UTC).date() for at in (first, last)]
    dates = [(float(LEFT), format_day(days[0]), "start"), (float(RIGHT), format_day(days[1]), "end")]
    return Chart(
        title=title,
        note=format_figure(known[-1][1]),
        tone=tone,
        line="".join(f"{'L' if place else 'M'}{x:.1f} {y:.1f}" for place, (x, y) in enumerate(drawn)) + ("h.1" if drawn else ""),
        ticks=_ticks(ceiling),
        dates=dates if days[0] != days[1] else dates[1:],
        spoken=f"{title}: {', then '.join(format_figure(value) for _, value in known)}",
    )


def _ceiling(values: Sequence[Number | None]) -> Number:
    """Return the end of the scale: 1, 2 or 5 times a power of ten, at least the largest value."""
    most = max((value for value in values if value is not None), default=0)
    if most <= 1:
        return 1
    unit: int = 10 ** math.floor(math.log10(most))
    return next(step * unit for step in (1, 2, 5, 10) if step * unit >= most)


def _ticks(top: Number) -> list[tuple[float, str]]:
    values = [0, top] if top == 1 else [0, top / 2, top]
    return [(FLOOR - (FLOOR - TOP) * value / top, format_figure(value)) for value in values]


def _choose_dates(days: int) -> list[int]:
    """Return which of the days get a date: the first, the last, and some between, evenly."""
    count = min(days, _MAX_DATES)
    return sorted({round(place * (days - 1) / max(1, count - 1)) for place in range(count)})


def _anchor(place: int, days: int) -> str:
    if days <= _MAX_DATES:
        return "middle"
    return "start" if place == 0 else "end" if place == days - 1 else "middle"
