"""What an ending means to whoever called the command: its exit code, and one line for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from outreach_async.cli.text import printable, without_keys
from outreach_async.errors import BulkSuspended, InvalidRequest, OutreachError, StatusError
from outreach_async.retry import Evidence, Repeat, weigh
from outreach_async.vocabulary import Outcome

OK: Final = 0
REFUSED: Final = 1
"""Findings at or above `--fail-on`, or an operation that the service refused."""
USAGE: Final = 2
INCOMPLETE: Final = 3
"""Rows rejected, unknown or not applied; pages unread."""
SUSPENDED: Final = 75
"""A run with a journal that can go on later: the service asked for a long wait, or is down."""
NOT_ALLOWED: Final = 77
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141
"""Whoever read the output has gone, as `head` does."""

_FORBIDDEN: Final = frozenset({401, 403})
UNDONE: Final = (Outcome.REJECTED, Outcome.NOT_APPLIED, Outcome.UNKNOWN)
"""Outcomes of rows that made no contact."""

EXPECTED: Final = (OutreachError, click.ClickException, OSError, KeyboardInterrupt)
"""Exceptions that are an ending like any other; all else is a fault of the command and shows its trace."""


def code_of(error: BaseException) -> int:
    """Return the exit code for an expected error."""
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED
        case BulkSuspended(resumable=True):
            return SUSPENDED
        case OutreachError(status_code=status) if status in _FORBIDDEN:
            return NOT_ALLOWED
        case StatusError() if weigh(error, Repeat.FREELY) is Evidence.FINAL:
            return REFUSED
        case OutreachError() if not isinstance(error, InvalidRequest):  # asking again may succeed: undone rather than refused
            return INCOMPLETE
        case _:  # with what click finds, an address that cannot be listened at, a file that cannot be read
            return USAGE


def code_of_rows(outcomes: Mapping[Outcome, int], repeats: int = 0) -> int:
    """Return the exit code for a run that came to its end.

    Args:
        outcomes: Rows by outcome.
        repeats: Those of them that another row stood for, as was asked.
    """
    return INCOMPLETE if sum(outcomes[outcome] for outcome in UNDONE) > repeats else OK


def line_of(error: BaseException) -> str:
    """Return the one line that tells a person what happened, without any key."""
    return f"outreach-async: {printable(without_keys(_message(error)))}"


def _message(error: BaseException) -> str:
    match error:
        case click.UsageError(ctx=click.Context() as context):
            return f"{error.format_message()} Try '{context.command_path} --help'."
        case click.ClickException():
            return error.format_message()
        case KeyboardInterrupt():
            return "interrupted"
        case OSError(strerror=str(reason)):
            return f"{error.filename}: {reason}" if error.filename else reason
        case _:
            return str(error)
