"""Write the failed rows of an import to a file that users can correct and import, and describe what became of each row."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias

import attrs

from outreach_async import Outcome, store
from outreach_async._plumbing import (
    atomic_file,
    escape_formula,
    fails_only_its_rows,
    hint_similar,
    read_value,
    rejection_message,
    show_name,
)
from outreach_async.bulk import ContactOutcome
from outreach_async.errors import InvalidRequest, StatusError
from outreach_async.importer._known_exports import clean_name
from outreach_async.importer._rows import Record, Row, RowNumber, RowUnit, join_cells, text_of
from outreach_async.importer._table import REASONS, File, count_reason_columns, read_records
from outreach_async.importer._unmapped import IGNORE
from outreach_async.models import FAILED_OUTCOMES, STANDARD_FIELDS

_HEAD_SIZE: Final = 1 << 16
_LEADING_FIELD: Final = re.compile(r"(?P<field>[a-z][a-z0-9_]*): ")
_BODY_FIELD: Final = re.compile(rb'"(?:field|param|parameter|property)"\s*:\s*"(?P<field>[A-Za-z][A-Za-z0-9_.]{0,63})"')
ANSWER_PREFIX: Final = re.compile(r"\A\w+: the service answered [0-9]+: ")
_MESSAGE_FIELD: Final = re.compile(r"['\"]?(?P<field>[a-z][a-z0-9_]*)\b")
_CUSTOM_CODE: Final = re.compile(r"\bcustom_[0-9]+\b")


@attrs.frozen
class Reject:
    line: int
    cells: Sequence[str]
    code: str
    field: str
    message: str
    text: str = ""


def fit_cells(cells: Sequence[str], width: int) -> list[str]:
    """Return the first cells of a row, as many as there are columns. `text_of` returns all cells of a row that does not fit."""
    return [*cells[:width], *[""] * (width - len(cells))]


class RejectsFile:
    """A CSV file of failed rows, in UTF-8. The file appears when the `with` block ends, even after an exception.

    Only its owner can read a new file; an existing file keeps its permissions. Cells that a spreadsheet would run as a formula
    start with an apostrophe, and control characters other than newline and tab are escaped. An import reverses both changes.

    Args:
        path: Path of the file.
        headers: Column names of the input.

    Attributes:
        rows: Number of rows written.
        is_finished: Whether the rows are those of a finished run, true by default. Otherwise the file is written beside that at
            `path`, and does not replace it: for `rejects.csv`, its name is `rejects.partial.csv`.

    Raises:
        OSError: The file cannot be written; raised on entering or leaving the `with` block.

    Example:
        ```python
        with RejectsFile("rejects.csv", ["E-mail"]) as rejects:
            async with client.contacts.create_many([{"email": ""}]) as outcomes:
                async for outcome in outcomes:
                    rejects.add(reject(2, [""], outcome))
        print(rejects.rows)  # -> 1
        ```
    """

    def __init__(self, path: str | Path, headers: Sequence[str]) -> None:
        self.rows = 0
        self.is_finished = True
        self._path = path
        self._headers = headers

    def __enter__(self) -> Self:
        """Create a temporary file, and write the header."""
        with ExitStack() as stack:
            draft = stack.enter_context(atomic_file(self._path, private=True, is_finished=lambda: self.is_finished))
            # A response of the service may contain lone surrogates, which UTF-8 cannot encode.
            self._text = TextIOWrapper(draft, encoding="utf-8", errors="backslashreplace", newline="")
            stack.callback(self._text.detach)  # writes what is buffered, and leaves the file open
            self.clear()
            self._exit_stack = stack.pop_all()
        return self

    def clear(self) -> None:
        """Remove the rows that were written, but not the header.

        Example:
            ```python
            with RejectsFile("rejects.csv", ["E-mail"]) as rejects:
                rejects.clear()
            ```
        """
        self._text.seek(0)
        self._text.truncate()
        self.rows = 0
        self._writer = csv.writer(self._text)
        self._writer.writerow([*map(escape_formula, self._headers), *REASONS])

    def add(self, reject: Reject) -> None:
        """Write a failed row to the file.

        Example:
            ```python
            async with client.contacts.create_many([{"email": ""}]) as outcomes:
                with RejectsFile("rejects.csv", ["E-mail"]) as rejects:
                    rejects.add(reject(2, [""], await anext(aiter(outcomes))))
            print(Path("rejects.csv").read_text().splitlines()[0])  # -> E-mail,_row,_code,_field,_message,_text
            ```
        """
        width = len(self._headers)
        text = reject.text or text_of(Record(reject.line, tuple(reject.cells)), width)
        message = reject.message
        if text and "_text" not in message:
            message += "; when the cells are right, clear _text"
        reasons = (str(reject.line), reject.code, reject.field, message, text)
        self._writer.writerow(map(escape_formula, (*fit_cells(reject.cells, width), *reasons)))
        self.rows += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._exit_stack.close()


def is_reject(outcome: ContactOutcome) -> bool:
    """Return whether a row is `rejected`, `not_applied` or `unknown`, but not because another row superseded it.

    Example:
        ```python
        async with client.contacts.create_many([{"email": ""}, {"email": "bo@acme.example"}]) as outcomes:
            print(sorted([(outcome.index, is_reject(outcome)) async for outcome in outcomes]))  # -> [(0, True), (1, False)]
        ```
    """
    is_superseded = outcome.repeats is not None and outcome.status is Outcome.NOT_APPLIED
    return outcome.status in FAILED_OUTCOMES and not is_superseded


FindNumber: TypeAlias = Callable[[int], RowNumber | None]  # takes the index of a row


def number_record(index: int) -> RowNumber:
    return RowNumber("record", index + 1)


def reject(
    line: int, cells: Sequence[str], outcome: ContactOutcome, find_number: FindNumber = lambda _index: None, text: str = ""
) -> Reject:
    """Return a failed row for `RejectsFile.add`.

    Args:
        line: The line on which the row begins in the input.
        cells: The row's cells, as in the input.
        outcome: The row's outcome.
        find_number: Function that takes the index of a row and returns its number, for the message of a duplicate.
        text: The row as in the input, if its cells do not show it: `Row.text`.

    Example:
        ```python
        async with client.contacts.create_many([{"email": ""}]) as outcomes:
            row = reject(2, [""], await anext(aiter(outcomes)))
        print(row.line, row.code, row.field)  # -> 2 rejected email
        ```
    """
    if outcome.repeats is not None:  # alone in a file, the row would replace the values of the one that counts
        text = text or join_cells(cells)
    return Reject(line, cells, outcome.status.value, find_field(outcome), reject_message(outcome, find_number), text)


def rejects_of(
    file: File, outcomes: Iterable[ContactOutcome], unit: RowUnit = "line", mapping: Mapping[str, str] | None = None
) -> Iterator[Reject]:
    r"""Yield the failed rows of a file, given the outcomes of its rows in the order of their index.

    Rows are numbered by the line on which they begin or, with the `unit` `"record"`, by their position, both from 1. With the
    `mapping` of a journal's report, a damaged value in a column that is ignored is no reason for a row to be rejected again.

    Raises:
        InvalidRequest: The file can no longer be read, or the outcomes come from a journal that does not exist.
        JournalError: The journal cannot be read.

    Example:
        ```python
        Path("people.csv").write_text('E-mail,City\n" ",Lyon\n')
        file = open_file("people.csv")
        await client.contacts.create_many(file.rows(map_columns(file.headers)), journal="run.db")
        print([(row.line, row.field) for row in rejects_of(file, Journal("run.db").outcomes())])  # -> [(2, 'email')]
        ```
    """
    numbers, records = array("Q"), read_records(file)
    ignored = {at for at, header in enumerate(file.headers) if mapping and mapping.get(header.strip()) == IGNORE}
    for outcome in filter(is_reject, outcomes):
        while len(numbers) <= outcome.index:
            record = next(records)
            numbers.append(record.line if unit == "line" else len(numbers) + 1)
        text = text_of(record, len(file.headers), ignored)
        yield reject(numbers[outcome.index], record.cells, outcome, lambda index: RowNumber(unit, numbers[index]), text)


def spooled_rejects(journal: store.journal.JournalStore) -> tuple[tuple[str, ...], Iterator[Reject]]:
    """Return the columns and the failed rows of a run whose journal stores the input (`spool=True`).

    The columns are field codes. The journal does not store the values of rows that can never be sent, so their cells are empty.

    Raises:
        InvalidRequest: The journal does not exist.
        JournalError: The journal cannot be read.

    Example:
        ```python
        fake.faults.script("create_contact", faults.status(422))
        await client.contacts.create_many([{"email": "ann@company.example", "city": "Lyon"}], journal="run.db", spool=True)
        headers, rejects = spooled_rejects(Journal("run.db"))
        print(headers, [row.cells for row in rejects])  # -> ('email', 'city') [['ann@company.example', 'Lyon']]
        ```
    """
    codes: dict[str, None] = {"email": None}
    for outcome in filter(is_reject, journal.outcomes()):
        codes |= dict.fromkeys(_string_members(outcome))
    return tuple(codes), (
        reject(outcome.index + 1, [_string_members(outcome).get(code, "") for code in codes], outcome, number_record)
        for outcome in filter(is_reject, journal.outcomes())
    )


def _string_members(outcome: ContactOutcome) -> dict[str, str]:
    members = outcome.contact if isinstance(outcome.contact, Mapping) else {}
    return {str(code): value for code, value in members.items() if isinstance(value, str)}


def export_rejects(
    path: Path, file: File | None, journal: store.journal.JournalStore, unit: RowUnit = "line", *, is_finished: bool = True
) -> int:
    """Write the failed rows of a run to a rejects file, and return their number."""
    if file is None:
        headers, rows = spooled_rejects(journal)
    else:
        headers, rows = file.headers, rejects_of(file, journal.outcomes(), unit, journal.report().mapping)
    return write_rejects(path, headers, rows, is_finished=is_finished)


def write_rejects(path: Path, headers: Sequence[str], rows: Iterable[Reject], *, is_finished: bool = True) -> int:
    with RejectsFile(path, headers) as rejects:
        rejects.is_finished = is_finished
        for row in rows:
            rejects.add(row)
    return rejects.rows


def reject_message(outcome: ContactOutcome, find_number: FindNumber) -> str:
    number = find_number(outcome.repeats) if outcome.repeats is not None else None
    return str(outcome.error or "") if number is None else rejection_message(str(number))


def find_field(outcome: ContactOutcome) -> str:
    """Return the fields named in an outcome's error, separated by commas."""
    # A local check names the field at the start of its message; the service names fields in its message or in the response body.
    error = outcome.error
    if isinstance(error, InvalidRequest):
        return match["field"] if (match := _LEADING_FIELD.match(str(error))) else ""
    if not isinstance(error, StatusError):
        return ""
    words = ANSWER_PREFIX.sub("", str(error))
    leading = [match["field"] for part in words.split("; ") if (match := _MESSAGE_FIELD.match(part))]
    known = [name for name in leading if name in {"email", *STANDARD_FIELDS} or _CUSTOM_CODE.fullmatch(name)]
    if fields := known or _CUSTOM_CODE.findall(words)[:1]:
        return ", ".join(dict.fromkeys(fields))
    return named["field"].decode() if (named := _BODY_FIELD.search(error.body)) else ""


