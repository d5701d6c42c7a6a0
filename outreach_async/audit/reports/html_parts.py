"""Parts of the HTML page: a builder that escapes its content, inline SVG charts, and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, Generic, TypeVar

import attrs

from outreach_async.audit.reports.wording import format_figure, replace_unprintable

_VOID_ELEMENTS: Final = frozenset({"input", "rect", "circle", "line", "path"})
"""Elements without content. SVG elements need the closing slash; for HTML elements, it has no effect."""

Content = object
"""Content of an element: a string, a number or markup; `None` renders nothing."""


class Markup(str):
    """A string of HTML, which is not escaped again."""

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
    """Concatenate content into one string of HTML."""
    return Markup("".join(map(_escape, content)))


def render_name(text: str, /, **attributes: str | None) -> Markup:
    """Render an untrusted name. `bdi` prevents right-to-left characters from affecting the surrounding text."""
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
"""Maximum number of characters of a bar's label."""

_HEIGHT: Final = 250
_FLOOR: Final = 222


@attrs.frozen
class Bar:
    """A bar of a bar chart.

    Attributes:
        label: Label above the bar.
        length: Length of the bar.
        end: Figure at the end of the bar.
        tone: CSS class that colours the bar.
    """

    label: str
    length: float
    end: str
    tone: str


def render_gauge(score: float | None, tone: str) -> Markup:
    """Render a score from 0 to 100 as a ring."""
    circle: dict[str, float] = {"cx": 70, "cy": 70, "r": _RADIUS}
    arc = None
    if score:
        dashes = f"{_CIRCUMFERENCE * min(100.0, score) / 100:.1f} {_CIRCUMFERENCE:.1f}"
        arc = tag("circle", class_=f"ring arc {tone}", **circle, stroke_dasharray=dashes, transform="rotate(-90 70 70)")
    return tag(
        "svg",
        tag("circle", class_="ring", **circle),
        arc,
        tag("text", "-" if score is None else f"{score:g}", class_="big", x=70, y=80, text_anchor="middle"),
        tag("text", "of 100", class_="soft", x=70, y=100, text_anchor="middle"),
        class_="gauge",
        viewBox="0 0 140 140",
        role="img",
        aria_label="No score" if score is None else f"Score {score:g} of 100",
    )


def render_bars(
    title: str, note: str, bars: Sequence[Bar], *, full: float | None = None, legend: Mapping[str, str] | None = None
) -> Markup:
    """Render a horizontal bar chart.

    Args:
        title: Title of the chart.
        note: Explanation of the chart.
        bars: The bars, from top to bottom.
        full: Length that fills the whole width; by default, the length of the longest bar.
        legend: Meaning of each colour, by its CSS class.
    """
    most = full or max(bar.length for bar in bars) or 1
    drawn = [_render_bar(bar, index * _ROW_HEIGHT, most) for index, bar in enumerate(bars)]
    spoken = "; ".join(f"{bar.label}: {bar.end}" for bar in bars)
    key = [tag("li", meaning, class_=tone) for tone, meaning in (legend or {}).items()]
    legend_list = tag("ul", *key, class_="key", aria_hidden="true") if key else None
    return _render_chart(title, note, len(bars) * _ROW_HEIGHT, spoken, drawn, legend_list)


def render_columns(title: str, note: str, counts: Sequence[tuple[str, int, str]]) -> Markup:
    """Render a column chart.

    Args:
        title: Title of the chart.
        note: Explanation of the chart.
        counts: Label, count and CSS class of each column, from left to right.
    """
    most = max(count for _, count, _ in counts) or 1
    width = _WIDTH / len(counts)
    drawn = [_render_column(column, index * width, width, most) for index, column in enumerate(counts)]
    drawn.append(tag("line", class_="axis", x1=0, y1=_FLOOR + 0.5, x2=_WIDTH, y2=_FLOOR + 0.5))
    return _render_chart(title, note, _HEIGHT, "; ".join(f"{label}: {count:,}" for label, count, _ in counts), drawn)


def _render_chart(title: str, note: str, height: int, spoken: str, drawn: Iterable[Markup], *legend: Markup | None) -> Markup:
    chart = tag("svg", *drawn, viewBox=f"0 0 {_WIDTH} {height}", role="img", aria_label=f"{title}. {spoken}")
    return tag("figure", tag("figcaption", title, tag("small", note)), chart, *legend, class_="card")


