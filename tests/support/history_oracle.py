"""A second opinion on histories: the figures of each day, computed from all readings one by one, without SQL."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final

import attrs
from support.campaigns import DAY
from support.histories import Sent

from outreach_async.audit.history import DayFigures, History
from outreach_async.models import Mailbox

Key = tuple[str, str]
Figures = dict[str, Any]
_CAMPAIGN: Final = ("sent", "opened", "replied", "interested", "bounced")
_WINDOWS: Final = {"sent": ("sent_90days", 89), "bounced": ("bounced_30days", 29)}
_LEVELS: Final = ("sent_today", "sent_30days", "bounced_30days")


@attrs.frozen
class Seen:
    """What one audit read: the state of each workspace, and copies of the campaigns and mailboxes by workspace and id."""

    at: float
    states: Mapping[str, str]
    campaigns: Mapping[Key, Sent]
    boxes: Mapping[Key, Mailbox]
    troubled: frozenset[Key]

    @property
    def day(self) -> int:
        return int(self.at // DAY)


def figures_of(seen: Sequence[Seen]) -> dict[tuple[str, str, int], Figures]:
    """Return the known and unknown figures by kind, subject and day."""
    found: dict[tuple[str, str, int], Figures] = {}
    sums: defaultdict[tuple[str, str, int], list[Figures]] = defaultdict(list)
    for key in sorted({key for each in seen for key in each.campaigns}):
        days = _campaign_days(seen, key)
        for day, figures in days.items():
            found["campaign", key[1] + "@" + key[0], day] = figures
            sums["workspace", key[0], day].append(figures)
    for key in sorted({key for each in seen for key in each.boxes}):
        domain = next(each.boxes[key].email.partition("@")[2] for each in reversed(seen) if key in each.boxes)
        for day, figures in _mailbox_days(seen, key).items():
            found["mailbox", key[1] + "@" + key[0], day] = figures
            sums["domain", domain, day].append(figures)
    for place, parts in sums.items():
        found[place] = {name: _sum(part[name] for part in parts) for name in parts[0]}
    for space, day in {(space, each.day) for each in seen for space in each.states}:
        found.setdefault(("workspace", space, day), dict.fromkeys(_CAMPAIGN))
    return {place: {name: _round(value) for name, value in figures.items()} for place, figures in found.items()}


def shown_by(history: History) -> dict[tuple[str, str, int], Figures]:
    """Return the same from a history."""
    found = {}
    for kind, names in (("campaign", _CAMPAIGN), ("workspace", _CAMPAIGN), ("mailbox", BOX), ("domain", BOX)):
        for each in history.daily(kind, days=10_000):  # type: ignore[arg-type]  # the four kinds
            subject = each.id if kind in {"workspace", "domain"} else f"{each.id}@{each.workspace}"
            found[kind, subject, _day_of(each)] = {name: _round(getattr(each, name)) for name in names}
    return found


BOX: Final = (*_WINDOWS, *dict.fromkeys(_LEVELS))


def opened_by(seen: Sequence[Seen], before: Mapping[Key, float]) -> dict[Key, float]:
    """Return since when each mailbox has its finding, after the last of `seen`."""
    last = seen[-1]
    known = {key: at for key, at in before.items() if key in last.troubled or last.states.get(key[0]) != "complete"}
    return dict.fromkeys(last.troubled, last.at) | known


def _round(value: Any) -> Any:
    return None if value is None else round(float(value), 6)


def _day_of(figures: DayFigures) -> int:
    return int(datetime.fromisoformat(figures.date).replace(tzinfo=UTC).timestamp() // DAY)


def _sum(parts: Iterable[Any]) -> Any:
    known = list(parts)
    return None if None in known else sum(known)


@attrs.define
class _Days:
    """Collects the parts of each day: a day is unknown if one of them is."""

    parts: defaultdict[int, list[Any]] = attrs.Factory(lambda: defaultdict(list))

    def add(self, after: int, until: int, total: Any) -> None:
        days = range(min(after + 1, until), until + 1)
        for day in days:
            self.parts[day].append(None if total is None else Fraction(total) / len(days))

    def sums(self) -> dict[int, Any]:
        return {day: _sum(parts) for day, parts in self.parts.items()}


def _differences(
    seen: Sequence[Seen], key: Key, values: Sequence[Any], created: float, known: Callable[[Seen], bool]
) -> dict[int, Any]:
    """Return the differences of one total per day. `values` has the total in each of `seen`, or `None`."""
    space, days = key[0], _Days()
    about = [(each, value) for each, value in zip(seen, values, strict=True) if space in each.states]
    last: tuple[Seen, Any] | None = None  # the last reading with the thing
    absent: Seen | None = None  # the last one since then that proves that it is not there
    before: Seen | None = None  # the last one of the workspace
    for each, value in about:
        if value is None:
            if each.states[space] == "complete":
                if last is not None and absent is None:
                    days.add(last[0].day, each.day, None)
                absent = each
        elif last is not None and absent is None:
            fell = value < last[1] or not known(each)
            days.add(last[0].day, each.day, None if fell else value - last[1])
            last = each, value
        elif last is None and before is not None and created > before.at:
            days.add(before.day, each.day, value if known(each) else None)
            last, absent = (each, value), None
        else:
            begin = about[0][0].day - 1 if absent is None else absent.day
            days.add(max(begin, int(created // DAY) - 1), each.day, None)
            last, absent = (each, value), None
        before = each if each.states[space] != "none" else before
    if last is not None and absent is None and about[-1][0].day > last[0].day:
        days.add(last[0].day, about[-1][0].day, None)
    return days.sums()


def _campaign_days(seen: Sequence[Seen], key: Key) -> dict[int, Figures]:
    read = [each.campaigns.get(key) for each in seen]
    created = next(each.created for each in read if each is not None)
    found: defaultdict[int, Figures] = defaultdict(dict)
    totals = {name: [each and getattr(each, name) for each in read] for name in _CAMPAIGN}
    fallen = _fallen_days(seen, key, totals)
    for name, values in totals.items():
        for day, value in _differences(seen, key, values, created, lambda _: True).items():
            found[day][name] = None if day in fallen else value
    return found


def _fallen_days(seen: Sequence[Seen], key: Key, totals: Mapping[str, Sequence[Any]]) -> set[int]:
    """Return the days on which one total fell: the campaign was reset, so the others prove nothing either."""
    fallen: set[int] = set()
    last: tuple[int, dict[str, Any]] | None = None
    for place, each in enumerate(seen):
        values = {name: column[place] for name, column in totals.items()}
        if values["sent"] is not None:
            if last is not None and any(values[name] < last[1][name] for name in values):
                fallen |= set(range(min(last[0] + 1, each.day), each.day + 1))
            last = each.day, values
        elif each.states.get(key[0]) == "complete":
            last = None
    return fallen


def _mailbox_days(seen: Sequence[Seen], key: Key) -> dict[int, Figures]:
    read = [each.boxes.get(key) for each in seen]
    created = next(each.created_at for each in read if each is not None)
    found: defaultdict[int, Figures] = defaultdict(lambda: dict.fromkeys(BOX))
    for name, (total, window) in _WINDOWS.items():

        def is_young(each: Seen, window: int = window) -> bool:
            return each.at - created < window * DAY

        values = [each and getattr(each, total) for each in read]
        for day, value in _differences(seen, key, values, created, is_young).items():
            found[day][name] = value
    before: tuple[int, Mailbox] | None = None
    for each, box in zip(seen, read, strict=True):
        if box is not None:
            same = before is not None and before[1] == box
            for day in range(before[0] if before and same else each.day, each.day + 1):
                found[day] |= {name: getattr(box, name) for name in _LEVELS}
            before = each.day, box
        elif each.states.get(key[0], "none") != "none":
            before = None
    return found
