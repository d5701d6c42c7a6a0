"""Plan a workspace: when campaigns end, what limits them, and how much of the daily limits stays unused.

A plan is computed from what an audit reads, and sends nothing:

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.audit import audit
from outreach_async.audit.history import Readings
from outreach_async.audit.plan import build_plan


async def main() -> None:
    readings = Readings()
    async with OutreachClient() as client:
        report = await audit(client, ["space_1"], campaigns=True, readings=readings)
    for campaign in build_plan(readings, "space_1", at=report.at).campaigns:
        print(campaign.name, campaign.ends, campaign.limit)  # -> Spring 2026-... to 2026-...
    faster = build_plan(readings, "space_1", at=report.at, add_mailboxes=3)


anyio.run(main)
```

`outreach-async plan` does the same, and `brief` contains the plans.

The service shows neither which mailbox serves which campaign, nor on which
days it sends. Each end is therefore a range. `days_left`, the waits of the
steps and the e-mails left give the speed of a campaign, and the number of
campaigns of each mailbox says what may be shared. All campaigns are then
simulated day by day, with assumptions under which they end early, late,
and most likely.

In drawn worlds of `outreach_async.fake`, about 97 % of the true ends lay
in their ranges, half of the ranges were no wider than the time that
remained, and half of the likely days were at most a day off. No service
was measured. With the readings of a week before, a plan says how many of
the ranges of that week have held; if several have not, it leaves out the
likely days.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import add
from statistics import median
from typing import Any, Final, Self, TypeAlias

import attrs

from outreach_async._plumbing import require_number, show_name, trim
from outreach_async.audit._values import DAY, format_number, replace_unprintable, table_row, to_json_values
from outreach_async.audit.history._tables import CAMPAIGN, MAILBOX, STEP, Entity, Readings, records_of, storable
from outreach_async.errors import InvalidRequest, format_count
from outreach_async.models import CampaignStatus, MailboxStatus, Number

__all__ = ["CampaignPlan", "WorkspacePlan", "build_plan"]

_HORIZON: Final = 400  # days that are simulated
_UNKNOWN: Final = 9_000  # more days left than this say that no mailbox sends
_NAMES: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEK: Final = (0, 1, 2, 3, 4, 5, 6)
_WORKDAYS: Final = _WEEK[:5]
_NO_MAILBOX: Final = "no active mailbox sends for it"
_SCORED_AFTER: Final = 6 * DAY  # seconds
_MISSES: Final = 2  # ranges of the week before, from which on likely days are left out
_HELD: Final = 0.8  # unless this share of them has held
_LIMITS: Final = ("waits between steps", "daily limits and waits", "daily limits")
_GAINS: Final = (0.1, 0.3)  # of its time, from which on limits slow a campaign too, or alone: doubled limits would save more


@table_row
@attrs.frozen(kw_only=True)
class CampaignPlan:
    """When a campaign ends. A campaign that never ends has a `reason`, and no dates.

    Attributes:
        id, name: As the service returned them.
        first, last: The range of days in which it ends, in UTC, as
            `YYYY-MM-DD`; `last` is `None` if the end may be more than 400
            days away.
        likely: The likely day; `None` if it is unknown, or left out
            because earlier ranges have not held.
        limit: What slows it down: `daily limits`, `waits between steps` or
            `daily limits and waits`.
        reason: Why it never ends, such as `step 2 is not live`.

    Example:
        ```python
        print(build_plan(readings, "space_1", at=report.at).campaigns[0].limit)  # -> daily limits
        ```
    """

    id: str
    name: str
    first: str | None = None
    last: str | None = None
    likely: str | None = None
    limit: str = ""
    reason: str = ""

    @property
    def ends(self) -> str:
        """The range, or why there is none, as text: `2026-03-02 to 2026-03-09`, `never: step 2 is not live`."""
        if self.reason:
            return f"never: {self.reason}"
        return f"{self.first} to {self.last}" if self.last else f"{self.first} or later"


@attrs.frozen(kw_only=True)
class WorkspacePlan:
    """When the campaigns of a workspace end, and what of its daily limits stays unused.

    Attributes:
        workspace: Id of the workspace.
        at: Time of the audit that read it, in Unix seconds.
        campaigns: The campaigns with e-mails left to send, without drafts:
            those that never end, then those that end first.
        capacity: E-mails that all active mailboxes may send in the seven
            days from tomorrow.
        unused: The least and the most of these e-mails that no campaign
            will send.
        held, decided: Number of ranges of the week before that have held,
            and of those whose end is decided; 0 without a history.
        assumptions: What the dates depend on, as one line.

    Example:
        ```python
        print(build_plan(readings, "space_1", at=report.at).capacity)  # -> 280
        ```
    """

    workspace: str
    at: float
    campaigns: list[CampaignPlan]
    capacity: Number
    unused: tuple[Number, Number]
    held: int
    decided: int
    assumptions: str

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-compatible values.

        Example:
            ```python
            print(list(build_plan(readings, "space_1", at=report.at).to_dict())[:2])  # -> ['workspace', 'at']
            ```
        """
        return to_json_values(self)


