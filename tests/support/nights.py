"""Simulate nights: runs with one ledger in virtual time, against a service with faults, in processes that may be killed.

A simulated kill stops all effects of a process at one point; see `support.processes`. The next process finds the files as they
were at that point. A fault is drawn for each request. A delayed request is carried out after later ones, also in the next night
if that begins soon.
"""

from __future__ import annotations

import gc
import json
import random
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import anyio
import attrs
from support.processes import Ending, Killed, Left, Process, consume
from support.runs import OptedOut
from support.scenarios import HEADERS, KEY, SPACE, client_of, new_fake

from outreach_async import (
    BulkError,
    BulkReport,
    ContactOutcome,
    Outcome,
    Progress,
    Request,
    Response,
)
from outreach_async._plumbing import order_key
from outreach_async.bulk._source import freeze
from outreach_async.errors import InvalidRequest, JournalError, TransportError
from outreach_async.fake import Behaviour
from outreach_async.store import Store
from outreach_async.store._ledgers import LedgerMedium
from outreach_async.store._writer import Database, Transaction
from outreach_async.testing import VirtualTime

TARGETS: Final = ("", "camp_1", "camp_2", "space_2")
"""The campaign or the workspace of a row; empty for those of the run."""
NAMES: Final = {"Spring": "camp_1"}
"""Campaigns that rows may name."""


class Row(NamedTuple):
    """A row: its e-mail, its city, where it goes, and whether it may not be sent."""

    email: str
    city: str
    to: str = ""
    excluded: bool = False

    @property
    def _workspace(self) -> str:
        return self.to if self.to.startswith("space_") else SPACE

    @property
    def contact(self) -> tuple[str, str]:
        """The workspace and the e-mail as the service compares it: the rows of one contact change the same values."""
        return self._workspace, self.email.strip().lower()

    @property
    def similar(self) -> tuple[str, str]:
        """The workspace and the e-mail as some services may compare it."""
        return self._workspace, order_key(self.email)

    @property
    def entry(self) -> tuple[str, str]:
        """The target and the e-mail."""
        return NAMES.get(self.to, self.to), self.email.strip().lower()

    def members(self) -> dict[str, str]:
        """Return the row as a caller passes it."""
        place = {"workspace" if self.to.startswith("space_") else "campaign": self.to} if self.to else {}
        return (OptedOut if self.excluded else dict)({"email": self.email, CITY: self.city, **place})


Trouble = Literal["ok", "lost before", "lost after", "delayed", "refused", "500 after", "rejected"]
TROUBLE: Final[Sequence[Trouble]] = ("lost before", "lost after", "delayed", "refused", "500 after", "rejected")
CITY: Final = "city"
DAY: Final = 86400.0
LIFE: Final = 90.0
"""Seconds after which a request is carried out at the latest."""


@attrs.frozen
class Night:
    """The input of a night, its faults, and the point at which the process is killed, if any."""

    rows: Sequence[Row]
    trouble: float = 0.0
    faults: Sequence[Trouble] = TROUBLE
    ending: Ending | None = None
    seed: int = 0
    backend: str = "asyncio"
    order: Literal["completion", "input"] = "completion"
    concurrency: int = 3
    pause: float = DAY
    """Seconds until the next night begins."""
    changed: Literal["send", "ignore"] = "send"
    repeats: Literal["serial", "error", "first", "last"] = "serial"
    is_rereadable: bool = True
    max_age: float | None = None
    clock: float = 0.0  # seconds by which the clock of the machine is ahead
    damage: float | None = None  # where 100 bytes of the journal that the night leaves are damaged, as a share of its size

    @property
    def counted(self) -> list[Row]:
        """The rows that count under the night's policy for repeats, without those that are excluded."""
        # An excluded row counts as the first or the last one.
        numbered = [*enumerate(self.rows)]
        chosen = {row.entry: at for at, row in (numbered if self.repeats == "last" else reversed(numbered))}
        is_serial = self.repeats == "serial"
        return [row for at, row in numbered if (is_serial or chosen[row.entry] == at) and not row.excluded]


