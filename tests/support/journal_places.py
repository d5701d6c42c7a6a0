"""Where a journal can be: a file, a folder, memory or S3. What a run needs of a journal is tested in all of them."""

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
    """Where one journal is.

    Attributes:
        location: Its path or URL.
    """

    location: str | Path

    def journal(self, **options: Any) -> Journal | ObjectJournal:
        """Return the journal."""
        return journal_at(self.location, **options)

    def open(self, identity: Identity = IDENTITY, *, resume: bool = False, **options: Any) -> JournalWriter:
        """Open the journal for a run."""
        return self.journal().writer(identity, resume=resume, **options)

    def kill(self, writer: JournalWriter) -> Place:
        """Return the place of the journal as it is after a kill: closing a file, which a kill does not do, changes it."""
        place = self
        if isinstance(self.location, Path):
            place = Place(self.location.with_name(f"killed{next(_NUMBERS)}.db"))
            for ending in ENDINGS:
                shutil.copyfile(f"{self.location}{ending}", f"{place.location}{ending}")
        writer.close()
        return place


def place_in(kind: str, folder: Path) -> Place:
    """Return a place where no journal is yet; for `s3`, the environment names the server."""
    locations: dict[str, str | Path] = {
        "file": folder / "run.db",
        "folder": f"file://{folder}/run",
        "memory": f"memory://test{next(_NUMBERS)}",
        "s3": f"s3://journals/test{next(_NUMBERS)}",
    }
    return Place(locations[kind])
