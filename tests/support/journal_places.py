"""Locations of journals, so that tests can run with each of them: a file, a folder, memory or S3."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs
from support.journal import ENDINGS
from tools.journal_child import IDENTITY

from outreach_async.bulk.journal import Identity, Journal, JournalWriter, ObjectJournal, journal_at

_NUMBERS: Final = count()


@attrs.frozen
class Place:
    """The location of a journal."""

    location: str | Path

    def journal(self, **options: Any) -> Journal | ObjectJournal:
        """Return the journal at this location."""
        return journal_at(self.location, **options)

    def open(self, identity: Identity = IDENTITY, *, resume: bool = False, **options: Any) -> JournalWriter:
        """Open the journal for a run."""
        return self.journal().writer(identity, resume=resume, **options)

    def kill(self, writer: JournalWriter) -> Place:
        """Simulate a kill of the writer, and return the location of the journal that the kill leaves."""
        # A journal file is copied before the writer is closed, because closing changes the file.
        place = self
        if isinstance(self.location, Path):
            place = Place(self.location.with_name(f"killed{next(_NUMBERS)}.db"))
            for ending in ENDINGS:
                shutil.copyfile(f"{self.location}{ending}", f"{place.location}{ending}")
        writer.close()
        return place


def place_in(kind: str, folder: Path) -> Place:
    """Return an unused location of a kind: `file`, `folder`, `memory` or `s3`. Environment variables set the S3 server."""
    locations: dict[str, str | Path] = {
        "file": folder / "run.db",
        "folder": f"file://{folder}/run",
        "memory": f"memory://test{next(_NUMBERS)}",
        "s3": f"s3://journals/test{next(_NUMBERS)}",
    }
    return Place(locations[kind])