def describe_unused(plans: Sequence[WorkspacePlan]) -> str:
    least, most, all_ = (
        format_number(sum(each)) for each in zip(*((*plan.unused, plan.capacity) for plan in plans), strict=True)
    )
    return f"Next week, {least if least == most else f'{least} to {most}'} of {all_} e-mails of the daily limits stay unused."


def describe_held(plans: Sequence[WorkspacePlan]) -> str:
    held, decided = sum(plan.held for plan in plans), sum(plan.decided for plan in plans)
    hidden = "; likely days are left out" if any(_has_failed(plan.held, plan.decided) for plan in plans) else ""
    return f"The plan of last week held for {held:,} of {format_count(decided, 'campaign')}{hidden}." if decided else ""


def _has_failed(held: int, decided: int) -> bool:
    return decided - held >= _MISSES and held < _HELD * decided


def range_of_estimate(at: float, end: float) -> tuple[float, float]:
    """Return between which times a campaign ends of which only the service's estimate at a time is known, as in a history.

    In drawn worlds of the fake, nine of ten ends lay in it.
    """
    return at + 0.4 * max(0.0, end - at), at + 1.4 * max(0.0, end - at) + DAY


# What was read.


@attrs.define(eq=False)
class _Flow:
    """A campaign with e-mails left to send. Days are the unit of times, and e-mails a day that of speeds."""

    about: CampaignPlan
    contacts: Number
    sends: bool
    waits: Sequence[float]  # before each step
    at: Sequence[float]  # contacts whose next step this is
    exits: tuple[float, float, float]  # the share of e-mails after which a contact leaves: low, likely and high
    days_left: float  # as the service estimates; infinite if unknown
    slow: float  # its part of the limits lies between these
    fast: float


_Row: TypeAlias = Mapping[str, Any]


def _rows(readings: Readings, workspace: str, entity: Entity) -> list[_Row]:
    """Return what was read by the names of its columns. An invalid number counts as 0."""
    names = (*entity.labels, *entity.figures)
    known = ((*labels, *(figure or 0 for figure in figures)) for labels, figures in records_of(readings, workspace, entity))
    return [dict(zip(names, row, strict=True)) for row in known]


