"""The real pipeline on a virtual clock against the fake, in processes that end early and are followed by others.

From the point on at which a process is to die nothing of it
happens any more: no later call reaches the journal, no request the service, no outcome the caller; and its files stay as they are
then, as after a kill. A call that a kill cuts in two is SQLite's to undo: it is as if the kill had come before it or after. What
the weather does to a row's request depends on the seed, the row and how often it was sent, so that equal seeds meet the same.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
from support.journal import ENDINGS
from support.outcome_oracle import FINDINGS, find_wrong_labels, turns, when_applied
from support.processes import ORDERLY, Ending, Killed, Left, MortalJournal, Process, consume
from support.scenarios import KEY, SPACE, Scenario, World, creation, service, valid
from trio._core import _run

from outreach_async import BulkStopped, ContactOutcome, Outcome, OutreachClient, RetryPolicy
from outreach_async.bulk.journal import Journal, JournalWriter
from outreach_async.errors import JournalError
from outreach_async.fake import FakeTransport, faults
from outreach_async.fake.fault_plan import Exchange, Fault
from outreach_async.testing import VirtualTime
from outreach_async.transport.wire import Progress, Request, Response

INTERRUPTS: Final = frozenset({"Ctrl-C", "Ctrl-C twice"})
MOST: Final = 500
"""The number of processes after which an unfinished run will never finish."""


class MortalTransport:
    """Forwards requests to a world until its process dies."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    async def send(self, request: Request, progress: Progress, /) -> Response:
        world, progress.sent = self._world, False
        row = world.scene.sent_for(json.loads(request.body))
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
    """One request and its fault, as a service."""

    process: Process
    world: World
    row: int
    fault: Fault

    def exchange(self, request: Request, /) -> Exchange:
        if self.process.dead:
            raise Killed
        self.world.struck += self.fault is not faults.ok
        return self.fault.inject(lambda: self._serve(request))

    def _serve(self, request: Request) -> Response:
        response = self.world.carry_out(self.row, request)
        self.process.at("committed", self.row)
        return response


