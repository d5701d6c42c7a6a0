r"""Files to contacts: nothing is guessed silently, and nothing is lost.

The smallest program opens a file, decides where its columns go, and creates a contact for each row. Programs here take the
service from `OUTREACH_BASE_URL`, `OUTREACH_OWNER_KEY` and `OUTREACH_WORKSPACE`:

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

The command `outreach-async import` does this and all below, with a summary, a journal and exit codes.

Formats
-------
CSV (the delimiter and a byte order mark are found), JSON Lines, Parquet (extra `parquet`) and workbooks (extra `xlsx`); CSV and
JSON Lines also as gzip. `open_file` goes by the suffix, and by the first bytes where that says nothing; `format=`, `encoding=`
and `sheet=` say it outright. `"-"` is standard input, and a stream of bytes will do. A text that is not UTF-8 is refused with a
guess at its encoding, and read only if you name it. `file.notes` is what a person should know of the file.

`open_file` reads all of a workbook, in a Python process of its own (`sys.executable`), and keeps its rows in a temporary file.
A sheet that needs more than 384 MiB of memory (some 300,000 people in 13 columns), or far too long for the size of its file, is
refused, and so is a cell of more than 131,072 characters or a row of more than 1 MiB; save it as CSV, which may be of any
length. macOS does not enforce a limit of memory: there, the process looks at its own every 10 ms. In an async program, open a
large workbook in a thread: `await anyio.to_thread.run_sync(open_file, "people.xlsx")`.

A row is a mapping, as `create_many` takes it, that knows its `line` and its `cells`. A line that cannot be read as the header
promises is a row too: its `fault` becomes the error of a `rejected` outcome, at its place.

Columns
-------
`columns_for` asks the workspace for its fields only if a column is not known without; `map_columns` is the same without a
client. A column goes where your overrides say; else where the tool that wrote the file means it (Apollo, Google Contacts,
HubSpot, Outlook and Salesforce are known by their header); else by its name, whatever its case and punctuation. A column that
nobody knows is refused, so that nothing is lost by accident. `decisions()` says it for people:

```python
from outreach_async import InvalidRequest
from outreach_async.importer import map_columns, parse_overrides

headers = ["E-mail", "Company", "Notes"]
try:
    map_columns(headers)
except InvalidRequest as error:
    print(error)  # -> unknown column 'Company' ...
columns = map_columns(headers, parse_overrides(["Company=company_name", "Notes=ignore"]))
for header, code, reason in columns.decisions():
    print(header, "->", code, f"({reason})")
# -> E-mail -> email (its name)
# -> Company -> company_name (as asked)
# -> Notes -> ignore (as asked)
```

`outreach_async.importer.mapping` keeps such decisions in a TOML file: `mapping_text(columns, "people.csv")` writes it,
`read_mapping` and `apply_mapping` make overrides of it for the next file.

Checks
------
`outreach_async.importer.checks` looks at the whole file before anything is sent: addresses, phones, countries, time zones, dates,
websites, repeated e-mails, and what a spreadsheet or a wrong encoding did to cells. The service has the last word, so all of it
warns unless `Policy.of` says `error`; then the row is never sent. E-mails and phones need the extra `validate`.

```python
from pathlib import Path

import anyio
from outreach_async.importer import map_columns, open_file
from outreach_async.importer.checks import Policy, survey

Path("people.csv").write_text("E-mail,Country\nann@company.example,France\nbo@gmial.com,Atlantis\n")


async def main() -> None:
    file = open_file("people.csv")
    found = await survey(file, map_columns(file.headers), Policy.of(["country=error"]))
    print(found.rows, "rows,", found.sent, "to send")  # -> 2 rows, 1 to send
    for kind in found.kinds.values():
        print(kind.check, kind.level, kind.first)
    # -> typo warn ...
    # -> country error ...


anyio.run(main)
```

`Checks(columns, policy).guarded(file.rows(columns))` yields the rows for `create_many` with those errors as their faults.

Cells that a spreadsheet has changed are told row by row (`row.warnings`): `4.4E+11` where a phone was, `OrlÃ©ans` where a wrong
encoding was at work. One that is worthless, such as a phone in scientific notation, costs its row.

Rejects
-------
Rows that made no contact go into a file with the columns of the input, and why. Mend it and import it again: its reasons are left
out by themselves. With a journal, `rejects_of` finds them afterwards:

```python
from pathlib import Path

import anyio
from outreach_async import Journal, OutreachClient
from outreach_async.importer import RejectsFile, columns_for, open_file, rejects_of

Path("people.csv").write_text('E-mail,City\nann@company.example,Lyon\n" ",Rome\n')


async def main() -> None:
    file = open_file("people.csv")
    journal = Journal("run.db", source=file.name, fingerprint=file.fingerprint())
    async with OutreachClient() as client:
        columns = await columns_for(client, file.headers)
        await client.contacts.create_many(file.rows(columns), journal=journal, resume=True)
    with RejectsFile("rejects.csv", file.headers) as rejects:
        for row in rejects_of(file, journal.outcomes()):
            rejects.add(row)
    print(Path("rejects.csv").read_text().splitlines()[1])
    # ->  ,Rome,3,rejected,email,...


anyio.run(main)
```

The fingerprint keeps a journal from being resumed with a file that was changed meanwhile. Of an input that came once and was
spooled, `spooled_rejects(journal)` gives the rejects from what the journal keeps.
"""

from outreach_async.importer.columns import IGNORE, Columns, map_columns, parse_overrides
from outreach_async.importer.file import File
from outreach_async.importer.formats.csv_file import CsvFile
from outreach_async.importer.lookup import columns_for
from outreach_async.importer.opening import FORMATS, Format, open_file
from outreach_async.importer.rejects import RejectsFile, is_reject, reject, rejects_of, spooled_rejects
from outreach_async.importer.rows import Remark, Row

__all__ = [
    "FORMATS",
    "IGNORE",
    "Columns",
    "CsvFile",
    "File",
    "Format",
    "RejectsFile",
    "Remark",
    "Row",
    "columns_for",
    "is_reject",
    "map_columns",
    "open_file",
    "parse_overrides",
    "reject",
    "rejects_of",
    "spooled_rejects",
]
