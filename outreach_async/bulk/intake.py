"""Rows on their way in, without a journal: pulled one at a time, when a worker is free for one."""

from __future__ import annotations

from typing import Protocol

from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.rows import Reader, Row
from outreach_async.bulk.source import END, Source
from outreach_async.bulk.suspects import NONE, Suspects


class Intake(Protocol):
    """Where workers get rows from."""

    async def next(self) -> Row | ContactOutcome | None:
        """Return the next row, the outcome of one that is not sent, or `None` at the end.

        Raises:
            Exception: What the rows' own code raised.
        """
        ...

    def stop(self) -> None:
        """Hand out no further row."""
        ...

    def left(self) -> Suspects:
        """Return which rows that were not handed out may have been sent by an earlier process."""
        ...


class Direct:
    """Hands out rows as they are pulled."""

    def __init__(self, source: Source, reader: Reader) -> None:
        self._source = source
        self._reader = reader
        self._pulled = 0
        self._stopped = False

    async def next(self) -> Row | ContactOutcome | None:
        """Pull a row."""
        given = END if self._stopped else await self._source.pull()
        if given is END:
            self._stopped = True
            return None
        index, self._pulled = self._pulled, self._pulled + 1
        return self._reader.read(index, given)

    def stop(self) -> None:
        """Pull no further row."""
        self._stopped = True

    def left(self) -> Suspects:
        """Return that there are none: without a journal no earlier process is known."""
        return NONE
