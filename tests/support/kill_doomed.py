"""Journals, writers and a transport that kill their own process at a given point."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs
from support.kill_points import IN_FLIGHT, KILL, Point

from outreach_async._files.objects import Objects
from outreach_async.bulk._outcomes import ContactOutcome
from outreach_async.bulk._rows import NO_ROWS, PossiblySent
from outreach_async.bulk.journal import Identity, Journal, JournalWriter, ObjectJournal
from outreach_async.bulk.journal._identity import Earlier, MarkedWindow
from outreach_async.bulk.journal._object_journal import ObjectWriter
from outreach_async.bulk.journal._writer import DatabaseWriter, FileWriter
from outreach_async.transport._wire import Progress, Request, Response, Transport

_LINGER: Final = 0.05
"""The `linger` of object journals, in seconds. With the default of 1, most runs would end before their first record."""


class Doom:
    """The point at which this process is killed."""

    def __init__(self, point: Point | None, passing: int = 1) -> None:
        self._point = point
        self._left = passing

    def strikes(self, *points: Point) -> bool:
        """Count a pass of one of these points, and return whether the process must be killed now."""
        if self._point not in points:
            return False
        self._left -= 1
        return self._left == 0

    def passes(self, point: Point) -> None:
        """Count a pass of a point, and kill this process if it must be killed now."""
        if self.strikes(point):
            os.kill(os.getpid(), signal.SIGKILL)

    def header(self) -> dict[str, str]:
        """Count a request that is about to be sent, and return the header fields to add to it."""
        if self._point is None or not self.strikes(*IN_FLIGHT):
            return {}
        return {KILL: f"{os.getpid()} {self._point.name}"}


class DoomedCalls(DatabaseWriter):
    """A base class of journal writers that kill their process before, during or after a commit."""

    # During a commit means between the last statement of a transaction and its `COMMIT`. At that point, an object journal has
    # just created the object.

    doom: ClassVar[Doom]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._within: Point | None = None
        self._database._db.set_trace_callback(self._trace)

    def _trace(self, statement: str) -> None:
        """Kill the process if it must be killed before this statement is executed."""
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
        if window.first < self.hwm:  # an earlier process marked this window; it is only checked
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
    """A writer of a journal file that kills its process at a point."""

    @staticmethod
    def _link(draft: str, path: str) -> None:
        DoomedCalls.doom.passes(Point.CREATING)
        os.link(draft, path)
        DoomedCalls.doom.passes(Point.CREATED)


class DoomedObjectWriter(DoomedCalls, ObjectWriter):
    """A writer of an object journal that kills its process at a point."""


class DoomedObjects:
    """A store of objects that kills its process before or after the creation of the first object."""

    def __init__(self, inner: Objects, doom: Doom) -> None:
        self.read, self.names = inner.read, inner.names
        self._inner = inner
        self._doom = doom

    def create(self, name: str, content: bytes, *, after: str | None = None) -> bool:
        """Create an object; return whether it was created."""
        first = not int(name.rpartition("-")[2])
        if first:
            self._doom.passes(Point.CREATING)
        created = self._inner.create(name, content, after=after)
        if first:
            self._doom.passes(Point.CREATED)
        return created


class Pretender(DoomedWriter):
    """A defective writer that marks a window only when an outcome of that window, or of a later window, is recorded."""

    # Its journal treats sent rows without a recorded outcome as never sent, like a journal that contains only outcomes.

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
    """A journal file whose writer kills the process at a point."""

    def __init__(self, path: Path, doom: Doom, *, resumed: bool, pretend: bool) -> None:
        super().__init__(path)
        self._doom = doom
        self._resumed = resumed
        self._kind: type[DoomedWriter] = Pretender if pretend else DoomedWriter

    def writer(self, identity: Identity, *, resume: bool, **options: Any) -> JournalWriter:
        """Open the journal for a run."""
        if self._resumed:
            self._doom.passes(Point.REOPENING)
        DoomedCalls.doom = self._doom  # each process executes only one run
        return self._kind.open(self.path, identity, resume=resume, **options)


class DoomedObjectJournal(ObjectJournal):
    """An object journal whose writer kills the process at a point."""

    def __init__(self, url: str, doom: Doom, *, resumed: bool) -> None:
        super().__init__(url, linger=_LINGER)
        self._doom = doom
        self._resumed = resumed

    def writer(self, identity: Identity, *, resume: bool, **options: Any) -> JournalWriter:
        """Open the journal for a run."""
        if self._resumed:
            self._doom.passes(Point.REOPENING)
        DoomedCalls.doom = self._doom
        objects = DoomedObjects(self.objects, self._doom)
        return DoomedObjectWriter.open(objects, self.url, identity, resume=resume, **options)


class DoomedTransport:
    """A transport that kills its process when a response has arrived, or requests that the service kills the process."""

    def __init__(self, inner: Transport, doom: Doom, headers: Mapping[str, str]) -> None:
        self._inner = inner
        self._doom = doom
        self._headers = headers

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Send a request with the additional header fields."""
        headers = {**request.headers, **self._headers, **self._doom.header()}
        response = await self._inner.send(attrs.evolve(request, headers=headers), progress)
        self._doom.passes(Point.ANSWERED)
        return response

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()
