"""Holds: a person to whom a ledger has sent lately is not written to by another one, also at the same moment."""

from __future__ import annotations

import fcntl
import json
import math
import os
import random
import re
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

import anyio
import attrs
import pytest
from support.runs import outcomes_of
from support.scenarios import KEY, SPACE, new_fake
from support.time import virtual_time
from support.transport import Script, added, lost, status

from outreach_async import (
    ContactOutcome,
    Excluded,
    InvalidRequest,
    JournalError,
    OutreachClient,
    Progress,
    Request,
    Response,
    RetryPolicy,
)
from outreach_async._plumbing import Targets, count_changes
from outreach_async.fake import FakeTransport
from outreach_async.models import Target
from outreach_async.store import Store
from outreach_async.store._holds import Holds
from outreach_async.store._schema import SENT_SUM
from outreach_async.store._writer import Transaction

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


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


HELD: Final = "held by a.ledger since 2026-10-01 until 2026-12-30"


@virtual_time
async def test_a_person_is_held_until_the_period_of_the_other_ledger_ends(agency: Agency) -> None:
    await agency.send("a", [ANN])
    nights: list[tuple[float, str]] = [(0, HELD), (89.9 * DAY, HELD), (90 * DAY, "overwriten"), (91 * DAY, "unchanged")]
    for seconds, expected in nights:
        agency.clock.now = START + seconds
        assert await agency.hold("b", [ANN]) == [expected]
    spring, held = {**ANN, "campaign": "Spring"}, ["held by b.ledger since 2026-12-30 until 2027-03-30"]
    assert await agency.hold("a", [spring]) == held
    agency.clock.now -= 5 * DAY  # the entry is from the future now
    assert await agency.hold("a", [spring]) == held
    assert await agency.hold("a", [{**ANN, "city": "Rome"}]) == ["overwriten"]  # nobody is added


@virtual_time
async def test_a_held_row_changes_nothing_that_a_ledger_knows_and_is_counted(agency: Agency) -> None:
    await agency.send("b", [ANN])
    await agency.send("a", [BO])
    assert await agency.hold("b", [ANN, BO]) == ["unchanged", HELD]
    assert await agency.hold("b", [{**ANN, "city": "Rome"}, BO]) == ["overwriten", HELD]
    report = agency.ledgers["b"].contacts()
    assert (report.contacts, report.gone) == (1, 0)
    for _, _, counts in report.runs[:2]:
        assert {name: counts.get(name) for name in ("held", "excluded", "new")} == {"held": 1, "excluded": 1, "new": None}


@virtual_time
async def test_the_own_ledger_holds_other_targets_also_within_a_run(agency: Agency) -> None:
    spring, autumn, second = ({**ANN, "campaign": "Spring"}, {**ANN, "campaign": "Autumn"}, {**ANN, "workspace": "space_2"})
    held = "held by b.ledger since 2026-10-01 until 2026-12-30"
    assert await agency.hold("b", [spring, autumn, second, {**spring, "city": "Rome"}]) == ["added", held, held, "overwriten"]
    assert await agency.hold("b", iter([spring, autumn, second])) == ["overwriten", held, held]
    agency.clock.now += 90 * DAY
    assert await agency.hold("b", [second], held_by=[]) == ["added"]


@virtual_time
async def test_an_update_of_an_old_entry_holds_other_targets_of_its_run(agency: Agency) -> None:
    await agency.send("b", [{**ANN, "campaign": "Spring"}])
    agency.clock.now += 91 * DAY
    rows = [{**ANN, "campaign": "Spring", "city": "Rome"}, {**ANN, "campaign": "Autumn"}]
    assert await agency.hold("b", rows) == ["overwriten", "held by b.ledger since 2026-12-31 until 2027-03-31"]


