"""The run of a ledger: only rows that are new, changed or uncertain are sent, marked and recorded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs
from anyio.lowlevel import checkpoint

from outreach_async.bulk._outcomes import UnsentRows
from outreach_async.bulk._ports import MAX_WINDOW_SIZE, EndState, RunContext
from outreach_async.bulk._rows import NO_ROWS, ParsedRow, PossiblySent, Repeats
from outreach_async.store.journal import Identity, JournalWriter
from outreach_async.store.journal._feed import WindowedFeed
from outreach_async.store.journal._recorder import JournalRecorder
from outreach_async.store.journal._records import MarkedWindow
from outreach_async.store.journal._store import WriterThread
from outreach_async.store.ledger import Comparison, Ledger, read_clock
from outreach_async.store.ledger._applying import LedgerRun, start, translate_errors
from outreach_async.store.ledger._comparing import BATCH_SIZE, Comparer
from outreach_async.store.ledger._repeats import PreparedRows

_MAX_COMPARED: Final = 4 * MAX_WINDOW_SIZE
"""Number of rows that are compared before those to be sent are marked, although they do not fill a window."""


class LedgerFeed(WindowedFeed):
    """Supplies the rows of a run with a ledger: those to be sent, which are marked in the run's journal, and all outcomes."""

    def __init__(
        self, writer: JournalWriter, thread: WriterThread, context: RunContext, comparer: Comparer, policy: Repeats | None
    ) -> None:
        super().__init__(writer, thread, context)
        self.numbers: dict[int, int] = {}
        """Numbers in the journal of the rows that are marked and have no outcome, by their index in the input."""
        self.comparer = comparer
        self._marked_count = 0
        self._share = 1.0
        self._policy = policy or "serial"

    def remaining_possibly_sent(self) -> PossiblySent:
        """Return no rows: the ledger itself knows which rows an earlier run may have sent."""
        return NO_ROWS

    async def _prepare(self) -> None:
        """Read the input once to find the contacts with several rows, if it can be read twice."""
        if (read := self._source.read_again) is not None:
            for needed in self.comparer.plan_repeats(self._policy, read):
                if needed is not None:
                    await self._parser.targets.list_campaigns(needed.workspace)
                await checkpoint()
                if self._ended:
                    return

    async def _fill_window(self) -> bool:
        """Compare rows until those to be sent fill a window. Mark these rows, and supply all rows."""
        size, is_last, first = self._window_size(), False, self._first
        rows: list[ParsedRow | UnsentRows] = []
        marked = self.comparer.marked
        while self._first == first or (
            len(marked) < size and self._first - first < _MAX_COMPARED and self._source.ready and not self._ended
        ):
            # Enough rows for a window, if as many of them are sent as of the previous rows.
            wanted = min(int((size - len(marked)) / self._share) + 1, MAX_WINDOW_SIZE)
            originals = await self._read_rows(wanted, whole=False)
            is_last = not originals
            if is_last:
                break
            rows += await self._compare(originals)
            if len(originals) < wanted:  # the rows are large, or the next ones have not arrived
                break
        if compared := self._first - first:
            self._share = max(len(marked), 1) / compared
        if marked:
            await self._mark()
        self._rows.extend(rows)
        if self.comparer.unchanged:
            self._rows.append(UnsentRows(first, [], self.comparer.unchanged.copy()))
            self.comparer.unchanged.clear()
        self._last_size = len(self._rows)
        if self._rows:
            self._notify()
        return not is_last

    async def _compare(self, originals: Sequence[object]) -> list[ParsedRow | UnsentRows]:
        prepared = list[PreparedRows]()
        for at in range(0, len(originals), BATCH_SIZE):
            batch = originals[at : at + BATCH_SIZE]
            prepared.append(await self._parser.targets.apply(self.comparer.prepare, self._first + at, batch))
            await checkpoint()
        self._first += len(originals)
        return [row for rows in prepared for row in self.comparer.settle(rows)]

    async def _mark(self) -> None:
        rows = [*self.comparer.marked]
        self.comparer.marked.clear()
        window = MarkedWindow(self._marked_count, len(rows), b"".join(marked.content for marked in rows))
        self.numbers.update((marked.row.index, number) for number, marked in enumerate(rows, self._marked_count))
        targets = {marked.row.target: self.comparer.targets[marked.row.target] for marked in rows}
        await self._thread.run(self._writer.mark, window, targets)
        self._marked_count += len(rows)


class LedgerRecorder(JournalRecorder):
    """Recorder for a run with a ledger: only sent rows are in its journal, with their own numbers."""

    feed: LedgerFeed
    again = "run again"

    def __init__(self, run: LedgerRun, thread: WriterThread, feed: LedgerFeed, context: RunContext) -> None:
        super().__init__(run.journal, run.writer, thread, feed, context)
        self._run = run
        self.ledger = feed.comparer.counts

    def _commit(self) -> None:
        numbers = self.feed.numbers
        self._writer.record([attrs.evolve(outcome, index=numbers[outcome.index]) for outcome in self._batch])
        for outcome in self._batch:
            del numbers[outcome.index]
        self._batch = []

    def _end(self, state: EndState, possibly_sent: PossiblySent) -> None:
        indexes = (index for first, end in possibly_sent.ranges for index in range(first, end))
        numbers = PossiblySent.of(self.feed.numbers[index] for index in indexes)
        super()._end(state, numbers)
        comparer = self.feed.comparer
        counts = {name: count for name, count in attrs.asdict(comparer.counts).items() if count and name != "kept"}
        # Only a run that has read its whole input shows which contacts are gone from it.
        seen = comparer.seen if state == "finished" else None
        comparer.counts.gone = self._run.apply(numbers, counts, seen, comparer.compared_targets)

    def _release(self) -> None:
        self._run.close()


async def open_ledger(ledger: Ledger, identity: Identity, comparison: Comparison, context: RunContext) -> LedgerRecorder:
    """Open the ledger of a run, in a thread. An earlier run that was not added to the ledger is added first."""
    now = read_clock(ledger)

    def open_run() -> LedgerRun:
        store = ledger._open_store()  # noqa: SLF001 - not a method for users, who hold ledgers
        try:
            return start(store, identity, now, ledger._now)  # noqa: SLF001 - not a method for users
        except BaseException:
            store.close()
            raise

    errors = partial(translate_errors, os.fspath(ledger.location), opens=False)
    thread = WriterThread(inline=ledger.inline, errors=errors)
    run = await thread.run_opening(open_run)
    comparer = Comparer(comparison, run.entries, context.parser, now, only_counts=context.only_counts, width=context.width)
    return LedgerRecorder(run, thread, LedgerFeed(run.writer, thread, context, comparer, comparison.repeats), context)
