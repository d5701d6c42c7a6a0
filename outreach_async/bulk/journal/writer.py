"""The one writer of a run's journal. Every method is synchronous: what it did is on the disk when it returns."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex
from typing import Any, Final, Self

import msgspec

from outreach_async.bulk.journal import totals
from outreach_async.bulk.journal.holding import Hold
from outreach_async.bulk.journal.identity import facts, require_same
from outreach_async.bulk.journal.making import make
from outreach_async.bulk.journal.opening import opened
from outreach_async.bulk.journal.reading import Journal
from outreach_async.bulk.journal.records import as_text, batch, checksum
from outreach_async.bulk.journal.spool import Spool, SpooledRow
from outreach_async.bulk.journal.store import Store
from outreach_async.bulk.journal.values import ENDS, Earlier, Identity, Window
from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.repeats import Repeats
from outreach_async.bulk.report import Tally
from outreach_async.bulk.suspects import NONE, Suspects
from outreach_async.checks import shown
from outreach_async.errors import InvalidRequest

_ADD_ERRORS: Final = """
    INSERT OR IGNORE INTO error (digest, text)
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)
"""
# A plain INSERT: a second outcome of a row fails.
_ADD_OUTCOMES: Final = """
    INSERT INTO outcome (seq, status, id, attempts, possible, error, repeats, crc)
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
        json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]'), json_extract(value, '$[7]')
    FROM json_each(?)
