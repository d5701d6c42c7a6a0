"""Convert the cells of Arrow columns to strings, as spreadsheets and CSV files show them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow import types

Array: TypeAlias = Any
"""A `pyarrow.Array`; pyarrow has no type annotations."""

_TRAILING_ZEROS: Final = re.compile(r"(?:\.0+|(\.[0-9]*[1-9])0+)(?=Z|[+-][0-9]{4}$|$)")
_OFFSET: Final = re.compile(r"([+-][0-9]{2})([0-9]{2})$")


def is_text(kind: Any) -> bool:
    """Return whether the cells of a column of this type are strings, or all null."""
    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return any(is_kind(kind) for is_kind in (types.is_string, types.is_large_string, types.is_string_view, types.is_null))


def is_bytes(kind: Any) -> bool:
    """Return whether the cells of a column of this type are bytes."""
    return any(is_kind(kind) for is_kind in (types.is_binary, types.is_large_binary, types.is_binary_view))


def is_convertible(kind: Any) -> bool:
    """Return whether the cells of a column of this type can be converted to strings."""
    return _find_writer(kind) is not None


def to_strings(column: Array) -> list[str | None]:
    """Return the cells of a column as strings; `None` for null, NaN, and every cell of a nested column."""
    write = _find_writer(column.type)
    return [None] * len(column) if write is None else [*write(column)]


_Writer: TypeAlias = Callable[[Array], Sequence[str | None]]


def _find_writer(kind: Any) -> _Writer | None:
    if types.is_dictionary(kind):
        return (lambda column: to_strings(column.dictionary_decode())) if is_convertible(kind.value_type) else None
    return next((write for write, predicates in _WRITERS if any(is_kind(kind) for is_kind in predicates)), None)


def _cast(column: Array) -> list[str | None]:
    texts: list[str | None] = column.cast(pa.string()).to_pylist()
    return texts


def _format_booleans(column: Array) -> list[str | None]:
    return [None if value is None else str(value).upper() for value in column.to_pylist()]


def _format_floats(column: Array) -> list[str | None]:
    """Return each float as the shortest string with the same value. Unlike `str`, pyarrow's cast does this for 32-bit floats."""
    pairs = zip(column.to_pylist(), _cast(column), strict=True)
    return [
        None if value is None or math.isnan(value) else str(int(value)) if value.is_integer() else text for value, text in pairs
    ]


def _format_times(column: Array) -> list[str | None]:
    return [text and _OFFSET.sub(r"\1:\2", _TRAILING_ZEROS.sub(r"\1", text.replace(" ", "T"))) for text in _cast(column)]


def _decode_bytes(column: Array) -> list[str | None]:
    return [None if value is None else value.decode("utf-8", "replace") for value in column.to_pylist()]


_WRITERS: Final[tuple[tuple[_Writer, tuple[Callable[[Any], bool], ...]], ...]] = (
    (_cast, (types.is_string, types.is_large_string, types.is_string_view, types.is_integer, types.is_decimal)),
    (_cast, (types.is_null, types.is_date)),
    (_format_booleans, (types.is_boolean,)),
    (_format_floats, (types.is_floating,)),
    (_format_times, (types.is_time, types.is_timestamp)),
    (_decode_bytes, (is_bytes,)),
)
"""Functions that convert cells to strings, each with predicates for the column types that it converts."""
