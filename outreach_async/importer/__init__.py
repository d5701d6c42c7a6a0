r"""Read, map and check files of contacts.

Columns are mapped to fields, values are checked, and failed rows are
collected. Every guess is reported, and no row is lost. A minimal import
opens a file, maps its columns, and creates a contact for each row. The
programs on this page read the service's address and credentials from
`OUTREACH_BASE_URL`, `OUTREACH_OWNER_KEY` and `OUTREACH_WORKSPACE`:

```python
from pathlib import Path

import anyio
from outreach_async import OutreachClient
from outreach_async.importer import columns_for, open_file

Path("people.csv").write_text("E-mail;First Name;Plan\nann@company.example;Ann;gold\n")


async def main() -> None:
    async with OutreachClient() as client:
        file = open_file("people.csv")
        columns = await columns_for(client, file.headers)
        report = await client.contacts.create_many(file.rows(columns))
    print(columns.codes, report.outcomes["added"])  # -> ('email', 'first_name', 'custom_1') 1


anyio.run(main)
```

The command `outreach-async import` does this and everything below, with a
summary, a journal and exit codes. An `ImportJob` does the same in a
program: it maps the columns, checks the whole file, and yields the rows as
the check has judged them.

Formats
-------
`open_file` reads CSV, JSON Lines, Parquet (extra `parquet`) and workbooks
(extra `xlsx`); CSV and JSON Lines may be gzipped. The suffix determines
the format; if the suffix is unknown, the first bytes do. `format=`
overrides the detected format, `encoding=` sets the encoding of text,
`sheet=` selects a sheet of a workbook, and `header_row=` is the line or
row of the column names if a title is above them. Pass `"-"` for standard
input, or a binary stream. For text that is not UTF-8, the error shows a
cell in each possible encoding. `file.notes` contains notes for the user.

The delimiter of a CSV file (comma, semicolon, tab or `|`) is detected;
`delimiter=` is any other. Quotes that backslashes escape, quotes beside
blanks, apostrophes as quotes, and lines that are one quoted cell each are
read with a note, if the first 100 lines fit their header better so. A row
with fewer cells than the header is rejected, because a line break without
quotes may have divided it; `short_rows="pad"` adds the blank cells that
some programs, such as Outlook, omit at the end of a row.

In a workbook, rows and columns that are hidden, for example by a filter,
are read like the others, with a note; `hidden="skip"` leaves the rows out.
Only XLSX and XLSM state what is hidden. Each row of merged cells gets
their value.

A whole workbook is read in a separate Python process. It may need 384 MiB
of memory (about 300,000 people in 13 columns); save a larger one as CSV.
In an async program, open it in a thread: `await
anyio.to_thread.run_sync(open_file, "people.xlsx")`. Any file may have
1,000 columns and 131,072 characters per cell. A longer cell rejects its
row in CSV and JSON Lines, and otherwise the file, as does a row of more
than 1 MiB, or a Parquet file that unpacks to 64 MiB and 200 times its
size.

A file is opened once: if another file replaces it, its own bytes are still
read. If its size or its modification time changes, every later read
raises `InvalidRequest`, so that rows of two versions are not mixed.

A row is a mapping that `create_many` accepts, with `line` and `cells`;
`blank="clear"` clears the fields of blank cells. A line that does not
match the header becomes a row with a `fault`: `create_many` reports it as
`rejected`, with the fault as its error.

Columns
-------
`columns_for` requests the workspace's fields only if a column cannot be
mapped without them; `map_columns` maps columns without a client. Your
overrides take precedence. Next, the columns of known tools are mapped:
exports of Apollo, Evaboot, Google Contacts, HubSpot, Klaviyo, LinkedIn
(Connections.csv), Mailchimp, Meta lead forms, Outlook, PhantomBuster,
Pipedrive, Salesforce, Shopify, SuiteCRM and ZoomInfo are recognised by the
header. Last, the column's name is compared, regardless of case, accents
and punctuation, with the names of fields and with common names in English,
German, French, Spanish, Portuguese, Dutch, Italian, Polish and Czech. If a
name has several meanings, the other columns determine the meaning: beside
a column "Vorname", "Name" is the surname. A column that is still unknown
or ambiguous is an error. `decisions()` explains each column:

```python
from outreach_async import InvalidRequest
from outreach_async.importer import map_columns, parse_overrides

headers = ["E-mail", "Firma", "Titel", "Notes"]
try:
    map_columns(headers)
except InvalidRequest as error:
    print(error)  # -> ambiguous column 'Titel': --map Titel=title (or ignore)
columns = map_columns(headers, parse_overrides(["Titel=title", "Notes=ignore"]))
for header, code, reason in columns.decisions():
    print(header, "->", code, f"({reason})")
# -> E-mail -> email (by name)
# -> Firma -> company_name (common name)
# -> Titel -> title (override)
# -> Notes -> ignore (override)
```

Several columns may map to one field, in the order of the overrides: for
each row, the first of them that has a value counts. Exports of known tools
use this, too, such as the work e-mail of HubSpot where the e-mail is
blank. Two columns that map to one field only by their names are an error,
because their order is unknown:

```python
from outreach_async.importer import map_columns, parse_overrides

columns = map_columns(["Home", "Work"], parse_overrides(["Work=email", "Home=email"]))
print(columns.sources["email"])  # -> (1, 0)
```

Columns that say who must not be written to are never sent. They map to
`opt_out` ("Unsubscribed", "Do not contact", "Hard bounce reason"; every
text but the usual negatives forbids), `opt_in` ("Accepts marketing"; a
negative forbids) or `email_status` (a status such as "bounced" or
"unsubscribed" forbids). A blank says nothing. Columns about telephones,
such as "Do Not Call", are ignored. A column that only looks like one of
these is an error, also with `ignore_unknown`, until an override decides.

A column may also map to `campaign` or `workspace`: each row then goes to
the campaign that it names, by id or name. The command recognises a column
such as "Campaign" if every value is the id or the name of a campaign.
Otherwise, such a column is an error until an override maps or ignores it.
A row whose campaign does not exist is rejected. See
`outreach_async.Target`.

`import --save-mapping FILE` writes these decisions to a file, in the order
of preference, and `--mapping FILE` reads them. If columns are unknown, a
new file has proposals for you to complete.

Checks
------
The command reads the whole file before anything is sent, and judges
exactly the values that it would send. Cells become values in one way for
all formats, and `row.warnings` names each change: removed blanks, guards
(`="01234"`) and labels (`p:+44...`), decoded notations (`&eacute;`,
`_x000D_`), the first of several values, the address in
`Ann <ann@company.example>`. Missing values (`NULL`, `-`) are not sent.
What may be meant, such as the surname Null, is sent with a warning. A lost
value, such as an error (`#N/A`), a placeholder (`{{name}}`) or a phone
number that became `4.4E+11`, costs the value and not the contact; a lost
e-mail address rejects its row.

The values are then checked. Only the service decides what it accepts, so a
check only warns by default. `--check country=error` rejects a row with a
finding, `country=drop` leaves the value out, and `country=off` checks
nothing. A lost value has the level of the check of its field:
`phone=error` rejects its row. `cells=error` rejects rows with any change
of a cell; with `cells=off`, every cell is sent as it is. The checks of
e-mail addresses and phone numbers need the extra `validate`.

A row of a person who must not be written to, as a column says, has the
outcome `excluded`, which is no failure. So has every other row with this
e-mail, but a deleted record excludes only itself. Only `consent=warn` or
`consent=off` sends these rows. In Python:

```python
from pathlib import Path

from outreach_async.importer import map_columns, open_file

Path("list.csv").write_text("E-mail,Work phone,Unsubscribed\nann@company.example,4.4E+11,\nbo@acme.example,,yes\n")
file = open_file("list.csv")
columns = map_columns(file.headers)
print([row.excluded or dict(row) for row in file.rows(columns)])
# -> [{'email': 'ann@company.example'}, "column 'Unsubscribed' says 'yes'"]
ann, bo = file.rows(columns, checks=["cells=off", "consent=off"])
print(ann["work_phone"], bo["email"])  # -> 4.4E+11 bo@acme.example
```

Other people who must not be written to are in lists, which
`read_exclusions` reads: see `outreach_async.guides.excluding`.

Gate
----
`MappedFile.check(gate=Gate())` finds out, before the first row is sent,
how many addresses are invalid, have bounced, are of roles, of disposable
or free providers, or of domains without a mail server, and what the column
of a verifier (`email_status`) says. With `exclude=` of `create_many`, the
report's `exclusions` withhold the bad addresses, and its `require` raises
if too many are risky. The command has `--gate`.

Rejects
-------
A rejects file contains the failed rows (outcome `rejected`, `not_applied`
or `unknown`), with the columns of the input and the reason. Fix the rows
and import the rejects file; the import ignores the columns that this file
adds. If the cells do not show why the row failed, the column `_text` has
its text: of a line that does not fit the header or is not CSV or JSON, of
a row with a damaged value, and with `--repeats error` of a repeated
e-mail. Such a row is rejected until its `_text` is blank: correct the
cells, and clear `_text`. If only blank cells are missing at the end of the
row, clear it alone.

With a journal, `results_of(file, filter(is_reject, journal.outcomes()))`
finds the failed rows after the run. A journal with
`fingerprint=file.fingerprint()` is never resumed with a file that has
changed since the first run, or of which other rows are read (`sheet`,
`header_row`, `hidden`). If the journal stores the rows (`spool=True`),
`spooled_rejects(journal)` returns them.
"""