@virtual_time
async def test_a_row_that_is_sent_again_because_its_entry_is_old_is_not_held(agency: Agency) -> None:
    await agency.send("b", [ANN])
    agency.clock.now += 60 * DAY
    await agency.send("a", [ANN])
    assert await agency.hold("b", [ANN], max_age=30 * DAY) == ["overwriten"]


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
    assert await agency.hold("b", [{"email": "cy@ACME.Example"}], hold_domains=True) == [f"acme.example is {HELD}"]
    idn = [{"email": f"ann@{domain}"} for domain in ("b\u00fccher.example", "xn--bcher-kva.example.")]
    await agency.send("a", idn[:1])
    assert await agency.hold("b", idn[1:], hold_domains=True) == [f"b\u00fccher.example is {HELD}"]
    assert await agency.hold("b", rows[1:2]) == ["added"]
    both = [{"email": "cy@bolt.example"}, {"email": "di@bolt.example"}]
    others = [{"email": f"{name}@bolt.example", "campaign": "Spring"} for name in ("di", "ed")]
    own = "held by b.ledger since 2026-10-01 until 2026-12-30"
    found = await agency.hold("b", both + others, hold_domains=True, held_by=())
    assert found == ["added", "added", own, f"bolt.example is {own}"]
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
            if BO["email"] in request.body.decode():
                return status(422)
            await anyio.sleep(1)  # until the first outcome is recorded
            shutil.copytree(tmp_path, killed, ignore=shutil.ignore_patterns("killed"))
            return await super().send(request, progress)

    await agency.send("a", [BO, ANN], Kills(agency.fake), concurrency=1)
    for name in "a.ledger", "a.ledger-wal":
        shutil.copy(killed / name, tmp_path / name)
    assert agency.ledgers["a"].contacts().pending
    with closing(sqlite3.connect(tmp_path / "a.ledger")) as db, db:  # it has marked so many rows that they are read in parts
        numbers = "WITH RECURSIVE number(seq) AS (VALUES (1) UNION ALL SELECT seq + 1 FROM number WHERE seq < 19999)"
        rows = "SELECT number.seq AS seq, key, digest, target, domain FROM number, sent WHERE sent.seq = (number.seq = 19999)"
        db.execute(f"INSERT OR REPLACE INTO sent SELECT *, {SENT_SUM} FROM ({numbers} {rows})")  # noqa: S608 - names of this test
        Transaction(db).set_metadata(marked=20000)
    assert await agency.hold("b", [ANN, BO]) == [HELD, HELD]
    shutil.copy(killed / "a.ledger", tmp_path / "a.ledger")
    assert await agency.hold("b", [ANN, BO]) == [HELD, "added"]
    with closing(sqlite3.connect(tmp_path / "a.ledger")) as db, db:
        db.execute("DELETE FROM sent WHERE seq = 1")
    with pytest.raises(JournalError, match="rows that were marked are missing"):  # so it is not known whom it holds
        await agency.hold("b", [ANN, BO])
    shutil.copy(killed / "a.ledger", tmp_path / "a.ledger")
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
            holding += [name] if holds.claim(row, is_new=True) else []
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
    for name, labels in results.items():
        counts = agency.ledgers[name].contacts().runs[0][2]
        assert (counts["new"], counts["held"]) == (labels.count("added"), 14 - labels.count("added"))
    assert Counter(label[:4] for labels in results.values() for label in labels) == {"adde": 14, "held": 14}


