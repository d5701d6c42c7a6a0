"""Parts of the HTML page: a builder that escapes what it is given, inline SVG charts, and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final, Generic, TypeVar

import attrs

from outreach_async.audit.reports.wording import figure, printable

_EMPTY: Final = frozenset({"input", "rect", "circle", "line", "path"})
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
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{written}/>" if name in _EMPTY else f"<{name}{written}>{joined(content)}</{name}>")


def joined(content: Iterable[Content]) -> Markup:
    """Concatenate contents."""
    return Markup("".join(map(_escaped, content)))


def name(text: str, /, **attributes: str | None) -> Markup:
    """Render a name from outside; `bdi` keeps right-to-left characters from affecting the surrounding text."""
    return tag("bdi", text, **attributes)


def _escaped(content: Content) -> str:
    if content is None:
        return ""
    return content if isinstance(content, Markup) else escape(printable(str(content)))


def _attribute(key: str, value: str | float | bool | None) -> str:  # noqa: FBT001 - HTML has boolean attributes
    written = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {written}" if value is True else f' {written}="{escape(printable(str(value)))}"'


_WIDTH: Final = 340
_ROW: Final = 34
_LABEL: Final = 15
_BAR: Final = 10
_FIGURES: Final = 44
"""Width reserved for the figure at the end of a bar."""

_RADIUS: Final = 58
_ROUND: Final = 2 * math.pi * _RADIUS
_LONGEST: Final = 44
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


def gauge(score: float | None, tone: str) -> Markup:
    """Render a score from 0 to 100 as a ring."""
    spoken = "No score" if score is None else f"Score {score:g} of 100"
    return _svg(
        *(140, 140, spoken, "gauge"),
        tag("circle", class_="ring", cx=70, cy=70, r=_RADIUS),
        _arc(score, tone) if score else None,
        tag("text", "-" if score is None else f"{score:g}", class_="big", x=70, y=80, text_anchor="middle"),
        tag("text", "of 100", class_="soft", x=70, y=100, text_anchor="middle"),
    )


def bars(title: str, note: str, lines: Sequence[Bar], *, full: float | None = None, legend: Markup | None = None) -> Markup:
    """Render a horizontal bar chart.

    Args:
        title: Title of the chart.
        note: Explanation of the chart.
        lines: The bars, from top to bottom.
        full: Length that fills the whole width; by default that of the longest bar.
        legend: Legend of the colours.
    """
    most = full or max((sum(line.parts.values()) for line in lines), default=0) or 1
    drawn = (_line(line, at * _ROW, most) for at, line in enumerate(lines))
    spoken = "; ".join(f"{line.label}: {line.end}" for line in lines)
    return _figure(title, note, _svg(_WIDTH, max(1, len(lines)) * _ROW, f"{title}. {spoken}", "", *drawn), legend)


def columns(title: str, note: str, counts: Sequence[tuple[str, int, str]]) -> Markup:
    """Render a column chart.

    Args:
        title: Title of the chart.
        note: Explanation of the chart.
        counts: Label, count and CSS class of each column, from left to right.
    """
    most = max((count for _, count, _ in counts), default=0) or 1
    width = _WIDTH / len(counts)
    drawn = (_column(each, at * width, width, most) for at, each in enumerate(counts))
    spoken = "; ".join(f"{label}: {count:,}" for label, count, _ in counts)
    axis = tag("line", class_="axis", x1=0, y1=_FLOOR + 0.5, x2=_WIDTH, y2=_FLOOR + 0.5)
    return _figure(title, note, _svg(_WIDTH, _HEIGHT, f"{title}. {spoken}", "", *drawn, axis))


def key(entries: Iterable[tuple[str, str]]) -> Markup:
    """Render a legend from pairs of CSS class and meaning."""
    return tag("ul", *(tag("li", meaning, class_=kind) for kind, meaning in entries), class_="key", aria_hidden="true")


def _figure(title: str, note: str, *drawn: Markup | None) -> Markup:
    return tag("figure", tag("figcaption", title, tag("small", note)), *drawn, class_="card")


def _svg(width: int, height: int, spoken: str, kind: str, *drawn: Markup | None) -> Markup:
    return tag("svg", *drawn, class_=kind or None, viewBox=f"0 0 {width} {height}", role="img", aria_label=spoken)


def _arc(score: float, tone: str) -> Markup:
    length = _ROUND * min(100.0, score) / 100
    return tag(
        "circle",
        class_=f"ring arc {tone}",
        cx=70,
        cy=70,
        r=_RADIUS,
        stroke_dasharray=f"{length:.1f} {_ROUND:.1f}",
        transform="rotate(-90 70 70)",
    )


def _line(line: Bar, top: int, most: float) -> Markup:
    room, left = _WIDTH - _FIGURES, 0.0
    drawn = [tag("rect", class_="track", x=0, y=top + _LABEL + 3, width=room, height=_BAR, rx=3)]
    for kind, length in line.parts.items():
        wide = room * length / most
        if wide > 0:
            drawn.append(tag("rect", class_=kind, x=f"{left:.1f}", y=top + _LABEL + 3, width=f"{wide:.1f}", height=_BAR, rx=3))
        left += wide
    label = line.label if len(line.label) <= _LONGEST else f"{line.label[: _LONGEST - 1]}…"
    return joined(
        (
            tag("text", label, x=0, y=top + 11, direction="ltr"),
            *drawn,
            tag("text", line.end, x=_WIDTH, y=top + _LABEL + _BAR + 2, text_anchor="end"),
        )
    )


def _column(each: tuple[str, int, str], left: float, width: float, most: int) -> Markup:
    label, count, kind = each
    tall = (_FLOOR - 22) * count / most
    middle = f"{left + width / 2:.1f}"
    top = _FLOOR - max(tall, 2 if count else 0)
    return joined(
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
            tag("text", figure(count) if count else "", x=middle, y=f"{top - 6:.1f}", text_anchor="middle"),
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
        order: Returns the number to sort by; by default the cell's text is used.
        figure: Whether the column holds figures, which are sorted from the highest first.
        what: Whether this is the main, widest column.
        rules: Whether the column lists rules.
        minor: Whether the column is hidden on phones and in print.
    """

    head: str
    cell: Callable[[T], Content]
    order: Callable[[T], float | None] | None = None
    figure: bool = False
    what: bool = False
    rules: bool = False
    minor: bool = False

    @property
    def classes(self) -> str | None:
        """CSS classes of the column's cells."""
        return " ".join(kind for kind in ("figure", "what", "rules", "minor") if getattr(self, kind)) or None


