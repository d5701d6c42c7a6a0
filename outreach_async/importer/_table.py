"""Represent a file as a table: a header, and a record for each row, which becomes a `Row` when its columns are mapped."""

from __future__ import annotations

import csv
import io
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice, repeat, zip_longest
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import attrs

from outreach_async._files.spreadsheets import unescape_formula
from outreach_async._service.validation import check_contact, to_targeted_contact
from outreach_async._service.values import DIGIT_FIELDS, Change, find_suspects, read_value
from outreach_async.errors import InvalidRequest
from outreach_async.importer._columns import Columns
from outreach_async.importer._source import ByteSource

_MIN_PHONE_DIGITS: Final = 11  # of a whole number that may be a phone number
_ADDRESS: Final = re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+")  # a first line with an address is a row and not a header
_SAMPLE_SIZE: Final = 100  # rows that are searched for sample cells
MAX_COLUMNS: Final = 1000  # a file with more columns probably has data, such as e-mails, as column names
_CHUNK_SIZE: Final = 250  # rows that are read ahead, so that each distinct cell of a column is checked once
_MAX_READ_AHEAD: Final = 1 << 15  # characters of these rows: if the file changes, they are still sent
_MAX_CHUNK_LENGTH: Final = 1 << 22  # characters at which a chunk of rows ends: a small compressed file may have long rows
_MAX_TEXT: Final = 30_000  # characters; a cell of Excel holds 32,767
_MAX_NOTES: Final = 10  # renamed columns that the notes list
REASONS: Final = ("_row", "_code", "_field", "_message", "_text")
"""Columns that a rejects file adds: the row's number, outcome, invalid fields, error message, and its text if its cells do not
show it. An import ignores them, but rejects a row that still has a text."""
_TEXT_FAULT: Final = (
    "_text: expected a blank cell, got the text of a rejected row, which its cells do not show; correct them, and clear _text"
)
FILE_COLUMN: Final = "_file"  # column before `REASONS` with the location of the row's file, in the rejects of several files


CellChange: TypeAlias = tuple[int, Change]
"""What a reader found in the column with this index."""


class Record(NamedTuple):
    line: int
    cells: tuple[str, ...]
    fault: str | None = None
    issues: tuple[CellChange, ...] = ()
    text: str = ""
    """The row as in the file, if its cells do not show it: of a line that is not CSV or JSON, or with a damaged value."""


RowUnit: TypeAlias = Literal["line", "record"]
"""The line on which a row begins or, for standard input with a journal, its position among the rows, both from 1."""


class RowNumber(NamedTuple):
    """The number that identifies a row in messages, rejects and reports."""

    unit: RowUnit
    value: int

    def __str__(self) -> str:
        return f"{self.unit} {self.value}"


class Block(NamedTuple):
    """Records of a file, in order. Few have a fault, issues or a text, which are stored by the index of the record."""

    lines: list[int]
    cells: list[Sequence[str]]
    faults: dict[int, str]
    issues: dict[int, tuple[CellChange, ...]]
    texts: dict[int, str]

    @classmethod
    def of(cls, records: Sequence[Record] = ()) -> Block:
        return cls(
            lines=[record.line for record in records],
            cells=[record.cells for record in records],
            faults={at: record.fault for at, record in enumerate(records) if record.fault},
            issues={at: record.issues for at, record in enumerate(records) if record.issues},
            texts={at: record.text for at, record in enumerate(records) if record.text},
        )

    def record(self, at: int) -> Record:
        cells = tuple(self.cells[at])
        return Record(self.lines[at], cells, self.faults.get(at), self.issues.get(at, ()), self.texts.get(at, ""))


class Table(NamedTuple):
    """Cells of some rows by column, and the distinct cells of each column that is sent: most columns have few."""

    places: Sequence[int]
    columns: Sequence[Sequence[str]]
    distinct: Sequence[Collection[str]]

    @classmethod
    def of(cls, rows: Mapping[int, Sequence[str]], columns: Columns) -> Table:
        cells = [*zip(*rows.values(), strict=True)] or [()] * len(columns.codes)
        return cls([*rows], cells, [{*each} if code else () for each, code in zip(cells, columns.codes, strict=True)])


def find_odd(block: Block, columns: Columns) -> tuple[set[int], Table]:
    """Return the indexes of the records that have a fault, or a cell with a problem; and the cells of complete records."""
    width, odd = len(columns.headers), {*block.faults, *block.issues}
    if {*map(len, block.cells)} != {width}:
        odd.update(at for at, cells in enumerate(block.cells) if len(cells) != width)
    table = Table.of({at: cells for at, cells in enumerate(block.cells) if at not in odd}, columns)
    for code, cells, distinct in zip(columns.codes, table.columns, table.distinct, strict=True):
        if code and (suspects := find_suspects(code, distinct)):
            odd.update(place for place, cell in zip(table.places, cells, strict=True) if cell in suspects)
    return odd, table