def is_rejects_file(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return count_reason_columns(next(csv.reader(io.StringIO(file.read(_HEAD_SIZE), newline="")), ())) > 0


# Results: what became of each row, and what to do about it.

OUTCOME_COLUMNS: Final = ("workspace", "campaign", "status", "certain", "possible", "attempts", "id", "error", "remedy")
COLUMNS: Final = ("file", "line", "record", "email", *OUTCOME_COLUMNS)
"""Columns of a results file. A row from standard input has a record number instead of a file and a line."""
_REMEDIES: Final[Mapping[Outcome, str]] = {
    Outcome.REJECTED: "correct the row, and import it again",
    Outcome.NOT_APPLIED: "import the row again",
    Outcome.UNKNOWN: "import the row again; the service detects a contact that exists",
}
_UNKNOWN_TARGET: Final = "check the workspace and the campaign of the row, and import it again"


def describe_outcome(outcome: ContactOutcome, message: str | None = None) -> dict[str, Any]:
    """Return the columns of an outcome; `message` replaces that of its error."""
    error, remedy = str(outcome.error or "") if message is None else message, None
    if is_reject(outcome):
        remedy = _REMEDIES[outcome.status]
        if isinstance(outcome.error, InvalidRequest):  # its message ends with the remedy
            error, _, remedy = error.rpartition("; ") if "; " in error else (error, "", remedy)
        elif outcome.error is not None and fails_only_its_rows(outcome.error):
            remedy = _UNKNOWN_TARGET
    certainty = (outcome.status.value, outcome.certain, sorted(outcome.possible), outcome.attempts)
    return dict(zip(OUTCOME_COLUMNS, (*outcome.target, *certainty, outcome.id, error or None, remedy), strict=True))


def find_email(outcome: ContactOutcome) -> str:
    row = outcome.contact
    if isinstance(row, Row):
        return row.email.strip()
    return str(row.get("email", "")).strip() if isinstance(row, Mapping) else ""


_ALL: Final = "all"
_PREFIX: Final = "input_"
_MIN_SIMILARITY: Final = 0.5


class KeptColumns:
    """Picks cells of the input by the name of their column, so that people can join results on a key of theirs.

    A column whose name is that of a column of results, regardless of case, is renamed `input_NAME`: so is `id`.
    """

    def __init__(self, wanted: Iterable[str], *headers: Sequence[str]) -> None:
        known: dict[str, None] = {}
        for each in headers:
            known |= dict.fromkeys(_name_columns(each))
        names: dict[str, None] = {}
        for name in (each.strip() for each in wanted):
            if name != _ALL and name not in known:
                near = hint_similar(name, known, _MIN_SIMILARITY)
                raise InvalidRequest(f"keep: the file has no column {show_name(name)}{near}; use a name from its header")
            names |= known if name == _ALL else {name: None}
        results = {*map(str.casefold, COLUMNS)}
        used = results | {*map(str.casefold, names)}
        self.names: dict[str, str] = {}
        for name in names:
            # Some readers ignore case. Arrow and UTF-8 cannot store lone surrogates.
            given = name.encode(errors="backslashreplace").decode()
            if name.casefold() in results:
                while given.casefold() in used:
                    given = f"{_PREFIX}{given}"
                used.add(given.casefold())
            self.names[name] = given
        self._places: dict[tuple[str, ...], list[tuple[int, str]]] = {}

    def pick(self, headers: tuple[str, ...], cells: Sequence[str]) -> Mapping[str, str | None]:
        """Return the cells of a row as in its file, `None` where it has none, by the names of the results file."""
        if not self.names:
            return {}
        if (places := self._places.get(headers)) is None:
            named = enumerate(_name_columns(headers))
            places = self._places[headers] = [(at, self.names[name]) for at, name in named if name in self.names]
        return {name: cells[at] if at < len(cells) else None for at, name in places}


def _name_columns(headers: Sequence[str]) -> list[str]:
    """Return the names of columns, which are unique except for blank ones."""
    return [header.strip() or f"column {at}" for at, header in enumerate(headers, 1)]


NO_COLUMNS: Final = KeptColumns(())


class LocatedRow(NamedTuple):
    outcome: ContactOutcome
    number: RowNumber
    email: str
    cells: Sequence[str]


def locate_outcomes(
    outcomes: Iterable[ContactOutcome], file: File | None, mapping: Mapping[str, str], unit: RowUnit = "line"
) -> Iterator[LocatedRow]:
    """Yield the outcomes of a journal, in the order of their index, each with its row if the file is known."""
    records = enumerate(file.records() if file else ())
    headers = file.headers if file else ()
    names = [*map(clean_name, headers)]
    emails = [names.index(column) for column, code in mapping.items() if code.split(" ")[0] == "email" and column in names]
    for outcome in outcomes:
        number, address, cells = number_record(outcome.index), find_email(outcome), tuple[str, ...]()
        if file is not None:
            line, cells, _ = next(record for index, record in records if index == outcome.index)
            if unit == "line":
                number = RowNumber("line", line)
                address = next(filter(None, (_read_email(cells[at]) for at in emails if at < len(cells))), "")
        yield LocatedRow(outcome, number, address, cells)


def _read_email(cell: str) -> str:
    value, changes = read_value("email", cell)
    return "" if any(change.damaged for change in changes) else value.strip()


def describe_outcomes(
    outcomes: Iterable[ContactOutcome],
    file: File | None,
    mapping: Mapping[str, str],
    kept: KeptColumns = NO_COLUMNS,
    unit: RowUnit = "line",
) -> Iterator[dict[str, Any]]:
    """Yield the columns of each outcome of a journal, and cells of its row if the file is known."""
    for outcome, number, email, cells in locate_outcomes(outcomes, file, mapping, unit):
        picked = kept.pick(file.headers if file else (), cells)
        yield {number.unit: number.value, "email": email, **describe_outcome(outcome), **picked}