@virtual_time
@pytest.mark.parametrize("seed", range(2))
async def test_random_nights_hold_whom_an_oracle_names(tmp_path: Path, seed: int) -> None:
    agency, chance = Agency(tmp_path, "abc"), random.Random(seed)  # noqa: S311 - repeatable, not secret
    await agency.start()
    targets: list[dict[str, str]] = [{}, {"campaign": "Spring"}, {"workspace": "space_2"}]
    sent: dict[tuple[str, str], dict[int, float]] = {}  # the time of each target, by ledger and e-mail
    for night in range(6):
        agency.clock.now += chance.choice((0, 3600, DAY, -3600))
        name, now = chance.choice("abc"), agency.clock.now
        rows = [(f"user{chance.randrange(4)}@x.example", chance.randrange(3)) for _ in range(3)]
        expected = list[bool]()
        for email, to in rows:
            times = [
                at
                for other in "abc"
                for target, at in sent.get((other, email), {}).items()
                if (other, target) != (name, to) and at > now - DAY
            ]
            held = bool(times) and to not in sent.get((name, email), {})  # an update adds nobody
            expected.append(held)
            if not held:
                sent.setdefault((name, email), {})[to] = now
        given = [{"email": email, "city": f"{night}-{number}", **targets[to]} for number, (email, to) in enumerate(rows)]
        found = await agency.hold(name, given, hold=DAY)
        assert [label.startswith("held") for label in found] == expected, (night, found)
        assert all(label.startswith("held") or label in {"added", "overwriten"} for label in found)


class Stop(Exception):
    """The holds would wait."""


def stop(_seconds: float) -> None:
    raise Stop


@pytest.fixture
async def pair(agency: Agency) -> tuple[Holds, Holds]:
    """Return the holds of two runs that hold each other's people."""
    one, other = (Holds(agency.ledgers[name], DAY, [agency.ledgers["a"]], domains=False, pause=stop) for name in "ba")
    for holds, name in (one, "b"), (other, "a"):
        holds.open(None, START, claims=True)
        holds.load_own(agency.ledgers[name].medium().query)
    return one, other


@virtual_time
async def test_a_run_waits_while_another_one_decides_which_rows_it_marks(pair: tuple[Holds, Holds]) -> None:
    row: Any = Person(ANN["email"])
    one, other = pair
    with one.confirmed([row]), pytest.raises(Stop), other.confirmed([row]):
        pass
    with other.confirmed([row]) as found:
        assert found == {}


