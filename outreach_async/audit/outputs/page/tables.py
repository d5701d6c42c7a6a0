"""HTML tables that are readable as they are; the page's script adds sorting, filtering and paging."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import attrs

from outreach_async.audit.outputs.page.markup import Content, Markup, joined, tag

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
