"""Opens or creates the journal of a run. It is locked, and checked before anything is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from outreach_async.bulk.journal.identity import Earlier
from outreach_async.bulk.journal.integrity import require_whole
from outreach_async.bulk.journal.lock import Hold, explained, require_place
from outreach_async.bulk.journal.making import LOG, has_log, set_aside
from outreach_async.bulk.journal.reader import Damaged, Empty, empty, examined, remedy
from outreach_async.bulk.journal.records import judge
from outreach_async.errors import InvalidRequest

Make: TypeAlias = Callable[[str, Mapping[str, Any]], None]


@attrs.frozen
class Opened:
    """A locked journal.

    Attributes:
        path: Path of the journal.
        hold: The lock.
        facts: The run's metadata in the journal.
        made: Whether the journal is new.
        damage: Reason and new name of a damaged journal that this one replaces; `None` if it replaces none.
    """

    path: str
    hold: Hold
    facts: Mapping[str, Any]
    made: bool
    damage: Mapping[str, Any] | None = None


def opened(path: str, facts: Mapping[str, Any], *, resume: bool, earlier: Earlier, make: Make) -> Opened:
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
    require_place(path)
    damage = None
    with ExitStack() as stack:
        hold = None
        if os.path.lexists(path):
            hold = Hold.take(path, resume=resume or earlier == "unknown")
            stack.callback(hold.release)
        try:
            if (known := _checked(path, hold)) is not None and hold is not None:
                stack.pop_all()
                return Opened(path, hold, known, made=False)
        except (Damaged, Empty) as error:
            if earlier == "known":
                raise
            with explained(path):  # while it is locked: another run may be about to rename it as well
                damage = {"reason": str(error), "kept": Path(set_aside(path)).name}
    with explained(path):
        make(path, facts)
    return Opened(path, Hold.take(path, resume=True), facts, made=True, damage=damage)


def _checked(path: str, hold: Hold | None) -> Mapping[str, Any] | None:
    """Return the run's metadata in an existing journal; `None` if there is no journal."""
    place = Path(path)
    if hold is None:
        with explained(path):
            if has_log(path):
                raise Damaged(f"journal {path} is damaged: the file is missing, but its log {path}-wal exists; {remedy(place)}")
        return None
    if not hold.header:
        raise empty(place)
    verdict = judge(hold.header)
    if verdict == "newer":
        raise InvalidRequest(f"journal: {path} was written by a newer version of this library; resume with that version")
    if verdict == "foreign":
        raise InvalidRequest(f"journal: {path} is not a journal; pass another path")
    try:
        found = examined(place, require_whole, "mode=ro")
    except InvalidRequest as error:  # SQLite does not find a journal, although the header is that of one
        raise Damaged(f"journal {path} is damaged: its header is invalid; {remedy(place)}") from error
    if found.stale:
        with explained(path):
            set_aside(path, LOG)
    return found.value