@pytest.fixture
async def locked(agency: Agency, tmp_path: Path) -> AsyncIterator[tuple[int, Callable[..., Holds]]]:
    """Return a descriptor that locks the holds of a ledger, and what creates those of a run that waits for it."""

    def create(pause: Callable[[float], object]) -> Holds:
        holds = Holds(agency.ledgers["b"], DAY, [agency.ledgers["a"]], domains=False, pause=pause)
        holds.open(None, START, claims=False)
        holds.load_own(agency.ledgers["b"].medium().query)
        return holds

    descriptor = os.open(tmp_path / "a.ledger.hold-lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield descriptor, create
    os.close(descriptor)


@virtual_time
async def test_a_run_reads_the_marks_of_others_when_it_has_the_lock(
    agency: Agency, locked: tuple[int, Callable[..., Holds]], tmp_path: Path
) -> None:
    descriptor, create = locked
    before, after = (tmp_path / "a.ledger", tmp_path / "after")
    shutil.copy(before, after)
    agency.ledgers["c"] = Store(after, inline=True, wall=agency.clock)
    await agency.send("c", [ANN])
    row: Any = Person(ANN["email"])

    def wait(_seconds: float) -> None:  # meanwhile, the other run locks its own ledger, too, marks, and unlocks both
        with closing(os.fdopen(os.open(tmp_path / "b.ledger.hold-lock", os.O_RDWR | os.O_CREAT))) as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.copy(after, before)
        fcntl.flock(descriptor, fcntl.LOCK_UN)

    with create(wait).confirmed([row]) as found:
        assert [str(error) for error in found.values()] == ["held by a.ledger since 2026-10-01 until 2026-10-02"]


@virtual_time
async def test_a_run_waits_for_a_lock_for_a_minute(locked: tuple[int, Callable[..., Holds]]) -> None:
    waits = list[float]()
    with pytest.raises(
        JournalError, match=r"hold: another run has locked .*a\.ledger\.hold-lock for a minute; let that run go on"
    ):
        locked[1](waits.append).confirmed([]).__enter__()
    assert sum(waits) == pytest.approx(60)


@virtual_time
async def test_a_ledger_that_did_not_change_is_not_read_again(agency: Agency, tmp_path: Path) -> None:
    path, row = tmp_path / "a.ledger", cast("Any", Person(ANN["email"]))
    os.utime(path, (1, 1))
    holds = Holds(agency.ledgers["b"], DAY, [path], domains=False)
    holds.open(None, START, claims=True)
    holds.load_own(agency.ledgers["b"].medium().query)
    content = path.read_bytes()
    path.write_bytes(bytes(len(content)))
    os.utime(path, (1, 1))
    with holds.confirmed([row]) as found:
        assert found == {}
    path.write_bytes(content)
    os.utime(path, (soon := time.time() + 100, soon))  # too late to tell whether it changes again within the tick
    with holds.confirmed([row]):
        pass
    path.write_bytes(content[:2000] + bytes(len(content) - 2000))
    os.utime(path, (soon, soon))
    with pytest.raises(JournalError, match=r"ledger .*a\.ledger is damaged"), holds.confirmed([row]):
        pass


@virtual_time
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"ledger": None, "held_by": ()}, "hold: needs a ledger, got None; pass ledger="),
        ({"hold": None}, r"held_by: needs a hold, got None; pass hold=7776000 \(90 days\), too"),
        ({"hold": None, "held_by": (), "hold_domains": True}, "hold_domains: needs a hold, got None; pass hold=7776000"),
        *(({"hold": wrong}, "hold: expected a period of more than 0 seconds, got ") for wrong in (0, -1, math.nan, True, "90d")),
        ({"hold": timedelta(0)}, "hold: expected a period of more than 0 seconds, got 0.0; pass a longer one, or omit it"),
        *(({"held_by": wrong}, "held_by: expected the path or Store of a ledger, got ") for wrong in (5, (None,), b"x", [b"x"])),
        (
            {"ledger": "memory://x"},
            "hold: expected ledgers in files, which can be locked, got memory://x; keep ledgers that hold",
        ),
        ({"held_by": ["memory://x"]}, "held_by: expected ledgers in files, which can be locked, got memory://x; keep"),
        ({"hold_domains": "x"}, "hold_domains: expected"),
    ],
)
async def test_options_without_a_meaning_are_refused_at_once(agency: Agency, options: dict[str, Any], expected: str) -> None:
    given = {"ledger": agency.ledgers["b"], "hold": DAY, "held_by": ["a.ledger"], "duplicates": "overwrite", **options}
    with pytest.raises(InvalidRequest, match=f"^{expected}"):
        agency.client(Script()).contacts.create_many([ANN], **given)


@virtual_time
async def test_ledgers_that_cannot_hold_are_refused_before_anything_is_sent(agency: Agency, tmp_path: Path) -> None:
    client = agency.client(FakeTransport(agency.fake))
    await outcomes_of(client.contacts.create_many([], journal=Store(tmp_path / "run.db", inline=True)))
    async with OutreachClient(base_url="https://other.example", owner_key=KEY, workspace=SPACE) as other:
        await outcomes_of(other.contacts.create_many([], ledger=Store(tmp_path / "other", inline=True), duplicates="overwrite"))
    (tmp_path / "text").write_text("no ledger")
    (tmp_path / "closed").mkdir()
    wrong = {
        "none": "none does not exist; restore it, correct the path, or import a file without rows into it once, which creates it",
        "run.db": "run.db is a journal, not a ledger; pass it as journal=, or pass the path of a ledger",
        "text": "text is not a ledger; pass the path of a ledger",
    }
    for name, expected in wrong.items():
        with pytest.raises(InvalidRequest, match=f"^held_by: .*{re.escape(expected)}"):
            await agency.hold("b", [ANN], Script(), held_by=[tmp_path / name])
    async with OutreachClient(base_url="https://api.example", owner_key=KEY, workspace=SPACE) as own:
        ledger = Store(tmp_path / "own", inline=True)
        run = own.contacts.create_many([ANN], ledger=ledger, duplicates="overwrite", hold=DAY, held_by=[tmp_path / "other"])
        with pytest.raises(InvalidRequest, match=r"^held_by: .*other belongs to the service at https://other\.example, not to"):
            await outcomes_of(run)
    assert not agency.fake.contacts(SPACE)
    assert not (tmp_path / "own").exists()
    assert agency.ledgers["b"].contacts().runs[0][0] == 1


