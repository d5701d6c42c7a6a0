"""Estimate the duration of an import from a rate that is known before it starts. Pure functions."""

from __future__ import annotations

from typing import Final

import attrs

from outreach_async.bulk.journal import JournalReport
from outreach_async.errors import InvalidRequest

_ENOUGH: Final = 20
"""Fewest rows in a journal for a usable rate."""


@attrs.frozen
class Estimate:
    """The expected duration of the remaining rows.

    Attributes:
        rows: Number of rows.
        rate: Rows per second.
        known: The source of the rate, in readable form.
    """

    rows: int
    rate: float
    known: str

    @property
    def seconds(self) -> float:
        """Expected duration, in seconds."""
        return self.rows / self.rate


def require_rate(rate: float | None) -> float | None:
    """Return a rate in requests per second.

    Raises:
        InvalidRequest: It is not positive and finite.
    """
    if rate is not None and not 0 < rate < float("inf"):
        raise InvalidRequest(
            f"rate: expected a positive number of requests per second, got {rate}; pass your rate limit as --rate"
        )
    return rate


def estimate(rows: int, rate: float | None, earlier: JournalReport | None) -> Estimate | None:
    """Return the expected duration of an import; `None` if no rate is known.

    Args:
        rows: Rows to send, one request each.
        rate: Requests per second, if the caller knows it.
        earlier: The report of the journal to resume: its rows are done.
    """
    done = earlier.rows - earlier.repeats if earlier else 0
    left = max(rows - done, 0)
    if rate is not None:
        return Estimate(left, rate, "as given")
    if earlier and earlier.rows >= _ENOUGH and earlier.seconds > 0:
        return Estimate(left, earlier.rows / earlier.seconds, "from the journal")
    return None
