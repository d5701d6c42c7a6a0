"""Supply the rows of a run with a journal, in windows: a window is marked in the journal before its first row is sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outreach_async.bulk.journal import JournalWriter, MarkedWindow, SpooledRow
from outreach_async.bulk.journal.writer_thread import WriterThread
from outreach_async.bulk.outcomes import ContactOutcome
from outreach_async.bulk.possibly_sent import PossiblySent
from outreach_async.bulk.rows import END, ParsedRow, Repeats, RowParser, RowSource, SpooledInput
from outreach_async.errors import InvalidRequest

_BATCH_SIZE: Final = 500


class SpooledSource:
    """Reads rows from the journal's spool, after storing the whole source in it.

    Args:
        source: Supplies the rows; not used if an earlier process has stored all of them.
        reader: Encodes rows for the spool.
        writer: The journal's writer.
        scribe: Runs the writer's calls.
        repeats: Policy for rows with the same e-mail.
    """

    ready = True

    def __init__(
        self, source: RowSource, reader: RowParser, writer: JournalWriter, scribe: WriterThread, repeats: Repeats
    ) -> None:
        self._source = source
        self._parser = reader
        self._writer = writer
        self._writer_thread = scribe
        self._repeats = repeats
        self._rows: deque[SpooledRow] = deque()
        self._next = 0

    async def pull(self) -> Any:
        """Return the next spooled row, or `END`."""
        if self._writer.spooled is None:
            await self._store_input()
        if not self._rows:
            self._rows += await self._writer_thread.run(self._writer.spooled_rows, self._next, _BATCH_SIZE, self._repeats)
            self._next += len(self._rows)
        return _decode_row(self._rows.popleft()) if self._rows else END

    async def _store_input(self) -> None:
        """Store the whole input. A process that was killed while doing so has sent nothing, so this starts from the beginning."""
        batch: list[tuple[int, str, bytes]] = []
        index = 0
        while (given := await self._source.pull()) is not END:
            batch.append((index, *self._parser.encode_for_spool(given)))
            index += 1
            if len(batch) == _BATCH_SIZE:
                await self._writer_thread.run(self._writer.spool, batch)
                batch = []
            await checkpoint()
        await self._writer_thread.run(self._writer.spool, batch)
        await self._writer_thread.run(self._writer.end_spool, index)


def _decode_row(row: SpooledRow) -> SpooledInput:
    content: Any = msgspec.json.decode(row.payload)
    return SpooledInput({}, refusal=content) if isinstance(content, str) else SpooledInput(content, repeats=row.repeats)


MAX_WINDOW_SIZE: Final = 1_000
"""Maximum number of rows in a window: after a crash, every row of a window without an outcome is uncertain."""
_CHECKPOINT_INTERVAL: Final = 50
"""Rows read before other tasks may run: parsing a whole window at once would delay the responses that arrive meanwhile."""


class WindowedFeed:
    """Supplies the rows of marked windows, one window ahead of the workers. Rows that already have an outcome are skipped.

    Args:
        source: Supplies the rows.
        reader: Parses the rows.
        writer: The journal's writer.
        scribe: Runs the writer's calls.
        size: Returns the maximum number of rows of a new window.
    """

    def __init__(
        self, source: RowSource, reader: RowParser, writer: JournalWriter, scribe: WriterThread, size: Callable[[], int]
    ) -> None:
        self._source = source
        self._parser = reader
        self._writer = writer
        self._writer_thread = scribe
        self._window_size = size
        self._known_hwm = writer.hwm
        self._possibly_sent = writer.possibly_sent
        self._rows: deque[ParsedRow | ContactOutcome] = deque()
        self._first = 0
        self._last_size = 0
        self._ended = False
        self._failure: Exception | None = None
        self._changed, self._window_wanted = anyio.Event(), anyio.Event()

    async def next(self) -> ParsedRow | ContactOutcome | None:
        """Return the next row of a marked window.

        Raises:
            InvalidRequest: The input differs from the one that the journal belongs to.
            JournalError: The journal cannot be written.
        """
        while not self._rows:
            if self._ended:
                self._raise_failure()
                return None
            self._window_wanted.set()
            await self._changed.wait()
        # Ask for the next window when half of this one is left: its mark is committed while the workers send the other half, so
        # they do not wait for the disk.
        if 2 * len(self._rows) <= self._last_size:
            self._window_wanted.set()
        return self._rows.popleft()

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def stop(self) -> None:
        """Return no more rows."""
        self._rows, held = deque(), self._rows
        if held:
            self._first = held[0].index
        self._end()

    def remaining_possibly_sent(self) -> PossiblySent:
        """Return the rows that were not returned by `next` and may have been sent by an earlier process."""
        return self._possibly_sent.starting_at(self._rows[0].index if self._rows else self._first)

    async def run(self) -> None:
        """Fill windows until the input ends. In a finished run, only compare the rows with the marked ones."""
        try:
            while not self._ended and not self._writer.is_settled and await self._fill_window():
                await self._window_wanted.wait()
                self._window_wanted = anyio.Event()
        except Exception as error:  # noqa: BLE001 - raised in a worker, which stops the run
            self._failure = error
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._window_wanted.set()
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _fill_window(self) -> bool:
        """Read, mark and supply one window; return whether there may be another."""
        known = await self._writer_thread.run(self._writer.window_at, self._first) if self._first < self._known_hwm else None
        rows, digest = await (
            self._read_rows(known.rows, whole=True) if known else self._read_rows(self._window_size(), whole=False)
        )
        if rows and known is None and self._writer.finished:
            raise InvalidRequest(
                f"rows: the input changed: expected the {self._first} rows of the finished run, got more;"
                " resume with the same input, or pass another journal path"
            )
        if not rows:
            if known is not None:
                text = f"rows: the input changed: it ends before row {self._first} of the journal; resume with the same input"
                raise InvalidRequest(text)
            return False
        window = MarkedWindow(self._first, len(rows), digest)
        await self._writer_thread.run(self._writer.mark, window)  # on the disk before any row of the window reaches a worker
        done = (
            await self._writer_thread.run(self._writer.completed_rows, window.first, window.rows) if known else frozenset[int]()
        )
        if self._ended:  # `stop` was called while this waited for the source or the disk
            return False
        if not self._writer.finished:  # no row of a finished run is sent again
            self._rows += self._drop_completed(rows, done)
        self._first, self._last_size = self._first + len(rows), len(rows)
        self._notify()
        return True

    async def _read_rows(self, size: int, *, whole: bool) -> tuple[list[ParsedRow | ContactOutcome], bytes]:
        """Read at most `size` rows. Unless `whole` is true, wait for the first one only."""
        # Rows of a slow stream must not wait until a window is full. A window of an earlier run has a fixed size, or its digest
        # could not be compared.
        rows: list[ParsedRow | ContactOutcome] = []
        digest = blake2b(digest_size=8)
        while len(rows) < size and (whole or not rows or self._source.ready):
            if (given := await self._source.pull()) is END:
                break
            row = self._parser.parse(self._first + len(rows), given)
            form = self._parser.identifying_bytes(row)
            digest.update(len(form).to_bytes(4))
            digest.update(form)
            rows.append(row)
            if not len(rows) % _CHECKPOINT_INTERVAL:
                await checkpoint()
        return rows, digest.digest()

    def _drop_completed(self, rows: list[ParsedRow | ContactOutcome], done: frozenset[int]) -> list[ParsedRow | ContactOutcome]:
        left = [row for row in rows if row.index not in done]
        for row in left:
            if isinstance(row, ParsedRow):
                row.maybe_sent = row.index in self._possibly_sent
        return left
