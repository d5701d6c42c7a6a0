"""Import files in parts, on several processes or machines."""

from outreach_async.spread.planning import ImportPlan, Part, plan
from outreach_async.spread.task import Connection, FailedRow, PartReport, SpreadReport, failed_rows, import_part, merge_reports

__all__ = [
    "Connection",
    "FailedRow",
    "ImportPlan",
    "Part",
    "PartReport",
    "SpreadReport",
    "failed_rows",
    "import_part",
    "merge_reports",
    "plan",
]
