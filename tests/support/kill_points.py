"""The points of a run's way at which a process of it is killed, and what its requests tell the service of that."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Point(StrEnum):
    """A point of a run's way at which a process of it ends; its text is what the table calls it.

    At the last one it is not killed, but its loop is left early: it then names the rows that may have been sent.
    """

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
"""Points that only the service knows: it kills the process, when it has the request whole and has not, or has, carried it out."""

KILL: Final = "x-kill"
"""Header field of the request at which the service kills: process id, and the point's name."""

RESUMABLE: Final = 75
"""Exit code of a process whose run can go on."""

INDEX: Final = "personal_note"
"""The field that tells a row's index, so that the service can tell rows with one e-mail apart."""

PROCESS: Final = "x-process"
"""Header field that tells which process of a run sends, from 0."""
