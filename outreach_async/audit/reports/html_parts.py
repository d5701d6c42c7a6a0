"""Parts of the HTML page: a builder that escapes what it is given, inline SVG charts, and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, Generic, TypeVar

import attrs

from outreach_async.audit.reports.wording import format_figure, replace_unprintable

_VOID_ELEMENTS: Final = frozenset({"input", "rect", "circle", "line", "path"})
"""Elements without content. SVG elements need the closing slash; HTML elements ignore it."""

Content = object
"""A string, a number or markup; `None` renders nothing."""


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """Render an element.

    Args:
        name: Name of the element.
        content: Content of the element; escaped unless it is markup.
        attributes: Attributes by name: `_` becomes `-`, and a trailing `_` is dropped (`class_`, `for_`). `True` renders an
            attribute without a value; `False` and `None` omit it.
    """
    written = "".join(_render_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{written}/>" if name in _VOID_ELEMENTS else f"<{name}{written}>{join_markup(content)}</{name}>")


def join_markup(content: Iterable[Content]) -> Markup:
    """Concatenate contents."""
    return Markup("".join(map(_escape, content)))


def render_name(text: str, /, **attributes: str | None) -> Markup:
    """Render a name from outside; `bdi` keeps right-to-left characters from affecting the surrounding text."""
    return tag("bdi", text, **attributes)


def _escape(content: Content) -> str:
    if content is None:
        return ""
    return content if isinstance(content, Markup) else escape(replace_unprintable(str(content)))


def _render_attribute(key: str, value: str | float | bool | None) -> str:  # noqa: FBT001 - HTML has boolean attributes
    written = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {written}" if value is True else f' {written}="{escape(replace_unprintable(str(value)))}"'


_WIDTH: Final = 340
_ROW_HEIGHT: Final = 34
_LABEL_HEIGHT: Final = 15
_BAR_HEIGHT: Final = 10
_FIGURE_WIDTH: Final = 44
"""Width reserved for the figure at the end of a bar."""

_RADIUS: Final = 58
_CIRCUMFERENCE: Final = 2 * math.pi * _RADIUS
_MAX_LABEL: Final = 44
"""Maximum characters of a label."""

_HEIGHT: Final = 250
_FLOOR: Final = 222


@attrs.frozen
class Bar:
    """A bar of a bar chart.

    Attributes:
        label: Label above the bar.
        parts: Length of each part, by the CSS class that colours it.
        end: Figure at the end of the bar.
    """

    label: str
    parts: Mapping[str, float]
    end: str


def render_gauge(score: float | None, tone: str) -> Markup:
    """Render a score from 0 to 100 as a ring."""
    spoken = "No score" if score is None else f"Score {score:g} of 100"
    return _render_svg(
        *(140, 140, spoken, "gauge"),
        tag("circle", class_="ring", cx=70, cy=70, r=_RADIUS),
        _render_arc(score, tone) if score else None,
        tag("text", "-" if score is None else f"{score:g}", class_="big", x=70, y=80, text_anchor="middle"),
        tag("text", "of 100", class_="soft", x=70, y=100, text_anchor="middle"),
    )


def render_bars(
    title: str, note: str, lines: Sequence[Bar], *, full: float | None = None, legend: Markup | None = None
) -> Markup:
    """Render a horizontal bar chart.

    Args:
        title: Title of the chart.
        note: Explanation of the chart.
        lines: The bars, from top to bottom.
        full: Length that fills the whole width; by default that of the longest bar.
        legend: Legend of the colours.
    """
    most = full or max((sum(line.parts.values()) for line in lines), default=0) or 1
    drawn = (_render_bar(line, at * _ROW_HEIGHT, most) for at, line in enumerate(lines))
    spoken = "; ".join(f"{line.label}: {line.end}" for line in lines)
    return _render_figure(
        title, note, _render_svg(_WIDTH, max(1, len(lines)) * _ROW_HEIGHT, f"{title}. {spoken}", "", *drawn), legend
    )


def render_columns(title: str, note: str, counts: Sequence[tuple[str, int, str]]) -> Markup:
    """Render a column chart.

    Args:
        title: Title of the chart.
        note: Explanation of the chart.
        counts: Label, count and CSS class of each column, from left to right.
    """
    most = max((count for _, count, _ in counts), default=0) or 1
    width = _WIDTH / len(counts)
    drawn = (_render_column(each, at * width, width, most) for at, each in enumerate(counts))
    spoken = "; ".join(f"{label}: {count:,}" for label, count, _ in counts)
    axis = tag("line", class_="axis", x1=0, y1=_FLOOR + 0.5, x2=_WIDTH, y2=_FLOOR + 0.5)
    return _render_figure(title, note, _render_svg(_WIDTH, _HEIGHT, f"{title}. {spoken}", "", *drawn, axis))


def render_legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """Render a legend from pairs of CSS class and meaning."""
    return tag("ul", *(tag("li", meaning, class_=kind) for kind, meaning in entries), class_="key", aria_hidden="true")


def _render_figure(title: str, note: str, *drawn: Markup | None) -> Markup:
    return tag("figure", tag("figcaption", title, tag("small", note)), *drawn, class_="card")


def _render_svg(width: int, height: int, spoken: str, kind: str, *drawn: Markup | None) -> Markup:
    return tag("svg", *drawn, class_=kind or None, viewBox=f"0 0 {width} {height}", role="img", aria_label=spoken)


def _render_arc(score: float, tone: str) -> Markup:
    length = _CIRCUMFERENCE * min(100.0, score) / 100
    return tag(
        "circle",
        class_=f"ring arc {tone}",
        cx=70,
        cy=70,
        r=_RADIUS,
        stroke_dasharray=f"{length:.1f} {_CIRCUMFERENCE:.1f}",
        transform="rotate(-90 70 70)",
    )


def _render_bar(line: Bar, top: int, most: float) -> Markup:
    room, left = _WIDTH - _FIGURE_WIDTH, 0.0
    drawn = [tag("rect", class_="track", x=0, y=top + _LABEL_HEIGHT + 3, width=room, height=_BAR_HEIGHT, rx=3)]
    for kind, length in line.parts.items():
        wide = room * length / most
        if wide > 0:
            drawn.append(
                tag(
                    "rect", class_=kind, x=f"{left:.1f}", y=top + _LABEL_HEIGHT + 3, width=f"{wide:.1f}", height=_BAR_HEIGHT, rx=3
                )
            )
        left += wide
    label = line.label if len(line.label) <= _MAX_LABEL else f"{line.label[: _MAX_LABEL - 1]}…"
    return join_markup(
        (
            tag("text", label, x=0, y=top + 11, direction="ltr"),
            *drawn,
            tag("text", line.end, x=_WIDTH, y=top + _LABEL_HEIGHT + _BAR_HEIGHT + 2, text_anchor="end"),
        )
    )


def _render_column(each: tuple[str, int, str], left: float, width: float, most: int) -> Markup:
    label, count, kind = each
    tall = (_FLOOR - 22) * count / most
    middle = f"{left + width / 2:.1f}"
    top = _FLOOR - max(tall, 2 if count else 0)
    return join_markup(
        (
            tag(
                "rect",
                class_=kind,
                x=f"{left + 2:.1f}",
                y=f"{top:.1f}",
                width=f"{width - 4:.1f}",
                height=f"{_FLOOR - top:.1f}",
                rx=3,
            ),
            tag("text", format_figure(count) if count else "", x=middle, y=f"{top - 6:.1f}", text_anchor="middle"),
            tag("text", label, class_="soft", x=middle, y=_FLOOR + 18, text_anchor="middle"),
        )
    )


T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Column(Generic[T]):
    """A column of a table.

    Attributes:
        head: Heading of the column.
        cell: Returns the content of a row's cell.
        sort_value: Returns the number to sort by; by default the cell's text is used.
        figure: Whether the column holds figures, which are sorted from the highest first.
        what: Whether this is the main, widest column.
        rules: Whether the column lists rules.
        minor: Whether the column is hidden on phones and in print.
    """

    head: str
    cell: Callable[[T], Content]
    sort_value: Callable[[T], float | None] | None = None
    figure: bool = False
    what: bool = False
    rules: bool = False
    minor: bool = False

    @property
    def classes(self) -> str | None:
        """CSS classes of the column's cells."""
        return " ".join(kind for kind in ("figure", "what", "rules", "minor") if getattr(self, kind)) or None


