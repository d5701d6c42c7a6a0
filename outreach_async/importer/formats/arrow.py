"""Convert Arrow columns to strings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyarrow import types

from outreach_async.importer.suspects import Flaw, number_flaw

Array: TypeAlias = Any
"""A `pyarrow.Array`; pyarrow has no type annotations."""

_ZEROS: Final = re.compile(r"(?:\.0+|(\.[0-9]*[1-9])0+)(?=Z|[+-][0-9]{4}$|$)")
_OFFSET: Final = re.compile(r"([+-][0-9]{2})([0-9]{2})$")


def is_text(kind: Any) -> bool:
    """Return whether the cells of a column of this type can be written as strings."""
    return _writer(kind) is not None


def texts_of(column: Array) -> list[str]:
    """Return the cells of a column as strings. Nulls and NaN are blank; every cell of a nested column is blank."""
    write = _writer(column.type)
    return [""] * len(column) if write is None else [text or "" for text in write(column)]


def flaws_of(at: int, column: Array, texts: Iterable[str]) -> dict[int, Flaw]:
    """Return the flaws of a column's cells by row, given the cells as strings."""
    if types.is_binary(column.type) or types.is_large_binary(column.type):
        return {row: Flaw(at, "bytes", "the cell contains bytes that are not UTF-8", fatal=True) for row in _unreadable(column)}
    if not (types.is_integer(column.type) or types.is_floating(column.type)):
        return {}
    exact = types.is_integer(column.type)  # a float preserves 15 digits
    return {row: number_flaw(at, text, exact=exact) for row, text in enumerate(texts) if text.lstrip("-").isdigit()}


_Writer: TypeAlias = Callable[[Array], list[str | None]]


def _writer(kind: Any) -> _Writer | None:
    if types.is_dictionary(kind):
        return _decoded if is_text(kind.value_type) else None
    return next((write for is_kind, write in _WRITERS if is_kind(kind)), None)


def _cast(column: Array) -> list[str | None]:
    texts: list[str | None] = column.cast(pa.string()).to_pylist()
    return texts


def _decoded(column: Array) -> list[str | None]:
    return list(texts_of(column.dictionary_decode()))


def _booleans(column: Array) -> list[str | None]:
    return [None if value is None else str(value).upper() for value in column.to_pylist()]


def _floats(column: Array) -> list[str | None]:
    """Return floats in their shortest exact form. For four-byte floats, only a cast knows it."""
    pairs = zip(column.to_pylist(), _cast(column), strict=True)
    return [
        None if value is None or math.isnan(value) else str(int(value)) if value.is_integer() else text for value, text in pairs
    ]


def _times(column: Array) -> list[str | None]:
    return [text and _OFFSET.sub(r"\1:\2", _ZEROS.sub(r"\1", text.replace(" ", "T"))) for text in _cast(column)]


def _bytes(column: Array) -> list[str | None]:
    return [None if value is None else value.decode("utf-8", "replace") for value in column.to_pylist()]


def _unreadable(column: Array) -> list[int]:
    """Return the rows whose bytes are not UTF-8. Old programs write strings as bytes, so bytes are read as strings."""
    return [row for row, value in enumerate(column.to_pylist()) if value is not None and not _is_utf8(value)]


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


_WRITERS: Final[tuple[tuple[Callable[[Any], bool], _Writer], ...]] = (
    (types.is_string, _cast),
    (types.is_large_string, _cast),
    (types.is_string_view, _cast),
    (types.is_integer, _cast),
    (types.is_decimal, _cast),
    (types.is_null, _cast),
    (types.is_boolean, _booleans),
    (types.is_floating, _floats),
    (types.is_date, _cast),
    (types.is_time, _times),
    (types.is_timestamp, _times),
    (types.is_binary, _bytes),
    (types.is_large_binary, _bytes),
)
