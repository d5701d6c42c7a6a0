"""The figures of a day, for the trends on an HTML page."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import reduce
from typing import Any, Final

import attrs

from outreach_async.audit._values import valid_or_none
from outreach_async.audit.history import DayFigures
from outreach_async.models import Number

FIGURES: Final = ("sent", "replied", "bounced", "opened")


@attrs.frozen(kw_only=True)
class DailyFigures:
    """The figures of a workspace, or of one of its campaigns, on one day. An unknown figure is `None`."""

    # `campaign` is `None` for the figures of a whole workspace. A total that was spread over several days is `estimated`.

    day: date
    workspace: str
    campaign: str | None = None
    sent: Number | None = None
    replied: Number | None = None
    bounced: Number | None = None
    opened: Number | None = None
    estimated: bool = False


def read_days(days: Iterable[DayFigures]) -> list[DailyFigures]:
    """Return the figures of workspaces and campaigns from a history; those of domains and mailboxes are left out."""
    return [
        DailyFigures(
            day=date.fromisoformat(each.date),
            workspace=each.workspace,
            campaign=None if each.id == each.workspace else each.id,
            sent=each.sent,
            replied=each.replied,
            bounced=each.bounced,
            opened=each.opened,
            estimated=each.spread_over > 1,
        )
        for each in days
        if each.workspace is not None and each.sent_today is None
    ]


Series = dict[date, DailyFigures]
"""The figures of the known days."""


def add_days(days: Iterable[DailyFigures]) -> Series:
    """Return the sums of figures by day. A sum that lacks a figure is an estimate."""
    by_day: dict[date, list[DailyFigures]] = {}
    for figures in days:
        by_day.setdefault(figures.day, []).append(figures)
    return {day: reduce(_add, by_day[day]) for day in sorted(by_day)}


def _add(one: DailyFigures, other: DailyFigures) -> DailyFigures:
    lacking = any((getattr(one, name) is None) != (getattr(other, name) is None) for name in FIGURES[:3])
    sums: dict[str, Any] = {name: _sum(getattr(one, name), getattr(other, name)) for name in FIGURES}
    return attrs.evolve(one, **sums, estimated=one.estimated or other.estimated or lacking)


def _sum(one: Number | None, other: Number | None) -> Number | None:
    known = [figure for figure in (one, other) if figure is not None]
    return sum(known) if known else None


def total(series: Series, name: str) -> Number | None:
    """Return the sum of a figure over days; `None` if no day has it."""
    known = [figure for each in series.values() if (figure := known_figure(each, name)) is not None]
    return sum(known) if known else None


def known_figure(figures: DailyFigures | None, name: str) -> Number | None:
    """Return a figure of a day; `None` if it is unknown or impossible."""
    figure = None if figures is None else getattr(figures, name)
    return None if figure is None else valid_or_none(figure)


def last_days(series: Series, most: int) -> Series:
    """Return the figures of the last `most` days, which end at the last known day."""
    last = max(series, default=None)
    return {day: each for day, each in series.items() if last is not None and (last - day).days < most}
