"""The processes that import, of the kill loop: each takes a run on where the last one was killed.

Run: python -m tools.kill_importer

Reads a job a line, as JSON, and starts a process for it; says on a line how that ended, `killed` or its exit code, and `hung`
for one that had to be killed because it never ended. Everything is imported once, and the processes are forked: they start
at once, and nothing else is shared.
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
from outreach_async.bulk import ContactOutcome, Order, Repeats
from outreach_async.bulk.journal import Journal, ObjectJournal
from outreach_async.transport.httpx import HttpxTransport
from outreach_async.vocabulary import DuplicatePolicy

PATIENCE: Final = 60.0
"""Seconds after which a process that has not ended never will."""

Source = Literal["list", "stream", "spool"]

JournalKind = Literal["file", "folder", "s3"]

_EARLY: Final = ("httpx", "obstore.store", "anyio._backends._asyncio", "anyio._backends._trio", "outreach_async.bulk.run")
"""What a run imports no sooner than it needs it, and which each process would have to import for itself."""

_UNREADABLE, _REFUSED, _REPEATED = 0.02, 0.02, 0.02


@attrs.frozen(kw_only=True)
class Run:
    """What a run is to do, the same in all its processes.

    Attributes:
        number: Of the run: its rows are made of it, and its workspace is named by it.
        seed: Of the loop.
        rows: How many.
        duplicates: The option.
        source: How the rows come: all there, one by one, or through the journal's spool.
        repeats: What to do with an e-mail that comes again.
        order: In which outcomes leave.
        calm: Whether the service has no faults.
        journal: What the journal is: a file, or objects in a folder or on S3.
    """

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
        """Return the path or URL of the journal; `folder` is the run's."""
        urls = {"folder": f"file://{folder}/journal", "s3": f"s3://journals/{folder.parent.name}/{self.workspace}"}
        return urls.get(self.journal, folder / "run.db")

    @property
    def journal_backlog(self) -> int:
        """Largest number of rows that are in flight, or answered and not recorded."""
        return Journal.backlog if self.journal == "file" else ObjectJournal.backlog

    @property
    def workspace(self) -> str:
        """Id of its workspace."""
        return f"space_{'calm' if self.calm else 'run'}{self.number}"

    @property
    def key(self) -> str:
        """The owner key, which no file may hold."""
        return f"key_s3cr3t{self.number}"

    def input(self) -> list[dict[str, Any]]:
        """Make the rows: most with an e-mail of their own, some that repeat one, cannot be read, or will be refused."""
        chance = random.Random(f"{self.seed} {self.number}")  # noqa: S311 - repeatable, not secret
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
        """Return the e-mails of the contacts that were there before."""
        return [f"p{index}@{self.number}.example" for index in range(0, self.rows, 4)]


@attrs.frozen(kw_only=True)
class Job:
    """One process of a run.

    Attributes:
        run: The run.
        url: Where the service is.
        folder: Where its files are: the journal, what was delivered, what was printed.
        process: Its number among those of the run, from 0.
        backend: The event loop's.
        point: Where it dies; `None` for nowhere.
        passing: At which passing of the point; at a random instant: after how many milliseconds.
        pretend: Whether to only pretend to mark.
    """

    run: Run
    url: str
    folder: Path
    process: int
    backend: Literal["asyncio", "trio"]
    point: Point | None = None
    passing: int = 1
    pretend: bool = False

    def line(self) -> str:
        """Return it as it is read."""
        return json.dumps(attrs.asdict(self), default=str)

    @classmethod
    def read(cls, line: str) -> Job:
        """Read one."""
        message = json.loads(line)
        point = None if message["point"] is None else Point(message["point"])
        return cls(**{**message, "run": Run(**message["run"]), "folder": Path(message["folder"]), "point": point})

    @property
    def patience(self) -> float:
        """Seconds after which it is killed."""
        return self.passing / 1000 if self.point is Point.ANYWHERE else PATIENCE


def format_outcome(outcome: ContactOutcome) -> str:
    """Return a line that says an outcome was delivered."""
    return f"{outcome.index} {outcome.status.value} {','.join(sorted(outcome.possible))} {outcome.id or '-'}\n"


def _open_journal(job: Job, doom: Doom) -> DoomedJournal | DoomedObjectJournal:
    location, resumed = job.run.location(job.folder), job.process > 0
    if isinstance(location, str):
        return DoomedObjectJournal(location, doom, resumed=resumed)
    return DoomedJournal(location, doom, resumed=resumed, pretend=job.pretend)


async def _import(job: Job) -> int:
    """Go on with the run; return the exit code."""
    run, doom = job.run, Doom(job.point, job.passing)
    transport = DoomedTransport(HttpxTransport(job.url), doom, {PROCESS: str(job.process)})
    journal = _open_journal(job, doom)
    delivered = os.open(job.folder / "delivered", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    retry = RetryPolicy(backoff=0.005, jitter=random.Random(f"{run.seed} {run.number} {job.process}").random)  # noqa: S311 - the same
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
    """Let rows come a few at a time, so that windows are small."""
    for index, row in enumerate(rows):
        for _ in range(9 * (index % 5 == 0)):
            await checkpoint()
        yield row


def _become(job: Job) -> None:
    """Import, as the process that this is from now on; what it has to say against that goes into a file."""
    code = 1
    try:
        os.dup2(os.open(job.folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        warnings.simplefilter("error")
        code = anyio.run(partial(_import, job), backend=job.backend)
    except BaseException:  # noqa: BLE001 - printed, and the process ends whatever it was
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _carry_out(job: Job) -> str:
    """Start a process, kill it when its time is over, and say how it ended."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        _become(job)
    os.close(theirs)
    ended, _, _ = select.select([ours], [], [], job.patience)  # the pipe ends with the process, which alone can write to it
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
