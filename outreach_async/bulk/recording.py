"""Connect a run to its journal, if it has one: supply the rows, and commit outcomes in batches before they are delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async.bulk.journal import Identity, Journal, Writer
from outreach_async.bulk.journal.identity import Earlier, State
from outreach_async.bulk.journal.writer_thread import Scribe
from outreach_async.bulk.outcomes import ContactOutcome, Ready, Revised, Tally, revise
from outreach_async.bulk.possibly_sent import Suspects
from outreach_async.bulk.rows import WHOLE_INPUT, Ahead, Direct, Intake, Pulled, Reader, Repeats, Source
from outreach_async.bulk.windows import LARGEST, Marked, Spooled
from outreach_async.errors import JournalError

_LINGER: Final = 0.05
"""Seconds that the first outcome of a batch waits for others: that much delay costs less than a commit per outcome."""
_BATCH: Final = 512
"""Outcomes after which a batch is committed without waiting longer."""
BACKLOG: Final = 4096
"""Maximum number of outcomes that wait for their commit."""


class Recorder:
    """Commits outcomes in batches.

    Args:
        writer: The journal's writer.
        scribe: Runs the writer's calls.
        deliver: Called with the outcomes of a batch after their commit.
    """

    def __init__(self, writer: Writer, scribe: Scribe, deliver: Callable[[Sequence[ContactOutcome]], None]) -> None:
        self._writer = writer
        self._scribe = scribe
        self._deliver = deliver
        self._pending: list[ContactOutcome] = []
        self._batch: list[ContactOutcome] = []
        self._turn = anyio.Lock(fast_acquire=True)
        self._some = anyio.Event()
        self._many = anyio.Event()
        self._over = False

    def add(self, outcome: ContactOutcome) -> None:
        """Queue an outcome for the next commit."""
        self._pending.append(outcome)
        if len(self._pending) == 1:
            self._some.set()
        elif len(self._pending) == _BATCH:
            self._many.set()

    def revise(self, index: int, revised: Revised) -> None:
        """Replace the outcome of a row, unless its commit has started."""
        revise(self._pending, index, revised)

    def end(self) -> None:
        """Accept no more outcomes; the queued ones are the last."""
        self._over = True
        self._some.set()
        self._many.set()

    async def run(self) -> None:
        """Commit batches until the last outcome.

        Raises:
            JournalError: A batch could not be written; its outcomes are not delivered.
        """
        while not self._over or self._pending:
            # Wait for the first outcome without a timeout, then up to `_LINGER` for the batch to fill: an idle run commits
            # nothing, and a busy one commits as soon as the batch is full.
            await self._some.wait()
            with anyio.move_on_after(_LINGER):
                await self._many.wait()
            await self.flush()

    async def flush(self) -> None:
        """Commit the queued outcomes, and those that a cancelled flush left in the batch."""
        async with self._turn:  # one flush at a time: two would commit the same batch, and a row's second outcome is an error
            self._batch += self._pending
            self._pending = []
            if not self._over:
                self._some, self._many = anyio.Event(), anyio.Event()
            if batch := self._batch:
                try:
                    await self._scribe.do(self._commit)
                finally:
                    if not self._batch:  # asyncio's own Task.cancel may arrive although the commit succeeded
                        self._deliver(batch)

    def _commit(self) -> None:
        self._writer.record(self._batch)
        self._batch = []  # in the thread, right after the commit: even a cancelled flush can tell whether the commit succeeded


Deliver = Callable[[Sequence[ContactOutcome]], None]


class Record(Protocol):
    """Records a run, or does not.

    Attributes:
        intake: Supplies the rows.
        tally: Outcome counts, starting with those of earlier processes.
        resumable: Whether rows without an outcome are left to a resumed run; otherwise they get an outcome when the run ends.
        backlog: Outcomes that may wait to be recorded, in addition to the rows in flight.
    """

    intake: Intake
    tally: Tally
    resumable: bool
    backlog: int

    def settle(self, outcome: ContactOutcome) -> None:
        """Take an outcome, and deliver it once it is recorded."""
        ...

    def revise(self, index: int, revised: Revised) -> None:
        """Replace the outcome of a row, unless it is already recorded or delivered."""
        ...

    def start(self, group: TaskGroup) -> None:
        """Start the tasks that run beside the workers."""
        ...

    def end(self) -> None:
        """Accept no more outcomes."""
        ...

    async def run(self) -> None:
        """Record and deliver outcomes until the last one.

        Raises:
            JournalError: An outcome could not be recorded.
        """
        ...

    async def close(self, state: State, suspects: Suspects) -> None:
        """Record how the run ended, and which rows without an outcome may have been sent. Only the first call counts."""
        ...


class Unrecorded:
    """A run without a journal: outcomes are delivered at once."""

    resumable = False
    backlog = 0

    def __init__(self, source: Source, reader: Reader, deliver: Deliver, ready: Ready) -> None:
        self._ready = ready
        self.intake: Intake = Direct(source, reader)
        self.tally = Tally()
        self._deliver = deliver
        self._over = anyio.Event()

    def settle(self, outcome: ContactOutcome) -> None:
        """Deliver the outcome."""
        self._deliver((outcome,))

    def revise(self, index: int, revised: Revised) -> None:
        """Replace the outcome of a row, if the caller has not taken it yet."""
        self._ready.revise(index, revised)

    def start(self, group: TaskGroup) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Let `run` return."""
        self._over.set()

    async def run(self) -> None:
        """Wait for `end`; outcomes are delivered by `settle`."""
        await self._over.wait()

    async def close(self, state: State, suspects: Suspects) -> None:
        """Do nothing: there is no journal."""


