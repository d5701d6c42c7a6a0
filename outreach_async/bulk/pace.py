"""Measures the progress of a run: rate and estimated time left."""

from __future__ import annotations

import math
from typing import Final, Literal

import attrs

State = Literal["running", "throttled", "paused"]

_MEMORY: Final = 30.0
"""Time constant of the average, in seconds: a sample that old has about a third (1/e) of the weight of a new one."""
_SAMPLE: Final = 0.5
"""Minimum length of a sample, in seconds."""


@attrs.frozen(kw_only=True)
class BulkProgress:
    """The progress of a run.

    Attributes:
        rows: Rows with an outcome, including those of earlier processes.
        total: Number of rows in the input; `None` if unknown.
        rate: Recent rows per second; at most the rate limit that the run has learned.
        state: `running`; `throttled` while the service's limits delay requests; `paused` while nothing is sent, because the
            service asked for a wait or is down.
        resumes: Seconds until the pause ends; 0.0 if the run is not paused.
        eta: Estimated seconds until the last outcome at this rate; `None` if unknown.
        why: Reason for the pause; an empty string if the run is not paused.

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
    """Estimates the rate of completed rows: an average over samples of at least half a second, weighted towards recent ones."""

    def __init__(self) -> None:
        self._sampled = 0.0
        self._rows = 0
        self._done = 0.0
        self._time = 0.0

    def begin(self, now: float) -> None:
        """Start measuring at this instant."""
        self._sampled = now

    def add(self, rows: int) -> None:
        """Count newly completed rows."""
        self._rows += rows

    def rate(self, now: float) -> float:
        """Return the rate in rows per second."""
        span = now - self._sampled
        if span >= _SAMPLE:
            kept = math.exp(-span / _MEMORY)
            self._done = self._done * kept + self._rows
            self._time = self._time * kept + span
            self._rows, self._sampled, span = 0, now, 0.0
        time = self._time + span
        return (self._done + self._rows) / time if time > 0 else 0.0
