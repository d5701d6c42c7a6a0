"""Simulate nights: runs with one ledger in virtual time, against a service with faults, in processes that may be killed.

A simulated kill stops all effects of a process at one point; see `support.processes`. The next process finds the files as they
were at that point. A fault is drawn for each request. A delayed request is carried out after later ones, but in its night.
"""

from __future__ import annotations

import gc
import json
import random
import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import attrs
from support.processes import Ending, Killed, Left, MortalJournal, Process, consume
from support.scenarios import HEADERS, KEY, SPACE, new_fake

from outreach_async import BulkError, ContactOutcome, Outcome, OutreachClient, RetryPolicy
from outreach_async.bulk._outcomes import BulkReport
from outreach_async.bulk._rows import order_key
from outreach_async.bulk.journal import Journal
from outreach_async.bulk.ledger import Ledger
from outreach_async.bulk.ledger._stores import LedgerStore
from outreach_async.errors import TransportError
from outreach_async.testing import VirtualTime
from outreach_async.transport._wire import Progress, Request, Response

Row = tuple[str, str]
"""The e-mail and the city of a row."""
Trouble = Literal["ok", "lost before", "lost after", "delayed", "refused", "500 after", "rejected"]
TROUBLE: Final[Sequence[Trouble]] = ("lost before", "lost after", "delayed", "refused", "500 after", "rejected")
CITY: Final = "city"
CAMPAIGNS: Final = {"camp_1": "Spring", "camp_2": "Autumn"}


def campaign_of(email: str) -> str | None:
    """Return the campaign of a contact, which its rows name; `None` for the run's own."""
    return [None, *CAMPAIGNS][sum(order_key(email).encode()) % 3]


def to_row(email: str, city: str) -> dict[str, str]:
    """Return a row that names its campaign, if it has one, by id or name."""
    campaign = campaign_of(email)
    named = {} if campaign is None else {"campaign": CAMPAIGNS[campaign] if city < "M" else campaign}
    return {"email": email, CITY: city, **named}


@attrs.frozen
class Night:
    """The input of a night, the share of requests with a fault, and the point at which the process is killed, if any."""

    rows: Sequence[Row]
    trouble: float = 0.0
    faults: Sequence[Trouble] = TROUBLE
    ending: Ending | None = None
    seed: int = 0
    backend: str = "asyncio"
    order: Literal["completion", "input"] = "completion"
    concurrency: int = 3

    @property
    def is_calm(self) -> bool:
        """True if the run of this night ends without any fault."""
        return self.ending is None and not self.trouble


class World:
    """The service and what it received."""

    def __init__(self, clock: Any) -> None:
        self.fake = new_fake(clock=clock)
        for id_, name in CAMPAIGNS.items():
            self.fake.add_campaign(SPACE, id=id_, name=name)
        self.sent: list[Row] = []
        self.delayed: list[Request] = []
        self.answered: set[str] = set()

    def contact(self, email: str) -> dict[str, Any]:
        return self.fake.contact(SPACE, email) or {}

    def city(self, email: str) -> str | None:
        city: str | None = self.contact(email).get("fields", {}).get(CITY)
        return city

    def carry_out_delayed(self) -> None:
        delayed, self.delayed = self.delayed, []
        for request in delayed:
            self.fake.handle(request)


class NightTransport:
    """A transport to the service, with the faults of one night, for one process."""

    def __init__(self, world: World, night: Night, process: Process) -> None:
        self._world = world
        self._night = night
        self._process = process
        self._chance = random.Random(f"night {night.seed}")  # noqa: S311 - repeatable, not secret

    async def send(self, request: Request, progress: Progress, /) -> Response:
        if request.method == "GET":  # the list of campaigns
            self._process.at("list", None)
            progress.sent = True
            return self._world.fake.handle(request)
        world, body = self._world, json.loads(request.body)
        self._process.at("send", body["email"])
        progress.sent = True
        world.sent.append((body["email"], body[CITY]))
        trouble: Trouble = "ok"
        if self._chance.random() < self._night.trouble:
            trouble = self._chance.choice(self._night.faults)
        await anyio.sleep(self._chance.uniform(0.01, 0.2))
        if trouble == "refused":
            return Response(429, HEADERS, b'{"error": "too many"}')
        if trouble == "rejected":
            return Response(422, HEADERS, b'{"error": "no"}')
        if trouble == "delayed":
            world.delayed.append(request)
        answer = Response(500, HEADERS, b"{}")
        if trouble in {"ok", "lost after", "500 after"}:
            answer = world.fake.handle(request)
            self._process.at("committed", body["email"])
            if self._chance.random() < 0.5:
                world.carry_out_delayed()
        await anyio.sleep(self._chance.uniform(0.01, 0.2))
        if trouble in {"lost before", "lost after", "delayed"}:
            raise TransportError("lost", maybe_sent=True)
        if trouble == "ok":
            world.answered.add(order_key(body["email"]))
        return Response(500, HEADERS, b"{}") if trouble == "500 after" else answer

    async def aclose(self) -> None: ...


