"""Holds: a person to whom a ledger has sent lately is not written to by another one, also at the same moment."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import pytest
from support.runs import outcomes_of
from support.scenarios import KEY, SPACE, new_fake
from support.time import virtual_time
from support.transport import Script, added, lost, status

from outreach_async import ContactOutcome, Excluded, OutreachClient, Progress, Request, Response, RetryPolicy
from outreach_async.fake import FakeTransport
from outreach_async.models import Target
from outreach_async.store import Store
from outreach_async.store._holds import Holds

DAY: Final = 86_400.0
START: Final = 1_790_812_800.0  # 2026-10-01
ANN, BO = {"email": "ann@acme.example"}, {"email": "bo@acme.example"}


@attrs.define
class Clock:
    """A wall clock that the test moves."""

    now: float = START

    def __call__(self) -> float:
        return self.now


class Agency:
    """A service with campaigns, and ledgers that exist and have sent nothing."""

    def __init__(self, folder: Path, names: str = "ab") -> None:
        self.clock = Clock()
        self.fake = new_fake()
        for name in "Spring", "Autumn":
            self.fake.add_campaign(SPACE, name=name)
        self.fake.add_workspace("space_2")
        self.fake.add_owner_key("space_2", key=KEY)
        self.ledgers = {name: Store(folder / f"{name}.ledger", inline=True, wall=self.clock) for name in names}

    async def start(self) -> None:
        for name in self.ledgers:
            await self.send(name, [])

    def client(self, transport: Any = None) -> OutreachClient:
        retry = RetryPolicy(attempts=1, jitter=lambda: 1.0)
        return OutreachClient(transport=transport or FakeTransport(self.fake), owner_key=KEY, workspace=SPACE, retry=retry)

    async def send(self, name: str, rows: Any, transport: Any = None, **options: Any) -> list[ContactOutcome]:
        options = {"duplicates": "overwrite", "order": "input", "stop_after_rejects": None, **options}
        run = self.client(transport).contacts.create_many(rows, ledger=self.ledgers[name], **options)
        return await outcomes_of(run)

    async def hold(self, name: str, rows: Any, transport: Any = None, **options: Any) -> list[str]:
        """Send rows that all ledgers hold for 90 days. Return their outcomes, and the reasons of those that are held."""
        others = [store for other, store in self.ledgers.items() if other != name]
        options = {"hold": timedelta(days=90), "held_by": others, **options}
        found = await self.send(name, rows, transport, **options)
        return [str(outcome.error) if isinstance(outcome.error, Excluded) else outcome.status.value for outcome in found]


@pytest.fixture
async def agency(tmp_path: Path) -> Agency:
    found = Agency(tmp_path)
    await found.start()
    return found


HELD: Final = "held by a.ledger since 2026-10-01 until 2026-12-30"


@virtual_time
async def test_a_person_is_held_until_the_period_of_the_other_ledger_ends(agency: Agency) -> None:
    await agency.send("a", [ANN])
    nights: list[tuple[float, str]] = [(0, HELD), (89.9 * DAY, HELD), (90 * DAY, "overwriten"), (91 * DAY, "unchanged")]
    for seconds, expected in nights:
        agency.clock.now = START + seconds
        assert await agency.hold("b", [ANN]) == [expected]
    assert await agency.hold("a", [{**ANN, "city": "Rome"}]) == ["held by b.ledger since 2026-12-30 until 2027-03-30"]
    agency.clock.now -= 5 * DAY  # the entry is from the future now
    assert await agency.hold("a", [{**ANN, "city": "Rome"}]) == ["held by b.ledger since 2026-12-30 until 2027-03-30"]


@virtual_time
async def test_a_held_row_changes_nothing_that_a_ledger_knows_and_is_counted(agency: Agency) -> None:
    await agency.send("b", [ANN])
    await agency.send("a", [BO])
    changed = {**ANN, "city": "Rome"}
    await agency.send("a", [changed])
    assert await agency.hold("b", [changed, BO]) == [HELD, HELD]
    assert await agency.hold("b", [ANN, BO]) == ["unchanged", HELD]
    report = agency.ledgers["b"].contacts()
    assert (report.contacts, report.gone) == (1, 0)
    assert [{name: counts.get(name) for name in ("held", "excluded", "new")} for _, _, counts in report.runs[:2]] == [
        {"held": 1, "excluded": 1, "new": None},
        {"held": 2, "excluded": 2, "new": None},
    ]


@virtual_time
async def test_the_own_ledger_holds_other_targets_also_within_a_run(agency: Agency) -> None:
    spring, autumn, second = ({**ANN, "campaign": "Spring"}, {**ANN, "campaign": "Autumn"}, {**ANN, "workspace": "space_2"})
    held = "held by b.ledger since 2026-10-01 until 2026-12-30"
    assert await agency.hold("b", [spring, autumn, second, {**spring, "city": "Rome"}]) == ["added", held, held, "overwriten"]
    assert await agency.hold("b", iter([spring, autumn, second])) == ["overwriten", held, held]
    agency.clock.now += 90 * DAY
    assert await agency.hold("b", [second], held_by=[]) == ["added"]


@virtual_time
async def test_people_are_compared_as_the_service_compares_them(agency: Agency) -> None:
    emails = [
        "ann@acme.example",
        " ANN@Acme.example",
        "ann+x@acme.example",
        "a.nn@gmail.com",
        "ann@gmail.com",
        "ann@\u00e9.example",
    ]
    await agency.send("a", [{"email": emails[0]}, {"email": emails[3]}, {"email": emails[5], "workspace": "space_2"}])
    assert await agency.hold("b", [{"email": email} for email in emails]) == [HELD, HELD, "added", HELD, "added", HELD]


@virtual_time
async def test_a_domain_holds_on_request_but_not_that_of_a_provider(agency: Agency) -> None:
    rows = [{"email": f"{name}@{domain}"} for domain in ("acme.example", "gmail.com") for name in ("ann", "bo")]
    await agency.send("a", rows[::2])
    assert await agency.hold("b", rows[1::2], hold_domains=True) == [f"acme.example is {HELD}", "added"]
    assert await agency.hold("b", rows[:2], hold_domains=True) == [HELD, f"acme.example is {HELD}"]
    assert await agency.hold("b", rows[1:2]) == ["added"]
    both = [{"email": "cy@bolt.example"}, {"email": "di@bolt.example"}, {"email": "di@bolt.example", "campaign": "Spring"}]
    own = "held by b.ledger since 2026-10-01 until 2026-12-30"
    assert await agency.hold("b", both, hold_domains=True, held_by=()) == ["added", "added", own]
    assert await agency.hold("a", both[1:2], hold_domains=True) == [own]
    assert await agency.hold("a", [{"email": "ed@bolt.example"}], hold_domains=True) == [f"bolt.example is {own}"]


@virtual_time
async def test_what_was_perhaps_sent_holds_and_what_was_refused_does_not(agency: Agency) -> None:
    script = Script(lost(), status(422), added())
    assert [outcome.status.value for outcome in await agency.send("a", [ANN, BO], script, concurrency=1)] == [
        "unknown",
        "rejected",
    ]
    assert await agency.hold("b", [ANN, BO]) == [HELD, "added"]


@virtual_time
async def test_the_marks_of_a_run_that_was_killed_hold_until_it_is_merged(agency: Agency, tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    class Kills(FakeTransport):
        async def send(self, request: Request, progress: Progress, /) -> Response:
            if not killed.exists():
                shutil.copytree(tmp_path, killed, ignore=shutil.ignore_patterns("killed"))
            return await super().send(request, progress)

    await agency.send("a", [ANN], Kills(agency.fake))
    for name in "a.ledger", "a.ledger-wal":
        shutil.copy(killed / name, tmp_path / name)
    assert agency.ledgers["a"].contacts().pending
    assert await agency.hold("b", [ANN, BO]) == [HELD, "added"]
    assert await agency.hold("a", [ANN]) == ["overwriten"]


@attrs.frozen
class Person:
    """What a hold needs to know of a row."""

    email: str
    target: Target = Target(SPACE, None)
    index: int = 0

    @property
    def key(self) -> str:
        return self.email


class Watched(FakeTransport):
    """A transport that notes, before each request, which ledgers hold its person. Its answers take random times."""

    def __init__(self, agency: Agency, seed: int) -> None:
        super().__init__(agency.fake)
        self.found: list[tuple[str, list[str]]] = []
        self._agency = agency
        self._chance = random.Random(seed)  # noqa: S311 - repeatable, not secret

    async def send(self, request: Request, progress: Progress, /) -> Response:
        email = json.loads(request.body)["email"]
        row: Any = Person(email)
        holding = list[str]()
        for name, ledger in self._agency.ledgers.items():
            holds = Holds("none.ledger", DAY, [ledger], domains=False)
            holds.open(None, START, claims=False)
            holding += [name] if holds.claim(row) else []
        self.found.append((email, holding))
        await anyio.sleep(self._chance.random() / 10)
        return await super().send(request, progress)


@virtual_time
@pytest.mark.parametrize("seed", range(2))
async def test_of_runs_at_the_same_moment_one_marks_and_sends_each_person(tmp_path: Path, seed: int) -> None:
    agency, people = Agency(tmp_path), [f"user{number}@acme.example" for number in range(14)]
    await agency.start()
    transport, results = Watched(agency, seed), dict[str, list[str]]()

    async def run(name: str) -> None:
        rows = [{"email": email} for email in random.Random(f"{seed}{name}").sample(people, 14)]  # noqa: S311 - as above
        results[name] = await agency.hold(name, rows, transport, concurrency=2)

    async with anyio.create_task_group() as group:
        group.start_soon(run, "a")
        group.start_soon(run, "b")
    assert sorted(email for email, _ in transport.found) == sorted(people)
    assert {len(names) for _, names in transport.found} == {1}
    assert [labels.count("added") for labels in results.values()] != [14, 0]
    assert Counter(label[:4] for labels in results.values() for label in labels) == {"adde": 14, "held": 14}
