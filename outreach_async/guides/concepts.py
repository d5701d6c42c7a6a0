"""The words of this library: what they mean.

They are workspace, campaign, outcome and certainty, journal and ledger,
rate, and fake. Every other guide uses these words. This program meets most
of them, on a fake:

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.fake import FakeService, FakeTransport, faults

fake = FakeService()
workspace = fake.add_workspace()
key = fake.add_owner_key(workspace)
# the first response is lost
fake.faults.script("create_contact", faults.commit_then(faults.reset()))


async def main() -> None:
    async with OutreachClient(transport=FakeTransport(fake), workspace=workspace, owner_key=key) as client:
        made = await client.contacts.create({"email": "ann@company.example"})
    print(made.status, made.certain, sorted(map(str, made.possible)))  # -> skipped False ['added', 'skipped']


anyio.run(main)
```

Workspace, campaign, contact
----------------------------
A workspace (`space_...`) contains campaigns, mailboxes and contacts. A
campaign (`camp_...`) is a sequence of steps, each with one or more
templates, which the workspace's mailboxes send. A contact is a recipient:
an e-mail with fields, among them the workspace's custom fields
(`custom_1`, ...). A contact belongs to one workspace, and may be in a
campaign. Reading needs no key. Creating contacts needs the owner key
(`key_...`) of a user.

A client has one default workspace. Rows of a bulk run may name another
one; see `outreach_async.Target`.

Cells and blank values
----------------------
A cell is a text from a table that people keep: a file, a data frame, a
`csv.DictReader`. It is read before it is sent: what spreadsheets and
exports did to it is undone, and a damaged value is left out. Rows that a
program builds, mappings and `NewContact`, are sent as they are, because
the program knows what it means; pass `normalise=True` to read them as
cells.

A blank cell is empty, or has a text that stands for a missing value, such
as NULL. It has one meaning on every route: it is not sent, so the contact
keeps what it has in the service, also if the cell had a value before. With
`blank="clear"` (`--blank clear`) and `duplicates="overwrite"`, it is sent
as null, and the service clears the field. `None` in a mapping or a
`NewContact` is null.

Outcome and certainty
---------------------
If a contact with the same e-mail exists, `duplicates` decides: `"skip"`
changes nothing, `"overwrite"` replaces its fields, and
`"update_missing_fields"` fills the empty ones. The service answers with a
status: `added`, `skipped`, `overwriten` (its spelling) or
`updated_missing_fields`. An outcome is this status, or one of five others,
for rows of a bulk run:

    rejected     the row is invalid, according to a local check or the
                 service; `error` has the reason
    not_applied  the contact was not created or changed: the row was not
                 sent, or was refused for a reason outside the row
    unknown      the last attempt failed after the request may have taken
                 effect
    unchanged    the row was not sent, because a ledger shows that the
                 contact already has its values
    excluded     the row was not sent, because the person must not be
                 written to, according to the row or to a list (`exclude`);
                 `error` has the reason, but this is no failure

If a response is lost, the request is sent again. The second attempt cannot
create a second contact, because the service detects duplicates by e-mail.
But its status may describe what the first attempt did. `possible` is every
status that is consistent with what is known; `certain` is true if there is
only one; otherwise the outcome is uncertain. An outcome is never more
certain than the facts.

An error of one call says the same in two values: `maybe_sent`, whether a
byte of the request may have left the machine, and `maybe_applied`, whether
the service may have applied it.

Journal and ledger
------------------
A journal records one run: each row before it is sent, and its outcome
before you receive it. If the process is killed at any moment, the run
resumes from its journal. A ledger remembers all runs: the last certain
outcome of each contact and campaign. With a ledger, the same call sends
only what is new, changed or uncertain, every night and after any crash.
Use a journal to send an input once, and a ledger to keep the service equal
to an input that changes.

Both are files on a local disk, or objects in an object store
(`s3://bucket/prefix`). Neither contains an owner key.
`outreach_async.store` says what they contain, and `Store` reads them.

Rate, slots and pauses
----------------------
A rate limits how many requests start per second. You can set one. With or
without it, a client learns the service's limit from refusals (429,
`Retry-After`). `max_in_flight` is the number of slots: how many requests
are in flight at once. If the service is down, a run pauses; if it asks for
a delay, everything that the client does pauses. This costs rows nothing
but time. A call waits within its deadline; if the delay is longer, the
call fails at once, is not sent, and its `RateLimited` names the run that
was asked to wait. See `outreach_async.guides.operating`.

Transport
---------
A transport sends one complete request and returns one complete response,
over connections of our own, an HTTP library or the fake. It never retries,
limits or logs: only the client does. See `outreach_async.transport`.

Fake
----
The fake is the whole service in memory, or on a port: every documented
rule, injectable faults, a clock of its own, and campaigns that send. Where
the API documentation is silent, a behaviour decides; your code should work
with all of them. Virtual time makes waits of a client end at once in
tests. See `outreach_async.fake` and `outreach_async.pytest_plugin`.

Finding, report, brief
----------------------
An audit reads mailboxes and, on request, campaigns. Each problem is a
finding: a rule, a severity, a cause and a remedy. The worst finding about
a mailbox, its domain or its server decides what to do with it: stop
sending, fix it, or watch it. A report has all findings, these actions and
the scores. A brief is one page about a report: the open
tasks, and what changed since the last one. See `outreach_async.audit`.
"""