def build_row(record: Record, columns: Columns) -> Row:
    # An issue that leaves no value to send becomes the row's `fault`. Any other issue that matters for a field is a warning.
    line, cells, fault, issues, _ = record
    if not fault and len(cells) != len(columns.headers):
        fault = _describe_misfit(len(columns.headers), len(cells))
    text = text_of(record, len(columns.headers))
    if fault:
        return Row(line, cells, fault, text=text)
    replaced = list(cells)
    found: list[tuple[int, str, Change]] = []
    for at, code in enumerate(columns.codes):
        if code:
            replaced[at], changes = read_value(code, cells[at])
            found += [(at, code, change) for column, change in issues if column == at and _is_relevant(change, code, cells[at])]
            found += [(at, code, change) for change in changes]
    for at, _, change in found:
        replaced[at] = replaced[at] if change.value is None else change.value
    for _, code, change in found:
        if change.damaged or (change.value == "" and code == "email"):
            return Row(line, cells, f"{code}: {change.message}", text=text)
    warnings = tuple(Remark(change.kind, columns.headers[at], code, change.message, change.value) for at, code, change in found)
    return Row(line, cells, None, warnings, columns, replaced if warnings else cells, text=text)


def _describe_misfit(expected: int, got: int) -> str:
    remedy = "name every column, and quote cells that contain the delimiter"
    if got < expected:
        remedy = "quote a cell that contains a line break, or pass --short-rows pad if blank cells are missing at the end"
    return f"expected {expected} cells, as in the header, got {got}; {remedy}"


def text_of(record: Record, width: int) -> str:
    """Return the text of a row for its rejects; empty if the cells, read again, have the same faults as the row."""
    is_shown = len(record.cells) == width and not any(change.damaged for _, change in record.issues)
    return record.text or ("" if is_shown else join_cells(record.cells))


def join_cells(cells: Sequence[str]) -> str:
    """Return cells as a line of CSV."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="").writerow(cells)
    return cut_text(line.getvalue())


def cut_text(text: str) -> str:
    """Return the text of a row, cut to a length that a cell of a spreadsheet holds."""
    length = len(text)
    return text if length <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... (the first {_MAX_TEXT:,} of {length:,} characters)"


def _build_rows(block: Block, columns: Columns) -> Iterator[Row]:
    odd, _ = find_odd(block, columns)
    cells = [*map(tuple, block.cells)]
    rows = map(Row, block.lines, cells, repeat(None), repeat(()), repeat(columns), cells)
    return (build_row(block.record(at), columns) if at in odd else row for at, row in enumerate(rows)) if odd else rows


def _is_relevant(change: Change, code: str, cell: str) -> bool:
    return change.kind != "number" or code in DIGIT_FIELDS or len(cell.lstrip("-")) >= _MIN_PHONE_DIGITS


@attrs.frozen
class Remark:
    r"""A warning about one cell. The row can still be sent.

    Attributes:
        kind: The kind of problem, in one word, such as `"mojibake"`.
        column: Name of the column.
        code: Field code that the column maps to.
        message: The problem and its remedy.
        value: The text that is sent instead of the cell, empty if the field is left unset; `None` if the cell is sent unchanged.

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
    value: str | None = None