@attrs.define
class _Situation:
    """What was read of a workspace, which what-ifs change: the campaigns, and what the mailboxes may send a day."""

    weekday: int
    every: int  # campaigns, whatever their status
    flows: list[_Flow] = attrs.Factory(list)
    ended: dict[str, Number] = attrs.Factory(dict)  # the contacts of campaigns that have sent all
    boxes: dict[str, tuple[float, float, float]] = attrs.Factory(dict)  # their limits, what is left of them today, and campaigns
    total: float = 0.0
    today: float = 0.0
    shared: float = 0.0  # of mailboxes with several campaigns
    common: float = 0.0  # of mailboxes with all campaigns
    idle: float = 0.0  # of mailboxes without a campaign

    @classmethod
    def read(cls, readings: Readings, workspace: str, at: float, known: Readings, adding: Collection[str] = ()) -> Self:
        """Return what readings say. `known` has the waits, which a history lacks. `adding` campaigns will have e-mails left."""
        campaigns, steps = _rows(readings, workspace, CAMPAIGN), defaultdict[str, list[_Row]](list)
        found = cls(int(at // DAY + 3) % 7, len(campaigns))
        for row in _rows(readings, workspace, MAILBOX):
            limit = row["daily_limit"] if row["status"] == MailboxStatus.ACTIVE.value else 0
            found.boxes[row["id"]] = box = (limit, max(0, limit - row["sent_today"]), row["campaigns"])
            found.add_box(*box)
        for row in sorted(_rows(readings, workspace, STEP), key=lambda step: step["position"] or 0):
            steps[row["campaign_id"]].append(row)
        for row in campaigns:
            own = steps[row["id"]]  # none if they could not be read
            if own and row["id"] not in adding and not any(step["left_to_send"] for step in own):
                found.ended[row["id"]] = row["contacts"]
            elif own and row["status"] != CampaignStatus.DRAFT.value:
                found.flows.append(found._read_flow(row, own, readings, known))
        # The parts of all campaigns together are no more than all mailboxes may send.
        slow = sum(flow.slow for flow in found.flows)
        for flow in found.flows:
            flow.fast = min(flow.fast, max(flow.slow, found.total - (slow - flow.slow)))
        return found

    def add_box(self, limit: float, left: float, campaigns: float) -> None:
        """Add a mailbox, or with negative limits, remove it."""
        self.total += limit * (campaigns > 0)
        self.today += left * (campaigns > 0)
        self.shared += limit * (campaigns > 1)
        self.common += limit * (campaigns >= max(1, self.every))
        self.idle += limit * (campaigns == 0)

    def _read_flow(self, row: _Row, steps: Sequence[_Row], readings: Readings, known: Readings) -> _Flow:
        lefts = [step["left_to_send"] for step in steps]
        settings = [known.settings.get((row["workspace"], row["id"], step["id"]), (0.0, True)) for step in steps]
        waits, days_left = (
            [min(wait, _HORIZON) for wait, _ in settings],
            readings.days_left.get((row["workspace"], row["id"])) or math.inf,
        )
        stop = next((step for step, (_, sends) in enumerate(settings) if not sends and lefts[step]), None)
        has_mailbox = self.total > 0 and not _UNKNOWN < days_left < math.inf
        reason = "" if has_mailbox else _NO_MAILBOX
        reason = reason if stop is None else f"step {stop + 1} is not live"  # until there, it sends
        is_live = row["status"] == CampaignStatus.LIVE.value
        reason = reason if is_live else f"the campaign is {replace_unprintable(row['status'])}"
        speeds = _find_speeds(waits, lefts, days_left, self.total) if has_mailbox and is_live else (0.0, 0.0)
        parts = (limit / campaigns for limit, _, campaigns in self.boxes.values() if limit and campaigns)
        slow, fast = speeds or (min(parts), self.total)
        at = [max(0.0, left - before) for left, before in zip(lefts[:stop], [0, *lefts], strict=False)]
        about = CampaignPlan(id=row["id"], name=row["name"], reason=reason)
        exits = _find_exits(row, steps)
        return _Flow(about, row["contacts"], has_mailbox and is_live, waits[:stop], at, exits, days_left, slow, fast)


def _find_exits(campaign: _Row, steps: Sequence[_Row]) -> tuple[float, float, float]:
    sent = sum(step["already_sent"] for step in steps)
    gone = campaign["bounces_num"] + sum(step["replied_num"] + step["unsubscribed_num"] for step in steps)
    share = min(1.0, (gone + 1.6) / (sent + 20))  # 8 % until there is evidence
    spread = 2 * math.sqrt(share * (1 - share) / (sent + 20))
    # The last e-mails have not been answered yet, so the true share is higher rather than lower.
    return max(0.0, share * 0.9 - spread), min(0.9, share * 1.1), min(0.9, share * 1.25 + spread)


def _find_speeds(waits: Sequence[float], lefts: Sequence[float], days: float, most: float) -> tuple[float, float] | None:
    """Return between which speeds the service may have estimated the days left; `None` if it has no estimate."""
    if days == math.inf or not any(lefts):
        return None
    first = next(step for step, left in enumerate(lefts) if left)

    def overlap(speed: float) -> float:  # a step takes the longer of its wait and its sending
        steps = zip(waits[first:], lefts[first:], strict=True)
        return sum(max(wait, left / speed) for wait, left in steps) + min(waits[0], lefts[0] / speed)

    def add(speed: float) -> float:  # every wait comes on top
        return sum(lefts) / speed + sum(waits[first:])

    slow = _solve(overlap, days, most)
    return slow, max(slow, math.sqrt(_solve(overlap, days - 1, most) * _solve(add, days - 1, most)))


def _solve(days_at: Callable[[float], float], days: float, most: float) -> float:
    """Return the lowest speed at which an estimate is no more than a number of days; `most` if there is none below it."""
    if days <= 0 or days_at(most) >= days:
        return most
    low, high = most * 1e-6, most
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if days_at(middle) > days else (low, middle)
    return high


# The simulation.


@attrs.frozen(kw_only=True)
class _Scene:
    """One set of assumptions."""

    fast: float  # 0 is the slow end of each speed, at which waits last whole days; and 1 the fast end
    exits: int  # 0 if few contacts leave, 1 if as many as until now, 2 if many
    waited: float | None  # the part of its wait that a contact has behind it; `None` is spread evenly
    today: float  # the part of what is left of today's limits that is still used
    spill: float  # the part of what others leave of shared mailboxes that a campaign may use
    scale: float = 1.0  # of speeds
    days: tuple[int, ...] = _WEEK


_EARLY: Final = _Scene(fast=1, exits=2, waited=1.0, today=1, spill=1.0)
_LIKELY: Final = _Scene(fast=0.5, exits=1, waited=None, today=0.5, spill=0.8)
_LATE: Final = _Scene(fast=0, exits=0, waited=0.25, today=0, spill=0.2, scale=0.96, days=_WORKDAYS)
_LATE_STATED: Final = attrs.evolve(_LATE, waited=0.0, spill=0.0, scale=0.9)  # days that are stated leave no reserve
_MOST: Final = attrs.evolve(_EARLY, exits=0, today=0)
_LEAST: Final = attrs.evolve(_LATE_STATED, exits=2, today=1, scale=1.0)
"""Assumptions under which most and fewest e-mails are sent in the next week."""


class _Sending:
    """A campaign in a simulation: contacts that are due, and that wait for a day, by step."""

    def __init__(self, flow: _Flow, scene: _Scene) -> None:
        self.flow, self.scene, self.exits = flow, scene, flow.exits[scene.exits]
        self.speed: float = flow.slow ** (1 - scene.fast) * flow.fast**scene.fast * scene.scale
        self.nobody = [0.0 for _ in flow.at]
        self.due, self.waiting = self.nobody, defaultdict[int, list[float]](self.nobody.copy)
        for step, count in enumerate(flow.at):
            # Some of those who wait will leave before they are due.
            wait, stay = math.ceil(flow.waits[step]) if step else 0, 1 - self.exits / 2 if step and scene.exits else 1
            days = range(max(1, wait)) if scene.waited is None else [math.ceil(wait * (1 - scene.waited))]
            for day in days:
                self.waiting[day][step] += count * stay / len(days)

    @property
    def is_over(self) -> bool:
        return sum(self.due) + sum(map(sum, self.waiting.values())) <= (0.5 if self.scene.exits else 1e-6)

    def send(self, budget: float, day: int) -> float:
        """Send at most this many e-mails, and return how many were sent."""
        total = 0.0
        for step, count in enumerate(self.due):
            sent = max(0.0, min(budget - total, count))
            total += sent
            self.due[step] -= sent
            if sent and step + 1 < len(self.due):
                wait = self.flow.waits[step + 1]
                days = math.floor(wait) if self.scene.fast else max(1, math.ceil(wait))
                (self.waiting[day + days] if days else self.due)[step + 1] += sent * (1 - self.exits)
        return total


_Day: TypeAlias = dict[str, tuple[float, int]]
"""What each campaign has sent within its own part of the limits, and 1 if it could send more, by id; the sums are those of ""."""


def _simulate(
    found: _Situation, flows: Sequence[_Flow], scene: _Scene, others: Sequence[tuple[float, int]] = (), *, horizon: int = _HORIZON
) -> tuple[dict[str, int], list[_Day], list[float]]:
    """Return the day on which each campaign ends, and what is sent on each day, by campaigns and as a sum.

    `others` is what further campaigns send each day, and how many of them could send more.
    """
    runs, ends, sent, sums = (
        [_Sending(flow, scene) for flow in flows if flow.sends],
        dict[str, int](),
        list[_Day](),
        list[float](),
    )
    for day in range(horizon if runs else 0):
        part = (scene.today if day == 0 else 1.0) * ((found.weekday + day) % 7 in scene.days)
        total, amounts = part * (found.today if day == 0 else found.total), _Day()
        used, count = others[day] if day < len(others) else (0.0, 0)
        taken = used
        for run in runs:
            run.due = [*map(add, run.due, run.waiting.pop(day, run.nobody))]
            amount = run.send(min(run.speed * part, max(0.0, total - used)), day)
            amounts[run.flow.about.id], used = (amount, int(any(run.due))), used + amount
        # Then campaigns use what others leave of the mailboxes that they share. The best case is to come first.
        hungry = sorted((run for run in runs if any(run.due)), key=lambda run: sum(run.due))
        sent.append({**amounts, "": (used - taken, len(hungry))})
        idle = max(min(part * found.common, total) - used, scene.spill * min(part * found.shared, max(0.0, total - used)))
        for place, run in enumerate(hungry, 0 if scene.fast == 1 else -count):
            amount = run.send(max(0.0, idle / (len(hungry) - place)), day)
            idle, used = idle - amount, used + amount
        sums.append(used - taken)
        ends |= {run.flow.about.id: day for run in runs if run.is_over}
        runs = [run for run in runs if run.flow.about.id not in ends]
        if not runs:
            break
    return ends, sent, sums


def _without(sent: Sequence[_Day], id_: str) -> list[tuple[float, int]]:
    known = ((day[""], day.get(id_, (0.0, 0))) for day in sent)
    return [(total - amount, count - one) for (total, count), (amount, one) in known]


_Ends: TypeAlias = dict[str, tuple[float, float, float]]
"""The first, the likely and the last day on which each campaign may end, counted from today."""


def _find_ends(found: _Situation, days: tuple[int, ...] | None) -> _Ends:
    early, likely = (attrs.evolve(scene, days=days or _WEEK) for scene in (_EARLY, _LIKELY))
    late = attrs.evolve(_LATE_STATED, days=days) if days else _LATE
    middle, *_ = _simulate(found, found.flows, likely)
    # What is late for all other campaigns leaves more for one.
    pairs = ((late, early), (early, late))
    few, many = (_simulate(found, found.flows, attrs.evolve(scene, days=own.days))[1] for scene, own in pairs)
    ends: _Ends = {}
    for flow in (flow for flow in found.flows if not flow.about.reason):
        id_ = flow.about.id
        # The service may know better, and a few contacts that leave make the end of a campaign earlier.
        first = 0.88 * min(_simulate(found, [flow], early, _without(few, id_))[0].get(id_, math.inf), 0.9 * flow.days_left)
        last = _simulate(found, [flow], late, _without(many, id_))[0].get(id_, math.inf) + 1
        while last < math.inf and (found.weekday + last) % 7 not in late.days:
            last += 1
        first = math.floor(first) if first < _HORIZON else math.inf
        ends[id_] = first, min(max(first, middle.get(id_, math.inf)), last), last
    return ends


def _find_limits(found: _Situation, days: tuple[int, ...] | None) -> dict[str, str]:
    """Return what slows each campaign down: a campaign that waits does not end earlier if the limits are doubled."""
    scene, flows = (
        attrs.evolve(_LIKELY, days=days or _WEEK),
        [attrs.evolve(each, slow=2 * each.slow, fast=2 * each.fast) for each in found.flows],
    )
    doubled = {name: 2 * getattr(found, name) for name in ("total", "today", "shared", "common")}
    after, *_ = _simulate(attrs.evolve(found, **doubled), flows, scene)
    gains = {id_: 1 - (after[id_] + 1) / (day + 1) for id_, day in _simulate(found, found.flows, scene)[0].items()}
    return {id_: _LIMITS[sum(gain > least for least in _GAINS)] for id_, gain in gains.items()}


# What-ifs.


def _help(found: _Situation, mailboxes: float, pause: Collection[str]) -> None:
    """Add the limits of mailboxes, and pause campaigns: all others end earlier, if anything changes."""
    for flow in found.flows:
        if flow.about.id in pause and flow.sends:
            flow.about, flow.sends = attrs.evolve(flow.about, reason="this plan pauses it"), False
        elif mailboxes and flow.about.reason == _NO_MAILBOX:
            flow.about, flow.sends, flow.days_left = attrs.evolve(flow.about, reason=""), True, math.inf
    found.add_box(mailboxes, mailboxes, math.inf)
    live = [flow for flow in found.flows if flow.sends]
    for flow in live:
        flow.slow, flow.fast = flow.slow + mailboxes / len(live), flow.fast + mailboxes / len(live)


def _hinder(found: _Situation, pause: Collection[str], contacts: Mapping[str, int]) -> None:
    """Pause mailboxes, and add contacts: campaigns end later, if anything changes."""
    for limit, left, campaigns in (found.boxes[id_] for id_ in pause if id_ in found.boxes):
        found.add_box(-limit, -left, campaigns)
        for flow in found.flows:  # nobody knows which campaign loses it
            flow.slow, flow.fast = min(max(0.0, flow.slow - limit), found.total), min(flow.fast, found.total)
    for flow in found.flows:
        flow.at = [flow.at[0] + contacts.get(flow.about.id, 0), *flow.at[1:]] if flow.at else flow.at


def build_plan(
    readings: Readings,
    workspace: str,
    *,
    at: float,
    days: str | None = None,
    past: Sequence[tuple[float, Readings]] = (),
    add_mailboxes: int = 0,
    pause: Collection[str] = (),
    contacts: Mapping[str, int] | None = None,
) -> WorkspacePlan:
    """Plan a workspace from what an audit with `campaigns=True` has read.

    This function performs no I/O.

    Args:
        readings: The readings that were passed to the audit.
        workspace: Id of the workspace.
        at: Time of the audit, in Unix seconds, as `Report.at`.
        days: Days on which the service sends, such as `mon-fri` or
            `mon,wed,fri`; by default unknown: five to seven days a week.
        past: Times and readings of earlier audits, from
            `History.readings`, the oldest first, whose plan is scored.
        add_mailboxes: What if this many mailboxes served every live
            campaign, with the median limit of the others?
        pause: What if these campaigns and mailboxes, named by their ids,
            stopped sending now?
        contacts: What if these campaigns, named by their ids, got so many
            more contacts now?

    Raises:
        InvalidRequest: An argument is invalid, or names what the workspace
            does not have.

    Example:
        ```python
        plan = build_plan(readings, "space_1", at=report.at, contacts={"camp_1": 2000})
        print(plan.campaigns[0].last > build_plan(readings, "space_1", at=report.at).campaigns[0].last)  # -> True
        ```
    """
    require_number("add_mailboxes", add_mailboxes, least=0)
    stated, more, space = None if days is None else _parse_days(days), contacts or {}, storable(trim(workspace) or "")
    found = _Situation.read(readings, space, at, readings, more)
    _require_known(found, pause, more)
    limit = median([box[0] for box in found.boxes.values() if box[0]] or [0.0])
    helps, hinders = partial(_help, found, add_mailboxes * limit, pause), partial(_hinder, found, pause, more)
    ends = _find_ends(found, stated)
    for change, choose in ((helps, min), (hinders, max)) if add_mailboxes or pause or more else ():
        change()
        # A change never moves an end the other way, whatever the simulation makes of it.
        after = _find_ends(found, stated)
        ends = {id_: tuple(map(choose, ends.get(id_, new), new)) for id_, new in after.items()}  # type: ignore[misc]  # of three
    held, decided = _score(space, stated, past, (at, readings)) if past else (0, 0)
    limits, campaigns, today = _find_limits(found, stated), list[CampaignPlan](), datetime.fromtimestamp(at, UTC).date()
    for flow in found.flows:
        about = flow.about
        first, likely, last = (
            None if day == math.inf else (today + timedelta(day)).isoformat() for day in ends.get(about.id, [math.inf] * 3)
        )
        likely = None if _has_failed(held, decided) else likely
        if first:
            about = attrs.evolve(about, first=first, likely=likely, last=last, limit=limits.get(about.id, _LIMITS[-1]))
        else:
            endless = f"it has more than {_HORIZON} days to go" if found.total else _NO_MAILBOX
            about = attrs.evolve(about, reason=about.reason or endless)
        campaigns.append(about)
    capacity = 7 * (found.total + found.idle)
    weeks = (attrs.evolve(scene, days=stated or scene.days) for scene in (_MOST, _LEAST))
    most, least = (min(capacity, sum(_simulate(found, found.flows, scene, horizon=8)[2][1:])) for scene in weeks)
    return WorkspacePlan(
        workspace=space,
        at=at,
        campaigns=sorted(campaigns, key=lambda each: (each.first or "", each.last or "9", each.name, each.id)),
        capacity=capacity,
        unused=(math.floor(capacity - most), math.ceil(capacity - min(most, least))),
        held=held,
        decided=decided,
        assumptions=_assumptions(days, add_mailboxes, limit, pause, more),
    )


def _parse_days(text: str) -> tuple[int, ...]:
    days: set[int] = set()
    for part in text.lower().split(","):
        first, dash, last = part.strip().partition("-")
        if first not in _NAMES or (dash and last not in _NAMES):
            raise InvalidRequest(f"days: expected days such as mon-fri or mon,wed,fri, got {text!r}; pass their English names")
        start, end = _NAMES.index(first), _NAMES.index(last or first)
        days |= {(start + place) % 7 for place in range((end - start) % 7 + 1)}
    return tuple(sorted(days))


def _require_known(found: _Situation, pause: Collection[str], contacts: Mapping[str, int]) -> None:
    known = {flow.about.id: flow.about.reason for flow in found.flows}
    for id_ in pause:
        if id_ not in known and id_ not in found.boxes and id_ not in found.ended:
            text = f"expected the id of a mailbox, or of a campaign that is no draft, got {show_name(id_)}"
            raise InvalidRequest(f"pause: {text}; pass one of the workspace")
    for id_, count in contacts.items():
        require_number("contacts", count, least=1)
        if known.get(id_, "it has no steps, or is a draft"):
            why = known.get(id_) or "it is none of the workspace, has no steps, or is a draft"
            raise InvalidRequest(f"contacts: expected a campaign that sends, got {show_name(id_)}: {why}; pass another")


def _assumptions(days: str | None, mailboxes: int, limit: float, pause: Collection[str], contacts: Mapping[str, int]) -> str:
    what_if = [f"{format_count(mailboxes, 'more mailbox')} of {format_number(limit)} a day for every live campaign"]
    what_if = what_if if mailboxes else []
    what_if += [f"{id_} paused" for id_ in pause]
    what_if += [f"{format_count(count, 'more contact')} in {id_}" for id_, count in contacts.items()]
    return (
        "Ends are ranges: the service shows neither which mailbox serves which campaign nor when it sends. Assumed: "
        f"sending {f'on {days}' if days else 'on 5 to 7 days a week'}, no other changes"
        f"{'; what if: ' if what_if else ''}{', '.join(what_if)}. Tried on worlds of the fake, not on the service."
    )


def _score(
    workspace: str, days: tuple[int, ...] | None, past: Sequence[tuple[float, Readings]], now: tuple[float, Readings]
) -> tuple[int, int]:
    """Return how many ranges of the first of the past readings have held, and how many are decided."""
    (start, first), *later = past
    if now[0] - start < _SCORED_AFTER:
        return 0, 0
    found, held, decided = _Situation.read(first, workspace, start, now[1]), 0, 0
    read = ((at // DAY - start // DAY, _Situation.read(each, workspace, at, now[1])) for at, each in (*later, now))
    seen = [(day, each) for day, each in read if each.flows or each.ended]  # in which the workspace could be read
    for id_, (early, _, late) in _find_ends(found, days).items():
        contacts = next(flow.contacts for flow in found.flows if flow.about.id == id_)
        before = 0.0
        for day, each in seen:
            if each.ended.get(id_) == contacts:
                held, decided = held + (early <= day and before <= late), decided + 1
                break
            if (id_, contacts) not in [(flow.about.id, flow.contacts) for flow in each.flows if not flow.about.reason]:
                break  # paused, deleted or with more contacts: the plan was not about this
            before = day
        else:
            decided += late < before
    return held, decided
