"""Show objects in notebooks and to frameworks: short reprs, HTML tables, data frames, and schemas of pydantic."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from outreach_async.errors import InvalidRequest, shorten

FrameLibrary = Literal["pandas", "polars"]

_LIBRARIES: Final = ("pandas", "polars")
MAX_REPR: Final = 2000  # characters
_MAX_LIST: Final = 1000
_MAX_VALUE: Final = 400
_MAX_ROWS: Final = 30  # of an HTML table
_MAX_COLUMNS: Final = 40
_MAX_CELL: Final = 100  # characters

TableRow = Mapping[str, Any]


def show_object(value: Any) -> str:
    """Return the repr of an attrs object, with long values and lists shortened."""
    fields = (field for field in attrs.fields(type(value)) if field.repr)
    shown = ", ".join(f"{field.name}={_show_value(getattr(value, field.name))}" for field in fields)
    return shorten(f"{type(value).__name__}({shown})", MAX_REPR - 3)


def _show_value(value: Any) -> str:
    if isinstance(value, list):
        return show_list(value)
    return shorten(repr(value[: _MAX_VALUE + 1] if isinstance(value, str) else value), _MAX_VALUE)


def show_list(items: Sequence[object]) -> str:
    """Return the repr of a list, with only the first items if it is long."""
    shown: list[str] = []
    length = 0
    for item in items:
        text = shorten(repr(item), _MAX_LIST)
        length += len(text) + 2
        if shown and length > _MAX_LIST:
            shown.append(f"... and {len(items) - len(shown):,} more")
            break
        shown.append(text)
    return f"[{', '.join(shown)}]"


def render_table(rows: Iterable[TableRow], count: int, caption: str = "") -> str:
    """Return an HTML table of the first rows, escaped and with long cells shortened."""
    first = list(islice(rows, _MAX_ROWS))
    columns = list(dict.fromkeys(name for row in first for name in row))[:_MAX_COLUMNS]
    head = "".join(map("<th>{}</th>".format, map(_escape, columns)))
    body = "".join(f"<tr>{''.join(f'<td>{_escape(row.get(name))}</td>' for name in columns)}</tr>" for row in first)
    more = f"<p>{count - len(first):,} more rows</p>" if count > len(first) else ""
    title = f"<caption>{_escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _escape(value: object) -> str:
    return "" if value is None else html.escape(shorten(str(value), _MAX_CELL))


class HtmlTable:
    """Base class of objects that a notebook shows as an HTML table."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _table(self) -> Sequence[Any]:
            """Return the rows: mappings, or objects with `to_dict`."""

    def _table_rows(self) -> Iterator[TableRow]:
        return (row if isinstance(row, Mapping) else row.to_dict() for row in self._table())

    def _repr_html_(self) -> str:
        return render_table(self._table_rows(), len(self._table()))


class Tabular(HtmlTable):
    """Base class of lists and reports of which pandas and polars make data frames."""

    __slots__ = ()

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return a data frame with a row for each item.

        They are the items of a page, a list, a campaign's steps or a
        report. An audit has a row for each finding; a bulk run, for each
        outcome; a ledger, for each run. Fields are columns under the
        service's own names.

        Args:
            library: `pandas` or `polars`; by default, the one that is
                installed, and pandas if both are.

        Raises:
            InvalidRequest: The library is not installed, or is neither
                pandas nor polars.

        Example:
            ```python
            page = await client.mailboxes.list()
            print(page.to_frame("polars")["email"].to_list())  # -> ['ada@north.example', 'bob@north.example']
            ```
        """
        chosen = choose_library(library)
        rows = [dict(row) for row in self._table_rows()]
        frames: Any = import_module(chosen)
        # polars infers types from the first 100 rows by default. A column such as `days_left_date` has strings and numbers.
        options: dict[str, Any] = {"infer_schema_length": None, "strict": False} if chosen == "polars" else {}
        return frames.DataFrame(rows, **options)


def choose_library(library: str | None, find: Callable[[str], object] = find_spec) -> str:
    if library not in {None, *_LIBRARIES}:
        raise InvalidRequest(f"library: expected 'pandas' or 'polars', got {shorten(repr(library), 40)}; pass one of them")
    for name in _LIBRARIES if library is None else (library,):
        if find(str(name)) is not None:
            return str(name)
    if library is None:
        raise InvalidRequest("library: expected pandas or polars, got neither; run: pip install pandas")
    raise InvalidRequest(f"library: expected {library}, which is not installed; run: pip install {library}")


class Serialized(HtmlTable):
    """Base class of objects with `to_dict`, which pydantic writes as JSON: FastAPI and other frameworks can return them."""

    __slots__ = ()

    # pydantic calls these two, and reads plain dicts.

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> dict[str, Any]:
        write = {"type": "function-plain", "function": lambda value: value.to_dict()}
        return {"type": "is-instance", "cls": cls, "serialization": write}

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: object, _handler: object) -> dict[str, Any]:
        return {"type": "object", "title": cls.__name__}


class TabularReport(Tabular, Serialized):
    """Base class of run, audit and ledger reports: tables, frames and JSON.

    Example:
        ```python
        report = await client.contacts.create_many([{"email": "ann@company.example"}])
        print(isinstance(report, TabularReport), report.to_frame("polars").columns)  # -> True ['outcome', 'rows']
        ```
    """

    __slots__ = ()