@virtual_time
@pytest.mark.parametrize(
    ("change", "expected"), [("replaced", "was replaced during the run"), ("removed", "does not exist; pass")]
)
async def test_a_ledger_that_is_replaced_or_removed_stops_the_run(
    agency: Agency, tmp_path: Path, change: str, expected: str
) -> None:
    class Changes(FakeTransport):
        async def send(self, request: Request, progress: Progress, /) -> Response:
            if change == "replaced" and (tmp_path / "c.ledger").exists():
                (tmp_path / "c.ledger").replace(tmp_path / "a.ledger")
            elif change == "removed":
                (tmp_path / "a.ledger").unlink(missing_ok=True)
            return await super().send(request, progress)

    agency.ledgers["c"] = Store(tmp_path / "c.ledger", inline=True, wall=agency.clock)
    await agency.send("c", [])
    rows = [{"email": f"user{number}@x.example"} for number in range(20)]
    with pytest.raises(InvalidRequest, match=f"^held_by: .*a.ledger {expected}"):
        await agency.hold("b", iter(rows), Changes(agency.fake), held_by=[agency.ledgers["a"]], concurrency=2)
    assert len(agency.fake.contacts(SPACE)) < 10


@virtual_time
async def test_a_run_without_rows_counts_what_it_would_hold(agency: Agency, tmp_path: Path) -> None:
    await agency.send("a", [ANN])
    names = names_in(tmp_path)
    for ledger in agency.ledgers["b"], Store(tmp_path / "new.ledger", wall=agency.clock):
        found = list[ContactOutcome]()
        holding = {"hold": DAY, "held_by": {agency.ledgers["a"]: "acme"}}
        counts = count_changes(lambda: [ANN, BO], ledger, Targets(Target(SPACE, None)), found.append, holding=holding)
        assert [str(outcome.error)[:12] for outcome in found] == ["held by acme", "ledger: the "]
        assert (counts.held, counts.excluded, counts.new) == (1, 1, 1)
    assert names_in(tmp_path) == names


@virtual_time
async def test_a_run_without_rows_counts_whom_any_of_several_ledgers_holds(tmp_path: Path) -> None:
    agency, found = Agency(tmp_path, "abc"), list[ContactOutcome]()
    await agency.start()
    cy = {"email": "cy@acme.example"}
    for name, row in ("a", ANN), ("b", BO), ("c", {**cy, "campaign": "Spring"}):
        await agency.send(name, [row])
    holding = {"hold": DAY, "held_by": [agency.ledgers["a"], agency.ledgers["b"]]}
    own, targets = agency.ledgers["c"], Targets(Target(SPACE, None))
    counts = count_changes(lambda: [ANN, BO, cy], own, targets, found.append, holding=holding)
    assert [str(outcome.error)[:16] for outcome in found] == [f"held by {name}.ledger" for name in "abc"]
    assert counts.held == 3


@virtual_time
async def test_of_runs_at_the_same_moment_one_sends_to_a_domain(agency: Agency) -> None:
    results = dict[str, set[str]]()

    async def run(name: str) -> None:
        rows = [{"email": f"{name}{number}@acme.example"} for number in range(6)]
        results[name] = {*await agency.hold(name, rows, Watched(agency, 0), concurrency=2, hold_domains=True)}

    async with anyio.create_task_group() as group:
        group.start_soon(run, "a")
        group.start_soon(run, "b")
    assert sorted(labels == {"added"} for labels in results.values()) == [False, True]
    assert all(
        label.startswith("acme.example is held by ") or label == "added" for labels in results.values() for label in labels
    )
    assert len(agency.fake.contacts(SPACE)) == 6
