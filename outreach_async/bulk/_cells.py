"""Turn the values of rows into what an import of a file sends, and give blank values their one meaning.

It reads the rows of data frames and of `csv.DictReader`, and any others on request.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from csv import DictReader
from itertools import chain
from time import monotonic
from typing import Any, Final, Literal, NamedTuple, TypeGuard

import attrs

from outreach_async._core.arguments import TARGET_FIELDS, is_missing
from outreach_async._core.logs import LOGGER
from outreach_async._core.values import Change, find_suspects, read_value
from outreach_async.bulk._frames import UnsendableRow, check_columns
from outreach_async.errors import InvalidRequest, shorten
from outreach_async.models import NewContact
from outreach_async.transport._secret import mask_keys

Blank = Literal["keep", "clear"]
"""What a blank value means: an empty cell, null, NaN, or a text of spaces alone. With `keep`, it is not sent, so that the contact
keeps the value that it has in the service. With `clear`, it is sent as null. With `duplicates="overwrite"`, the service then
clears the field; with the other policies, null changes nothing, so `clear` needs `"overwrite"`. A value that is left out because
it is damaged, such as `#REF!`, never clears a field, and neither does a key that a row does not have.

Example:
    ```python
    rows = [{"email": "bo@acme.example", "city": " "}]
    report = await client.contacts.create_many(rows, duplicates="overwrite", blank="clear")
    print(report.outcomes[Outcome.OVERWRITTEN])  # -> 1
    ```
