"""Finds the journal of a run, or makes it: locked, and checked before anything is written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from outreach_async.bulk.journal.holding import Hold, explained, require_place
from outreach_async.bulk.journal.integrity import require_whole
from outreach_async.bulk.journal.making import LOG, has_log, set_aside
from outreach_async.bulk.journal.peeking import Damaged, Empty, empty, examined, remedy
from outreach_async.bulk.journal.schema import judge
from outreach_async.bulk.journal.values import Earlier
from outreach_async.errors import InvalidRequest

Make: TypeAlias = Callable[[str, Mapping[str, Any]], None]


@attrs.frozen
class Opened:
    """A journal that is held.

    Attributes:
        path: Of the journal.
        hold: The lock.
        facts: What the journal says of its run.
        made: Whether it is new.
        damage: What was wrong with the one in its place, and how that is called now; `None` if there was none.
    """

    path: str
    hold: Hold
    facts: Mapping[str, Any]
    made: bool
    damage: Mapping[str, Any] | None = None


def opened(path: str, facts: Mapping[str, Any], *, resume: bool, earlier: Earlier, make: Make) -> Opened:
    """Hold a journal that is sound, or a new one.

    Args:
        path: Of the journal.
        facts: What a new one says of its run.
        resume: Whether to go on with one that is there.
        earlier: With `unknown`, which implies `resume`, one that is damaged is set aside, and a new one made.
        make: Makes a new one.

    Raises:
        InvalidRequest: It is no journal, or must not be written.
        JournalError: It is damaged, or the operating system refuses.
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
            with explained(path):  # still locked: another run may be about to do the same
                damage = {"reason": str(error), "kept": Path(set_aside(path)).name}
    with explained(path):
        make(path, facts)
    return Opened(path, Hold.take(path, resume=True), facts, made=True, damage=damage)


def _checked(path: str, hold: Hold | None) -> Mapping[str, Any] | None:
    """Return what the journal that is there says of its run; nothing if there is none."""
    place = Path(path)
    if hold is None:
        with explained(path):
            if has_log(path):
                raise Damaged(f"journal {path} is damaged: it is missing, but its log {path}-wal is there; {remedy(place)}")
        return None
    if not hold.header:
        raise empty(place)
    verdict = judge(hold.header)
    if verdict == "newer":
        raise InvalidRequest(f"journal: {path} was written by a newer version of this library; resume with that version")
    if verdict == "foreign":
        raise InvalidRequest(f"journal: {path} is no journal; name another file")
    try:
        found = examined(place, require_whole, "mode=ro")
    except InvalidRequest as error:  # although its header is that of a journal
        raise Damaged(f"journal {path} is damaged: its header makes no sense; {remedy(place)}") from error
    if found.stale:
        with explained(path):
            set_aside(path, LOG)
    return found.value
