"""Stopping a run whose first rows are all rejected for one reason: what is wrong is not a row then."""

from __future__ import annotations

from outreach_async.bulk.outcome import ContactOutcome, is_refusal
from outreach_async.errors import BulkStopped
from outreach_async.vocabulary import Outcome


class SameReason:
    """Looks at the first outcomes.

    Args:
        rows: How many, all rejected for the same reason, end the run; `None` for no end.
    """

    def __init__(self, rows: int | None) -> None:
        self._left = rows or 0
        self._rows = rows
        self._reason: tuple[int | None, str] | None = None

    def judge(self, outcome: ContactOutcome) -> BulkStopped | None:
        """Return why the run should stop, at the outcome that completes the proof."""
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
            f"the run stopped, for its first {self._rows} rows were all rejected for the same reason: {text}; "
            "mend that, or pass stop_after_rejects=None to go on"
        )


def _reason(outcome: ContactOutcome) -> tuple[int | None, str] | None:
    """Return why a row was refused; `None` if it was not. Some refusals are `unknown`: the status does not prove anything."""
    error = outcome.error
    if error is None or not (outcome.status is Outcome.REJECTED or is_refusal(error)):
        return None
    return error.status_code, str(error)
