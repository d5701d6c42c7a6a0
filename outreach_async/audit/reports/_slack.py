"""Render a brief as a message for an incoming webhook of Slack, in Block Kit.

Slack rejects a whole message with more than 50 blocks, or with a text that is too long. A long section continues in another
block.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from outreach_async.audit._findings import Severity
from outreach_async.audit._values import replace_unprintable
from outreach_async.audit.reports._document import (
    CODE,
    STRONG,
    Block,
    Entries,
    Line,
    Paragraph,
    Span,
    Title,
    build_document,
)
from outreach_async.audit.reports.brief import Brief
from outreach_async.errors import shorten

MAX_BLOCKS: Final = 50
MAX_SECTION: Final = 3_000
MAX_HEADER: Final = 150
"""Limits of Slack: blocks of a message, and characters of the text of a section and of a header."""

_MAX_LINE: Final = 1_000
_MAX_STOPPED: Final = 30
_SECTION: Final = 2  # level of the title of a section
_SIGNS: Final = {
    Severity.CRITICAL: ":red_circle:",
    Severity.ERROR: ":large_orange_circle:",
    Severity.WARNING: ":large_yellow_circle:",
    Severity.INFO: ":large_blue_circle:",
}
_MARKS: Final = {CODE: "`", STRONG: "*"}
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def render_brief_slack(brief: Brief) -> str:
    """Render a brief as the JSON of a Slack message, whose text is shown where blocks are not, as in notifications."""
    _, head, *rest = build_document(brief)
    sections = [list(_mark_block(head))]
    if brief.stop:
        sections[0].append(f"*Stop now: {len(brief.stop):,}*")
        sections[0] += [_mark([Span(subject, CODE)]) for subject in brief.stop[:_MAX_STOPPED]]
        if len(brief.stop) > _MAX_STOPPED:
            sections[0].append(f"and {len(brief.stop) - _MAX_STOPPED:,} more")
    for block in rest:
        if len(sections) == 1 or (isinstance(block, Title) and block.level == _SECTION):
            sections.append([])
        sections[-1] += _mark_block(block)
    header = shorten(f"{brief.title}: {brief.verdict}", MAX_HEADER - 3)
    blocks = [{"type": "header", "text": {"type": "plain_text", "text": header}}]
    for lines in sections:
        blocks += map(_section, _pack(lines))
    if len(blocks) > MAX_BLOCKS:
        blocks = [*blocks[: MAX_BLOCKS - 1], _section("The message is too long; the other formats of the brief are complete.")]
    return f"{json.dumps({'text': _escape(f'{brief.title}: {brief.verdict}'), 'blocks': blocks}, indent=1)}\n"


def _section(text: str) -> dict[str, Any]:
    # With `verbatim`, Slack does not turn addresses and names of channels into links.
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _mark_block(block: Block) -> Iterator[str]:
    match block:
        case Title(line=line):
            yield _mark([Span(span.text, STRONG) for span in line])
        case Paragraph(lines=lines):
            yield from map(_mark, lines)
        case Entries(entries=entries):
            for entry in entries:
                yield f"{_SIGNS[entry.severity] if entry.severity else '•'} {_mark(entry.line)}"
                yield from (f"      {_mark(line)}" for line in entry.details)
        case _:  # pragma: no cover - briefs have no tables
            raise AssertionError(block)


def _mark(line: Line) -> str:
    marked = ""
    for span in line:
        mark, text = _MARKS.get(span.style, ""), replace_unprintable(shorten(span.text, _MAX_LINE // 4))
        # Slack has no escape for its marks, so those within a marked text are replaced.
        text = text.replace(mark, "'") if mark else text
        marked += f"{mark}{_escape(text)}{mark}" if text.strip() else text
    return marked


def _escape(text: str) -> str:
    return replace_unprintable(text).translate(_ESCAPES)


def _pack(lines: Iterable[str]) -> Iterator[str]:
    packed = ""
    for line in lines:
        fitting = line if len(line) <= MAX_SECTION else f"{line[: MAX_SECTION - 1]}…"
        if packed and len(packed) + 1 + len(fitting) > MAX_SECTION:
            yield packed
            packed = ""
        packed = f"{packed}\n{fitting}" if packed else fitting
    yield packed
