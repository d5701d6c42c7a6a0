"""A second opinion on drawn histories: the figures of each day, computed from all readings one by one, without SQL."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
from support.audit import mailbox
from support.campaigns import DAY
from support.histories import START, DrawnWorld, Sent

from outreach_async.audit.history import DayFigures, History
from outreach_async.models import Mailbox

Key = tuple[str, str]
Figures = dict[str, Any]
_CAMPAIGN: Final = {name: name for name in ("sent", "opened", "replied", "interested", "bounced")} | {"added": "contacts"}
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
    totals = {name: [each and getattr(each, total) for each in read] for name, total in _CAMPAIGN.items()}
    fallen = _fallen_days(seen, key, {name: values for name, values in totals.items() if name != "added"})
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


class Drawn:
    """A world that is drawn day by day, its history, and all that was read of it."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.history = History(folder / "history.db", clock=lambda: self.now)
        self.world = DrawnWorld(["space_1", "space_2"])
        self.chance, self.now, self.number = chance, START, 0
        self.adding = random.Random(1)  # noqa: S311 - a sample
        self.seen: list[Seen] = []
        self.opened: dict[tuple[str, str], float] = {}
        self.away: dict[str, Any] = {}
        for space in self.world.workspaces:
            self.world.boxes[space] = [mailbox(id=f"fixed_{space}", email=f"f@{space}.example")]
        for _ in range(4):
            self.add()

    def add(self) -> None:
        self.number += 1
        space, created = self.chance.choice(self.world.workspaces), self.chance.choice([self.now - 400 * DAY, self.now])
        sent, days_left = self.chance.randint(0, 9), self.chance.choice([0, 10])
        self.world.campaigns[f"camp_{self.number}"] = Sent(
            space, created, sent, days_left=days_left, name=f"Spring {self.number}"
        )
        box = mailbox(
            id=f"box_{self.number}", email=f"{self.number}@{self.chance.choice('ab')}.example", created_at=created, sent_90days=0,
            bounced_30days=0,
        )  # fmt: skip
        self.world.boxes[space].append(box)

    def move(self) -> None:
        """Move something to the other workspace, put it away, or let it return."""
        for each in self.chance.sample(sorted(self.world.campaigns), min(1, len(self.world.campaigns))):
            sent = self.world.campaigns[each]
            match self.chance.choice(["move", "put away", "reset", "rename"]):
                case "move":
                    sent.workspace = "space_2" if sent.workspace == "space_1" else "space_1"
                case "put away":
                    self.away[each] = self.world.campaigns.pop(each)
                case "reset":
                    sent.sent, sent.replied, sent.interested = 0, 0, 0
                case "rename":
                    sent.name += "!"
        if self.away and self.chance.random() < 0.5:
            self.world.campaigns |= dict([self.away.popitem()])
        here, there = self.chance.sample(self.world.workspaces, 2)
        if len(self.world.boxes[here]) > 1 and self.chance.random() < 0.5:
            self.world.boxes[there].append(self.world.boxes[here].pop())
        self.world.troubled ^= {self.chance.choice(["fixed_space_1", "fixed_space_2"])}

    def pass_time(self) -> None:
        self.now += self.chance.choice([0.1, 1, 1, 1, 3]) * DAY
        for sent in self.world.campaigns.values():
            if self.chance.random() < 0.6:
                sent.sent += self.chance.randint(1, 9)
                sent.replied += self.chance.randint(0, 2)
                sent.interested += self.chance.randint(0, 1)
                sent.contacts += self.adding.randint(-1, 9)
        for boxes in self.world.boxes.values():
            boxes[:] = [
                box if box.id.startswith("fixed") and self.chance.random() < 0.6
                else attrs.evolve(box, sent_90days=box.sent_90days + self.chance.randint(0, 9), sent_today=int(self.now))
                for box in boxes
            ]  # fmt: skip

    def read(self) -> None:
        world, chance = self.world, self.chance
        spaces = chance.choice([world.workspaces, world.workspaces, ["space_1"]])
        unread = {space for space in spaces if chance.random() < 0.15}
        things = [*world.campaigns, *(box.id for boxes in world.boxes.values() for box in boxes)]
        lost = {each for each in things if chance.random() < 0.05}
        assert self.history.append(*world.read(self.now, unread, workspaces=spaces, lost=lost))
        boxes = {(space, box.id): box for space in spaces for box in world.boxes[space]}
        states: dict[str, str] = {}
        for space in spaces:
            own = {*world.campaigns_of(space), *(box.id for box in world.boxes[space])}
            states[space] = "none" if space in unread or own <= lost else "partial" if own & lost else "complete"
        read = {space for space in spaces if space not in unread}
        campaigns = {(sent.workspace, id_): attrs.evolve(sent) for id_, sent in world.campaigns.items()}
        shown = {key: box for key, box in boxes.items() if key[0] in read and key[1] not in lost}
        self.seen.append(
            Seen(
                self.now,
                states,
                {key: sent for key, sent in campaigns.items() if key[0] in read and key[1] not in lost},
                shown,
                frozenset(key for key in shown if key[1] in world.troubled),
            )
        )
        self.opened = opened_by(self.seen, self.opened)

    def prune(self) -> None:
        keep = self.chance.choice([1.5, 4, 9]) * DAY
        self.seen = [each for each in self.seen if each.at >= self.seen[-1].at - keep]
        self.history.prune(keep)

    def be_ahead(self) -> None:
        """Append what a clock that is ahead by years reads, find that it blocks the next audit, and delete it."""
        report, readings = self.world.read(self.now + 2000 * DAY, lost=set(list(self.world.campaigns)[:1]))
        assert self.history.append(report, readings)
        with pytest.warns(RuntimeWarning, match=r"is later than now; nothing was appended: .* history prune .* --after 2026-"):
            assert not self.history.append(*self.world.read(self.now))
        assert self.history.prune(after=self.now) == 1

    def check(self) -> None:
        assert shown_by(self.history) == figures_of(self.seen)
        found = self.history.opened(self.world.workspaces)
        known = {space: at for (space, rule, _), at in found.items() if rule == "OA101"}
        assert known == {space: at for (space, _), at in self.opened.items()}
        for each in self.history.daily("campaign", days=3):
            key = each.workspace or "", each.id
            assert each.name == next(seen.campaigns[key].name for seen in reversed(self.seen) if key in seen.campaigns)
