"""Write a table to a file: CSV for spreadsheets, JSON Lines or Parquet, according to the suffix of its name."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from outreach_async._files.atomic import atomic_file
from outreach_async._files.optional import require_module

# The start of a formula. The last four characters are full-width forms, which East Asian spreadsheet programs also accept. A
# formula may follow apostrophes or quotation marks: `unescape_formula` removes one apostrophe, so `'=1` is escaped as `''=1`, and
# a program that reads `"=1` may remove the quotation mark.
_FORMULA: Final = r"['\"]*[=+\-@\t\n\uff1d\uff0b\uff0d\uff20]"
_CELL_START: Final = r"(?<![^,;|\t\n])"  # the start of the string, or the position after a possible delimiter
_UNESCAPED_FORMULA: Final = re.compile(f"{_CELL_START}(?={_FORMULA})")
_ESCAPED_FORMULA: Final = re.compile(f"{_CELL_START}'(?={_FORMULA})")

_CONTROL: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_CONTROL_CODE: Final = "x(?:0[0-8b-f]|1[0-9a-f]|7f|[89][0-9a-f])"
_UNESCAPED_CONTROL: Final = re.compile(rf"(?<!\\)(?:(\\*+)({_CONTROL})|(\\++)(?={_CONTROL_CODE}))")
_ESCAPED_CONTROL: Final = re.compile(rf"(?<!\\)(\\++)({_CONTROL_CODE})")

# What `escape_formula` may change in cells that are joined by commas, after a comma. One search of a row is much faster than two
# substitutions in each cell, and nearly no row has anything to escape.
_UNESCAPED: Final = re.compile(rf"[,;|\t\n\\\x00-\x1f\x7f-\x9f](?:(?<![,;|\t\n])|{_FORMULA})")


def escape_formula(text: str) -> str:
    r"""Escape a string for a spreadsheet cell; `unescape_formula` restores it."""
    # An apostrophe before a formula keeps a spreadsheet from evaluating it, also after a delimiter, where the cell may be split.
    # Control characters other than newline and tab become escapes such as `\x1b`.
    return _UNESCAPED_FORMULA.sub("'", _UNESCAPED_CONTROL.sub(_escape_control, text))


def _escape_cells(texts: Sequence[str]) -> Sequence[str]:
    """Return `escape_formula` of each text."""
    return texts if _UNESCAPED.search("," + ",".join(texts)) is None else [*map(escape_formula, texts)]


def unescape_formula(text: str) -> str:
    """Return the string that was passed to `escape_formula`."""
    return _ESCAPED_CONTROL.sub(_unescape_control, _ESCAPED_FORMULA.sub("", text))


def _escape_control(match: re.Match[str]) -> str:
    """Double the backslashes of a match, and replace its control character, if any, with a hexadecimal escape."""
    return 2 * match[3] if match[2] is None else f"{2 * match[1]}\\x{ord(match[2]):02x}"


def _unescape_control(match: re.Match[str]) -> str:
    backslashes, is_escape = divmod(len(match[1]), 2)
    return "\\" * backslashes + (chr(int(match[2][1:], 16)) if is_escape else match[2])


WriteRow: TypeAlias = Callable[[Mapping[str, Any]], object]
"""A function that writes a row, from its values by column."""

_Write: TypeAlias = Callable[[BinaryIO, Sequence[str]], AbstractContextManager[WriteRow]]
_BATCH_SIZE: Final = 10_000  # rows of a row group in a Parquet file


@contextmanager
def open_table(
    path: Path, columns: Sequence[str], is_finished: Callable[[], bool] = lambda: True, kinds: Mapping[str, type] | None = None
) -> Iterator[WriteRow]:
    """Yield a function that writes a row of a CSV, JSON Lines or Parquet file, as the suffix of its name says.

    The file appears when the `with` block ends, beside its path for an unfinished run. In Parquet, columns without a kind are
    texts; by default, the kinds are those of findings and results.
    """
    formats: dict[str, _Write] = {
        ".jsonl": _write_json_lines,
        ".parquet": partial(_write_parquet, kinds=_KINDS if kinds is None else kinds),
    }
    with (
        atomic_file(path, private=True, is_finished=is_finished) as draft,
        formats.get(path.suffix.lower(), _write_csv)(draft, columns) as write,
    ):
        yield write


@contextmanager
def _write_csv(draft: BinaryIO, columns: Sequence[str]) -> Iterator[WriteRow]:
    # A response of the service may contain lone surrogates, which UTF-8 cannot encode.
    text = TextIOWrapper(draft, encoding="utf-8", errors="backslashreplace", newline="")
    writer = csv.writer(text)
    writer.writerow(_escape_cells(columns))
    yield lambda row: writer.writerow(
        _escape_cells(
            ["" if value is None else value if type(value) is str else _format_cell(value) for value in map(row.get, columns)]
        )
    )
    text.detach()


@contextmanager
def _write_json_lines(draft: BinaryIO, columns: Sequence[str]) -> Iterator[WriteRow]:
    yield lambda row: draft.write(json.dumps({name: row.get(name) for name in columns}).encode() + b"\n")


_KINDS: Final[Mapping[str, type]] = {"line": int, "record": int, "attempts": int, "certain": bool, "possible": list}


@contextmanager
def _write_parquet(draft: BinaryIO, columns: Sequence[str], kinds: Mapping[str, type]) -> Iterator[WriteRow]:
    require_module("pyarrow", "outreach_async[parquet]")
    import pyarrow as pa
    from pyarrow import parquet

    known: dict[type, Any] = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
    known[list] = pa.list_(pa.string())
    schema = pa.schema([(name, known[kinds.get(name, str)]) for name in columns])
    rows: list[dict[str, Any]] = []
    with parquet.ParquetWriter(draft, schema) as writer:

        def write_rows() -> None:
            writer.write_table(pa.Table.from_pylist(rows, schema))
            rows.clear()

        def write(row: Mapping[str, Any]) -> None:
            rows.append({name: _to_arrow(row.get(name)) for name in columns})  # Arrow cannot store lone surrogates
            if len(rows) == _BATCH_SIZE:
                write_rows()

        yield write
        write_rows()


def _to_arrow(value: Any) -> Any:
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def _format_cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else str(value)
