"""Run the importing processes of the kill loop. Each process resumes the run where the previous one was killed.

Run: python -m tools.kill_importer

Reads one job per line, as JSON, and starts a process for each. Prints one line per process: `killed`, its exit code, or `hung` if
the process did not end in time and had to be killed. Modules are imported once, and the processes are forked, so that they start
quickly. They share nothing else.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import traceback
import warnings
from collections.abc import AsyncIterator, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal

import anyio
import attrs
from anyio.lowlevel import checkpoint
from support.kill_doomed import Doom, DoomedJournal, DoomedObjectJournal, DoomedTransport
from support.kill_points import INDEX, PROCESS, RESUMABLE, Point

from outreach_async import OutreachClient, RetryPolicy
from outreach_async._vocabulary import DuplicatePolicy
from outreach_async.bulk import ContactOutcome, Order, Repeats
from outreach_async.bulk.journal import Journal, ObjectJournal
from outreach_async.transport._httpx import HttpxTransport

PATIENCE: Final = 60.0
"""Seconds after which a process counts as hung."""

Source = Literal["list", "stream", "spool"]

JournalKind = Literal["file", "folder", "s3"]

_EARLY: Final = ("httpx", "obstore.store", "anyio._backends._asyncio", "anyio._backends._trio", "outreach_async.bulk._bulk_run")
"""Modules that a run imports only when it needs them. They are imported before the fork, so that no process has to."""

_UNREADABLE, _REFUSED, _REPEATED = 0.02, 0.02, 0.02


@attrs.frozen(kw_only=True)
class Run:
    """The settings of a run, which all its processes share."""

    number: int
    seed: int
    rows: int
    duplicates: DuplicatePolicy
    source: Source = "list"
    repeats: Repeats = "serial"
    order: Order = "completion"
    calm: bool = False
    journal: JournalKind = "file"

    def location(self, folder: Path) -> Path | str:
        """Return the path or URL of the journal, given the folder of the run."""
        urls = {"folder": f"file://{folder}/journal", "s3": f"s3://journals/{folder.parent.name}/{self.workspace}"}
        return urls.get(self.journal, folder / "run.db")

    @property
    def journal_backlog(self) -> int:
        """Maximum number of rows that are in flight, or answered but not recorded."""
        return Journal.backlog if self.journal == "file" else ObjectJournal.backlog

    @property
    def workspace(self) -> str:
        """Id of the run's workspace."""
        return f"space_{'calm' if self.calm else 'run'}{self.number}"

    @property
    def key(self) -> str:
        """The owner key, which must not appear in any file."""
        return f"key_s3cr3t{self.number}"

    def input(self) -> list[dict[str, Any]]:
        """Return the rows. Most have a unique e-mail; some repeat an e-mail, are invalid, or are rejected by the service."""
        chance = random.Random(f"{self.seed} {self.number}")  # noqa: S311 - reproducible, not secret
        return [self._row(index, chance) for index in range(self.rows)]

    def _row(self, index: int, chance: random.Random) -> dict[str, Any]:
        lot = chance.random()
        if lot < _UNREADABLE:
            return {"email": " ", INDEX: str(index)}
        if lot < _UNREADABLE + _REFUSED:
            return {"email": f"no address {index}", INDEX: str(index)}
        repeats = lot < _UNREADABLE + _REFUSED + _REPEATED or index == 1  # at least one in every run
        person = chance.randrange(max(1, index)) if repeats else index
        email = f"p{person}@{self.number}.example"
        return {"email": email.upper() if lot > 1 - _REPEATED else email, INDEX: str(index)}

    def before(self) -> list[str]:
        """Return the e-mails of the contacts that exist before the run."""
        return [f"p{index}@{self.number}.example" for index in range(0, self.rows, 4)]


@attrs.frozen(kw_only=True)
class Job:
    """One process of a run."""

    run: Run
    url: str
    folder: Path
    process: int
    backend: Literal["asyncio", "trio"]
    point: Point | None = None
    passing: int = 1
    pretend: bool = False

    def line(self) -> str:
        """Return the job as a line of JSON."""
        return json.dumps(attrs.asdict(self), default=str)

    @classmethod
    def read(cls, line: str) -> Job:
        """Parse a line of JSON."""
        message = json.loads(line)
        point = None if message["point"] is None else Point(message["point"])
        return cls(**{**message, "run": Run(**message["run"]), "folder": Path(message["folder"]), "point": point})

    @property
    def patience(self) -> float:
        """Seconds after which the process is killed."""
        return self.passing / 1000 if self.point is Point.ANYWHERE else PATIENCE


def format_outcome(outcome: ContactOutcome) -> str:
    """Return the line that records the delivery of an outcome."""
    return f"{outcome.index} {outcome.status.value} {','.join(sorted(outcome.possible))} {outcome.id or '-'}\n"


def _open_journal(job: Job, doom: Doom) -> DoomedJournal | DoomedObjectJournal:
    location, resumed = job.run.location(job.folder), job.process > 0
    if isinstance(location, str):
        return DoomedObjectJournal(location, doom, resumed=resumed)
    return DoomedJournal(location, doom, resumed=resumed, pretend=job.pretend)


async def _import(job: Job) -> int:
    """Start or resume the run; return the exit code."""
    run, doom = job.run, Doom(job.point, job.passing)
    transport = DoomedTransport(HttpxTransport(job.url), doom, {PROCESS: str(job.process)})
    journal = _open_journal(job, doom)
    delivered = os.open(job.folder / "delivered", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    retry = RetryPolicy(backoff=0.005, jitter=random.Random(f"{run.seed} {run.number} {job.process}").random)  # noqa: S311 - reproducible, not secret
    client = OutreachClient(transport=transport, owner_key=run.key, workspace=run.workspace, retry=retry)
    rows: Any = _streamed(run.input()) if run.source == "stream" else run.input()
    async with (
        client,
        client.contacts.create_many(
            rows,
            duplicates=run.duplicates,
            concurrency=8,
            order=run.order,
            repeats=run.repeats,
            journal=journal,
            resume=True,
            spool=run.source == "spool",
        ) as outcomes,
    ):
        async for outcome in outcomes:
            os.write(delivered, format_outcome(outcome).encode())
            doom.passes(Point.DELIVERED)
            if doom.strikes(Point.LEFT):
                return RESUMABLE
    return 0


async def _streamed(rows: Iterable[Any]) -> AsyncIterator[Any]:
    """Yield rows a few at a time, so that windows are small."""
    for index, row in enumerate(rows):
        for _ in range(9 * (index % 5 == 0)):
            await checkpoint()
        yield row


def _become(job: Job) -> None:
    """Run the job in this forked process, and exit. Error output goes to a file."""
    code = 1
    try:
        os.dup2(os.open(job.folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        warnings.simplefilter("error")
        code = anyio.run(partial(_import, job), backend=job.backend)
    except BaseException:  # noqa: BLE001 - printed, and the process ends
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _carry_out(job: Job) -> str:
    """Start a process, kill it after its timeout, and return how it ended."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        _become(job)
    os.close(theirs)
    ended, _, _ = select.select([ours], [], [], job.patience)  # readable when the process ends: only it holds the write end
    if not ended:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(ours)
    code = os.waitstatus_to_exitcode(status)
    if code != -signal.SIGKILL:
        return str(code)
    return "killed" if ended or job.point is Point.ANYWHERE else "hung"


def main() -> None:
    for name in _EARLY:
        import_module(name)
    for line in sys.stdin:
        sys.stdout.write(f"{_carry_out(Job.read(line))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
