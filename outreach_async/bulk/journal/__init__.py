"""The journal of a bulk run: one SQLite file that records what was sent, so that a killed run can be resumed.

A window of rows is marked (durably) before any of its rows is sent. Outcomes are recorded in batches (durably) before they are
returned. After a kill, a row below the mark without an outcome may therefore have been sent, and a row beyond the mark was not.
One `JournalWriter` holds the journal's lock during a run. Any number of `Journal` objects can read the file, even during the run.
"""

from outreach_async.bulk.journal.identity import Identity, JournalReport, MarkedWindow
from outreach_async.bulk.journal.reader import Journal
from outreach_async.bulk.journal.writer import JournalWriter, SpooledRow

__all__ = ["Identity", "Journal", "JournalReport", "JournalWriter", "MarkedWindow", "SpooledRow"]