@attrs.frozen
class Keeping:
    """The journal options of a run.

    Attributes:
        journal: The journal.
        identity: Identity of the run.
        resume: Whether to resume an existing journal.
        spool: Whether to store the whole input in the journal before the first row is sent.
        repeats: Policy for e-mails that occur more than once.
        earlier: With `unknown`, every row without an outcome counts as possibly sent.
    """

    journal: Journal
    identity: Identity
    resume: bool
    spool: bool
    repeats: Repeats
    earlier: Earlier


@attrs.frozen
class Book:
    """An open journal.

    Attributes:
        keeping: The journal options of the run.
        writer: Writes the journal.
        scribe: Runs the writer's calls.
    """

    keeping: Keeping
    writer: Writer
    scribe: Scribe


class Recorded:
    """A run with a journal: rows are marked before they are sent, and outcomes are committed before they are delivered.

    Args:
        book: The open journal.
        source: Supplies the rows.
        reader: Parses the rows.
        deliver: Called with outcomes after their commit.
        size: Returns the maximum number of rows of a new window.
    """

    resumable = True
    backlog = BACKLOG

    def __init__(
        self,
        book: Book,
        source: Source,
        reader: Reader,
        deliver: Deliver,
        size: Callable[[], int],
    ) -> None:
        keeping, writer, scribe = book.keeping, book.writer, book.scribe
        self._writer, self._scribe = writer, scribe
        self._recorder = Recorder(writer, scribe, deliver)
        self._ahead = None if source.ready else Ahead(source, LARGEST)
        rows: Pulled = self._ahead or source
        if (keeping.spool or keeping.repeats in WHOLE_INPUT) and not writer.finished:
            rows = Spooled(rows, reader, writer, scribe, keeping.repeats)
        self._marked = Marked(rows, reader, writer, scribe, size)
        self.intake: Intake = self._marked
        self.tally: Tally = writer.totals()
        self._broken = self._closed = False

    def settle(self, outcome: ContactOutcome) -> None:
        """Queue the outcome for the next commit."""
        self._recorder.add(outcome)

    def revise(self, index: int, revised: Revised) -> None:
        """Replace the outcome of a row, unless its commit has started."""
        self._recorder.revise(index, revised)

    def start(self, group: TaskGroup) -> None:
        """Start the tasks that fill windows and read ahead."""
        group.start_soon(self._marked.run)
        if self._ahead is not None:
            group.start_soon(self._ahead.run)

    def end(self) -> None:
        """Make the next commit the last one."""
        self._recorder.end()

    async def run(self) -> None:
        """Commit and deliver outcomes until the last one."""
        try:
            await self._recorder.run()
        except JournalError:
            self._broken = True
            raise

    async def close(self, state: State, suspects: Suspects) -> None:
        """Commit the remaining outcomes, then how the run ended, and release the journal.

        The end is recorded only after every outcome is. If one cannot be recorded, the journal's state stays `running`, and the
        rows it lacks count as possibly sent.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if not self._broken:
                await self._recorder.flush()
                await self._scribe.do(self._writer.end, state, suspects)
        finally:
            try:
                await self._scribe.do(self._writer.close)
            finally:
                self._writer.close()  # usually a no-op; an event loop that is shutting down may not have run the thread above


async def opened(keeping: Keeping) -> Book:
    """Open the journal.

    Raises:
        InvalidRequest: It belongs to another run, is in use by another process, or exists although `resume` is false.
        JournalError: It cannot be read or written.
    """
    scribe = keeping.journal.scribe()
    writers: list[Writer] = []

    def open_writer() -> None:
        writers.append(keeping.journal.writer(keeping.identity, resume=keeping.resume, earlier=keeping.earlier))

    try:
        await scribe.do(open_writer)
    except BaseException:
        for writer in writers:  # asyncio's own Task.cancel may arrive although the journal was opened
            writer.close()
        raise
    return Book(keeping, writers[0], scribe)
