"""A CSV file, read line by line however long it is."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Final

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.importer.columns import Columns
from outreach_async.importer.rejects import REASONS, is_rejects, unshield
from outreach_async.importer.rows import Row

DELIMITERS: Final = (",", ";", "\t")

_UNCLOSED: Final = "unexpected end of data"  # csv.Error has no code, only this text


@attrs.frozen
class CsvFile:
    """A CSV file in UTF-8, with or without a byte order mark, whose first line names the columns.

    Attributes:
        path: Where it is.
        headers: The columns' names as written.
        delimiter: What parts its cells: the one of `,`, `;` and tab that parts the header into most names.
        rejects: Whether it holds the rejects of another import, mended perhaps: their reasons are left out.
    """

    path: Path
    headers: tuple[str, ...]
    delimiter: str
    rejects: bool = False

    @classmethod
    def open(cls, path: str | Path) -> CsvFile:
        """Read the header.

        Raises:
            InvalidRequest: No regular file, not readable, not UTF-8, or empty.
        """
        path = Path(path)
        if path.exists() and not path.is_file():
            raise InvalidRequest(f"{path}: not a regular file; a file is read twice, so save a stream to disk first")
        candidates = [(_header(path, delimiter), delimiter) for delimiter in DELIMITERS]
        headers, delimiter = max(candidates, key=lambda candidate: len(candidate[0]))
        if not headers:
            raise InvalidRequest(f"{path}: no header; the first line has to name the columns")
        rejects = is_rejects(headers)
        return cls(path, headers[: -len(REASONS)] if rejects else headers, delimiter, rejects)

    def fingerprint(self) -> str:
        """Return a digest of the whole file.

        Raises:
            InvalidRequest: It cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                return file_digest(file, lambda: blake2b(digest_size=16)).hexdigest()
        except OSError as error:
            raise InvalidRequest(f"{self.path}: {error.strerror or error}") from error

    def count(self) -> int:
        """Read the file once, and return how many rows it has.

        Raises:
            InvalidRequest: A part of it cannot be read at all, so better know before the first contact is created.
        """
        return sum(1 for _ in _records(self.path, self.delimiter)) - 1

    def rows(self, columns: Columns) -> Iterator[Row]:
        """Yield the rows in order, reading on demand. Lines without any character are none.

        Raises:
            InvalidRequest: The file can no longer be read.
        """
        for line, cells, fault in self.records():
            fault = fault or _misfit(cells, columns)  # noqa: PLW2901 - the first fault found is the row's
            yield Row(line, cells, {} if fault else columns.members(cells), fault)

    def records(self) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
        """Yield the line on which each record begins, its cells as the input has them, and what is wrong with it.

        Raises:
            InvalidRequest: The file can no longer be read.
        """
        records = _records(self.path, self.delimiter)
        next(records, None)
        if not self.rejects:
            return records
        return ((line, tuple(map(unshield, cells[: len(self.headers)])), fault) for line, cells, fault in records)


def _misfit(cells: tuple[str, ...], columns: Columns) -> str | None:
    if len(cells) == len(columns.headers):
        return None
    return f"the row has {len(cells)} cells, the header {len(columns.headers)}; quote cells that hold the delimiter"


def _header(path: Path, delimiter: str) -> tuple[str, ...]:
    return next((cells for _, cells, _ in _records(path, delimiter)), ())


def _records(path: Path, delimiter: str) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
    """Yield the line on which each record begins, its cells, and what is wrong with it."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            yield from _parse(path, lines, delimiter)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise InvalidRequest(f"{path}: not UTF-8 text (byte 0x{byte:02x}); save it as CSV in UTF-8") from None
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror or error}") from error


def _parse(path: Path, lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
    reader = csv.reader(lines, delimiter=delimiter, strict=True)  # lenient, an unclosed quote would swallow rows in silence
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if str(error) == _UNCLOSED:
                raise InvalidRequest(f"{path}: the quote that line {line} opens is never closed; close it") from None
            yield line, (), _unreadable(error, line, reader.line_num)
            continue
        if cells:
            yield line, tuple(cells), None


def _unreadable(error: csv.Error, first: int, last: int) -> str:
    where = f"lines {first} to {last} are" if last > first else "the line is"
    return f"{where} no CSV: {error}"
