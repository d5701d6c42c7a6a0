"""The journal of a bulk run: a record of what was sent, so that a killed run can be resumed.

A window of rows is marked (durably) before any of its rows is sent. Outcomes are recorded in batches (durably) before they are
returned. After a kill, a marked row without an outcome may therefore have been sent, and an unmarked row was not sent.
One `JournalWriter` writes a journal during a run. Anyone can read it with `Journal` or `ObjectJournal`, even during the run.

Files
-----
A `Journal` is one SQLite file on a local disk, which is locked during the run. Use it unless the machine may be lost.

Objects
-------
A journal on a disk is lost with its machine. If a lost run is repeated elsewhere without its journal, rows that it created are
reported as `skipped`, and nothing shows that this is wrong. Where machines may be lost, pass a URL, or an `ObjectJournal`, which
takes more options. The journal is then a log of objects, about 20 bytes per row (about 30 at ten rows a second), that any machine
can read and resume:

    s3://bucket/prefix     S3, or a service with its interface that supports conditional writes (If-None-Match)
    gs://bucket/prefix     Google Cloud Storage; untested
    az://container/prefix  Azure Blob Storage; untested
    file:///folder         a folder, which may be on a network file system with hard links
    memory://name          the memory of this process, for tests

All but `file://` need `pip install 'outreach_async[lake]'`. Credentials and endpoints come from the environment, such as
`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL` or `AZURE_STORAGE_ACCOUNT_NAME`; a URL that contains credentials is refused. Give each
journal a prefix of its own.

```python
import anyio
from pathlib import Path
from outreach_async import ObjectJournal, OutreachClient

url = Path("journal").absolute().as_uri()  # or "s3://bucket/imports/may"


async def main() -> None:
    rows = [{"email": f"user{number}@company.example"} for number in range(100)]
    async with OutreachClient() as client:
        async with client.contacts.create_many(rows, concurrency=4, journal=url) as outcomes:
            async for outcome in outcomes:
                outcomes.drain()
        await client.contacts.create_many(rows, journal=url, resume=True)  # on any machine
    report = ObjectJournal(url).report()
    print(report.state, "with", report.rows, "rows,", report.uncertain, "uncertain")
    # -> finished with 100 rows, 0 uncertain


anyio.run(main)
```

The rules for journals in files, in `outreach_async.bulk`, also apply to these, with some differences. Each write is a request
that you pay for, so an outcome waits up to one second for others to be written with it (`ObjectJournal(url, linger=...)`), and
reaches your loop only then. At most 1,000 rows (or `concurrency`, if that is higher) are in flight or answered and not yet
written; these are sent again after a crash.

There is no lock, because a lost machine cannot release one. Whoever resumes a run takes it over: the earlier process, if it still
runs, fails at its next write with JournalError, and sends nothing more. Until then it sends only rows that it had marked, which
the new process counts as possibly sent. If its last write started over 5 seconds ago, the earlier process must write before it
sends a request. So a process that was suspended for longer sends nothing when it continues, and a process whose writes take
longer sends nothing until they are faster. Resume a run only if its process is gone, or should end.

An object that is missing, torn, changed or from another journal raises JournalError. `earlier="unknown"` then starts a new
generation of objects beside the damaged ones, which are kept. The last object is an exception: nothing shows that it was deleted,
and rows that it marked may then be reported as `skipped` with certainty although this run created them. So let no rule of the
bucket delete objects of a run that has not finished.

Use `earlier="unknown"` with any kind of journal if rows of this input may have been sent by a run whose journal you do not have:
it was on a disk that is gone, its objects were deleted, or an older copy was restored. Without it, the new run takes contacts
that the lost run created for older ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import attrs

from outreach_async.bulk.journal.identity import Earlier, Identity, JournalReport
from outreach_async.bulk.journal.object_journal import ObjectJournal, translate_errors
from outreach_async.bulk.journal.objects import is_url, list_folders
from outreach_async.bulk.journal.protocol import JournalStore, JournalWriter, WriterThread
from outreach_async.bulk.journal.reader import JournalReader, RunQuery, read_snapshot
from outreach_async.bulk.journal.writer import FileWriter
from outreach_async.bulk.rows import Repeats
from outreach_async.errors import InvalidRequest

__all__ = [
    "Identity",
    "Journal",
    "JournalOptions",
    "JournalReader",
    "JournalReport",
    "JournalStore",
    "JournalWriter",
    "ObjectJournal",
    "OpenJournal",
    "open_journal",
]


def _to_path(path: str | os.PathLike[str]) -> Path:
    if is_url(path):
        raise InvalidRequest("journal: expected a path, got a URL; pass ObjectJournal(url)")
    return Path(path)  # `Path` itself has no signature that tools could show


@attrs.define(eq=False, repr=False, slots=False)
class Journal(JournalReader):
    """The journal of a bulk run. It can be read at any time.

    Args:
        path: Path of the journal's SQLite file.
        source: Name of the run's input, such as the path of a file; reports show it.
        fingerprint: Fingerprint of the run's whole input, such as a file's digest. The run cannot be resumed with another one.
        mapping: Field codes by column name, if the input has columns. The run cannot be resumed with another code for a column.
        inline: Whether to write on the event loop's own thread. A virtual clock requires this: it does not wait for threads.

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

    def exists(self) -> bool:
        """Return whether there is a file at the path.

        Example:
            ```python
            print(Journal("june.db").exists())  # -> False
            ```
        """
        return os.path.lexists(self.path)

    @contextmanager
    def _snapshot(self) -> Iterator[RunQuery]:
        yield partial(read_snapshot, self.path)


def journal_at(location: str | os.PathLike[str], **identity: Any) -> Journal | ObjectJournal:
    """Return the journal at a path or URL; `identity` may have the arguments `source`, `fingerprint` and `mapping`.

    Raises:
        InvalidRequest: The URL is invalid, or the extra `lake` is missing.
    """
    return ObjectJournal(str(location), **identity) if is_url(location) else Journal(location, **identity)


def journals_in(location: str | os.PathLike[str]) -> dict[str, Journal | ObjectJournal]:
    """Return the journals of an import in parts, by name in sorted order.

    The result is empty if the folder or URL contains no journals, or if it is itself a journal.

    Raises:
        InvalidRequest: The URL is invalid, or the extra `lake` is missing.
        JournalError: The folder cannot be read.
    """
    place = os.fspath(location)
    with translate_errors(place):
        if is_url(place):
            return {name: journal_at(f"{place.rstrip('/')}/{name}") for name in list_folders(place)}
        return {path.stem: Journal(path) for path in sorted(Path(place).glob("*.db"))}


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
    """Open the journal of a run in the writer's thread.

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
