"""Read rows from data frames: pandas, polars, pyarrow, DuckDB, and any other object that exports an Arrow stream.

pyarrow (extra `parquet`) imports the stream. The columns are checked before anything is sent. Cells are converted to strings, as
in Parquet files that the importer reads, a few hundred rows at a time, so a large batch is never converted all at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeGuard, runtime_checkable

import attrs

from outreach_async._core.arguments import TARGET_FIELDS, is_missing, masked_repr, suggest_field, type_name
from outreach_async._wire_words import CUSTOM_CODE, STANDARD_FIELDS
from outreach_async.errors import Excluded, InvalidRequest
from outreach_async.transport._secret import mask_keys

_SLICE_SIZE: Final = 500  # number of rows converted at once, which blocks the event loop for about a millisecond
_FIELDS: Final = frozenset({"email", *STANDARD_FIELDS, *TARGET_FIELDS})
_PANDAS_INDEX: Final = re.compile(r"__index_level_[0-9]+__")  # the name of pyarrow for an unnamed index of a filtered frame
_MISSING_TEXTS: Final = frozenset({"nan", "NaT", "<NA>"})  # strings to which pandas' `astype(str)` converts missing values
_INEXACT: Final = 1e15  # the smallest whole number whose digits a float may not preserve
_MAX_SHOWN: Final = 5  # maximum number of unknown columns that an error message lists


@runtime_checkable
class ArrowStream(Protocol):
    """A data frame, or any other object that can be read as an Arrow stream.

    Data frames are those of pandas, polars, pyarrow and DuckDB.
    `create_many` reads the frame with pyarrow (extra `parquet`), batch by
    batch. Name the columns after the fields of `NewContact`, `custom_<n>`,
    `campaign` or `workspace`. An unknown column raises InvalidRequest
    before anything is sent. Its texts are read as the cells of a file, and
    blank ones, null and NaN are not sent; see `normalise` and `blank` of
    `create_many`. Numbers, dates, times and Booleans are sent as text, as
    the command `import` sends them from a Parquet file: `75001`,
    `2026-05-04`, `TRUE`. Each such column is logged as a warning and
    listed in the run's `findings`, because it may have lost leading zeros.
    `numbers="reject"` rejects such rows instead.

    pandas stores integers in a column with missing values as floats:
    `75001.0` is sent as `75001`. Its `astype(str)` converts missing values
    to the string `nan`, which is not sent; with `normalise=False`, it
    rejects the row. An unnamed pandas index is ignored.

    Example:
        ```python
        import polars

        frame = polars.DataFrame({"email": ["ann@company.example"], "city": ["Lyon"]})
        print(isinstance(frame, ArrowStream), (await client.contacts.create_many(frame)).rows)  # -> True 1
        ```
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a PyCapsule with an ArrowArrayStream, as Arrow defines it."""


@attrs.frozen
class UnsendableRow:
    """A row that cannot be converted to a contact: of a data frame, its values; or the caller's own, which cannot be read."""

    values: object
    reason: str
    excluded: bool = False

    @property
    def error(self) -> InvalidRequest | Excluded:
        return (Excluded if self.excluded else InvalidRequest)(self.reason)


FrameRow: TypeAlias = dict[str, str | None] | UnsendableRow


def is_frame(rows: object) -> TypeGuard[ArrowStream]:
    if isinstance(rows, ArrowStream):
        return True
    if isinstance(rows, Mapping) and rows and all(isinstance(column, list | tuple) for column in rows.values()):
        raise InvalidRequest("rows: expected an iterable of contacts, got a dict of columns; pass pyarrow.table(rows)")
    if type(rows).__name__.endswith("Frame") or hasattr(type(rows), "__dataframe__"):
        raise InvalidRequest(
            f"rows: expected a data frame with __arrow_c_stream__, got {type_name(rows)} without it; collect or compute a lazy"
            " frame, or upgrade the library (pandas to 2.2 or newer)"
        )
    return False


Numbers = Literal["format", "reject"]
"""What happens to values of a data frame that are not strings, such as numbers and dates. `format` sends them as text, and logs a
warning for each column. `reject` rejects the rows that contain them.

Example:
    ```python
    import polars

    frame = polars.DataFrame({"email": ["ann@company.example"], "zip": [75001]})
    report = await client.contacts.create_many(frame, numbers="reject")
    print(report.outcomes[Outcome.REJECTED])  # -> 1
    ```
"""


def read_frame(
    frame: ArrowStream, numbers: Numbers = "format", *, cleans: bool = False, nulls: bool = False
) -> tuple[Iterator[list[FrameRow]], tuple[str, ...], list[str]]:
    """Check the columns of a data frame. Return an iterator over slices of its rows, the findings, and the names of the columns.

    Missing values are left out, or `None` with `nulls`. Texts that stand for one reject the row, unless the caller `cleans` them.
    """
    try:
        import pyarrow as pa
    except ImportError:
        remedy = "run: pip install 'outreach_async[parquet]'"
        raise InvalidRequest(f"rows: pyarrow is required to read a data frame and is not installed; {remedy}") from None
    try:
        reader = pa.RecordBatchReader.from_stream(frame)
        names = [str(name) for name in reader.schema.names]
    except (pa.ArrowException, ValueError, TypeError) as error:
        reason = mask_keys("; ".join(str(argument).partition("\n")[0] for argument in error.args))
        remedy = "pass a data frame whose columns have unique names and contain strings"
        raise InvalidRequest(f"rows: expected a data frame, got {type_name(frame)} ({reason}); {remedy}") from None
    columns = [(at, name) for at, name in enumerate(names) if not _PANDAS_INDEX.fullmatch(name)]
    known = [name for _, name in columns]
    check_columns(known)
    findings = () if numbers == "reject" else tuple(_check_types((name, reader.schema.types[at]) for at, name in columns))
    read_column = _read_objects if numbers == "reject" else _read_strings
    check = partial(_check_row, refused=frozenset() if cleans else _MISSING_TEXTS)
    slices = _read_slices(reader, columns, read_column, nulls=nulls)
    return ([*map(check, rows)] for rows in slices), findings, known


