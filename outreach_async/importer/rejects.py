"""Rows that made no contact, as a file to mend and import again: the input's own columns, and why."""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeAlias

import attrs

from outreach_async.bulk.journal import Journal
from outreach_async.bulk.outcome import ContactOutcome, was_stood_for
from outreach_async.bulk.repeats import refused_as
from outreach_async.errors import InvalidRequest, StatusError
from outreach_async.spreadsheets import shield
from outreach_async.vocabulary import STANDARD_FIELDS, Outcome
from outreach_async.wholefiles import draft_of

if TYPE_CHECKING:
    from outreach_async.importer.file import File  # which reads what is written here

REASONS: Final = ("_row", "_code", "_field", "_message")
"""Columns that a rejects file has over those of its input: the row's line, its outcome, the field at fault if one is named, and
why. An import leaves them out."""

_HEAD: Final = 1 << 16
_UNDONE: Final = (Outcome.REJECTED, Outcome.NOT_APPLIED, Outcome.UNKNOWN)
_FIELD: Final = re.compile(r"(?P<field>[a-z][a-z0-9_]*): ")
_NAMED: Final = re.compile(rb'"(?:field|param|parameter|property)"\s*:\s*"(?P<field>[A-Za-z][A-Za-z0-9_.]{0,63})"')
_ANSWERED: Final = re.compile(r"\A\w+: the service answered [0-9]+: ")
_BEGINS: Final = re.compile(r"['\"]?(?P<field>[a-z][a-z0-9_]*)\b")
_CUSTOM: Final = re.compile(r"\bcustom_[0-9]+\b")


@attrs.frozen
class Reject:
    """A row that made no contact.

    Attributes:
        line: Where it begins in the input.
        cells: As they stand there.
        code: What became of it, as outcomes are called.
        field: The field at fault, several with commas, or an empty text.
        message: Why.
    """

    line: int
    cells: Sequence[str]
    code: str
    field: str
    message: str

    def under(self, headers: Sequence[str]) -> list[str]:
        """Return the row of a file with these columns: a cell for each, what is over in the last, and the reasons."""
        last = len(headers) - 1
        cells = [*self.cells[:last], ",".join(self.cells[last:])]
        return [*cells, *[""] * (len(headers) - len(cells)), str(self.line), self.code, self.field, self.message]


