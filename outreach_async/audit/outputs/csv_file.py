"""Findings as CSV for spreadsheets: one line per finding, with formulas escaped."""

from __future__ import annotations

import csv
import io
import json
from typing import Any, Final

import attrs

from outreach_async.audit.findings import Finding
from outreach_async.audit.report import Report
from outreach_async.spreadsheets import shield

_COLUMNS: Final = tuple(field.name for field in attrs.fields(Finding))


def report_csv(report: Report) -> str:
    r"""Render the findings as CSV (RFC 4180), in the order of the report.

    Strings are as the service sent them, with two exceptions: an apostrophe precedes anything that a spreadsheet would evaluate
    as a formula, and control characters are escaped, such as `\x1b`. `spreadsheets.unshield` reverses both.
    """
    page = io.StringIO()
    writer = csv.writer(page)
    writer.writerow(_COLUMNS)
    writer.writerows(_line(finding.to_dict()) for finding in report.findings)
    return page.getvalue()


def _line(values: dict[str, Any]) -> list[Any]:
    return [_cell(values[column]) for column in _COLUMNS]


def _cell(value: Any) -> Any:
    match value:
        case str():
            return shield(value)
        case dict() | list():
            return shield(json.dumps(value)) if value else ""
        case _:
            return value