@attrs.frozen(slots=False)  # without slots, creating a frozen object takes half the time
class Row(Mapping[str, Any]):
    r"""A row that `create_many` accepts: a mapping of the fields of a new contact.

    Reading the fields of a row with a `fault` raises `InvalidRequest`. A bulk run reports such a row as `rejected`.

    Attributes:
        line: The line of the file on which the row begins, from 1; the header is usually line 1.
        cells: The cells of the row, as strings, as in the file.
        fault: The reason why the row cannot be sent, if there is one.
        warnings: Problems found while reading; the row can still be sent.
        sent: The cells as they are sent, with the values of the warnings; empty if there is a `fault`.
        text: The row as in the file, if its cells do not show it, such as a line that is not CSV; otherwise empty.

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
    fault: str | None = None
    warnings: tuple[Remark, ...] = ()
    _columns: Columns | None = attrs.field(default=None, eq=False, repr=False)
    sent: Sequence[str] = attrs.field(default=(), eq=False, repr=False)
    text: str = attrs.field(default="", eq=False, repr=False)
    _members: Mapping[str, Any] | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def members(self) -> Mapping[str, Any]:
        """The values by field code, as they are sent; blank cells are omitted. A row that could not be read has none."""
        if self._members is None:  # computed when it is first needed: most rows are sent without
            members = {} if self._columns is None else self._columns.members(self.sent)
            object.__setattr__(self, "_members", members)
            return members
        return self._members

    @property
    def email(self) -> str:
        """The e-mail as it is sent; empty if there is none."""
        if self._columns is None or (at := self._columns.email_at) is None:
            return str(self.members.get("email", ""))
        return self.sent[at]

    @property
    def plain(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """The codes of standard and custom fields, and their cells; `None` if the row has other values, or cannot be sent."""
        if self.fault is not None or self._members is not None or self._columns is None or self._columns.plain is None:
            return None
        codes, pick = self._columns.plain
        return codes, pick(self.sent)

    def refusal(self) -> InvalidRequest | None:
        r"""Return the error with which `create_many` would reject the row; `None` if the row can be sent.

        Example:
            ```python
            Path("people.csv").write_text('E-mail,City\n" ",Lyon\n')
            file = open_file("people.csv")
            print([str(row.refusal()) for row in file.rows(map_columns(file.headers))])
            # -> ['email: expected an address, got a blank string; give the contact an e-mail address']
            ```
        """
        try:
            check_contact(to_targeted_contact(self)[0])
        except InvalidRequest as error:
            return error
        return None

    def __getitem__(self, code: str) -> Any:
        return self._require_readable()[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._require_readable())

    def __len__(self) -> int:
        return len(self.members)

    def items(self) -> ItemsView[str, Any]:
        r"""Return the field codes and values of the row.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
            file = open_file("people.csv")
            print([list(row.items()) for row in file.rows(map_columns(file.headers))])
            # -> [[('email', 'ann@company.example'), ('city', 'Lyon')]]
            ```
        """
        # The inherited method is twenty times slower, because it looks up each code.
        return self._require_readable().items()

    def _require_readable(self) -> Mapping[str, Any]:
        if self.fault is not None:
            raise InvalidRequest(self.fault)
        return self.members


@attrs.frozen(kw_only=True)
class File(ABC):
    r"""A file of rows, in any format. The file can be read any number of times, and is never fully loaded into memory.

    Every method, and every iterator that it returns, raises `InvalidRequest` if the file can no longer be read.

    Attributes:
        source: The bytes of the file.
        headers: Column names. No name occurs twice, except blank names.
        notes: Notes about the file, to be shown to the user.

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
    _added: int = 0
    _has_text: bool = False
    """Whether the last of the added columns is `_text`."""
    _pads: bool = False
    """Whether rows that are shorter than the header get blank cells."""

    @property
    def path(self) -> Path | None:
        """Path of the file; `None` for a stream, which is copied to a temporary file."""
        return self.source.path

    @property
    def name(self) -> str:
        """Name of the file, as messages show it."""
        return self.source.name

    @property
    def rejects(self) -> bool:
        """True if the file is a rejects file of an earlier import, edited or not. The columns that it adds are ignored."""
        return self._added > 0

    def fingerprint(self) -> str:
        r"""Return a digest of the file's bytes.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            journal = Journal("run.db", fingerprint=open_file("people.csv").fingerprint())
            ```
        """
        return self.source.fingerprint()

    def count(self) -> int:
        r"""Read the whole file and return the number of rows.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            print(open_file("people.csv").count())  # -> 1
            ```
        """
        return sum(len(block.lines) for block in self._read_blocks(_CHUNK_SIZE, _MAX_READ_AHEAD))

    def rows(self, columns: Columns) -> Iterator[Row]:
        r"""Yield the rows in order, reading at most 250 rows ahead. Empty lines are skipped.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
            file = open_file("people.csv")
            print([dict(row) for row in file.rows(map_columns(file.headers))])
            # -> [{'email': 'ann@company.example', 'city': 'Lyon'}]
            ```
        """
        return (row for block in self._read_mapped(columns, _CHUNK_SIZE, _MAX_READ_AHEAD) for row in _build_rows(block, columns))

    def records(self) -> Iterator[tuple[int, tuple[str, ...], str | None]]:
        r"""Yield, for each row, the number of its first line, its cells as in the input, and its fault (`None` for a valid row).

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
            print(list(open_file("people.csv").records()))  # -> [(2, ('ann@company.example', 'Lyon'), None)]
            ```
        """
        return ((record.line, record.cells, record.fault) for record in read_records(self))

    def column(self, at: int) -> Iterator[str]:
        r"""Yield the cell of the column with the index `at` for each row; an empty string for a row without this cell.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
            print(list(open_file("people.csv").column(1)))  # -> ['Lyon']
            ```
        """
        return (cells[at] if at < len(cells) else "" for _, cells, _ in self.records())

    def samples(self) -> tuple[str, ...]:
        r"""Return the first cell of each column that is not blank, in the first 100 rows; an empty string if there is none.

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

    def split(self) -> tuple[File, ...]:
        r"""Return files that together contain the rows of this file, in order.

        A Parquet file is split into its row groups. A file of any other format can only be read from its start, and is not split.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            print(len(open_file("people.csv").split()))  # -> 1
            ```
        """
        return (self,)

    @abstractmethod
    def _read_blocks(self, size: int, max_length: int) -> Iterator[Block]:
        """Yield the records below the header in blocks of at most `size`, and fewer if the rows are long."""

    def _read_mapped(self, _columns: Columns, size: int, max_length: int) -> Iterator[Block]:
        return self._read_trimmed(size, max_length)

    def _read_trimmed(self, size: int, max_length: int) -> Iterator[Block]:
        kept, width = len(self.headers), len(self.headers) + self._added
        for block in self._read_blocks(size, max_length):
            if self.rejects or max(map(len, block.cells)) > width:
                trimmed = [trim_cells(cells, width) for cells in block.cells]
                for at, cells in enumerate(trimmed) if self.rejects else ():
                    if len(cells) > width:  # a comma without quotes has moved the cells
                        block.faults[at], block.texts[at] = _describe_misfit(width, len(cells)), join_cells(cells)
                    elif len(cells) == width and self._has_text and cells[-1].strip():
                        block.faults[at], block.texts[at] = _TEXT_FAULT, unescape_formula(cells[-1])
                block.cells[:] = [[*map(unescape_formula, cells[:kept])] for cells in trimmed] if self.rejects else trimmed
                for at, issues in block.issues.items():
                    block.issues[at] = tuple(issue for issue in issues if issue[0] < kept)
            if self._pads:
                for at, cells in enumerate(block.cells):
                    if len(cells) < kept and at not in block.faults:
                        block.cells[at] = [*cells, *[""] * (kept - len(cells))]
            yield block


