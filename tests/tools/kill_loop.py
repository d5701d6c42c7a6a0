"""Kill processes that send rows with a journal or a ledger, and compare what they leave with what the service did.

Run: python -m tools.kill_loop [--kills 500] [--seed 0] [--kinds file folder s3 ledger ledger-folder ledger-s3]

Each process is killed with SIGKILL: by the service when it receives a request (before the service carries it out, after that, or
before the service carries it out late), a few milliseconds after a write to the disk, or at a random time. With a journal, the
next process resumes the run, until it is finished; then the invariants of `support.crashes` are checked. With a ledger, the input
changes between processes, and a late request may arrive in a later one. Then a run that starts an hour later must give every
contact the values of its last row and its campaigns, and the next one must send nothing.
Prints the kills by kind and place. Fails at the first violation.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Literal, get_args

import anyio
import attrs
from anyio.lowlevel import checkpoint
from support.cli import serve_in_thread
from support.crashes import Run
from support.runs import OptedOut
from support.s3 import environment, serve_s3
from support.scenarios import KEY, SPACE, Late, Scenario, new_fake, seeded

from outreach_async import ContactOutcome, DuplicatePolicy, OutreachClient, Request, RetryPolicy
from outreach_async.bulk import Repeats
from outreach_async.fake import FakeService, faults
from outreach_async.fake.faults import Exchange, inject
from outreach_async.store import Store

Kind = Literal["file", "folder", "s3", "ledger", "ledger-folder", "ledger-s3"]
Place = Literal["before a request", "after a request", "before a late request", "after a write", "at a random time"]
FAULTS: Final = (
    *(faults.reset(), faults.status(429), faults.status(500)),
    *map(faults.commit_then, (faults.reset(), faults.status(500))),
)
_LATE: Final = Late("late", commits=False, requests=4)
_PATIENCE: Final = 60.0
"""Seconds without a message after which a process counts as hung."""
_ROWS: Final = 60
_CITIES: Final = ("Lyon", "Bern", "Rome", "Oslo")
_NEVER: Final = {f"user{number}@a.example" for number in range(0, 2 * _ROWS, 12)}
"""People who have opted out in every night."""
_CAMPAIGNS: Final = {"": None, "Spring": "camp_1", "camp_2": "camp_2"}
"""The campaigns that rows name, by id or name."""


def send_rows(sent: Connection, errors: Path, backend: str, env: Mapping[str, str], job: Mapping[str, Any]) -> None:
    """Send rows in a process of its own. It sends "started", then each outcome that it receives, then the report."""
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
    os.environ.update(env)
    warnings.simplefilter("error")
    anyio.run(partial(_send_rows, sent, **job), backend=backend)


async def _send_rows(
    sent: Connection, *, url: str, rows: Sequence[Any], streamed: bool, attempts: int, options: dict[str, Any], ahead: float = 0.0
) -> None:
    if (location := options.get("journal")) is not None:
        options["journal"] = Store(location, linger=0.05)
    if (location := options.get("ledger")) is not None:
        options["ledger"] = Store(location, wall=lambda: time.time() + ahead)
    retry = RetryPolicy(attempts=attempts, backoff=0.005)
    async with OutreachClient(base_url=url, owner_key=KEY, workspace=SPACE, retry=retry) as client:
        sent.send("started")
        async with client.contacts.create_many(_stream(rows) if streamed else rows, **options) as outcomes:
            async for outcome in outcomes:
                sent.send(attrs.evolve(outcome, contact=None, error=None))
        sent.send(outcomes.report.to_dict())


async def _stream(rows: Iterable[Any]) -> AsyncIterator[Any]:
    """Yield rows a few at a time, so that windows are small."""
    for index, row in enumerate(rows):
        for _ in range(9 * (index % 5 == 0)):
            await checkpoint()
        yield row


class Killer:
    """Starts processes, and kills them at chosen places."""

    def __init__(self, folder: Path, chance: random.Random, places: Sequence[Place]) -> None:
        self.folder = folder
        self.kills: Counter[Place] = Counter()
        self.aim: tuple[Place, int] | None = None
        self._chance = chance
        self._places = places
        self._number = 0
        self._longest = 0.5
        self._process: Any = None

    def run(self, *, kill: bool, **job: Any) -> list[Any]:
        """Run a process until it ends or is killed, and return its messages after "started"."""
        self._number += 1
        place = self._chance.choice(self._places) if kill else None
        self.aim = None if place is None else (place, self._chance.randint(1, _ROWS // 3))
        context = get_context("forkserver")
        ours, theirs = context.Pipe(duplex=False)
        aws = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        arguments = theirs, self.folder / "errors", ("asyncio", "trio")[self._number % 2], aws, job
        self._process = context.Process(target=send_rows, args=arguments)
        self._process.start()
        theirs.close()
        messages: list[Any] = []
        begun = time.monotonic()
        with ours:
            assert ours.recv() == "started", (self.folder / "errors").read_text()
            is_due = self._plan(place)
            while True:
                if time.monotonic() - begun > _PATIENCE:
                    self._process.kill()
                    raise AssertionError("the process hangs")
                if is_due():
                    self._process.kill()
                try:
                    if ours.poll(0.0005):
                        messages.append(ours.recv())
                except EOFError:
                    break
        self._process.join()
        if place is not None and self._process.exitcode < 0:
            self.kills[place] += 1
            time.sleep(0.02)  # the service may still read the last requests of the killed process
        else:
            assert self._process.exitcode == 0, (self.folder / "errors").read_text()
            self._longest = time.monotonic() - begun
        return messages

    def strike(self, number: int) -> Place | None:
        """Called by the service for request `number` of a process: kill the process if this is the place, and return it."""
        place, aim = self.aim or (None, 0)
        if place is None or not place.endswith("request") or number != aim:
            return None
        self._process.kill()
        wait([self._process.sentinel])
        return place

    def _plan(self, place: Place | None) -> Callable[[], bool]:
        """Return a function that tells whether the process must be killed now."""
        if place == "at a random time":
            due = time.monotonic() + self._chance.uniform(0, self._longest)
            return lambda: time.monotonic() >= due
        if place != "after a write":
            return lambda: False
        writes, seconds = self._chance.randint(1, 8), self._chance.uniform(0, 0.005)
        state, seen, due = _files(self.folder), 0, float("inf")

        def is_due() -> bool:
            nonlocal state, seen, due
            if (now := _files(self.folder)) != state:
                state, seen = now, seen + 1
                due = time.monotonic() + seconds if seen == writes else due
            return time.monotonic() >= due

        return is_due


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.stat(f"{path}/{name}")  # noqa: PTH116 - called thousands of times
            except FileNotFoundError:  # a temporary file
                continue
            found[f"{path}/{name}"] = status.st_size, status.st_mtime_ns
    return found


class KilledRun(Run):
    """A run with a journal, whose processes are killed. It is also the service that the processes send their rows to."""

    def __init__(self, scene: Scenario, folder: Path, location: Path | str, url: str, chance: random.Random) -> None:
        super().__init__(scene, folder, time.time)
        self.location = location
        places = [place for place in get_args(Place) if place != "after a write" or not str(location).startswith("s3:")]
        self.killer = Killer(folder, chance, places)
        self._url = url
        self._requests = 0

    def exchange(self, request: Request, /) -> Exchange:
        """Carry out a request of a process, unless it is the place at which the process is killed."""
        row = self.world.row_of(request)
        self.world.sends[row] += 1
        self._requests += 1
        carry_out = partial(self.world.carry_out, row, request)
        place = self.killer.strike(self._requests)
        if place is None:
            fault, *_ = self.world.weather(row, self.world.sends[row])
            self.world.struck += fault is not faults.ok
            return self.world.execute(row, request, fault, carry_out)
        fault = {"before a request": faults.reset(), "after a request": faults.commit_then(faults.reset())}.get(place, _LATE)
        return self.world.execute(row, request, fault, carry_out)

    def live(self, ending: bool | None = None) -> None:
        """Start or resume the run in a process, and kill it if `ending` is true."""
        self._requests = 0
        scene = self.scene
        options = {name: getattr(scene, name) for name in ("duplicates", "repeats", "order", "spool", "concurrency")}
        options |= {"strict_validation": False, "journal": self.location, "resume": True}
        job = {"url": self._url, "rows": scene.rows, "streamed": scene.seed % 3 == 0, "attempts": scene.attempts}
        *delivered, last = [None, *self.killer.run(kill=bool(ending), **job, options=options)]
        self.delivered += [message for message in (*delivered, last) if isinstance(message, ContactOutcome)]
        if not self.finished:
            report = self.report()
            self.crashes.append(report.possibly_sent if report else 0)

    def violations(self) -> list[str]:
        """Return every violated invariant, and what a process wrote to stderr."""
        return [*super().violations(), *(self.folder / "errors").read_text().splitlines()[-1:]]


class KilledNights:
    """Runs of changing rows with one ledger, whose processes are killed."""

    def __init__(self, folder: Path, location: str, fake: FakeService, url: str, chance: random.Random) -> None:
        places: list[Place] = ["before a late request", "at a random time"]
        self.killer = Killer(folder, chance, places if location.startswith("s3:") else [*places, "after a write"])
        self.rows: list[dict[str, str]] = []
        self.excluded: set[str] = set()
        """The e-mails whose rows may not be sent in this night."""
        self._location = location
        self._fake = fake
        self._url = url
        self._chance = chance
        self._requests = 0
        self._late: list[Request] = []
        self._ahead = 0.0

    def exchange(self, request: Request, /) -> Exchange:
        """Carry out a request of a process, and late ones after it, unless it is the place at which the process is killed."""
        self._requests += 1
        if self.killer.strike(self._requests) is not None:
            self._late.append(request)
            return inject(faults.reset(), lambda: self._fake.handle(request))
        exchange = self._fake.exchange(request)
        if self._late and self._chance.random() < 0.02:
            self._carry_out_late()
        return exchange

    def _carry_out_late(self) -> None:
        while self._late:
            self._fake.handle(self._late.pop(0))

    def change(self) -> None:
        for row in self.rows:
            if self._chance.random() < 0.1:
                row["city"] = self._chance.choice(_CITIES)
        while len(self.rows) < _ROWS:
            email, city = f"user{self._chance.randrange(2 * _ROWS)}@a.example", self._chance.choice(_CITIES)
            self.rows.append({"email": email, "city": city, "campaign": self._chance.choice([*_CAMPAIGNS])})
        self._chance.shuffle(self.rows)
        del self.rows[_ROWS - 10 :]
        self.excluded = {row["email"] for row in self.rows if row["email"] in _NEVER or self._chance.random() < 0.05}

    def live(self, *, kill: bool = False) -> dict[str, Any]:
        """Run a night. Return its report, which is empty if the process was killed."""
        options = {"ledger": self._location, "duplicates": "overwrite", "concurrency": 16}
        self._requests = 0
        rows = [OptedOut(row) if row["email"] in self.excluded else row for row in self.rows]
        job = {"url": self._url, "rows": rows, "streamed": False, "attempts": 4, "options": options, "ahead": self._ahead}
        messages = self.killer.run(kill=kill, **job)
        return messages[-1] if messages and isinstance(messages[-1], dict) else {}

    def violations(self) -> list[str]:
        """Run until nothing is uncertain, and return what is wrong then."""
        self._carry_out_late()
        for _ in range(3):  # the first adds the killed run, the second settles its rows
            self._ahead += 3600.0  # no request of an earlier process can arrive any more
            report = self.live()
        sent = [row for row in self.rows if row["email"] not in self.excluded]
        cities = {row["email"]: row["city"] for row in sent}
        contacts = {contact["email"]: contact for contact in self._fake.contacts(SPACE)}
        stored = {email: contact["fields"]["city"] for email, contact in contacts.items()}
        wrong = [f"{email} has {stored.get(email)}, not {city}" for email, city in cities.items() if stored.get(email) != city]
        wrong += [f"{email} has opted out" for email in _NEVER & contacts.keys()]
        for row in sent:
            campaign = _CAMPAIGNS[row["campaign"]]
            if campaign is not None and campaign not in contacts[row["email"]]["campaigns"]:
                wrong.append(f"{row['email']} is not in {campaign}")
        repeated = sum(count for count in Counter(row["email"] for row in sent).values() if count > 1)
        if len(sent) - report["ledger"]["unchanged"] > repeated:
            wrong.append(f"a second run sends more than repeated contacts: {report['ledger']}")
        return wrong


def kill_run(kind: Kind, seed: int, folder: Path, served: SimpleNamespace, url: str) -> Counter[Place]:
    """Kill the processes of one run with a journal, and check the result. Return the kills."""
    chance = random.Random(f"places {seed}")  # noqa: S311 - repeatable, not secret
    locations: dict[str, Path | str] = {"folder": f"file://{folder}/journal", "s3": f"s3://journals/{folder.name}"}
    drawn = random.Random(f"kills {seed}")  # noqa: S311 - repeatable, not secret
    scene = seeded(
        seed,
        _ROWS,
        duplicates=get_args(DuplicatePolicy)[seed % 3],
        repeats=drawn.choice(["serial", "serial", *get_args(Repeats)]),
        order=drawn.choice(["completion", "input"]),
        spool=drawn.random() < 0.3,
        trouble=drawn.choice([0.0, 0.1]),
        faults=FAULTS,
        attempts=4,
        concurrency=8,
    )
    run = KilledRun(scene, folder, locations.get(kind, folder / "run.db"), url, chance)
    served.exchange = run.exchange
    run.finish(iter([True] * chance.randint(1, 6)))
    assert (wrong := run.violations()) == [], f"{kind}, seed {seed}: {wrong}"
    return run.killer.kills


def kill_nights(kind: Kind, seed: int, folder: Path, served: SimpleNamespace, url: str) -> Counter[Place]:
    """Kill the processes of a few nights with one ledger, and check the result after each. Return the kills."""
    chance = random.Random(f"nights {seed}")  # noqa: S311 - repeatable, not secret
    fake = new_fake(seed=seed)
    fake.add_campaign(SPACE, id="camp_1", name="Spring")
    fake.add_campaign(SPACE, id="camp_2", name="Autumn")
    locations = {"ledger-folder": (folder / "contacts").as_uri(), "ledger-s3": f"s3://journals/{folder.name}"}
    location = locations.get(kind, str(folder / "contacts.ledger"))
    nights = KilledNights(folder, location, fake, url, chance)
    served.exchange = nights.exchange
    for _ in range(4):
        for _ in range(chance.randint(1, 3)):
            for kill in (True, chance.random() < 0.5):
                nights.change()
                nights.live(kill=kill)
        assert (wrong := nights.violations()) == [], f"{kind}, seed {seed}: {wrong}"
    return nights.killer.kills


def loop(kills: int, seed: int, kinds: Sequence[Kind]) -> Counter[tuple[Kind, Place]]:
    """Kill processes, and check what they leave. Return the kills by kind and place."""
    done: Counter[tuple[Kind, Place]] = Counter()
    served = SimpleNamespace(exchange=None)  # of the run that is under way
    get_context("forkserver").set_forkserver_preload(["support.crashes", "support.cli", "httpx", "obstore.store"])
    with serve_in_thread(served) as url, tempfile.TemporaryDirectory() as name:
        while done.total() < kills:
            kind = kinds[seed % len(kinds)]
            folder = Path(name, str(seed))
            folder.mkdir()
            kill = kill_nights if kind.startswith("ledger") else kill_run
            done.update({(kind, place): count for place, count in kill(kind, seed, folder, served, url).items()})
            seed += 1
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=get_args(Kind), default=get_args(Kind))
    given = parser.parse_args()
    with ExitStack() as stack:
        if {"s3", "ledger-s3"} & {*given.kinds}:
            os.environ |= environment(stack.enter_context(serve_s3()))
        done = loop(given.kills, given.seed, given.kinds)
    for (kind, place), count in sorted(done.items()):
        sys.stdout.write(f"{kind:14} {place:22} {count:5}\n")
    sys.stdout.write(f"{done.total()} kills; every label and every contact was right\n")


if __name__ == "__main__":
    main()