class Rows:
    """Rows of a process that can be read any number of times."""

    def __init__(self, read: Callable[[], Iterator[Any]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[Any]:
        return self._read()

    def read_again(self) -> Iterator[Any]:
        return map(freeze, self._read())


class World:
    """The service and what it received. A service may treat similar e-mails as one contact."""

    def __init__(self, clock: Any, *, merges: bool = False) -> None:
        self.merges = merges
        self.fake = new_fake(clock=clock, behaviour=Behaviour(email_key=order_key if merges else "lower"))
        self.fake.add_workspace("space_2")
        self.fake.add_owner_key("space_2", key=KEY)
        self.fake.add_campaign(SPACE, id="camp_1", name="Spring")
        self.fake.add_campaign(SPACE, id="camp_2", name="Autumn")
        self.sent: list[Row] = []
        self.delayed: list[tuple[float, Request]] = []
        """Delayed requests, each with the time at which it was sent."""
        self.paused = 0.0
        self._clock = clock
        self.answered: set[tuple[str, str]] = set()

    def person(self, row: Row) -> tuple[str, str]:
        """The contact of a row at the service."""
        return row.similar if self.merges else row.contact

    def contact(self, row: Row) -> dict[str, Any]:
        workspace, _ = row.contact
        return self.fake.contact(workspace, row.email) or {}

    def city(self, row: Row) -> str | None:
        city: str | None = self.contact(row).get("fields", {}).get(CITY)
        return city

    def is_in_campaign(self, row: Row) -> bool:
        campaign = NAMES.get(row.to, row.to)
        return not campaign.startswith("camp_") or campaign in self.contact(row).get("campaigns", ())

    def now(self) -> float:
        """Return the Unix time, in which the pauses between the nights count."""
        return float(self._clock()) + self.paused

    def delay(self, request: Request) -> None:
        self.delayed.append((self.now(), request))

    def carry_out_delayed(self, least: float = 0.0) -> None:
        """Carry out the delayed requests that were sent at least so many seconds ago."""
        delayed = self.delayed
        self.delayed = [(sent, request) for sent, request in delayed if self.now() - sent < least]
        for _, request in delayed[: len(delayed) - len(self.delayed)]:
            self.fake.handle(request)


class NightTransport:
    """A transport to the service, with the faults of one night, for one process."""

    def __init__(self, world: World, night: Night, process: Process) -> None:
        self._world = world
        self._night = night
        self._process = process
        self._chance = random.Random(f"night {night.seed}")  # noqa: S311 - repeatable, not secret

    async def send(self, request: Request, progress: Progress, /) -> Response:
        world = self._world
        if request.method == "GET":  # the campaigns
            progress.sent = True
            return world.fake.handle(request)
        body = json.loads(request.body)
        to = body["upload_options"]["campaign"] or ("" if body["workspace"] == SPACE else body["workspace"])
        row = Row(body["email"], body[CITY], to)
        self._process.at("send", row.email)
        progress.sent = True
        world.sent.append(row)
        trouble: Trouble = "ok"
        if self._chance.random() < self._night.trouble:
            trouble = self._chance.choice(self._night.faults)
        await anyio.sleep(self._chance.uniform(0.01, 0.2))
        if trouble == "refused":
            return Response(429, HEADERS, b'{"error": "too many"}')
        if trouble == "rejected":
            return Response(422, HEADERS, b'{"error": "no"}')
        if trouble == "delayed":
            world.delay(request)
        answer = Response(500, HEADERS, b"{}")
        if trouble in {"ok", "lost after", "500 after"}:
            answer = world.fake.handle(request)
            self._process.at("committed", row.email)
            if self._chance.random() < 0.5:
                world.carry_out_delayed()
        await anyio.sleep(self._chance.uniform(0.01, 0.2))
        if trouble in {"lost before", "lost after", "delayed"}:
            raise TransportError("lost", maybe_sent=True)
        if trouble == "ok":
            world.answered.add(row.entry)
        return Response(500, HEADERS, b"{}") if trouble == "500 after" else answer

    async def aclose(self) -> None: ...


class MortalDatabase:
    """The database of a ledger, whose transactions are points of a process."""

    def __init__(self, database: Database, process: Process) -> None:
        self._database = database
        self._process = process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def transaction(self, **options: bool) -> AbstractContextManager[Transaction]:
        return self._pass(self._database.transaction(**options))

    @contextmanager
    def _pass(self, transaction: AbstractContextManager[Transaction]) -> Iterator[Transaction]:
        self._process.at("begin", None)
        if self._process.journal_fails:
            raise JournalError("the disk is full")
        with transaction as opened:
            yield opened
            self._process.at("commit...", None)
        self._process.at("commit", None)
        if self._process.way == "journal fails late":
            raise JournalError("the disk is full")


class MortalMedium:
    """The medium of a ledger, whose calls are points of a process."""

    def __init__(self, medium: LedgerMedium, process: Process) -> None:
        self._medium = medium
        self._process = process

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._medium, name)
        return partial(self._call, name, found) if callable(found) else found

    def _call(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        self._process.at(f"{name}...", None)
        done = call(*arguments)
        self._process.at(name, None)
        return done

    def open(self, address: str | None) -> Any:
        database = self._call("open", self._medium.open, address)
        self._process.writers.append(database)
        return MortalDatabase(database, self._process)


@attrs.define(eq=False, repr=False, slots=False)
class MortalLedger(Store):
    """A ledger whose calls are points of a process."""

    process: Process = attrs.field(kw_only=True)

    def medium(self) -> Any:
        return MortalMedium(super().medium(), self.process)


class Nights:
    """A series of nights with one ledger and one service."""

    def __init__(self, folder: Path, *, merges: bool = False) -> None:
        self._root = folder
        self.folder = folder / "0"
        self.folder.mkdir()
        self._time = VirtualTime()
        self.world = World(self._time, merges=merges)
        self.delivered: list[ContactOutcome] = []
        self.report: BulkReport | None = None
        self.process = Process()
        self.broken: list[str] = []
        self._past: set[Row] = set()
        self._uncertain: set[tuple[str, str]] = set()
        self._sent_at: dict[tuple[str, str], set[float]] = {}
        self._last_clock = 0.0

    @property
    def ledger(self) -> Path:
        return self.folder / "contacts.ledger"

    def live(self, night: Night, **options: Any) -> None:
        """Run one night, and check what its outcomes say."""
        try:
            self._live(night, options)
        except (JournalError, InvalidRequest) as error:
            if not re.search("is damaged|is not a ledger|(newer|older) version", str(error)):
                raise
            # The remedy of the message. What the ledger knew to be uncertain is lost.
            for path in [*self.folder.glob(f"{self.ledger.name}*")]:
                path.rename(path.with_name(f"away {path.name}"))
            self._uncertain.clear()
            self.rest()
            self._live(attrs.evolve(night, max_age=0), options)
        if night.damage is not None:
            self._damage(night.damage, random.Random(f"damage {night.seed}"))  # noqa: S311 - repeatable, not secret

    def _damage(self, place: float, chance: random.Random) -> None:
        """Damage the ledger, if there is one."""
        if not self.ledger.exists():
            return
        content = bytearray(self.ledger.read_bytes())
        at = int(place * (len(content) - 100))
        content[at : at + 100] = chance.randbytes(100)
        self.ledger.write_bytes(content)

    def _live(self, night: Night, options: dict[str, Any]) -> None:
        if night.clock != self._last_clock:  # how long a request has been under way is known only if the clock does not jump
            self.rest()
        self._last_clock, now = night.clock, self.world.now() + night.clock
        self.process = Process(night.ending, seed=night.seed, journal_seconds=0.02)
        self.delivered, self.report, self.world.sent = [], None, []
        self.world.answered.clear()
        self.world.carry_out_delayed(LIFE)
        before = {row: self.world.city(row) for row in night.rows}
        with warnings.catch_warnings():
            if night.ending is not None:  # a process that is killed closes nothing
                warnings.simplefilter("ignore", ResourceWarning)
            try:
                anyio.run(self._run, night, options, backend=night.backend, backend_options=self._time.options(night.backend))
            except (Killed, Left, BulkError):
                pass
            except BaseExceptionGroup as group:
                if group.split((Killed, Left))[1] is not None:
                    raise
            finally:
                self._bury()
            if self.process.dead:
                gc.collect()
        self.broken += [*self._find_false_labels(night, before), *self._find_old(night, now)]
        for row in self.world.sent:
            self._sent_at.setdefault(row.entry, set()).add(now)
        self.world.paused += night.pause
        self._check_uncertain(night)

    def rest(self) -> None:
        """Wait until every request has been carried out."""
        self.world.carry_out_delayed()
        self.world.paused += DAY

    async def _run(self, night: Night, options: dict[str, Any]) -> None:
        process = self.process
        client = client_of(NightTransport(self.world, night, process), 2)
        read = partial(process.rows, [row.members() for row in night.rows])
        run = client.contacts.create_many(
            Rows(read) if night.is_rereadable else read(),
            repeats=night.repeats,
            concurrency=night.concurrency,
            order=night.order,
            stop_after_rejects=None,
            **{
                "duplicates": "overwrite",
                "ledger": MortalLedger(self.ledger, inline=True, wall=lambda: self.world.now() + night.clock, process=process),
                "changed": night.changed,
                "max_age": night.max_age,
                **options,
            },
        )
        await consume(run, process, self.delivered)
        if process.outcomes is not None:
            self.report = process.outcomes.report

    def _bury(self) -> None:
        """Let the next process find the files as they are now. Closing a writer changes its files."""
        if self.process.dead:
            left, self.folder = self.folder, self._root / str(int(self.folder.name) + 1)
            shutil.copytree(left, self.folder)
        for writer in self.process.writers:
            writer.close()

    def _find_false_labels(self, night: Night, before: dict[Row, str | None]) -> Iterator[str]:
        rows_of = Counter(self.world.person(row) for row in night.rows if not row.excluded)
        allowed = {(*row.entry, row.city) for row in night.rows if not row.excluded}
        yield from (f"{row} is sent" for row in self.world.sent if (*row.entry, row.city) not in allowed)
        for outcome in self.delivered:
            row = night.rows[outcome.index]
            contact = self.world.contact(row)
            if (outcome.status is Outcome.EXCLUDED) is not row.excluded:
                yield f"row {outcome.index} is {outcome.status}"
            if outcome.status is Outcome.UNCHANGED and rows_of[self.world.person(row)] == 1:
                if before[row] != row.city and night.changed == "send":
                    yield f"row {outcome.index} is unchanged, but the contact has {before[row]!r} instead of {row.city!r}"
                if outcome.id != contact.get("id"):
                    yield f"row {outcome.index} is unchanged, but its id is {outcome.id!r} instead of {contact.get('id')!r}"
                if not self.world.is_in_campaign(row):
                    yield f"row {outcome.index} is unchanged, but the contact is not in {row.to}"
            elif outcome.certain and outcome.status is Outcome.ADDED and not contact:
                yield f"row {outcome.index} is added, but has no contact"

    def _find_old(self, night: Night, now: float) -> Iterator[str]:
        """Find unchanged rows whose contact was last sent too long ago, or at a time that the clock has not reached."""
        for outcome in self.delivered if night.max_age is not None else ():
            row, minute = night.rows[outcome.index], 60
            times = self._sent_at.get(row.entry, ())
            if outcome.status is Outcome.UNCHANGED and not any(
                now - (night.max_age or -minute) - minute < at < now + minute for at in times
            ):
                yield f"row {outcome.index} is unchanged at {now}, but was sent at {times}"

    def _check_uncertain(self, night: Night) -> None:
        """Check that rows whose last outcome was uncertain were sent again, and remember those of this night."""
        received = [outcome for outcome in self.delivered if outcome.status is not Outcome.EXCLUDED]
        last = {night.rows[outcome.index].entry: outcome for outcome in sorted(received, key=lambda one: one.index)}
        for key, outcome in last.items():
            if key in self._uncertain and outcome.status is Outcome.UNCHANGED:
                self.broken.append(f"{key} was uncertain, and was not sent again")
            if key in self._uncertain and outcome.status is Outcome.OVERWRITTEN and outcome.certain:
                self.broken.append(f"{key} is certainly overwritten, but an earlier night may have added it")
        # An answer settles what an earlier night left open, even if the caller never received the outcome.
        self._uncertain -= self.world.answered
        for key, outcome in last.items():
            is_settled = outcome.certain or (outcome.attempts == 1 and Outcome.NOT_APPLIED not in outcome.possible)
            if outcome.attempts and not is_settled:
                self._uncertain.add(key)

    def check_converged(self, night: Night) -> list[str]:
        """Return what is wrong after a calm night: every contact must have the values of its last row, and its campaigns."""
        last = {self.world.person(row): row for row in night.counted}
        cities = [(row, self.world.city(row)) for row in last.values()]
        wrong = [f"{row} has {found!r}" for row, found in cities if found != row.city]
        return [
            *self.broken,
            *wrong,
            *(f"{row} is not in its campaign" for row in night.counted if not self.world.is_in_campaign(row)),
        ]
