"""Choose the store of a run by the options of `create_many`, and record its rows and outcomes there.

A feed divides the rows of the run into windows. Each window is marked before its first row is sent. Outcomes are committed in
batches before they are delivered. With a ledger, only rows that are new, changed or uncertain are sent, marked and recorded.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from hashlib import blake2b
from itertools import filterfalse
from struct import pack
from typing import Any, Final, get_args

import anyio
import attrs
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from outreach_async._core.arguments import require_choice, type_name
from outreach_async._files.objects import is_url, open_objects
from outreach_async.bulk._outcomes import ContactOutcome, LedgerCounts, Revision, UnsentRows, revise, unfinished_outcome
from outreach_async.bulk._pipeline import Plan
from outreach_async.bulk._ports import MAX_WINDOW_SIZE, EndState, OpenRecorder, RunContext
from outreach_async.bulk._rows import (
    ERASED,
    NO_ROWS,
    WHOLE_INPUT,
    ParsedRow,
    PossiblySent,
    Repeats,
    decode_spooled,
    require_fitting,
)
from outreach_async.bulk._source import END
from outreach_async.bulk._stream import MAX_BATCH_BYTES, cancelled_from_inside, was_cancelled_from_inside
from outreach_async.errors import Excluded, InvalidRequest, JournalError
from outreach_async.store._comparing import BATCH_SIZE, Comparer
from outreach_async.store._holds import Holds, Place
from outreach_async.store._ledgers import LedgerRun, RowChange, start_run, translate_ledger_errors
from outreach_async.store._records import OTHER_JOURNAL, Earlier, Identity, MarkedWindow
from outreach_async.store._store import Changed, Comparison, Store, read_clock
from outreach_async.store._writer import JournalWriter, WriterThread
from outreach_async.transport._urls import service_address

_SPOOL_BATCH_SIZE: Final = 500  # number of rows that are written to the spool in one transaction
_CHECKPOINT_INTERVAL: Final = 50  # rows that are parsed before other tasks may run; a whole window would delay responses
_QUICK_CHECKPOINT_INTERVAL: Final = 250  # rows that are encoded before other tasks may run, which is faster than parsing
_NO_ROWS: Final = frozenset[int]()
_NOT_MARKED: Final = (None, _NO_ROWS)


class WindowedFeed:
    """Supplies the workers with the rows of marked windows, except rows with an outcome in the journal."""

    def __init__(
        self,
        writer: JournalWriter,
        thread: WriterThread,
        context: RunContext,
        *,
        repeats: Repeats = "serial",
        spool: bool = False,
    ) -> None:
        self._source = context.source
        self._parser = context.parser
        self._writer = writer
        self._thread = thread
        self._repeats = repeats
        self._spools = spool or repeats in WHOLE_INPUT
        self._window_size = context.window_size
        self._marked_before = writer.marked
        self._possibly_sent = writer.possibly_sent
        self._rows: deque[ParsedRow | ContactOutcome | UnsentRows] = deque()
        self._first = 0
        self._last_size = 0
        self._ended = False
        self._failure: Exception | None = None
        self._changed, self._window_wanted = anyio.Event(), anyio.Event()
        context.parser.targets.names.update(writer.names)

    def start(self, group: TaskGroup) -> None:
        group.start_soon(self._run)

    async def next(self) -> ParsedRow | ContactOutcome | UnsentRows | None:
        """Return the next row of a marked window, or its outcome if it must not be sent; `None` after the last row."""
        while not self._rows:
            if self._ended:
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure
                return None
            self._window_wanted.set()
            await self._changed.wait()
        # Request the next window when half of this one is left: the mark is then committed while the workers send the other half,
        # so that they do not wait for the disk.
        if 2 * len(self._rows) <= self._last_size:
            self._window_wanted.set()
        return self._rows.popleft()

    def stop(self) -> None:
        # The rows that are dropped here stay marked. Those that an earlier process may have sent remain possibly sent.
        if self._rows:
            self._first = self._rows[0].index
            self._rows = deque()
        self._end()

    def remaining_possibly_sent(self) -> PossiblySent:
        """Return the rows left that an earlier process may have sent."""
        return self._possibly_sent.starting_at(self._rows[0].index if self._rows else self._first)

    async def _run(self) -> None:
        """Fill windows until the input ends. If the run is already finished, only compare the input with the journal."""
        try:
            is_settled = self._writer.finished and (self._spools or self._writer.has_same_input)
            await self._prepare()
            if self._spools:
                if (spooled := self._writer.spooled) is None:
                    await self._store_input()
                elif not self._writer.has_same_input:
                    await self._compare_input(spooled)
            while not self._ended and not is_settled and await self._fill_window():
                if not self._rows:  # every row has an outcome, so continue before the workers request the next window
                    continue
                # The event is replaced only after the wait, so that a request that arrives while a window is filled is not lost.
                await self._window_wanted.wait()
                self._window_wanted = anyio.Event()
        except Exception as error:  # noqa: BLE001 - raised in a worker, which stops the run
            if not self._ended:  # a run that is ending needs no more rows
                self._failure = error
        except anyio.get_cancelled_exc_class() as error:
            if not was_cancelled_from_inside():
                raise
            self._failure = cancelled_from_inside("a request for campaigns", error)
        self._end()

    async def _prepare(self) -> None:
        """Do what comes before the first window."""

    def _end(self) -> None:
        self._ended = True
        self._window_wanted.set()
        self._notify()

    def _notify(self) -> None:
        # Wake the tasks that wait for the old event, so that they check again. Tasks that start to wait later use the new event.
        self._changed.set()
        self._changed = anyio.Event()

    async def _fill_window(self) -> bool:
        """Read and mark one window. Return whether another may follow."""
        marked, completed = await self._thread.run(self._find_marked) if self._first < self._marked_before else _NOT_MARKED
        originals = await self._read_rows(self._window_size() if marked is None else marked.rows, whole=marked is not None)
        if originals and marked is None and self._writer.finished:
            raise InvalidRequest(
                f"rows: the input changed: expected the {self._first} rows of the finished run, got more;"
                f" resume with the same input, or {OTHER_JOURNAL}"
            )
        if not originals and marked is not None:
            raise InvalidRequest(
                f"rows: the input changed: it ends before row {self._first} of the journal; resume with the same input"
            )
        if not originals:
            return False
        rows = None if marked is None else await self._parse_unchanged(originals, marked, completed)
        if marked is None or rows is None:
            rows = await self._parse_rows(originals, ())
            marked = MarkedWindow(self._first, len(originals), _digest(self._parser.identify(rows)))
            await self._record_names()
            await self._thread.run(self._writer.mark, marked)  # on the disk before any row of the window reaches a worker
            if completed is not _NO_ROWS:
                rows = [row for row in rows if row.index not in completed]
        if self._ended:  # `stop` was called while this method waited for the source or the disk
            return False
        self._rows += rows
        self._first, self._last_size = marked.end, marked.rows
        if rows:
            self._notify()
        return True

    async def _record_names(self) -> None:
        if len(names := self._parser.targets.names) > len(self._writer.names):
            await self._thread.run(self._writer.record_names, names.copy())

    def _find_marked(self) -> tuple[MarkedWindow | None, Container[int]]:
        """Return the marked window that starts at the next row, and the indexes of its rows that have an outcome."""
        marked = self._writer.window_at(self._first)
        if marked is not None and self._writer.finished:  # each of its rows has an outcome
            return marked, range(marked.first, marked.end)
        return _NOT_MARKED if marked is None else (marked, self._writer.completed_rows(marked.first, marked.rows))

    async def _parse_unchanged(
        self, originals: Sequence[Any], marked: MarkedWindow, completed: Container[int]
    ) -> list[ParsedRow | ContactOutcome] | None:
        """Compare a window with its mark without parsing its rows. If they match, parse the rows that have no outcome."""
        contents: list[bytes] = []
        for start in range(0, len(originals), _QUICK_CHECKPOINT_INTERVAL):
            batch = originals[start : start + _QUICK_CHECKPOINT_INTERVAL]
            if (encoded := await self._parser.targets.apply(self._parser.try_encode, batch)) is None:
                return None
            rows, targets = encoded
            contents += rows if targets is None else map(self._parser.add_target, rows, targets)
            await checkpoint()
        if MarkedWindow(marked.first, len(originals), _digest(contents)) != marked:
            return None
        parsed = await self._parse_rows(originals, completed)
        # Only valid rows are marked with the bytes of a contact. A row that is invalid now, such as one with a date instead of a
        # string, may have been sent, so it must not count as rejected.
        return parsed if all(isinstance(row, ParsedRow) for row in parsed) else None

    async def _read_rows(self, size: int, *, whole: bool) -> list[Any]:
        """Read `size` rows. Unless `whole`, wait for the first row only, then return what has arrived and fits in a window."""
        # Rows of a slow stream must not wait until a window is full. A window that is already marked must be read as a whole,
        # because its digest is compared.
        source, rows = self._source, list[Any]()
        room = sys.maxsize if whole else MAX_BATCH_BYTES
        if self._spools:
            return await self._thread.run(self._writer.spooled_rows, self._first, size, self._repeats, room)
        while len(rows) < size and room > 0 and (whole or not rows or source.ready):
            batch, room = await source.pull_batch(min(size - len(rows), _CHECKPOINT_INTERVAL), room)
            if not batch:
                break
            rows += batch
            if len(batch) == _CHECKPOINT_INTERVAL:
                await checkpoint()
        return rows

    async def _parse_rows(self, originals: Sequence[Any], skipped: Container[int]) -> list[ParsedRow | ContactOutcome]:
        """Parse the rows of the next window, except rows whose index is in `skipped`."""
        rows: list[ParsedRow | ContactOutcome] = []
        for start in range(0, len(originals), _CHECKPOINT_INTERVAL):
            batch, first = originals[start : start + _CHECKPOINT_INTERVAL], self._first + start
            indexes = [*filterfalse(skipped.__contains__, range(first, first + len(batch)))]
            if len(indexes) == len(batch) and (parsed := self._parser.parse_batch(first, batch)) is not None:
                rows += parsed
            else:
                rows += [await self._parser.targets.apply(self._parser.parse, index, batch[index - first]) for index in indexes]
            if len(batch) == _CHECKPOINT_INTERVAL:
                await checkpoint()
        if self._possibly_sent.ranges:
            for at, row in enumerate(rows):
                if isinstance(row, ParsedRow):
                    row.maybe_sent = row.index in self._possibly_sent
                elif row.index in self._possibly_sent and str(row.error) == ERASED.reason:
                    options: dict[str, Any] = {"attempts": 0, "maybe_applied": True, "target": row.target}
                    rows[at] = unfinished_outcome(
                        row.index, row.contact, Excluded(ERASED.reason), self._writer.duplicates, **options
                    )
        return rows

    async def _store_input(self) -> None:
        """Store the whole input in the spool, before any row is sent."""
        batch: list[tuple[int, str, bytes]] = []
        count = size = 0
        while (row := await self._source.pull()) is not END:
            email, payload = await self._parser.targets.apply(self._parser.encode_for_spool, row)
            batch.append((count, email, payload))
            count, size = count + 1, size + len(payload)
            if len(batch) == _SPOOL_BATCH_SIZE or size >= MAX_BATCH_BYTES:
                await self._thread.run(self._writer.spool, batch)
                batch, size = [], 0
            await checkpoint()
        if self._ended:  # these may not be all rows
            return
        if self._writer.resumed and not count:  # finishing without rows would drop those that the earlier process has read
            raise InvalidRequest(
                "rows: expected the whole input, because the earlier process ended before the journal contained it, got no rows;"
                f" pass the input again, or {OTHER_JOURNAL}"
            )
        await self._thread.run(self._writer.spool, batch)
        await self._record_names()
        await self._thread.run(self._writer.end_spool, count)

    async def _compare_input(self, spooled: int) -> None:
        """Compare the input, which may be empty, with the `spooled` rows: other rows would be ignored without notice."""
        count = 0
        while rows := (await self._source.pull_batch(_CHECKPOINT_INTERVAL, MAX_BATCH_BYTES))[0]:
            stored = await self._thread.run(self._writer.spooled_rows, count, len(rows), "serial", sys.maxsize)
            given = [(await self._parser.targets.apply(self._parser.encode_for_spool, row))[1] for row in rows]
            other = [row.payload for row, new in zip(stored, given, strict=False) if row.payload != new]
            if len(stored) < len(rows) or any(decode_spooled(payload)[0] != ERASED for payload in other):
                break
            count += len(rows)
        if rows or 0 < count < spooled:
            raise InvalidRequest(
                f"rows: the input changed: expected no rows, or the {spooled} rows that the journal contains, got other rows;"
                f" resume without rows (rows=[]), or {OTHER_JOURNAL}"
            )


def _digest(contents: Iterable[bytes]) -> bytes:
    contents = [*contents]
    lengths = pack(f">{len(contents)}I", *map(len, contents))
    return blake2b(lengths + b"".join(contents), digest_size=8).digest()


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
        held = await self._thread.run(self._mark) if self.comparer.marked else {}
        self._rows.extend(UnsentRows(row.index, [held[row.index]]) if row.index in held else row for row in rows)
        if self.comparer.unchanged:
            self._rows.append(UnsentRows(first, [], self.comparer.unchanged.copy()))
            self.comparer.unchanged.clear()
        self._last_size = len(self._rows)
        if self._rows:
            self._notify()
        return not is_last

    async def _compare(self, originals: Sequence[object]) -> list[ParsedRow | UnsentRows]:
        settled = list[ParsedRow | UnsentRows]()
        for at in range(0, len(originals), BATCH_SIZE):
            batch = originals[at : at + BATCH_SIZE]
            prepared = await self._parser.targets.apply(self.comparer.prepare, self._first + at, batch)
            settled += self.comparer.settle(prepared)
            await checkpoint()
        self._first += len(originals)
        return settled

    def _mark(self) -> Mapping[int, ContactOutcome]:
        """Mark the rows that are about to be sent. Return the outcomes of those that turn out to be held, by their index."""
        comparer, first = self.comparer, self._marked_count
        rows = [each.row for each in comparer.marked if each.change is RowChange.NEW]
        with ExitStack() as stack:
            found = stack.enter_context(comparer.holds.confirmed(rows)) if comparer.holds else {}
            held = comparer.withdraw(found) if found else {}
            if marked := comparer.marked:
                sent = comparer.encode_marked(first)
                self.numbers.update((each.row.index, number) for number, each in enumerate(marked, first))
                targets = {each.row.target: comparer.targets[each.row.target] for each in marked}
                self._writer.mark(MarkedWindow(first, len(marked), b""), targets, sent)
            self._marked_count += len(marked)
        comparer.marked = []
        return held


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
        for finder in comparer.exclusions:
            counts |= getattr(finder, "figures", {})
        # Only a run that has read its whole input shows which contacts are gone from it.
        seen = comparer.seen if state == "finished" else None
        comparer.counts.gone = self._run.merge(numbers, counts, seen, comparer.compared_targets)


def choose_store(
    plan: Plan, request: Mapping[str, Any], *, journal: Place | None, ledger: Place | None, **options: Any
) -> OpenRecorder | None:
    """Validate the options of `create_many`. Return what opens the store of a run whose requests have the options `request`."""
    require_choice("earlier", options["earlier"], get_args(Earlier))
    require_choice("changed", options["changed"], get_args(Changed))
    opens = None if ledger is None else _choose_ledger(ledger, plan, request, options)
    require_fitting(journal=journal, ledger=ledger, **options, repeats=plan.repeats, duplicates=plan.duplicates)
    return opens if journal is None else _choose_journal(journal, plan, request, options)


def _identify(plan: Plan, options: Mapping[str, Any], **known: Any) -> Identity:
    address = service_address(plan.engine.transport)
    return Identity(str(plan.parser.targets.default.workspace), options, address=address, **known)


def _to_store(given: Place | None, field: str) -> Store:
    if isinstance(given, Store):
        return given
    if not isinstance(given, str | os.PathLike):
        raise InvalidRequest(f"{field}: expected a path, URL or Store, got {type_name(given)}; pass the path of a file")
    if is_url(given):
        open_objects(str(given), field)  # refuses an unusable URL, and names the field; no request is sent
    return Store(given)


def _choose_journal(place: Place, plan: Plan, request: Mapping[str, Any], options: Mapping[str, Any]) -> OpenRecorder:
    journal, spool = _to_store(place, "journal"), options["spool"]
    recorded = {**request, "repeats": plan.repeats, "spool": spool}
    recorded |= {"blank": "clear"} if plan.blank == "clear" else {}
    known = {name: getattr(journal, name) for name in ("source", "fingerprint", "mapping")}
    identity = _identify(plan, recorded, **known)

    async def open_journal(context: RunContext) -> JournalRecorder:
        thread = journal.writer_thread()
        opens = partial(journal.writer, identity, resume=options["resume"], earlier=options["earlier"])
        writer = await thread.run_opening(opens)
        feed = WindowedFeed(writer, thread, context, repeats=plan.repeats, spool=spool)
        return JournalRecorder(journal, writer, thread, feed, context)

    return open_journal


def _choose_ledger(place: Place, plan: Plan, request: Mapping[str, Any], options: Mapping[str, Any]) -> OpenRecorder:
    ledger = _to_store(place, "ledger")
    holds = Holds.of(ledger, **{name: options[name] for name in ("hold", "held_by", "hold_domains")})
    fields = {name: value for name, value in request.items() if name != "campaign"}
    comparison = Comparison(plan.repeats, fields, options["max_age"], ignore_changes=options["changed"] == "ignore")
    if plan.repeats in WHOLE_INPUT and plan.source.read_again is None:
        raise InvalidRequest(
            f"repeats: with a ledger, {plan.repeats!r} needs rows that can be read twice, got an iterator or a stream; pass a"
            ' list or a data frame, or "serial"'
        )
    recorded = {**request, "repeats": plan.repeats, "timeout": plan.call_options.timeout}
    return partial(_open_ledger, ledger, _identify(plan, recorded), comparison, holds)


async def _open_ledger(
    ledger: Store, identity: Identity, comparison: Comparison, holds: Holds | None, context: RunContext
) -> LedgerRecorder:
    """Open the ledger of a run, in a thread. An earlier run that was not merged is merged first."""
    name = os.fspath(ledger.location)

    def open_run() -> LedgerRun:
        with_ids, with_runs = not context.only_counts, comparison.max_age is not None
        with ExitStack() as stack:
            stack.callback((medium := ledger.medium()).close)
            if holds is not None:  # before the run is in the ledger
                holds.open(identity.address, read_clock(ledger), claims=True)
            run = start_run(medium, identity, partial(read_clock, ledger), with_ids=with_ids, with_runs=with_runs)
            stack.callback(run.writer.close)
            if holds is not None:
                holds.load_own(run.database.query)
            stack.pop_all()
        return run

    thread = WriterThread(inline=ledger.inline, errors=partial(translate_ledger_errors, name, opens=False))
    run = await thread.run_opening(open_run)
    options: dict[str, Any] = {name: getattr(context, name) for name in ("only_counts", "width", "exclusions")}
    comparer = Comparer(comparison, run.entries, context.parser, run.run.at, holds=holds, **options)
    feed = LedgerFeed(run.writer, thread, context, comparer, comparison.repeats)
    return LedgerRecorder(ledger, run, thread, feed, context)
