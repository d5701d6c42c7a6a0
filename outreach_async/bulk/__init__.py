"""Creating any number of contacts, many at a time, with an honest outcome for every row.

The data's way: source (pulled on demand) -> one in flight per order key -> engine -> outcome -> caller. Memory is bounded by a
window, whatever the input: a row is pulled only while fewer than a window of rows have not reached the caller.
"""

from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.report import BulkReport
from outreach_async.bulk.run import BulkRun, Order, Outcomes

__all__ = ["BulkReport", "BulkRun", "ContactOutcome", "Order", "Outcomes"]
