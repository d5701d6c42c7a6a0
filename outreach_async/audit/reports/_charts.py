"""Sum the figures of days, and lay out charts of them, with dates and a scale. Pure: the templates only draw what is here."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import Any, Final

import attrs

from outreach_async.audit._values import valid_or_none
from outreach_async.audit.history import DayFigures
from outreach_async.audit.reports._wording import format_figure
from outreach_async.models import Number

LEFT: Final = 46
RIGHT: Final = 416
TOP: Final = 9
FLOOR: Final = 72
"""The area of the values, in units of the chart's viewBox."""
TONES: Final = {"sent": "info", "replied": "good", "bounced": "critical"}
_FIGURES: Final = (*TONES, "opened")
_MAX_DATES: Final = 4
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

Series = dict[date, DayFigures]
"""The figures of the known days. If `spread_over` is above 1, they are estimates."""


def index_days(days: Iterable[DayFigures], workspaces: Collection[str]) -> dict[tuple[str, ...], Series]:
    """Add up daily figures: by `()` of everything, by `(workspace,)`, and by `(workspace, campaign)`."""
    # Days of domains and mailboxes, of other workspaces, and without a known figure, are left out.
    covered, found = set(workspaces), defaultdict[tuple[str, ...], list[DayFigures]](list)
    for each in days:
        if each.workspace not in covered or each.sent_today is not None:
            continue
        if each.id == each.workspace:
            found[()].append(each)
        found[(each.workspace,) if each.id == each.workspace else (each.workspace, each.id)].append(each)
    return {subject: series for subject, known in found.items() if (series := add_days(known))}


def add_days(days: Iterable[DayFigures]) -> Series:
    by_day: dict[date, list[DayFigures]] = {}
    for figures in days:
        by_day.setdefault(date.fromisoformat(figures.date), []).append(figures)
    sums = {day: reduce(_add, by_day[day]) for day in sorted(by_day)}
    return {day: each for day, each in sums.items() if any(known_figure(each, name) is not None for name in TONES)}


def _add(one: DayFigures, other: DayFigures) -> DayFigures:
    pairs = {name: (known_figure(one, name), known_figure(other, name)) for name in _FIGURES}
    # A sum that lacks a part looks like a bad day.
    sums: dict[str, Any] = {name: None if None in pair else sum(pair) for name, pair in pairs.items()}
    return attrs.evolve(one, **sums, spread_over=max(one.spread_over, other.spread_over))


def total(series: Series, name: str) -> Number | None:
    known = [figure for each in series.values() if (figure := known_figure(each, name)) is not None]
    return sum(known) if known else None


def known_figure(figures: DayFigures, name: str) -> Number | None:
    figure = getattr(figures, name)
    return None if figure is None else valid_or_none(figure)


def last_days(series: Series, most: int) -> Series:
    last = max(series, default=None)
    return {day: each for day, each in series.items() if last is not None and (last - day).days < most}


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


def draw_days(
    known: Mapping[date, Number | None], title: str, note: str, tone: str, *, estimated: Collection[date] = ()
) -> Chart:
    """Draw a bar for each day. An estimate is paler, and a mark on the axis stands for an unknown day."""
    first, last = min(known), max(known)
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
            height = max(1.0, (FLOOR - TOP) * (value / top))
            paths[f"{tone} pale" if day in estimated else tone] += f"M{x:.1f} {FLOOR}v{-height:.1f}h{width:.1f}v{height:.1f}z"
    # The first and the last day have a date, and some between, evenly.
    count = min(len(days), _MAX_DATES)
    shown = sorted({round(place * (len(days) - 1) / max(1, count - 1)) for place in range(count)})
    anchors = {0: "start", len(days) - 1: "end"} if len(days) > _MAX_DATES else {}
    ticks = [0, top] if top == 1 else [0, top / 2, top]
    return Chart(
        title=title,
        note=note,
        tone=tone,
        paths=[(style, path) for style, path in paths.items() if path],
        ticks=[(FLOOR - (FLOOR - TOP) * value / top, format_figure(value)) for value in ticks],
        dates=[(LEFT + (place + 0.5) * step, format_day(days[place]), anchors.get(place, "middle")) for place in shown],
        spoken=f"{title}, {format_day(first)} to {format_day(last)}: {', '.join(map(format_figure, values))}",
    )
