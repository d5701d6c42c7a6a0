"""Render a report or a brief as Markdown. The source is readable too, for chats and issues that do not render it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from outreach_async.audit.report import Report
from outreach_async.audit.reports.brief import Brief
from outreach_async.audit.reports.document import (
    CODE,
    SOFT,
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
)
from outreach_async.audit.reports.wording import replace_unprintable

_MAX_DOMAINS: Final = 25

_SPECIAL_CHARACTERS: Final = re.compile(
    r"[\\`*\[\]<|~$@]"
    r"|(?<![^\W_])_|_(?![^\W_])"  # an underscore within a word, as in space_1, is no markup
    r"|&(?=#?\w+;)"  # a character reference
    r"|(?<!\d):(?=\S)|(?<=www)\."  # the address of a page, which would become a link, or the name of an emoji
    r"|#(?=\w)"  # a link to an issue
)
_LINE_STARTS: Final = frozenset("-+#=>")
"""Characters that begin a list, a heading, an underline or a quotation at the start of a line."""
_NUMBER: Final = re.compile(r"\d+[.)]")
"""The start of a line that Markdown would render as a numbered item."""
_BACKTICKS: Final = re.compile("`+")
_PLAIN_STYLES: Final = {"", SOFT}


def render_markdown(report: Report) -> str:
    """Render a report as Markdown, with the recommended actions before the findings."""
    return _join_blocks(build_document(report, max_domains=_MAX_DOMAINS))


def render_brief_markdown(brief: Brief) -> str:
    """Render a brief as Markdown, short enough for a chat."""
    return _join_blocks(build_brief_document(brief))


def _join_blocks(blocks: Iterable[Block]) -> str:
    lines = [line for block in blocks for line in (*_block_lines(block), "")]
    return "".join(f"{line}\n" for line in lines[:-1])


def _block_lines(block: Block) -> Iterator[str]:
    match block:
        case Title(level=level, line=line):
            yield f"{'#' * level} {_inline(line)}"
        case Paragraph(lines=lines):
            yield from _hard_breaks(map(_start, lines))
        case Entries(entries=entries, numbered=numbered):
            for number, entry in enumerate(entries, 1):
                yield from _entry_lines(entry, f"{number}. " if numbered else "- ")
        case _:
            yield from _grid_lines(block)


def _entry_lines(entry: Entry, marker: str) -> Iterator[str]:
    label = [] if entry.severity is None else [Span(entry.severity.upper(), entry.severity.value), Span(f" {entry.rule} ")]
    lines = [_start([*label, *entry.line]), *map(_start, entry.details)]
    for place, line in enumerate(_hard_breaks(lines)):
        yield f"{' ' * len(marker) if place else marker}{line}"


def _hard_breaks(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines with hard line breaks, so that they stay separate when rendered."""
    shown = [line for line in lines if line]
    yield from (f"{line}  " for line in shown[:-1])
    yield from shown[-1:]


def _start(line: Line) -> str:
    """Return a line as Markdown that is safe at the start of a paragraph or list item."""
    text = _inline(line).strip()
    if text[:1] in _LINE_STARTS:
        return f"\\{text}"
    number = _NUMBER.match(text)
    return f"{text[: number.end() - 1]}\\{text[number.end() - 1 :]}" if number else text


def _inline(line: Line, *, in_table: bool = False) -> str:
    return "".join(_render_span(span, in_table=in_table) for span in line)


def _render_span(span: Span, *, in_table: bool) -> str:
    if span.style == CODE:
        return format_code(span.text, in_table=in_table)
    text = escape_markdown(span.text)
    return text if in_table or span.style in _PLAIN_STYLES else f"**{text}**"


def escape_markdown(text: str) -> str:
    """Escape a string so that Markdown shows it verbatim within a line."""
    return _SPECIAL_CHARACTERS.sub(r"\\\g<0>", replace_unprintable(text))


def format_code(text: str, *, in_table: bool = False) -> str:
    """Return a string as a code span, in which links and markup have no effect.

    Args:
        text: The string, which is not changed, so that it can be copied.
        in_table: Whether the span is in a table, where a vertical bar must be escaped.
    """
    shown = replace_unprintable(text)
    shown = shown.replace("|", "\\|") if in_table else shown
    fence = "`" * (1 + max((len(ticks) for ticks in _BACKTICKS.findall(shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown or not shown.strip() else f"{fence}{shown}{fence}"


def _grid_lines(grid: Grid) -> Iterator[str]:
    """Yield the rows of a table with aligned columns, so that the source is readable."""
    rows = [[escape_markdown(head) for head in grid.heads]]
    rows += [[_render_span(span, in_table=True) for span in row] for row in grid.rows]
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    for row in rows:
        yield f"| {' | '.join(f'{cell:<{width}}' for cell, width in zip(row, widths, strict=True))} |"
