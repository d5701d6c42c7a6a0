"""Create contacts, with an exact outcome for every row.

Any number is created concurrently. Rows are `NewContact` values or
mappings, from any iterable, a `csv.DictReader` or a data frame. Each may
name its own campaign (see `Target`). This program reads
`OUTREACH_BASE_URL`, `OUTREACH_OWNER_KEY` and `OUTREACH_WORKSPACE`, and
awaits the report:

```python
import anyio
from outreach_async import OutreachClient

rows = ({"email": f"user{number}@company.example"} for number in range(200))


async def main() -> None:
    async with OutreachClient() as client:
        report = await client.contacts.create_many(rows)
    print(report.rows, "rows:", report.outcomes["added"], "added,", report.uncertain, "uncertain")
    # -> 200 rows: 200 added, 0 uncertain


anyio.run(main)
```

Outcomes
--------
Enter the run with `async with` to get the `ContactOutcome` of each row. A
failed row has an outcome, and raises nothing: `status` is the service's
status, or one that the run determines, such as `rejected`.
`outreach_async.guides.concepts` explains all of them, and `possible` and
`certain`. Among HTTP statuses, only a 4xx other than 408, 425 and 499
proves that a request had no effect.

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.fake import FakeService, FakeTransport, faults


async def main() -> None:
    fake = FakeService()
    workspace = fake.add_workspace()
    # the contact is stored, but the response is lost
    fake.faults.script("create_contact", faults.commit_then(faults.reset()))
    rows = [{"email": "ann@company.example"}, {"email": "  "}]
    async with OutreachClient(
        transport=FakeTransport(fake), workspace=workspace, owner_key=fake.add_owner_key(workspace)
    ) as client:
        async with client.contacts.create_many(rows, order="input") as outcomes:
            async for outcome in outcomes:
                print(outcome.index, outcome.status, outcome.certain, sorted(map(str, outcome.possible)))
    # -> 0 skipped False ['added', 'skipped']
    # -> 1 rejected True ['rejected']


anyio.run(main)
```

Cells and blank values
----------------------
Rows of data frames and of a `csv.DictReader` are read as the cells of a
file are, and what was changed is in the run's `findings`; see
`create_many`. A generator over a reader cannot be recognised: pass
`normalise=True`. Their columns must be named after fields. To map other
columns, read the file with `outreach_async.importer`.

A blank value has one meaning for files, frames and readers: it is not
sent, and the contact keeps what it has. With `blank="clear"`, it is sent
as null, and clears the field. Mappings and `NewContact` are sent as they
are unless you pass `blank`.

```python
import csv

import anyio
from outreach_async import OutreachClient

lines = ["email,work_phone,zip", "ann@company.example,'+33140205050,75001", "bo@acme.example,,#REF!"]


async def main() -> None:
    async with OutreachClient() as client:
        run = client.contacts.create_many(csv.DictReader(lines), duplicates="overwrite", blank="clear")
        report = await run
    print(report.rows, [finding.partition(":")[0] for finding in run.findings])  # -> 2 ['work_phone', 'zip']


anyio.run(main)
```

Journal and resume
------------------
`journal="run.db"` records the run in one SQLite file. A row takes 25 to 75
bytes, by the length of the service's ids; with `spool` or a `repeats` that
reads all rows first, also its data. A row is marked there before it is
sent, and its outcome is committed there before you receive it. If the
process is killed at any moment, the same call with `resume=True`
continues: every remaining row gets exactly one outcome. A row that may
have been sent is sent again, and its `possible` takes the earlier attempt
into account. Address, workspace, options and rows must be the same, or the
call is refused. If there is no file yet, `resume=True` starts a new run.
Rows with an outcome are compared as JSON.

A journal belongs to one input. For one that changes, such as that of every
night, use a ledger: `outreach_async.guides.nightly`. Once a run is
finished, a call with the same rows returns the recorded report without a
request; other rows are refused. This comparison reads the rows again,
unless both calls pass a fingerprint (`Store(path, fingerprint=...)`). If
the rows can be read only once, pass `spool=True`: the journal first stores
all rows. A resumed run needs none (`rows=[]`), or the stored ones.

```python
import anyio
from outreach_async import Store, OutreachClient


async def main() -> None:
    rows = [{"email": f"user{number}@company.example"} for number in range(100)]
    async with OutreachClient() as client:
        async with client.contacts.create_many(rows, concurrency=4, journal="run.db") as outcomes:
            async for outcome in outcomes:
                outcomes.drain()  # as on Ctrl-C: finish the requests in flight
        before = Store("run.db").report()
        await client.contacts.create_many(rows, journal="run.db", resume=True)
    print(before.state, "and", Store("run.db").report().state, "with", Store("run.db").report().rows)
    # -> interrupted and finished with 100


anyio.run(main)
```

`Store("run.db").outcomes()`, `.report()` and `.events()` read a journal at
any time, even during its run. They never change it. Keep the file on a
local disk, because locks on network file systems are unreliable. Journal
files are not supported on Windows. A URL such as `"s3://bucket/prefix"` is
a journal that outlives the machine (see `outreach_async.store`).

Files `run.db-wal` and `run.db-shm` are part of the journal: move or copy
them with it, and only when no run writes it. Other programs may read it
with SQLite, which may remove these files. A half commit or a changed row
raises JournalError.

`earlier="unknown"` continues a run that had no journal, or whose journal
is damaged, lost or restored from an older copy, and implies `resume=True`.
Without it, contacts that the other run created are reported as if they had
existed before. With it, every row without an outcome counts as possibly
sent, so `skipped` is never certain, not even when this run is resumed
later. A damaged journal and its log are renamed to `run.db.damaged` (or
`run.db.damaged-1`, ...). A new journal starts without the old outcomes;
its event `damaged` contains the reason and the new name. An intact journal
is resumed with its outcomes. Any other file is refused.

Whom not to write to
--------------------
Rows of people in `exclude` are `excluded`: see
`outreach_async.guides.excluding`. The lists are no part of the run: a row
is compared just before it would be sent, so a resumed run may exclude
others. A row that an earlier process may have sent before its person was
listed is `unknown`, and is not sent again.

Repeated e-mails
----------------
`repeats` is the policy for e-mails that occur more than once in the input
(see `Repeats`); `duplicates` is for contacts that the service already has.
`"serial"` sends rows with equivalent addresses one at a time: addresses
that differ only in case, compatibility forms (NFKC), invisible characters,
accents, tags, quotes, a trailing dot or Gmail's dots. With `"first"`,
`"last"` and `"coalesce"`, the other rows are `not_applied`;
`outcome.repeats` is the index of the row sent instead. Only rows with the
same target repeat each other.

Rate, pauses and early ends
---------------------------
At most `concurrency` requests are in flight, within the client's
`max_in_flight` and `rate`. `outcomes.progress` has the rows done, the
total, the rows per second, the state, the seconds until a pause ends and
the ETA. `outreach_async.guides.operating` explains when a run pauses, and
what ends it early: the iteration then raises `BulkSuspended` (temporary:
resume after its `retry_after` seconds), `BulkStopped` (every row is
affected: fix the cause, and resume) or `JournalError` (the disk is full,
or another program has blocked the journal for 10 seconds). An exception of
your iterable is raised after the outcomes of the rows before it. An async
iterable is read and closed (`aclose`) by one task of its own, however the
run ends: a generator may stand inside its own time limit or task group
when it yields. If something else cancels this task, the run is stopped.

BulkSuspended and BulkStopped are a `BulkError`, which has the counts in
`report`, and is `resumable` with a journal. Leaving the block early
cancels the requests in flight; the journal records which of their rows may
have been sent. A million rows need as much memory as ten thousand: a row
is pulled only while a window of a few rows per request in flight has room
(with a journal or a ledger, of at most 6,200 rows), and leaves it when you
receive its outcome. A slow consumer slows the run down. `order="input"`
returns each outcome after those of earlier rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from outreach_async._lazy import import_on_use

if TYPE_CHECKING:
    from outreach_async.bulk._cells import Blank
    from outreach_async.bulk._exclusions import Exclusions
    from outreach_async.bulk._frames import ArrowStream, Numbers
    from outreach_async.bulk._outcomes import BulkReport, ContactOutcome, LedgerCounts, Order, Targeted
    from outreach_async.bulk._progress import BulkProgress
    from outreach_async.bulk._rows import Repeats
    from outreach_async.bulk._run import BulkRun, Outcomes

__all__ = [
    "ArrowStream",
    "Blank",
    "BulkProgress",
    "BulkReport",
    "BulkRun",
    "ContactOutcome",
    "Exclusions",
    "LedgerCounts",
    "Numbers",
    "Order",
    "Outcomes",
    "Repeats",
    "Targeted",
]

_EXPORTS: Final = {
    "_cells": "Blank",
    "_exclusions": "Exclusions",
    "_frames": "ArrowStream Numbers",
    "_outcomes": "BulkReport ContactOutcome LedgerCounts Order Targeted",
    "_progress": "BulkProgress",
    "_rows": "Repeats",
    "_run": "BulkRun Outcomes",
}
if not TYPE_CHECKING:
    __getattr__ = import_on_use(__name__, __name__, _EXPORTS)  # a part of this package can be imported without the others


def __dir__() -> list[str]:
    return sorted(__all__)
