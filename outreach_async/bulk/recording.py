"""Connect a run to its journal, if it has one: supply the rows, and commit outcomes in batches before they are delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async.bulk.journal import Identity, Journal, JournalWriter
from outreach_async.bulk.journal.identity import Earlier, JournalState
from outreach_async.bulk.journal.writer_thread import WriterThread
from outreach_async.bulk.outcomes import ContactOutcome, OutcomeBuffer, OutcomeCounts, Revision, revise
from outreach_async.bulk.possibly_sent import PossiblySent
from outreach_async.bulk.rows import WHOLE_INPUT, DirectFeed, Prefetch, Repeats, RowFeed, RowParser, RowSource, Source
from outreach_async.bulk.windows import MAX_WINDOW_SIZE, SpooledSource, WindowedFeed
from outreach_async.errors import JournalError

_LINGER: Final = 0.05
"""Seconds that the first outcome of a batch waits for others: that much delay costs less than a commit per outcome."""
_BATCH_SIZE: Final = 512
"""Outcomes after which a batch is committed without waiting longer."""
BACKLOG: Final = 4096
"""Maximum number of outcomes that wait for their commit."""


class CommitBatcher:
    """Commits outcomes in batches.

    Args:
        writer: The journal's writer.
        scribe: Runs the writer's calls.
        deliver: Called with the outcomes of a batch after their commit.
    """

    def __init__(self, writer: JournalWriter, scribe: WriterThread, deliver: Callable[[Sequence[ContactOutcome]], None]) -> None:
        self._writer = writer
        self._writer_thread = scribe
        self._deliver = deliver
        self._pending: list[ContactOutcome] = []
        self._batch: list[ContactOutcome] = []
        self._flush_lock = anyio.Lock(fast_acquire=True)
        self._not_empty = anyio.Event()
        self._batch_full = anyio.Event()
        self._ended = False

    def add(self, outcome: ContactOutcome) -> None:
        """Queue an outcome for the next commit."""
        self._pending.append(outcome)
        if len(self._pending) == 1:
            self._not_empty.set()
        elif len(self._pending) == _BATCH_SIZE:
            self._batch_full.set()

    def revise(self, index: int, revised: Revision) -> None:
        """Replace the outcome of a row, unless its commit has started."""
        revise(self._pending, index, revised)

    def end(self) -> None:
        """Accept no more outcomes; the queued ones are the last."""
        self._ended = True
        self._not_empty.set()
        self._batch_full.set()

    async def run(self) -> None:
        """Commit batches until the last outcome.

        Raises:
            JournalError: A batch could not be written; its outcomes are not delivered.
        """
        while not self._ended or self._pending:
            # Wait for the first outcome without a timeout, then up to `_LINGER` for the batch to fill: an idle run commits
            # nothing, and a busy one commits as soon as the batch is full.
            await self._not_empty.wait()
            with anyio.move_on_after(_LINGER):
                await self._batch_full.wait()
            await self.flush()

    async def flush(self) -> None:
        """Commit the queued outcomes, and those that a cancelled flush left in the batch."""
        async with (
            self._flush_lock
        ):  # one flush at a time: two would commit the same batch, and a row's second outcome is an error
            self._batch += self._pending
            self._pending = []
            if not self._ended:
                self._not_empty, self._batch_full = anyio.Event(), anyio.Event()
            if batch := self._batch:
                try:
                    await self._writer_thread.run(self._commit)
                finally:
                    if not self._batch:  # asyncio's own Task.cancel may arrive although the commit succeeded
                        self._deliver(batch)

    def _commit(self) -> None:
        self._writer.record(self._batch)
        self._batch = []  # in the thread, right after the commit: even a cancelled flush can tell whether the commit succeeded


Deliver = Callable[[Sequence[ContactOutcome]], None]


class RunRecorder(Protocol):
    """Records a run, or does not.

    Attributes:
        feed: Supplies the rows.
        counts: Outcome counts, starting with those of earlier processes.
        resumable: Whether rows without an outcome are left to a resumed run; otherwise they get an outcome when the run ends.
        backlog: Outcomes that may wait to be recorded, in addition to the rows in flight.
    """

    feed: RowFeed
    counts: OutcomeCounts
    resumable: bool
    backlog: int

    def record_outcome(self, outcome: ContactOutcome) -> None:
        """Take an outcome, and deliver it once it is recorded."""
        ...

    def revise(self, index: int, revised: Revision) -> None:
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

    async def close(self, state: JournalState, suspects: PossiblySent) -> None:
        """Record how the run ended, and which rows without an outcome may have been sent. Only the first call counts."""
        ...


class NullRecorder:
    """A run without a journal: outcomes are delivered at once."""

    resumable = False
    backlog = 0

    def __init__(self, source: Source, reader: RowParser, deliver: Deliver, ready: OutcomeBuffer) -> None:
        self._buffer = ready
        self.feed: RowFeed = DirectFeed(source, reader)
        self.counts = OutcomeCounts()
        self._deliver = deliver
        self._ended = anyio.Event()

    def record_outcome(self, outcome: ContactOutcome) -> None:
        """Deliver the outcome."""
        self._deliver((outcome,))

    def revise(self, index: int, revised: Revision) -> None:
        """Replace the outcome of a row, if the caller has not taken it yet."""
        self._buffer.revise(index, revised)

    def start(self, group: TaskGroup) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Let `run` return."""
        self._ended.set()

    async def run(self) -> None:
        """Wait for `end`; outcomes are delivered by `record_outcome`."""
        await self._ended.wait()

    async def close(self, state: JournalState, suspects: PossiblySent) -> None:
        """Do nothing: there is no journal."""


