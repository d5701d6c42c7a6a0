"""An input kept whole in the journal: for policies that need all of it before the first row, and for inputs that come once."""

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
    """Rows out of the journal's spool, after the whole source has gone into it.

    Args:
        source: Where rows come from; not asked if an earlier process has read it to its end.
        reader: Says what to keep of a row.
        writer: The journal.
        scribe: Runs it.
        repeats: Which of the rows with one e-mail to send.
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
        """Return the next row as it was kept, or `END`."""
        if self._writer.spooled is None:
            await self._spool()
        if not self._rows:
            self._rows += await self._scribe.do(self._writer.spooled_rows, self._next, _BATCH, self._repeats)
            self._next += len(self._rows)
        return _kept(self._rows.popleft()) if self._rows else END

    async def _spool(self) -> None:
        """Keep the whole input; a process that was killed meanwhile has sent nothing, so this begins anew."""
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
