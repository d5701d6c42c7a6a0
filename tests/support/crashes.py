"""Simulate bulk runs in virtual time, against the fake, in processes that end early and are resumed.

A simulated kill stops all effects of a process at one point: no later call reaches the journal, no request reaches the service,
no outcome reaches the caller, and the journal's files stay as they are. SQLite undoes a call that a kill interrupts, so each kill
is simulated before or after a journal call. The fault of a request depends only on the seed, the row and the number of earlier
requests for this row. Equal seeds therefore produce equal faults.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
from support.journal import copy_journal
from support.outcome_oracle import FINDINGS, find_wrong_labels, turns, when_applied
from support.processes import ORDERLY, Ending, Killed, Left, MortalJournal, Process, consume
from support.scenarios import KEY, SPACE, Scenario, World, client_of, creation, service, valid
from trio._core import _run

from outreach_async import BulkError, ContactOutcome, Outcome, Progress, Request, Response
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.fake import FakeTransport, faults
from outreach_async.fake.faults import Exchange, Fault
from outreach_async.store import JournalReport, Store
from outreach_async.store._writer import JournalWriter
from outreach_async.testing import VirtualTime

INTERRUPTS: Final = frozenset({"Ctrl-C", "Ctrl-C twice"})
MOST: Final = 500
"""Maximum number of processes of a run. A run that needs more is considered endless."""


class MortalTransport:
    """A transport that forwards requests to the simulated service until its process dies."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    async def send(self, request: Request, progress: Progress, /) -> Response:
        world, progress.sent = self._world, False
        row = world.row_of(request)
        self._process.at("send", row)
        world.sends[row] += 1
        fault, way, answer = world.weather(row, world.sends[row])
        world.open += 1
        world.most_open = max(world.most_open, world.open)
        try:
            await anyio.sleep(way)
            response = await FakeTransport(_Meeting(self._process, world, row, fault)).send(request, progress)
            await anyio.sleep(answer)
        finally:
            world.open -= 1
        return world.misdirect(json.loads(request.body)["email"], world.sends[row], response)

    async def aclose(self) -> None: ...


@attrs.frozen
class _Meeting:
    """A service that executes one request with its fault."""

    process: Process
    world: World
    row: int
    fault: Fault

    def exchange(self, request: Request, /) -> Exchange:
        if self.process.dead:
            raise Killed
        self.world.struck += self.fault is not faults.ok
        return self.world.execute(self.row, request, self.fault, lambda: self._serve(request))

    def _serve(self, request: Request) -> Response:
        response = self.world.carry_out(self.row, request)
        self.process.at("committed", self.row)
        return response