def read_blocks(file: File, columns: Columns, size: int) -> Iterator[Block]:
    """Yield the records of a file in blocks, without building a row of each."""
    return file._read_mapped(columns, size, _MAX_CHUNK_LENGTH)  # noqa: SLF001 - of this module


def read_records(file: File) -> Iterator[Record]:
    blocks = file._read_trimmed(_CHUNK_SIZE, _MAX_READ_AHEAD)  # noqa: SLF001 - of this module
    return (block.record(at) for block in blocks for at in range(len(block.lines)))


def group_records(records: Iterable[Record], size: int, max_length: int) -> Iterator[Block]:
    return map(Block.of, split_rows(records, size, max_length))


_RowOrRecord = TypeVar("_RowOrRecord", Row, Record)


def split_rows(rows: Iterable[_RowOrRecord], size: int, max_length: int = _MAX_CHUNK_LENGTH) -> Iterator[list[_RowOrRecord]]:
    """Yield the rows in lists of at most `size`, and fewer if the rows are long."""
    chunk: list[_RowOrRecord] = []
    length = 0
    try:
        for row in rows:
            chunk.append(row)
            length += sum(map(len, row.cells))
            if len(chunk) == size or length > max_length:
                yield chunk
                chunk, length = [], 0
    except InvalidRequest:  # an unreadable part follows
        if chunk:
            yield chunk
        raise
    if chunk:
        yield chunk


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
        raise InvalidRequest(f"{file.name}: no header; name the columns in the first line")
    if len(named) > MAX_COLUMNS:
        limit = f"expected at most {MAX_COLUMNS:,} columns, got more"
        raise InvalidRequest(f"{file.name}: {limit}; check that the first line has column names, not data")
    if address := next((cell for cell in map(str.strip, named) if _ADDRESS.fullmatch(cell)), None):
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


def count_reason_columns(headers: Sequence[str]) -> int:
    """Return the number of columns that a rejects file adds; 0 for the header of any other file."""
    # People may delete `_text` instead of clearing it.
    names = tuple(header.strip() for header in headers[-len(REASONS) - 1 :])
    for reasons in (REASONS, REASONS[:-1]):
        if names[-len(reasons) :] == reasons:
            return len(reasons) + (names[: -len(reasons)][-1:] == (FILE_COLUMN,))
    return 0
