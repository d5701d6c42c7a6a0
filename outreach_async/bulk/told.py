"""What hooks are told of a bulk run; imported by a run of which hooks are told, as the values take time to define."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.hooks import BulkPaced, BulkStateChanged, Event, RowEnded, facts_of


@attrs.frozen
class Teller:
    """Tells hooks of one run.

    Attributes:
        run: Number of the run.
        hooks: Are told.
    """

    run: int
    hooks: Callable[[Event], None]

    def row(self, outcome: ContactOutcome) -> None:
        """Tell of a row, but neither the contact nor its id."""
        self.hooks(
            RowEnded(
                run=self.run,
                index=outcome.index,
                status=outcome.status,
                certain=outcome.certain,
                attempts=outcome.attempts,
                **facts_of(outcome.error),
            )
        )

    def state(self, facts: dict[str, Any], failure: Exception | None) -> None:
        """Tell of a new state, and of what ended the run."""
        self.hooks(BulkStateChanged(**facts, **facts_of(failure)))

    def pace(self, limit: float) -> None:
        """Tell how fast a run that is held up allows itself to go."""
        self.hooks(BulkPaced(run=self.run, limit=limit))
