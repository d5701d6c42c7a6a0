"""A journal, a writer and a transport that kill their own process at a given point."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs
from support.kill_points import IN_FLIGHT, KILL, Point

from outreach_async.bulk.journal import Identity, Journal, JournalWriter, ObjectJournal
from outreach_async.bulk.journal.identity import Earlier, MarkedWindow
from outreach_async.bulk.journal.object_journal import ObjectWriter
from outreach_async.bulk.journal.objects import Objects
from outreach_async.bulk.journal.writer import DatabaseWriter, FileWriter
from outreach_async.bulk.outcomes import ContactOutcome
from outreach_async.bulk.rows import NO_ROWS, PossiblySent
from outreach_async.transport.wire import Progress, Request, Response, Transport

_LINGER: Final = 0.05
"""Seconds that an outcome waits in an object journal: with the default of 1, most runs would end before their first record."""


class Doom:
    """Where this process dies.

    Args:
        point: The point; `None` for a process that lives.
        passing: At which passing of it, from 1.
    """

    def __init__(self, point: Point | None, passing: int = 1) -> None:
        self._point = point
        self._left = passing

    def strikes(self, *points: Point) -> bool:
        """Record that one of these points is passed; return whether to die there."""
        if self._point not in points:
            return False
        self._left -= 1
        return self._left == 0

    def passes(self, point: Point) -> None:
        """Die if the point is reached for the given time."""
        if self.strikes(point):
            os.kill(os.getpid(), signal.SIGKILL)

    def header(self) -> dict[str, str]:
        """Say that a request is sent; return what to add to it."""
        if self._point is None or not self.strikes(*IN_FLIGHT):
            return {}
        return {KILL: f"{os.getpid()} {self._point.name}"}


class DoomedCalls(DatabaseWriter):
    """A journal's writer that dies at its points, between the last statement of a transaction and its commit, too.

    At such a commit, the object of an object journal has just been created.
    """

    doom: ClassVar[Doom]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._within: Point | None = None
        self._database._db.set_trace_callback(self._trace)

    def _trace(self, statement: str) -> None:
        """Handle a statement that is about to be executed."""
        if statement == "COMMIT" and self._within is not None:
            self.doom.passes(self._within)
        if statement.startswith("PRAGMA wal_checkpoint") and self._within is Point.IN_MARK:
            self.doom.passes(Point.MOVING)

    @contextmanager
    def _committing(self, before: Point | None, within: Point, after: Point) -> Iterator[None]:
        if before is not None:
            self.doom.passes(before)
        self._within = within
        try:
            yield
        finally:
            self._within = None
        self.doom.passes(after)

    def start(self, earlier: Earlier, damage: Mapping[str, Any] | None = None) -> None:
        if self.finished:
            super().start(earlier, damage)
            return
        with self._committing(None, Point.IN_OPENING, Point.OPENED):
            super().start(earlier, damage)

    def mark(self, window: MarkedWindow) -> None:
        if window.first < self.hwm:  # it was marked before and is only checked
            super().mark(window)
            return
        with self._committing(Point.MARKING, Point.IN_MARK, Point.MARKED):
            self._mark(window)

    def _mark(self, window: MarkedWindow) -> None:
        super().mark(window)

    def record(self, outcomes: Sequence[ContactOutcome]) -> None:
        with self._committing(Point.RECORDING, Point.IN_RECORD, Point.RECORDED):
            super().record(outcomes)

    def end(self, state: str, possibly_sent: PossiblySent = NO_ROWS) -> None:
        with self._committing(Point.ENDING, Point.IN_END, Point.ENDED):
            super().end(state, possibly_sent)

    def spool(self, rows: Sequence[tuple[int, str, bytes]]) -> None:
        with self._committing(None, Point.SPOOLING, Point.SPOOLED):
            super().spool(rows)

    def end_spool(self, rows: int) -> None:
        with self._committing(None, Point.SPOOLING, Point.SPOOLED):
            super().end_spool(rows)


class DoomedWriter(DoomedCalls, FileWriter):
    """The doomed writer of a file."""

    @staticmethod
    def _link(draft: str, path: str) -> None:
        DoomedCalls.doom.passes(Point.CREATING)
        os.link(draft, path)
        DoomedCalls.doom.passes(Point.CREATED)


class DoomedObjectWriter(DoomedCalls, ObjectWriter):
    """The doomed writer of objects."""


class DoomedObjects:
    """Objects whose process dies around the creation of the first one.

    Args:
        inner: The objects.
        doom: Where.
    """

    def __init__(self, inner: Objects, doom: Doom) -> None:
        self.read, self.names = inner.read, inner.names
        self._inner = inner
        self._doom = doom

    def create(self, name: str, content: bytes) -> bool:
        """Create an object."""
        first = not int(name.rpartition("-")[2])
        if first:
            self._doom.passes(Point.CREATING)
        created = self._inner.create(name, content)
        if first:
            self._doom.passes(Point.CREATED)
        return created


class Pretender(DoomedWriter):
    """A writer that only pretends to mark: a window reaches the disk no sooner than the first outcome of it, or of a later one.

    It is what a journal of outcomes alone would know: a row of which nothing is recorded passes for one that was never sent.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._held: list[MarkedWindow] = []

    def _mark(self, window: MarkedWindow) -> None:
        self._held.append(window)
        self.hwm = window.end

    def record(self, outcomes: Sequence[ContactOutcome]) -> None:
        last = max(outcome.index for outcome in outcomes)
        while self._held and self._held[0].first <= last:
            self._write(self._held.pop(0))
        super().record(outcomes)

    def _write(self, window: MarkedWindow) -> None:
        pretended, self.hwm = self.hwm, window.first
        super()._mark(window)
        self.hwm = pretended


