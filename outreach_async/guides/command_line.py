"""The command line, and its exit codes.

Install the extra `cli`. Every command has `-h`. Values come from options,
then from the environment, then from a file:

    export OUTREACH_BASE_URL=https://api.example OUTREACH_OWNER_KEY=key_... OUTREACH_WORKSPACE=space_...
    outreach-async import contacts.csv --campaign camp_... --journal contacts.db --rejects rejects.csv
    outreach-async report contacts.db --uncertain --input contacts.csv
    outreach-async audit --workspace space_1 --workspace space_2 --campaigns --output audit.json --output audit.html
    outreach-async contacts create --email ann@company.example --set first_name=Ann
    outreach-async serve             # prints export lines to paste; one JSON object with --json

Or keep the address, the place of each key and the names of workspaces in a
file, which `config init` writes, `config check` tries and `config show`
explains. Commands then take `--workspace NAME|GROUP|all` and
`--profile NAME`: see `outreach_async.config`. A file that a command finds
in the working directory is used only if you trust it, by `config trust` or
an answer on a terminal.

A program can run a command, and read its result as JSON:

```python
import json
import subprocess
import sys

command = [sys.executable, "-m", "outreach_async", "mailboxes", "--base-url", "fake:", "--json"]
done = subprocess.run(command, capture_output=True, text=True, check=True)
print(len(json.loads(done.stdout)["data"]), "mailboxes")  # -> 214 mailboxes
```

All commands
------------
`--base-url fake:` runs a command on the embedded fake, but for imports
with `--processes` or `--dask`; `serve` serves it to these, and to clients
in any language: see `outreach_async.fake.control`. `--json` prints the
result as JSON. `--rate 50` limits a command to 50 requests per second.
`completion -h` shows how to set up completion for bash, zsh and fish.
`campaigns`, `mailboxes`, `steps` and `fields` print lists: a few columns
on a terminal (all with `--columns all`), and all columns in a pipe.
`--format csv|jsonl|json` and `--output boxes.csv` write them for other
programs. `--quiet` prints no report or progress, and `--verbose` logs
every request.

Imports
-------
`import` reads a file, a pipe or `-`, checks all of it, and then creates
the contacts; `--dry-run` stops after the checks, for which it reads at
most two lists of a workspace, its fields and its campaigns. It prints
where each column goes. For an unknown or ambiguous column, the error shows
the option to add; `--ignore-unknown` skips unknown columns, but not
ambiguous ones. `--campaign "Spring launch"` adds the contacts to a
campaign, by id or exact name. `outreach_async.importer` explains formats,
columns and checks.

With `--ledger`, the same command sends what changed, every night: see
`outreach_async.guides.nightly`. If a file repeats e-mails, `--repeats`
says which of their rows count, and the summary names the policy and the
number of such rows. With `--journal`, a file is sent once: after a crash,
Ctrl-C or exit code 75, the same command continues. If the
journal was damaged or lost, add `--earlier unknown`. `--journal` and
`report` also accept `s3://bucket/prefix`.

If the service permits more than one CPU can send,
`--processes 4 --journal journals` imports a file with four processes. They
share `--rate` and `--concurrency`. The file is divided into parts, and the
folder `journals` has a journal for each of them. After a crash, a kill,
Ctrl-C or exit code 75, the same command continues.
With a ledger, one process imports. For several machines, see
`outreach_async.parts`; `report` accepts the folder of an import in parts,
and adds up its journals.

`--exclude blocked.csv` sends nothing to the people of a list: a table with
columns of e-mails or domains, or a text with one of them a line. To apply
lists to every import, name them in `outreach.toml`:
`exclude = ["blocked.csv"]`. A list with a line that is neither refuses the
import.

Findings of the checks, failed rows and excluded rows are grouped by
reason: a thousand rows with one problem are one line with their number and
three examples. On a terminal, an import prints at most 40 lines, whatever
the file; `--verbose` prints every column and every reason.
`--findings FILE` has every finding, and `--rejects FILE` every failed row.
The import ends with the changes that would import most of the failed rows,
such as `412 rows: --check phone=drop sends them without the phone`. The
JSON result has them as `findings`, `failures`, `exclusions` and
`remedies`: a group has a field, a reason, a count and examples.

With `--results ids.csv`, a file has the outcome and the contact id of
every row. `--keep "Lead ID"` copies a column of the input into it, so that
you can join the file with yours on that key, and `--keep all` copies every
column. The cells are those of the input. In CSV, a cell that a spreadsheet
would run as a formula begins with an apostrophe; JSON Lines and Parquet
have none.

Outputs
-------
A command never overwrites its input, its journal or another output, and
replaces a file of another kind only with `--force`. `-` is standard
output. The results, rejects and findings of an import that ends early
never replace those of a finished one: they are written beside them, as
`ids.partial.csv` for `ids.csv`, and the command names the file. The next
import that finishes replaces `ids.csv`, and removes `ids.partial.csv`. An
audit may replace the report that it is compared with. If the input file
changes or is replaced during an import, the command ends with an error
that states the change and what was sent.

Audits and briefs
-----------------
Reports come as text, JSON, CSV, Markdown and one self-contained HTML page.
A policy (a TOML file, `--policy`) turns rules off and changes thresholds.
`audit --explain` lists all rules; `audit --explain OA120` explains one and
names its source. What people read begins with what to do: which mailboxes
to stop, by workspace, and how many to fix and to watch. `--campaigns` also
checks campaigns, steps and placeholders. This costs about one more request
per campaign.
`--output-folder` writes an index, and for each workspace a page to send to
a client, with nothing of the others but how many mailboxes share a domain
or a server with this client's. `brief` shows open tasks and the
changes since the last brief on one page. With `--history history.db`,
`audit` and `brief` keep what they read: a brief compares with the last
reading of each workspace, and `history show` prints the figures of each
day. See `outreach_async.audit.history`.

`plan` shows when campaigns end, as ranges of days, with what limits each,
and what of the daily limits stays unused; a brief has the same.
Each workspace is planned on its own. For one of them,
`plan --add-mailboxes 3`, `--pause ID` and `--contacts +2000` show the ends
with and without the change. State the days on which the service sends if
you know them, as in `plan --days mon-fri`: the ranges are then narrower.
See `outreach_async.audit.plan`.

Every morning
-------------
`brief --post URL` posts the brief to an incoming webhook of Slack;
`brief --format slack` prints the same message as JSON, and `--link URL`
links to the whole report, wherever you put it. Whoever knows the
URL can write to the channel, so keep it in the environment: `env:NAME`
reads it from there. If the brief cannot be delivered, it is still written,
the exit code is 69, and the next brief shows the same changes. With cron,
which mails what the command prints to stderr:

    MAILTO=ops@company.example
    30 7 * * 1-5  . ~/outreach.env; /opt/outreach/bin/outreach-async brief --history ~/history.db --post env:WEBHOOK_URL --quiet

    0 8 * * 1 . ~/outreach.env; outreach-async brief --history ~/history.db --since last-monday --no-append --post env:WEBHOOK_URL

The second line posts the changes of a week, every Monday. Without
`--since`, a brief compares with the last one; with it, with the last
reading of that day or before it: `7d`, `yesterday`, `last-monday`, a day,
or `month` for the end of the month before, in UTC. `--no-append` leaves
the history to the daily brief.

`outreach.env` (mode 600) contains `export WEBHOOK_URL=https://...`,
`export OUTREACH_BASE_URL=...` and so on. With systemd, the same file
without `export`, as two units in `/etc/systemd/system`, started by
`systemctl enable --now outreach-brief.timer`:

    # outreach-brief.service
    [Unit]
    Wants=network-online.target
    After=network-online.target
    [Service]
    Type=oneshot
    DynamicUser=yes
    StateDirectory=outreach
    EnvironmentFile=/etc/outreach.env
    ExecStart=/opt/outreach/bin/outreach-async brief --history /var/lib/outreach/history.db --post env:WEBHOOK_URL
    # The brief was posted, and has findings.
    SuccessExitStatus=1

    # outreach-brief.timer
    [Timer]
    OnCalendar=Mon..Fri 07:30
    Persistent=true
    [Install]
    WantedBy=timers.target

People who ask to be forgotten
------------------------------
    outreach-async erase --from asked.txt --path /var/lib/outreach --path s3://bucket/acme.ledger --and-exclude forgotten.txt

`erase` searches files, folders and object stores, and removes people from
ledgers, journals, histories, and the results, rejects and findings of
imports, which work as before. It refuses while a run uses one of them, and
takes over a run whose ledger or journal is at a URL. `--dry-run` shows
what it would remove. Files of others, such as inputs, are listed and stay
as they are: exit code 3 says that something is left. The record shows no
whole address, and says what to write to the service, which keeps its own
data. With `--and-exclude`, a list has keyed marks instead of addresses,
before anything is erased, and `import --exclude forgotten.txt` sends
nothing to these people.
Backups, and versions that a bucket keeps, are yours to delete.

Reports for clients
-------------------
Each Monday, or on the first of a month, from the history that `brief`
fills every morning, without any request:

    outreach-async client-report history.db --output-folder reports --logo logo.svg --note "Thank you!"
    outreach-async client-report history.db --output-folder reports --until month --since month

Each workspace gets a page with its name, such as `müller-gmbh.html`, and
nothing of the others: what was sent, replies, interested replies, bounces
and new contacts, beside those of as many days before; each day; the
campaigns with their expected ends; and deliverability. It prints on one or
two sheets of A4 or Letter, also to PDF. `--since 7d`, the default, counts
from the last audit, or from `--until`. A day is what happened from the
reading of the day before to its own. A figure is `at least` what is known
if a part is missing, and `about` if a total was spread over days without a
reading; the page says why. `--workspace NAME` writes the page of one
client.

Exit codes
----------
    0    success; rows that are skipped, unchanged or excluded are no
         failures
    1    findings at or above `--fail-on`, or a request refused by the
         service
    2    wrong usage
    3    incomplete: rows rejected, unknown or not applied, pages not read,
         an audit not added to `--history`, or standard output or a file of
         a run not written (stderr says what was applied); takes precedence
         over 1
    69   a brief was written, but could not be posted
    75   suspended: the service is down or asks for a long wait; the same
         command continues later; with neither `--journal` nor `--ledger`,
         `import` returns 3 instead
    77   not allowed: the service answered 401 or 403, to an audit for every
         workspace
    130  interrupted
"""
