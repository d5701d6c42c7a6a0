"""The folder of the journals of an import: it records the plan, and each part that has started, beside the parts' journals."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
import msgspec

from outreach_async._plumbing import (
    FolderObjects,
    Objects,
    create_or_read,
    encode_identity,
    is_url,
    open_objects,
    require_same_run,
    translate_errors,
)
from outreach_async.bulk import ContactOutcome
from outreach_async.errors import InvalidRequest
from outreach_async.importer import PlacedRow, Reject, Row, RowOutcome, is_reject, locate_outcomes
from outreach_async.parts._planning import Part, PlannedFile, planned_rows
from outreach_async.store.journal import Identity, Journal, JournalStore, ObjectJournal, journal_at

_FILE_COLUMN: Final = "_file"  # of rejects, before the columns that every rejects file has
_PLAN_NAME: Final = "plan.json"
_MAX_FINDINGS: Final = 10  # of a part whose lines are reported


class _PlanRecord(msgspec.Struct):
    plan: str
    identity: dict[str, Any]
    version: Literal[1] = 1


class _PartRecord(msgspec.Struct):
    part: Part
    version: Literal[1] = 1


@attrs.frozen
class CellFinding:
    r"""A cell that is not sent as it is in the file, such as `#REF!`, or that a spreadsheet may have changed.

    Attributes:
        file: Location of the file.
        line: The line on which the row begins, from 1.
        message: The field and the problem.

    Example:
        ```python
        print(CellFinding("/data/people.csv", 7, "zip: '#REF!' is an error value of a spreadsheet").line)  # -> 7
        ```
    """

    file: str
    line: int
    message: str


@attrs.define
class PartFindings:
    count: int = 0
    first: tuple[CellFinding, ...] = ()
    is_complete: bool = False

    def watch(self, part: Part) -> Iterator[Row]:
        for file, row in planned_rows(part):
            for remark in row.warnings:
                self.count += 1
                if self.count <= _MAX_FINDINGS:
                    self.first += (CellFinding(file.location, row.line, f"{remark.code}: {remark.message}"),)
            yield row
        self.is_complete = True


def journal_of(part: Part, folder: str | os.PathLike[str]) -> Journal | ObjectJournal:
    """Return the journal of a part. The journal has the fingerprint of the part, so a part of another plan cannot resume it."""
    place = os.fspath(folder)
    source = f"rows with repeated e-mails from {len(part.files)} files"
    if not part.repeated:
        source = f"{part.files[0].location}, piece {part.pieces[0].number}"
    location = f"{place.rstrip('/')}/{part.id}" if is_url(place) else Path(place, f"{part.id}.db")
    return journal_at(location, source=source, fingerprint=part.fingerprint())


def record_part(part: Part, folder: str | os.PathLike[str], workspace: str, address: str | None) -> None:
    """Record a part, its plan and its destination in the folder before the part is sent. A missing folder is created."""
    objects, place = open_folder(folder), os.fspath(folder)
    identity = Identity(workspace, options={}, address=address)
    record = msgspec.json.encode(_PlanRecord(part.plan, encode_identity(identity)))
    with translate_errors(place):
        # The first part to start decides. An object is never replaced, so parts that start at the same time agree.
        if (recorded := create_or_read(objects, _PLAN_NAME, record)) != record:
            found = None
            with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                found = msgspec.json.decode(recorded, type=_PlanRecord)
            if found is None or found.plan != part.plan:
                raise InvalidRequest(
                    f"journal: {place} belongs to another plan: the files or the options of the import differ;"
                    ' restore them, or use a new folder with earlier="unknown", because some rows may have been sent'
                )
            require_same_run(place, identity, found.identity)
        create_or_read(objects, f"{part.id}.json", msgspec.json.encode(_PartRecord(part)), after=_PLAN_NAME)


def read_part(folder: str | os.PathLike[str], name: str, fingerprint: str | None) -> Part | None:
    """Return the recorded part to which a journal belongs. Return `None` if the journal was not written by an import in parts."""
    with translate_errors(os.fspath(folder)):
        try:
            part = msgspec.json.decode(open_folder(folder).read(f"{name}.json"), type=_PartRecord).part
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
    return part if part.fingerprint() == fingerprint else None


def locate(part: Part, outcomes: Iterable[ContactOutcome]) -> Iterator[RowOutcome]:
    """Return outcomes of a part, ordered by index, each with its file and its row."""
    emails = {file.location: file.columns.sources["email"] for file in part.files}
    rows = (
        PlacedRow(row.line, row.cells, file.headers, emails[file.location], row.text, file.location)
        for file, row in planned_rows(part)
    )
    return locate_outcomes(outcomes, rows)


def results_of(part: Part, journal: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    r"""Yield what became of each row of a part, in order; for a part that is not finished, of the rows with an outcome.

    Each result is a dict with the columns of the command's `--results`: `file`, `line`, `email`, `workspace`, `campaign`,
    `status`, `certain`, `possible`, `attempts`, `id`, `error` and `remedy`. Iterating raises an `InvalidRequest` if a file has
    changed since the import was planned or cannot be read, and a `JournalError` if the journal is damaged.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\n")
        (part,) = plan(["people.csv"]).parts
        print([row["id"] for row in results_of(part, "journals")])  # -> []
        ```
    """
    return (found.to_dict() for found in locate(part, outcomes_of(part, journal)))


def outcomes_of(part: Part, journal: str | os.PathLike[str]) -> Iterator[ContactOutcome]:
    if read_part(journal, part.id, part.fingerprint()) is not None and (record := journal_of(part, journal)).exists():
        yield from record.outcomes()


def rejects_of_parts(parts: Iterable[tuple[Part, JournalStore]]) -> tuple[tuple[str, ...], Iterator[Reject]]:
    # The columns are those of all files, and the column `_file`. Columns of one field are one column.
    parts = list(parts)
    columns: dict[_Column, str] = {}
    for column, header in (pair for part, _ in parts for file in part.files for pair in _columns_of(file)):
        if column not in columns:  # two files may use one name for two fields; the code of the second field is unambiguous
            columns[column] = column[0] if header in columns.values() else header

    def find() -> Iterator[Reject]:
        for part, journal in parts:
            places = {file.location: [column for column, _ in _columns_of(file)] for file in part.files}
            for found in locate(part, filter(is_reject, journal.outcomes())):
                location = str(found.row.file)
                # A row may have more or fewer cells than columns.
                cells = dict(zip(places[location], found.row.cells, strict=False))
                yield attrs.evolve(
                    found.reject(), text=found.row.text, cells=[*(cells.get(column, "") for column in columns), location]
                )

    return (*columns.values(), _FILE_COLUMN), find()


_Column: TypeAlias = tuple[str, int]
"""A field's code and -1, for its second column -2, and so on; for an ignored column its name and 0, or its index if unnamed."""


def _columns_of(file: PlannedFile) -> list[tuple[_Column, str]]:
    counts, numbers = Counter[str](), dict[int, int]()
    for at in dict.fromkeys([*chain.from_iterable(file.fallbacks), *range(len(file.codes))]):
        if code := file.codes[at]:
            counts[code] -= 1
            numbers[at] = counts[code]
    return [
        ((code, numbers[at]) if code else (name, 0 if name.strip() else at), name)
        for at, (name, code) in enumerate(zip(file.headers, file.codes, strict=True))
    ]


def open_folder(folder: str | os.PathLike[str]) -> Objects:
    place = os.fspath(folder)
    return open_objects(place) if is_url(place) else FolderObjects(Path(place))
