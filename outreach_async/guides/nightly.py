"""Every night, send only what changed.

A ledger remembers the last certain outcome of each contact, over any
number of runs. With `ledger="contacts.ledger"`, a run compares each row
with the last row that was sent for its contact. A row without a difference
is not sent: its outcome is `unchanged`, with the contact's id. The call is
the same every night, with any input, and after any crash.

```python
import anyio
from outreach_async import OutreachClient


async def night(rows: list[dict[str, str]]) -> None:
    async with OutreachClient() as client:
        report = await client.contacts.create_many(rows, ledger="contacts.ledger", duplicates="overwrite")
    print(report.ledger.new, "new,", report.ledger.changed, "changed,", report.ledger.unchanged, "unchanged")


rows = [{"email": f"user{number}@company.example", "city": "Lyon"} for number in range(200)]
anyio.run(night, rows)  # -> 200 new, 0 changed, 0 unchanged
rows[7]["city"] = "Bern"
anyio.run(night, [*rows, {"email": "new@company.example"}])  # -> 1 new, 1 changed, 199 unchanged
```

What is sent
------------
    new        the ledger does not know the contact
    changed    the row differs from the last row of its contact, or the
               options differ; `duplicates` decides what the service does
    uncertain  an earlier attempt was not answered; `possible` has every
               status that this attempt leaves open. The row is sent in
               each run until the service answers the only attempt of one
               that started late enough (see below)
    expired    the entry is older than `max_age`, or its time is in the
               future: others may have edited the contact. `max_age=0`
               sends every row, also with `changed="ignore"`
    unchanged  not sent
    excluded   not sent, because the person must not be written to (see
               `outreach_async.Excluded`, and `exclude` for lists, which
               may differ from night to night). What the ledger knows of the
               contact stays: when the row may be sent again, it is
               compared as before

A row that the service rejects changes nothing that the ledger knows about
its contact, and is sent again in each run, because the service may accept
it now. The ledger remembers for 90 days that it was rejected. Such a row,
also with other values, does not count for `stop_after_rejects`, so rows
that stay wrong in the input do not stop a run. `gone` counts the contacts
of the ledger that a whole input did not have. The service cannot delete
contacts, so nothing is done about them. With `duplicates="skip"`, the
service would ignore a changed row. Pass `"overwrite"` or
`"update_missing_fields"`, or `changed="ignore"` to send only new contacts.

A request that was not answered may still arrive at the service, and would
then replace newer values: its process was killed, or another run took
over. So an uncertain row stays uncertain, and is sent again, in runs that
start while this is possible: for `timeout` + 65 seconds after its run was
merged into the ledger, and for at most an hour. The run that merges a
killed run is one of these. This assumes that the service carries out a
request within a minute after its timeout, less the difference between the
clocks of two machines.

A value that is emptied in the input makes its row a changed one, but a
blank value is not sent, so the contact keeps what it has. `blank="clear"`
(`--blank clear`) clears the fields of blank values, also of those that
were emptied before: the first run with it sends each row that has a blank
value. The ledger has a digest of each row, not its values, so it cannot
tell which of them had a value: `BulkReport.ledger.kept` counts the fields
without a value in the changed rows.

If a contact has several rows in one input, the ledger compares them
together, in their order: rows that come in the same order again are
unchanged, and a row that was added at the end is sent alone. If one of
them changes, it and the later ones are sent. `repeats="last"` or `"first"`
sends only one of the rows with an e-mail and a target; the others are
`not_applied`. With `"error"`, they are rejected. A row that the service
rejects counts as any other, and so does one that is excluded; a row that
is rejected before it is sent does not. Another policy than last night
sends these contacts once more. `BulkReport.ledger.repeated` counts such
rows. For this, the input is read twice: files, lists and other sequences,
dict views, and frames of pandas, polars and pyarrow. Rows that can be read
only once, such as those of a generator, a cursor or a DuckDB query, are
compared one by one: if the rows of a contact differ, they are sent in each
run, so that the contact has the values of the last one.

One run may have rows of many campaigns (see `Target`), and counts what is
gone only from those that its rows name. Each campaign and workspace has
its own entries, so a row that names another campaign than last night is
new. A contact has one set of values in a workspace, and the rows of all
its campaigns are compared together, as above. So use one ledger for each
table. A row is compared as JSON. The owner key is not compared: with
another key, rows stay unchanged, and `max_age=0` sends them with the new
key.

A contact is an e-mail in a workspace, whatever its letter case. E-mails
that some services treat as equal, such as `ann+news@company.example` and
`ann@company.example`, are contacts of their own. If the service answers
with the same id for both, or if an answer with an id was lost, a row of
one may have changed the other, whose row is then sent again.

Several workspaces
------------------
`--hold 90d` excludes new rows of people to whom the ledger has sent within
90 days for another campaign or workspace. `--held-by` names ledgers that
also hold their people: by path, or by the workspaces or groups whose
`ledger` the configuration names. `--hold-domains` holds everybody with the
domain of such a person. Only rows that are about to be sent are checked.

    outreach-async import people.csv --ledger acme.ledger --hold 90d --held-by retail --duplicates overwrite

If runs hold each other's people, one sends to a person whom they import at
the same moment: they lock the ledgers, which are files on one machine,
before they mark rows (`acme.ledger.hold-lock`).

The file
--------
A ledger is one SQLite file, which takes about 52 bytes for each contact,
and until the next run about 70 more for each row that the last run has
sent. Entries are keyed hashes, without e-mails, names or keys. The rows of
the last run have the messages of the service, which may quote an e-mail.
Comparing a row takes a few microseconds. A run writes its rows beside the
entries, and merges them into the entries when it ends. If its process is
killed at any moment, the next run merges them first.
`outreach_async.store` says which tables a file has, and how to read them
with other programs.

A ledger belongs to the address of one service. Keep the file on a local
disk; it is not supported on Windows. Two runs cannot use one ledger at the
same time: the second is refused. The file `contacts.ledger.last-run`
beside it names the last run.

`ledger="s3://bucket/contacts"` (also `file:///folder`) keeps the ledger in
an object store. Each run then reads the whole ledger when it starts, and
writes it when it ends. There is no lock. A run that starts takes over from
a run that has not ended. The earlier run stops with JournalError when it
writes to its log, at the latest before it sends a row more than 5 seconds
after it started its last successful write. One exception: a process that
is suspended in the moment in which it writes a request still sends it when
it goes on, however late. Rows that it had marked and has no answer for are
uncertain. `entries/` has the last two copies of the ledger, and
`run-000007/` the log of a run. No lifecycle rule may delete these objects:
it cannot tell a run that was not merged yet. Delete logs by hand, when
their processes have ended and two later runs have been merged.

When something changes
----------------------
    What has changed                      What the next run does, and what
                                          to do
    a row is rejected every night         sends it again, and reports it;
                                          it does not count for
                                          `stop_after_rejects`
    a rejected row has left the input     nothing; it is forgotten 90 days
                                          after its last rejection
    the owner key                         nothing: rows stay unchanged. Run
                                          once with `max_age=0` to send
                                          them with the new key
    `duplicates`, `strict_validation`     sends every row, because the
                                          request is another one
    `repeats`                             sends the contacts with several
                                          rows once more
    a campaign was renamed                nothing, if rows name it by id.
                                          By name, they are refused: no
                                          campaign has the old name
    a campaign was deleted and made again sends its rows: it has another id
    the campaign of a row                 sends the row: each campaign has
                                          its own entries
    a column was added or renamed         sends every row that has a value
                                          in it
    the clock went back, or was ahead     with `max_age`, sends the rows of
                                          runs whose time is in the future;
                                          otherwise nothing
    the process was killed                merges what it has recorded; rows
                                          without an answer are uncertain,
                                          and are sent again
    the file was moved with .last-run     nothing
    the file was copied, and both used    each copy knows its own runs, so
                                          rows that the other one sent may
                                          be sent again
    an older copy was restored            refuses. Restore the newest copy,
                                          or move `.last-run` away and run
                                          once with `max_age=0`
    an older copy and its .last-run       nothing shows this: run once with
                                          `max_age=0`
    the file was deleted                  refuses. Restore it, or move
                                          `.last-run` away and run once
                                          with `max_age=0`
    the file was changed during a run     stops, and sends nothing more.
                                          Restore the file that the run
                                          began with
    the file is damaged                   refuses. Restore a copy, or move
                                          it away and run once with
                                          `max_age=0`
    another service at the same address   nothing shows this: use a ledger
                                          for each service
    a version with another format         refuses, and leaves the file as
                                          it is

Schedulers
----------
The job needs one command, and no state but the ledger, and may be started
again at any time. `import` exits with 75 if the service was down for too
long, with 77 if the key was refused, with 3 if rows failed or the run
ended early for another reason, and with 0 otherwise. A scheduler that
counts 3 as a success hides a run that stopped. `--map Campaign=campaign`,
or a column `campaign`, sends each row to its own campaign, by id or name.

    # cron: every night at two
    0 2 * * *  cd /srv/crm && .venv/bin/outreach-async import people.csv --ledger crm.db --duplicates overwrite --results ids.csv

    # systemd: a timer with OnCalendar=02:00, and a service that is started
    # again if the service was down or the process died. If rows failed or
    # the run stopped, it fails, and waits for someone to look.
    [Service]
    Type=oneshot
    WorkingDirectory=/srv/crm
    EnvironmentFile=/etc/outreach.env
    ExecStart=/srv/crm/.venv/bin/outreach-async import people.csv --ledger crm.db --duplicates overwrite --results ids.csv
    Restart=on-failure
    RestartPreventExitStatus=1 2 3 77
    RestartSec=15min

In Airflow and Dagster, a task or an asset calls a function like
`send_changes` of the example `tests/examples/nightly.py`, which reads a
DuckDB table and writes the ids back. `airflow_nightly.py` and
`dagster_nightly.py` beside it are complete: they start a failed job again,
and let only one run at a time use the ledger. (Tested by hand with Airflow
3.3 and Dagster 1.13. The test suite calls their functions without the
frameworks.) `singer_target.py` ends a pipeline of any Singer tap, and
`dlt_sink.py` is a destination of dlt. Both write the outcome of each row.
If they start again, the ledger knows what is left to send.

`Store("contacts.ledger").contacts()`, and on the command line
`outreach-async report contacts.ledger`, counts contacts and lists the
runs. `import --ledger contacts.ledger --dry-run` only counts, and with
`--results ids.csv` writes the ids that the ledger knows.
"""
