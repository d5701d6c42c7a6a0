"""Divide the rows of a journalled run into windows. Each window is marked in the journal before its first row is sent."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Container, Iterable, Sequence
from hashlib import blake2b
from itertools import filterfalse
from struct import pack
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from outreach_async.bulk._outcomes import ContactOutcome, UnsentRows
from outreach_async.bulk._ports import RunContext
from outreach_async.bulk._rows import WHOLE_INPUT, ParsedRow, PossiblySent, Repeats
from outreach_async.bulk._source import END
from outreach_async.bulk._stream import MAX_BATCH_BYTES, cancelled_from_inside, was_cancelled_from_inside
from outreach_async.errors import InvalidRequest
from outreach_async.store._records import OTHER_JOURNAL, MarkedWindow
from outreach_async.store._writer import JournalWriter, WriterThread

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
        if marked is not None and self._writer.finished:  # no row of a finished run is sent again, even if its outcome was lost
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
            for row in rows:
                if isinstance(row, ParsedRow):
                    row.maybe_sent = row.index in self._possibly_sent
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
            if [row.payload for row in stored] != given:
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
