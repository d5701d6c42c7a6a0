"""Add up the figures of days, and lay out charts of them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import attrs

from outreach_async.audit._values import format_figure, format_percent, sum_or_none, valid_or_none
from outreach_async.audit.history import DayFigures
from outreach_async.models import Number

LEFT: Final = 46
RIGHT: Final = 416
TOP: Final = 9
FLOOR: Final = 72
"""The area of the values, in units of the chart's viewBox."""
TONES: Final = {"sent": "info", "replied": "good", "interested": "good", "bounced": "critical"}
_MAX_DATES: Final = 4
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

Series = dict[date, DayFigures]
"""The figures of the known days. If `spread_over` is above 1, they are estimates."""
Days = Mapping[tuple[str, ...], Series]
"""Series by `()` of everything, by `(workspace,)`, and by `(workspace, campaign)`."""


def index_days(days: Iterable[DayFigures], workspaces: Collection[str]) -> Days:
    covered = set(workspaces)
    found = defaultdict[tuple[str, ...], defaultdict[date, list[DayFigures]]](lambda: defaultdict(list))
    for each in days:
        if each.workspace in covered:
            subjects = [(), (each.workspace,)] if each.id == each.workspace else [(each.workspace, each.id)]
            for subject in subjects:
                found[subject][date.fromisoformat(each.date)].append(each)
    series = dict[tuple[str, ...], Series]()
    for subject, known in found.items():
        sums = {day: _add_up(known[day]) for day in sorted(known)}
        if kept := {day: each for day, each in sums.items() if any(getattr(each, name) is not None for name in TONES)}:
            series[subject] = kept
    return series


def _add_up(known: Sequence[DayFigures]) -> DayFigures:
    # A sum that lacks a part looks like a bad day.
    sums: dict[str, Any] = {name: sum_or_none(getattr(each, name) for each in known) for name in (*TONES, "opened")}
    return attrs.evolve(known[0], **sums, spread_over=max(each.spread_over for each in known))


def total(series: Series, name: str) -> Number | None:
    known = [figure for each in series.values() if (figure := getattr(each, name)) is not None]
    return sum(known) if known else None


def last_days(series: Series, most: int) -> Series:
    last = max(series, default=None)
    return {day: each for day, each in series.items() if last is not None and (last - day).days < most}


def format_share(part: Number | None, whole: Number | None) -> str:
    return "-" if part is None or not whole or part > whole else format_percent(part / whole)


@attrs.frozen(kw_only=True)
class Chart:
    """A chart over time. The paths, each with its style, are in units of the viewBox; `spoken` is the text alternative."""

    title: str
    note: str
    tone: str
    paths: list[tuple[str, str]]
    ticks: list[tuple[float, str]]
    dates: list[tuple[float, str, str]]
    spoken: str


def format_day(day: date) -> str:
    return f"{day.day} {_MONTHS[day.month - 1]}"


def day_of(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date()


def draw_trend(series: Series, name: str) -> Chart:
    """Draw a bar for each day. An estimate is paler, and a mark on the axis stands for an unknown day."""
    first, last, tone, title = min(series), max(series), TONES[name], f"{name.capitalize()} per day"
    known = {day: getattr(each, name) for day, each in series.items()}
    days = [first + timedelta(days=place) for place in range((last - first).days + 1)]
    values = [None if (value := known.get(day)) is None else valid_or_none(value) for day in days]
    most = max((value for value in values if value is not None), default=0)
    # The scale ends at 1, 2 or 5 times a power of ten.
    unit: int = 10 ** math.floor(math.log10(most)) if most > 1 else 1
    top, step = next(each * unit for each in (1, 2, 5, 10) if each * unit >= most), (RIGHT - LEFT) / len(days)
    width = max(1.0, step - min(2.0, step / 4))
    paths = {"gap": "", tone: "", f"{tone} pale": ""}
    for place, (day, value) in enumerate(zip(days, values, strict=True)):
        x = LEFT + place * step
        if value is None:
            paths["gap"] += f"M{x:.1f} {FLOOR}h{width:.1f}"
        elif value:
            height, style = max(1.0, (FLOOR - TOP) * (value / top)), f"{tone} pale" if series[day].spread_over > 1 else tone
            paths[style] += f"M{x:.1f} {FLOOR}v{-height:.1f}h{width:.1f}v{height:.1f}z"
    # The first and the last day have a date, and some between, evenly.
    count = min(len(days), _MAX_DATES)
    shown = sorted({round(place * (len(days) - 1) / max(1, count - 1)) for place in range(count)})
    anchors = {0: "start", len(days) - 1: "end"} if len(days) > _MAX_DATES else {}
    part, ticks = total(series, name), [0, top] if top == 1 else [0, top / 2, top]
    rate = "-" if name == "sent" else format_share(part, total(series, "sent"))
    share = "" if rate == "-" else f" ({rate} of sent)"
    return Chart(
        title=title,
        note=f"{format_figure(known[last])} on {format_day(last)}; {format_figure(part)}{share} in {len(series):,} days",
        tone=tone,
        paths=[(style, path) for style, path in paths.items() if path],
        ticks=[(FLOOR - (FLOOR - TOP) * value / top, format_figure(value)) for value in ticks],
        dates=[(LEFT + (place + 0.5) * step, format_day(days[place]), anchors.get(place, "middle")) for place in shown],
        spoken=f"{title}, {format_day(first)} to {format_day(last)}: {', '.join(map(format_figure, values))}",
    )