"""


_CHUNK_SIZE: Final = 250  # rows of a CSV file that are read ahead
_LINGER: Final = 0.002  # seconds after which fewer rows are read ahead
_MAX_GROUPS: Final = 100  # groups of findings that a run remembers
_MAX_MESSAGE_LENGTH: Final = 300
_LEFT_OUT: Final = object()
_NONE_IS_BLANK: Final = frozenset({4, 5})
"""`QUOTE_STRINGS` and `QUOTE_NOTNULL` of Python 3.12: with these, a reader returns `None` also for a cell without quotes."""


class _Reading(NamedTuple):
    """What is sent instead of a value, or `_LEFT_OUT`; what was changed or found; and why the row is rejected."""

    value: Any
    changes: tuple[Change, ...] = ()
    fault: str | None = None


@attrs.define
class _Group:
    """Findings of one kind in one field."""

    first: int
    message: str
    count: int = 0


class CellReader:
    """Reads the values of rows. It counts what it changed or found, by field and kind."""

    def __init__(self, columns: Collection[str] | None = None, *, normalise: bool, blank: Blank, logs: bool = True) -> None:
        """Create a reader of rows that all have these columns or, by default, of rows that may have any fields."""
        self._columns = columns
        self._normalises = normalise
        self._logs = logs
        self._blank: Any = None if blank == "clear" else _LEFT_OUT
        self._count = 0
        self._groups: dict[tuple[str, str], _Group] = {}
        self._ungrouped = 0

    @property
    def width(self) -> int:
        """The number of fields of each row before blank ones are left out; 0 if rows may have any, or if none is left out."""
        return 0 if self._columns is None or self._blank is None else len({*self._columns}.difference(TARGET_FIELDS))

    def findings(self) -> tuple[str, ...]:
        """Return what was changed or found so far: for each field and kind, the first row and the number of rows."""
        more = (f"{self._ungrouped:,} more findings of other kinds",) if self._ungrouped else ()
        return (*(_describe(code, group) for (code, _), group in self._groups.items()), *more)

    def read_table(self, chunks: Iterable[list[Any]]) -> Iterator[Any]:
        """Yield the rows of a table, of which each distinct value in a column of a chunk is looked at once."""
        for chunk in chunks:
            first, self._count = self._count, self._count + len(chunk)
            columns = self._columns or dict.fromkeys(chain.from_iterable(row for row in chunk if type(row) is dict))
            faults = self._read_columns({first + at: row for at, row in enumerate(chunk) if type(row) is dict}, columns)
            yield from (UnsendableRow(row, faults[at]) if at in faults else row for at, row in enumerate(chunk, first))

    def read(self, row: Any) -> Any:
        """Return a row as it is sent."""
        index, self._count = self._count, self._count + 1
        try:
            return self._read(index, row)
        except InvalidRequest as error:
            return UnsendableRow(row, str(error))

    def _read(self, index: int, row: Any) -> Any:
        if type(row) is tuple and row:  # a contact and its target
            return (self._read(index, row[0]), *row[1:])
        if isinstance(row, NewContact):
            values = {"email": row.email, **row.standard(), "custom": row.custom, "extra": row.extra}
            return NewContact(**{"email": None, **self._read_values(index, values)})
        if (clear := getattr(row, "clear_blanks", None)) is not None:  # a row of a file, whose values have been read
            return clear() if self._blank is None else row
        return self._read_values(index, dict(row.items())) if isinstance(row, Mapping) else row

    def _read_values(self, index: int, values: dict[Any, Any]) -> dict[Any, Any]:
        if faults := self._read_columns({index: values}, [*values]):
            raise InvalidRequest(faults[index])
        for name in ("custom", "extra"):
            if isinstance(values.get(name), Mapping):
                values[name] = nested = dict(values[name])
                self._read_columns({index: nested}, [*nested])
        return values

    def _read_columns(self, rows: dict[int, dict[Any, Any]], columns: Iterable[Any]) -> dict[int, str]:
        """Read the values of rows, in place. Return the faults of those that cannot be sent, whose other values stay."""
        faults: dict[int, str] = {}
        codes = [code for code in columns if type(code) is str and code not in {"custom", "extra"}]
        for code in sorted(codes, key="email".__ne__):  # first, because the values of a row that cannot be sent stay as they are
            faults |= self._read_column(code, rows)
            if faults and code == "email":
                rows = {index: row for index, row in rows.items() if index not in faults}
        return faults

    def _read_column(self, code: str, rows: dict[int, dict[Any, Any]]) -> dict[int, str]:
        values = [row[code] for row in rows.values() if code in row]
        kinds = {*map(type, values)}
        texts = {*values} if kinds <= {str} else {value for value in values if type(value) is str}
        odd = {text for text in texts if not text or text.isspace()}
        if self._normalises:
            odd |= find_suspects(code, texts)
        if not odd and kinds <= {str}:  # nearly always
            return {}
        readings, faults = {text: self._read_text(code, text) for text in odd}, {}
        for index, row in rows.items():
            if code not in row:
                continue
            value = row[code]
            reading = readings.get(value) if type(value) is str else self._read_other(code, value)
            if reading is None:
                continue
            if reading.fault is not None:
                faults[index] = reading.fault
                continue
            for change in reading.changes:
                self._add(code, index, change)
            if reading.value is _LEFT_OUT:
                del row[code]
            else:
                row[code] = reading.value
        return faults

    def _read_text(self, code: str, text: str) -> _Reading:
        value, changes = read_value(code, text) if self._normalises else (text, ())
        lost = next((change for change in changes if change.damaged), None)
        if code == "email":
            # Without its e-mail, a row cannot be sent. The check of the contact explains a blank one.
            lost = lost or (changes[-1] if changes and not value else None)
            return _Reading(value or text, changes, f"email: {lost.message}" if lost else None)
        if value and not value.isspace() and not lost:
            return _Reading(value, changes)
        return _Reading(_LEFT_OUT if lost else self._blank, changes)

    def _read_other(self, code: str, value: object) -> _Reading | None:
        """Return the reading of a value of another type; `None` if it stays, and the check of the contact refuses it."""
        if issubclass(type(value), str):
            return self._read_text(code, str.__str__(value))
        if value is not None and not is_missing(value):
            return None
        return _Reading(_LEFT_OUT if code == "email" else self._blank)

    def _add(self, code: str, index: int, change: Change) -> None:
        key = code, change.kind
        if (group := self._groups.get(key)) is None:
            if len(self._groups) == _MAX_GROUPS:
                self._ungrouped += 1
                return
            message = change.loss if change.damaged else change.message
            group = self._groups[key] = _Group(index, shorten(mask_keys(message), _MAX_MESSAGE_LENGTH))
            if self._logs:  # without the value, which is about a person
                LOGGER.warning("create_many: %s: the value of row %d %s", code, index, change.reason)
        group.count += 1


def _describe(code: str, group: _Group) -> str:
    more = f" ({group.count:,} rows)" if group.count > 1 else ""
    return f"{code}: row {group.first}: {group.message}{more}"


def is_blank(code: str, text: str) -> bool:
    """Return whether a cell has no value: it is empty, or has a text that stands for a missing value."""
    return not read_value(code, text)[0].strip()


def count_kept(row: Any, width: int) -> int:
    """Return the number of blank fields of a row that are not sent: of a row of a file, or of a table with `width` fields."""
    if width and type(row) is dict:
        return width - len(row.keys() - TARGET_FIELDS)
    return len(getattr(row, "blanks", ()))


def is_csv(rows: object) -> TypeGuard[DictReader[str]]:
    """Return whether rows are those of `csv.DictReader`: texts of cells, by the names of columns."""
    return isinstance(rows, DictReader)


def csv_columns(reader: DictReader[str]) -> list[str] | None:
    """Return the columns of a reader, after checking their names; `None` if its class may give the rows other keys."""
    if type(reader).__next__ is not DictReader.__next__:
        return None
    columns = [*(reader.fieldnames or ())]
    if columns:
        check_columns(columns)
    return columns


def read_csv(
    reader: DictReader[str], freeze: Callable[[Any], Any], clock: Callable[[], float] = monotonic
) -> Iterator[list[Any]]:
    """Yield the rows of a reader in chunks. A row with more or fewer cells than the header cannot be sent."""
    expected, none_is_blank = len(reader.fieldnames or ()), reader.reader.dialect.quoting in _NONE_IS_BLANK
    rows, until, chunk = map(freeze, reader), clock() + _LINGER, list[Any]()
    try:
        for row in rows:
            is_ragged = type(row) is dict and (None in row or (not none_is_blank and None in row.values()))
            chunk.append(_refuse_ragged(row, expected) if is_ragged else row)
            if len(chunk) == _CHUNK_SIZE or clock() > until:  # the lines may come from a program that is slow
                yield chunk
                until, chunk = clock() + _LINGER, []
    except Exception:  # the rows before the error come first
        yield chunk
        raise
    yield chunk


def _refuse_ragged(row: dict[Any, Any], expected: int) -> UnsendableRow:
    got = len(row) - 1 + len(row[None]) if None in row else sum(value is not None for value in row.values())
    remedy = "quote cells that contain the delimiter"
    if got < expected:
        remedy = "add the missing cells, or pass restval='' to DictReader, which leaves their fields blank"
    return UnsendableRow(row, f"row: expected {expected} cells, as in the header, got {got}; {remedy}")
