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
    Objects,
    create_or_read,
    encode_identity,
    is_url,
    open_place,
    require_same_run,
    translate_errors,
)
from outreach_async.errors import InvalidRequest
from outreach_async.importer import RowOutcome
from outreach_async.parts._planning import Part, PlannedFile
from outreach_async.store.journal import Identity, Journal, ObjectJournal, journal_at

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


def find_part(folder: str | os.PathLike[str], name: str, fingerprint: str | None) -> Part | None:
    """Return the part to which a journal belongs; `None` if the journal was not written by an import in parts.

    Args:
        folder: The folder or the URL of the journals.
        name: The name of the journal.
        fingerprint: The fingerprint of the journal's report.

    Raises:
        JournalError: The folder cannot be read.

    Example:
        ```python
        print(find_part("journals", "00000", None))  # -> None
        ```
    """
    with translate_errors(os.fspath(folder)):
        try:
            part = msgspec.json.decode(open_folder(folder).read(f"{name}.json"), type=_PartRecord).part
        except (FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
    return part if part.fingerprint() == fingerprint else None


def results_of(part: Part, journal: str | os.PathLike[str]) -> Iterator[RowOutcome]:
    r"""Yield what became of each row of a part, in order; for a part that is not finished, of the rows with an outcome.

    `ResultsFile` writes them, and `to_dict` returns the columns of such a file. Iterating raises an `InvalidRequest` if a file
    has changed since the import was planned or cannot be read, and a `JournalError` if the journal is damaged.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\n")
        (part,) = plan(["people.csv"]).parts
        print([found.outcome.id for found in results_of(part, "journals")])  # -> []
        ```
    """
    if find_part(journal, part.id, part.fingerprint()) is not None and (record := journal_of(part, journal)).exists():
        yield from part.locate(record.outcomes())


class RejectsTable:
    r"""The columns of a rejects file of several files: those of all files, and the column `_file`.

    Columns of one field are one column.

    Args:
        files: The files of a plan or of its parts.

    Attributes:
        headers: The names of the columns, for `RejectsFile`.

    Example:
        ```python
        Path("may.csv").write_text("E-mail,Firm\nann@company.example,Acme\n")
        Path("june.csv").write_text("Address\nbo@company.example\n")
        made = plan(["may.csv", "june.csv"], overrides={"Firm": "company_name", "Address": "email"})
        print(RejectsTable(made.files).headers)  # -> ('E-mail', 'Firm', '_file')
        ```
    """

    def __init__(self, files: Iterable[PlannedFile]) -> None:
        self._places = dict[str, list[_Column]]()
        columns: dict[_Column, str] = {}
        for file in files:
            pairs = _columns_of(file)
            self._places[file.location] = [column for column, _ in pairs]
            for column, header in pairs:
                if column not in columns:  # two files may use one name for two fields; the code of the second is unambiguous
                    columns[column] = column[0] if header in columns.values() else header
        self._columns = [*columns]
        self.headers = (*columns.values(), _FILE_COLUMN)

    def reject(self, found: RowOutcome) -> RowOutcome:
        r"""Return a failed row as `RejectsFile.add` takes it.

        Example:
            ```python
            Path("people.csv").write_text("E-mail,City\n,Lyon\n")
            made = plan(["people.csv"])
            await client.contacts.create_many([{"email": ""}], journal="run.db")
            (found,) = made.parts[0].locate(Journal("run.db").outcomes())
            print(RejectsTable(made.files).reject(found).cells[:2])  # -> ['', 'Lyon']
            ```
        """
        location = str(found.file)
        cells = dict(zip(self._places[location], found.cells, strict=False))  # a row may have more or fewer cells than columns
        return attrs.evolve(found, cells=[*(cells.get(column, "") for column in self._columns), location], headers=self.headers)


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
    return open_place(place)
