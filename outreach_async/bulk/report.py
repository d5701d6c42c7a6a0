"""The report of a bulk run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import attrs

from outreach_async.bulk.outcome import ContactOutcome, was_stood_for
from outreach_async.vocabulary import Outcome


@attrs.frozen
class BulkReport:
    """The number of rows by outcome; the numbers add up to `rows`.

    Attributes:
        rows: Rows whose outcome was returned.
        outcomes: Number of rows by outcome; all seven outcomes are present, with 0 for those that did not occur.
        uncertain: Rows with more than one possible outcome.
        repeats: Rows that were not sent because another row with the same e-mail was; they also count as `not_applied`.
        seconds: Duration of the run so far, in seconds.

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
        """Return the report as JSON values, with outcomes named as on the wire.

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
    """Counts outcomes.

    Args:
        begun: Counts to start with; all zero if not given.
    """

    def __init__(self, begun: BulkReport | None = None) -> None:
        self._outcomes: Counter[Outcome] = Counter(dict.fromkeys(Outcome, 0) | (begun.outcomes if begun else {}))
        self._uncertain = begun.uncertain if begun else 0
        self._repeats = begun.repeats if begun else 0

    @property
    def rows(self) -> int:
        """Number of outcomes counted."""
        return self._outcomes.total()

    def add(self, outcome: ContactOutcome) -> None:
        """Count an outcome."""
        self._outcomes[outcome.status] += 1
        self._uncertain += len(outcome.possible) != 1
        self._repeats += was_stood_for(outcome)

    def report(self, seconds: float) -> BulkReport:
        """Return the counts so far as a report of a run of this many seconds."""
        return BulkReport(self.rows, dict(self._outcomes), self._uncertain, seconds, self._repeats)
