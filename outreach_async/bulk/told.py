"""Bulk-run events for hooks. Imported only by runs with hooks, because the event classes take time to define."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from outreach_async.bulk.outcome import ContactOutcome
from outreach_async.hooks import BulkPaced, BulkStateChanged, Event, RowEnded, facts_of


@attrs.frozen
class Teller:
    """Passes the events of one run to its hooks.

    Attributes:
        run: Number of the run.
        hooks: Called with each event.
    """

    run: int
    hooks: Callable[[Event], None]

    def row(self, outcome: ContactOutcome) -> None:
        """Report a row's outcome, without the contact and its id."""
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
        """Report a change of state, and the error that ended the run, if any."""
        self.hooks(BulkStateChanged(**facts, **facts_of(failure)))

    def pace(self, limit: float) -> None:
        """Report the current rate limit of a throttled run, in requests per second."""
        self.hooks(BulkPaced(run=self.run, limit=limit))
