"""Takeovers: a run pauses at any of its points, another run takes over its journal and finishes, and the first run continues.

Both runs use the real pipeline, in separate event loops in virtual time. To pause, the first run blocks its event loop while
the second run executes in another thread. The runs have one journal, or one ledger and rows with different values.
"""

from __future__ import annotations

import json
import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from secrets import token_hex
from typing import Any, Final

import anyio
import attrs
from support.crashes import MortalTransport
from support.outcome_oracle import find_wrong_labels
from support.processes import Process
from support.scenarios import HEADERS, Scenario, World, client_of
from support.time import jump

from outreach_async import (
    BulkError,
    ContactOutcome,
    Outcome,
    Progress,
    Request,
    Response,
    Store,
)
from outreach_async._files.objects import Objects, open_objects
from outreach_async.errors import JournalError, TransportError
from outreach_async.store._objects import ObjectDatabase
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

    def __init__(self, takeover: Takeover | LedgerTakeover) -> None:
        super().__init__()
        self._takeover = takeover

    def at(self, name: str, row: Any) -> None:
        self._takeover.at(name, row)


class _PassingObjects:
    """The object store of the first run. Each write has a point before it, and a point between the write and its reply."""

    def __init__(self, objects: Objects, takeover: Takeover | LedgerTakeover) -> None:
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
        self.journal = Store("memory://run", objects=self.objects)
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
        transport = MortalTransport(self._world, process)
        client = client_of(transport, self.scene.attempts)
        journal = Store("memory://run", objects=objects, inline=True, clock=self.clock)
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


class _Service:
    """A service that carries out some requests late, and what it stores: the city of each e-mail."""

    def __init__(self, seed: int) -> None:
        self.cities: dict[str, str] = {}
        self.flights: list[tuple[str, str]] = []
        """Requests that were sent and have not arrived."""
        self.chance = random.Random(f"service {seed}")  # noqa: S311 - repeatable, not secret

    def carry_out(self, *flights: tuple[str, str]) -> None:
        for flight in flights:
            if flight in self.flights:  # otherwise it has arrived
                self.flights.remove(flight)
                self.cities.update([flight])


class _FlightTransport:
    """A transport to the service. Each request has a point before and after it is sent, and after it was carried out."""

    def __init__(self, service: _Service, process: Process, *, is_calm: bool) -> None:
        self._service = service
        self._process = process
        self._is_calm = is_calm

    async def send(self, request: Request, progress: Progress, /) -> Response:
        service, body = self._service, json.loads(request.body)
        progress.sent = False
        await anyio.sleep(0.01)
        self._process.at("send", None)
        progress.sent = True
        service.flights.append(flight := (body["email"], body["city"]))
        self._process.at("sent", None)
        trouble = 1.0 if self._is_calm else service.chance.random()
        await anyio.sleep(service.chance.uniform(0.01, 0.2))
        if trouble < 0.2:
            raise TransportError("lost", maybe_sent=True)
        if trouble < 0.4 and flight in service.flights:
            service.flights.remove(flight)
            return Response(503, {"retry-after": "3"}, b"{}")
        service.carry_out(flight)
        if service.chance.random() < 0.3:
            service.carry_out(*service.flights)
        self._process.at("carried out", None)
        await anyio.sleep(service.chance.uniform(0.01, 0.2))
        return Response(200, HEADERS, b'{"status":"overwriten","id":"contact_%b","details":null}' % body["email"][:5].encode())

    async def aclose(self) -> None: ...


@attrs.define(eq=False, repr=False, slots=False)
class _PassingLedger(Store):
    """The ledger of a run whose log has the points of `_PassingObjects`."""

    takeover: Any = attrs.field(kw_only=True)

    def medium(self) -> Any:
        medium: Any = super().medium()

        def open_log(run: int, path: str = "") -> ObjectDatabase:
            url = f"{self.location}/run-{run:06}"
            return ObjectDatabase(_PassingObjects(open_objects(url), self.takeover), url, self.clock, path)

        medium.open_log = open_log
        return medium


class LedgerTakeover:
    """Runs with one ledger. The first has older rows, and pauses at a point while others send the newer rows of its contacts."""

    clock = staticmethod(anyio.current_time)
    puts: Final[Mapping[int, str]] = {}
    ROWS: Final = 12
    BEGUN: Final = 1_790_000_000.0

    def __init__(self, backend: str, point: int, seconds: float, seed: int = 0) -> None:
        self.happened = False
        self.sent_after = 0
        self.service = _Service(seed)
        self._url = f"memory://{token_hex(8)}/contacts"
        self._backend = backend
        self._left = point
        self._seconds = seconds
        self._ahead = 0.0
        self._begun = False

    def at(self, name: str, _row: Any) -> None:
        """Pass a point of the first run."""
        self.sent_after += self.happened and name == "sent"
        self._begun |= name == "send"  # a run that has not sent anything may start again, after the other one
        self._left -= self._begun
        if not self._left and not self.happened:
            other = threading.Thread(target=self._take_over)
            other.start()
            other.join()
            self.happened = True
            jump(self._seconds)

    def _take_over(self) -> None:
        self._live("newer")
        if self._seconds > HEARTBEAT:  # meanwhile, whatever was sent arrives, and later runs settle what is uncertain
            self.service.carry_out(*self.service.flights)
            self._settle()

    def _settle(self) -> dict[str, int]:
        for _ in range(3):
            self._ahead += 3600.0
            counts = self._live("newer")
        return counts

    def play(self) -> Iterator[str]:
        """Run all runs, and yield what is wrong then."""
        self._live("first")
        with suppress(BulkError, JournalError):
            self._live("older", _PassingProcess(self), is_calm=False)
        self._ahead += 20.0
        if self.happened:
            self._live("newer")
        self.service.carry_out(*self.service.flights)
        counts = self._settle()
        yield from (f"{email} has {city} values" for email, city in self.service.cities.items() if city != "newer")
        if counts != {"unchanged": self.ROWS}:
            yield f"the last run says {counts}"
        if self.sent_after and self._seconds > HEARTBEAT:
            yield f"{self.sent_after} rows were sent after a long stop"

    def _live(self, city: str, process: Process | None = None, *, is_calm: bool = True) -> dict[str, int]:
        run = partial(self._create, city, process, is_calm=is_calm)
        return anyio.run(run, backend=self._backend, backend_options=VirtualTime().options(self._backend))

    async def _create(self, city: str, process: Process | None, *, is_calm: bool) -> dict[str, int]:
        transport = _FlightTransport(self.service, process or Process(), is_calm=is_calm)
        client = client_of(transport, 3)
        begun = self.BEGUN + self._ahead
        options: dict[str, Any] = {"inline": True, "wall": lambda: begun, "clock": self.clock}
        ledger = Store(self._url, **options) if process is None else _PassingLedger(self._url, takeover=self, **options)
        rows = [{"email": f"us{number:03}@a.example", "city": city} for number in range(self.ROWS)]
        report = await client.contacts.create_many(rows, ledger=ledger, duplicates="overwrite", concurrency=4)
        return {name: count for name, count in report.to_dict()["ledger"].items() if count}
