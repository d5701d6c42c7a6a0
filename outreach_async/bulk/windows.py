"""Supply the rows of a run with a journal, in windows: a window is marked in the journal before its first row is sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from outreach_async.bulk.journal import SpooledRow, Window, Writer
from outreach_async.bulk.journal.writer_thread import Scribe
from outreach_async.bulk.outcomes import ContactOutcome
from outreach_async.bulk.possibly_sent import Suspects
from outreach_async.bulk.rows import END, Kept, Pulled, Reader, Repeats, Row
from outreach_async.errors import InvalidRequest

_BATCH: Final = 500


class Spooled:
    """Reads rows from the journal's spool, after storing the whole source in it.

    Args:
        source: Supplies the rows; not used if an earlier process has stored all of them.
        reader: Encodes rows for the spool.
        writer: The journal's writer.
        scribe: Runs the writer's calls.
        repeats: Policy for rows with the same e-mail.
    """

    ready = True

    def __init__(self, source: Pulled, reader: Reader, writer: Writer, scribe: Scribe, repeats: Repeats) -> None:
        self._source = source
        self._reader = reader
        self._writer = writer
        self._scribe = scribe
        self._repeats = repeats
        self._rows: deque[SpooledRow] = deque()
        self._next = 0

    async def pull(self) -> Any:
        """Return the next spooled row, or `END`."""
        if self._writer.spooled is None:
            await self._spool()
        if not self._rows:
            self._rows += await self._scribe.do(self._writer.spooled_rows, self._next, _BATCH, self._repeats)
            self._next += len(self._rows)
        return _kept(self._rows.popleft()) if self._rows else END

    async def _spool(self) -> None:
        """Store the whole input. A process that was killed while doing so has sent nothing, so this starts from the beginning."""
        batch: list[tuple[int, str, bytes]] = []
        index = 0
        while (given := await self._source.pull()) is not END:
            batch.append((index, *self._reader.keep(given)))
            index += 1
            if len(batch) == _BATCH:
                await self._scribe.do(self._writer.spool, batch)
                batch = []
            await checkpoint()
        await self._scribe.do(self._writer.spool, batch)
        await self._scribe.do(self._writer.end_spool, index)


def _kept(row: SpooledRow) -> Kept:
    content: Any = msgspec.json.decode(row.payload)
    return Kept({}, refusal=content) if isinstance(content, str) else Kept(content, repeats=row.repeats)


LARGEST: Final = 1_000
"""Maximum number of rows in a window: after a crash, every row of a window without an outcome is uncertain."""
_AT_ONCE: Final = 50
"""Rows read before other tasks may run: parsing a whole window at once would delay the responses that arrive meanwhile."""


class Marked:
    """Supplies the rows of marked windows, one window ahead of the workers. Rows that already have an outcome are skipped.

    Args:
        source: Supplies the rows.
        reader: Parses the rows.
        writer: The journal's writer.
        scribe: Runs the writer's calls.
        size: Returns the maximum number of rows of a new window.
    """

    def __init__(self, source: Pulled, reader: Reader, writer: Writer, scribe: Scribe, size: Callable[[], int]) -> None:
        self._source = source
        self._reader = reader
        self._writer = writer
        self._scribe = scribe
        self._size = size
        self._known = writer.hwm
        self._suspects = writer.suspects
        self._rows: deque[Row | ContactOutcome] = deque()
        self._first = 0
        self._last_size = 0
        self._over = False
        self._failure: Exception | None = None
        self._news, self._wanted = anyio.Event(), anyio.Event()

    async def next(self) -> Row | ContactOutcome | None:
        """Return the next row of a marked window.

        Raises:
            InvalidRequest: The input differs from the one that the journal belongs to.
            JournalError: The journal cannot be written.
        """
        while not self._rows:
            if self._over:
                self._raise_failure()
                return None
            self._wanted.set()
            await self._news.wait()
        # Ask for the next window when half of this one is left: its mark is committed while the workers send the other half, so
        # they do not wait for the disk.
        if 2 * len(self._rows) <= self._last_size:
            self._wanted.set()
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

    def left(self) -> Suspects:
        """Return the rows that were not returned by `next` and may have been sent by an earlier process."""
        return self._suspects.since(self._rows[0].index if self._rows else self._first)

    async def run(self) -> None:
        """Fill windows until the input ends. In a finished run, only compare the rows with the marked ones."""
        try:
            while not self._over and not self._writer.settled and await self._fill():
                await self._wanted.wait()
                self._wanted = anyio.Event()
        except Exception as error:  # noqa: BLE001 - raised in a worker, which stops the run
            self._failure = error
        self._end()

    def _end(self) -> None:
        self._over = True
        self._wanted.set()
        self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def _fill(self) -> bool:
        """Read, mark and supply one window; return whether there may be another."""
        known = await self._scribe.do(self._writer.window_at, self._first) if self._first < self._known else None
        rows, digest = await (self._read(known.rows, whole=True) if known else self._read(self._size(), whole=False))
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
        window = Window(self._first, len(rows), digest)
        await self._scribe.do(self._writer.mark, window)  # on the disk before any row of the window reaches a worker
        done = await self._scribe.do(self._writer.done, window.first, window.rows) if known else frozenset[int]()
        if self._over:  # `stop` was called while this waited for the source or the disk
            return False
        if not self._writer.finished:  # no row of a finished run is sent again
            self._rows += self._undone(rows, done)
        self._first, self._last_size = self._first + len(rows), len(rows)
        self._tell()
        return True

    async def _read(self, size: int, *, whole: bool) -> tuple[list[Row | ContactOutcome], bytes]:
        """Read at most `size` rows. Unless `whole` is true, wait for the first one only."""
        # Rows of a slow stream must not wait until a window is full. A window of an earlier run has a fixed size, or its digest
        # could not be compared.
        rows: list[Row | ContactOutcome] = []
        digest = blake2b(digest_size=8)
        while len(rows) < size and (whole or not rows or self._source.ready):
            if (given := await self._source.pull()) is END:
                break
            row = self._reader.read(self._first + len(rows), given)
            form = self._reader.form(row)
            digest.update(len(form).to_bytes(4))
            digest.update(form)
            rows.append(row)
            if not len(rows) % _AT_ONCE:
                await checkpoint()
        return rows, digest.digest()

    def _undone(self, rows: list[Row | ContactOutcome], done: frozenset[int]) -> list[Row | ContactOutcome]:
        left = [row for row in rows if row.index not in done]
        for row in left:
            if isinstance(row, Row):
                row.tainted = row.index in self._suspects
        return left