class Run(ABC):
    """A bulk run that is executed by one process after another until it is finished, and the checks of its result."""

    location: Path | str

    def __init__(self, scene: Scenario, folder: Path, clock: Callable[[], float]) -> None:
        self.scene = scene
        self.folder = folder
        self.world = World(scene, clock)
        self.delivered: list[ContactOutcome] = []
        self.crashes: list[int] = []
        """For each process that ended before the run was finished, the number of rows that count as possibly sent."""
        self.broken: list[str] = []

    @abstractmethod
    def live(self, ending: Any = None) -> object:
        """Start or resume the run in a new process, which ends in this way; by default, it runs to its end."""

    def report(self) -> JournalReport | None:
        """Return the report of the journal; `None` if the journal does not exist or is empty."""
        try:
            return Store(self.location).report()
        except InvalidRequest:
            return None

    @property
    def finished(self) -> bool:
        """Return whether the journal's run is finished."""
        report = self.report()
        return report is not None and report.state == "finished"

    def finish(self, endings: Iterator[Any]) -> None:
        """Run processes until the run is finished. Each process gets the next ending; without one, it runs to its end."""
        for _ in range(MOST):
            if self.finished:
                return
            self.live(next(endings, None))
        raise AssertionError(f"the run is not finished after {MOST} processes")

    def violations(self) -> list[str]:
        """Return every violated invariant of the finished run."""
        self.world.carry_out_late(math.inf)
        outcomes = list(Store(self.location).outcomes())
        broken = [*self._conserved(outcomes), *self._labelled(outcomes), *self._stored(outcomes), *self._frugal(outcomes)]
        return [*self.broken, *broken]

    def _conserved(self, outcomes: list[ContactOutcome]) -> Iterator[str]:
        """Check I1, I2 and I12: each row has one outcome, no final one is delivered twice, and no file contains the key."""
        if [outcome.index for outcome in outcomes] != list(range(len(self.scene.rows))):
            yield "I1: the journal does not have exactly one outcome per row"
        if (report := self.report()) is None or sum(report.outcomes.values()) != len(self.scene.rows):
            yield "I1: the counts of the report do not add up to the number of rows"
        kept_outcomes = {outcome.index: _said(outcome) for outcome in outcomes}
        # If a run stops before the service accepts a row, its rows are sent again, and get another outcome.
        reopened = any("reopened" in data for _, _, data in Store(self.location).events())
        final = [each for each in self.delivered if each.error is None or not (reopened and each.attempts)]
        if len({each.index for each in final}) != len(final):
            yield "I2: an outcome was delivered twice"
        if any(kept_outcomes.get(each.index) != _said(each) for each in final):
            yield "I2: a delivered outcome differs from the journal"
        if not self.crashes and {each.index for each in self.delivered} != {*kept_outcomes}:
            yield "I2: an outcome was not delivered"
        if KEY.encode() in b"".join(path.read_bytes() for path in self.folder.rglob("*") if path.is_file()):
            yield "I12: a file contains the owner key"

    def _labelled(self, outcomes: list[ContactOutcome]) -> Iterator[str]:
        """Check I3, I5 and I6: the outcomes agree with the ledger."""
        truths: dict[int, Outcome] = {}
        for row, done in self.world.ledger:
            truths.setdefault(row, done)
        for outcome in outcomes:
            truth = truths.get(outcome.index)
            sent = truth is not None and outcome.repeats is None
            yield from (f"I5: row {outcome.index}: {wrong}" for wrong in find_wrong_labels(outcome, truth, sent=sent))
            if (outcome.status is Outcome.EXCLUDED) is not self.scene.is_excluded(outcome.index):
                yield f"I5: row {outcome.index} is {outcome.status}"
            if outcome.status not in FINDINGS and self.world.fake.contact(SPACE, self.scene.rows[outcome.index]["email"]) is None:
                yield f"I3: row {outcome.index} has no contact"
        if not self.crashes and not self.world.struck and not all(outcome.certain for outcome in outcomes):
            yield "I6: an outcome is uncertain although there was no fault"

    def _stored(self, outcomes: list[ContactOutcome]) -> Iterator[str]:
        """Check I4 and I7: each e-mail has one contact, with the content that results from applying its rows in order."""
        groups: dict[str, list[ContactOutcome]] = defaultdict(list)
        for outcome in outcomes:
            if valid(self.scene.rows[outcome.index]) and outcome.repeats is None:
                groups[self.scene.rows[outcome.index]["email"].lower()].append(outcome)
        stored = self.world.fake.contacts(SPACE)
        if max(Counter(contact["email"].lower() for contact in stored).values(), default=0) > 1:
            yield "I4: an e-mail has several contacts"
        for email, group in groups.items():
            possible = [
                self._made(email, [group[place].index for place in order])
                for order in turns([when_applied(each) for each in group])
            ]
            if self.world.is_order_known and _plain(self.world.fake.contact(SPACE, email)) not in possible:
                yield f"I7: {email} differs from the result of applying its rows in order"

    def _made(self, email: str, rows: Sequence[int]) -> Any:
        """Return the contact that results from applying rows in order to a separate service without faults."""
        fake = service(self.scene, lambda: 0.0)
        for members in (members for row in rows for members in self.scene.means(row)):
            fake.handle(creation(members, self.scene.duplicates))
        return _plain(fake.contact(SPACE, email))

    def _frugal(self, outcomes: list[ContactOutcome]) -> Iterator[str]:
        """Check I8, I13 and I14: no unnecessary or too many concurrent requests, and no effect of resuming a finished run."""
        rows = sum(outcome.attempts > 0 for outcome in outcomes)
        if self.world.sends.total() > rows + self.world.struck + sum(self.crashes):
            yield "I14: too many requests"
        if self.world.most_open > self.scene.concurrency:
            yield "I8: too many concurrent requests"
        before = len(self.delivered), self.world.sends.total()
        self.live()
        if (len(self.delivered), self.world.sends.total()) != before:
            yield "I13: a finished run sent requests or delivered outcomes again"


