"""Represent a file as a table: a header, and a record for each row, which becomes a `Row` when its columns are mapped."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from itertools import count, islice, zip_longest
from pathlib import Path
from typing import Final, Literal, TypeVar

import attrs

from outreach_async._plumbing import contact_key, is_url, require_types, unescape_formula
from outreach_async.errors import InvalidRequest, shorten
from outreach_async.importer._checks import CheckPolicy
from outreach_async.importer._columns import Columns
from outreach_async.importer._mapping import is_address
from outreach_async.importer._rows import (
    PLAIN,
    Block,
    Oddity,
    Record,
    Row,
    RowFinding,
    RowReader,
    describe_misfit,
    group_records,
    join_cells,
)
from outreach_async.importer._source import ByteSource, CountedLines, Span, can_divide, read_lines

_SAMPLE_SIZE: Final = 100  # rows that are searched for sample cells
MAX_COLUMNS: Final = 1000  # a file with more columns probably has data, such as e-mails, as column names
_SCAN_SIZE: Final = 500  # rows of which only the consent is read
_CHUNK_SIZE: Final = 250  # rows that are read ahead, so that each distinct cell of a column is checked once
_MAX_READ_AHEAD: Final = 1 << 15  # characters of these rows: if the file changes, they are still sent
_MAX_CHUNK_LENGTH: Final = 1 << 22  # characters at which a chunk of rows ends: a small compressed file may have long rows
MAX_TITLE: Final = 10  # lines that are searched for a header
_MAX_SHOWN: Final = 60  # characters of a title
_MAX_NOTES: Final = 10  # renamed columns that the notes list
REASONS: Final = ("_row", "_code", "_field", "_message", "_text")
"""Columns that a rejects file adds: the row's number, outcome, invalid fields, error message, and its text if its cells do not
show it. An import ignores them, but rejects a row that still has a text."""
_TEXT_FAULT: Final = "_text: expected a blank cell, got the text of a rejected row; correct the other cells, and clear _text"
FILE_COLUMN: Final = "_file"  # column before `REASONS` with the location of the row's file, in the rejects of several files


@attrs.frozen(kw_only=True)
class File(ABC):
    r"""A file of rows, in any format.

    The file can be read any number of times, and is never fully loaded
    into memory.

    Every method, and every iterator that it returns, raises
    `InvalidRequest` if the file can no longer be read.

    Attributes:
        source: The bytes of the file.
        headers: Column names. No name occurs twice, except blank names.
        notes: Notes about the file, to be shown to the user.
        unit: What the number of a row counts: `"line"`, or `"record"` if
            the rows are numbered by their position.
        span: The rows of a text file to which this file is limited; `None`
            for all rows.
        keys: The keys of a JSON Lines file; empty for other formats.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
        file = open_file("people.csv")
        print(file.name, file.headers, file.rejects, file.notes)  # -> people.csv ('E-mail', 'City') False ()
        ```
    """

    source: ByteSource
    headers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unit: Literal["line", "record"] = "line"
    span: Span | None = None
    keys: tuple[str, ...] = ()
    _added: int = 0
    _has_text: bool = False
    """Whether the last of the added columns is `_text`."""
    _selection: str = ""
    """The options that decide which rows a file has: with others, the rows of a journal would be those of other people."""
    _pads: bool = False
    """Whether rows that are shorter than the header get blank cells."""

    @property
    def path(self) -> Path | None:
        """Path of the file; `None` for a stream, copied to a temporary file."""
        return self.source.path

    @property
    def name(self) -> str:
        """Name of the file, as messages show it."""
        return self.source.name

    @property
    def location(self) -> str | None:
        """Path or URL of the file; `None` for a stream."""
        return str(self.path) if self.path else self.name if is_url(self.name) else None

    @property
    def rejects(self) -> bool:
        """True for a rejects file, even edited; its own columns are ignored."""
        return self._added > 0

    def fingerprint(self) -> str:
        r"""Return a digest of the bytes, and of the options that select rows.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            journal = Store("run.db", fingerprint=open_file("people.csv").fingerprint())
            ```
        """
        digest = self.source.fingerprint()
        return blake2b(f"{digest} {self._selection}".encode(), digest_size=16).hexdigest() if self._selection else digest

    def count(self) -> int:
        r"""Read the whole file and return the number of rows.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            print(open_file("people.csv").count())  # -> 1
            ```
        """
        return sum(len(block.lines) for block in self._read_blocks(_CHUNK_SIZE, _MAX_READ_AHEAD))

    def rows(
        self, columns: Columns, *, checks: Iterable[str] | CheckPolicy = (), people: Mapping[int, str] | None = None
    ) -> Iterator[Row]:
        r"""Yield the rows in order, reading at most 250 rows ahead.

        Empty lines are skipped.

        If a column says who must not be written to, all rows with the
        e-mails of these people are excluded. To find them, the whole file
        is read before the first row is yielded. Parts of a file (`split`)
        know only their own rows.

        Args:
            columns: The fields of the columns.
            checks: Levels of checks, as for `--check`: `"phone=error"`
                gives a row with an invalid phone number a `fault`,
                `"cells=off"` leaves every cell as it is, and
                `"consent=off"` excludes nobody.
            people: The people who are excluded, as `find_people` returns
                them; by default, they are found first.

        Raises:
            InvalidRequest: A check or a level is unknown, a check needs an
                extra that is not installed, or no column maps to `email`.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
            file = open_file("people.csv")
            print([dict(row) for row in file.rows(map_columns(file.headers))])
            # -> [{'email': 'ann@company.example', 'city': 'Lyon'}]
            ```
        """
        require_types(File.rows, locals())
        policy = CheckPolicy.of(checks)
        blocks = self._read_mapped(columns, _CHUNK_SIZE, _MAX_READ_AHEAD)

        def read() -> Iterator[Row]:
            reader = RowReader(columns, policy, self.find_people(columns, policy) if people is None else people)
            for block in blocks:
                yield from reader.read(block).rows()

        return read()

    def check(self, columns: Columns, *, checks: Iterable[str] | CheckPolicy = ()) -> Iterator[tuple[Row, Sequence[RowFinding]]]:
        r"""Yield each row with what all checks find in it, warnings included.

        The arguments are those of `rows`.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,NULL\n")
            file = open_file("people.csv")
            for row, findings in file.check(map_columns(file.headers)):
                print(row.line, [finding.reason for finding in findings])  # -> 2 ['stands for a missing value; clear the cell']
            ```
        """
        policy = CheckPolicy.of(checks)
        reader = RowReader(columns, policy, self.find_people(columns, policy), finds_all=True)
        for block in self._read_mapped(columns, _CHUNK_SIZE, _MAX_READ_AHEAD):
            read = reader.read(block)
            yield from ((row, read.findings.get(at, ())) for at, row in enumerate(read.rows()))

    def find_people(self, columns: Columns, checks: Iterable[str] | CheckPolicy = (), place: str = "") -> Mapping[int, str]:
        r"""Return the people whom a row of the file excludes.

        The keys are hashes of e-mails, the values the first such rows.
        `place` is what the name of the row begins with, such as the name
        of its file.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,Unsubscribed\nann@company.example,yes\n")
            file = open_file("people.csv")
            print([*file.find_people(map_columns(file.headers)).values()])  # -> ['line 2']
            ```
        """
        found = dict[int, str]()
        for _ in scan_people(self, columns, CheckPolicy.of(checks), found, place=place):
            pass
        return found

    def records(self) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
        r"""Yield each row's line number, cells as read, and fault (or `None`).

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
            print(list(open_file("people.csv").records()))  # -> [(2, ('ann@company.example', 'Lyon'), None)]
            ```
        """
        return ((line, cells, odd.fault) for line, cells, odd in read_records(self))

    def column(self, at: int) -> Iterator[str]:
        r"""Yield each row's cell at index `at`; `""` for a row without one.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
            print(list(open_file("people.csv").column(1)))  # -> ['Lyon']
            ```
        """
        return (cells[at] if at < len(cells) else "" for _, cells, _ in self.records())

    def samples(self) -> tuple[str, ...]:
        r"""Return each column's first filled cell of 100 rows, or else `""`.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,\nbo@acme.example,Lyon\n")
            print(open_file("people.csv").samples())  # -> ('ann@company.example', 'Lyon')
            ```
        """
        found = [""] * len(self.headers)
        for _, cells, _ in islice(self.records(), _SAMPLE_SIZE):
            found = [old or cell.strip() for old, cell in zip_longest(found, cells[: len(found)], fillvalue="")]
        return tuple(found)

    def split(self, parts: int = 1) -> tuple[File, ...]:
        r"""Return files that together contain the rows of this file, in order.

        A Parquet file is split into its row groups. A CSV or JSON Lines
        file is split into at most `parts` files of about the same size,
        and is read once to find them. A workbook, a compressed file, and
        text in an encoding such as UTF-16 can only be read from the start,
        and are not split.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\nbo@acme.example\n")
            print([part.count() for part in open_file("people.csv").split(2)])  # -> [1, 1]
            ```
        """
        del parts
        return (self,)

    @abstractmethod
    def _read_blocks(self, size: int, max_length: int) -> Iterator[Block]:
        """Yield the records below the header in blocks of at most `size`, and fewer if the rows are long."""

    def _read_mapped(self, _columns: Columns, size: int, max_length: int) -> Iterator[Block]:
        return self._read_trimmed(size, max_length)

    def _read_trimmed(self, size: int, max_length: int) -> Iterator[Block]:
        kept, width, numbers = len(self.headers), len(self.headers) + self._added, count(1)
        for block in self._read_blocks(size, max_length):
            if self.unit == "record":
                block.lines[:] = islice(numbers, len(block.lines))
            if self.rejects or max(map(len, block.cells)) > width:
                trimmed = [trim_cells(cells, width) for cells in block.cells]
                for at, cells in enumerate(trimmed) if self.rejects else ():
                    odd = block.odd.get(at, PLAIN)
                    if len(cells) > width:  # a comma without quotes has moved the cells
                        block.odd[at] = odd._replace(fault=describe_misfit(width, len(cells)), text=join_cells(cells))
                    elif len(cells) == width and self._has_text and cells[-1].strip():
                        block.odd[at] = odd._replace(fault=_TEXT_FAULT, text=unescape_formula(cells[-1]))
                block.cells[:] = [[*map(unescape_formula, cells[:kept])] for cells in trimmed] if self.rejects else trimmed
                for at, odd in block.odd.items():
                    block.odd[at] = odd._replace(issues=tuple(issue for issue in odd.issues if issue[0] < kept))
            for at, cells in enumerate(block.cells) if self._pads else ():
                if len(cells) < kept and at not in block.odd:
                    block.cells[at] = [*cells, *[""] * (kept - len(cells))]
                    # The file does not have these cells: they are not blank, and clear no field.
                    block.odd[at] = Oddity(absent=range(len(cells), kept))
            yield block


@attrs.frozen(kw_only=True)
class TextFile(File):
    """A CSV or JSON Lines file, of which a span of rows can be read alone."""

    encoding: str

    @property
    def lines_above(self) -> int:
        """Number of lines before the first one that is read."""
        return 0 if self.span is None else self.span.lines

    @property
    def has_header(self) -> bool:
        return not self.lines_above

    @abstractmethod
    def _parse(self, lines: Iterator[str]) -> Iterator[Record]:
        """Yield the records of the lines of the file, or of its span."""

    @abstractmethod
    def _find_records(self, lines: Iterator[str]) -> Iterator[object]:
        """Yield something for each record of the file when its lines, and no others, have been read."""

    def _read_blocks(self, size: int, max_length: int) -> Iterator[Block]:
        records = self._parse(read_lines(self.source, self.encoding, self.span))
        return group_records(records if self.span is None else islice(records, self.span.rows), size, max_length)

    def split(self, parts: int = 1) -> tuple[File, ...]:
        if parts == 1 or not can_divide(self.source, self.encoding):
            return (self,)
        spans = [*self._find_spans(parts)]
        return tuple(attrs.evolve(self, span=span) for span in spans) if len(spans) > 1 else (self,)

    def _find_spans(self, parts: int) -> Iterator[Span]:
        with self.source.open_raw() as file:
            size = file.seek(0, io.SEEK_END)
        with closing(CountedLines(self.source, self.encoding)) as lines:
            start, rows, end = (0, 0), 0, size / parts
            for _ in self._find_records(lines):
                rows += 1
                if lines.offset >= end:
                    yield Span(*start, rows)
                    start, rows = (lines.offset, lines.count), 0
                    end = (lines.offset * parts // size + 1) * size / parts
        if rows:
            yield Span(*start, rows)


def read_blocks(file: File, columns: Columns, size: int) -> Iterator[Block]:
    """Yield the records of a file in blocks, without building a row of each."""
    return file._read_mapped(columns, size, _MAX_CHUNK_LENGTH)  # noqa: SLF001 - of this module


def read_records(file: File) -> Iterator[tuple[int, tuple[str, ...], Oddity]]:
    """Yield the line and the cells of each record, and what is odd about it."""
    for block in file._read_trimmed(_CHUNK_SIZE, _MAX_READ_AHEAD):  # noqa: SLF001 - of this module
        for at, (line, cells) in enumerate(zip(block.lines, block.cells, strict=True)):
            yield line, tuple(cells), block.odd.get(at, PLAIN)


def scan_people(file: File, columns: Columns, policy: CheckPolicy, found: dict[int, str], *, place: str = "") -> Iterator[None]:
    """Add the people whom a row of a file excludes, block by block. The name of a row begins with `place`."""
    if not columns.consent or policy.levels["consent"] != "error":
        return
    reader = RowReader(columns, policy)
    for block in read_blocks(file, columns, _SCAN_SIZE):
        for at, email in reader.find_excluded(block):
            found.setdefault(hash(contact_key(email)), f"{place}{file.unit} {block.lines[at]}")
        yield


def trim_cells(cells: Sequence[str], width: int) -> Sequence[str]:
    """Remove blank cells at the end of a row, which spreadsheets save, but keep the first `width` cells."""
    end = len(cells)
    while end > width and not cells[end - 1].strip():
        end -= 1
    return cells[:end]


_AnyFile = TypeVar("_AnyFile", bound=File)


def with_header(file: _AnyFile, cells: Sequence[str], *notes: str) -> _AnyFile:
    named = tuple(trim_cells(cells, 0))
    if not named:
        raise InvalidRequest(f"{file.name}: no header; name the columns in the first line, or correct header_row=")
    if len(named) > MAX_COLUMNS:
        limit = f"expected at most {MAX_COLUMNS:,} columns, got more"
        raise InvalidRequest(f"{file.name}: {limit}; check that the first line has column names, not data")
    if address := next((cell.strip() for cell in named if is_address(cell)), None):  # then the line is a row
        remedy = "insert a first line with column names, such as E-mail and First Name"
        raise InvalidRequest(f"{file.name}: expected a header, got the e-mail address {address!r} in the first line; {remedy}")
    added = count_reason_columns(named)
    headers, renamed = _number_duplicates(tuple(map(unescape_formula, named[:-added])) if added else named)
    has_text = added > 0 and named[-1].strip() == REASONS[-1]
    return attrs.evolve(file, headers=headers, added=added, has_text=has_text, notes=(*notes, *renamed))


def _number_duplicates(names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    taken = {name.strip() for name in names}
    numbers: defaultdict[str, Iterator[int]] = defaultdict(lambda: count(2))  # linear time for thousands of equal names
    seen: set[str] = set()
    unique: list[str] = []
    notes: list[str] = []
    for name in names:
        if (plain := name.strip()) and plain in seen:
            numbered = next(f"{plain} ({at})" for at in numbers[plain] if f"{plain} ({at})" not in taken)
            taken.add(numbered)
            notes.append(f"column name {plain!r} occurs more than once; one of the columns is renamed {numbered!r}")
            unique.append(numbered)
        else:
            unique.append(name)
        seen.add(plain)
    if len(notes) > _MAX_NOTES:
        notes[_MAX_NOTES:] = [f"... and {len(notes) - _MAX_NOTES:,} more columns are renamed in the same way"]
    return tuple(unique), tuple(notes)


def title_error(name: str, title: str, line: int, width: int) -> InvalidRequest:
    """Return the error of a file whose header is below its first line."""
    what = f"expected a header, got {shorten(title.strip(), _MAX_SHOWN)!r} above a table of {width} columns"
    choice = f"pass --header-row {line} if that line has the column names, otherwise --header-row 1"
    return InvalidRequest(f"{name}: {what}; {choice}")


def count_reason_columns(headers: Sequence[str]) -> int:
    """Return the number of columns that a rejects file adds; 0 for the header of any other file."""
    # People may delete `_text` instead of clearing it.
    names = tuple(header.strip() for header in headers[-len(REASONS) - 1 :])
    for reasons in (REASONS, REASONS[:-1]):
        if names[-len(reasons) :] == reasons:
            return len(reasons) + (names[: -len(reasons)][-1:] == (FILE_COLUMN,))
    return 0
