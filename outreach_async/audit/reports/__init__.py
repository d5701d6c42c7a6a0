"""Render a report or a brief as a string, with one pure function for each format.

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.audit import audit
from outreach_async.audit.reports import WRITERS, format_of, write


async def main() -> None:
    async with OutreachClient() as client:
        report = await audit(client, ["space_1"])
    print(*WRITERS)  # -> terminal json csv markdown html prometheus
    print(write(report, format_of("audit.md")).splitlines()[0])  # -> ...


anyio.run(main)
```

The formats `html` and `prometheus` need the extras of the same names. `text.StyledReport` renders a report on a rich console,
and needs the extra `cli`.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Any, Final, TypeVar

import attrs

from outreach_async._files.spreadsheets import escape_formula
from outreach_async.audit._findings import Finding
from outreach_async.audit._prometheus import render_prometheus
from outreach_async.audit._report import Report
from outreach_async.audit._rules import rule_title
from outreach_async.audit.history import DayFigures
from outreach_async.audit.reports._days import read_days
from outreach_async.audit.reports._html_page import iterate_html, render_brief_html, render_html
from outreach_async.audit.reports._page_view import Opened
from outreach_async.audit.reports._slack import render_brief_slack
from outreach_async.audit.reports._text import render_brief_markdown, render_brief_text, render_markdown, render_text
from outreach_async.audit.reports.brief import Brief
from outreach_async.errors import InvalidRequest


def render_csv(report: Report) -> Iterator[str]:
    r"""Render the findings as CSV (RFC 4180), with the title of the rule and the name of the workspace."""
    # Strings that a spreadsheet would evaluate as a formula get a leading apostrophe. Control characters become escapes such as
    # `\x1b`. `spreadsheets.unescape_formula` reverses both changes.
    line = io.StringIO()
    writer = csv.writer(line)
    writer.writerow([*(field.name for field in attrs.fields(Finding)), "title", "workspace_name"])
    for finding in report.findings:
        yield _take(line)
        added = rule_title(finding.rule), report.names.get(finding.workspace)
        writer.writerow(map(_csv_cell, (*finding.to_dict().values(), *added)))
    yield _take(line)


def _take(line: io.StringIO) -> str:
    text = line.getvalue()
    line.seek(0)
    line.truncate()
    return text


def _csv_cell(value: Any) -> Any:
    if isinstance(value, dict):
        value = json.dumps(value) if value else None
    return escape_formula(value) if isinstance(value, str) else value


def render_json(report: Report) -> Iterator[str]:
    """Render a report as one JSON object, which `Report.from_dict` can read for comparison with a later audit."""
    counts = {severity.value: count for severity, count in report.counts.items()}
    values = attrs.evolve(report, findings=[]).to_dict() | {"counts": counts}
    # Quotes in strings are escaped, so that this is the list of findings, which is the first one of this name.
    head, mark, rest = json.dumps(values, indent=1, allow_nan=False).partition('"findings": []')
    yield head
    before, after = '"findings": [', mark
    for finding in report.findings:
        text = json.dumps(finding.to_dict(), allow_nan=False, separators=(",\n   ", ": "))  # `indent` is ten times slower
        yield f"{before}\n  {{\n   {text[1:-1]}\n  }}"
        before, after = ",", "\n ]"
    yield f"{after}{rest}\n"


def schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the result of `Report.to_dict`."""
    return _load_schema("report")


