"""Findings for a spreadsheet: a line each, and no cell that a spreadsheet would take for a formula."""

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
    r"""Write the findings as CSV (RFC 4180), in the report's order.

    Strings are as the service sent them, apart from an apostrophe before what a spreadsheet would run, and escapes such as
    `\x1b` for control characters; `spreadsheets.unshield` takes both back.
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
