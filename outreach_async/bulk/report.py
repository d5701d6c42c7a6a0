"""The figures of a bulk run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from outreach_async.bulk.outcome import ContactOutcome, was_stood_for
from outreach_async.vocabulary import Outcome


@attrs.frozen
class BulkReport:
    """How many rows had which outcome; the outcomes add up to the rows.

    Attributes:
        rows: Rows whose outcome was handed out.
        outcomes: Rows by outcome; all seven are there, with 0 where nothing happened.
        uncertain: Rows with more than one possible outcome.
        repeats: Rows in whose stead another row with the same e-mail was sent; they count as `not_applied`.
        seconds: Duration of the run so far.

    Example:
        ```python
        report = await client.contacts.create_many([{"email": "ann@company.example"}, {"email": "bo@acme.example"}])
        print(report.rows, report.outcomes[Outcome.ADDED], report.outcomes[Outcome.SKIPPED], report.uncertain)  # -> 2 1 1 0
        ```
    """

    rows: int
    outcomes: dict[Outcome, int]
    uncertain: int
    seconds: float
    repeats: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as JSON values, named as on the wire.

        Example:
            ```python
            report = await client.contacts.create_many([{"email": "ann@company.example"}])
            print(report.to_dict()["outcomes"]["added"])  # -> 1
            ```
        """
        return {
            "rows": self.rows,
            "outcomes": {outcome.value: count for outcome, count in self.outcomes.items()},
            "uncertain": self.uncertain,
            "repeats": self.repeats,
            "seconds": round(self.seconds, 3),
        }


class Tally:
    """Counts outcomes as they are handed out.

    Args:
        begun: What was counted before.
    """

    def __init__(self, begun: BulkReport | None = None) -> None:
        self._outcomes: Counter[Outcome] = Counter(dict.fromkeys(Outcome, 0) | (begun.outcomes if begun else {}))
        self._uncertain = begun.uncertain if begun else 0
        self._repeats = begun.repeats if begun else 0

    @property
    def rows(self) -> int:
        """How many were counted."""
        return self._outcomes.total()

    def add(self, outcome: ContactOutcome) -> None:
        """Count one."""
        self._outcomes[outcome.status] += 1
        self._uncertain += len(outcome.possible) != 1
        self._repeats += was_stood_for(outcome)

    def report(self, seconds: float) -> BulkReport:
        """Return the figures so far."""
        return BulkReport(self.rows, dict(self._outcomes), self._uncertain, seconds, self._repeats)
