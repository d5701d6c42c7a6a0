"""A file as a table: a header, and records that become rows once the columns are mapped."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.importer.cells import Flaw, suspects_of
from outreach_async.importer.columns import Columns
from outreach_async.importer.rejects import REASONS, is_rejects
from outreach_async.importer.source import Source
from outreach_async.spreadsheets import unshield
from outreach_async.validation import check_contact, contact_of

_DIGITS: Final = frozenset({"mobile_phone", "work_phone", "home_phone", "voip_phone", "other_phone", "zip"})
"""Fields whose digits are not a number: a program that treats them as one drops leading zeros and the plus sign."""

_PHONE: Final = 11
"""Fewest digits with which a spreadsheet shows a whole number as 4.1E+11."""


class Record(NamedTuple):
    """A row as read from a file.

    Attributes:
        line: The line on which it begins, from 1.
        cells: Its cells, as strings.
        fault: Why it cannot be read; `None` if it can.
        flaws: Problems of single cells that the format found.
    """

    line: int
    cells: tuple[str, ...]
    fault: str | None = None
    flaws: tuple[Flaw, ...] = ()


def row_of(record: Record, columns: Columns) -> Row:
    """Return the row of a record. A flaw that destroys a cell to send becomes the row's fault, other flaws become warnings."""
    line, cells, fault, flaws = record
    fault = fault or _misfit(cells, columns)
    if fault:
        return Row(line, cells, {}, fault)
    if not (flaws := flaws + suspects_of(cells)):
        return Row(line, cells, columns.members(cells))
    sent = [(flaw, code) for flaw in flaws if (code := columns.codes[flaw.column]) and _concerns(flaw, code, cells)]
    if worthless := [f"{code}: {flaw.message}" for flaw, code in sent if _costs(flaw, code)]:
        return Row(line, cells, {}, worthless[0])
    warnings = tuple(Remark(flaw.kind, columns.headers[flaw.column], code, flaw.message) for flaw, code in sent)
    return Row(line, cells, columns.members(cells), None, warnings)


def _misfit(cells: tuple[str, ...], columns: Columns) -> str | None:
    if len(cells) == len(columns.headers):
        return None
    remedy = "name every column, and quote cells that contain the delimiter"
    return f"expected {len(columns.headers)} cells, as in the header, got {len(cells)}; {remedy}"


def _concerns(flaw: Flaw, code: str, cells: tuple[str, ...]) -> bool:
    """Return whether a flaw matters. A number does in a phone or a postal code, and if it is as long as a phone number."""
    return flaw.kind != "number" or code in _DIGITS or len(cells[flaw.column].lstrip("-")) >= _PHONE


def _costs(flaw: Flaw, code: str) -> bool:
    return flaw.fatal or (flaw.kind == "scientific" and code in _DIGITS)


@attrs.frozen
class Remark:
    r"""A warning about one cell, which can be sent as it is.

    Attributes:
        kind: The kind of problem, in one word, such as `"mojibake"`.
        column: Name of the column.
        code: Field code that the column maps to.
        message: The problem and its remedy.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,OrlÃ©ans\n", encoding="utf-8")
        file = open_file("people.csv")
        print([remark.kind for row in file.rows(map_columns(file.headers)) for remark in row.warnings])  # -> ['mojibake']
        ```
    """

    kind: str
    column: str
    code: str
    message: str


@attrs.frozen
class Row(Mapping[str, Any]):
    r"""A row that `create_many` accepts: a mapping of the fields of a new contact.

    Reading the fields of a row with a fault raises `InvalidRequest`. A bulk run reports such a row as `rejected` with that
    reason, in the row's position; its source does not fail.

    Attributes:
        line: The line of the file on which the row begins, from 1; the header usually is line 1.
        cells: The strings in the file.
        members: The values by field code; blank cells are omitted.
        fault: Why the row cannot be read; `None` if it can.
        warnings: Problems found while reading; the row can still be sent.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
        file = open_file("people.csv")
        (row,) = file.rows(map_columns(file.headers))
        print(row.line, dict(row))  # -> 2 {'email': 'ann@company.example', 'city': 'Lyon'}
        ```
    """

    line: int
    cells: tuple[str, ...]
    members: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    fault: str | None = None
    warnings: tuple[Remark, ...] = ()

    def refusal(self) -> InvalidRequest | None:
        r"""Return the error that would reject the row before it is sent; `None` if the row can be sent.

        Example:
            ```python
            Path("people.csv").write_text('E-mail,City\n" ",Lyon\n')
            file = open_file("people.csv")
            print([str(row.refusal()) for row in file.rows(map_columns(file.headers))])
            # -> ['email: expected an address, got a blank string; give the contact an e-mail address']
            ```
        """
        try:
            check_contact(contact_of(self))
        except InvalidRequest as error:
            return error
        return None

    def __getitem__(self, code: str) -> Any:
        return self._readable()[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._readable())

    def __len__(self) -> int:
        return len(self.members)

    def _readable(self) -> Mapping[str, Any]:
        if self.fault is not None:
            raise InvalidRequest(self.fault)
        return self.members


