"""Stores the whole input in the journal, for policies that need all rows first, and for inputs that can be read only once."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import msgspec
from anyio.lowlevel import checkpoint

from outreach_async.bulk.journal import SpooledRow, Writer
from outreach_async.bulk.repeats import Repeats
from outreach_async.bulk.rows import Kept, Reader
from outreach_async.bulk.scribe import Scribe
from outreach_async.bulk.source import END, Pulled

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
