"""Write the outcome of every row to a results file: CSV, JSON Lines or Parquet, according to the suffix of its name."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, cast

from outreach_async._plumbing import atomic_file, escape_formula, require_module
from outreach_async.bulk import ContactOutcome
from outreach_async.importer import File, Row
from outreach_async.importer._rejects import COLUMNS, NO_COLUMNS, KeptColumns, describe_outcome, find_email

WriteRow: TypeAlias = Callable[[Mapping[str, Any]], object]
"""A function that writes a row, from its values by column."""
IsFinished: TypeAlias = Callable[[], bool]
"""A function that returns, when a file is complete, whether the run has finished."""

FINDING_COLUMNS: Final = ("file", "line", "record", "check", "level", "field", "column", "value", "message")
"""Columns of a file of findings. A row from standard input with a journal has a record number instead of a line."""
NO_RESULTS: Final = "--keep: copies columns into a results file; pass --results FILE, too."
_BATCH_SIZE: Final = 10_000  # rows of a row group in a Parquet file


@contextmanager
def open_table(path: Path, columns: Sequence[str], is_finished: IsFinished) -> Iterator[WriteRow]:
    """Yield a function that writes a row of a CSV, JSON Lines or Parquet file, as the suffix of its name says.

    The file appears when the `with` block ends, beside its path for an unfinished run.
    """
    formats = {".jsonl": _write_json_lines, ".parquet": _write_parquet}
    with (
        atomic_file(path, private=True, is_finished=is_finished) as draft,
        formats.get(path.suffix.lower(), _write_csv)(draft, columns) as write,
    ):
        yield write


@contextmanager
def open_outcomes(
    path: Path, file: File, is_finished: IsFinished = lambda: True, kept: KeptColumns = NO_COLUMNS
) -> Iterator[Callable[[ContactOutcome], object]]:
    place = {"file": str(file.path)} if file.path else {}

    def describe(outcome: ContactOutcome) -> Mapping[str, Any]:
        row = cast("Row", outcome.contact)
        described = {**place, "line": row.line, "email": find_email(outcome), **describe_outcome(outcome)}
        return {**described, **kept.pick(file.headers, row.cells)}

    with completed(open_table(path, (*COLUMNS, *kept.names.values()), is_finished)) as write:
        yield lambda outcome: write(describe(outcome))


@contextmanager
def completed(opened: AbstractContextManager[WriteRow]) -> Iterator[WriteRow]:
    """Complete a file also if the block raises, such as a run that stops: the file then has its rows so far."""
    with ExitStack() as stack:
        write = opened.__enter__()
        stack.callback(opened.__exit__, None, None, None)
        yield write


@contextmanager
def open_csv(draft: BinaryIO, columns: Iterable[str]) -> Iterator[Callable[[Iterable[object]], object]]:
    # A response of the service may contain lone surrogates, which UTF-8 cannot encode.
    text = TextIOWrapper(draft, encoding="utf-8", errors="backslashreplace", newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    yield lambda values: writer.writerow(escape_formula(str(format_cell(value))) for value in values)
    text.detach()


@contextmanager
def _write_csv(draft: BinaryIO, columns: Sequence[str]) -> Iterator[WriteRow]:
    with open_csv(draft, map(escape_formula, columns)) as write:
        yield lambda row: write(map(row.get, columns))


@contextmanager
def _write_json_lines(draft: BinaryIO, columns: Sequence[str]) -> Iterator[WriteRow]:
    yield lambda row: draft.write(json.dumps({name: row.get(name) for name in columns}).encode() + b"\n")


@contextmanager
def _write_parquet(draft: BinaryIO, columns: Sequence[str]) -> Iterator[WriteRow]:
    require_module("pyarrow", "outreach_async[parquet]")
    import pyarrow as pa
    from pyarrow import parquet

    kinds: dict[str, Any] = dict.fromkeys(("line", "record", "attempts"), pa.int64())
    kinds |= {"certain": pa.bool_(), "possible": pa.list_(pa.string())}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in columns])
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


def is_results_file(path: Path) -> bool:
    return _is_table(path, COLUMNS)


def is_findings_file(path: Path) -> bool:
    return _is_table(path, FINDING_COLUMNS)


def _is_table(path: Path, columns: Sequence[str]) -> bool:
    begins = {".jsonl": b'{"file": ', ".parquet": b"PAR1"}
    begin = begins.get(path.suffix.lower(), ",".join(columns).encode())
    with path.open("rb") as file:
        return file.read(len(begin) + 3).removeprefix(b"\xef\xbb\xbf").startswith(begin)


def write_results(
    path: Path,
    runs: Iterable[tuple[File | None, Iterable[Mapping[str, Any]]]],
    is_finished: IsFinished = lambda: True,
    kept: KeptColumns = NO_COLUMNS,
) -> int:
    """Write the rows of each run, with its file if it is known, and return the number of rows."""
    count = 0
    with open_table(path, (*COLUMNS, *kept.names.values()), is_finished) as write:
        for file, rows in runs:
            place = {"file": str(file.path)} if file and file.path else {}
            for row in rows:
                write({**place, **row})
                count += 1
    return count


def format_cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else "" if value is None else value
