"""Reads a journal: during its run, after a kill, from any process. No file is created or changed."""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from outreach_async.bulk.journal import totals
from outreach_async.bulk.journal.integrity import events, facts, require_structure, require_windows
from outreach_async.bulk.journal.peeking import asked
from outreach_async.bulk.journal.records import as_text, checksum, require, unpacked
from outreach_async.bulk.journal.values import Earlier, Identity, JournalReport
from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.scribe import Scribe
from outreach_async.wholefiles import write_whole

if TYPE_CHECKING:
    from outreach_async.bulk.journal.writer import Writer  # it imports this module

_PAGE: Final = 1_000
"""Rows per query: a long query would keep the run from clearing its log."""

_PAGES: Final = (
    "FROM (SELECT * FROM outcome WHERE seq >= ? ORDER BY seq LIMIT ?) AS page LEFT JOIN error ON error.digest = page.error"
)
_STORED: Final = "page.seq, page.status, page.id, page.attempts, page.possible, page.error, page.repeats, page.crc, error.text"
_OUTCOMES: Final = f"SELECT json_group_array(json_array({_STORED})) {_PAGES}"
_SPOOLED: Final = f"""
    SELECT json_group_array(json_array({_STORED}, spool.key, spool.payload, spool.crc)) {_PAGES}
    LEFT JOIN spool ON spool.seq = page.seq
"""


class Journal:
    """The journal of a bulk run. It can be read at any time.

    Args:
        path: Path of the file.
        source: Name of a run's input, such as the path of a file; reports show it.
        fingerprint: Fingerprint of a run's whole input, such as a file's digest; a run is not resumed with another one.
        mapping: Field codes by column name, if the input has columns; a run is not resumed with another code for one of them.
        inline: Write on the event loop's own thread. Virtual time needs this, because its clock runs ahead of threads.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], journal=Journal("run.db", source="list of May"))
        print(Journal("run.db").report().source)  # -> list of May
        ```
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        source: str | None = None,
        fingerprint: str | None = None,
        mapping: Mapping[str, str] | None = None,
        inline: bool = False,
    ) -> None:
        self.path = Path(path)
        self.source = source
        self.fingerprint = fingerprint
        self.mapping = mapping
        self.inline = inline

    def writer(self, identity: Identity, *, resume: bool, earlier: Earlier = "known") -> Writer:
        """Open the journal for a run; see `Writer.open`."""
        from outreach_async.bulk.journal.writer import Writer

        return Writer.open(self, identity, resume=resume, earlier=earlier)

    def scribe(self) -> Scribe:
        """Return the scribe that runs the writer's calls."""
        return Scribe(inline=self.inline)

    def __repr__(self) -> str:
        return f"Journal({str(self.path)!r})"

    def outcomes(self) -> Iterator[ContactOutcome]:
        """Iterate over the recorded outcomes, by index, in bounded memory.

        An outcome's `contact` is the spooled mapping, or `None` if the rows were not spooled. Its error has the original class,
        message, status and attempts; headers and body are not recorded.

        Raises:
            InvalidRequest: There is no journal.
            JournalError: The journal is damaged or cannot be read.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}, {"email": ""}], journal="run.db")
            print([(outcome.index, outcome.status.value) for outcome in Journal("run.db").outcomes()])
            # -> [(0, 'added'), (1, 'rejected')]
            ```
        """
        first = 0
        while page := asked(self.path, partial(_outcomes, first=first)):
            yield from page
            first = page[-1].index + 1

    def events(self) -> Iterator[tuple[float, str, dict[str, Any]]]:
        """Iterate over the events of the run as (time, kind, details); the time is Unix time by the writer's clock.

        Raises:
            InvalidRequest: There is no journal.
            JournalError: The journal is damaged or cannot be read.

        Example:
            ```python
            rows = [{"email": "ann@company.example"}]
            async with client.contacts.create_many(rows, journal="run.db"):
                pass  # left before its end
            await client.contacts.create_many(rows, journal="run.db", resume=True)
            print([(kind, details) for at, kind, details in Journal("run.db").events()])
            # -> [('resumed', {'after': 'interrupted'})]
            ```
        """
        yield from asked(self.path, lambda db: events(db, facts(db)["events"]))

    def report(self) -> JournalReport:
        """Return the report of the run. It is stored with the outcomes, so this does not count them.

        Raises:
            InvalidRequest: There is no journal.
            JournalError: The journal is damaged or cannot be read.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            report = Journal("run.db").report()
            print(report.state, report.rows, report.possibly_sent)  # -> finished 1 0
            ```
        """
        return asked(self.path, _report)

    def write_report(self, path: str | os.PathLike[str]) -> None:
        """Write the report as JSON to a file. The file is replaced atomically.

        Raises:
            InvalidRequest: There is no journal.
            JournalError: The journal is damaged or cannot be read.
            OSError: The file cannot be written.

        Example:
            ```python
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            Journal("run.db").write_report("report.json")
            ```
        """
        write_whole(path, msgspec.json.format(as_text(self.report().to_dict()), indent=2) + "\n")


def _outcomes(db: sqlite3.Connection, first: int) -> list[ContactOutcome]:
    """Return a page of outcomes. Before the first page, check that no outcome is missing."""
    known = facts(db)
    if first == 0:
        require_structure(db, totals.read(known["totals"]).rows)
    spooled = known["spooled"] is not None
    (text,) = db.execute(_SPOOLED if spooled else _OUTCOMES, (first, _PAGE)).fetchone()
    rows = sorted(msgspec.json.decode(text), key=itemgetter(0))
    return [_spooled(row) if spooled else unpacked(row[:-1], row[-1], None) for row in rows]


def _spooled(row: list[Any]) -> ContactOutcome:
    *stored, error, key, payload, crc = row
    require(checksum([row[0], key, payload]) == crc, f"checksum mismatch in spooled row {row[0]}")
    contact = msgspec.json.decode(payload)
    return unpacked(stored, error, contact if isinstance(contact, dict) else None)


def _report(db: sqlite3.Connection) -> JournalReport:
    known = facts(db)
    figures = totals.read(known["totals"])
    return JournalReport(
        state=known["state"],
        rows=figures.rows,
        outcomes=figures.outcomes,
        uncertain=figures.uncertain,
        repeats=figures.repeats,
        seconds=figures.seconds,
        marked=known["hwm"],
        possibly_sent=known["hwm"] - figures.rows,
        windows=require_windows(db, known["hwm"]),
        events=dict(sorted(Counter(kind for _, kind, _ in events(db, known["events"])).items())),
        workspace=known["identity"]["workspace"],
        source=known["identity"]["source"],
        fingerprint=known["identity"]["fingerprint"],
        mapping=known["identity"]["mapping"],
    )
