"""Outcomes on their way out: into the journal, many at a time, and only then to the caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import anyio

from outreach_async.bulk.journal import Writer
from outreach_async.bulk.order import Revised, revise
from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.scribe import Scribe

_LINGER: Final = 0.05
"""Seconds that the first outcome of a batch waits for others: an answer later by that much is cheaper than a commit each."""
_BATCH: Final = 512
BACKLOG: Final = 4096
"""Outcomes at most that wait for their commit."""


class Recorder:
    """Commits outcomes in batches.

    Args:
        writer: The journal.
        scribe: Runs it.
        deliver: Takes the outcomes of a batch once they are safe.
    """

    def __init__(self, writer: Writer, scribe: Scribe, deliver: Callable[[Sequence[ContactOutcome]], None]) -> None:
        self._writer = writer
        self._scribe = scribe
        self._deliver = deliver
        self._pending: list[ContactOutcome] = []
        self._batch: list[ContactOutcome] = []
        self._turn = anyio.Lock(fast_acquire=True)
        self._some = anyio.Event()
        self._many = anyio.Event()
        self._over = False

    def add(self, outcome: ContactOutcome) -> None:
        """Take an outcome."""
        self._pending.append(outcome)
        if len(self._pending) == 1:
            self._some.set()
        elif len(self._pending) == _BATCH:
            self._many.set()

    def revise(self, index: int, revised: Revised) -> None:
        """Replace the outcome of a row, unless its commit has begun."""
        revise(self._pending, index, revised)

    def end(self) -> None:
        """Take no more: what is there is the rest."""
        self._over = True
        self._some.set()
        self._many.set()

    async def run(self) -> None:
        """Commit until the end.

        Raises:
            JournalError: A batch could not be written; its outcomes are delivered to nobody.
        """
        while not self._over or self._pending:
            await self._some.wait()
            with anyio.move_on_after(_LINGER):
                await self._many.wait()
            await self.flush()

    async def flush(self) -> None:
        """Commit what is there now, and what a cancelled flush left: until then an outcome stays in the batch."""
        async with self._turn:
            self._batch += self._pending
            self._pending = []
            if not self._over:
                self._some, self._many = anyio.Event(), anyio.Event()
            if batch := self._batch:
                try:
                    await self._scribe.do(self._commit)
                finally:
                    if not self._batch:  # asyncio's own Task.cancel may strike although the commit went through
                        self._deliver(batch)

    def _commit(self) -> None:
        self._writer.record(self._batch)
        self._batch = []
