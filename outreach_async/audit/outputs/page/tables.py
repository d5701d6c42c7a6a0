"""Tables of the page: readable as they are; the page's script makes them sortable, filterable and short."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import attrs

from outreach_async.audit.outputs.page.markup import Content, Markup, joined, tag

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Column(Generic[T]):
    """A column.

    Attributes:
        head: Its heading.
        cell: What a row shows in it.
        order: The figure that it is sorted by; by default its text is.
        figure: Whether it holds figures, which are sorted from the highest.
        what: Whether it is the text that the row is about, and the widest.
        rules: Whether it lists rules.
        minor: Whether a phone does without it.
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
        """What the style knows its cells by."""
        return " ".join(kind for kind in ("figure", "what", "rules", "minor") if getattr(self, kind)) or None


@attrs.frozen(kw_only=True)
class Pick(Generic[T]):
    """A choice that filters rows.

    Attributes:
        name: As an attribute of the rows.
        label: For people.
        value: What a row has of it.
        options: What there is to choose from: label by value; by default every value that a row has.
    """

    name: str
    label: str
    value: Callable[[T], str]
    options: Mapping[str, str] | None = None


@attrs.frozen(kw_only=True)
class View(Generic[T]):
    """A table over rows of one kind.

    Attributes:
        id: In the page.
        caption: What it holds.
        columns: From left to right; the first one names the row.
        picks: Choices that filter it.
        most: Rows that are written at most.
        rest: Where the rows are that are not written.
    """

    id: str
    caption: str
    columns: Sequence[Column[T]]
    picks: Sequence[Pick[T]] = ()
    most: int = 2000
    rest: str = "the JSON and CSV forms of this report hold all"


def table(view: View[Any], rows: Sequence[Any]) -> Markup:
    """Write a table with its filters, which stay hidden until the script runs."""
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