@attrs.frozen(kw_only=True)
class Filter(Generic[T]):
    """A drop-down that filters rows.

    Attributes:
        name: Name of the data attribute on the rows.
        label: Label of the drop-down.
        value: Returns the value of a row.
        options: Labels of the choices, by value; by default, every value of the rows.
    """

    name: str
    label: str
    value: Callable[[T], str]
    options: Mapping[str, str] | None = None


@attrs.frozen(kw_only=True)
class TableSpec(Generic[T]):
    """A table over rows of one kind.

    Attributes:
        id: Id of the element.
        caption: Caption of the table.
        columns: Columns from left to right; the first is the row's heading.
        filters: Drop-downs that filter the rows.
        max_rows: Maximum rows in the page.
        omitted_note: Note on where to find the omitted rows.
    """

    id: str
    caption: str
    columns: Sequence[Column[T]]
    filters: Sequence[Filter[T]] = ()
    max_rows: int = 2000
    omitted_note: str = "the JSON report contains all of them, and the CSV report all findings"


def render_table(view: TableSpec[Any], rows: Sequence[Any]) -> Markup:
    """Render a table with its filters; the filters are hidden until the script runs."""
    shown = rows[: view.max_rows]
    cut = f" The first {len(shown):,} of {len(rows):,}; {view.omitted_note}." if len(shown) < len(rows) else ""
    written = tag(
        "table",
        tag("caption", f"{view.caption}{cut}"),
        tag("thead", tag("tr", *map(_render_heading, view.columns))),
        tag("tbody", *(_render_row(view, row) for row in shown)),
    )
    return join_markup((_render_filters(view, shown), tag("div", written, class_="card table", data_rows=len(shown), id=view.id)))


