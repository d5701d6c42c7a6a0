"""Stops a run whose first rows are all rejected with the same error: the cause is then not in the rows."""

from __future__ import annotations

from outreach_async.bulk.outcome import ContactOutcome, is_refusal
from outreach_async.errors import BulkStopped
from outreach_async.vocabulary import Outcome


class SameReason:
    """Compares the errors of the first outcomes.

    Args:
        rows: Number of first rows that stop the run if all are rejected with the same error; `None` never stops it.
    """

    def __init__(self, rows: int | None) -> None:
        self._left = rows or 0
        self._rows = rows
        self._reason: tuple[int | None, str] | None = None

    def judge(self, outcome: ContactOutcome) -> BulkStopped | None:
        """Return the error that stops the run, at the outcome that reaches the number of rows; `None` otherwise."""
        if not self._left:
            return None
        reason = _reason(outcome)
        if reason is None or (self._reason is not None and reason != self._reason):
            self._left = 0
            return None
        self._reason = reason
        self._left -= 1
        return None if self._left else self._stopped(reason[1])

    def _stopped(self, text: str) -> BulkStopped:
        return BulkStopped(
            f"run stopped: the first {self._rows} rows were rejected with the same error: {text}; "
            "fix the cause, or turn off stop_after_rejects"
        )


def _reason(outcome: ContactOutcome) -> tuple[int | None, str] | None:
    """Return the status code and message of a refused row, `None` for others. A refused row's outcome may be `unknown`."""
    error = outcome.error
    if error is None or not (outcome.status is Outcome.REJECTED or is_refusal(error)):
        return None
    return error.status_code, str(error)
