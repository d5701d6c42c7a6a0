"""The points of a run at which the kill loop kills a process, and the header fields that its requests contain."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Point(StrEnum):
    """A point of a run at which a process ends. The value is the name of the point in the kill loop's table."""

    # At `LEFT`, the process is not killed: it leaves the loop over the outcomes early.

    CREATING = "creating the journal, before it exists"
    CREATED = "creating the journal, as soon as it exists"
    SPOOLING = "while spooling, in a commit"
    SPOOLED = "while spooling, after a commit"
    REOPENING = "resumed, before opening"
    IN_OPENING = "resumed, opening, in the commit"
    OPENED = "resumed, after opening"
    MARKING = "before a mark"
    IN_MARK = "in a mark, before its commit"
    MOVING = "in a mark, before it leaves the log"
    MARKED = "after a mark, before any send"
    DROPPED = "in flight, never carried out"
    LATE = "in flight, carried out later"
    CARRIED_OUT = "in flight, carried out"
    ANSWERED = "answered, not recorded"
    RECORDING = "before a record"
    IN_RECORD = "in a record, before its commit"
    RECORDED = "after a record, before delivery"
    DELIVERED = "after a delivery"
    ENDING = "before the end"
    IN_END = "in the end, before its commit"
    ENDED = "after the end"
    ANYWHERE = "at a random instant"
    LEFT = "left in order"


IN_FLIGHT: Final = frozenset({Point.DROPPED, Point.LATE, Point.CARRIED_OUT})
"""Points at which the service kills the process, after it has received a request and before or after it executes the request."""

KILL: Final = "x-kill"
"""Header field of the request at which the service kills the process: the process id and the name of the point."""

RESUMABLE: Final = 75
"""Exit code of a process whose run can be resumed."""

INDEX: Final = "personal_note"
"""The contact field that contains the index of a row, so that the service can distinguish rows with the same e-mail."""

PROCESS: Final = "x-process"
"""Header field with the number of the sending process in its run, from 0."""
