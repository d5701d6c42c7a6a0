"""Writers that render a report: one pure function per format.

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.audit import audit
from outreach_async.audit.outputs import WRITERS, format_of, write


async def main() -> None:
    async with OutreachClient() as client:
        report = await audit(client, ["space_1"])
    print(*WRITERS)  # -> terminal json csv markdown html
    print(write(report, format_of("audit.md")).splitlines()[0])  # -> ...


anyio.run(main)
```

`terminal.report_renderable` renders the report for a rich console; it is the only part that needs the extra `cli`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from types import MappingProxyType
from typing import Final

from outreach_async.audit.outputs.csv_file import report_csv
from outreach_async.audit.outputs.json_file import report_json, schema
from outreach_async.audit.outputs.markdown import report_markdown
from outreach_async.audit.outputs.page.page import report_html
from outreach_async.audit.outputs.text import report_text
from outreach_async.audit.report import Report
from outreach_async.errors import InvalidRequest

__all__ = ["SUFFIXES", "WRITERS", "Writer", "format_of", "schema", "write"]

Writer = Callable[[Report], str]

WRITERS: Final[Mapping[str, Writer]] = MappingProxyType(
    {"terminal": report_text, "json": report_json, "csv": report_csv, "markdown": report_markdown, "html": report_html}
)
"""Writers by format name; `terminal` is plain text of at most 80 columns."""

SUFFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {
        ".txt": "terminal",
        ".json": "json",
        ".csv": "csv",
        ".md": "markdown",
        ".markdown": "markdown",
        ".html": "html",
        ".htm": "html",
    }
)
"""Formats by file suffix."""


_BEGINNINGS: Final[Mapping[str, re.Pattern[bytes]]] = MappingProxyType(
    {
        "terminal": re.compile(b"Mailbox audit: "),
        "json": re.compile(rb'\s*\{\s*"version":'),
        "csv": re.compile(b"(?:\xef\xbb\xbf)?rule,severity,workspace,"),
        "markdown": re.compile(b"# Mailbox audit\r?\n"),
        "html": re.compile(b"<!doctype html>.*?<title>Mailbox audit, ", re.DOTALL),
    }
)
_HEAD: Final = 4096


def begins_as(form: str, path: Path) -> bool:
    """Return whether a file starts like a report of this format.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return _BEGINNINGS[form].match(file.read(_HEAD)) is not None


def write(report: Report, form: str) -> str:
    """Render a report as a string.

    Args:
        report: The report of an audit.
        form: Name of the format, a key of `WRITERS`.

    Raises:
        InvalidRequest: The format does not exist.
    """
    writer = WRITERS.get(form)
    if writer is None:
        raise InvalidRequest(f"form: expected one of {', '.join(WRITERS)}, got {form!r}; pass one of them")
    return writer(report)


def format_of(name: str) -> str:
    """Return the format for a file name.

    Raises:
        InvalidRequest: No format has the suffix of the name.
    """
    suffix = PurePath(name).suffix
    form = SUFFIXES.get(suffix.lower())
    if form is None:
        raise InvalidRequest(
            f"{name}: expected a file name that ends with one of {', '.join(SUFFIXES)}; rename the file, or pass a format"
        )
    return form
