"""Measure the progress of a run, and report changes of its state to the log and to hooks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async._core.logs import describe_error, log_run_state
from outreach_async.bulk._throttle import RunThrottle
from outreach_async.errors import OutreachError

if TYPE_CHECKING:
    from outreach_async._core.events import Observer
    from outreach_async.hooks import BulkState

_TIME_CONSTANT: Final = 30.0  # in seconds: a sample of this age has about a third (1/e) of a new sample's weight
_MIN_SAMPLE: Final = 0.5  # minimum length of a sample of the rate, in seconds


@attrs.frozen(kw_only=True)
class BulkProgress:
    """The progress of a run.

    Attributes:
        rows: Number of rows with an outcome, including those of earlier
            processes of a resumed run.
        total: Number of rows in the input; `None` if unknown.
        rate: Recent rate, in rows per second; at most the client's.
        state: `running`; `throttled` while the service's limits delay
            requests; `paused` while nothing is sent, because the service
            is down or has requested a delay.
        resumes: Seconds until the pause ends, or 0.0.
        eta: Estimated seconds until the last outcome at this rate; `None`
            if unknown.
        why: Reason for the pause, or an empty string.

    Example:
        ```python
        async with client.contacts.create_many([{"email": "ann@company.example"}]) as outcomes:
            async for _ in outcomes:
                print(outcomes.progress.rows, outcomes.progress.total, outcomes.progress.state)  # -> 1 1 running
                print(outcomes.progress)  # -> 1 of 1 rows, ... rows/s, ETA 0:00:00
        ```
    """

    rows: int
    total: int | None
    rate: float
    state: Literal["running", "throttled", "paused"]
    resumes: float
    eta: float | None
    why: str = ""

    def __str__(self) -> str:
        """Return text such as `1,200 of 3,000 rows, 400 rows/s, ETA 0:00:05`."""
        of = "" if self.total is None else f" of {self.total:,}"
        return ", ".join(
            [
                f"{self.rows:,}{of} rows",
                *describe_pace(self.rate, " rows/s", self.state, self.resumes, self.why, self.eta),
            ]
        )


_SLOW_RATE: Final = 10  # slower rates are shown with one decimal place


def describe_pace(  # noqa: PLR0917 - the fields of a progress, in their order
    rate: float, unit: str, state: str, resumes: float, why: str, eta: float | None
) -> Iterator[str]:
    """Yield the rate, the state with its reason, unless it is `running`, and the ETA if it is known."""
    yield f"{rate:,.{1 if 0 < rate < _SLOW_RATE else 0}f}{unit}"
    if state != "running":
        wait = round(resumes)
        state += f" for {timedelta(seconds=wait)}" if wait else ""
        yield f"{state} ({why})" if why else state
    if eta is not None:
        yield f"ETA {timedelta(seconds=round(eta))}"


class RateEstimator:
    """Estimates the rate of completed rows, in rows per second: a weighted average, in which recent samples count more."""

    def __init__(self, now: float) -> None:
        self._sample_start = now
        self._rows = 0
        self._weighted_rows = 0.0
        self._weighted_seconds = 0.0

    def add(self, rows: int) -> None:
        self._rows += rows

    def rate(self, now: float) -> float:
        # Short samples are joined, so that the rate does not depend on how often it is read.
        span = now - self._sample_start
        if span >= _MIN_SAMPLE:
            decay = math.exp(-span / _TIME_CONSTANT)
            self._weighted_rows = self._weighted_rows * decay + self._rows
            self._weighted_seconds = self._weighted_seconds * decay + span
            self._rows, self._sample_start, span = 0, now, 0.0
        time = self._weighted_seconds + span
        return (self._weighted_rows + self._rows) / time if time > 0 else 0.0


_CHECK_INTERVAL: Final = 1.0  # seconds between two checks of the state of a throttled or paused run


class StateReporter:
    """Reports changes of a run's state. Throttling and pauses are reported immediately, a recovery within about a second."""

    def __init__(self, throttle: RunThrottle, count_rows: Callable[[], int], observer: Observer | None) -> None:
        self._throttle = throttle
        self._count_rows = count_rows
        self._observer = observer
        self._state: BulkState | None = None
        self._closed = self._polling = False
        self._ended = anyio.Event()

    def start(self, group: TaskGroup) -> None:
        self._group = group
        self._report_change("running")
        self._throttle.on_change = self._check_state

    def end(self) -> None:
        """Stop checking the state. Call this method when all rows have been processed."""
        self._throttle.on_change = lambda _now: None
        self._ended.set()

    def close(self, state: BulkState, failure: Exception | None) -> None:
        """Report how the run ended. Only the first call has an effect."""
        if not self._closed:
            self._closed = True
            self.end()
            self._report_change(state, failure=failure)

    def _check_state(self, now: float) -> None:
        state = self._throttle.state(now)
        if state != self._state:
            self._report_change(state, max(0.0, self._throttle.opens_at - now))
            if not self._polling:
                self._polling = True
                self._group.start_soon(self._poll)

    async def _poll(self) -> None:
        # A failed attempt triggers a check, but no event marks the recovery. Poll for it, but only while throttled or paused.
        while self._state != "running":
            now = anyio.current_time()
            with anyio.CancelScope(deadline=max(now + _CHECK_INTERVAL, self._throttle.opens_at)):
                await self._ended.wait()
                return
            self._check_state(anyio.current_time())
            if self._observer and self._throttle.limit is not None:
                self._observer.on_rate(self._throttle.run, self._throttle.limit)
        self._polling = False

    def _report_change(self, state: BulkState, wait: float = 0.0, failure: Exception | None = None) -> None:
        fields: dict[str, Any] = {"run": self._throttle.run, "state": state, "before": self._state, "rows": self._count_rows()}
        fields |= {"limit": self._throttle.limit, "wait": wait}
        self._state, reason = state, None
        if failure is not None:  # without the message of an exception of the caller's iterable, which may quote a row
            reason = describe_error(failure) if isinstance(failure, OutreachError) else type(failure).__name__
        log_run_state(fields, reason)
        if self._observer:
            self._observer.on_run_state(fields, failure)
