"""Imports in parts on real processes: a service with a ledger, which kills the workers, and files of people."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from anyio.from_thread import start_blocking_portal

from outreach_async import OutreachClient, Rate
from outreach_async.bulk.journal import Journal
from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.fake import FakeService
from outreach_async.fake.fault_plan import Exchange
from outreach_async.fake.faults import reset
from outreach_async.fake.server import serve
from outreach_async.spread import Connection, Part, PartReport, import_part
from outreach_async.transport.wire import Request, Response
from outreach_async.vocabulary import DUPLICATE_OUTCOMES

SPACE: Final = "space_spread"
KEY: Final = "key_spread_do_not_show"
ROW: Final = "personal_note"
"""The field that tells a row from others with its e-mail."""


def write_people(path: Path, emails: Sequence[str], first: int) -> None:
    """Write rows that are numbered from `first` on."""
    rows = [f"{email},{number}" for number, email in enumerate(emails, first)]
    path.write_text("\n".join(["E-mail,Note", *rows]) + "\n", encoding="utf-8")


def numbers_of(part: Part) -> list[int]:
    """Return the numbers of a part's rows, in order."""
    return [int(row[ROW]) for _, row in part.read_rows()]


class KillingService:
    """The fake, with a ledger of what it did for each row. At some requests, it kills the process that asks.

    Args:
        before: E-mails of contacts that exist already.

    Attributes:
        effects: What was done for each row, in order.
        requests: Number of requests for contacts.
        kills: Numbers of the requests whose processes are to be killed; every second of them is carried out.
        killed: Number of kills.
        pids: Files with the process that works on each row's part.
        options: The upload options of the last request.
    """

    def __init__(self, before: Sequence[str] = ()) -> None:
        self.fake = FakeService()
        self.fake.add_workspace(SPACE)
        self.fake.add_owner_key(SPACE, key=KEY)
        self.fake.add_contacts(SPACE, [{"email": email} for email in before])
        self.effects: defaultdict[int, list[str]] = defaultdict(list)
        self.requests = 0
        self.kills: set[int] = set()
        self.killed = 0
        self.pids: dict[int, Path] = {}
        self.options: dict[str, Any] = {}
        self._watched: dict[int, Callable[[], object]] = {}

    def call_at(self, number: int, call: Callable[[], object]) -> None:
        """Call a function at the `number`th request."""
        self._watched[number] = call

    def exchange(self, request: Request, /) -> Exchange:
        """Carry a request out, or kill who asks."""
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
            self._serve(request, message).ended()
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        self.killed += 1
        return reset().inject(lambda: Response(500))

    def find_process(self, row: int) -> int | None:
        """Return the id of the process that sends a row; `None` if it is not known, so that a later request is taken."""
        return int(self.pids[row].read_text(encoding="utf-8"))

    def _serve(self, request: Request, message: dict[str, Any]) -> Exchange:
        before = self.fake.contact(SPACE, message["email"])
        exchange = self.fake.exchange(request)
        self.options = message["upload_options"]
        effect = DUPLICATE_OUTCOMES[self.options["duplicates"]].value if before else "added"
        self.effects[int(message[ROW])].append(effect)
        return exchange


@contextmanager
def served(service: KillingService) -> Iterator[Connection]:
    """Serve on a real port, in another thread."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(service)) as url:
        yield Connection(base_url=url, workspace=SPACE, concurrency=8)


class QuotingConnection(Connection):
    """A connection through a library whose errors quote the owner key."""

    def create_client(self, rate: Rate | None = None) -> OutreachClient:
        raise TransportError(f"lost, with {rate is not None}", maybe_sent=False) from RuntimeError(f"lost: {KEY}")


def sign_and_import(part: Part, folder: Path, connection: Connection) -> PartReport:
    """Import a part, after writing down the number of this process."""
    (folder / f"{part.id}.pid").write_text(str(os.getpid()), encoding="utf-8")
    os.environ["OUTREACH_OWNER_KEY"] = KEY  # a fork server that an earlier test has started does not have it
    return import_part(part, folder, connection)


def possibly_sent(parts: Sequence[Part], folder: Path) -> dict[int, int]:
    """Return how many rows of each part may have been sent without an outcome, by the part's place."""
    found = {}
    for at, part in enumerate(parts):
        with suppress(InvalidRequest):  # there is no journal yet
            found[at] = Journal(folder / f"{part.id}.db").report().possibly_sent
    return found


def run_parts(
    service: KillingService, parts: Sequence[Part], folder: Path, connection: Connection
) -> tuple[dict[str, PartReport], int]:
    """Run parts on processes, again and again, until all are finished.

    Return the reports, and the number of rows that were possibly sent when processes had died.
    """
    service.pids = {number: folder / f"{part.id}.pid" for part in parts for number in numbers_of(part)}
    reports: dict[str, PartReport] = {}
    uncertain = 0
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])  # processes then start at once
    while left := [part for part in parts if part.id not in reports]:
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            jobs = {pool.submit(sign_and_import, part, folder, connection): part for part in left}
            for job in as_completed(jobs):
                with suppress(BrokenProcessPool):
                    reports[jobs[job].id] = job.result()
        uncertain += sum(possibly_sent([part for part in parts if part.id not in reports], folder).values())
    return reports, uncertain
