"""What every kind of file is: a header, and records under it that become rows once the columns are known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Protocol

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.importer.columns import Columns
from outreach_async.importer.record import Record, row_of
from outreach_async.importer.rejects import REASONS, is_rejects
from outreach_async.importer.rows import Row
from outreach_async.importer.source import Source
from outreach_async.spreadsheets import unshield


class File(Protocol):
    r"""A file of rows, whatever its format: all of it can be read again and again, and none of it is held.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
        file = open_file("people.csv")
        print(file.name, file.headers, file.rejects, file.notes)  # -> people.csv ('E-mail', 'City') False ()
        ```
    """

    @property
    def path(self) -> Path | None:
        """Where it is; `None` for a stream that was kept for the time being."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def headers(self) -> tuple[str, ...]:
        """The columns' names; no name stands twice, but for blank ones."""

    @property
    def rejects(self) -> bool:
        """Whether it holds the rejects of another import, mended perhaps: their reasons are left out."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was found out about the file and a person should know."""

    def fingerprint(self) -> str:
        r"""Return a digest of the whole file.

        Raises:
            InvalidRequest: It cannot be read.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            journal = Journal("run.db", fingerprint=open_file("people.csv").fingerprint())
            ```
        """

    def count(self) -> int:
        r"""Read the file once, and return how many rows it has.

        Raises:
            InvalidRequest: A part of it cannot be read at all.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            print(open_file("people.csv").count())  # -> 1
            ```
        """

    def rows(self, columns: Columns) -> Iterator[Row]:
        r"""Yield the rows in order, reading on demand.

        Raises:
            InvalidRequest: When iterated: the file can no longer be read.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
            file = open_file("people.csv")
            print([dict(row) for row in file.rows(map_columns(file.headers))])
            # -> [{'email': 'ann@company.example', 'city': 'Lyon'}]
            ```
        """

    def records(self) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
        r"""Yield the line on which each row begins, its cells as the input has them, and what is wrong with it.

        Raises:
            InvalidRequest: When iterated: the file can no longer be read.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
            print(list(open_file("people.csv").records()))  # -> [(2, ('ann@company.example', 'Lyon'), None)]
            ```
        """


@attrs.frozen
class Heading:
    """The names of a file's columns, made fit to be told apart.

    Attributes:
        headers: Them; those of a rejects file without its reasons.
        rejects: Whether it is one.
        notes: What had to be done.
    """

    headers: tuple[str, ...]
    rejects: bool
    notes: tuple[str, ...]

    @classmethod
    def of(cls, name: str, cells: tuple[str, ...]) -> Heading:
        """Take the header of a file.

        Raises:
            InvalidRequest: It names no column.
        """
        named = trimmed(cells, 0)
        if not named:
            raise InvalidRequest(f"{name}: no header; the first line has to name the columns")
        rejects = is_rejects(named)
        headers, notes = _told_apart(tuple(map(unshield, named[: -len(REASONS)])) if rejects else named)
        return cls(headers, rejects, notes)

    @property
    def width(self) -> int:
        """How many columns the file has, reasons of rejects included."""
        return len(self.headers) + (len(REASONS) if self.rejects else 0)


@attrs.frozen(kw_only=True)
class Table(ABC):
    """The part that all formats share; each reads its records by itself."""

    source: Source
    heading: Heading
    notes: tuple[str, ...] = ()

    @property
    def path(self) -> Path | None:
        """Where it is; `None` for a stream that was kept for the time being."""
        return self.source.path

    @property
    def name(self) -> str:
        """What to call it."""
        return self.source.name

    @property
    def headers(self) -> tuple[str, ...]:
        """The columns' names; no name stands twice, but for blank ones."""
        return self.heading.headers

    @property
    def rejects(self) -> bool:
        """Whether it holds the rejects of another import, mended perhaps: their reasons are left out."""
        return self.heading.rejects

    def fingerprint(self) -> str:
        """Return a digest of the whole file.

        Raises:
            InvalidRequest: It cannot be read.
        """
        return self.source.fingerprint()

    def count(self) -> int:
        """Read the file once, and return how many rows it has.

        Raises:
            InvalidRequest: A part of it cannot be read at all, so better know before the first contact is created.
        """
        return sum(1 for _ in self._read())

    def rows(self, columns: Columns) -> Iterator[Row]:
        """Yield the rows in order, reading on demand. Lines without any character are none.

        Raises:
            InvalidRequest: The file can no longer be read.
        """
        return (row_of(record, columns) for record in self._records())

    def records(self) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
        """Yield the line on which each record begins, its cells as the input has them, and what is wrong with it.

        Raises:
            InvalidRequest: The file can no longer be read.
        """
        return ((line, cells, fault) for line, cells, fault, _ in self._records())

    @abstractmethod
    def _read(self) -> Iterator[Record]:
        """Yield what stands under the header."""

    def _records(self) -> Iterator[Record]:
        width, kept = self.heading.width, len(self.headers)
        for record in self._read():
            cells = record.cells if len(record.cells) <= width else trimmed(record.cells, width)
            if self.rejects:
                cells = tuple(map(unshield, cells[:kept]))
            if cells is record.cells:
                yield record
            else:
                flaws = tuple(flaw for flaw in record.flaws if flaw.column < kept)
                yield record._replace(cells=cells, flaws=flaws)


def trimmed(cells: tuple[str, ...], width: int) -> tuple[str, ...]:
    """Return cells without the blank ones at the end that are over a width: spreadsheets save columns that were once touched."""
    end = len(cells)
    while end > width and not cells[end - 1].strip():
        end -= 1
    return cells[:end]


def _told_apart(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Number the names that stand twice, so that each column can be mapped, and say so."""
    taken = {name.strip() for name in names}
    numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(2))  # by name, so that thousands alike take no hours
    seen: set[str] = set()
    told: list[str] = []
    notes: list[str] = []
    for name in names:
        own = name
        if (plain := name.strip()) and plain in seen:
            own = next(f"{plain} ({at})" for at in numbers[plain] if f"{plain} ({at})" not in taken)
            taken.add(own)
            notes.append(f"the column name {plain!r} stands more than once; one of them is called {own!r} here")
        seen.add(plain)
        told.append(own)
    return tuple(told), tuple(notes)
