"""Notebooks: cells, tables and data frames.

A notebook runs an event loop, so cells await the client, without
`asyncio.run`. A first cell opens a client, here on a fake:

```python
from outreach_async import OutreachClient
from outreach_async.audit import audit
from outreach_async.fake import FakeService, FakeTransport

fake = FakeService()
workspace = fake.add_workspace()
fake.add_mailboxes(workspace, 214, spf=False)

# or OutreachClient(), from OUTREACH_* variables
client = OutreachClient(transport=FakeTransport(fake), workspace=workspace)
page = await client.mailboxes.list(display=100)
frame = page.to_frame("pandas")
print(frame.shape, len(repr(page)) < 2000)  # -> (100, 24) True

boxes = await client.mailboxes.list().collect()  # all pages
print(boxes.to_frame("polars").group_by("type").len()["len"].sum())  # -> 214

report = await audit(client, [workspace])
print(sorted(report.to_frame("pandas")["severity"].unique())[0])  # -> error
await client.aclose()
```

The client stays open between cells; the last cell closes it with
`await client.aclose()`.

Tables
------
If the last line of a cell is a page, a list, a model or a report, the
notebook shows it as a table of at most 30 rows. Texts of the service are
escaped, and long ones are cut. `to_frame()` returns all rows as a data
frame of pandas, or of polars if pandas is not installed;
`to_frame("polars")` chooses. Install one of them yourself:
`pip install pandas`. What `to_frame` returns:

    a page, `collect()`, `fields()`     a row for each item
    `campaigns.steps(...)`              a row for each step; `templates`
                                        has lists
    an audit                            a row for each finding
    a bulk run                          a row for each outcome, with its
                                        number of rows
    a ledger                            a row for each run

A `repr` has at most 2,000 characters, so a large page does not fill the
screen. A column with numbers and texts, such as `days_left_date`, is text
in polars.

Scripts and other event loops
-----------------------------
In a cell, `outreach_async.sync.SyncClient` works, too: it has an event
loop of its own in a thread. FastAPI returns models, pages and reports as
JSON if they are the annotated type of a handler: `-> Mailbox`, or
`-> BulkReport`.
"""