"""
_DONE: Final = "SELECT json_group_array(seq) FROM outcome WHERE seq >= ? AND seq < ?"
_ADD_WINDOW: Final = "INSERT INTO window (first, rows, digest, crc) VALUES (?, ?, ?, ?)"
_ADD_EVENT: Final = "INSERT INTO event (number, at, kind, data, crc) VALUES (?, ?, ?, ?, ?)"
_ALL: Final = Suspects(((0, 2**63 - 1),))


class Writer:
    """A journal being written. Its methods may be called from any thread, one at a time.

    After a JournalError nothing more is written: every further call raises it again. What was written before stays true.

    Attributes:
        resumed: Whether an earlier process began the run.
        state: `running`, or how the run ended.
        hwm: The high-water mark: rows below it may be sent. None beyond it was, unless nothing is known of earlier runs.
        suspects: Rows without an outcome that an earlier process may have sent.
    """

    def __init__(
        self, hold: Hold, store: Store, identity: Identity, meta: Mapping[str, Any], wall: Callable[[], float], *, resumed: bool
    ) -> None:
        self._hold = hold
        self._store = store
        self._identity = identity
        self._wall = wall
        self._opened = wall()
        self._closed = False
        self._totals = totals.read(meta["totals"])
        self._before = self._totals.seconds
        self._spool = Spool(store, meta["spooled"])
        self._events: int = meta["events"]
        self._fingerprint: str | None = meta["identity"]["fingerprint"]
        self.resumed = resumed
        self.state: str = meta["state"]
        self.hwm: int = meta["hwm"]
        self.suspects = _suspects(meta)

    @classmethod
    def open(
        cls,
        journal: Journal,
        identity: Identity,
        *,
        resume: bool,
        earlier: Earlier = "known",
        wall: Callable[[], float] = time.time,
    ) -> Self:
        """Begin a journal, or go on with one.

        Args:
            journal: Where it is.
            identity: What it is of.
            resume: Whether to go on with one that is there; one that is not there is begun.
            earlier: With `unknown` every row without an outcome counts as possibly sent, and a damaged journal is set aside.
            wall: Returns the time in seconds; of it the journal keeps durations, and when an event was.

        Raises:
            InvalidRequest: It is there although nothing is to be resumed, is no journal, is of another run, is being written by
                another runner, or stands where locks do not hold.
            JournalError: It cannot be read or written, or is damaged.
        """
        found = opened(os.fspath(journal.path), _meta(identity, earlier), resume=resume, earlier=earlier, make=cls._make)
        try:
            require_same(found.path, identity, found.facts["identity"])
            store = Store(found.path, found.facts["log"])
            try:
                writer = cls(found.hold, store, identity, found.facts, wall, resumed=not found.made)
                writer._begin(earlier, found.damage)
            except BaseException:
                store.close()
                raise
        except BaseException:
            found.hold.release()
            raise
        return writer

    @staticmethod
    def _make(path: str, facts: Mapping[str, Any]) -> None:
        make(path, facts)

    def _begin(self, earlier: Earlier, damage: Mapping[str, Any] | None) -> None:
        if self.finished:
            return
        if earlier == "unknown":
            self.suspects = _ALL
        self._go_on(earlier)
        if damage is not None:
            self.note("damaged", damage)

    def _go_on(self, earlier: Earlier) -> None:
        """Let the file itself say `running` before anything is sent, so that whatever a kill leaves undone is suspect."""
        with self._store.begins() as db:
            if self.resumed:
                self._add_event(db, "resumed", {"after": self.state})
                self._store.set(db, "state", "running")
            if earlier == "unknown":
                self._store.set(db, "earlier", earlier)
        self.state = "running"

    @property
    def finished(self) -> bool:
        """Whether every row of the input has its outcome."""
        return self.state == "finished"

    @property
    def settled(self) -> bool:
        """Whether the run is finished, and no row given now need be compared with those that it was of.

        The spool holds the rows themselves; and two fingerprints, which were compared, tell as much as the rows.
        """
        return self.finished and (self.spooled is not None or None not in (self._fingerprint, self._identity.fingerprint))

    @property
    def spooled(self) -> int | None:
        """Rows of the whole input; `None` until it is spooled."""
        return self._spool.total

    def totals(self) -> Tally:
        """Return the tally of what is recorded, the caller's to count on with."""
        return Tally(self._totals)

    def window_at(self, first: int) -> Window | None:
        """Return the window that was marked from this row on."""
        with self._store.reads() as db:
            found = db.execute("SELECT first, rows, digest FROM window WHERE first = ?", (first,)).fetchone()
        return None if found is None else Window(*found)

    def mark(self, window: Window) -> None:
        """Mark rows as about to be sent; again for a window that is marked already, to see that it is the same.

        The mark is in the file itself when this returns: it outlives the log.

        Raises:
            InvalidRequest: It was marked with other rows, or does not follow the one before.
            JournalError: It cannot be written, or a reader keeps it from the file for too long.
        """
        if window.rows < 1 or window.first > self.hwm:
            raise InvalidRequest(
                f"journal: expected rows from {self.hwm} on, got {window.rows} from {window.first}; mark in order"
            )
        if window.first < self.hwm:
            if self.window_at(window.first) != window:
                raise InvalidRequest(
                    f"rows: the input changed: rows {window.first} to {window.end - 1} are not those that the journal"
                    f" {self._store.path} is of; resume with the same input, or name a new journal"
                )
            return
        with self._store.changes() as db:
            columns = (window.first, window.rows, window.digest)
            db.execute(_ADD_WINDOW, (*columns, checksum(columns)))
            self._store.set(db, "hwm", window.end)
        self._store.move_log()
        self.hwm = window.end

    def done(self, first: int, rows: int) -> frozenset[int]:
        """Return which of these rows have their outcome."""
        with self._store.reads() as db:
            (found,) = db.execute(_DONE, (first, first + rows)).fetchone()
        return frozenset(msgspec.json.decode(found))

    def record(self, outcomes: Sequence[ContactOutcome]) -> None:
        """Record outcomes, all or none.

        Raises:
            InvalidRequest: A row was not marked.
            JournalError: A row has its outcome already, or the journal cannot be written.
        """
        if beyond := [outcome.index for outcome in outcomes if not 0 <= outcome.index < self.hwm]:
            raise InvalidRequest(f"journal: expected rows below {self.hwm}, got row {beyond[0]}; mark a row before it is sent")
        stored, figures = batch(outcomes), totals.plus(self._totals, outcomes, self._seconds())
        with self._store.changes() as db:
            if stored.errors is not None:
                db.execute(_ADD_ERRORS, (stored.errors,))
            db.execute(_ADD_OUTCOMES, (stored.rows,))
            self._store.set(db, "totals", totals.kept(figures))
        self._totals = figures

    def note(self, kind: str, data: Mapping[str, Any]) -> None:
        """Keep an event.

        Args:
            kind: One of few words: a report counts by it.
            data: JSON values.
        """
        with self._store.changes() as db:
            self._add_event(db, kind, data)

    def _add_event(self, db: sqlite3.Connection, kind: str, data: Mapping[str, Any]) -> None:
        columns = (self._events + 1, float(self._wall()), kind, as_text(data))
        db.execute(_ADD_EVENT, (*columns, checksum(columns)))
        self._store.set(db, "events", self._events + 1)
        self._events += 1

    def end(self, state: str, suspects: Suspects = NONE) -> None:
        """Keep how the run ended; a finished run stays so.

        Args:
            state: `finished`, `suspended`, `stopped` or `interrupted`.
            suspects: Rows without an outcome that may have been sent.

        Raises:
            InvalidRequest: No such state, or finished although rows that were marked have no outcome.
        """
        if state not in ENDS:
            raise InvalidRequest(f"state: expected one of {', '.join(ENDS)}, got {shown(state)}; pass one of them")
        if self.finished:
            return
        if state == "finished" and (left := self.hwm - self._totals.rows):
            raise InvalidRequest(f"journal: expected an outcome for every row, got none for {left}; record them before the end")
        figures = totals.plus(self._totals, (), self._seconds())
        with self._store.changes() as db:
            for name, value in (("state", state), ("suspects", suspects.ranges), ("totals", totals.kept(figures))):
                self._store.set(db, name, value)
        self.state, self._totals = state, figures

    def _seconds(self) -> float:
        return self._before + max(0.0, self._wall() - self._opened)

    def spool(self, rows: Sequence[tuple[int, str, bytes]]) -> None:
        """Keep rows of the input: index, exact e-mail or an empty text for a row that repeats no other, and payload as JSON.

        Raises:
            InvalidRequest: The spool is complete.
        """
        self._spool.add(rows)

    def end_spool(self, rows: int) -> None:
        """Note that the whole input, of so many rows, is spooled.

        Raises:
            InvalidRequest: Rows are missing.
        """
        self._spool.end(rows)

    def spooled_rows(self, first: int, rows: int, policy: Repeats) -> list[SpooledRow]:
        """Return rows of a complete spool.

        Args:
            first: Index of the first.
            rows: How many at most.
            policy: `first` and `last` send one row of each e-mail, `coalesce` the first with the others merged into it, as the
                run's duplicates option would have merged them; the others send every row.
        """
        return self._spool.read(first, rows, policy, self._identity.options.get("duplicates", "skip"))

    def close(self) -> None:
        """Let go of the journal; closing it again does nothing."""
        if not self._closed:
            self._closed = True
            self._store.close()
            self._hold.release()


def _meta(identity: Identity, earlier: Earlier) -> dict[str, Any]:
    """Return what a new journal says of its run."""
    return {
        "identity": facts(identity),
        "earlier": earlier,
        "state": "running",
        "hwm": 0,
        "totals": totals.kept(Tally().report(0.0)),
        "suspects": [],
        "spooled": None,
        "events": 0,
        "log": {"run": token_hex(8), "open": False, "commits": 0},
    }


def _suspects(meta: Mapping[str, Any]) -> Suspects:
    if meta["earlier"] == "unknown":
        return _ALL
    return Suspects.of(ranges=[(0, meta["hwm"])] if meta["state"] == "running" else map(tuple, meta["suspects"]))
