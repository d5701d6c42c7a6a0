"""Worlds of the fake whose campaigns run to their ends, and what an audit reads of them at some moment before."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final, Literal

import anyio
import attrs
from support.fake import SPACE, document, page, steps
from support.simulation import DAY, NOTHING

from outreach_async import OutreachClient, Progress, Request, Response
from outreach_async.audit import audit
from outreach_async.audit.history import History, Readings
from outreach_async.audit.plan import WorkspacePlan, build_plan
from outreach_async.fake import FakeService, FakeTransport

Rule = Literal["default", "rates", "weekends", "additive", "true", "30 % off"]
OTHER_RULES: Final[tuple[Rule, ...]] = ("additive", "true", "30 % off")
"""Other readings of `days_left`: every wait comes on top of the sending; the true end; and one that is up to 30 % wrong."""
RULES: Final[tuple[Rule, ...]] = (
    "default",
    "rates",
    "default",
    "weekends",
    "default",
    "additive",
    "default",
    "true",
    "default",
    "30 % off",
)
_LAYOUTS: Final = ("own", "all", "overlap", "pairs", "mixed")
_MAX_DAYS: Final = 400


class Restated(FakeTransport):
    """A service whose `days_left` follows another rule."""

    def __init__(self, fake: FakeService, days: dict[str, int]) -> None:
        super().__init__(fake)
        self._days = days

    async def send(self, request: Request, progress: Progress) -> Response:
        response = await super().send(request, progress)
        if not request.target.startswith("/campaigns?"):
            return response
        body = json.loads(response.body)
        for item in body["data"]:
            item["days_left"] = self._days.get(item["id"], item["days_left"])
        return attrs.evolve(response, body=json.dumps(body).encode())


def read(
    fake: FakeService, days: dict[str, int] | None = None, *, history: History | None = None, workspace: str = SPACE
) -> Readings:
    """Return what an audit reads, and append it to a history if there is one."""

    async def main() -> Readings:
        readings = Readings()
        async with OutreachClient(transport=Restated(fake, days or {})) as client:
            report = await audit(client, [workspace], campaigns=True, readings=readings, clock=lambda: fake.now)
        if history:
            assert history.append(report, readings)
        return readings

    return anyio.run(main)


@attrs.define
class Drawn:
    """A world that was read at some moment, and what happened later: the day of each end, counted from then, or `None`."""

    layout: str
    rule: Rule
    at: float
    readings: Readings
    ends: dict[str, float | None]
    sent: int
    """E-mails sent in the seven days from the day after."""

    def plan(self, **options: Any) -> WorkspacePlan:
        return build_plan(self.readings, SPACE, at=self.at, **options)

    def day(self, text: str | None) -> float:
        today = datetime.fromtimestamp(self.at, UTC).date()
        return math.inf if text is None else (date.fromisoformat(text) - today).days


class _World:
    """A drawn world, whose mailboxes rest at weekends if its rule says so."""

    def __init__(self, seed: int, rule: Rule, *, most: int) -> None:
        self.draw, self.rule = random.Random(seed), rule  # noqa: S311 - repeatable
        start = datetime.fromtimestamp(1_767_225_600 + self.draw.randrange(60 * DAY), UTC)
        self.fake = FakeService(seed, clock=f"{start:%Y-%m-%dT%H:%M:%SZ}")
        self.fake.add_workspace(SPACE)
        self.fake.add_owner_key(SPACE, key="key_1")
        count, limits = self.draw.randint(2, 2 * most), [self.draw.choice([10, 15, 20, 25, 30, 40, 50]) for _ in range(12)]
        limits = limits if self.draw.random() < 0.5 else limits[:1] * 12
        self.limits = {self.fake.add_mailbox(SPACE, daily_limit=limit, **NOTHING): limit for limit in limits[:count]}
        self.layout = self.draw.choice(_LAYOUTS)
        self.mailboxes: dict[str, Sequence[str]] = {}
        self.later: list[tuple[int, str]] = []  # campaigns that start on a later day
        self.rates = {"open": 0.7, "reply": 0.2, "bounce": 0.04} if self.draw.random() < 0.5 else {"open": 0.2, "reply": 0.01}
        for number in range(campaigns := self.draw.randint(1, most)):
            self._add_campaign(number, campaigns)

    def _add_campaign(self, number: int, campaigns: int) -> None:
        draw, boxes = self.draw, list(self.limits)
        groups = {"own": campaigns, "pairs": max(1, campaigns // 2)}.get(self.layout, 1)
        chosen = boxes[number % groups :: groups] or boxes[:1]
        if self.layout == "overlap" or (self.layout == "mixed" and draw.random() < 0.6):
            chosen = draw.sample(boxes, draw.randint(1, len(boxes)))
        waits = [0, *(draw.choice([1, 2, 2, 3, 3, 4, 5, 7]) for _ in range(draw.randint(0, 4)))]
        capacity = sum(self.limits[box] for box in chosen)
        starts_later = draw.random() < 0.4
        id_ = self.fake.add_campaign(
            SPACE,
            name=f"Campaign {number}",
            status="draft" if starts_later else draw.choice(["live"] * 8 + ["paused"]),
            mailboxes=chosen,
            steps=[{"wait_time": wait * DAY * 1000} for wait in waits],
            contacts=3 + int(capacity * draw.choice([0.5, 1, 2, 4, 8]) * draw.uniform(0.6, 1.3)),
            rates=self.rates if self.rule == "rates" else None,
        )
        self.mailboxes[id_] = chosen
        self.later += [(draw.randint(1, 14), id_)] if starts_later else []

    def rests(self, at: float) -> bool:
        return self.rule == "weekends" and int(at // DAY + 3) % 7 >= 5

    def pass_day(self) -> None:
        self.pass_evening()
        self.pass_midnight()

    def pass_evening(self) -> None:
        self.fake.advance(seconds=max(0.0, DAY - 0.5 - self.fake.now % DAY))

    def pass_midnight(self) -> None:
        midnight = (self.fake.now // DAY + 1) * DAY
        if self.rests(midnight):
            self.set_limits(0)
        self.fake.advance(seconds=midnight - self.fake.now + 0.001)
        if not self.rests(midnight) and self.rests(midnight - 1):
            self.set_limits(1)

    def set_limits(self, factor: int) -> None:
        for box, limit in self.limits.items():
            self.fake.set_mailbox(box, daily_limit=limit * factor)

    def left(self) -> dict[str, int]:
        """Return the e-mails left of live campaigns."""
        live = [item["id"] for item in document(page(self.fake, "/campaigns", display=100))["data"] if item["status"] == "live"]
        return {id_: sum(step["left_to_send"] for step in steps(self.fake, id_)["data"]) for id_ in live}

    def additive(self, lefts: dict[str, int]) -> dict[str, int]:
        shared = [sum(box in self.mailboxes[id_] for id_, left in lefts.items() if left) for box in self.limits]
        parts = {box: limit / max(1, count) for (box, limit), count in zip(self.limits.items(), shared, strict=True)}
        days = {}
        for id_, left in lefts.items():
            waits = sum(step["wait_time"] for step in steps(self.fake, id_)["data"] if step["left_to_send"]) / 1000 / DAY
            days[id_] = max(1, math.ceil(left / sum(parts[box] for box in self.mailboxes[id_]) + waits)) if left else 0
        return days

    def start(self) -> None:
        """Run for some days, during which more campaigns start, and end at a moment of a day with sending."""
        if self.rests(self.fake.now):
            self.set_limits(0)
        last = self.draw.choice([0, 1, 2, 4, 7, 9, 14, 20])
        for passed in range(last + 1):
            for id_ in [id_ for day, id_ in self.later if passed == min(day, last)]:
                self.fake.set_campaign(id_, status="live")
            if passed < last:
                self.pass_day()
        while self.rests(self.fake.now):
            self.pass_day()
        self.fake.advance(seconds=self.draw.uniform(0, DAY - self.fake.now % DAY - 1))

    def find_ends(self, ids: Iterable[str]) -> dict[str, float | None]:
        """Run until the campaigns have ended, at least nine days, and return how many days later each ends."""
        ends, first, days = dict[str, float | None].fromkeys(ids), self.fake.now // DAY, 0
        while (days < 9 or None in ends.values()) and days < _MAX_DAYS:
            day = self.fake.now // DAY
            self.pass_evening()
            for id_, left in self.left().items():
                if not left and ends.get(id_, day) is None:
                    ends[id_] = day - first
            self.pass_midnight()
            days += 1
        return ends


def draw_world(seed: int, rule: Rule, *, most: int = 6) -> Drawn:
    """Run a world of at most so many campaigns for some days, read it, and let the campaigns end."""
    world = _World(seed, rule, most=most)
    world.start()
    fake, draw = world.fake, world.draw
    at, before, lefts = fake.now, fake.snapshot(), world.left()
    events: list[float] = []
    fake.sim.watch(lambda event: events.append(event.at) if event.kind == "sent" else None)
    ends = world.find_ends(id_ for id_, left in lefts.items() if left)
    after = (at // DAY + 1) * DAY
    sent = sum(after <= event < after + 7 * DAY for event in events)
    fake.restore(before)
    true = {id_: max(1, math.ceil(end + 0.5)) for id_, end in ends.items() if end is not None}
    wrong = {id_: max(1, round(day * draw.uniform(0.7, 1.3))) for id_, day in true.items()}
    restated = {"additive": world.additive(lefts), "true": true, "30 % off": wrong}
    return Drawn(world.layout, rule, at, read(fake, restated.get(rule)), ends, sent)