class DoomedJournal(Journal):
    """A journal whose run dies.

    Args:
        path: The file.
        doom: Where.
        resumed: Whether an earlier process began it.
        pretend: Whether to leave out what the mark is for.
    """

    def __init__(self, path: Path, doom: Doom, *, resumed: bool, pretend: bool) -> None:
        super().__init__(path)
        self._doom = doom
        self._resumed = resumed
        self._kind: type[DoomedWriter] = Pretender if pretend else DoomedWriter

    def writer(self, identity: Identity, *, resume: bool, **options: Any) -> JournalWriter:
        """Open it for a run."""
        if self._resumed:
            self._doom.passes(Point.REOPENING)
        DoomedCalls.doom = self._doom  # a process is one run's
        return self._kind.open(self.path, identity, resume=resume, **options)


class DoomedObjectJournal(ObjectJournal):
    """An object journal whose run dies.

    Args:
        url: The URL.
        doom: Where.
        resumed: Whether an earlier process began it.
    """

    def __init__(self, url: str, doom: Doom, *, resumed: bool) -> None:
        super().__init__(url, linger=_LINGER)
        self._doom = doom
        self._resumed = resumed

    def writer(self, identity: Identity, *, resume: bool, **options: Any) -> JournalWriter:
        """Open it for a run."""
        if self._resumed:
            self._doom.passes(Point.REOPENING)
        DoomedCalls.doom = self._doom
        objects = DoomedObjects(self.objects, self._doom)
        return DoomedObjectWriter.open(objects, self.url, identity, resume=resume, **options)


class DoomedTransport:
    """A transport around another that dies when an answer is there, or tells the service to kill.

    Args:
        inner: The other.
        doom: Where to die.
        headers: What to add to every request.
    """

    def __init__(self, inner: Transport, doom: Doom, headers: Mapping[str, str]) -> None:
        self._inner = inner
        self._doom = doom
        self._headers = headers

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Send the request."""
        headers = {**request.headers, **self._headers, **self._doom.header()}
        response = await self._inner.send(attrs.evolve(request, headers=headers), progress)
        self._doom.passes(Point.ANSWERED)
        return response

    async def aclose(self) -> None:
        """Close the other."""
        await self._inner.aclose()
