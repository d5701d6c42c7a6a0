"""Creating any number of contacts, many at a time, with an honest outcome for every row.

The smallest program. Rows are `NewContact` values or mappings, from a list, a generator or an async generator; awaiting the run
gives the figures. Programs here take the service from `OUTREACH_BASE_URL`, `OUTREACH_OWNER_KEY` and `OUTREACH_WORKSPACE`:

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

What a label means
------------------
Enter the run instead, and every row comes as a `ContactOutcome`. A row that fails is an outcome, never an exception. `status` is
the service's own word (`added`, `skipped`, `overwriten` as the wire spells it, `updated_missing_fields`), or one of three more:

    rejected     refused for the row's own sake, by a check before sending or by the service; `error` says why
    not_applied  the service cannot hold the row: it was never sent, or refused for another reason than the row
    unknown      it may have been carried out, and the last attempt failed

Only a 4xx other than 408, 425 and 499 proves that a row was not carried out. A lost answer is repeated, which cannot make a
second contact. But `skipped` may then speak of the contact that the lost attempt made: `possible` holds every outcome that
agrees with what was seen, and `certain` says whether there is only one.

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.fake import FakeService, FakeTransport, faults


async def main() -> None:
    fake = FakeService()
    workspace = fake.add_workspace()
    fake.faults.script("create_contact", faults.commit_then(faults.reset()))  # stored, and the answer lost
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

Journal and resume
------------------
`journal="run.db"` keeps the run in one SQLite file, about 45 bytes a row. A row is marked there before it is sent, and its
outcome is there before you see it: kill the process at any moment, and the same call with `resume=True` gives every row that is
left its outcome, and none a second one. A row that may have been sent is sent again, and says so by `possible`. The input must
be the same: another workspace, other options or changed rows are refused. `resume=True` begins anew where there is no journal
yet.

A journal belongs to one input, so name it after the input. If its run is finished, the same rows return the recorded figures
without a request, and other or additional rows are refused. They are read again to compare them, unless the journal has them
(`spool=True`) or both runs name a fingerprint of the input (`Journal(path, fingerprint=...)`), which then decides.

```python
import anyio
from outreach_async import Journal, OutreachClient


async def main() -> None:
    rows = [{"email": f"user{number}@company.example"} for number in range(100)]
    async with OutreachClient() as client:
        async with client.contacts.create_many(rows, concurrency=4, journal="run.db") as outcomes:
            async for outcome in outcomes:
                outcomes.drain()  # as on Ctrl-C: pull no more, let what is under way end
        before = Journal("run.db").report()
        await client.contacts.create_many(rows, journal="run.db", resume=True)
    print(before.state, "and", Journal("run.db").report().state, "with", Journal("run.db").report().rows)
    # -> interrupted and finished with 100


anyio.run(main)
```

`Journal("run.db").outcomes()`, `.report()` and `.events()` read it at any time, also beside its run, and change nothing. A
journal stands on a local disk, for the locks of network file systems may not hold, and not on Windows.

While a run is under way, and after a crash, the latest outcomes are in a second file, `run.db-wal`. Copy or move both, and open
them with no other program: SQLite's shell removes the log. A missing log, or a changed row, is a JournalError. A log that was cut
loses outcomes at most: their rows count as possibly sent.

`earlier="unknown"` continues when the journal is damaged, empty or lost; it implies `resume=True`. Every row without an outcome
then counts as possibly sent, in this run and in all that resume it, so `skipped` is never certain. A damaged journal is renamed
to `run.db.damaged` (or `-1`, `-2`), with its log, and a new one begun, whose event `damaged` has the name and the reason; no
outcome is taken over. A sound one is resumed with its outcomes. A file that is no journal is refused, as ever.

Rows that come once, such as a stream, are kept in the journal by `spool=True` before the first is sent; resuming then needs no
input. The file grows by the rows.

Repeated e-mails
----------------
`repeats` says what becomes of an e-mail that comes again. `"serial"` sends every row, one after the other for each address that
the service might hold equal: case, compatibility forms (NFKC), invisible characters, accents, tags, quotes, a trailing dot and
Gmail's dots make no difference. `"error"` rejects a row that repeats one of the last 10,000. `"first"`, `"last"` and `"coalesce"`
send one row for each e-mail and need a journal, for they read the whole input first; the other rows are `not_applied`, and
`outcome.repeats` is the index of the row that stands for them.

```python
import anyio
from outreach_async import Journal, OutreachClient


async def main() -> None:
    rows = [{"email": "ann@company.example", "city": "Lyon"}, {"email": "ann@company.example", "title": "CTO"}]
    async with OutreachClient() as client:
        await client.contacts.create_many(rows, repeats="coalesce", journal="run.db")
    print([(str(outcome.status), outcome.repeats) for outcome in Journal("run.db").outcomes()])
    # -> [('added', None), ('not_applied', 0)]


anyio.run(main)
```

Pace, pauses and ends
---------------------
`concurrency` rows are in flight, and never more than the client's `max_in_flight`. What the service asks for (429,
`Retry-After`, quota headers) teaches the run a rate. While the service is down the run pauses and probes, and no row pays for
it. Read `outcomes.progress` as often as you like: rows, total, rate (rows a second), state (`running`, `throttled`, `paused`),
seconds until a pause ends, and seconds until the end. Iterating ends early in four ways:

    BulkSuspended  time may mend it: the service was down or refusing for `max_outage` seconds, or asks for more than 15 minutes;
                   `retry_after` says when to resume, in seconds. The command `outreach-async import` exits with 75 then
    BulkStopped    it concerns every row: an unknown key, workspace or campaign, or the first `stop_after_rejects` rows were
                   rejected for one reason. Mend that, and resume
    JournalError   what can no longer be kept must not be sent: free the disk, and resume. Also a program that reads the journal
                   and keeps a mark from its file for 10 seconds: no row is sent before its mark is there
    your own       what the rows' own code raises comes through after the outcomes of the rows before

Both bulk errors have the figures so far as `report`, and `resumable` says whether there is a journal. Leaving the block early
cancels what is in flight; with a journal those rows are told apart later.

Memory is bounded by a window of a few rows for each request in flight, whatever the input: a row is pulled only while fewer have
not reached you. So a slow consumer slows the run down, and a million rows take what ten thousand take. `order="input"` hands
outcomes out in the order of the rows, and so holds back what is done early.
"""

from outreach_async.bulk.journal import Journal
from outreach_async.bulk.order import Order
from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.pace import BulkProgress
from outreach_async.bulk.pipeline import Outcomes
from outreach_async.bulk.repeats import Repeats
from outreach_async.bulk.report import BulkReport
from outreach_async.bulk.run import BulkRun

__all__ = ["BulkProgress", "BulkReport", "BulkRun", "ContactOutcome", "Journal", "Order", "Outcomes", "Repeats"]
