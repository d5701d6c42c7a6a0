"""Imports in parts on real processes: input files, and a service with a ledger that kills the workers."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from support.cli import serve_in_thread
from support.outcome_oracle import find_wrong_labels

from outreach_async import Outcome, OutreachClient, Rate, Request, Response
from outreach_async._wire_words import DUPLICATE_OUTCOMES
from outreach_async.bulk import ContactOutcome
from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.fake import FakeService
from outreach_async.fake.faults import Exchange, Service, inject, reset
from outreach_async.parts import Connection, ImportPlan, ImportReport, Part, import_part
from outreach_async.store import Store

SPACE: Final = "space_parts"
KEY: Final = "key_parts_do_not_show"
ROW: Final = "personal_note"
"""The field with the number of a row, which distinguishes it from other rows with the same e-mail."""


def write_people(path: Path, emails: Sequence[str], first: int) -> None:
    """Write a CSV file with one row per e-mail. The rows are numbered from `first`."""
    rows = [f"{email},{number}" for number, email in enumerate(emails, first)]
    path.write_text("\n".join(["E-mail,Note", *rows]) + "\n", encoding="utf-8")


def numbers_of(part: Part) -> list[int]:
    """Return the numbers of a part's rows, in order."""
    return [int(row[ROW]) for _, row in part.read()]


class PlainService:
    """The fake with one workspace and its key."""

    def __init__(self) -> None:
        self.fake = FakeService()
        self.fake.add_workspace(SPACE)
        self.fake.add_owner_key(SPACE, key=KEY)

    def exchange(self, request: Request, /) -> Exchange:
        return self.fake.exchange(request)


class KillingService(PlainService):
    """The fake with a ledger of what it did for each row. At some requests, it kills the process that sent them."""

    def __init__(self, before: Sequence[str] = ()) -> None:
        super().__init__()
        self.fake.add_contacts(SPACE, [{"email": email} for email in before])
        self.effects: defaultdict[int, list[str]] = defaultdict(list)
        self.requests = 0
        self.kills: set[int] = set()
        self.killed = 0
        self.pids: dict[int, Path] = {}
        self.options: dict[str, Any] = {}
        self._watched: dict[int, Callable[[], object]] = {}

    def call_at(self, number: int, call: Callable[[], object]) -> None:
        """Call a function when request `number` arrives."""
        self._watched[number] = call

    def exchange(self, request: Request, /) -> Exchange:
        """Carry out a request, or kill the process that sent it."""
        self.requests += 1
        if call := self._watched.pop(self.requests, None):
            call()
        message = json.loads(request.body)
        if self.requests not in self.kills:
            return self._serve(request, message)
        process = self.find_process(int(message[ROW]))
        if process is None:
            self.kills ^= {self.requests, self.requests + 1}
            return self._serve(request, message)
        if self.requests % 2:
            self._serve(request, message)
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        self.killed += 1
        return inject(reset(), lambda: Response(500))

    def find_process(self, row: int) -> int | None:
        """Return the id of the process that sent a row; `None` moves the kill to the next request."""
        return int(self.pids[row].read_text(encoding="utf-8"))

    def _serve(self, request: Request, message: dict[str, Any]) -> Exchange:
        before = self.fake.contact(SPACE, message["email"])
        exchange = self.fake.exchange(request)
        self.options = message["upload_options"]
        effect = DUPLICATE_OUTCOMES[self.options["duplicates"]].value if before else "added"
        self.effects[int(message[ROW])].append(effect)
        return exchange


@contextmanager
def served(service: Service) -> Iterator[Connection]:
    """Serve on a real port in another thread, and yield the connection to it."""
    with serve_in_thread(service) as url:
        yield Connection(base_url=url, workspace=SPACE, concurrency=8)


class QuotingConnection(Connection):
    """A connection whose clients cannot be created. The cause of the error quotes the owner key."""

    def create_client(self, rate: Rate | None = None) -> OutreachClient:
        raise TransportError(f"lost, with {rate is not None}", maybe_sent=False) from RuntimeError(f"lost: {KEY}")


def sign_and_import(part: Part, folder: Path, connection: Connection) -> ImportReport:
    """Write the id of this process to a file, and import a part."""
    (folder / f"{part.id}.pid").write_text(str(os.getpid()), encoding="utf-8")
    os.environ["OUTREACH_OWNER_KEY"] = KEY  # a fork server started by an earlier test lacks it
    return import_part(part, folder, connection)


def possibly_sent(parts: Sequence[Part], folder: Path) -> dict[int, int]:
    """Return the number of rows without an outcome that may have been sent, by the index of their part."""
    found = {}
    for at, part in enumerate(parts):
        with suppress(InvalidRequest):  # there is no journal yet
            found[at] = Store(folder / f"{part.id}.db").report().possibly_sent
    return found


def run_parts(
    service: KillingService, parts: Sequence[Part], folder: Path, connection: Connection
) -> tuple[dict[str, ImportReport], int]:
    """Run parts on processes, repeatedly, until all parts are finished."""
    # Return the reports, and the number of rows that may have been sent without an outcome when processes died.
    service.pids = {number: folder / f"{part.id}.pid" for part in parts for number in numbers_of(part)}
    reports: dict[str, ImportReport] = {}
    uncertain = 0
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])  # makes processes start faster
    while left := [part for part in parts if part.id not in reports]:
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            jobs = {pool.submit(sign_and_import, part, folder, connection): part for part in left}
            for job in as_completed(jobs):
                with suppress(BrokenProcessPool):
                    reports[jobs[job].id] = job.result()
        uncertain += sum(possibly_sent([part for part in parts if part.id not in reports], folder).values())
    return reports, uncertain


def find_wrong_effects(
    service: KillingService, made: ImportPlan, outcomes_of: Callable[[Part], Iterable[ContactOutcome]]
) -> Iterator[str]:
    """Yield every lost row, every e-mail with several contacts, every false label, and every outdated value."""
    expected = sorted(number for part in made.parts for number in numbers_of(part))
    if sorted(service.effects) != expected:
        yield f"rows were lost: {set(expected) - set(service.effects)}"
    contacts = {contact["email"].lower(): contact["fields"] for contact in service.fake.contacts(SPACE)}
    if len(contacts) != len(service.fake.contacts(SPACE)):
        yield "an e-mail has several contacts"
    last: defaultdict[str, int] = defaultdict(int)
    for part in made.parts:
        numbers, outcomes = numbers_of(part), list(outcomes_of(part))
        if [outcome.index for outcome in outcomes] != list(range(part.rows)):
            yield f"part {part.id}: the journal does not have exactly one outcome per row"
        for outcome in outcomes:
            effects = service.effects[numbers[outcome.index]]
            truth = Outcome.ADDED if "added" in effects else Outcome(effects[-1])
            yield from (f"part {part.id}, {outcome}: {kind}" for kind in find_wrong_labels(outcome, truth, sent=True))
        for _, row in part.read():
            last[row["email"].lower()] = max(last[row["email"].lower()], int(row[ROW]))
    if made.parts[0].options.duplicates == "overwrite":
        old = [email for email, number in last.items() if int(contacts[email][ROW]) != number]
        yield from (f"{email} has the value of an older row" for email in old)
