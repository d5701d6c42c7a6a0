"""What bulk runs record, in a journal or a ledger.

A journal knows one run, which it can resume; a ledger knows all runs, and
sends what has changed. A window of rows is durably marked before any of
its rows is sent. Outcomes are durably recorded, in batches, before they
are returned. If the process is killed, a marked row without an outcome may
therefore have been sent, and an unmarked row was not sent. Any process can
read a store with `Store`, even during a run. `outreach_async.bulk` says
how to resume a run from a journal, and `outreach_async.guides.nightly` how
to use a ledger.

```python
import anyio
from outreach_async import OutreachClient, Store


async def send(rows: list[dict[str, str]]) -> None:
    async with OutreachClient() as client:
        await client.contacts.create_many(rows, journal="may.db")
        await client.contacts.create_many(rows, ledger="contacts.ledger", duplicates="overwrite")


anyio.run(send, [{"email": f"user{number}@company.example"} for number in range(200)])
print(Store("may.db").report().state, Store("contacts.ledger").contacts().contacts)  # -> finished 200
```

Files
-----
A path is one SQLite file on a local disk, which is locked during a run.
Use a file unless the machine may be lost. Any program that reads SQLite
can read it, such as `sqlite3` and Datasette. These views are part of the
format:

    runs     the run of a journal, or all runs of a ledger run, at (UTC),
             state (finished, suspended, stopped, interrupted; running if
             the process was killed), counts (JSON)
    rows     the rows of the last run that have an outcome, or may have
             been sent row, status (null without an outcome), certain,
             possible, id, attempts, error_class, error, repeats,
             workspace, campaign, key (of its entry, in a ledger)
    entries  what a ledger knows of each contact key, state (known;
             uncertain: an attempt was not answered; out of date: the
             contact may have other values now), id, workspace, campaign,
             run (that has sent it last), at (UTC), gone (from the last
             whole input), digest, domain

    sqlite3 contacts.ledger "SELECT state, count(*) FROM entries GROUP BY state"

DuckDB cannot run these views itself. Its function `sqlite_query` lets
SQLite run them, and returns all columns as texts:

    ATTACH 'contacts.ledger' AS ledger (TYPE sqlite, READ_ONLY);
    SELECT state, count(*) FROM sqlite_query('ledger', 'SELECT * FROM entries') GROUP BY state;

A file has no e-mails, unless the rows were spooled, or the service quotes
one in the message of an error: `key` is a keyed hash of the e-mail and its
target, `domain` one of the domain, and `digest` one of the request. The
key of the hashes is in the file. `erase` removes what stores have of
people. Read a copy, or open the file only for reading: a run stops if
another program changes the file.

Objects
-------
A journal on a disk is lost with its machine. If the run is then repeated
elsewhere without the journal, contacts that the first run created are
reported as `skipped`, and nothing shows that this is wrong. If machines
may be lost, pass a URL, or a `Store` for more options. The journal is then
a log of objects, which any machine can read to resume the run. It takes
about 20 bytes per row, or about 30 if the run sends only ten rows per
second. These URLs are supported:

    s3://bucket/prefix     S3, or a service that supports its conditional
                           writes (If-None-Match), such as SeaweedFS
    gs://bucket/prefix     Google Cloud Storage; untested
    az://container/prefix  Azure Blob Storage; tested with Azurite
    file:///folder         a folder, which may be on a network file system
                           with hard links
    memory://name          the memory of this process, for tests

All but `file://` need `pip install 'outreach_async[lake]'`. Credentials
and endpoints come from the environment, such as `AWS_ACCESS_KEY_ID`,
`AWS_ENDPOINT_URL` or `AZURE_STORAGE_ACCOUNT_NAME`; a URL that contains
credentials is refused. Use a separate prefix for each journal. A store
that ignores the condition of a write would let two runs share a journal.
Each run therefore creates its first object twice, and raises JournalError
if the store replaces it. A run creates a folder only with the first object
of its journal. If the folder is later removed, renamed or unmounted, the
run stops with JournalError.

A run with `journal="s3://bucket/imports/may"` is resumed by the same call
with `resume=True`, on any machine, and `Store(url).report()` reads it.

Object stores charge for each write. An outcome therefore waits up to one
second (`Store(url, linger=...)`) to be written together with others, and
`async for` returns it only after the write. At most 1,000 rows (or
`concurrency`, if that is higher) are in flight, or completed but not yet
written. After a crash, these rows are sent again.

There is no lock, because a lost machine cannot release a lock. A process
that resumes a run takes the run over. If the earlier process is still
running, its next write fails with JournalError, and it sends nothing more.
Until then, it sends only rows that it had marked, and the new process
counts these rows as possibly sent. Before a process sends a request, it
checks when its last successful write started. If that was more than 5
seconds ago, it writes again first. This write fails if the run was taken
over. A process whose writes take longer than 5 seconds sends nothing until
they are faster. One exception: a process that is suspended in the moment
in which it writes a request, between this check and the write, still sends
it when it goes on. Resume a run only if its process has ended, or if you
want it to end.

An object that is missing, torn, changed or from another journal raises
JournalError. `earlier="unknown"` then starts a new generation of objects,
and the damaged objects are kept. But if the last object is deleted,
nothing shows that it is missing, and rows that were marked in it may be
reported as `skipped`, although this run created their contacts. So no
lifecycle rule of the bucket may delete objects of an unfinished run.
"""

from outreach_async.store._erasing import Erased, erase, match_people
from outreach_async.store._records import Earlier, Identity, JournalReport
from outreach_async.store._store import Changed, LedgerReport, Store, stores_in

__all__ = [
    "Changed",
    "Earlier",
    "Erased",
    "Identity",
    "JournalReport",
    "LedgerReport",
    "Store",
    "erase",
    "match_people",
    "stores_in",
]
