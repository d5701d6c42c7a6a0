"""Write the outcome of every row to a results file: CSV, JSON Lines or Parquet, according to the suffix of its name."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, cast

from outreach_async._cli.commands.import_report import find_email
from outreach_async._files.atomic import atomic_file
from outreach_async._files.optional import require_module
from outreach_async._files.spreadsheets import escape_formula
from outreach_async._vocabulary import Outcome
from outreach_async.bulk import ContactOutcome
from outreach_async.bulk._targets import fails_only_its_rows
from outreach_async.errors import InvalidRequest
from outreach_async.importer import File, Row, is_reject
from outreach_async.importer._rejects import number_record
from outreach_async.importer._table import RowNumber

WriteRow: TypeAlias = Callable[[Mapping[str, Any]], object]
"""A function that writes a row, from its values by column."""

OUTCOME_COLUMNS: Final = ("workspace", "campaign", "status", "possible", "attempts", "id", "error", "remedy")
_COLUMNS: Final = ("file", "line", "record", "email", *OUTCOME_COLUMNS[:3], "certain", *OUTCOME_COLUMNS[3:])
"""Columns of a results file. A row from standard input has a record number instead of a file and a line."""
_REMEDIES: Final[Mapping[Outcome, str]] = {
    Outcome.REJECTED: "correct the row, and import it again",
    Outcome.NOT_APPLIED: "import the row again",
    Outcome.UNKNOWN: "import the row again; the service detects a contact that exists",
}
_UNKNOWN_TARGET: Final = "check the workspace and the campaign of the row, and import it again"
_BATCH_SIZE: Final = 10_000  # rows of a row group in a Parquet file


@contextmanager
def open_results(path: Path) -> Iterator[WriteRow]:
    """Yield a function that writes a row. The file appears at its path when the `with` block ends."""
    formats = {".jsonl": _write_json_lines, ".parquet": _write_parquet}
    with atomic_file(path, private=True) as draft, formats.get(path.suffix.lower(), _write_csv)(draft) as write:
        yield lambda row: write({**row, "certain": len(row["possible"]) == 1})


@contextmanager
def open_outcomes(path: Path, file: File) -> Iterator[Callable[[ContactOutcome], object]]:
    """Yield a function that writes the outcome of a row of a file."""
    place = {"file": str(file.path)} if file.path else {}
    with ExitStack() as stack:
        opened = open_results(path)
        write = opened.__enter__()
        stack.callback(opened.__exit__, None, None, None)  # also if the run stops: its outcomes so far are in the file
        yield lambda outcome: write(
            {**place, "line": cast("Row", outcome.contact).line, "email": find_email(outcome), **describe_outcome(outcome)}
        )


@contextmanager
def _write_csv(draft: BinaryIO) -> Iterator[WriteRow]:
    # A response of the service may contain lone surrogates, which UTF-8 cannot encode.
    text = TextIOWrapper(draft, encoding="utf-8", errors="backslashreplace", newline="")
    writer = csv.writer(text)
    writer.writerow(_COLUMNS)
    yield lambda row: writer.writerow(escape_formula(str(format_cell(row.get(column)))) for column in _COLUMNS)
    text.detach()


@contextmanager
def _write_json_lines(draft: BinaryIO) -> Iterator[WriteRow]:
    yield lambda row: draft.write(json.dumps({name: row.get(name) for name in _COLUMNS}).encode() + b"\n")


@contextmanager
def _write_parquet(draft: BinaryIO) -> Iterator[WriteRow]:
    require_module("pyarrow", "outreach_async[parquet]")
    import pyarrow as pa
    from pyarrow import parquet

    kinds: dict[str, Any] = dict.fromkeys(("line", "record", "attempts"), pa.int64())
    kinds |= {"certain": pa.bool_(), "possible": pa.list_(pa.string())}
    schema = pa.schema([(name, kinds.get(name, pa.string())) for name in _COLUMNS])
    rows: list[dict[str, Any]] = []
    with parquet.ParquetWriter(draft, schema) as writer:

        def write_rows() -> None:
            writer.write_table(pa.Table.from_pylist(rows, schema))
            rows.clear()

        def write(row: Mapping[str, Any]) -> None:
            rows.append({name: _to_arrow(row.get(name)) for name in _COLUMNS})
            if len(rows) == _BATCH_SIZE:
                write_rows()

        yield write
        write_rows()


def _to_arrow(value: Any) -> Any:
    """Return a value without lone surrogates, which Arrow cannot store."""
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def is_results_file(path: Path) -> bool:
    """Return whether a file looks like a results file, in any of the formats."""
    begins = {".jsonl": b'{"file": ', ".parquet": b"PAR1"}
    begin = begins.get(path.suffix.lower(), ",".join(_COLUMNS).encode())
    with path.open("rb") as file:
        return file.read(len(begin) + 3).removeprefix(b"\xef\xbb\xbf").startswith(begin)


def describe_outcome(outcome: ContactOutcome, message: str | None = None) -> dict[str, Any]:
    """Return the columns of an outcome; `message` replaces that of its error."""
    error, remedy = str(outcome.error or "") if message is None else message, None
    if is_reject(outcome):
        remedy = _REMEDIES[outcome.status]
        if isinstance(outcome.error, InvalidRequest):  # its message ends with the remedy
            error, _, remedy = error.rpartition("; ") if "; " in error else (error, "", remedy)
        elif outcome.error is not None and fails_only_its_rows(outcome.error):
            remedy = _UNKNOWN_TARGET
    values = (
        *outcome.target,
        outcome.status.value,
        sorted(outcome.possible),
        outcome.attempts,
        outcome.id,
        error or None,
        remedy,
    )
    return dict(zip(OUTCOME_COLUMNS, values, strict=True))


def describe_outcomes(
    outcomes: Iterator[ContactOutcome], file: File | None, mapping: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the columns of each outcome of a journal, with the line and the e-mail of its row if the file is known."""
    records = enumerate(file.records() if file else ())
    headers = file.headers if file else ()
    email = next((at for at, header in enumerate(headers) if mapping.get(header.strip()) == "email"), None)
    for outcome in outcomes:
        number, address = number_record(outcome.index), find_email(outcome)
        if file is not None:
            line, cells, _ = next(record for index, record in records if index == outcome.index)
            number = RowNumber("line", line)
            address = cells[email].strip() if email is not None and email < len(cells) else ""
        yield {number.unit: number.value, "email": address, **describe_outcome(outcome)}


def write_results(path: Path, runs: Iterable[tuple[File | None, Iterable[Mapping[str, Any]]]]) -> int:
    """Write the rows of each run, with its file if it is known, and return the number of rows."""
    count = 0
    with open_results(path) as write:
        for file, rows in runs:
            place = {"file": str(file.path)} if file and file.path else {}
            for row in rows:
                write({**place, **row})
                count += 1
    return count


def format_cell(value: object) -> object:
    """Return the text of a value in a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(value) if isinstance(value, list) else "" if value is None else value
