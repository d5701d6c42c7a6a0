"""Record the outcomes of a run in its journal. They are committed in batches before they are delivered."""

from __future__ import annotations

from functools import partial
from typing import Final

import anyio

from outreach_async.bulk._outcomes import ContactOutcome, LedgerCounts, Revision, revise
from outreach_async.bulk._ports import EndState, RunContext
from outreach_async.bulk._rows import PossiblySent, Repeats
from outreach_async.errors import JournalError
from outreach_async.store.journal._feed import WindowedFeed
from outreach_async.store.journal._records import Earlier, Identity
from outreach_async.store.journal._store import JournalStore, WriterThread
from outreach_async.store.journal._writer import JournalWriter

_BATCH_SIZE: Final = 512  # number of queued outcomes that are committed at once, without waiting for `linger`


class JournalRecorder:
    """Recorder for a run with a journal: marks rows before they are sent, and commits outcomes before they are delivered."""

    resumable = True
    again = "resume the run"
    ledger: LedgerCounts | None = None

    def __init__(
        self, store: JournalStore, writer: JournalWriter, thread: WriterThread, feed: WindowedFeed, context: RunContext
    ) -> None:
        self.feed = feed
        self.backlog = store.backlog
        self._linger = store.linger
        self.counts = writer.create_counts()
        self._writer = writer
        self._thread = thread
        self._deliver = context.deliver
        self._pending: list[ContactOutcome] = []
        self._batch: list[ContactOutcome] = []
        self._flush_lock = anyio.Lock(fast_acquire=True)
        self._not_empty, self._batch_full = anyio.Event(), anyio.Event()
        self._ended = self._write_failed = self._closed = False

    @property
    def heartbeat_due(self) -> float | None:
        return self._writer.database.heartbeat_due

    async def heartbeat(self, due: float) -> None:
        await self._thread.run(self._writer.database.heartbeat, due)

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

    async def close(self, state: EndState, possibly_sent: PossiblySent, /) -> None:
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

    def _end(self, state: EndState, possibly_sent: PossiblySent) -> None:
        self._writer.end(state, possibly_sent)

    def _release(self) -> None:
        self._writer.close()


async def open_journal(
    journal: JournalStore,
    identity: Identity,
    context: RunContext,
    *,
    resume: bool,
    earlier: Earlier,
    spool: bool,
    repeats: Repeats,
) -> JournalRecorder:
    """Open the journal of a run for writing, in the thread of its writer."""
    thread = journal.writer_thread()
    writer = await thread.run_opening(partial(journal.writer, identity, resume=resume, earlier=earlier))
    feed = WindowedFeed(writer, thread, context, repeats=repeats, spool=spool)
    return JournalRecorder(journal, writer, thread, feed, context)
