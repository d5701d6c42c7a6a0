"""Render a report or a brief on a console, as plain text, as Markdown or for Slack.

The Markdown source is easy to read too, because some chats and issue trackers show the source. Importing this module does not
import rich (extra `cli`); rich is needed only to render a `StyledReport` on a console.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final

import attrs

from outreach_async.audit._findings import Severity
from outreach_async.audit._report import Report
from outreach_async.audit._values import replace_unprintable
from outreach_async.audit.reports._document import (
    CODE,
    SECTION,
    SOFT,
    STRONG,
    Basic,
    Entries,
    Entry,
    Grid,
    Line,
    Paragraph,
    Styled,
    Title,
    build_document,
    outline,
    plain,
)
from outreach_async.audit.reports.brief import Brief
from outreach_async.errors import InvalidRequest, shorten

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

WIDTH: Final = 80  # of plain text, in characters
_LABEL_WIDTH: Final = 8  # the longest name of a severity
_RULE_INDENT: Final = " " * 12  # of the lines below the first line of a finding
_MIN_NAME_WIDTH: Final = 11  # of the first column of a table
_NO_BREAK: Final = "\0"  # placeholder for a non-breaking space; spans have no control characters

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

_SPECIAL_CHARACTERS: Final = re.compile(
    r"[\\`*\[\]<|~$@]"
    r"|(?<![^\W_])_|_(?![^\W_])"  # an underscore, except within a word such as space_1
    r"|&(?=#?\w+;)"  # a character reference
    r"|(?<!\d):(?=\S)|(?<=www)\."  # a URL, which would become a link, or the name of an emoji
    r"|#(?=\w)"  # a reference to an issue, such as #1
)

_SPECIAL_STARTS: Final = frozenset("-+#=>")  # begin a list, a heading, an underline or a quotation at the start of a line
_NUMBERED: Final = re.compile(r"\d+[.)]")  # would become a numbered item
_BACKTICKS: Final = re.compile("`+")
_PLAIN_STYLES: Final = {"", SOFT}


def render_text(view: Report | Brief) -> str:
    return "".join(f"{plain(line)}\n" for line in lay_out(outline(build_document(view)), WIDTH, upper=True))


@attrs.frozen
class StyledReport:
    """A report or a brief that rich prints in colours and a console's width.

    Attributes:
        report: The `Report` or `Brief` to print.

    Example:
        ```python
        from rich.console import Console

        with Path("audit.txt").open("w") as file:
            Console(file=file).print(StyledReport(report))
        ```
    """

    report: Report | Brief

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        for line in lay_out(outline(build_document(self.report)), options.max_width):
            yield Text.assemble(*((span.text, _STYLES.get(span.style, "")) for span in line), overflow="fold")


def lay_out(blocks: Iterable[Basic], width: int, *, upper: bool = False) -> Iterator[Line]:
    earlier: Basic | None = None
    for block in blocks:
        if isinstance(block, Paragraph) and isinstance(earlier, Entries | Grid):
            yield []
        earlier = block
        yield from _lay_out_block(block, width, upper=upper)


def _lay_out_block(block: Basic, width: int, *, upper: bool) -> Iterator[Line]:
    match block:
        case Title(level=1):
            pass  # the first line of the report already contains the title
        case Title(level=2, line=line):
            yield []
            title = plain(line)
            yield [Styled(title.upper() if upper else title, STRONG)]
        case Title(line=line):
            yield from wrap_line([Styled(span.text, STRONG if span.style == CODE else span.style) for span in line], width)
        case Paragraph(lines=lines):
            for line in lines:
                yield from wrap_line(line, width)
        case Entries(entries=entries):
            for entry in entries:
                label, indent = list[Styled](), "    "
                if entry.severity is not None:
                    label = [
                        Styled(f"{entry.severity.upper():<{_LABEL_WIDTH}}", entry.severity.value),
                        Styled(f"  {entry.rule}  "),
                    ]
                    indent = _RULE_INDENT
                yield from wrap_line([*label, *entry.line], width, "  ", indent)
                for line in entry.details:
                    yield from wrap_line(line, width, indent, indent)
        case _:
            yield from _lay_out_grid(block, width)


def _lay_out_grid(grid: Grid, width: int) -> Iterator[Line]:
    """Yield the rows of a table. A long name gets its own line; names are never truncated."""
    columns = list(zip([Styled(head) for head in grid.heads], *grid.rows, strict=True))
    widths = [max(len(cell.text) for cell in column) for column in columns]
    room = width - sum(each + 2 for each in widths[1:])
    widths[0] = min(max(_MIN_NAME_WIDTH, room), widths[0])
    for name, *cells in zip(*columns, strict=True):
        shown = name
        if len(name.text) > widths[0]:
            yield from wrap_line([name], width)
            shown = Styled("")
        row = [Styled(f"{shown.text:<{widths[0]}}", shown.style)]
        for cell, each in zip(cells, widths[1:], strict=True):
            row += [Styled("  " + " " * (each - len(cell.text))), cell]
        yield row


def wrap_line(line: Line, width: int, first: str = "", indent: str = "") -> Iterator[Line]:
    """Wrap a line to a width, and yield the resulting lines. Code spans, such as DNS records, stay on one line if they fit."""
    room = width - len(indent)
    kept = (span.text.replace(" ", _NO_BREAK) if span.style == CODE and len(span.text) <= room else span.text for span in line)
    styles = iter([(character, span.style) for span in line for character in span.text])
    text = "".join(kept)
    for place, wrapped in enumerate(wrap(text, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)):
        margin = indent if place else first
        shown = wrapped[len(margin) :].replace(_NO_BREAK, " ")
        # Wrapping removes only spaces at the ends of lines, so the styles of the characters follow in order.
        styled = [(character, next(style for other, style in styles if other == character)) for character in shown]
        groups = groupby(styled, key=itemgetter(1))
        yield [Styled(margin), *(Styled("".join(character for character, _ in part), style) for style, part in groups)]


def render_markdown(view: Report | Brief) -> str:
    lines = [line for block in outline(build_document(view)) for line in (*_markdown_block(block), "")]
    return "".join(f"{line}\n" for line in lines[:-1])


def _markdown_block(block: Basic) -> Iterator[str]:
    match block:
        case Title(level=level, line=line):
            yield f"{'#' * level} {_markdown_line(line)}"
        case Paragraph(lines=lines):
            yield from _hard_breaks(map(_markdown_start, lines))
        case Entries(entries=entries, numbered=numbered):
            for number, entry in enumerate(entries, 1):
                yield from _markdown_entry(entry, f"{number}. " if numbered else "- ")
        case _:
            rows = [[escape_markdown(head) for head in block.heads]]
            rows += [[_markdown_span(span, in_table=True) for span in row] for row in block.rows]
            widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
            rows.insert(1, ["-" * width for width in widths])
            for row in rows:
                yield f"| {' | '.join(f'{cell:<{width}}' for cell, width in zip(row, widths, strict=True))} |"


def _markdown_entry(entry: Entry, marker: str) -> Iterator[str]:
    label = [] if entry.severity is None else [Styled(entry.severity.upper(), entry.severity.value), Styled(f" {entry.rule} ")]
    lines = [_markdown_start([*label, *entry.line]), *map(_markdown_start, entry.details)]
    for place, shown in enumerate(_hard_breaks(lines)):
        yield f"{' ' * len(marker) if place else marker}{shown}"


def _hard_breaks(lines: Iterable[str]) -> Iterator[str]:
    shown = [line for line in lines if line]
    yield from (f"{line}  " for line in shown[:-1])
    yield from shown[-1:]


def _markdown_start(line: Line) -> str:
    """Return a line as Markdown. Escape its start if Markdown would render the line as a list, a heading or a quotation."""
    text = _markdown_line(line).strip()
    if text[:1] in _SPECIAL_STARTS:
        return f"\\{text}"
    number = _NUMBERED.match(text)
    return f"{text[: number.end() - 1]}\\{text[number.end() - 1 :]}" if number else text


def _markdown_line(line: Line) -> str:
    return "".join(map(_markdown_span, line))


def _markdown_span(span: Styled, *, in_table: bool = False) -> str:
    if span.style == CODE:
        return format_code(span.text, in_table=in_table)
    text = escape_markdown(span.text)
    return text if in_table or span.style in _PLAIN_STYLES else f"**{text}**"


def escape_markdown(text: str) -> str:
    return _SPECIAL_CHARACTERS.sub(r"\\\g<0>", replace_unprintable(text))


def format_code(text: str, *, in_table: bool = False) -> str:
    shown = replace_unprintable(text)
    shown = shown.replace("|", "\\|") if in_table else shown
    fence = "`" * (1 + max((len(ticks) for ticks in _BACKTICKS.findall(shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown or not shown.strip() else f"{fence}{shown}{fence}"


MAX_BLOCKS: Final = 50
MAX_SECTION: Final = 3_000
MAX_HEADER: Final = 150
"""Limits of Slack: blocks of a message, and characters of the text of a section and of a header. It rejects a longer message."""

_MAX_LINE: Final = 1_000
_SIGNS: Final = {
    Severity.CRITICAL: ":red_circle:",
    Severity.ERROR: ":large_orange_circle:",
    Severity.WARNING: ":large_yellow_circle:",
    Severity.INFO: ":large_blue_circle:",
}
_LINK: Final = re.compile(r"https?://[^\s<>|]+", re.IGNORECASE)
_MARKS: Final = {CODE: "`", STRONG: "*"}
_ESCAPES: Final = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def require_link(link: str | None) -> None:
    """Check the URL to which a message links, before an audit of minutes.

    Raises:
        InvalidRequest: It is not a URL that a message of Slack can have.

    Example:
        ```python
        require_link("https://reports.example/monday.html")
        ```
    """
    if link is not None and not _LINK.fullmatch(link):
        raise InvalidRequest(f"link: expected an http or https URL without blanks, got {link!r}; percent-encode it, or omit it")


def render_brief_slack(brief: Brief, link: str | None = None) -> str:
    """Render a brief as the JSON of a Slack message, whose text is shown where blocks are not, as in notifications."""
    require_link(link)
    _, head, *rest = outline(build_document(brief))
    sections = [[*_mark_block(head), *([f"<{_escape(link)}|Open the whole report>"] if link else [])]]
    for block in rest:
        if len(sections) == 1 or (isinstance(block, Title) and block.level == SECTION):
            sections.append([])
        sections[-1] += _mark_block(block)
    header = shorten(f"{brief.title}: {brief.verdict}", MAX_HEADER - 3)
    blocks = [{"type": "header", "text": {"type": "plain_text", "text": header}}]
    for lines in sections:
        blocks += map(_slack_section, _pack(lines))
    if len(blocks) > MAX_BLOCKS:
        blocks = [
            *blocks[: MAX_BLOCKS - 1],
            _slack_section("The message is too long; the other formats of the brief are complete."),
        ]
    return f"{json.dumps({'text': _escape(f'{brief.title}: {brief.verdict}'), 'blocks': blocks}, indent=1)}\n"


def _slack_section(text: str) -> dict[str, Any]:
    # With `verbatim`, Slack does not turn addresses and names of channels into links.
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _mark_block(block: Basic) -> Iterator[str]:
    match block:
        case Title(line=line):
            yield _mark([Styled(span.text, STRONG) for span in line])
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
