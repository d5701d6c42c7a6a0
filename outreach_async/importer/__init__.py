"""Files to contacts: nothing is guessed silently, and nothing is lost.

    file = open_file("people.csv")                          # or XLSX, Parquet, JSON Lines; its header and dialect are read
    columns = await columns_for(client, file.headers, {"Company": "company_name", "Notes": "ignore"})
    async with client.contacts.create_many(file.rows(columns)) as outcomes: ...

A row of a file is a mapping, as `create_many` takes it, that knows its line. A line that cannot be read as the header promises is
a row too: the run reports it as `rejected`.
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
