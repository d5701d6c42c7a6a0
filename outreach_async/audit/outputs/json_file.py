"""A report as JSON, and the JSON Schema that describes it."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from outreach_async.audit.report import Report


def report_json(report: Report) -> str:
    """Render a report as one JSON object; a later audit can be compared with it."""
    return f"{json.dumps(report.to_dict(), indent=1, allow_nan=False)}\n"


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the result of `Report.to_dict`."""
    text = (files("outreach_async.audit.outputs") / "data" / "report.schema.json").read_text(encoding="utf-8")
    described: dict[str, Any] = json.loads(text)
    return described
