"""How long an import will take, as far as its rate is known before it starts; pure."""

from __future__ import annotations

from typing import Final

import attrs

from outreach_async.bulk.journal import JournalReport
from outreach_async.errors import InvalidRequest

_ENOUGH: Final = 20
"""Rows from which on a journal's rate says something."""


@attrs.frozen
class Estimate:
    """How long the rows that are left will take.

    Attributes:
        rows: How many there are.
        rate: Rows a second.
        known: Whence the rate is known.
    """

    rows: int
    rate: float
    known: str

    @property
    def seconds(self) -> float:
        """How long it will take."""
        return self.rows / self.rate


def require_rate(rate: float | None) -> float | None:
    """Return a rate in requests a second.

    Raises:
        InvalidRequest: It is not more than 0.
    """
    if rate is not None and not 0 < rate < float("inf"):
        raise InvalidRequest(f"rate: expected more than 0 requests a second, got {rate}; give the quota that you were told")
    return rate


def estimate(rows: int, rate: float | None, earlier: JournalReport | None) -> Estimate | None:
    """Return how long rows will take; `None` if nobody knows how fast the service is.

    Args:
        rows: Those that will be sent, one request each.
        rate: Requests a second, as the caller knows them.
        earlier: What the journal says that is resumed: its rows are done.
    """
    done = earlier.rows - earlier.repeats if earlier else 0
    left = max(rows - done, 0)
    if rate is not None:
        return Estimate(left, rate, "as given")
    if earlier and earlier.rows >= _ENOUGH and earlier.seconds > 0:
        return Estimate(left, earlier.rows / earlier.seconds, "as in the journal so far")
    return None
