"""Convert the cells of Arrow columns to strings, as spreadsheets and CSV files show them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
from pyarrow import types

Array: TypeAlias = Any  # a `pyarrow.Array`; pyarrow has no type annotations

_TRAILING_ZEROS: Final = re.compile(r"(?:\.0+|(\.[0-9]*[1-9])0+)(?=Z|[+-][0-9]{4}$|$)")
_OFFSET: Final = re.compile(r"([+-][0-9]{2})([0-9]{2})$")

_KINDS: Final[dict[Literal["text", "bytes", "value"], tuple[Callable[[Any], bool], ...]]] = {
    "text": (types.is_string, types.is_large_string, types.is_string_view, types.is_null),
    "bytes": (types.is_binary, types.is_large_binary, types.is_binary_view),
    "value": (
        *(types.is_boolean, types.is_integer, types.is_floating, types.is_decimal),
        *(types.is_date, types.is_time, types.is_timestamp),
    ),
}


def cell_kind(kind: Any) -> Literal["text", "bytes", "value", "other"]:
    """Return what the cells of a column of this type are; `other` cannot be converted. A column of nulls has text."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    for name, predicates in _KINDS.items():
        if any(is_kind(kind) for is_kind in predicates):
            return name
    return "other"


def to_strings(column: Array) -> list[str | None]:
    """Return the cells of a convertible column as strings; `None` for null and NaN."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if cell_kind(kind) == "bytes":
        return [None if value is None else value.decode("utf-8", "replace") for value in column.to_pylist()]
    if types.is_boolean(kind):
        return [None if value is None else str(value).upper() for value in column.to_pylist()]
    # pyarrow's cast writes the shortest string with the same value. Unlike `str`, it does so for 32-bit floats, too.
    texts: list[str | None] = column.cast(pa.string()).to_pylist()
    if types.is_floating(kind):
        pairs = zip(column.to_pylist(), texts, strict=True)
        whole = ((None if value is None or math.isnan(value) else value, text) for value, text in pairs)
        return [None if value is None else str(int(value)) if value.is_integer() else text for value, text in whole]
    if types.is_time(kind) or types.is_timestamp(kind):
        return [text and _OFFSET.sub(r"\1:\2", _TRAILING_ZEROS.sub(r"\1", text.replace(" ", "T"))) for text in texts]
    return texts
