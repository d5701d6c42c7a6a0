"""How fast a run goes, and when it will be done."""

from __future__ import annotations

import math
from typing import Final, Literal

import attrs

State = Literal["running", "throttled", "paused"]

_MEMORY: Final = 30.0
"""Seconds after which a rate counts for a third of what a new one does: longer than a pause for breath, shorter than a lunch."""
_SAMPLE: Final = 0.5


@attrs.frozen(kw_only=True)
class BulkProgress:
    """How far a run has come.

    Attributes:
        rows: Rows with an outcome, those of earlier processes with them.
        total: Rows of the input; `None` if nobody knows.
        rate: Rows a second, lately; a service's limit bounds it.
        state: `running`; `throttled` while the service's limit sets the pace; `paused` while nothing is sent, because the service
            asked for a wait or is down.
        resumes: Seconds until a pause ends; 0.0 outside of one.
        eta: Seconds until the last outcome at this rate; `None` if nobody knows.
        why: What a pause is for; an empty string outside of one.

    Example:
        ```python
        async with client.contacts.create_many([{"email": "ann@company.example"}]) as outcomes:
            async for _ in outcomes:
                print(outcomes.progress.rows, outcomes.progress.total, outcomes.progress.state)  # -> 1 1 running
        ```
    """

    rows: int
    total: int | None
    rate: float
    state: State
    resumes: float
    eta: float | None
    why: str = ""


class Pace:
    """Measures the rate of rows done: samples of at least half a second, old ones fading."""

    def __init__(self) -> None:
        self._sampled = 0.0
        self._rows = 0
        self._done = 0.0
        self._time = 0.0

    def begin(self, now: float) -> None:
        """Start the clock."""
        self._sampled = now

    def add(self, rows: int) -> None:
        """Count rows that have their outcome now."""
        self._rows += rows

    def rate(self, now: float) -> float:
        """Return rows a second."""
        span = now - self._sampled
        if span >= _SAMPLE:
            kept = math.exp(-span / _MEMORY)
            self._done = self._done * kept + self._rows
            self._time = self._time * kept + span
            self._rows, self._sampled, span = 0, now, 0.0
        time = self._time + span
        return (self._done + self._rows) / time if time > 0 else 0.0