@attrs.frozen
class JournalOptions:
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
class OpenJournal:
    """An open journal.

    Attributes:
        options: The journal options of the run.
        writer: Writes the journal.
        writer_thread: Runs the writer's calls.
    """

    options: JournalOptions
    writer: JournalWriter
    writer_thread: WriterThread


class JournalRecorder:
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
        book: OpenJournal,
        source: Source,
        reader: RowParser,
        deliver: Deliver,
        size: Callable[[], int],
    ) -> None:
        keeping, writer, scribe = book.options, book.writer, book.writer_thread
        self._writer, self._writer_thread = writer, scribe
        self._batcher = CommitBatcher(writer, scribe, deliver)
        self._prefetch = None if source.ready else Prefetch(source, MAX_WINDOW_SIZE)
        rows: RowSource = self._prefetch or source
        if (keeping.spool or keeping.repeats in WHOLE_INPUT) and not writer.finished:
            rows = SpooledSource(rows, reader, writer, scribe, keeping.repeats)
        self._windowed_feed = WindowedFeed(rows, reader, writer, scribe, size)
        self.feed: RowFeed = self._windowed_feed
        self.counts: OutcomeCounts = writer.create_counts()
        self._write_failed = self._closed = False

    def record_outcome(self, outcome: ContactOutcome) -> None:
        """Queue the outcome for the next commit."""
        self._batcher.add(outcome)

    def revise(self, index: int, revised: Revision) -> None:
        """Replace the outcome of a row, unless its commit has started."""
        self._batcher.revise(index, revised)

    def start(self, group: TaskGroup) -> None:
        """Start the tasks that fill windows and read ahead."""
        group.start_soon(self._windowed_feed.run)
        if self._prefetch is not None:
            group.start_soon(self._prefetch.run)

    def end(self) -> None:
        """Make the next commit the last one."""
        self._batcher.end()

    async def run(self) -> None:
        """Commit and deliver outcomes until the last one."""
        try:
            await self._batcher.run()
        except JournalError:
            self._write_failed = True
            raise

    async def close(self, state: JournalState, suspects: PossiblySent) -> None:
        """Commit the remaining outcomes, then how the run ended, and release the journal.

        The end is recorded only after every outcome is. If one cannot be recorded, the journal's state stays `running`, and the
        rows it lacks count as possibly sent.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if not self._write_failed:
                await self._batcher.flush()
                await self._writer_thread.run(self._writer.end, state, suspects)
        finally:
            try:
                await self._writer_thread.run(self._writer.close)
            finally:
                self._writer.close()  # usually a no-op; an event loop that is shutting down may not have run the thread above


async def open_journal(keeping: JournalOptions) -> OpenJournal:
    """Open the journal.

    Raises:
        InvalidRequest: It belongs to another run, is in use by another process, or exists although `resume` is false.
        JournalError: It cannot be read or written.
    """
    scribe = keeping.journal.scribe()
    writers: list[JournalWriter] = []

    def open_writer() -> None:
        writers.append(keeping.journal.writer(keeping.identity, resume=keeping.resume, earlier=keeping.earlier))

    try:
        await scribe.run(open_writer)
    except BaseException:
        for writer in writers:  # asyncio's own Task.cancel may arrive although the journal was opened
            writer.close()
        raise
    return OpenJournal(keeping, writers[0], scribe)