_ALL_OPTION: Final = "All"


def _render_filters(view: TableSpec[Any], rows: Sequence[Any]) -> Markup:
    search = tag("label", "Search", tag("input", type="search", name="words", autocomplete="off"), class_="wide")
    return tag(
        "form", search, *(_render_filter(pick, rows) for pick in view.filters), class_="tools", hidden=True, aria_controls=view.id
    )


def _render_filter(pick: Filter[Any], rows: Iterable[Any]) -> Markup:
    options = pick.options or {value: value for value in sorted(set(map(pick.value, rows)))}
    choices = (tag("option", label, value=value) for value, label in options.items())
    return tag("label", pick.label, tag("select", tag("option", _ALL_OPTION, value=""), *choices, name=pick.name))


def _render_heading(column: Column[Any]) -> Markup:
    return tag("th", column.head, scope="col", class_=column.classes)


def _render_row(view: TableSpec[Any], row: Any) -> Markup:
    cells = (_render_cell(column, row, first=at == 0) for at, column in enumerate(view.columns))
    return tag("tr", *cells, **{f"data-{pick.name}": pick.value(row) for pick in view.filters})


def _render_cell(column: Column[Any], row: Any, *, first: bool) -> Markup:
    return tag(
        "th" if first else "td",
        column.cell(row),
        scope="row" if first else None,
        class_=column.classes,
        data_label=None if first else column.head,
        data_value=_format_sort_value(column, row),
    )


def _format_sort_value(column: Column[Any], row: Any) -> str | None:
    if column.sort_value is None:
        return None
    value = column.sort_value(row)
    return "" if value is None else f"{value:g}"
