"""Measure the progress of a run, and report changes of its state to the log and to hooks."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async.bulk.outcomes import ContactOutcome
from outreach_async.bulk.throttle import RunFlow
from outreach_async.errors import OutreachError
from outreach_async.hooks import BulkPaced, BulkStateChanged, Event, RowEnded, facts_of
from outreach_async.logs import brief, log_run

if TYPE_CHECKING:
    from outreach_async.hooks import BulkState

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


_next_run: Final = count(1).__next__
_PERIOD: Final = 1.0
"""Seconds between two checks of a throttled or paused run, in addition to those after each failure."""


class WatchedFlow(RunFlow):
    """A flow that calls `look` when an attempt fails or has to wait; a run without failures or waits pays nothing for it.

    Args:
        options: The arguments of `RunFlow`.

    Attributes:
        run: Number of the run.
        look: Called with the current instant.
    """

    def __init__(self, *options: Any, **named: Any) -> None:
        super().__init__(*options, **named)
        self.run = _next_run()
        self.look: Callable[[float], None] = _nothing

    def failed(self, *facts: Any, now: float, **named: Any) -> Any:
        """Record a failed attempt; see `RunFlow.failed`."""
        verdict = super().failed(*facts, now=now, **named)
        self.look(now)
        return verdict

    def _take_or_raise(self, now: float) -> float:
        opens = super()._take_or_raise(now)
        if opens > now:
            self.look(now)
        return opens


class States:
    """Reports a run's states: at once when the run is throttled or paused, and about a second late when it no longer is.

    Args:
        flow: The flow of the run.
        rows: Returns the number of rows with an outcome.
        teller: Passes every change to hooks; `None` if there are no hooks.
    """

    def __init__(self, flow: WatchedFlow, rows: Callable[[], int], teller: Teller | None) -> None:
        self._flow = flow
        self._rows = rows
        self._teller = teller
        self._state: BulkState | None = None
        self._closed = self._followed = False
        self._over = anyio.Event()
        self._group: TaskGroup

    def start(self, group: TaskGroup) -> None:
        """Start reporting."""
        self._group = group
        self._change("running")
        self._flow.look = self._look

    def end(self) -> None:
        """Stop checking: no row is being processed."""
        self._flow.look = _nothing
        self._over.set()

    def close(self, state: BulkState, failure: Exception | None) -> None:
        """Report how the run ended; only the first call counts."""
        if not self._closed:
            self._closed = True
            self.end()
            self._change(state, failure=failure)

    def _look(self, now: float) -> None:
        state, before = self._flow.state(now), self._state
        if state != before:
            self._change(state, max(0.0, self._flow.opens_at - now))
            if not self._followed:
                self._followed = True
                self._group.start_soon(self._follow)

    async def _follow(self) -> None:
        """Check until the run is no longer throttled or paused."""
        # A failed attempt triggers a check, but nothing marks the moment of recovery: poll for it, and only while held up.
        while self._state != "running":
            with anyio.CancelScope(deadline=max(anyio.current_time() + _PERIOD, self._flow.opens_at)):
                await self._over.wait()
                return
            self._look(anyio.current_time())
            if self._teller is not None and self._flow.limit is not None:
                self._teller.pace(self._flow.limit)
        self._followed = False

    def _change(self, state: BulkState, wait: float = 0.0, failure: Exception | None = None) -> None:
        before, self._state = self._state, state
        facts: dict[str, Any] = {
            "run": self._flow.run,
            "state": state,
            "before": before,
            "rows": self._rows(),
            "limit": self._flow.limit,
            "wait": wait,
        }
        log_run(**facts, why=_why(failure))
        if self._teller is not None:
            self._teller.state(facts, failure)


def _nothing(_now: float) -> None:
    """Do nothing."""


def _why(failure: Exception | None) -> str | None:
    """Return why a run ended. For an exception of the caller's iterable return only its class: its message may show a row."""
    if isinstance(failure, OutreachError):
        return brief(failure)
    return None if failure is None else type(failure).__name__


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
