"""Kill real processes that run with a ledger, and check that the next run makes the service equal to the input.

Run: python -m tools.ledger_kills [--kills 300] [--seed 0]

Half of the ledgers are files, half are folders of objects. Half of the kills are at a random time of the run, half while the run
is added to the ledger.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import anyio
import attrs
from support.cli import serve_in_thread
from support.scenarios import KEY, SPACE

from outreach_async import BulkReport, OutreachClient
from outreach_async.fake import FakeService

_ROWS = 150
_CITIES = ("Lyon", "Bern", "Rome", "Oslo")


def run_night(url: str, ledger: str, rows: list[dict[str, str]], started: Connection) -> None:
    """Run in a process of its own: send rows with a ledger, and return the report."""

    async def run() -> BulkReport:
        async with OutreachClient(base_url=url, owner_key=KEY, workspace=SPACE) as client:
            started.send("started")
            return await client.contacts.create_many(rows, ledger=ledger, duplicates="overwrite", concurrency=16)

    started.send(anyio.run(run).to_dict())


@attrs.define
class Kills:
    """A service, its input, and processes that are killed."""

    url: str
    fake: FakeService
    folder: Path
    chance: random.Random
    rows: list[dict[str, str]] = attrs.field(factory=list)
    places: Counter[str] = attrs.field(factory=Counter)
    longest: float = 1.0

    def change(self) -> None:
        """Change, add, remove, repeat and reorder rows."""
        for row in self.rows:
            if self.chance.random() < 0.1:
                row["city"] = self.chance.choice(_CITIES)
        while len(self.rows) < _ROWS:
            self.rows.append({"email": f"user{self.chance.randrange(2 * _ROWS)}@a.example", "city": self.chance.choice(_CITIES)})
        self.chance.shuffle(self.rows)
        del self.rows[_ROWS - 10 :]

    def live(self, ledger: str, kill: Callable[[], str] | None = None) -> dict[str, Any] | None:
        """Run a night, and kill its process. Return its report if it has ended before."""
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe()
        process = context.Process(target=run_night, args=(self.url, ledger, self.rows, theirs))
        process.start()
        theirs.close()
        report = None
        with ours:
            assert ours.recv() == "started"
            begun = time.monotonic()
            if kill is not None:
                place = kill()
                process.kill()
                self.places[place] += 1
            with suppress(EOFError):
                report = ours.recv()
                self.longest = max(time.monotonic() - begun, 0.2)
        process.join()
        return report

    def at_random(self) -> str:
        """Wait for a random part of a run."""
        time.sleep(self.chance.uniform(0, self.longest))
        return "at a random time"

    def in_fold(self, written: Callable[[], set[str]]) -> Callable[[], str]:
        """Return a function that waits until the run is added to the ledger, and then for a few milliseconds more."""

        def wait() -> str:
            before, end = written(), time.monotonic() + 20 * self.longest
            while written() == before and time.monotonic() < end:
                time.sleep(0.0005)
            time.sleep(self.chance.uniform(0, 0.01))
            return "while the run was added"

        return wait

    def violations(self, ledger: str) -> list[str]:
        """Run until nothing is uncertain, and return what is wrong then."""
        reports = [self.live(ledger) for _ in range(2)]
        assert reports[-1] is not None
        last = {row["email"]: row["city"] for row in self.rows}
        stored = {contact["email"]: contact["fields"]["city"] for contact in self.fake.contacts(SPACE)}
        wrong = [
            f"{email} has {stored.get(email)} instead of {city}" for email, city in last.items() if stored.get(email) != city
        ]
        repeated = sum(count for count in Counter(row["email"] for row in self.rows).values() if count > 1)
        if reports[-1]["rows"] - reports[-1]["ledger"]["unchanged"] > repeated:
            wrong.append(f"a second run sends more than repeated contacts: {reports[-1]['ledger']}")
        return wrong


def find_written(folder: Path) -> set[str]:
    """Return the files that are written when a run is added to the ledger: its draft, or the objects of a generation."""
    return {str(path) for pattern in ("*.draft", "contacts/entries/*") for path in folder.glob(pattern)}


def kill(kills: int, seed: int) -> Kills:
    """Kill processes, and check the result after each of them."""
    fake = FakeService(seed)
    fake.add_workspace(SPACE)
    fake.add_owner_key(SPACE, key=KEY)
    with serve_in_thread(fake) as url, tempfile.TemporaryDirectory() as name:
        loop = Kills(url, fake, Path(name), random.Random(seed))  # noqa: S311 - repeatable, not secret
        done = 0
        while done < kills:
            folder = loop.folder / str(done)
            folder.mkdir()
            ledger = (folder / "contacts").as_uri() if done % 2 else str(folder / "contacts.ledger")
            written = partial(find_written, folder)
            for _ in range(5):
                loop.change()
                for _ in range(loop.chance.randint(1, 3)):
                    loop.live(ledger, loop.chance.choice([loop.at_random, loop.in_fold(written)]))
                    done += 1
                assert (wrong := loop.violations(ledger)) == [], f"seed {seed}, after {done} kills: {wrong}"
            shutil.rmtree(folder)
    return loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    loop = kill(options.kills, options.seed)
    sys.stdout.write(f"{loop.places.total()} kills: {dict(loop.places)}; every contact had the values of its last row\n")


if __name__ == "__main__":
    main()
