"""The folder of the journals of an import: it records the plan, and each part that has started, beside the parts' journals."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Final, Literal, TypeAlias

import attrs
import msgspec

from outreach_async.bulk.journal import Journal, JournalReader, ObjectJournal, journal_at
from outreach_async.bulk.journal.object_journal import translate_errors
from outreach_async.bulk.journal.objects import FolderObjects, Objects, create_or_read, is_url, open_objects
from outreach_async.bulk.outcomes import ContactOutcome
from outreach_async.bulk.rows import rejection_message
from outreach_async.errors import InvalidRequest
from outreach_async.importer.rejects import Reject, find_field, fit_cells, is_reject
from outreach_async.importer.table import FILE_COLUMN, Row
from outreach_async.spread.planning import Part, PlannedFile, planned_rows

PLAN_NAME: Final = "plan.json"


class _PlanRecord(msgspec.Struct):
    plan: str
    version: Literal[1] = 1


class _PartRecord(msgspec.Struct):
    part: Part
    version: Literal[1] = 1


def journal_of(part: Part, folder: str | os.PathLike[str]) -> Journal | ObjectJournal:
    """Return the journal of a part. The journal has the fingerprint of the part, so a part of another plan cannot resume it."""
    place = os.fspath(folder)
    location = f"{place.rstrip('/')}/{part.id}" if is_url(place) else Path(place, f"{part.id}.db")
    return journal_at(location, source=part.describe(), fingerprint=part.fingerprint())


def record_part(part: Part, folder: str | os.PathLike[str]) -> None:
    """Record a part and its plan in the folder before the part is sent. A missing folder is created.

    Raises:
        InvalidRequest: The folder belongs to another plan.
        JournalError: The folder cannot be read or written.
    """
    objects, plan_record = _open(folder), msgspec.json.encode(_PlanRecord(part.plan))
    with translate_errors(os.fspath(folder)):
        # The first part to start decides. An object is never replaced, so parts that start at the same time agree.
        if create_or_read(objects, PLAN_NAME, plan_record) != plan_record:
            raise InvalidRequest(
                f"journal: {os.fspath(folder)} belongs to another plan: the files or the options of the import differ;"
                ' restore them, or use a new folder with earlier="unknown", because some rows may have been sent'
            )
        create_or_read(objects, f"{part.id}.json", msgspec.json.encode(_PartRecord(part)), after=PLAN_NAME)


def read_part(folder: str | os.PathLike[str], name: str, fingerprint: str | None) -> Part | None:
    """Return the recorded part to which a journal belongs. Return `None` if the journal was not written by an import in parts.

    Args:
        folder: Folder or URL of the journals.
        name: Name of the journal.
        fingerprint: Fingerprint of the input in the journal.

    Raises:
        InvalidRequest: The URL is invalid.
        JournalError: The record cannot be read.
    """
    with translate_errors(os.fspath(folder)):
        try:
            part = msgspec.json.decode(_open(folder).read(f"{name}.json"), type=_PartRecord).part
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
    return part if part.fingerprint() == fingerprint else None


@attrs.frozen
class LocatedOutcome:
    """An outcome of a part, with the file and the row.

    Attributes:
        outcome: The outcome.
        file: The file.
        row: The row.
        message: The message of the error; empty if there is none. Other rows are identified by file and line.
    """

    outcome: ContactOutcome
    file: PlannedFile
    row: Row
    message: str

    @property
    def email(self) -> str:
        """The e-mail of the row, as in the file; empty if the row has no such cell."""
        column = self.file.codes.index("email")
        return self.row.cells[column].strip() if column < len(self.row.cells) else ""


def locate(part: Part, outcomes: Iterable[ContactOutcome]) -> Iterator[LocatedOutcome]:
    """Yield outcomes of a part, ordered by index, each with its file and its row.

    Raises:
        InvalidRequest: A file has changed since the import was planned, or cannot be read.
    """
    rows, lines, files = planned_rows(part), array("Q"), list[tuple[int, PlannedFile]]()
    for outcome in outcomes:
        while len(lines) <= outcome.index:
            file, row = next(rows)
            if not files or files[-1][1] is not file:
                files.append((len(lines), file))
            lines.append(row.line)
        message = str(outcome.error or "")
        if outcome.repeats is not None and is_reject(outcome):
            _, other = files[bisect_right(files, outcome.repeats, key=itemgetter(0)) - 1]
            message = rejection_message(f"{other.location}: line {lines[outcome.repeats]}")
        yield LocatedOutcome(outcome, files[-1][1], row, message)


def rejects_of_parts(parts: Iterable[tuple[Part, JournalReader]]) -> tuple[tuple[str, ...], Iterator[Reject]]:
    """Return the columns and the failed rows of the parts of one plan.

    The columns are those of all files, and the column `_file`. Columns of the same field are one column, so that the rejects can
    be imported.

    Raises:
        InvalidRequest: When iterated: a file has changed since the import was planned, or cannot be read.
        JournalError: When iterated: a journal cannot be read.
    """
    parts = list(parts)
    columns: dict[_Column, str] = {}
    for column, header in (pair for part, _ in parts for file in part.files for pair in _columns_of(file)):
        if column not in columns:  # two files may use one name for two fields; the code of the second field is unambiguous
            columns[column] = column[0] if header in columns.values() else header

    def find() -> Iterator[Reject]:
        for part, journal in parts:
            for found in locate(part, filter(is_reject, journal.outcomes())):
                values = fit_cells(found.row.cells, len(found.file.headers))
                cells = {column: cell for (column, _), cell in zip(_columns_of(found.file), values, strict=True)}
                outcome = found.outcome
                yield Reject(
                    line=found.row.line,
                    cells=[*(cells.get(column, "") for column in columns), found.file.location],
                    code=outcome.status.value,
                    field=find_field(outcome),
                    message=found.message,
                )

    return (*columns.values(), FILE_COLUMN), find()


_Column: TypeAlias = tuple[str, int]
"""A field's code and -1; for an ignored column its name and 0, or its index if the name is blank."""


def _columns_of(file: PlannedFile) -> list[tuple[_Column, str]]:
    """Return the columns of a file with their names."""
    return [
        ((code, -1) if code else (name, 0 if name.strip() else at), name)
        for at, (name, code) in enumerate(zip(file.headers, file.codes, strict=True))
    ]


def _open(folder: str | os.PathLike[str]) -> Objects:
    place = os.fspath(folder)
    return open_objects(place) if is_url(place) else FolderObjects(Path(place))
