"""Draw worlds whose mailboxes and campaigns change from day to day, and what an audit reads of them.

Run: python -m support.histories kills FILE, or appends FILE WORKSPACE DAYS
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Final

import attrs
from support.audit import mailbox
from support.audit_reports import finding
from support.campaigns import DAY, campaign, case, judged, step, template

from outreach_async.audit import CampaignResults, CampaignRow, Finding, Report, Score, Scores
from outreach_async.audit.campaigns import add_up
from outreach_async.audit.history import DayFigures, History, Readings
from outreach_async.audit.history._tables import record_campaign, record_mailboxes
from outreach_async.models import Campaign, Mailbox, Step

START: Final = 1_772_438_400.0
"""2026-03-02 08:00 UTC."""


@attrs.define
class Sent:
    """The totals of a campaign."""

    workspace: str
    created: float
    sent: int = 0
    opened: int = 0
    replied: int = 0
    interested: int = 0
    contacts: int = 1500
    bounced: int = 0
    name: str = "Spring"
    status: str = "live"
    days_left: int = 10
    """0 if the end is unknown: the figures are then equal from day to day if nothing is sent."""

    def models(self, id_: str, steps: int = 1) -> tuple[Campaign, list[Step]]:
        """Return the campaign and its steps as the service returns them."""
        shown = campaign(
            id=id_, name=self.name, status=self.status, created=self.created, steps=steps, days_left=self.days_left,
            opens_num=self.opened, replies_num=self.replied, interested_num=self.interested, contacts=self.contacts,
            bounces_num=self.bounced,
        )  # fmt: skip
        parts = [self.sent // steps + (at < self.sent % steps) for at in range(steps)]
        return shown, [
            step(template(sent=part), id=f"{id_}_{at}", order=at + 1, already_sent=part) for at, part in enumerate(parts)
        ]


@attrs.define
class DrawnWorld:
    """Workspaces with mailboxes and campaigns, whose totals a test changes."""

    workspaces: Sequence[str] = ("space_1", "space_2")
    campaigns: dict[str, Sent] = attrs.Factory(dict)
    boxes: dict[str, list[Mailbox]] = attrs.Factory(dict)
    troubled: set[str] = attrs.Factory(set)
    steps: int = 1

    def read(
        self, at: float, unread: Collection[str] = (), *, workspaces: Sequence[str] | None = None, lost: Collection[str] = ()
    ) -> tuple[Report, Readings]:
        """Return the report and the readings of an audit at this time.

        The workspaces in `unread` cannot be read. The campaigns and mailboxes in `lost` are not read, which a finding says.
        """
        readings, rows, findings = Readings(), dict[str, list[CampaignRow]](), list[Finding]()
        known: dict[str, list[Mailbox]] = {}
        spaces = list(workspaces or self.workspaces)
        for space in spaces:
            rows[space] = []
            if space in unread:
                about = {"workspace": space, "mailbox": None, "email": None, "domain": None, "sent_30days": None}
                findings.append(finding("OA901", message="could not be read: 503", **about))
                continue
            boxes = [box for box in self.boxes.get(space, []) if box.id not in lost]
            known[space] = boxes
            record_mailboxes(readings, space, boxes)
            findings += [
                finding(workspace=space, mailbox=box.id, email=box.email, sent_30days=box.sent_30days)
                for box in boxes if box.id in self.troubled
            ]  # fmt: skip
            if not {*(box.id for box in self.boxes.get(space, [])), *self.campaigns_of(space)}.isdisjoint(lost):
                about = {"workspace": space, "mailbox": None, "email": None, "domain": None, "sent_30days": None}
                findings.append(finding("OA903", message="some are not listed", **about))
            for id_, sent in self.campaigns.items():
                if sent.workspace == space and id_ not in lost:
                    shown, steps = sent.models(id_, self.steps)
                    row = judged(case(shown, steps, fields_read=False, now=at), workspace=space).rows[0]
                    record_campaign(readings, row, shown, steps)
                    rows[space].append(attrs.evolve(row, rules=[], severity=None))
        return self._report(at, {space: known.get(space) for space in spaces}, rows, findings), readings

    def campaigns_of(self, space: str) -> list[str]:
        return [id_ for id_, sent in self.campaigns.items() if sent.workspace == space]

    def _report(
        self, at: float, read: dict[str, list[Mailbox] | None], rows: dict[str, list[CampaignRow]], findings: list[Finding]
    ) -> Report:
        """Return a report. `read` has the mailboxes that were read of each workspace; `None` if it could not be read."""
        spaces, known = list(read), {space: boxes for space, boxes in read.items() if boxes is not None}
        scores = {
            space: Score(score=90.0, mailboxes=len(boxes), sent_30days=sum(box.sent_30days for box in boxes))
            for space, boxes in known.items() if boxes
        }  # fmt: skip
        sent: Counter[str] = Counter()
        for box in itertools.chain.from_iterable(known.values()):
            sent[box.email.partition("@")[2]] += int(box.sent_30days)
        domains = {name: Score(score=90.0, mailboxes=1, sent_30days=count) for name, count in sent.items()}
        listed = [row for space in spaces for row in rows[space]]
        return Report(
            workspaces=spaces,
            mailboxes=sum(score.mailboxes for score in scores.values()),
            unreadable=[space for space in spaces if space not in known],
            findings=findings,
            scores=Scores(overall=90.0 if scores else None, workspaces=scores, domains=domains),
            at=at,
            campaigns=CampaignResults(
                checked=len(listed),
                totals={space: add_up(rows[space]) for space in spaces},
                rows=listed,
            ),
        )


def readings_of(report: Report) -> Readings:
    """Return the readings of the campaigns in a report; its mailboxes are left out."""
    readings = Readings()
    for row in report.campaigns.rows if report.campaigns else ():
        record_campaign(readings, row, campaign(id=row.id), None)
    return readings


def baseline_of(folder: Path, *reports: Report) -> Report | None:
    """Append reports to a new history, and return its baseline for the last of them."""
    history = History(folder / f"{token_hex(8)}.db")
    for report in reports:
        assert history.append(report, readings_of(report))
    return history.baseline(reports[-1].workspaces)


def agency(seed: int = 1, *, boxes: int = 400, campaigns: int = 200, spaces: int = 60, steps: int = 3) -> DrawnWorld:
    """Return the world of an agency."""
    chance = random.Random(seed)  # noqa: S311 - a sample, not a secret
    names = [f"space_{number:016x}" for number in range(spaces)]
    world = DrawnWorld(names, steps=steps)
    for number in range(boxes):
        email = f"person{number}@outreach-{number // 3}.example"
        about = {"id": f"mailbox_{number:016x}", "email": email, "created_at": START - chance.randint(10, 400) * DAY}
        world.boxes.setdefault(names[number % spaces], []).append(mailbox(**about))
    for number in range(campaigns):
        created = START - chance.randint(1, 200) * DAY
        world.campaigns[f"camp_{number:016x}"] = Sent(names[number % spaces], created, name=f"Campaign {number} of spring")
    return world


def pass_day(world: DrawnWorld, chance: random.Random, *, sending: float = 1.0) -> None:
    """Let every mailbox and the fraction `sending` of the campaigns send e-mails, on five days of seven."""
    for boxes in world.boxes.values():
        boxes[:] = [
            attrs.evolve(
                box,
                sent_today=chance.randint(0, 40),
                sent_30days=max(0, box.sent_30days + chance.randint(-20, 20)),
                sent_90days=max(0, box.sent_90days + chance.randint(-20, 20)),
                bounced_30days=max(0, box.bounced_30days + chance.randint(-1, 1)),
                opened_14days=round(chance.uniform(35, 55), 2),
                avg_open_rate=round(chance.uniform(35, 55), 2),
            )
            for box in boxes
        ]
    for sent in world.campaigns.values():
        if chance.random() < sending:
            number = chance.randint(10, 120)
            sent.sent += number
            sent.opened += number // 2
            sent.replied += chance.randint(0, 4)
            sent.interested += chance.randint(0, 2)
            sent.bounced += chance.randint(0, 2)


def append_days(
    path: Path,
    days: int,
    *,
    campaigns: int = 1,
    spaces: Sequence[str] = ("space_1", "space_2"),
    start: float = START,
    gap: int = 1,
    name: str = "Spring",
) -> None:
    """Append snapshots that are `gap` days apart, and between which each campaign has sent ten e-mails, to a history."""
    world, history = DrawnWorld(spaces), History(path)
    for number, space in enumerate(spaces):
        world.boxes[space] = [mailbox(id=f"mailbox_{number}", email=f"a{number}@one.example")]
    sent = {f"camp_{at}": Sent(spaces[at % len(spaces)], START - DAY, name=name) for at in range(campaigns)}
    world.campaigns |= sent
    for day in range(days):
        assert history.append(*world.read(start + day * gap * DAY))
        for each in sent.values():
            each.sent += 10


class Mortal(History):
    """A history whose process kills itself at the statement number `ends`."""

    def __init__(self, path: Path, ends: int) -> None:
        super().__init__(path)
        self._left = ends

    @contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        with super()._open(mode) as db:
            db.set_trace_callback(self._count)
            yield db

    def _count(self, _statement: str) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def kill_everywhere(path: Path) -> tuple[int, int]:
    """Kill processes at statements, and at writes, all over an append. Return the kills, and how many were during a commit."""
    world = agency(boxes=60, campaigns=30, spaces=2, steps=2)
    History(path).append(*world.read(START))
    content, before = path.read_bytes(), days_of(path)
    pass_day(world, random.Random(1))  # noqa: S311 - a sample, not a secret
    report, readings = world.read(START + DAY)

    def append(ends: int, size: int) -> bool:
        """Append in a process that is killed at a statement, or when a file exceeds a size. Return whether it was killed."""
        path.write_bytes(content)
        if (process := os.fork()) == 0:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            Mortal(path, ends).append(report, readings)
            os._exit(0)
        return os.WIFSIGNALED(os.waitpid(process, 0)[1])

    kills = during_commit = 0
    for ends in itertools.chain(range(1, 30), itertools.count(30, 37)):
        if not append(ends, 1 << 30):
            break
        kills += 1
        require(days_of(path) == before, f"statement {ends}")
    after, grown = days_of(path), path.stat().st_size
    require(after != before, "nothing was appended")
    for size in range(4096, grown, 4096):
        require(append(-1, size), f"{size} bytes suffice")
        kills += 1
        during_commit += path.with_name(f"{path.name}-journal").exists() and path.read_bytes() != content
        require(days_of(path) == before, f"{size} bytes")
    require(History(path).append(report, readings), "the next append")
    require(days_of(path) == after, "the next append differs")
    return kills, during_commit


def require(condition: bool, text: str) -> None:
    if not condition:
        raise AssertionError(text)


def days_of(path: Path) -> list[DayFigures]:
    """Return the daily figures of all campaigns and mailboxes."""
    history = History(path)
    return [*history.daily("campaign"), *history.daily("mailbox"), *history.daily("workspace")]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["kills", file]:
            sys.stdout.write(" ".join(map(str, kill_everywhere(Path(file)))))
        case ["appends", file, space, days]:
            append_days(Path(file), int(days), spaces=[space])