class MortalStore:
    """The storage of a ledger, whose calls are points of a process."""

    def __init__(self, store: LedgerStore, process: Process, folder: Path) -> None:
        self.name, self.draft = store.name, store.draft
        self._store = store
        self._process = process
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        def mortal(*arguments: Any) -> Any:
            self._process.at(f"{name}...", None)
            done = call(*arguments)
            self._process.at(name, None)
            return done

        return mortal

    def journal(self, number: int) -> Journal:
        """Return a journal whose calls are points of the process."""
        return MortalJournal(self._store.journal(number).path, self._process, lambda writer: writer)  # type: ignore[union-attr]


@attrs.frozen
class MortalLedger(Ledger):
    """A ledger whose calls are points of a process."""

    process: Process = attrs.field(kw_only=True)

    def _open_store(self) -> LedgerStore:
        folder = Path(self.location).parent
        return MortalStore(super()._open_store(), self.process, folder)


class Nights:
    """A series of nights with one ledger and one service."""

    def __init__(self, folder: Path) -> None:
        self._root = folder
        self.folder = folder / "0"
        self.folder.mkdir()
        self._time = VirtualTime()
        self.world = World(self._time)
        self.delivered: list[ContactOutcome] = []
        self.report: BulkReport | None = None
        self.process = Process()
        self.broken: list[str] = []
        self._past: set[Row] = set()
        self._uncertain: set[str] = set()

    @property
    def ledger(self) -> Path:
        return self.folder / "contacts.ledger"

    def live(self, night: Night, **options: Any) -> None:
        """Run one night, and check what its outcomes say."""
        self.process = Process(night.ending, seed=night.seed, journal_seconds=0.02)
        self.delivered, self.report, self.world.sent = [], None, []
        self.world.answered.clear()
        before = {email: self.world.city(email) for email, _ in night.rows}
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
        self.broken += self._find_false_labels(night, before)
        self.world.carry_out_delayed()
        self._check_uncertain(night)

    async def _run(self, night: Night, options: dict[str, Any]) -> None:
        process = self.process
        client = OutreachClient(
            transport=NightTransport(self.world, night, process),
            owner_key=KEY,
            workspace=SPACE,
            retry=RetryPolicy(attempts=2, jitter=lambda: 0.5),
        )
        run = client.contacts.create_many(
            process.rows([to_row(email, city) for email, city in night.rows]),
            concurrency=night.concurrency,
            order=night.order,
            stop_after_rejects=None,
            **{
                "duplicates": "overwrite",
                "ledger": MortalLedger(self.ledger, inline=True, wall=self._time, process=process),
                **options,
            },
        )

        def take(outcome: ContactOutcome) -> None:
            process.at("deliver", outcome.index)
            self.delivered.append(outcome)

        with anyio.CancelScope() as process.scope:
            await consume(run, process, take)
        if process.outcomes is not None:
            self.report = process.outcomes.report

    def _bury(self) -> None:
        """Let the next process find the files as they are now. Closing a writer changes its files."""
        if self.process.dead:
            left, self.folder = self.folder, self._root / str(int(self.folder.name) + 1)
            shutil.copytree(left, self.folder)
        for writer in self.process.writers:
            writer.close()

    def _find_false_labels(self, night: Night, before: dict[str, str | None]) -> Iterator[str]:
        for outcome in self.delivered:
            email, city = night.rows[outcome.index]
            contact = self.world.contact(email)
            if outcome.status is Outcome.UNCHANGED and sum(order_key(other) == order_key(email) for other, _ in night.rows) == 1:
                if before[email] != city:
                    yield f"row {outcome.index} is unchanged, but the contact has {before[email]!r} instead of {city!r}"
                if outcome.id != contact.get("id"):
                    yield f"row {outcome.index} is unchanged, but its id is {outcome.id!r} instead of {contact.get('id')!r}"
            elif outcome.certain and outcome.status is Outcome.ADDED and not contact:
                yield f"row {outcome.index} is added, but has no contact"

    def _check_uncertain(self, night: Night) -> None:
        """Check that rows whose last outcome was uncertain were sent again, and remember those of this night."""
        last = {order_key(night.rows[outcome.index][0]): outcome for outcome in sorted(self.delivered, key=lambda one: one.index)}
        for key, outcome in last.items():
            if key in self._uncertain and outcome.status is Outcome.UNCHANGED:
                self.broken.append(f"{key} was uncertain, and was not sent again")
        # An answer settles what an earlier night left open, even if the caller never received the outcome.
        self._uncertain -= self.world.answered
        for key, outcome in last.items():
            is_settled = outcome.certain or (outcome.attempts == 1 and Outcome.NOT_APPLIED not in outcome.possible)
            if outcome.attempts and not is_settled:
                self._uncertain.add(key)

    def check_converged(self, night: Night) -> list[str]:
        """Return what is wrong after a calm night: every contact must have the values of its last row."""
        last = {order_key(email): (email, city) for email, city in night.rows}
        cities = [(email, city, self.world.city(email)) for email, city in last.values()]
        wrong = [f"{email} has {found!r} instead of {city!r}" for email, city, found in cities if found != city]
        for email, _ in last.values():
            campaign, found = campaign_of(email), self.world.contact(email).get("campaigns")
            if found != ([] if campaign is None else [campaign]):
                wrong.append(f"{email} is in the campaigns {found} instead of {campaign}")
        return [*self.broken, *wrong]
