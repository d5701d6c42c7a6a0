"""Opens or creates the journal of a run. It is locked, and checked before anything is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from outreach_async.bulk.journal.identity import Earlier
from outreach_async.bulk.journal.integrity import require_intact
from outreach_async.bulk.journal.lock import JournalLock, require_lockable, translate_os_errors
from outreach_async.bulk.journal.making import LOG_SUFFIXES, has_log, set_aside
from outreach_async.bulk.journal.reader import DamagedJournalError, EmptyJournalError, empty_error, query_journal, remedy
from outreach_async.bulk.journal.records import classify_header
from outreach_async.errors import InvalidRequest

CreateJournal: TypeAlias = Callable[[str, Mapping[str, Any]], None]


@attrs.frozen
class LockedJournal:
    """A locked journal.

    Attributes:
        path: Path of the journal.
        lock: The lock.
        metadata: The run's metadata in the journal.
        created: Whether the journal is new.
        damage: Reason and new name of a damaged journal that this one replaces; `None` if it replaces none.
    """

    path: str
    lock: JournalLock
    metadata: Mapping[str, Any]
    created: bool
    damage: Mapping[str, Any] | None = None


def open_locked(path: str, facts: Mapping[str, Any], *, resume: bool, earlier: Earlier, make: CreateJournal) -> LockedJournal:
    """Lock an intact journal, or create one.

    Args:
        path: Path of the journal.
        facts: The run's metadata for a new journal.
        resume: Whether to resume an existing journal.
        earlier: With `unknown`, which implies `resume`, a damaged journal is renamed, and a new one is created.
        make: Creates a new journal.

    Raises:
        InvalidRequest: The file is not a journal, or must not be written.
        JournalError: The journal is damaged, or the operating system reports an error.
    """
    require_lockable(path)
    damage = None
    with ExitStack() as stack:
        hold = None
        if os.path.lexists(path):
            hold = JournalLock.acquire(path, resume=resume or earlier == "unknown")
            stack.callback(hold.release)
        try:
            if (known := _read_checked_metadata(path, hold)) is not None and hold is not None:
                stack.pop_all()
                return LockedJournal(path, hold, known, created=False)
        except (DamagedJournalError, EmptyJournalError) as error:
            if earlier == "known":
                raise
            with translate_os_errors(path):  # while it is locked: another run may be about to rename it as well
                damage = {"reason": str(error), "kept": Path(set_aside(path)).name}
    with translate_os_errors(path):
        make(path, facts)
    return LockedJournal(path, JournalLock.acquire(path, resume=True), facts, created=True, damage=damage)


def _read_checked_metadata(path: str, hold: JournalLock | None) -> Mapping[str, Any] | None:
    """Return the run's metadata in an existing journal; `None` if there is no journal."""
    place = Path(path)
    if hold is None:
        with translate_os_errors(path):
            if has_log(path):
                raise DamagedJournalError(
                    f"journal {path} is damaged: the file is missing, but its log {path}-wal exists; {remedy(place)}"
                )
        return None
    if not hold.header:
        raise empty_error(place)
    verdict = classify_header(hold.header)
    if verdict == "newer":
        raise InvalidRequest(f"journal: {path} was written by a newer version of this library; resume with that version")
    if verdict == "foreign":
        raise InvalidRequest(f"journal: {path} is not a journal; pass another path")
    try:
        found = query_journal(place, require_intact, "mode=ro")
    except InvalidRequest as error:  # SQLite does not find a journal, although the header is that of one
        raise DamagedJournalError(f"journal {path} is damaged: its header is invalid; {remedy(place)}") from error
    if found.log_stale:
        with translate_os_errors(path):
            set_aside(path, LOG_SUFFIXES)
    return found.value
