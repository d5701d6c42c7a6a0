"""Creating any number of contacts, many at a time, with an honest outcome for every row.

The data's way: source (pulled on demand) -> marked in the journal -> one in flight per order key -> flow (rate, gate, breaker) ->
engine -> outcome -> journal -> caller. Memory is bounded by a window, whatever the input: a row is pulled only while fewer than a
window of rows have not reached the caller.
"""

from outreach_async.bulk.journal import Journal
from outreach_async.bulk.order import Order
from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.bulk.pace import BulkProgress
from outreach_async.bulk.pipeline import Outcomes
from outreach_async.bulk.repeats import Repeats
from outreach_async.bulk.report import BulkReport
from outreach_async.bulk.run import BulkRun

__all__ = ["BulkProgress", "BulkReport", "BulkRun", "ContactOutcome", "Journal", "Order", "Outcomes", "Repeats"]
