"""A report written down: one pure writer for each format.

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

`terminal.report_renderable` draws the same for a rich console; it alone needs the extra `cli`.
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
"""What writes each format; `terminal` is plain text of at most 80 columns."""

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
"""The format that a file's name asks for."""


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
    """Whether a file begins as reports of a format do.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        return _BEGINNINGS[form].match(file.read(_HEAD)) is not None


def write(report: Report, form: str) -> str:
    """Write a report.

    Args:
        report: What an audit found.
        form: A key of `WRITERS`.

    Raises:
        InvalidRequest: There is no such format.
    """
    writer = WRITERS.get(form)
    if writer is None:
        raise InvalidRequest(f"form: expected one of {', '.join(WRITERS)}, got {form!r}; pass one of them")
    return writer(report)


def format_of(name: str) -> str:
    """Return the format that a file's name asks for.

    Raises:
        InvalidRequest: Its suffix tells none.
    """
    suffix = PurePath(name).suffix
    form = SUFFIXES.get(suffix.lower())
    if form is None:
        raise InvalidRequest(
            f"{name}: expected a name that ends with one of {', '.join(SUFFIXES)}; give such a one, or the format"
        )
    return form