def _render_bar(bar: Bar, top: int, most: float) -> Markup:
    room, y = _WIDTH - _FIGURE_WIDTH, top + _LABEL_HEIGHT + 3
    width = room * bar.length / most
    label = bar.label if len(bar.label) <= _MAX_LABEL else f"{bar.label[: _MAX_LABEL - 1]}…"
    return join_markup(
        (
            tag("text", label, x=0, y=top + 11, direction="ltr"),
            tag("rect", class_="track", x=0, y=y, width=room, height=_BAR_HEIGHT, rx=3),
            tag("rect", class_=bar.tone, x="0.0", y=y, width=f"{width:.1f}", height=_BAR_HEIGHT, rx=3) if width > 0 else None,
            tag("text", bar.end, x=_WIDTH, y=top + _LABEL_HEIGHT + _BAR_HEIGHT + 2, text_anchor="end"),
        )
    )


def _render_column(column: tuple[str, int, str], left: float, width: float, most: int) -> Markup:
    label, count, tone = column
    middle = f"{left + width / 2:.1f}"
    height = max((_FLOOR - 22) * count / most, 2 if count else 0)
    top = _FLOOR - height
    size = {"width": f"{width - 4:.1f}", "height": f"{_FLOOR - top:.1f}"}
    return join_markup(
        (
            tag("rect", class_=tone, x=f"{left + 2:.1f}", y=f"{top:.1f}", **size, rx=3),
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
        classes: CSS classes: `figure` for figures, which are sorted with the highest first; `what` for the main, widest column;
            `rules` for a list of rules; `minor` for a column that is hidden on phones and in print.
    """

    head: str
    cell: Callable[[T], Content]
    sort_value: Callable[[T], float | None] | None = None
    classes: str | None = None


@attrs.frozen(kw_only=True)
class Filter(Generic[T]):
    """A drop-down that filters rows.

    Attributes:
        name: Name of the rows' data attribute, without `data-`.
        label: Label of the drop-down.
        value: Returns the value by which a row is filtered.
        options: Labels of the choices, by value; by default, each value that occurs in the rows.
    """

    name: str
    label: str
    value: Callable[[T], str]
    options: Mapping[str, str] | None = None


@attrs.frozen(kw_only=True)
class TableSpec(Generic[T]):
    """The definition of a table whose rows have one type.

    Attributes:
        id: Id of the element.
        caption: Caption of the table.
        columns: Columns from left to right; the first is the row's heading.
        filters: Drop-downs that filter the rows.
        max_rows: Maximum number of rows of the table that the page contains.
    """

    id: str
    caption: str
    columns: Sequence[Column[T]]
    filters: Sequence[Filter[T]] = ()
    max_rows: int = 2000


def render_table(view: TableSpec[Any], rows: Sequence[Any]) -> Markup:
    """Render a table with its filters. The filters are hidden until the script of the page runs."""
    shown = rows[: view.max_rows]
    rest = "the JSON report contains all of them, and the CSV report all findings"
    cut = f" The first {len(shown):,} of {len(rows):,}; {rest}." if len(shown) < len(rows) else ""
    table = tag(
        "table",
        tag("caption", f"{view.caption}{cut}"),
        tag("thead", tag("tr", *(tag("th", column.head, scope="col", class_=column.classes) for column in view.columns))),
        tag("tbody", *(_render_row(view, row) for row in shown)),
    )
    search = tag("label", "Search", tag("input", type="search", name="words", autocomplete="off"), class_="wide")
    filters = (_render_filter(filter_, shown) for filter_ in view.filters)
    form = tag("form", search, *filters, class_="tools", hidden=True, aria_controls=view.id)
    return join_markup((form, tag("div", table, class_="card table", data_rows=len(shown), id=view.id)))


def _render_filter(filter_: Filter[Any], rows: Iterable[Any]) -> Markup:
    options = filter_.options or {value: value for value in sorted(set(map(filter_.value, rows)))}
    choices = (tag("option", label, value=value) for value, label in options.items())
    return tag("label", filter_.label, tag("select", tag("option", "All", value=""), *choices, name=filter_.name))


def _render_row(view: TableSpec[Any], row: Any) -> Markup:
    cells = (_render_cell(column, row, is_first=column is view.columns[0]) for column in view.columns)
    return tag("tr", *cells, **{f"data-{filter_.name}": filter_.value(row) for filter_ in view.filters})


def _render_cell(column: Column[Any], row: Any, *, is_first: bool) -> Markup:
    value = column.sort_value(row) if column.sort_value else None
    return tag(
        "th" if is_first else "td",
        column.cell(row),
        scope="row" if is_first else None,
        class_=column.classes,
        data_label=None if is_first else column.head,
        data_value=f"{value:g}" if value is not None else "" if column.sort_value else None,
    )
