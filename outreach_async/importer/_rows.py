"""The records of a file, and the rows that they become: what is sent of each, and why a row is not sent."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from outreach_async import Target
from outreach_async._plumbing import Change, is_blank
from outreach_async.errors import Excluded, InvalidRequest
from outreach_async.importer._columns import Columns, is_contact_member

_MAX_TEXT: Final = 30_000  # characters; a cell of Excel holds 32,767

CellChange: TypeAlias = tuple[int, Change]
"""What a reader found in the column with this index."""


class Oddity(NamedTuple):
    """What few records have: a fault, or what their cells do not show."""

    fault: str | None = None
    issues: tuple[CellChange, ...] = ()
    text: str = ""
    """The row as in the file, if its cells do not show it: of a line that is not CSV or JSON, or with a damaged value."""
    absent: Collection[int] = ()
    """The empty cells that are not blank, because the file does not have them: they say nothing, and clear no field."""


PLAIN: Final = Oddity()

Record: TypeAlias = tuple[int, Sequence[str], Oddity, int]
"""The line of a record, its cells, what is odd about it, and the number of characters of the cells."""


class Block(NamedTuple):
    """Records of a file, in order, and what is odd about some of them, by the index of the record."""

    lines: list[int]
    cells: list[Sequence[str]]
    odd: dict[int, Oddity]

    def choose(self, flags: Sequence[int]) -> Block:
        """Return the records whose flag is set."""
        kept = [at for at, flag in enumerate(flags) if flag]
        if len(kept) == len(self.lines):
            return self
        odd = {place: self.odd[at] for place, at in enumerate(kept) if at in self.odd}
        return Block([self.lines[at] for at in kept], [self.cells[at] for at in kept], odd)

    @property
    def faults(self) -> dict[int, str]:
        return {at: odd.fault for at, odd in self.odd.items() if odd.fault is not None}


def group_records(records: Iterable[Record], size: int, max_length: int) -> Iterator[Block]:
    """Yield the records in blocks of at most `size`, and fewer if the rows are long."""
    lines, all_cells, odd = block = Block([], [], {})
    length = 0
    try:
        for line, cells, oddity, characters in records:
            if oddity is not PLAIN:
                odd[len(lines)] = oddity
            lines.append(line)
            all_cells.append(cells)
            length += characters
            if length > max_length or len(lines) == size:
                yield block
                lines, all_cells, odd = block = Block([], [], {})
                length = 0
    except InvalidRequest:  # an unreadable part follows
        if lines:
            yield block
        raise
    if lines:
        yield block


def text_of(cells: Sequence[str], odd: Oddity, width: int, ignored: Collection[int] = ()) -> str:
    """Return the text of a row for its rejects; empty if the cells, read again, have the same faults as the row."""
    is_damaged = any(change.damaged for at, change in odd.issues if at not in ignored)
    is_shown = not (odd.fault or is_damaged) and len(cells) == width
    return "" if is_shown else odd.text or join_cells(cells)


def join_cells(cells: Sequence[str]) -> str:
    """Return cells as a line of CSV."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="").writerow(cells)
    return cut_text(line.getvalue())


def cut_text(text: str) -> str:
    """Return the text of a row, cut to a length that a cell of a spreadsheet holds."""
    length = len(text)
    return text if length <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... (the first {_MAX_TEXT:,} of {length:,} characters)"


class RowFinding(NamedTuple):
    r"""What a check says about a value of a row, or what the cells of a row become.

    Attributes:
        check: Name of the check, such as `"phone"`.
        level: What happens: `"error"` rejects or excludes the row, `"drop"` leaves the value out, `"warn"` changes nothing.
        code: The code of the field; empty if the finding is about the whole row.
        reason: The part of the message that rows with the same problem have in common.
        message: The problem and its remedy.
        column: Name of the column, if a cell was changed, left out, or looks damaged.
        kind: The kind of problem of such a cell, in one word, such as `"mojibake"`.
        value: The text that is sent instead of the cell, empty if the field is left unset; `None` if the cell is sent unchanged.
        damaged: Whether the value is lost. Then nothing of it is sent, and `blank="clear"` does not clear the field.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,OrlÃ©ans\n", encoding="utf-8")
        file = open_file("people.csv")
        print([found.kind for row in file.rows(map_columns(file.headers)) for found in row.warnings])  # -> ['mojibake']
        ```
    """

    check: str
    level: str
    code: str
    reason: str
    message: str
    column: str = ""
    kind: str = ""
    value: str | None = None
    damaged: bool = False


@attrs.frozen(slots=False)  # without slots, creating a frozen object takes half the time
class Row(Mapping[str, Any]):
    r"""A row that `create_many` accepts: a mapping of the fields of a new contact.

    Reading the fields of a row with a `fault` raises `InvalidRequest`, and a bulk run reports the row as `rejected`. If the row
    is `excluded`, the error is `Excluded`, and so is the outcome.

    Attributes:
        line: The line of the file on which the row begins, from 1; the header is usually line 1.
        cells: The cells of the row, as strings, as in the file.
        fault: The reason why the row cannot be sent, if there is one.
        excluded: The reason why the person must not be written to, if a column says so.
        warnings: What was changed or found in the cells; the row can still be sent.
        sent: The cells as they are sent; empty if the row has not one cell for each column.
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
    excluded: str | None = None
    warnings: tuple[RowFinding, ...] = ()
    _columns: Columns | None = attrs.field(default=None, eq=False, repr=False)
    sent: Sequence[str] = attrs.field(default=(), eq=False, repr=False)
    text: str = attrs.field(default="", eq=False, repr=False)
    _members: Mapping[str, Any] | None = attrs.field(default=None, eq=False, repr=False)
    _absent: Collection[int] = attrs.field(default=(), eq=False, repr=False)

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
        columns = self._columns
        if columns is None or columns.plain is None or self._members is not None:
            return None
        if self.fault is not None or self.excluded is not None:
            return None
        codes, pick = columns.plain
        return codes, pick(self.sent)

    @property
    def blanks(self) -> tuple[str, ...]:
        """The codes of the fields that are not sent because their cells are blank, not because their value is damaged."""
        members, columns = self.members, self._columns
        if columns is None or not self.sent or self.fault is not None or self.excluded is not None:
            return ()
        known = {*members, *members.get("extra", ()), *Target._fields}
        known.update(found.code for found in self.warnings if found.damaged)  # a damaged value may have no text
        return tuple(code for code, places in columns.sources.items() if code not in known and self._is_blank(code, places))

    def _is_blank(self, code: str, places: Iterable[int]) -> bool:
        cells = [self.cells[at] for at in places if at not in self._absent]
        return bool(cells) and all(is_blank(code, cell) for cell in cells)

    def clear_blanks(self) -> Row:
        r"""Return the row with `None` for each field whose cells are blank, as `create_many` sends it with `blank="clear"`.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\nann@company.example,\n")
            file = open_file("people.csv")
            print([dict(row.clear_blanks()) for row in file.rows(map_columns(file.headers))])
            # -> [{'email': 'ann@company.example', 'city': None}]
            ```
        """
        if not (blanks := self.blanks):
            return self
        members = {**self.members, **{code: None for code in blanks if is_contact_member(code)}}
        if extra := {code: None for code in blanks if not is_contact_member(code)}:
            members["extra"] = {**members.get("extra", {}), **extra}
        return attrs.evolve(self, members=members)

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
        if self.excluded is not None:
            raise Excluded(self.excluded)
        if self.fault is not None:
            raise InvalidRequest(self.fault)
        return self.members