class RejectsFile:
    """A CSV file in UTF-8 of rows that made no contact; it takes its name when the block ends, however it ends.

    Cells that a spreadsheet would take for a formula are shielded by an apostrophe, and control characters other than newline and
    tab are written as escapes; an import of the file takes both back.

    Args:
        path: Where it will be.
        headers: The input's columns.

    Attributes:
        rows: How many it has.

    Raises:
        OSError: When entered or left: it cannot be written.

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
        self._path = path
        self._headers = headers

    def __enter__(self) -> Self:
        """Begin the file.

        Raises:
            OSError: It cannot be written.
        """
        with ExitStack() as stack:
            draft = stack.enter_context(draft_of(self._path))
            # The service may send halves of characters, which no file can hold.
            file = stack.enter_context(draft.open("w", encoding="utf-8", errors="backslashreplace", newline=""))
            self._writer = csv.writer(file)
            self._writer.writerow([*map(shield, self._headers), *REASONS])
            self._closing = stack.pop_all()
        return self

    def add(self, reject: Reject) -> None:
        """Write a row.

        Example:
            ```python
            async with client.contacts.create_many([{"email": ""}]) as outcomes:
                with RejectsFile("rejects.csv", ["E-mail"]) as rejects:
                    async for outcome in outcomes:
                        rejects.add(reject(2, [""], outcome))
            print(Path("rejects.csv").read_text().splitlines()[0])  # -> E-mail,_row,_code,_field,_message
            ```
        """
        self._writer.writerow(map(shield, reject.under(self._headers)))
        self.rows += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.close()


def is_reject(outcome: ContactOutcome) -> bool:
    """Whether the row made no contact, or may have made none, and no other row stood for it.

    Example:
        ```python
        async with client.contacts.create_many([{"email": ""}, {"email": "bo@acme.example"}]) as outcomes:
            print(sorted([(outcome.index, is_reject(outcome)) async for outcome in outcomes]))  # -> [(0, True), (1, False)]
        ```
    """
    return outcome.status in _UNDONE and not was_stood_for(outcome)


LineOf: TypeAlias = Callable[[int], int | None]
"""Returns the line of a row by its index, or `None`."""


def reject(line: int, cells: Sequence[str], outcome: ContactOutcome, line_of: LineOf = lambda _index: None) -> Reject:
    """Return the row as it goes into a rejects file.

    Args:
        line: Where it begins.
        cells: As they stand there.
        outcome: What became of it.
        line_of: Knows the line of a row that it repeats.

    Example:
        ```python
        async with client.contacts.create_many([{"email": ""}]) as outcomes:
            async for outcome in outcomes:
                row = reject(2, [""], outcome)
                print(row.line, row.code, row.field)  # -> 2 rejected email
        ```
    """
    return Reject(line, cells, outcome.status.value, field_of(outcome), message_of(outcome, line_of))


def rejects_of(file: File, outcomes: Iterable[ContactOutcome]) -> Iterator[Reject]:
    r"""Yield the rejects of a file by its outcomes, which come by index.

    Raises:
        InvalidRequest: The file can no longer be read, or there is no journal behind the outcomes.
        JournalError: It cannot be read.

    Example:
        ```python
        Path("people.csv").write_text('E-mail,City\n" ",Lyon\n')
        file = open_file("people.csv")
        await client.contacts.create_many(file.rows(map_columns(file.headers)), journal="run.db")
        print([(row.line, row.field) for row in rejects_of(file, Journal("run.db").outcomes())])  # -> [(2, 'email')]
        ```
    """
    lines, records = array("Q"), file.records()
    for outcome in filter(is_reject, outcomes):
        while len(lines) <= outcome.index:
            line, cells, _ = next(records)
            lines.append(line)
        yield reject(line, cells, outcome, lines.__getitem__)


def spooled_rejects(journal: Journal) -> tuple[tuple[str, ...], Iterator[Reject]]:
    """Return the rejects of an input that is gone, from what the journal keeps of it: the fields' codes as columns, and the rows.

    Of a row that could never be sent the journal keeps no more than the reason.

    Raises:
        InvalidRequest: There is no journal.
        JournalError: It cannot be read.

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
        codes |= dict.fromkeys(_spooled(outcome))
    return tuple(codes), (_spooled_reject(outcome, tuple(codes)) for outcome in filter(is_reject, journal.outcomes()))


def _spooled_reject(outcome: ContactOutcome, codes: Sequence[str]) -> Reject:
    members = _spooled(outcome)
    return reject(outcome.index + 1, [members.get(code, "") for code in codes], outcome, lambda index: index + 1)


def _spooled(outcome: ContactOutcome) -> dict[str, str]:
    members = outcome.contact if isinstance(outcome.contact, Mapping) else {}
    return {str(code): value for code, value in members.items() if isinstance(value, str)}


def message_of(outcome: ContactOutcome, line_of: LineOf) -> str:
    """Return why a row made no contact; another row is named by its line, where that is known."""
    line = line_of(outcome.repeats) if outcome.repeats is not None else None
    return str(outcome.error or "") if line is None else refused_as(f"line {line}")


def field_of(outcome: ContactOutcome) -> str:
    """Return the field that an outcome's error names: a check's at the start, the service's in its answer or its words."""
    error = outcome.error
    if isinstance(error, InvalidRequest):
        return found["field"] if (found := _FIELD.match(str(error))) else ""
    if not isinstance(error, StatusError):
        return ""
    words = _ANSWERED.sub("", str(error))
    begun = [found["field"] for part in words.split("; ") if (found := _BEGINS.match(part)) and _is_field(found["field"])]
    if fields := begun or _CUSTOM.findall(words)[:1]:
        return ", ".join(dict.fromkeys(fields))
    return named["field"].decode() if (named := _NAMED.search(error.body)) else ""


def _is_field(name: str) -> bool:
    return name == "email" or name in STANDARD_FIELDS or _CUSTOM.fullmatch(name) is not None


def begins_as_rejects(path: Path) -> bool:
    """Whether a file begins as a `RejectsFile` does.

    Raises:
        OSError: It cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        return is_rejects(next(csv.reader(io.StringIO(file.read(_HEAD), newline="")), ()))


def is_rejects(headers: Sequence[str]) -> bool:
    """Whether a file with these columns was written as a `RejectsFile`."""
    return tuple(header.strip() for header in headers[-len(REASONS) :]) == REASONS
