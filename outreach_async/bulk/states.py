"""Reports changes of a run's state to the log, and to hooks if there are any."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import TaskGroup

from outreach_async.bulk.flow import RunFlow
from outreach_async.errors import OutreachError
from outreach_async.logs import brief, log_run

if TYPE_CHECKING:
    from outreach_async.bulk.told import Teller
    from outreach_async.hooks import BulkState

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
