"""Commits outcomes to the journal in batches, and delivers them to the caller only after their commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import anyio

from outreach_async.bulk.journal import Writer
from outreach_async.bulk.order import Revised, revise
from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.scribe import Scribe

_LINGER: Final = 0.05
"""Seconds that the first outcome of a batch waits for others: that much delay costs less than a commit per outcome."""
_BATCH: Final = 512
"""Outcomes after which a batch is committed without waiting longer."""
BACKLOG: Final = 4096
"""Maximum number of outcomes that wait for their commit."""


class Recorder:
    """Commits outcomes in batches.

    Args:
        writer: The journal's writer.
        scribe: Runs the writer's calls.
        deliver: Called with the outcomes of a batch after their commit.
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
        """Queue an outcome for the next commit."""
        self._pending.append(outcome)
        if len(self._pending) == 1:
            self._some.set()
        elif len(self._pending) == _BATCH:
            self._many.set()

    def revise(self, index: int, revised: Revised) -> None:
        """Replace the outcome of a row, unless its commit has started."""
        revise(self._pending, index, revised)

    def end(self) -> None:
        """Accept no more outcomes; the queued ones are the last."""
        self._over = True
        self._some.set()
        self._many.set()

    async def run(self) -> None:
        """Commit batches until the last outcome.

        Raises:
            JournalError: A batch could not be written; its outcomes are not delivered.
        """
        while not self._over or self._pending:
            # Wait for the first outcome without a timeout, then up to `_LINGER` for the batch to fill: an idle run commits
            # nothing, and a busy one commits as soon as the batch is full.
            await self._some.wait()
            with anyio.move_on_after(_LINGER):
                await self._many.wait()
            await self.flush()

    async def flush(self) -> None:
        """Commit the queued outcomes, and those that a cancelled flush left in the batch."""
        async with self._turn:  # one flush at a time: two would commit the same batch, and a row's second outcome is an error
            self._batch += self._pending
            self._pending = []
            if not self._over:
                self._some, self._many = anyio.Event(), anyio.Event()
            if batch := self._batch:
                try:
                    await self._scribe.do(self._commit)
                finally:
                    if not self._batch:  # asyncio's own Task.cancel may arrive although the commit succeeded
                        self._deliver(batch)

    def _commit(self) -> None:
        self._writer.record(self._batch)
        self._batch = []  # in the thread, right after the commit: even a cancelled flush can tell whether the commit succeeded
