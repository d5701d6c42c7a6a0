"""Render a report or a brief for a terminal with rich (extra `cli`). No other module of the audit imports this module."""

from __future__ import annotations

from typing import Final

import attrs
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from outreach_async.audit.report import Report
from outreach_async.audit.reports.brief import Brief
from outreach_async.audit.reports.document import SOFT, STRONG, build_brief_document, build_document
from outreach_async.audit.reports.text import lay_out

_STYLES: Final = {
    "critical": "bold white on red",
    "error": "bold red",
    "warning": "yellow",
    "info": "cyan",
    "good": "green",
    "score critical": "red",
    "score warning": "yellow",
    "score good": "green",
    "score info": "dim",
    STRONG: "bold",
    SOFT: "dim",
}


@attrs.frozen
class StyledReport:
    """A report or brief as a rich renderable: the content of the plain text, coloured and wrapped to the console width."""

    report: Report | Brief

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines of the report or brief."""
        shown = self.report
        blocks = build_brief_document(shown) if isinstance(shown, Brief) else build_document(shown)
        for line in lay_out(blocks, options.max_width):
            yield Text.assemble(*((span.text, _STYLES.get(span.style, "")) for span in line), overflow="fold")
