"""Write the failed rows of an import to a file that users can correct and import."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import attrs

from outreach_async import Outcome, store
from outreach_async._plumbing import atomic_file, escape_formula, rejection_message
from outreach_async.bulk import ContactOutcome
from outreach_async.errors import InvalidRequest, StatusError
from outreach_async.importer._rows import Record, join_cells, text_of
from outreach_async.importer._table import REASONS, count_reason_columns
from outreach_async.models import FAILED_OUTCOMES, STANDARD_FIELDS

_HEAD_SIZE: Final = 1 << 16
_LEADING_FIELD: Final = re.compile(r"(?P<field>[a-z][a-z0-9_]*): ")
_BODY_FIELD: Final = re.compile(rb'"(?:field|param|parameter|property)"\s*:\s*"(?P<field>[A-Za-z][A-Za-z0-9_.]{0,63})"')
ANSWER_PREFIX: Final = re.compile(r"\A\w+: the service answered [0-9]+: ")
_MESSAGE_FIELD: Final = re.compile(r"['\"]?(?P<field>[a-z][a-z0-9_]*)\b")
_CUSTOM_CODE: Final = re.compile(r"\bcustom_[0-9]+\b")


@attrs.frozen
class Reject:
    """A failed row, as `RejectsFile.add` writes it.

    Attributes:
        line: The number of the row.
        cells: Its cells, as in the input.
        code: Its outcome.
        field: The fields that are wrong, separated by commas.
        message: The error.
        text: The row as in the input, if its cells do not show it.

    Example:
        ```python
        print(Reject(2, [" "], "rejected", "email", "email: expected an address").field)  # -> email
        ```
    """

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
        path: Path of the file.
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
        self.path = Path(path)
        self._headers = headers

    def __enter__(self) -> Self:
        """Create a temporary file, and write the header."""
        with ExitStack() as stack:
            draft = stack.enter_context(atomic_file(self.path, private=True, is_finished=lambda: self.is_finished))
            # A response of the service may contain lone surrogates, which UTF-8 cannot encode.
            self._text = TextIOWrapper(draft, encoding="utf-8", errors="backslashreplace", newline="")
            stack.callback(self._text.detach)  # writes what is buffered, and leaves the file open
            self.replace(())
            self._exit_stack = stack.pop_all()
        return self

    @staticmethod
    def recognises(path: Path) -> bool:
        """Return whether a file is a rejects file, edited or not.

        Example:
            ```python
            with RejectsFile("rejects.csv", ["E-mail"]):
                pass
            print(RejectsFile.recognises(Path("rejects.csv")))  # -> True
            ```
        """
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return count_reason_columns(next(csv.reader(io.StringIO(file.read(_HEAD_SIZE), newline="")), ())) > 0

    def replace(self, rejects: Iterable[Reject]) -> None:
        """Write these rows instead of those that were written so far.

        Example:
            ```python
            with RejectsFile("rejects.csv", ["E-mail"]) as rejects:
                rejects.replace([Reject(2, [" "], "rejected", "email", "email: expected an address")])
            print(rejects.rows)  # -> 1
            ```
        """
        self._text.seek(0)
        self._text.truncate()
        self.rows = 0
        self._writer = csv.writer(self._text)
        self._writer.writerow([*map(escape_formula, self._headers), *REASONS])
        for each in rejects:
            self.add(each)

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


def reject(
    line: int,
    cells: Sequence[str],
    outcome: ContactOutcome,
    find_place: Callable[[int], str | None] = lambda _index: None,
    text: str = "",
) -> Reject:
    """Return a failed row for `RejectsFile.add`.

    Args:
        line: The line on which the row begins in the input.
        cells: The row's cells, as in the input.
        outcome: The row's outcome.
        find_place: Function that takes the index of a row and returns where it is, such as `line 7`, for the message of a repeat.
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
    return Reject(line, cells, outcome.status.value, find_field(outcome), reject_message(outcome, find_place), text)


def _name_record(index: int) -> str:
    return f"record {index + 1}"


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
        reject(outcome.index + 1, [_string_members(outcome).get(code, "") for code in codes], outcome, _name_record)
        for outcome in filter(is_reject, journal.outcomes())
    )


def _string_members(outcome: ContactOutcome) -> dict[str, str]:
    members = outcome.contact if isinstance(outcome.contact, Mapping) else {}
    return {str(code): value for code, value in members.items() if isinstance(value, str)}


def reject_message(outcome: ContactOutcome, find_place: Callable[[int], str | None]) -> str:
    place = find_place(outcome.repeats) if outcome.repeats is not None else None
    return str(outcome.error or "") if place is None else rejection_message(place)


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
