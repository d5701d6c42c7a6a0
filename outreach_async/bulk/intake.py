"""Supplies the rows of a run without a journal: pulled one at a time, when a worker is free."""

from __future__ import annotations

from typing import Protocol

from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.rows import Reader, Row
from outreach_async.bulk.source import END, Source
from outreach_async.bulk.suspects import NONE, Suspects


class Intake(Protocol):
    """Supplies rows to the workers."""

    async def next(self) -> Row | ContactOutcome | None:
        """Return the next row, the outcome of a row that is not sent, or `None` at the end.

        Raises:
            Exception: Raised by the iterable of rows.
        """
        ...

    def stop(self) -> None:
        """Return no more rows."""
        ...

    def left(self) -> Suspects:
        """Return the rows that were not returned by `next` and may have been sent by an earlier process."""
        ...


class Direct:
    """Returns rows as they are pulled."""

    def __init__(self, source: Source, reader: Reader) -> None:
        self._source = source
        self._reader = reader
        self._pulled = 0
        self._stopped = False

    async def next(self) -> Row | ContactOutcome | None:
        """Pull and return the next row, or the outcome of a row that is not sent; `None` at the end."""
        given = END if self._stopped else await self._source.pull()
        if given is END:
            self._stopped = True
            return None
        index, self._pulled = self._pulled, self._pulled + 1
        return self._reader.read(index, given)

    def stop(self) -> None:
        """Pull no more rows."""
        self._stopped = True

    def left(self) -> Suspects:
        """Return no rows: without a journal, no earlier process is known."""
        return NONE