from outreach_async.importer._checks import CheckPolicy
from outreach_async.importer._columns import Columns, columns_for, map_columns, parse_overrides
from outreach_async.importer._erasing import erase_rows, read_people
from outreach_async.importer._exclusions import add_exclusions, read_exclusions
from outreach_async.importer._failed import FailedRows
from outreach_async.importer._formats import FORMATS, open_file
from outreach_async.importer._gate import Gate, GateReport
from outreach_async.importer._groups import RowGroup
from outreach_async.importer._job import ImportJob, MappedFile, Preflight
from outreach_async.importer._mapping import UnmappedColumns, read_mapping
from outreach_async.importer._results import (
    FindingsFile,
    RejectsFile,
    ResultsFile,
    RowOutcome,
    is_reject,
    results_of,
    spooled_rejects,
)
from outreach_async.importer._rows import Row, RowFinding
from outreach_async.importer._source import InputChanged, Span, StoredFile
from outreach_async.importer._table import File

__all__ = [
    "FORMATS",
    "CheckPolicy",
    "Columns",
    "FailedRows",
    "File",
    "FindingsFile",
    "Gate",
    "GateReport",
    "ImportJob",
    "InputChanged",
    "MappedFile",
    "Preflight",
    "RejectsFile",
    "ResultsFile",
    "Row",
    "RowFinding",
    "RowGroup",
    "RowOutcome",
    "Span",
    "StoredFile",
    "UnmappedColumns",
    "add_exclusions",
    "columns_for",
    "erase_rows",
    "is_reject",
    "map_columns",
    "open_file",
    "parse_overrides",
    "read_exclusions",
    "read_mapping",
    "read_people",
    "results_of",
    "spooled_rejects",
]
