"""Rows that made no contact, as a file to mend and import again: the input's own columns, and why."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import attrs

from outreach_async.bulk.outcome import ContactOutcome, was_stood_for
from outreach_async.vocabulary import Outcome

if TYPE_CHECKING:
    from outreach_async.importer.file import File  # which reads what is written here

REASONS: Final = ("_row", "_code", "_field", "_message")
"""Columns that a rejects file has over those of its input: the row's line, its outcome, the field at fault if one is named, and the
reason. An import leaves them out."""

_UNDONE: Final = (Outcome.REJECTED, Outcome.NOT_APPLIED, Outcome.UNKNOWN)
_FORMULA: Final = re.compile(r"'*[=+\-@\t\r]")
_FIELD: Final = re.compile(r"(?P<field>[a-z][a-z0-9_]*): ")
_SHIELDED: Final = re.compile(r"''*[=+\-@\t\r]")


@attrs.frozen
class Reject:
    """A row that made no contact.

    Attributes:
        line: Where it begins in the input.
        cells: As they stand there.
        code: What became of it, as outcomes are called.
        message: Why; it begins with the field's name if one is at fault.
    """

    line: int
    cells: Sequence[str]
    code: str
    message: str

    @property
    def field(self) -> str:
        """The field at fault, or an empty text."""
        return found["field"] if (found := _FIELD.match(self.message)) else ""

    def under(self, headers: Sequence[str]) -> list[str]:
        """Return the row of a file with these columns: a cell for each, what is over in the last, and the reasons."""
        last = len(headers) - 1
        cells = [*self.cells[:last], ",".join(self.cells[last:])]
        return [*cells, *[""] * (len(headers) - len(cells)), str(self.line), self.code, self.field, self.message]


class RejectsFile:
    """A CSV file in UTF-8 of rows that made no contact; it takes its name when the block ends, however it ends.

    Cells that a spreadsheet would take for a formula are shielded by an apostrophe, which an import of the file takes off again.

    Args:
        path: Where it will be.
        headers: The input's columns.

    Attributes:
        rows: How many it has.
    """

    def __init__(self, path: str | Path, headers: Sequence[str]) -> None:
        self.rows = 0
        self._path = Path(path)
        self._headers = headers
        self._draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")

    def __enter__(self) -> Self:
        """Begin the file.

        Raises:
            OSError: It cannot be written.
        """
        self._file = self._draft.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow([*self._headers, *REASONS])
        return self

    def add(self, reject: Reject) -> None:
        """Write a row."""
        self._writer.writerow(map(shield, reject.under(self._headers)))
        self.rows += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._file.close()
            self._draft.replace(self._path)
        finally:
            self._draft.unlink(missing_ok=True)


def is_reject(outcome: ContactOutcome) -> bool:
    """Whether the row made no contact, or may have made none, and no other row stood for it."""
    return outcome.status in _UNDONE and not was_stood_for(outcome)


def reject(line: int, cells: Sequence[str], outcome: ContactOutcome) -> Reject:
    """Return the row as it goes into a rejects file."""
    return Reject(line, cells, outcome.status.value, str(outcome.error or ""))


def rejects_of(file: File, outcomes: Iterable[ContactOutcome]) -> Iterator[Reject]:
    """Yield the rejects of a file by its outcomes, which come by index."""
    records = enumerate(file.records())
    for outcome in filter(is_reject, outcomes):
        line, cells, _ = next(record for index, record in records if index == outcome.index)
        yield reject(line, cells, outcome)


def shield(cell: str) -> str:
    """Keep a spreadsheet from running a cell as a formula."""
    return f"'{cell}" if _FORMULA.match(cell) else cell


def unshield(cell: str) -> str:
    """Undo `shield`."""
    return cell[1:] if _SHIELDED.match(cell) else cell


def is_rejects(headers: Sequence[str]) -> bool:
    """Whether a file with these columns was written by `write_rejects`."""
    return tuple(header.strip() for header in headers[-len(REASONS) :]) == REASONS
