"""The journal of a bulk run: one SQLite file that knows what was sent, so that a run can be killed and go on.

The data's way: a window of rows is marked (durable) before any of it is sent; outcomes are recorded in groups (durable)
before they are handed out. So after a kill, a row below the mark without an outcome may have been sent, and one beyond the
mark never was. One `Writer` holds a journal, with a lock for the time of its run; any number of `Journal` objects read it,
also beside a run.
"""

from outreach_async.bulk.journal.reading import Journal
from outreach_async.bulk.journal.spool import SpooledRow
from outreach_async.bulk.journal.values import Identity, JournalReport, Window
from outreach_async.bulk.journal.writer import Writer

__all__ = ["Identity", "Journal", "JournalReport", "SpooledRow", "Window", "Writer"]
