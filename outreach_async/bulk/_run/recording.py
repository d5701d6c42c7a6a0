"""Record and deliver the outcomes of a run. With a journal, outcomes are committed in batches before they are delivered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import anyio
import attrs

from outreach_async.bulk._outcomes import ContactOutcome, LedgerCounts, OutcomeBuffer, OutcomeCounts, Revision, revise
from outreach_async.bulk._rows import PossiblySent, RowParser
from outreach_async.bulk._run.comparing import LedgerFeed
from outreach_async.bulk._run.windows import WindowedFeed
from outreach_async.bulk._source import Source
from outreach_async.bulk._stream import DirectFeed, StreamReader
from outreach_async.bulk._throttle import RunThrottle
from outreach_async.errors import JournalError, TransportError
from outreach_async.store.journal import OpenJournal
from outreach_async.store.journal._records import JournalState
from outreach_async.store.journal._writer import Database
from outreach_async.store.ledger import OpenLedger
from outreach_async.transport._wire import Progress

_BATCH_SIZE: Final = 512  # number of queued outcomes that are committed at once, without waiting for `linger`

Deliver: TypeAlias = Callable[[Sequence[ContactOutcome]], None]


class NullRecorder:
    """Recorder for a run without a journal: delivers each outcome at once. Its attributes are those of `JournalRecorder`."""

    resumable = False
    again = "run again"
    """How a run that was stopped goes on."""
    ledger: LedgerCounts | None = None

    def __init__(self, source: Source | StreamReader, parser: RowParser, deliver: Deliver, buffer: OutcomeBuffer) -> None:
        self.feed = DirectFeed(source, parser)
        self.counts = OutcomeCounts()
        self._deliver = deliver
        self._buffer = buffer
        self._ended = anyio.Event()

    def record_outcome(self, outcome: ContactOutcome) -> None:
        self._deliver((outcome,))

    def revise(self, index: int, revised: Revision) -> None:
        self._buffer.revise(index, revised)

    def end(self) -> None:
        self._ended.set()

    async def run(self) -> None:
        await self._ended.wait()

    async def close(self, state: JournalState, possibly_sent: PossiblySent) -> None: ...


class JournalRecorder:
    """Recorder for a run with a journal: marks rows before they are sent, and commits outcomes before they are delivered."""

    resumable = True
    again = "resume the run"
    ledger: LedgerCounts | None = None

    def __init__(self, journal: OpenJournal, feed: WindowedFeed, deliver: Deliver) -> None:
        store = journal.options.journal
        self.feed = feed
        self.backlog = store.backlog
        self._linger = store.linger
        self.counts: OutcomeCounts = journal.writer.create_counts()
        self._writer = journal.writer
        self._thread = journal.thread
        self._deliver = deliver
        self._pending: list[ContactOutcome] = []
        self._batch: list[ContactOutcome] = []
        self._flush_lock = anyio.Lock(fast_acquire=True)
        self._not_empty, self._batch_full = anyio.Event(), anyio.Event()
        self._ended = self._write_failed = self._closed = False

    def record_outcome(self, outcome: ContactOutcome) -> None:
        self._pending.append(outcome)
        if len(self._pending) == 1:
            self._not_empty.set()
        elif len(self._pending) == _BATCH_SIZE:
            self._batch_full.set()

    def revise(self, index: int, revised: Revision) -> None:
        """Replace a row's outcome with the result of `revised`, unless its commit has started."""
        revise(self._pending, index, revised)

    def end(self) -> None:
        """Make `run` deliver the queued outcomes and return, because no more follow."""
        self._ended = True
        self._not_empty.set()
        self._batch_full.set()

    async def run(self) -> None:
        """Commit and deliver outcomes in batches, until `end` is called and no outcome is left."""
        try:
            while not self._ended or self._pending:
                # Wait for the first outcome without a timeout, then up to `linger` for the batch to fill: an idle run commits
                # nothing, and a busy one commits as soon as the batch is full.
                await self._not_empty.wait()
                with anyio.move_on_after(self._linger):
                    await self._batch_full.wait()
                await self._flush()
        except JournalError:
            self._write_failed = True
            raise

    async def _flush(self) -> None:
        """Commit and deliver the queued outcomes, and outcomes that an earlier, cancelled call left in the batch."""
        async with self._flush_lock:  # concurrent flushes would commit a batch twice, which is an error
            self._batch += self._pending
            self._pending = []
            if not self._ended:
                self._not_empty, self._batch_full = anyio.Event(), anyio.Event()
            if batch := self._batch:
                try:
                    await self._thread.run(self._commit)
                finally:
                    if not self._batch:  # asyncio's own Task.cancel may arrive although the commit succeeded
                        self._deliver(batch)

    def _commit(self) -> None:
        self._writer.record(self._batch)
        self._batch = []  # in the thread, right after the commit, so that the result is recorded even if the flush is cancelled

    async def close(self, state: JournalState, possibly_sent: PossiblySent) -> None:
        """Commit the remaining outcomes, then record how the run ended and which rows without an outcome may have been sent."""
        # The first call also closes the journal; later calls do nothing. If an outcome cannot be recorded, the journal's state
        # stays `running`, and its marked rows without an outcome count as possibly sent.
        if self._closed:
            return
        self._closed = True
        try:
            if not self._write_failed:
                await self._flush()
                await self._thread.run(self._end, state, possibly_sent)
        finally:
            try:
                await self._thread.run(self._release)
            finally:
                self._release()  # usually a no-op, but an event loop that is shutting down may not have run the call above

    def _end(self, state: JournalState, possibly_sent: PossiblySent) -> None:
        self._writer.end(state, possibly_sent)

    def _release(self) -> None:
        self._writer.close()


