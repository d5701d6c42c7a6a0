"""Takeovers: a run pauses at any of its points, another run takes over its journal and finishes, and the first run continues.

Both runs use the real pipeline, in separate event loops in virtual time. To pause, the first run blocks its event loop while
the second run executes in another thread.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio
from support.crashes import MortalTransport
from support.outcome_oracle import find_wrong_labels
from support.processes import Process
from support.scenarios import KEY, SPACE, Scenario, World
from support.time import jump

from outreach_async import BulkError, ContactOutcome, ObjectJournal, Outcome, OutreachClient, RetryPolicy
from outreach_async._files.objects import Objects
from outreach_async.errors import JournalError
from outreach_async.testing import VirtualTime

HEARTBEAT: Final = 5.0
"""Seconds for which a run may send after the start of its last successful write."""


class DictObjects:
    """An object store in a dictionary."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
        if after is not None and after not in self.contents:
            raise OSError("the objects were removed during the run")
        if name in self.contents:
            return False
        self.contents[name] = content
        return True

    def read(self, name: str) -> bytes:
        if name not in self.contents:
            raise FileNotFoundError(2, "No such file or directory", name)
        return self.contents[name]

    def names(self) -> Iterator[str]:
        yield from tuple(self.contents)


class _PassingProcess(Process):
    """A process that reports its points to a `Takeover`."""

    def __init__(self, takeover: Takeover) -> None:
        super().__init__()
        self._takeover = takeover

    def at(self, name: str, row: Any) -> None:
        self._takeover.at(name, row)


class _PassingObjects:
    """The object store of the first run. Each write has a point before it, and a point between the write and its reply."""

    def __init__(self, objects: Objects, takeover: Takeover) -> None:
        self.last_write = math.inf
        self.failed = False
        self._objects = objects
        self._takeover = takeover
        self._writes = 0

    def read(self, name: str) -> bytes:
        return self._objects.read(name)

    def names(self) -> Iterator[str]:
        return self._objects.names()

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
        begun = self._takeover.clock()
        self._writes += 1
        trouble = self._takeover.puts.get(self._writes)
        self._takeover.at("create", None)
        if trouble == "unmounted" and self._writes > 1:  # before the first object, nothing shows that the folder is another one
            self._objects, self.failed = DictObjects(), True
        created = trouble != "503" and self._objects.create(name, content, after=after)
        ours = created or (trouble != "503" and self._objects.read(name) == content)
        self._takeover.at("created", None)
        self.failed = self.failed or not ours or trouble in {"503", "503 after the write"}
        if trouble in {"503", "503 after the write"}:
            raise OSError("503")
        if ours:
            self.last_write = begun
        return created and trouble != "lost reply"


class Takeover:
    """Two runs with one journal."""

    def __init__(
        self,
        scene: Scenario,
        backend: str,
        point: int,
        seconds: float,
        clock: Callable[[], float] = anyio.current_time,
        *,
        stalls: Mapping[int, float] | None = None,
        puts: Mapping[int, str] | None = None,
    ) -> None:
        self.scene = scene
        self.happened = False
        self.errors: list[JournalError] = []
        self.marked = 0
        self.sent_before: set[int] = set()
        self.sent_after: set[int] = set()
        self.too_late: set[int] = set()
        self.delivered: list[ContactOutcome] = []
        self.objects = DictObjects()
        self.journal = ObjectJournal("memory://run", objects=self.objects)
        self.clock = clock
        self.puts = puts or {}
        self._first = _PassingObjects(self.objects, self)
        self._stalls = stalls or {}
        self._backend = backend
        self._passed = 0
        self._point = point
        self._seconds = seconds
        self._world = World(scene, lambda: 0.0)

    def at(self, name: str, row: Any) -> None:
        """Pass a point of the first run."""
        if name == "send":
            (self.sent_after if self.happened else self.sent_before).add(row)
            if self._first.failed or self.clock() - self._first.last_write > HEARTBEAT:
                self.too_late.add(row)
        self._passed += 1
        if self._passed in self._stalls:
            jump(self._stalls[self._passed])
        if self._passed == self._point and self.objects.contents:
            self.marked = self.journal.report().marked
            self.happened = True
            successor = threading.Thread(target=self._finish)
            successor.start()
            successor.join()
            jump(self._seconds)

    def play(self) -> None:
        """Run both runs to their ends."""
        self._live(_PassingProcess(self), self._first, self.delivered)
        self._finish()

    def _finish(self) -> None:
        """Resume the run until it is finished. A response can stop it early."""
        for _ in range(100):
            self._live(Process(), self.objects, [])
            if self.journal.report().state == "finished":
                break

    def _live(self, process: Process, objects: Objects, delivered: list[ContactOutcome]) -> None:
        options = VirtualTime().options(self._backend)
        with suppress(BulkError, JournalError):
            anyio.run(self._create, process, objects, delivered, backend=self._backend, backend_options=options)

    async def _create(self, process: Process, objects: Objects, delivered: list[ContactOutcome]) -> None:
        retry = RetryPolicy(attempts=self.scene.attempts, jitter=lambda: 0.5)
        transport = MortalTransport(self._world, process)
        client = OutreachClient(transport=transport, owner_key=KEY, workspace=SPACE, retry=retry)
        journal = ObjectJournal("memory://run", objects=objects, inline=True, clock=self.clock)
        try:
            async with client.contacts.create_many(
                self.scene.rows,
                duplicates=self.scene.duplicates,
                strict_validation=False,
                concurrency=self.scene.concurrency,
                journal=journal,
                resume=True,
            ) as outcomes:
                async for outcome in outcomes:
                    delivered += [outcome]
        except JournalError as error:
            self.errors.append(error)
            raise

    def violations(self) -> Iterator[str]:
        """Yield every wrong label, and every outcome that was lost or changed."""
        recorded = list(self.journal.outcomes())
        if [outcome.index for outcome in recorded] != list(range(len(self.scene.rows))):
            yield "the journal does not contain exactly one outcome per row"
        if self.journal.report().state != "finished":
            yield "the journal is not finished"
        truths: dict[int, Outcome] = {}
        for row, done in self._world.ledger:
            truths.setdefault(row, done)
        for outcome in recorded:
            truth = truths.get(outcome.index)
            yield from (f"row {outcome.index}: {wrong}" for wrong in find_wrong_labels(outcome, truth, sent=truth is not None))
        labels = _labels(recorded)
        yield from (
            f"row {index}: the delivered outcome differs from the recorded one"
            for index, said in _labels(self.delivered).items()
            if said != labels[index]
        )
        if self.too_late:
            yield f"rows {self.too_late} were sent over {HEARTBEAT} s after the start of the last write, or after a failed one"
        if self.happened and (wrong := {row for row in self.sent_after if row >= self.marked}):
            yield f"rows {wrong} were sent after the takeover, but were not marked before it"


def _labels(outcomes: Sequence[ContactOutcome]) -> dict[int, Any]:
    return {each.index: (each.status, each.possible, each.id) for each in outcomes}
