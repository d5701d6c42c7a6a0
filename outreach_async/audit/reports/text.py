"""Render a report or a brief as plain text of at most 80 columns, and wrap its lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from textwrap import wrap
from typing import Final

from outreach_async.audit.report import Report
from outreach_async.audit.reports.brief import Brief
from outreach_async.audit.reports.document import (
    CODE,
    STRONG,
    Block,
    Entries,
    Entry,
    Grid,
    Line,
    Paragraph,
    Span,
    Title,
    build_brief_document,
    build_document,
    plain,
)

WIDTH: Final = 80

_LABEL_WIDTH: Final = 8
"""Width of the longest name of a severity."""
_RULE_INDENT: Final = " " * 12
_MIN_NAME_WIDTH: Final = 16
_NO_BREAK: Final = "\0"
"""Placeholder for a non-breaking space. It cannot occur in a span, because spans have no control characters."""


def render_text(report: Report) -> str:
    """Render a report as plain text, with the recommended actions before the findings."""
    return _join_lines(build_document(report))


def render_brief_text(brief: Brief) -> str:
    """Render a brief as plain text."""
    return _join_lines(build_brief_document(brief))


def _join_lines(blocks: Iterable[Block]) -> str:
    return "".join(f"{plain(line)}\n" for line in lay_out(blocks, WIDTH, upper=True))


def lay_out(blocks: Iterable[Block], width: int, *, upper: bool = False) -> Iterator[Line]:
    """Yield the lines of blocks, wrapped to a width in characters.

    Args:
        blocks: The blocks of a report.
        width: Maximum length of a line; longer names are split.
        upper: Whether the headings of sections are in upper case.
    """
    earlier: Block | None = None
    for block in blocks:
        if isinstance(block, Paragraph) and isinstance(earlier, Entries | Grid):
            yield []
        earlier = block
        yield from _lay_out_block(block, width, upper=upper)


def _lay_out_block(block: Block, width: int, *, upper: bool) -> Iterator[Line]:
    match block:
        case Title(level=1):
            pass  # the first line of the report already has this title
        case Title(level=2, line=line):
            yield []
            title = plain(line)
            yield [Span(title.upper() if upper else title, STRONG)]
        case Title(line=line):
            yield from wrap_line([Span(span.text, STRONG if span.style == CODE else span.style) for span in line], width)
        case Paragraph(lines=lines):
            for line in lines:
                yield from wrap_line(line, width)
        case Entries(entries=entries):
            for entry in entries:
                yield from _lay_out_entry(entry, width)
        case _:
            yield from _lay_out_grid(block, width)


def _lay_out_entry(entry: Entry, width: int) -> Iterator[Line]:
    if entry.severity is None:
        yield from wrap_line(entry.line, width, "  ", "    ")
        return
    label = Span(f"{entry.severity.upper():<{_LABEL_WIDTH}}", entry.severity.value)
    yield from wrap_line([label, Span(f"  {entry.rule}  "), *entry.line], width, "  ", _RULE_INDENT)
    for line in entry.details:
        yield from wrap_line(line, width, _RULE_INDENT, _RULE_INDENT)


def _lay_out_grid(grid: Grid, width: int) -> Iterator[Line]:
    """Yield the rows of a table. A long name gets its own line; names are never truncated."""
    columns = list(zip([Span(head) for head in grid.heads], *grid.rows, strict=True))
    widths = [max(len(cell.text) for cell in column) for column in columns]
    room = width - sum(each + 2 for each in widths[1:])
    widths[0] = min(max(_MIN_NAME_WIDTH, room), widths[0])
    for name, *cells in zip(*columns, strict=True):
        shown = name
        if len(name.text) > widths[0]:
            yield from wrap_line([name], width)
            shown = Span("")
        row = [Span(f"{shown.text:<{widths[0]}}", shown.style)]
        for cell, each in zip(cells, widths[1:], strict=True):
            row += [Span("  " + " " * (each - len(cell.text))), cell]
        yield row


def wrap_line(line: Line, width: int, first: str = "", indent: str = "") -> Iterator[Line]:
    """Yield a line wrapped to a width. Code spans, such as DNS records, stay on one line if they fit.

    Args:
        line: The line.
        width: Maximum length of a line.
        first: Indentation of the first line.
        indent: Indentation of every further line.
    """
    kept = [Span(span.text.replace(" ", _NO_BREAK)) if _is_kept(span, width - len(indent)) else span for span in line]
    styles = iter([(character, span.style) for span in line for character in span.text])
    text = "".join(span.text for span in kept)
    for place, wrapped in enumerate(wrap(text, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)):
        margin = indent if place else first
        yield [Span(margin), *_restyle(wrapped[len(margin) :].replace(_NO_BREAK, " "), styles)]


def _is_kept(span: Span, room: int) -> bool:
    return span.style == CODE and len(span.text) <= room


def _restyle(text: str, styles: Iterator[tuple[str, str]]) -> Iterator[Span]:
    """Yield the spans of a wrapped line. Wrapping removes only spaces at the ends of lines."""
    styled = [(character, next(style for other, style in styles if other == character)) for character in text]
    for style, characters in groupby(styled, key=itemgetter(1)):
        yield Span("".join(character for character, _ in characters), style)
