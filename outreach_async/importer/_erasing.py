"""Remove people from the files that imports write: results, rejects and findings."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from outreach_async._plumbing import atomic_file, require_types
from outreach_async.errors import InvalidRequest
from outreach_async.importer._exclusions import read_entries
from outreach_async.importer._formats import open_file
from outreach_async.importer._results import FindingsFile, RejectsFile, ResultsFile


def read_people(path: str | os.PathLike[str]) -> list[str]:
    r"""Read the e-mails of people to erase from a file, or `-`.

    It is read as `read_exclusions` does, but a column such as Owner Email
    does not count.

    Raises:
        InvalidRequest: The file cannot be read.

    Example:
        ```python
        Path("asked.csv").write_text("Name,E-mail\nAnn,ann@company.example\n")
        print(read_people("asked.csv"))  # -> ['ann@company.example']
        ```
    """
    return [entry for _, entry in read_entries(Path(path))]


def erase_rows(path: str | os.PathLike[str], names: Callable[[str], bool], *, dry_run: bool = False) -> int | None:
    r"""Remove the rows that name people from a file that an import wrote.

    All other bytes of a CSV or JSON Lines file stay as they are. A kill
    leaves the old file, or the new one.

    Args:
        path: Path of a file.
        names: Tells whether a text names one of the people, as from
            `store.match_people`.
        dry_run: Whether to change nothing.

    Returns:
        The number of rows; `None` if it is no results, rejects or findings
        file, which is never changed.

    Raises:
        InvalidRequest: The file is damaged.
        OSError: The file cannot be read or written.

    Example:
        ```python
        Path("rejects.csv").write_text("E-mail,_row,_code,_field,_message,_text\nANN@company.example,2,rejected,,,\n")
        print(erase_rows("rejects.csv", lambda text: text == "ANN@company.example"))  # -> 1
        print(Path("rejects.csv").read_text().strip())  # -> E-mail,_row,_code,_field,_message,_text
        ```
    """
    require_types(erase_rows, locals())
    file, kind = Path(path), Path(path).suffix.lower()
    try:
        if not _is_output(file, kind):
            return None
        if kind == ".parquet":
            from pyarrow import parquet

            table = parquet.read_table(file)
            kept = [not any(names(str(cell)) for cell in row.values()) for row in table.to_pylist()]
        else:
            with file.open("rb") as source:
                kept = [not any(map(names, cells)) for _, cells in _read(source, kind)]
        if False in kept and not dry_run:
            with file.open("rb") as source, atomic_file(file) as draft:
                if kind == ".parquet":
                    parquet.write_table(table.filter(kept), draft)
                else:
                    draft.writelines(raw for (raw, _), stays in zip(_read(source, kind), kept, strict=True) if stays)
                draft.flush()
                os.fsync(draft.fileno())
    except (csv.Error, ValueError) as error:  # those of Arrow are ValueErrors, too
        raise InvalidRequest(f"path: {file} is damaged: {error}; restore it, or remove the person from it yourself") from error
    return kept.count(False)


def _is_output(file: Path, kind: str) -> bool:
    """Return whether an import has written a file. Its first bytes do not show it, as in a Parquet file."""
    if not any(each.recognises(file) for each in (ResultsFile, RejectsFile, FindingsFile)):
        return False
    names = () if kind == ".csv" else open_file(file).headers
    return kind == ".csv" or any(tuple(names[: len(each)]) == each for each in (ResultsFile.columns, FindingsFile.columns))


def _read(source: BinaryIO, kind: str) -> Iterator[tuple[bytes, Sequence[str]]]:
    """Yield each row as in the file, and its cells; none of a header."""
    taken = list[bytes]()

    def lines() -> Iterator[str]:
        for line in source:
            taken.append(line)
            yield line.decode(errors="replace")

    for number, cells in enumerate(csv.reader(lines()) if kind != ".jsonl" else ([line] for line in lines())):
        yield b"".join(taken), cells if number or kind == ".jsonl" else ()
        taken.clear()