def check_columns(known: Sequence[str]) -> None:
    """Check that the columns of a table are named after fields."""
    unknown = [name for name in known if name not in _FIELDS and not CUSTOM_CODE.fullmatch(name)]
    if unknown:
        codes = {name: suggest_field(name.strip().lower().replace(" ", "_").replace("-", "_")) for name in unknown[:_MAX_SHOWN]}
        shown = ", ".join(masked_repr(name) + (f" (did you mean {near!r}?)" if near else "") for name, near in codes.items())
        more = f" and {len(unknown) - _MAX_SHOWN} more" if len(unknown) > _MAX_SHOWN else ""
        expected = "columns named after the fields of NewContact, or custom_<n>"
        people = "if one says who must not be written to, first drop the rows of these people"
        raise InvalidRequest(f"rows: expected {expected}, got {shown}{more}; rename or drop these columns; {people}")
    if repeated := sorted({name for name in known if known.count(name) > 1}):
        raise InvalidRequest(f"rows: expected unique column names, got {repeated[0]!r} more than once; rename or drop a column")
    if "email" not in known:
        raise InvalidRequest("rows: expected a column 'email', got none; rename the column that contains the e-mail addresses")


def _check_types(columns: Iterable[tuple[str, Any]]) -> Iterator[str]:
    """Yield a finding about each column whose values are not strings."""
    from pyarrow import types

    from outreach_async.bulk._arrow_cells import cell_kind

    for name, kind in columns:
        if cell_kind(kind) == "text":
            continue
        what = f"rows: expected strings in column {name!r}, got {kind}"
        if cell_kind(kind) == "other":
            raise InvalidRequest(f"{what}; convert the column to strings, or drop it")
        is_number = types.is_integer(kind) or types.is_floating(kind)
        loss = ", so leading zeros or a plus sign may be lost" if is_number else ""
        yield f"{what}; its values are sent as text{loss}; convert the column to strings, or pass numbers='reject'"


def _read_slices(
    reader: Any, columns: list[tuple[int, str]], read_column: Callable[[Any], Sequence[object]], *, nulls: bool
) -> Iterator[Iterator[dict[str, Any]]]:
    fields = [name for _, name in columns]
    empty: dict[str, Any] = dict.fromkeys(fields) if nulls else {}

    def build_row(cells: tuple[Any, ...]) -> dict[str, Any]:
        pairs = zip(fields, cells, strict=True)
        return empty | {name: cell for name, cell in pairs if type(cell) is str or not (cell is None or is_missing(cell))}

    for batch in reader:
        for start in range(0, batch.num_rows, _SLICE_SIZE):
            part = batch.slice(start, _SLICE_SIZE)
            yield map(build_row, zip(*(read_column(part.column(at)) for at, _ in columns), strict=True))


def _read_objects(column: Any) -> Sequence[Any]:
    """Return the cells of a column. One that Python cannot represent, such as a date in year 30000, stays an Arrow scalar."""
    try:
        cells: list[Any] = column.to_pylist()
    except Exception:  # noqa: BLE001 - pyarrow raises its own errors, and those of datetime and decimal
        return [*map(_read_object, column)]
    return cells


def _read_object(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except Exception:  # noqa: BLE001 - as above
        return scalar


def _read_strings(column: Any) -> Sequence[object]:
    """Return the cells of a column as strings. A value that cannot be converted without a loss is returned unchanged."""
    from pyarrow import types

    from outreach_async.bulk._arrow_cells import cell_kind, to_strings

    if cell_kind(column.type) == "text":
        return _read_objects(column)
    try:
        texts = to_strings(column)
    except ValueError:  # pyarrow's own error; for example, of a time zone that this system does not know
        return _read_objects(column)
    if not types.is_floating(column.type) and cell_kind(column.type) != "bytes":
        return texts

    def is_exact(text: str, value: Any) -> bool:
        return text.encode() == value if isinstance(value, bytes) else bool(abs(value) < _INEXACT)

    pairs = zip(texts, _read_objects(column), strict=True)
    return [text if text is None or is_exact(text, value) else value for text, value in pairs]


def _check_row(values: dict[str, Any], refused: frozenset[str]) -> FrameRow:
    for name, cell in values.items():
        if cell in refused if isinstance(cell, str) else cell is not None:
            return UnsendableRow(values, f"{name}: {_describe_fault(name, cell)}")
    return values


def _describe_fault(name: str, cell: object) -> str:
    if isinstance(cell, str):
        remedy = "set missing values to null before converting a column to strings"
        return f"expected a value, got {cell!r}, the string that astype(str) returns for a missing value; {remedy}"
    if isinstance(cell, float) and abs(cell) >= _INEXACT:
        return "expected a float of at most 15 digits, got more, which are not exact; read the column as strings"
    if isinstance(cell, float) and cell.is_integer():
        got = "an integer stored as a float (pandas does this if a column has missing values)"
        return f"expected a string, got {got}; convert it: df[{name!r}] = df[{name!r}].astype('Int64').astype('string')"
    return f"expected a string, got {type_name(cell)}; convert the column to strings"
