"""Choose the store of a run by the options of `create_many`, and record its outcomes there.

They are committed in batches before they are delivered. With a ledger, only rows that are new, changed or uncertain are sent,
marked and recorded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, get_args

import anyio
import attrs
from anyio.lowlevel import checkpoint

from outreach_async._core.arguments import require_choice, type_name
from outreach_async._files.objects import is_url, open_objects
from outreach_async.bulk._outcomes import ContactOutcome, LedgerCounts, Revision, UnsentRows, revise
from outreach_async.bulk._pipeline import Plan
from outreach_async.bulk._ports import MAX_WINDOW_SIZE, EndState, OpenRecorder, RunContext
from outreach_async.bulk._rows import NO_ROWS, WHOLE_INPUT, ParsedRow, PossiblySent, Repeats, require_fitting
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.store._comparing import BATCH_SIZE, Comparer
from outreach_async.store._feed import WindowedFeed
from outreach_async.store._ledgers import LedgerRun, start, translate_ledger_errors
from outreach_async.store._records import Earlier, Identity, MarkedWindow
from outreach_async.store._repeats import PreparedRows
from outreach_async.store._store import Changed, Comparison, Store, read_clock
from outreach_async.store._writer import JournalWriter, WriterThread
from outreach_async.transport._urls import service_address

_BATCH_SIZE: Final = 512  # number of queued outcomes that are committed at once, without waiting for `linger`


class JournalRecorder:
    """Recorder for a run with a journal: marks rows before they are sent, and commits outcomes before they are delivered."""

    resumable = True
    again = "resume the run"
    ledger: LedgerCounts | None = None

    def __init__(
        self, store: Store, writer: JournalWriter, thread: WriterThread, feed: WindowedFeed, context: RunContext
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
        self._release: Callable[[], None] = writer.close

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
        first, marked = self._marked_count, [*self.comparer.marked]
        sent = self.comparer.encode_marked(first)
        self.comparer.marked.clear()
        self.numbers.update((each.row.index, number) for number, each in enumerate(marked, first))
        targets = {each.row.target: self.comparer.targets[each.row.target] for each in marked}
        await self._thread.run(self._writer.mark, MarkedWindow(first, len(marked), b""), targets, sent)
        self._marked_count += len(marked)


class LedgerRecorder(JournalRecorder):
    """Recorder for a run with a ledger: only sent rows are in its journal, with their own numbers."""

    feed: LedgerFeed
    again = "run again"

    def __init__(self, store: Store, run: LedgerRun, thread: WriterThread, feed: LedgerFeed, context: RunContext) -> None:
        super().__init__(store, run.writer, thread, feed, context)
        self._run = run
        self._release = run.close
        self.ledger = feed.comparer.counts

    def _commit(self) -> None:
        numbers = self.feed.numbers
        self._writer.record(self._batch, numbers)
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
        comparer.counts.gone = self._run.merge(numbers, counts, seen, comparer.compared_targets)


@attrs.frozen(kw_only=True)
class StoreOptions:
    """The options of a run that are about its store; `create_many` documents them."""

    journal: str | os.PathLike[str] | Store | None
    ledger: str | os.PathLike[str] | Store | None
    max_age: float | timedelta | None
    changed: Changed
    resume: bool
    earlier: Earlier
    spool: bool


def choose_store(options: StoreOptions, plan: Plan, request: Mapping[str, Any]) -> OpenRecorder | None:
    """Validate the options. Return what opens the store of a run whose requests have the options `request`."""
    require_choice("earlier", options.earlier, get_args(Earlier))
    require_choice("changed", options.changed, get_args(Changed))
    ledger = _choose_ledger(options, plan, request)
    require_fitting(**attrs.asdict(options, recurse=False), repeats=plan.repeats, duplicates=plan.duplicates)
    return ledger or _choose_journal(options, plan, request)


def _identify(plan: Plan, options: Mapping[str, Any], **known: Any) -> Identity:
    address = service_address(plan.engine.transport)
    return Identity(str(plan.parser.targets.default.workspace), options, address=address, **known)


def _to_store(given: str | os.PathLike[str] | Store, field: str) -> Store:
    if isinstance(given, Store):
        return given
    if not isinstance(given, str | os.PathLike):
        raise InvalidRequest(f"{field}: expected a path, URL or Store, got {type_name(given)}; pass the path of a file")
    if is_url(given):
        open_objects(str(given), field)  # refuses an unusable URL, and names the field; no request is sent
    return Store(given)


def _choose_journal(options: StoreOptions, plan: Plan, request: Mapping[str, Any]) -> OpenRecorder | None:
    if options.journal is None:
        return None
    journal = _to_store(options.journal, "journal")
    recorded = {**request, "repeats": plan.repeats, "spool": options.spool}
    recorded |= {"blank": "clear"} if plan.blank == "clear" else {}
    known = {name: getattr(journal, name) for name in ("source", "fingerprint", "mapping")}
    identity = _identify(plan, recorded, **known)

    async def open_journal(context: RunContext) -> JournalRecorder:
        thread = journal.writer_thread()
        opens = partial(journal.writer, identity, resume=options.resume, earlier=options.earlier)
        writer = await thread.run_opening(opens)
        feed = WindowedFeed(writer, thread, context, repeats=plan.repeats, spool=options.spool)
        return JournalRecorder(journal, writer, thread, feed, context)

    return open_journal


def _choose_ledger(options: StoreOptions, plan: Plan, request: Mapping[str, Any]) -> OpenRecorder | None:
    if options.ledger is None:
        return None
    ledger = _to_store(options.ledger, "ledger")
    fields = {name: value for name, value in request.items() if name != "campaign"}
    comparison = Comparison(plan.repeats, fields, options.max_age, ignore_changes=options.changed == "ignore")
    if plan.repeats in WHOLE_INPUT and plan.source.read_again is None:
        raise InvalidRequest(
            f"repeats: with a ledger, {plan.repeats!r} needs rows that can be read twice, got an iterator or a stream; pass a"
            ' list or a data frame, or "serial"'
        )
    recorded = {**request, "repeats": plan.repeats, "timeout": plan.call_options.timeout}
    return partial(_open_ledger, ledger, _identify(plan, recorded), comparison)


async def _open_ledger(ledger: Store, identity: Identity, comparison: Comparison, context: RunContext) -> LedgerRecorder:
    """Open the ledger of a run, in a thread. An earlier run that was not merged is merged first."""
    name = os.fspath(ledger.location)

    def open_run() -> LedgerRun:
        medium = ledger.medium()
        with_ids, with_runs = not context.only_counts, comparison.max_age is not None
        try:
            return start(medium, identity, partial(read_clock, ledger), with_ids=with_ids, with_runs=with_runs)
        except BaseException:
            medium.close()
            raise

    thread = WriterThread(inline=ledger.inline, errors=partial(translate_ledger_errors, name, opens=False))
    run = await thread.run_opening(open_run)
    comparer = Comparer(comparison, run.entries, context.parser, run.run.at, only_counts=context.only_counts, width=context.width)
    feed = LedgerFeed(run.writer, thread, context, comparer, comparison.repeats)
    return LedgerRecorder(ledger, run, thread, feed, context)