class Simulation(Run):
    """A run whose processes are simulated."""

    location: Path

    def __init__(
        self, scene: Scenario, folder: Path, backend: str, harmed: Callable[[JournalWriter], Any] = lambda writer: writer
    ) -> None:
        self._time = VirtualTime()
        super().__init__(scene, folder, self._time)
        self._harmed = harmed
        self._backend = backend
        self.processes: list[Process] = []
        self.location = folder / "run0.db"

    def live(self, ending: Ending | int | None = None, rows: Sequence[Any] | None = None) -> Process:
        """Start or resume the run in a new process, and return that process when it has ended."""
        scene = self.scene
        process = Process(
            Ending("kill", ending) if isinstance(ending, int) else ending,
            seed=scene.seed,
            journal_seconds=scene.journal_seconds,
            caller_seconds=scene.caller_seconds,
        )
        self.processes.append(process)
        self.world.delivered.clear()
        _run._r.seed(self.scene.seed)  # trio randomises the order of tasks
        options = self._time.options(self._backend)
        try:
            anyio.run(
                self._create, process, self.scene.rows if rows is None else rows, backend=self._backend, backend_options=options
            )
        except BaseException as error:
            if not process.dead and not _expected(error, process):
                raise
        finally:
            self.world.open = 0
            self._close_books(process)
        return process

    async def _create(self, process: Process, rows: Sequence[Any]) -> None:
        scene = self.scene
        client = client_of(MortalTransport(self.world, process), scene.attempts)
        run = client.contacts.create_many(
            process.rows(rows),
            duplicates=scene.duplicates,
            repeats=scene.repeats,
            strict_validation=False,
            concurrency=scene.concurrency,
            journal=MortalJournal(self.location, process, self._harmed),
            resume=True,
            order=scene.order,
            spool=scene.spool,
        )
        await consume(run, process, self.delivered)

    def _close_books(self, process: Process) -> None:
        if process.dead:
            self._bury(process)
        elif process.ended:
            self._inspect(process)

    def _bury(self, process: Process) -> None:
        """Copy the journal's files as they were at the kill, then close the writers. Closing a connection changes its files."""
        left, self.location = self.location, self.folder / f"run{len(self.processes)}.db"
        copy_journal(left, self.location)
        for writer in process.writers:
            writer.close()
        report = self.report()
        self.crashes.append(report.possibly_sent if report else 0)

    def _inspect(self, process: Process) -> None:
        """Check the journal of a process that ended early without being killed."""
        report = self.report()
        self.crashes.append(report.possibly_sent if report else 0)
        if process.way in ORDERLY and process.writers and not process.journal_fails and report and report.state == "running":
            self.broken.append(f"I18: the journal does not record that the run ended in order ({process.way})")


@contextmanager
def memory() -> Iterator[Path]:
    """Yield an empty temporary folder, in memory if possible because thousands of commits to a disk are slow."""
    place = "/dev/shm"  # noqa: S108 - tempfile creates a folder in it
    with tempfile.TemporaryDirectory(dir=place if Path(place).is_dir() else None) as name:
        yield Path(name)


def kill_everywhere(
    scene: Scenario, folder: Path, backend: str, harmed: Callable[[JournalWriter], Any] = lambda writer: writer
) -> Iterator[Simulation]:
    """Yield finished runs that were killed at every point."""
    # The first process of run `n` is killed at point `n`, and up to two later processes are killed at random points. The series
    # ends with a run whose first process reaches its end. In one additional run, process `n` is killed at point `n`.
    for number in count(1):
        chance = random.Random(f"deaths {scene.seed} {number}")  # noqa: S311 - repeatable, not secret
        one = simulation(scene, folder / f"point{number}", backend, harmed)
        first = one.live(number)
        one.finish(iter([chance.randrange(1, 60) for _ in range(chance.randrange(3))]))
        yield one
        if not first.dead:
            break
    stairs = simulation(scene, folder / "stairs", backend, harmed)
    stairs.finish(count(1))
    yield stairs


def simulation(
    scene: Scenario, folder: Path, backend: str, harmed: Callable[[JournalWriter], Any] = lambda writer: writer
) -> Simulation:
    """Create a run in a separate folder."""
    folder.mkdir()
    return Simulation(scene, folder, backend, harmed)


def _expected(error: BaseException, process: Process) -> bool:
    """Return whether an error may end a process."""
    if isinstance(error, BaseExceptionGroup):
        return process.way in INTERRUPTS and all(_expected(each, process) for each in error.exceptions)
    if isinstance(error, BulkError):
        return True
    if isinstance(error, JournalError) and process.journal_fails:
        return process.way != "cancel" and not process.raised  # the caller must see these errors
    kinds: dict[Any, type[BaseException]] = {
        "raise": Left,
        "rows raise": Left,
        "journal fails": JournalError,
        "journal fails late": JournalError,
        **dict.fromkeys(INTERRUPTS, KeyboardInterrupt),
    }
    return isinstance(error, kinds.get(process.way, ()))


def _plain(contact: dict[str, Any] | None) -> Any:
    """Return the e-mail and the non-blank fields of a contact."""
    # Blank fields are ignored: creating a contact stores a blank value, but overwriting a contact removes it.
    return contact and (contact["email"], {name: value for name, value in contact["fields"].items() if value})


def _said(outcome: ContactOutcome) -> Any:
    return outcome.status, outcome.id, outcome.possible, outcome.attempts, outcome.repeats
