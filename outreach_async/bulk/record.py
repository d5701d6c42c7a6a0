"""What is kept of a run while it goes on: nothing, or a journal. Either way it brings rows in and takes outcomes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async.bulk.intake import Direct, Intake
from outreach_async.bulk.journal import Identity, Journal, Writer
from outreach_async.bulk.journal.values import Earlier, State
from outreach_async.bulk.marked import LARGEST, Marked
from outreach_async.bulk.order import Ready, Revised
from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.recorder import BACKLOG, Recorder
from outreach_async.bulk.repeats import WHOLE_INPUT, Repeats
from outreach_async.bulk.report import Tally
from outreach_async.bulk.rows import Reader
from outreach_async.bulk.scribe import Scribe
from outreach_async.bulk.source import Ahead, Pulled, Source
from outreach_async.bulk.spooling import Spooled
from outreach_async.bulk.suspects import Suspects
from outreach_async.errors import JournalError

Deliver = Callable[[Sequence[ContactOutcome]], None]


class Record(Protocol):
    """What is kept of a run.

    Attributes:
        intake: Where its rows come from.
        tally: Figures of the rows that had their outcome before.
        resumable: Whether rows without an outcome are for a later process, or else have to be given one now.
        backlog: Outcomes that may wait to be kept, over those in flight.
    """

    intake: Intake
    tally: Tally
    resumable: bool
    backlog: int

    def settle(self, outcome: ContactOutcome) -> None:
        """Take an outcome, to deliver it as soon as it is kept."""
        ...

    def revise(self, index: int, revised: Revised) -> None:
        """Replace the outcome of a row, unless it is kept or delivered."""
        ...

    def start(self, group: TaskGroup) -> None:
        """Start what runs beside the workers."""
        ...

    def end(self) -> None:
        """Take no more outcomes."""
        ...

    async def run(self) -> None:
        """Keep and deliver outcomes until the last.

        Raises:
            JournalError: One could not be kept.
        """
        ...

    async def close(self, state: State, suspects: Suspects) -> None:
        """Keep how the run ended, and which rows without an outcome may have been sent. Only the first call counts."""
        ...


class Unrecorded:
    """Nothing is kept: an outcome goes to the caller at once."""

    resumable = False
    backlog = 0

    def __init__(self, source: Source, reader: Reader, deliver: Deliver, ready: Ready) -> None:
        self._ready = ready
        self.intake: Intake = Direct(source, reader)
        self.tally = Tally()
        self._deliver = deliver
        self._over = anyio.Event()

    def settle(self, outcome: ContactOutcome) -> None:
        """Deliver it."""
        self._deliver((outcome,))

    def revise(self, index: int, revised: Revised) -> None:
        """Replace what the caller has not taken yet."""
        self._ready.revise(index, revised)

    def start(self, group: TaskGroup) -> None:
        """Start nothing."""

    def end(self) -> None:
        """Let `run` end."""
        self._over.set()

    async def run(self) -> None:
        """Wait for the end: every outcome is delivered as it comes."""
        await self._over.wait()

    async def close(self, state: State, suspects: Suspects) -> None:
        """Keep nothing."""


@attrs.frozen
class Keeping:
    """How to keep a journal.

    Attributes:
        journal: Where.
        identity: Of what.
        resume: Whether to go on with a journal that is there.
        spool: Whether to keep the input too, before the first row is sent.
        repeats: What to do with an e-mail that comes again.
        earlier: With `unknown` every row without an outcome counts as possibly sent.
    """

    journal: Journal
    identity: Identity
    resume: bool
    spool: bool
    repeats: Repeats
    earlier: Earlier


@attrs.frozen
class Book:
    """A journal that is open.

    Attributes:
        keeping: How it is kept.
        writer: Writes it.
        scribe: Runs the writer.
    """

    keeping: Keeping
    writer: Writer
    scribe: Scribe


class Recorded:
    """A journal is kept: rows are marked in it before they are sent, and outcomes committed before they are delivered.

    Args:
        book: The journal, open.
        source: Where rows come from.
        reader: Reads them.
        deliver: Takes outcomes that are committed.
        size: Returns how many rows a new window may have.
    """

    resumable = True
    backlog = BACKLOG

    def __init__(
        self,
        book: Book,
        source: Source,
        reader: Reader,
        deliver: Deliver,
        size: Callable[[], int],
    ) -> None:
        keeping, writer, scribe = book.keeping, book.writer, book.scribe
        self._writer, self._scribe = writer, scribe
        self._recorder = Recorder(writer, scribe, deliver)
        self._ahead = None if source.ready else Ahead(source, LARGEST)
        rows: Pulled = self._ahead or source
        if (keeping.spool or keeping.repeats in WHOLE_INPUT) and not writer.finished:
            rows = Spooled(rows, reader, writer, scribe, keeping.repeats)
        self._marked = Marked(rows, reader, writer, scribe, size)
        self.intake: Intake = self._marked
        self.tally: Tally = writer.totals()
        self._broken = self._closed = False

    def settle(self, outcome: ContactOutcome) -> None:
        """Take it for the next commit."""
        self._recorder.add(outcome)

    def revise(self, index: int, revised: Revised) -> None:
        """Replace what is not being committed yet."""
        self._recorder.revise(index, revised)

    def start(self, group: TaskGroup) -> None:
        """Start to fill windows."""
        group.start_soon(self._marked.run)
        if self._ahead is not None:
            group.start_soon(self._ahead.run)

    def end(self) -> None:
        """Let the next commit be the last."""
        self._recorder.end()

    async def run(self) -> None:
        """Commit and deliver until the last outcome."""
        try:
            await self._recorder.run()
        except JournalError:
            self._broken = True
            raise

    async def close(self, state: State, suspects: Suspects) -> None:
        """Commit what is left, then how the run ended, and let go of the journal.

        The end is recorded only after every answered outcome is. Otherwise the journal keeps saying `running`, so that whatever
        it lacks counts as possibly sent.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if not self._broken:
                await self._recorder.flush()
                await self._scribe.do(self._writer.end, state, suspects)
        finally:
            try:
                await self._scribe.do(self._writer.close)
            finally:
                self._writer.close()  # does nothing, unless the event loop itself is ending


async def opened(keeping: Keeping) -> Book:
    """Open the journal.

    Raises:
        InvalidRequest: It is another run's, another process has it, or it is there and was not to be resumed.
        JournalError: It cannot be read or written.
    """
    scribe = keeping.journal.scribe()
    writers: list[Writer] = []

    def open_writer() -> None:
        writers.append(keeping.journal.writer(keeping.identity, resume=keeping.resume, earlier=keeping.earlier))

    try:
        await scribe.do(open_writer)
    except BaseException:
        for writer in writers:  # asyncio's own Task.cancel may strike although it was opened
            writer.close()
        raise
    return Book(keeping, writers[0], scribe)