def brief_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the result of `Brief.to_dict`."""
    return _load_schema("brief")


def _load_schema(name: str) -> dict[str, Any]:
    text = (files("outreach_async.audit.reports") / "data" / f"{name}.schema.json").read_text(encoding="utf-8")
    values: dict[str, Any] = json.loads(text)
    return values


def render_brief_json(brief: Brief) -> str:
    """Render a brief as one JSON object."""
    return f"{json.dumps(brief.to_dict(), indent=1, allow_nan=False)}\n"


__all__ = [
    "BRIEF_WRITERS",
    "SUFFIXES",
    "WRITERS",
    "Writer",
    "brief_schema",
    "format_of",
    "schema",
    "write",
    "write_brief",
]

Writer = Callable[[Report], str]
T = TypeVar("T")


def _joined(render: Callable[[Report], Iterable[str]]) -> Writer:
    return lambda report: "".join(render(report))


WRITERS: Final[Mapping[str, Writer]] = MappingProxyType(
    {
        "terminal": render_text,
        "json": _joined(render_json),
        "csv": _joined(render_csv),
        "markdown": render_markdown,
        "html": render_html,
        "prometheus": render_prometheus,
    }
)
"""Functions that render a report, by format name. The format `terminal` is plain text of at most 80 columns."""

BRIEF_WRITERS: Final[Mapping[str, Callable[[Brief], str]]] = MappingProxyType(
    {
        "terminal": render_brief_text,
        "json": render_brief_json,
        "markdown": render_brief_markdown,
        "html": render_brief_html,
        "slack": render_brief_slack,
    }
)
"""Functions that render a brief, by format name. The format `slack` is the JSON of a message for an incoming webhook."""

SUFFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".txt": "terminal",
        ".json": "json",
        ".csv": "csv",
        ".md": "markdown",
        ".markdown": "markdown",
        ".html": "html",
        ".htm": "html",
        ".prom": "prometheus",
    }
)
"""Format names by file suffix."""


_FIRST_BYTES: Final = {
    "terminal": re.compile(b"Mailbox audit: "),
    "json": re.compile(rb'\s*\{\s*"version":'),
    "csv": re.compile(b"(?:\xef\xbb\xbf)?rule,severity,workspace,"),
    "markdown": re.compile(b"# Mailbox audit\r?\n"),
    "html": re.compile(b"<!doctype html>.*?<title>Mailbox audit, ", re.DOTALL),
    "prometheus": re.compile(b"# HELP outreach_audit_"),
}
_FIRST_BRIEF_BYTES: Final = {
    "terminal": re.compile(b"Outreach brief: "),
    "json": re.compile(rb'\s*\{\s*"version":\s*[0-9]+,\s*"at":'),
    "markdown": re.compile(b"# Outreach brief\r?\n"),
    "html": re.compile(b"<!doctype html>.*?<title>Outreach brief, ", re.DOTALL),
    "slack": re.compile(rb'\s*\{\s*"text":\s*"Outreach brief: '),
}
_HEAD_SIZE: Final = 4096


def has_format(form: str, path: Path) -> bool:
    """Return whether a file starts like a report in the format `form`."""
    return _starts_with(_FIRST_BYTES[form], path)


def has_brief_format(form: str, path: Path) -> bool:
    """Return whether a file starts like a brief in the format `form`."""
    return _starts_with(_FIRST_BRIEF_BYTES[form], path)


def _starts_with(pattern: re.Pattern[bytes], path: Path) -> bool:
    with path.open("rb") as file:
        return pattern.match(file.read(_HEAD_SIZE)) is not None


def write(report: Report, form: str, *, days: Iterable[DayFigures] = (), opened: Opened = MappingProxyType({})) -> str:
    """Render a report as a string.

    Args:
        report: The report of an audit.
        form: Name of the format, a key of `WRITERS`.
        days: Figures of workspaces and campaigns from `History.daily`, which the format `html` shows as trends.
        opened: The times from `History.opened`, since which findings are open. The format `html` shows them beside the tasks.

    Raises:
        InvalidRequest: The format is unknown, or the extra it needs is not installed.
    """
    return "".join(iterate(report, form, days=days, opened=opened))


def iterate(
    report: Report, form: str, *, days: Iterable[DayFigures] = (), opened: Opened = MappingProxyType({})
) -> Iterator[str]:
    """Render a report in pieces, as `write` does, so that a large report need not be in memory as one string."""
    if form == "html":
        return iterate_html(report, days=read_days(days), opened=opened)
    if form in _STREAMED:
        return _STREAMED[form](report)
    return iter([_find_writer(WRITERS, form)(report)])


_STREAMED: Final = {"json": render_json, "csv": render_csv}


def write_brief(brief: Brief, form: str, *, days: Iterable[DayFigures] = (), opened: Opened = MappingProxyType({})) -> str:
    """Render a brief as a string.

    Args:
        brief: The brief.
        form: Name of the format, a key of `BRIEF_WRITERS`.
        days: Figures of workspaces from `History.daily`, which the format `html` shows as trends.
        opened: The times from `History.opened`, since which findings are open. The format `html` shows them beside the tasks.

    Raises:
        InvalidRequest: The format is unknown, or the extra it needs is not installed.
    """
    if form == "html":
        return render_brief_html(brief, days=read_days(days), opened=opened)
    return _find_writer(BRIEF_WRITERS, form)(brief)


def _find_writer(writers: Mapping[str, Callable[[T], str]], form: str) -> Callable[[T], str]:
    if form not in writers:
        raise InvalidRequest(f"form: expected one of {', '.join(writers)}, got {form!r}; pass one of them")
    return writers[form]


def format_of(name: str) -> str:
    """Return the name of the format for a file name, such as `markdown` for `audit.md`.

    Raises:
        InvalidRequest: The name's suffix belongs to no format.
    """
    form = SUFFIXES.get(PurePath(name).suffix.lower())
    if form is None:
        raise InvalidRequest(f"{name}: expected a name ending in one of {', '.join(SUFFIXES)}; rename the file, or pass a format")
    return form