@attrs.frozen(kw_only=True)
class Pick(Generic[T]):
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
class View(Generic[T]):
    """A table over rows of one kind.

    Attributes:
        id: Id of the element.
        caption: Caption of the table.
        columns: Columns from left to right; the first is the row's heading.
        picks: Drop-downs that filter the rows.
        most: Maximum rows in the page.
        rest: Note on where to find the omitted rows.
    """

    id: str
    caption: str
    columns: Sequence[Column[T]]
    picks: Sequence[Pick[T]] = ()
    most: int = 2000
    rest: str = "the JSON report contains all of them, and the CSV report all findings"


def table(view: View[Any], rows: Sequence[Any]) -> Markup:
    """Render a table with its filters; the filters are hidden until the script runs."""
    shown = rows[: view.most]
    cut = f" The first {len(shown):,} of {len(rows):,}; {view.rest}." if len(shown) < len(rows) else ""
    written = tag(
        "table",
        tag("caption", f"{view.caption}{cut}"),
        tag("thead", tag("tr", *map(_head, view.columns))),
        tag("tbody", *(_row(view, row) for row in shown)),
    )
    return joined((_tools(view, shown), tag("div", written, class_="card table", data_rows=len(shown), id=view.id)))


_ANY: Final = "All"


def _tools(view: View[Any], rows: Sequence[Any]) -> Markup:
    search = tag("label", "Search", tag("input", type="search", name="words", autocomplete="off"), class_="wide")
    return tag("form", search, *(_pick(pick, rows) for pick in view.picks), class_="tools", hidden=True, aria_controls=view.id)


def _pick(pick: Pick[Any], rows: Iterable[Any]) -> Markup:
    options = pick.options or {value: value for value in sorted(set(map(pick.value, rows)))}
    choices = (tag("option", label, value=value) for value, label in options.items())
    return tag("label", pick.label, tag("select", tag("option", _ANY, value=""), *choices, name=pick.name))


def _head(column: Column[Any]) -> Markup:
    return tag("th", column.head, scope="col", class_=column.classes)


def _row(view: View[Any], row: Any) -> Markup:
    cells = (_cell(column, row, first=at == 0) for at, column in enumerate(view.columns))
    return tag("tr", *cells, **{f"data-{pick.name}": pick.value(row) for pick in view.picks})


def _cell(column: Column[Any], row: Any, *, first: bool) -> Markup:
    return tag(
        "th" if first else "td",
        column.cell(row),
        scope="row" if first else None,
        class_=column.classes,
        data_label=None if first else column.head,
        data_value=_order(column, row),
    )


def _order(column: Column[Any], row: Any) -> str | None:
    if column.order is None:
        return None
    value = column.order(row)
    return "" if value is None else f"{value:g}"
