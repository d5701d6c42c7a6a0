"""The feed and the recorder of a run without a store: a row is pulled when it is sent, and its outcome is delivered at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio
from anyio.abc import TaskGroup

from outreach_async._wire_words import Outcome
from outreach_async.bulk._outcomes import ContactOutcome, LedgerCounts, OutcomeBuffer, OutcomeCounts, Revision, unsent_outcome
from outreach_async.bulk._ports import EndState, Feed, RunContext
from outreach_async.bulk._rows import NO_ROWS, ParsedRow, PossiblySent
from outreach_async.bulk._source import END, Source
from outreach_async.bulk._stream import StreamReader
from outreach_async.bulk._targets import ListingNeeded
from outreach_async.errors import BulkError, BulkStopped

_ROWS_PER_WORKER: Final = 4  # rows in the pipeline: enough to keep every worker busy while rows wait for others with the same key
_MAX_BATCH_ROWS: Final = 64
_BATCH_BYTES: Final = 2**18  # size of the rows that are pulled together; one row may be larger


class DirectRecorder:
    """Pulls rows when a worker requests the next one, delivers each outcome at once, and records nothing."""

    heartbeat_due = None
    resumable = False
    again = "run again"
    ledger: LedgerCounts | None = None

    def __init__(
        self,
        context: RunContext,
        buffer: OutcomeBuffer,
        *,
        workers: int,
        clock: Callable[[], float],
        free_slots: Callable[[], int],
    ) -> None:
        self.backlog = workers * _ROWS_PER_WORKER
        self.counts = OutcomeCounts()
        self._source = context.source
        self._parser = context.parser
        self._deliver = context.deliver
        self._buffer = buffer
        self._clock = clock
        self._max_batch = min(workers, _MAX_BATCH_ROWS)
        self._free_slots = free_slots
        self._pulled: deque[object] = deque()  # rows that wait for a list of campaigns, and those behind them
        self._parsed: deque[ParsedRow | ContactOutcome] = deque()
        self._count = 0
        self._stopped = False
        self._lock = anyio.Lock(fast_acquire=True)
        self._ended = anyio.Event()

    @property
    def feed(self) -> Feed:
        return self

    def start(self, _group: TaskGroup) -> None:
        """Start no task: `next` pulls the rows."""

    async def next(self) -> ParsedRow | ContactOutcome | None:
        """Return the next row or, if the row is not sent, its outcome; `None` after the last row."""
        # Rows leave in the order of the input, also while one of them waits until the campaigns of its workspace are listed. Then
        # the other workers queue. Without such a row, an iterable is pulled and parsed without a wait, so that no lock is needed.
        source = self._source
        if isinstance(source, StreamReader):
            while not (self._parsed or self._pulled or self._stopped or source.has_arrived):
                await source.wait()
        if self._parsed or (not self._lock.locked() and self._pull_batch()):
            return self._parsed.popleft()
        if self._lock.locked() and isinstance(source, Source):
            async with self._lock:
                return await self._resolve(*self._next_pulled())
        index, row = self._next_pulled()  # no task switch since its arrival
        if row is not END and not self._lock.locked():
            with suppress(ListingNeeded):
                return self._parser.parse(index, row)
        async with self._lock:
            return await self._resolve(index, row)

    def _pull_batch(self) -> bool:
        """Pull and parse the next rows for all workers, if they come quickly. Return whether there are any."""
        if self._pulled or self._stopped:
            return False
        rows = self._pull()
        if (parsed := self._parser.parse_batch(self._count, rows)) is None:
            self._pulled += rows
            return False
        self._count += len(parsed)
        self._parsed += parsed
        return bool(parsed)

    def _pull(self) -> list[object]:
        # The worker that pulls has a slot for the first of the rows. The others have none yet, and must fit in the window.
        limit = min(self._max_batch, 1 + max(0, self._free_slots()))
        return self._source.pull_quickly(limit, _BATCH_BYTES, self._clock)[0]

    def _next_pulled(self) -> tuple[int, object]:
        if not self._pulled and not self._stopped:
            self._pulled += self._pull()
        return self._number(), self._pulled.popleft() if self._pulled else END

    def _number(self) -> int:
        self._count += 1
        return self._count - 1

    async def _resolve(self, index: int, row: object) -> ParsedRow | ContactOutcome | None:
        if row is END:
            self._stopped = True
            return None
        try:
            if self._stopped:  # while this row waited, so nothing more is listed for it
                return self._parser.parse(index, row)
            return await self._parser.targets.apply(self._parser.parse, index, row)
        except (BulkError, ListingNeeded):
            if not self._stopped:
                raise
            return unsent_outcome(index, row, Outcome.NOT_APPLIED, BulkStopped("the run ended before this row was sent"))

    def stop(self) -> None:
        self._stopped = True

    def remaining_possibly_sent(self) -> PossiblySent:
        """Return no rows: nothing tells what an earlier process did."""
        return NO_ROWS

    async def heartbeat(self, due: float) -> None: ...

    def record_outcome(self, outcome: ContactOutcome) -> None:
        self._deliver((outcome,))

    def revise(self, index: int, revised: Revision) -> None:
        self._buffer.revise(index, revised)

    def end(self) -> None:
        self._ended.set()

    async def run(self) -> None:
        await self._ended.wait()

    async def close(self, state: EndState, possibly_sent: PossiblySent, /) -> None: ...
