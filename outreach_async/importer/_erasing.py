"""Remove people from the files that imports write: results, rejects and findings."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from outreach_async._plumbing import atomic_file, require_module, require_types
from outreach_async.errors import InvalidRequest
from outreach_async.importer._exclusions import read_entries
from outreach_async.importer._results import FindingsFile, RejectsFile, ResultsFile
from outreach_async.store import People


def read_people(path: str | os.PathLike[str]) -> People:
    r"""Read the people to erase from a file of their e-mails.

    It is read as `read_exclusions` does: a table, or an e-mail a line.

    Raises:
        InvalidRequest: The file cannot be read, or has what is no e-mail.

    Example:
        ```python
        Path("asked.csv").write_text("Name,E-mail\nAnn,ann@company.example\n")
        print(read_people("asked.csv").emails)  # -> ('ann@company.example',)
        ```
    """
    return People(email for _, email in read_entries(Path(path)))


def erase_rows(path: str | os.PathLike[str], people: People, *, dry_run: bool = False) -> int | None:
    r"""Remove the rows that name people from a file that an import wrote.

    All other bytes of a CSV or JSON Lines file stay as they are. A kill
    leaves the old file, or the new one.

    Args:
        path: Path of a file.
        people: The people.
        dry_run: Whether to change nothing.

    Returns:
        The number of rows; `None` if it is no results, rejects or findings
        file, which is never changed.

    Raises:
        InvalidRequest: The file is damaged.
        OSError: The file cannot be read or written.

    Example:
        ```python
        Path("asked.txt").write_text("ann@company.example\n")
        people = read_people("asked.txt")
        Path("rejects.csv").write_text("E-mail,_row,_code,_field,_message,_text\nANN@company.example,2,rejected,,,\n")
        print(erase_rows("rejects.csv", people), Path("rejects.csv").read_text().strip())
        # -> 1 E-mail,_row,_code,_field,_message,_text
        ```
    """
    require_types(erase_rows, locals())
    file = Path(path)
    count = 0
    try:
        if not _is_output(file):
            return None
        if file.suffix.lower() == ".parquet":
            return _erase_parquet(file, people, dry_run=dry_run)
        read = _read_json_lines if file.suffix.lower() == ".jsonl" else _read_csv
        with file.open("rb") as source:
            count = sum(any(map(people.named_in, cells)) for _, cells in read(source))
        if count and not dry_run:
            with file.open("rb") as source, atomic_file(file) as draft:
                draft.writelines(raw for raw, cells in read(source) if not any(map(people.named_in, cells)))
                draft.flush()
                os.fsync(draft.fileno())
    except (csv.Error, ValueError) as error:  # those of Arrow are ValueErrors, too
        raise InvalidRequest(f"path: {file} is damaged: {error}; restore it, or remove the person from it yourself") from error
    return count


def _is_output(file: Path) -> bool:
    """Return whether an import has written a file. Its first bytes do not show it, as in a Parquet file."""
    if not any(kind.recognises(file) for kind in (ResultsFile, RejectsFile, FindingsFile)):
        return False
    if file.suffix.lower() == ".parquet":
        names = _parquet().read_schema(file).names
    elif file.suffix.lower() == ".jsonl":
        with file.open("rb") as source:
            names = [*json.loads(source.readline())]
    else:
        return True
    return any(tuple(names[: len(columns)]) == columns for columns in (ResultsFile.columns, FindingsFile.columns))


def _parquet() -> Any:
    require_module("pyarrow", "outreach_async[parquet]")
    from pyarrow import parquet

    return parquet


def _read_csv(source: BinaryIO) -> Iterator[tuple[bytes, Sequence[str]]]:
    """Yield each row as in the file, and its cells; none of the header."""
    taken = list[bytes]()

    def lines() -> Iterator[str]:
        for line in source:
            taken.append(line)
            yield line.decode(errors="replace")

    for number, cells in enumerate(csv.reader(lines())):
        yield b"".join(taken), cells if number else ()
        taken.clear()


def _read_json_lines(source: BinaryIO) -> Iterator[tuple[bytes, Sequence[str]]]:
    return ((line, [line.decode(errors="replace")]) for line in source)


def _erase_parquet(file: Path, people: People, *, dry_run: bool) -> int:
    table = _parquet().read_table(file)
    kept = [not any(people.named_in(str(cell)) for cell in row.values()) for row in table.to_pylist()]
    if False in kept and not dry_run:
        with atomic_file(file) as draft:
            _parquet().write_table(table.filter(kept), draft)
            draft.flush()
            os.fsync(draft.fileno())
    return kept.count(False)