class Simulation:
    """A run, over as many processes as it takes.

    Args:
        scene: What is to be done.
        folder: Where its journal stands, empty.
        backend: `asyncio` or `trio`.
        harmed: Puts something else in the place of a writer, to see that it is noticed.

    Attributes:
        world: What outlives the processes.
        processes: All that there were.
        delivered: Outcomes that reached the caller.
        crashes: Rows that each process left suspect which did not come to the run's end.
        broken: Invariants that a process broke when it ended.
        path: Of the journal, as the next process finds it.
    """

    def __init__(
        self, scene: Scenario, folder: Path, backend: str, harmed: Callable[[JournalWriter], Any] = lambda writer: writer
    ) -> None:
        self._time = VirtualTime()
        self._harmed = harmed
        self._folder = folder
        self._backend = backend
        self.scene = scene
        self.world = World(scene, self._time)
        self.processes: list[Process] = []
        self.delivered: list[ContactOutcome] = []
        self.crashes: list[int] = []
        self.broken: list[str] = []
        self.path = folder / "run0.db"

    def live(self, ending: Ending | int | None = None, rows: Sequence[Any] | None = None) -> Process:
        """Let a process start or resume the run, until it ends; a number is the point of a kill."""
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
        retry = RetryPolicy(attempts=scene.attempts, jitter=lambda: 0.5)
        client = OutreachClient(transport=MortalTransport(self.world, process), owner_key=KEY, workspace=SPACE, retry=retry)
        run = client.contacts.create_many(
            process.rows(rows),
            duplicates=scene.duplicates,
            repeats=scene.repeats,
            strict_validation=False,
            concurrency=scene.concurrency,
            journal=MortalJournal(self.path, process, self._harmed),
            resume=True,
            order=scene.order,
            spool=scene.spool,
        )

        def take(outcome: ContactOutcome) -> None:
            process.at("deliver", outcome.index)
            self.delivered.append(outcome)

        with anyio.CancelScope() as process.scope:
            await consume(run, process, take)

    def _close_books(self, process: Process) -> None:
        if process.dead:
            self._bury(process)
        elif process.ended:
            self._inspect(process)

    def _bury(self, process: Process) -> None:
        """Keep the files as they were at the kill: closing the connection, which a kill does not do, changes them."""
        left, self.path = self.path, self._folder / f"run{len(self.processes)}.db"
        for ending in ENDINGS:
            if Path(f"{left}{ending}").exists():
                shutil.copyfile(f"{left}{ending}", f"{self.path}{ending}")
        for writer in process.writers:
            writer.close()
        self.crashes.append(Journal(self.path).report().possibly_sent if has_started(self.path) else 0)

    def _inspect(self, process: Process) -> None:
        """Check what a process that ended early, but was not killed, left behind."""
        report = Journal(self.path).report() if has_started(self.path) else None
        self.crashes.append(report.possibly_sent if report else 0)
        if process.way in ORDERLY and process.writers and not process.journal_fails and report and report.state == "running":
            self.broken.append(f"I18: a run that ended in order ({process.way}) did not say so")

    @property
    def finished(self) -> bool:
        """Return whether every row has its outcome."""
        return has_started(self.path) and Journal(self.path).report().state == "finished"

    def finish(self, endings: Iterator[Ending | int]) -> None:
        """Run processes until the run is finished; those with an ending end early."""
        while not self.finished:
            assert len(self.processes) < MOST, "the run never ends"
            self.live(next(endings, None))

    def violations(self) -> list[str]:
        """Return every violated invariant of the finished run."""
        outcomes = list(Journal(self.path).outcomes())
        broken = [*self._conserved(outcomes), *self._labelled(outcomes), *self._stored(outcomes), *self._frugal(outcomes)]
        return [*self.broken, *broken]

    def _conserved(self, outcomes: list[ContactOutcome]) -> Iterator[str]:
        """I1, I2 and I12: each row has one outcome, which was delivered once."""
        if [outcome.index for outcome in outcomes] != list(range(len(self.scene.rows))):
            yield "I1: not one outcome a row"
        if sum(Journal(self.path).report().outcomes.values()) != len(self.scene.rows):
            yield "I1: the figures do not add up"
        kept_outcomes, delivered_count = (
            {outcome.index: _said(outcome) for outcome in outcomes},
            Counter(each.index for each in self.delivered),
        )
        if delivered_count and max(delivered_count.values()) > 1:
            yield "I2: an outcome was delivered twice"
        if any(kept_outcomes.get(each.index) != _said(each) for each in self.delivered):
            yield "I2: another outcome was delivered than is kept"
        if not self.crashes and len(delivered_count) != len(kept_outcomes):
            yield "I2: an outcome was not delivered"
        if KEY.encode() in b"".join(path.read_bytes() for path in self._folder.iterdir()):
            yield "I12: a file holds the key"

    def _labelled(self, outcomes: list[ContactOutcome]) -> Iterator[str]:
        """I3, I5 and I6: outcomes agree with the ledger."""
        truths: dict[int, Outcome] = {}
        for row, done in self.world.ledger:
            truths.setdefault(row, done)
        for outcome in outcomes:
            truth = truths.get(outcome.index)
            sent = truth is not None and outcome.repeats is None
            yield from (f"I5: row {outcome.index}: {wrong}" for wrong in find_wrong_labels(outcome, truth, sent=sent))
            if outcome.status not in FINDINGS and self.world.fake.contact(SPACE, self.scene.rows[outcome.index]["email"]) is None:
                yield f"I3: row {outcome.index} is not there"
        if not self.crashes and not self.world.struck and not all(outcome.certain for outcome in outcomes):
            yield "I6: uncertain without a fault"

    def _stored(self, outcomes: list[ContactOutcome]) -> Iterator[str]:
        """I4 and I7: one contact per e-mail, as the rows make it one after the other."""
        groups: dict[str, list[ContactOutcome]] = defaultdict(list)
        for outcome in outcomes:
            if valid(self.scene.rows[outcome.index]) and outcome.repeats is None:
                groups[self.scene.rows[outcome.index]["email"].lower()].append(outcome)
        stored = self.world.fake.contacts(SPACE)
        if max(Counter(contact["email"].lower() for contact in stored).values(), default=0) > 1:
            yield "I4: two contacts of one e-mail"
        for email, group in groups.items():
            possible = [
                self._made(email, [group[place].index for place in order])
                for order in turns([when_applied(each) for each in group])
            ]
            if _plain(self.world.fake.contact(SPACE, email)) not in possible:
                yield f"I7: {email} is not what its rows make of it one after the other"

    def _made(self, email: str, rows: Sequence[int]) -> Any:
        """Return the contact that rows make one after the other in a separate service without faults."""
        fake = service(self.scene, lambda: 0.0)
        for members in (members for row in rows for members in self.scene.means(row)):
            fake.handle(creation(members, self.scene.duplicates))
        return _plain(fake.contact(SPACE, email))

    def _frugal(self, outcomes: list[ContactOutcome]) -> Iterator[str]:
        """I8, I13 and I14: no unnecessary requests."""
        rows = sum(outcome.attempts > 0 for outcome in outcomes)
        if self.world.sends.total() > rows + self.world.struck + sum(self.crashes):
            yield "I14: too many requests"
        if self.world.most_open > self.scene.concurrency:
            yield "I8: too many requests at a time"
        delivered_count = len(self.delivered)
        second_run = self.live()
        if len(self.delivered) != delivered_count or any(name == "send" for name, _ in second_run.trace):
            yield "I13: a finished run was not left alone"


@contextmanager
def memory() -> Iterator[Path]:
    """Return an empty folder, in memory where possible: thousands of commits then wait for no disk."""
    place = "/dev/shm"  # noqa: S108 - the folder in it is made by tempfile
    with tempfile.TemporaryDirectory(dir=place if Path(place).is_dir() else None) as name:
        yield Path(name)


def kill_everywhere(
    scene: Scenario, folder: Path, backend: str, harmed: Callable[[JournalWriter], Any] = lambda writer: writer
) -> Iterator[Simulation]:
    """Yield finished runs whose first process died at the first point, at the second and so on, and up to two later ones too.

    In the last but one no process died, and in the last each lived one point longer than the one before.
    """
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
    if isinstance(error, BulkStopped):
        return True
    if isinstance(error, JournalError) and process.journal_fails:
        return process.way != "cancel" and not process.raised  # errors the caller must see
    kinds: dict[Any, type[BaseException]] = {
        "raise": Left,
        "rows raise": Left,
        "journal fails": JournalError,
        "journal fails late": JournalError,
        **dict.fromkeys(INTERRUPTS, KeyboardInterrupt),
    }
    return isinstance(error, kinds.get(process.way, ()))


def has_started(path: Path) -> bool:
    """Return whether there is a journal: a file without its tables is not one yet."""
    return path.exists() and path.stat().st_size > 0


def _plain(contact: dict[str, Any] | None) -> Any:
    """Return the relevant part of a contact: blank counts as missing, because a new contact keeps a blank that overwriting
    removes.
    """
    return contact and (contact["email"], {name: value for name, value in contact["fields"].items() if value})


def _said(outcome: ContactOutcome) -> Any:
    return outcome.status, outcome.id, outcome.possible, outcome.attempts, outcome.repeats