class File(Protocol):
    r"""A file of rows, in any format. It can be read any number of times, and is never held in memory as a whole.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
        file = open_file("people.csv")
        print(file.name, file.headers, file.rejects, file.notes)  # -> people.csv ('E-mail', 'City') False ()
        ```
    """

    @property
    def path(self) -> Path | None:
        """The file's path; `None` for a stream, which is copied to a temporary file."""

    @property
    def name(self) -> str:
        """The file's name in messages."""

    @property
    def headers(self) -> tuple[str, ...]:
        """Column names. No name occurs twice, except blank names."""

    @property
    def rejects(self) -> bool:
        """Whether this is a rejects file of another import, edited or not. Its columns with reasons are ignored."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Facts about the file that a user should know."""

    def fingerprint(self) -> str:
        r"""Return a digest of the file's bytes.

        Raises:
            InvalidRequest: The file cannot be read.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            journal = Journal("run.db", fingerprint=open_file("people.csv").fingerprint())
            ```
        """

    def count(self) -> int:
        r"""Read the file once and return the number of rows.

        Raises:
            InvalidRequest: A part of the file cannot be read.

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
        r"""Yield the first line, the cells as in the input, and the fault of each row; the fault is `None` for a valid row.

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
    """The header of a file, with duplicate names made unique.

    Attributes:
        headers: Column names, without the reasons of a rejects file.
        rejects: Whether the header is that of a rejects file.
        notes: Changes to the names, in readable form.
    """

    headers: tuple[str, ...]
    rejects: bool
    notes: tuple[str, ...]

    @classmethod
    def of(cls, name: str, cells: tuple[str, ...]) -> Heading:
        """Read the header of a file.

        Raises:
            InvalidRequest: It names no column.
        """
        named = trimmed(cells, 0)
        if not named:
            raise InvalidRequest(f"{name}: no header; name the columns in the first line")
        rejects = is_rejects(named)
        headers, notes = _told_apart(tuple(map(unshield, named[: -len(REASONS)])) if rejects else named)
        return cls(headers, rejects, notes)

    @property
    def width(self) -> int:
        """Number of columns in the file, including the reasons of a rejects file."""
        return len(self.headers) + (len(REASONS) if self.rejects else 0)


@attrs.frozen(kw_only=True)
class Table(ABC):
    """The common part of all formats; each format reads its own records."""

    source: Source
    heading: Heading
    notes: tuple[str, ...] = ()

    @property
    def path(self) -> Path | None:
        """The file's path; `None` for a stream, which is copied to a temporary file."""
        return self.source.path

    @property
    def name(self) -> str:
        """The file's name in messages."""
        return self.source.name

    @property
    def headers(self) -> tuple[str, ...]:
        """Column names. No name occurs twice, except blank names."""
        return self.heading.headers

    @property
    def rejects(self) -> bool:
        """Whether this is a rejects file of another import, edited or not. Its columns with reasons are ignored."""
        return self.heading.rejects

    def fingerprint(self) -> str:
        """Return a digest of the file's bytes.

        Raises:
            InvalidRequest: The file cannot be read.
        """
        return self.source.fingerprint()

    def count(self) -> int:
        """Read the file once and return the number of rows.

        Raises:
            InvalidRequest: A part of the file cannot be read. Count before an import to find out before contacts are created.
        """
        return sum(1 for _ in self._read())

    def rows(self, columns: Columns) -> Iterator[Row]:
        """Yield the rows in order, reading on demand. Empty lines are skipped.

        Raises:
            InvalidRequest: The file can no longer be read.
        """
        return (row_of(record, columns) for record in self._records())

    def records(self) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
        """Yield the first line, the cells as in the input, and the fault of each row; the fault is `None` for a valid row.

        Raises:
            InvalidRequest: The file can no longer be read.
        """
        return ((line, cells, fault) for line, cells, fault, _ in self._records())

    @abstractmethod
    def _read(self) -> Iterator[Record]:
        """Yield the records below the header."""

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
    """Return cells without blank ones at the end beyond a width: spreadsheets save columns that were once edited."""
    end = len(cells)
    while end > width and not cells[end - 1].strip():
        end -= 1
    return cells[:end]


def _told_apart(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Number the names that occur more than once, so that each column can be mapped, and return notes about it."""
    taken = {name.strip() for name in names}
    numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(2))  # per name: thousands of equal names stay linear
    seen: set[str] = set()
    told: list[str] = []
    notes: list[str] = []
    for name in names:
        own = name
        if (plain := name.strip()) and plain in seen:
            own = next(f"{plain} ({at})" for at in numbers[plain] if f"{plain} ({at})" not in taken)
            taken.add(own)
            notes.append(f"column name {plain!r} occurs more than once; one of the columns is renamed {own!r}")
        seen.add(plain)
        told.append(own)
    return tuple(told), tuple(notes)
