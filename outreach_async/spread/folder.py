"""The folder of the journals of an import: it records the plan, and each part that has started, beside the parts' journals."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from outreach_async.bulk.journal import Journal, ObjectJournal, journal_at
from outreach_async.bulk.journal.object_journal import translate_errors
from outreach_async.bulk.journal.objects import FolderObjects, Objects, create_or_read, is_url, open_objects
from outreach_async.bulk.outcomes import ContactOutcome
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.importer.table import Row
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
                f"journal: {os.fspath(folder)} belongs to another plan: a file or an option of the import has changed;"
                ' restore it, or use a new folder with earlier="unknown", because some rows may have been sent'
            )
        create_or_read(objects, f"{part.id}.json", msgspec.json.encode(_PartRecord(part)), after=PLAN_NAME)


def read_part(folder: str | os.PathLike[str], name: str) -> Part | None:
    """Return the recorded part with an id; `None` if there is none.

    Raises:
        InvalidRequest: The record was written by an incompatible version of this package, or the URL is invalid.
        JournalError: The record cannot be read.
    """
    try:
        with translate_errors(os.fspath(folder)):
            content = _open(folder).read(f"{name}.json")
        return msgspec.json.decode(content, type=_PartRecord).part
    except JournalError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            f"journal: {os.fspath(folder)}: {name}.json is not the record of a part ({error}); use the version that wrote it"
        ) from None


def located(part: Part, outcomes: Iterable[ContactOutcome]) -> Iterator[tuple[ContactOutcome, PlannedFile, Row]]:
    """Yield outcomes of a part, ordered by index, each with its file and its row.

    Raises:
        InvalidRequest: A file has changed since the import was planned, or cannot be read.
    """
    rows = enumerate(planned_rows(part))
    for outcome in outcomes:
        file, row = next(found for index, found in rows if index == outcome.index)
        yield outcome, file, row


def _open(folder: str | os.PathLike[str]) -> Objects:
    place = os.fspath(folder)
    return open_objects(place) if is_url(place) else FolderObjects(Path(place))