class LedgerRecorder(JournalRecorder):
    """Recorder for a run with a ledger: only sent rows are in its journal, with their own numbers."""

    feed: LedgerFeed
    again = "run again"

    def __init__(self, ledger: OpenLedger, feed: LedgerFeed, deliver: Deliver) -> None:
        super().__init__(ledger.journal, feed, deliver)
        self._run = ledger.run
        self.ledger = feed.comparer.counts

    def _commit(self) -> None:
        numbers = self.feed.numbers
        self._writer.record([attrs.evolve(outcome, index=numbers[outcome.index]) for outcome in self._batch])
        for outcome in self._batch:
            del numbers[outcome.index]
        self._batch = []

    def _end(self, state: JournalState, possibly_sent: PossiblySent) -> None:
        indexes = (index for first, end in possibly_sent.ranges for index in range(first, end))
        numbers = PossiblySent.of(self.feed.numbers[index] for index in indexes)
        super()._end(state, numbers)
        comparer = self.feed.comparer
        counts = {name: count for name, count in attrs.asdict(comparer.counts).items() if count and name != "kept"}
        # Only a run that has read its whole input shows which contacts are gone from it.
        seen = comparer.seen if state == "finished" else None
        comparer.counts.gone = self._run.fold(numbers, counts, seen, comparer.compared_targets)

    def _release(self) -> None:
        self._run.close()


class FencedProgress(Progress):
    """The progress of an attempt whose run may be taken over: nothing is sent while a heartbeat is due."""

    # The process may be stopped while an attempt connects or waits for its turn in the event loop, and go on much later. A
    # transport sets `sent` when it writes the request. An error then makes the attempt one that was not sent, and the retry
    # writes the heartbeat first.
    __slots__ = ("_database", "_sent")

    def __init__(self, database: Database) -> None:
        self._database = database
        self._sent: bool | None = None

    @property
    def sent(self) -> bool | None:
        return self._sent

    @sent.setter
    def sent(self, value: bool | None) -> None:
        if value and self._sent is False and self._database.heartbeat_due is not None:
            raise TransportError("the process stood still before it sent the request", maybe_sent=False)
        self._sent = value


class JournalledThrottle(RunThrottle):
    """The throttle of a run that may have a journal. A heartbeat that is due is written before the next attempt starts."""

    journal: OpenJournal | None = None

    def try_start(self, now: float) -> bool:
        return (self.journal is None or self.journal.writer.database.heartbeat_due is None) and super().try_start(now)

    def create_progress(self) -> Progress:
        return super().create_progress() if self.journal is None else FencedProgress(self.journal.writer.database)

    async def wait_and_start(self, not_before: float) -> None:
        await super().wait_and_start(not_before)
        # Check after the wait, which may have been long: a run that was taken over meanwhile must not send the row.
        if self.journal is None or (database := self.journal.writer.database).heartbeat_due is None:
            return
        started = anyio.current_time()
        try:
            # The process may also be suspended during a heartbeat, so check again: a write proves nothing about later times.
            while (due := database.heartbeat_due) is not None:
                await self.journal.thread.run(database.heartbeat, due)
        except BaseException:
            self.on_cancelled(anyio.current_time(), started)
            raise
