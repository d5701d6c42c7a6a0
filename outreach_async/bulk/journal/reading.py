"""A journal read: beside its run, after a kill, from anywhere. No file is made and none is changed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from outreach_async.bulk.journal import totals
from outreach_async.bulk.journal.peeking import asked, unreadable
from outreach_async.bulk.journal.records import as_text, unpacked
from outreach_async.bulk.journal.values import Identity, JournalReport
from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.scribe import Scribe
from outreach_async.errors import InvalidRequest
from outreach_async.wholefiles import write_whole

if TYPE_CHECKING:
    from outreach_async.bulk.journal.writer import Writer  # which reads, too

T = TypeVar("T")

_PAGE: Final = 1_000
"""Rows of one reading: a long one would keep the run from clearing its log."""

_OUTCOMES: Final = """
    SELECT json_group_array(json_array(page.seq, page.status, page.id, page.attempts, page.possible, page.error, page.repeats,
        error.text, spool.payload))
    FROM (SELECT * FROM outcome WHERE seq >= ? ORDER BY seq LIMIT ?) AS page
    LEFT JOIN error ON error.digest = page.error LEFT JOIN spool ON spool.seq = page.seq
"""
_NONSENSE: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, msgspec.MsgspecError)
_EVENTS: Final = """
    SELECT json_group_array(json_array(number, at, kind, json(data)))
    FROM (SELECT * FROM event WHERE number > ? ORDER BY number LIMIT ?)
"""


class Journal:
    """The journal of a bulk run, to be read at any time.

    Args:
        path: The file.
        source: What the input of a run is called, such as a file's path: a report says it.
        fingerprint: Of a run's whole input, where known, such as a file's digest: with another one it is not resumed.
        inline: Let a run that writes it do so on the event loop's own thread: for virtual clocks, which run ahead of threads.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], journal=Journal("run.db", source="list of May"))
        print(Journal("run.db").report().source)  # -> list of May
        ```
    """

    def __init__(
        self, path: str | os.PathLike[str], *, source: str | None = None, fingerprint: str | None = None, inline: bool = False
    ) -> None:
        self.path = Path(path)
        self.source = source
        self.fingerprint = fingerprint
        self.inline = inline

    def writer(self, identity: Identity, *, resume: bool) -> Writer:
        """Open it for a run, as `Writer.open` does."""
        from outreach_async.bulk.journal.writer import Writer

        return Writer.open(self, identity, resume=resume)

    def scribe(self) -> Scribe:
        """Return what runs the writer's calls for a run."""
        return Scribe(inline=self.inline)

    def __repr__(self) -> str:
        return f"Journal({str(self.path)!r})"

    def outcomes(self) -> Iterator[ContactOutcome]:
        """Iterate over what is recorded, by index, in bounded memory.

        An outcome's `contact` is the mapping that was spooled, else `None`. Its error has the class, message, status and attempts
        that it had; headers and body are not kept.

        Raises:
            InvalidRequest: There is no journal.
            JournalError: It cannot be read.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}, {"email": ""}], journal="run.db")
            print([(outcome.index, outcome.status.value) for outcome in Journal("run.db").outcomes()])
            # -> [(0, 'added'), (1, 'rejected')]
            ```
        """
        first = 0
        while page := self._page(_OUTCOMES, first, _outcome):
            yield from page
            first = page[-1].index + 1

    def events(self) -> Iterator[tuple[float, str, dict[str, Any]]]:
        """Iterate over what happened to the run: when (by the writer's clock), kind and particulars.

        Raises:
            InvalidRequest: There is no journal.
            JournalError: It cannot be read.

        Example:
            ```python
            rows = [{"email": "ann@company.example"}]
            async with client.contacts.create_many(rows, journal="run.db"):
                pass  # left before its end
            await client.contacts.create_many(rows, journal="run.db", resume=True)
            print([(kind, particulars) for at, kind, particulars in Journal("run.db").events()])
            # -> [('resumed', {'after': 'interrupted'})]
            ```
        """
        last = 0
        while page := self._page(_EVENTS, last, tuple):
            yield from ((at, kind, data) for _, at, kind, data in page)
            last = page[-1][0]

    def report(self) -> JournalReport:
        """Return the figures, which are kept beside the outcomes: nothing is counted.

        Raises:
            InvalidRequest: There is no journal.
            JournalError: It cannot be read.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            report = Journal("run.db").report()
            print(report.state, report.rows, report.possibly_sent)  # -> finished 1 0
            ```
        """
        with self._sense():
            return asked(self.path, _report)

    def write_report(self, path: str | os.PathLike[str]) -> None:
        """Write the figures as JSON into a file, which is replaced as a whole or not at all.

        Raises:
            InvalidRequest: There is no journal.
            JournalError: It cannot be read.
            OSError: The file cannot be written.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            Journal("run.db").write_report("report.json")
            ```
        """
        write_whole(path, msgspec.json.format(as_text(self.report().to_dict()), indent=2) + "\n")

    def _page(self, query: str, start: int, parse: Callable[[list[Any]], T]) -> list[T]:
        with self._sense():
            (text,) = asked(self.path, lambda db: db.execute(query, (start, _PAGE)).fetchone())
            return [parse(row) for row in sorted(msgspec.json.decode(text), key=itemgetter(0))]

    @contextmanager
    def _sense(self) -> Iterator[None]:
        """Take what makes no sense for damage: no writer of ours wrote it so."""
        try:
            yield
        except InvalidRequest:
            raise
        except _NONSENSE as error:
            raise unreadable(self.path, error) from error


def _outcome(row: list[Any]) -> ContactOutcome:
    *stored, error, payload = row
    contact = None if payload is None else msgspec.json.decode(payload)
    return unpacked(stored, error, contact if isinstance(contact, dict) else None)


def _report(db: sqlite3.Connection) -> JournalReport:
    meta = {name: msgspec.json.decode(value) for name, value in db.execute("SELECT name, value FROM meta")}
    figures = totals.read(meta["totals"])
    return JournalReport(
        state=meta["state"],
        rows=figures.rows,
        outcomes=figures.outcomes,
        uncertain=figures.uncertain,
        repeats=figures.repeats,
        seconds=figures.seconds,
        marked=meta["hwm"],
        possibly_sent=meta["hwm"] - figures.rows,
        windows=db.execute("SELECT count(*) FROM window").fetchone()[0],
        events=dict(db.execute("SELECT kind, count(*) FROM event GROUP BY kind ORDER BY kind").fetchall()),
        workspace=meta["identity"]["workspace"],
        source=meta["identity"]["source"],
        fingerprint=meta["identity"]["fingerprint"],
    )
