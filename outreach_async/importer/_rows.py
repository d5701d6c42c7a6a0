"""The records of a file, and the rows that they become: what is sent of each, and why a row is not sent."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from outreach_async._plumbing import TARGET_FIELDS, Change, is_blank
from outreach_async.errors import Excluded, InvalidRequest
from outreach_async.importer._columns import Columns, is_contact_member

_MAX_TEXT: Final = 30_000  # characters; a cell of Excel holds 32,767

CellChange: TypeAlias = tuple[int, Change]
"""What a reader found in the column with this index."""


class Record(NamedTuple):
    line: int
    cells: tuple[str, ...]
    fault: str | None = None
    issues: tuple[CellChange, ...] = ()
    text: str = ""
    """The row as in the file, if its cells do not show it: of a line that is not CSV or JSON, or with a damaged value."""
    absent: Collection[int] = ()
    """The empty cells that are not blank, because the file does not have them: they say nothing, and clear no field."""


class Block(NamedTuple):
    """Records of a file, in order. Few have a fault, issues, a text or absent cells, stored by the index of the record."""

    lines: list[int]
    cells: list[Sequence[str]]
    faults: dict[int, str]
    issues: dict[int, tuple[CellChange, ...]]
    texts: dict[int, str]
    absent: Mapping[int, Collection[int]] = MappingProxyType({})

    @classmethod
    def of(cls, records: Sequence[Record] = ()) -> Block:
        return cls(
            lines=[record.line for record in records],
            cells=[record.cells for record in records],
            faults={at: record.fault for at, record in enumerate(records) if record.fault},
            issues={at: record.issues for at, record in enumerate(records) if record.issues},
            texts={at: record.text for at, record in enumerate(records) if record.text},
            absent={at: record.absent for at, record in enumerate(records) if record.absent},
        )

    def choose(self, flags: Sequence[int]) -> Block:
        """Return the records whose flag is set."""
        kept = [at for at, flag in enumerate(flags) if flag]
        if len(kept) == len(self.lines):
            return self
        places = {at: place for place, at in enumerate(kept)}
        rest: Any = ({places[at]: value for at, value in each.items() if at in places} for each in self[2:])
        return Block([self.lines[at] for at in kept], [self.cells[at] for at in kept], *rest)

    def record(self, at: int) -> Record:
        cells = tuple(self.cells[at])
        return Record(self.lines[at], cells, self.faults.get(at), self.issues.get(at, ()), self.texts.get(at, ""))


def text_of(record: Record, width: int, ignored: Collection[int] = ()) -> str:
    """Return the text of a row for its rejects; empty if the cells, read again, have the same faults as the row."""
    is_damaged = any(change.damaged for at, change in record.issues if at not in ignored)
    is_shown = not (record.fault or is_damaged) and len(record.cells) == width
    return "" if is_shown else record.text or join_cells(record.cells)


def join_cells(cells: Sequence[str]) -> str:
    """Return cells as a line of CSV."""
    line = io.StringIO(newline="")
    csv.writer(line, lineterminator="").writerow(cells)
    return cut_text(line.getvalue())


def cut_text(text: str) -> str:
    """Return the text of a row, cut to a length that a cell of a spreadsheet holds."""
    length = len(text)
    return text if length <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... (the first {_MAX_TEXT:,} of {length:,} characters)"


@attrs.frozen
class Remark:
    r"""A warning about one cell. The row can still be sent.

    Attributes:
        kind: The kind of problem, in one word, such as `"mojibake"`.
        column: Name of the column.
        code: Field code that the column maps to.
        message: The problem and its remedy.
        value: The text that is sent instead of the cell, empty if the field is left unset; `None` if the cell is sent unchanged.
        damaged: Whether the value is lost. Then nothing of it is sent, and `blank="clear"` does not clear the field.

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
    warnings: tuple[Remark, ...] = ()
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
        known = {*members, *members.get("extra", ()), *TARGET_FIELDS}
        known.update(remark.code for remark in self.warnings if remark.damaged)  # a damaged value may have no text
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


class RowFinding(NamedTuple):
    """What a check says about a value of a row.

    Attributes:
        check: Name of the check, such as `"phone"`.
        level: What happens: `"error"` rejects or excludes the row, `"drop"` leaves the value out, `"warn"` changes nothing.
        code: The code of the field; empty if the finding is about the whole row.
        reason: The part of the message that rows with the same problem have in common.
        message: The problem and its remedy.

    Example:
        ```python
        finding = RowFinding("zip", "warn", "zip", "expected at most 12 letters", "zip: '#1': expected at most 12 letters")
        print(finding.check, finding.level)  # -> zip warn
        ```
    """

    check: str
    level: str
    code: str
    reason: str
    message: str
