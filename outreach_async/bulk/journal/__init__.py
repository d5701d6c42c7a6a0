"""The journal of a bulk run: one SQLite file that records what was sent, so that a killed run can be resumed.

A window of rows is marked (durably) before any of its rows is sent. Outcomes are recorded in batches (durably) before they are
returned. After a kill, a marked row without an outcome may therefore have been sent, and an unmarked row was not sent.
One `JournalWriter` holds the journal's lock during a run. Any number of `Journal` objects can read the file, even during the run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs
import msgspec

from outreach_async.atomic import atomic_write
from outreach_async.bulk.journal.identity import Earlier, Identity, JournalReport
from outreach_async.bulk.journal.protocol import JournalStore, JournalWriter
from outreach_async.bulk.journal.reader import read_events, read_metadata, read_page, read_report, read_snapshot
from outreach_async.bulk.journal.records import to_json
from outreach_async.bulk.journal.writer import FileWriter
from outreach_async.bulk.journal.writer_thread import WriterThread
from outreach_async.bulk.outcomes import ContactOutcome
from outreach_async.bulk.rows import Repeats

__all__ = [
    "Identity",
    "Journal",
    "JournalOptions",
    "JournalReport",
    "JournalStore",
    "JournalWriter",
    "OpenJournal",
    "open_journal",
]


def _to_path(path: str | os.PathLike[str]) -> Path:
    return Path(path)  # `Path` itself has no signature that tools could show


@attrs.define(eq=False, repr=False, slots=False)
class Journal:
    """The journal of a bulk run. It can be read at any time.

    Args:
        path: Path of the journal's SQLite file.
        source: Name of the run's input, such as the path of a file; reports show it.
        fingerprint: Fingerprint of the run's whole input, such as a file's digest; a different one is refused on resuming.
        mapping: Field codes by column name, if the input has columns; a different code for a column is refused on resuming.
        inline: Whether to write on the event loop's own thread. Virtual time needs this: its clock does not wait for threads.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], journal=Journal("run.db", source="list of May"))
        print(Journal("run.db").report().source)  # -> list of May
        ```
    """

    path: Path = attrs.field(converter=_to_path)
    source: str | None = attrs.field(default=None, kw_only=True)
    fingerprint: str | None = attrs.field(default=None, kw_only=True)
    mapping: Mapping[str, str] | None = attrs.field(default=None, kw_only=True)
    inline: bool = attrs.field(default=False, kw_only=True)
    linger: ClassVar[float] = 0.05
    backlog: ClassVar[int] = 4096

    def writer(self, identity: Identity, *, resume: bool, earlier: Earlier = "known") -> JournalWriter:
        """Open the journal for a run, and return its writer; see `JournalStore`."""
        return FileWriter.open(self.path, identity, resume=resume, earlier=earlier)

    def writer_thread(self) -> WriterThread:
        """Return a new `WriterThread`, which runs the calls of the journal's writer."""
        return WriterThread(inline=self.inline)

    def __repr__(self) -> str:
        return f"Journal({str(self.path)!r})"

    def outcomes(self) -> Iterator[ContactOutcome]:
        """Iterate over the recorded outcomes in the order of the rows. Memory use is bounded.

        An outcome's `contact` is the spooled mapping, or `None` if the rows were not spooled. Its `error` has the original
        class, message, status and attempts; headers and body are not recorded.

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
        while page := read_snapshot(self.path, partial(read_page, first=first)):
            yield from page
            first = page[-1].index + 1

    def events(self) -> Iterator[tuple[float, str, dict[str, Any]]]:
        """Iterate over the events of the run as (Unix time, kind, details). The time is that of the writer's clock.

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
        yield from read_snapshot(self.path, lambda db: read_events(db, read_metadata(db)["events"]))

    def report(self) -> JournalReport:
        """Return the report of the run. The counts are stored in the journal, so the outcomes are not read.

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
        return read_snapshot(self.path, read_report)

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
        atomic_write(path, msgspec.json.format(to_json(self.report().to_dict()), indent=2) + "\n")


@attrs.frozen
class JournalOptions:
    """The journal options of a run.

    Attributes:
        journal: The journal.
        identity: Identity of the run.
        resume: Whether to resume an existing journal.
        spool: Whether to store the whole input in the journal before the first row is sent.
        repeats: Policy for e-mails that occur more than once.
        earlier: `known`, or `unknown` to count every row without an outcome as possibly sent.
    """

    journal: JournalStore
    identity: Identity
    resume: bool
    spool: bool
    repeats: Repeats
    earlier: Earlier


@attrs.frozen
class OpenJournal:
    """A journal that is open for a run.

    Attributes:
        options: The journal options of the run.
        writer: The writer of the journal.
        thread: The thread that runs the writer's calls.
    """

    options: JournalOptions
    writer: JournalWriter
    thread: WriterThread


async def open_journal(options: JournalOptions) -> OpenJournal:
    """Open the journal of a run, in the writer's thread.

    Raises:
        InvalidRequest: The journal belongs to another run, is being written by another run, or exists although `resume` is
            false.
        JournalError: The journal is damaged, or cannot be read or written.
    """
    thread = options.journal.writer_thread()
    writers: list[JournalWriter] = []

    def open_writer() -> None:
        writers.append(options.journal.writer(options.identity, resume=options.resume, earlier=options.earlier))

    try:
        await thread.run(open_writer)
    except BaseException:
        for writer in writers:  # asyncio's own Task.cancel may arrive although the journal was opened
            writer.close()
        raise
    return OpenJournal(options, writers[0], thread)
