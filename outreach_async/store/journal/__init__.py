"""The journal of a bulk run: a record of what was sent, so that a killed run can be resumed.

A window of rows is durably marked before any of its rows is sent. Outcomes are durably recorded, in batches, before they are
returned. If the process is killed, a marked row without an outcome may therefore have been sent, and an unmarked row was not
sent. Any process can read the journal with `Journal` or `ObjectJournal`, even during the run.

Files
-----
A `Journal` is one SQLite file on a local disk, which is locked during the run. Use a `Journal` unless the machine may be lost.

Objects
-------
A journal on a disk is lost with its machine. If the run is then repeated elsewhere without the journal, contacts that the first
run created are reported as `skipped`, and nothing shows that this is wrong. If machines may be lost, pass a URL, or an
`ObjectJournal` for more options. The journal is then a log of objects, which any machine can read to resume the run. It takes
about 20 bytes per row, or about 30 if the run sends only ten rows per second. These URLs are supported:

    s3://bucket/prefix     S3, or an S3-compatible service that supports conditional writes (If-None-Match)
    gs://bucket/prefix     Google Cloud Storage; untested
    az://container/prefix  Azure Blob Storage; untested
    file:///folder         a folder, which may be on a network file system with hard links
    memory://name          the memory of this process, for tests

All but `file://` need `pip install 'outreach_async[lake]'`. Credentials and endpoints come from the environment, such as
`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL` or `AZURE_STORAGE_ACCOUNT_NAME`; a URL that contains credentials is refused. Use a
separate prefix for each journal. A store that ignores the condition of a write would let two runs share a journal. Each run
therefore creates its first object twice, and raises JournalError if the store replaces it. A run creates a folder only with the
first object of its journal. If the folder is later removed, renamed or unmounted, the run stops with JournalError.

A run with `journal="s3://bucket/imports/may"` is resumed by the same call with `resume=True`, on any machine, and
`ObjectJournal(url).report()` reads it.

Object stores charge for each write. An outcome therefore waits up to one second (`ObjectJournal(url, linger=...)`) to be written
together with others, and `async for` returns it only after the write. At most 1,000 rows (or `concurrency`, if that is higher)
are in flight, or completed but not yet written. After a crash, these rows are sent again.

There is no lock, because a lost machine cannot release a lock. A process that resumes a run takes the run over. If the earlier
process is still running, its next write fails with JournalError, and it sends nothing more. Until then, it sends only rows that
it had marked, and the new process counts these rows as possibly sent. Before a process sends a request, it checks when its last
successful write started. If that was more than 5 seconds ago, it writes again first. This write fails if the run was taken over.
A process whose writes take longer than 5 seconds sends nothing until they are faster. Resume a run only if its process has
ended, or if you want it to end.

An object that is missing, torn, changed or from another journal raises JournalError. `earlier="unknown"` then starts a new
generation of objects, and the damaged objects are kept. But if the last object is deleted, nothing shows that it is missing, and
rows that were marked in it may be reported as `skipped`, although this run created their contacts. So no lifecycle rule of the
bucket may delete objects of an unfinished run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from outreach_async._files.objects import is_url, list_folders
from outreach_async.store.journal._file_journal import Journal
from outreach_async.store.journal._object_journal import ObjectJournal, translate_errors
from outreach_async.store.journal._records import Earlier, Identity, JournalReport
from outreach_async.store.journal._store import JournalStore
from outreach_async.store.journal._writer import JournalWriter

__all__ = [
    "Earlier",
    "Identity",
    "Journal",
    "JournalReport",
    "JournalStore",
    "JournalWriter",
    "ObjectJournal",
]


def journal_at(location: str | os.PathLike[str], **identity: Any) -> Journal | ObjectJournal:
    """Return the journal at a path or URL. The arguments `source`, `fingerprint` and `mapping` are passed to it."""
    return ObjectJournal(str(location), **identity) if is_url(location) else Journal(location, **identity)


def journals_in(location: str | os.PathLike[str]) -> dict[str, Journal | ObjectJournal]:
    """Return the journals in a folder or under a URL, sorted by name: an import in parts has one journal for each part."""
    path_or_url = os.fspath(location)
    with translate_errors(path_or_url):
        if is_url(path_or_url):
            return {name: journal_at(f"{path_or_url.rstrip('/')}/{name}") for name in list_folders(path_or_url)}
        return {path.stem: Journal(path) for path in sorted(Path(path_or_url).glob("*.db"))}
