"""The figures of a bulk run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.vocabulary import Outcome


@attrs.frozen
class BulkReport:
    """How many rows had which outcome; the outcomes add up to the rows.

    Attributes:
        rows: Rows whose outcome was handed out.
        outcomes: Rows by outcome; all seven are there, with 0 where nothing happened.
        uncertain: Rows with more than one possible outcome.
        seconds: Duration of the run so far.
    """

    rows: int
    outcomes: dict[Outcome, int]
    uncertain: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values, named as on the wire."""
        return {
            "rows": self.rows,
            "outcomes": {outcome.value: count for outcome, count in self.outcomes.items()},
            "uncertain": self.uncertain,
            "seconds": round(self.seconds, 3),
        }


class Tally:
    """Counts outcomes as they are handed out."""

    def __init__(self) -> None:
        self._outcomes: Counter[Outcome] = Counter(dict.fromkeys(Outcome, 0))
        self._uncertain = 0

    def add(self, outcome: ContactOutcome) -> None:
        """Count one."""
        self._outcomes[outcome.status] += 1
        self._uncertain += not outcome.certain

    def report(self, seconds: float) -> BulkReport:
        """Return the figures so far."""
        return BulkReport(self._outcomes.total(), dict(self._outcomes), self._uncertain, seconds)
