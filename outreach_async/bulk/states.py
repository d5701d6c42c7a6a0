"""Which state a run is in, and who is told when that changes: the log always, hooks if there are any."""

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
"""Seconds between two looks at a run that is held up, but for those at each of its failures."""


class WatchedFlow(RunFlow):
    """A flow that is looked at when an attempt fails or has to wait: in a run that goes well it costs nothing.

    Args:
        options: As of `RunFlow`.

    Attributes:
        run: Number of the run.
        look: Looks at it.
    """

    def __init__(self, *options: Any, **named: Any) -> None:
        super().__init__(*options, **named)
        self.run = _next_run()
        self.look: Callable[[float], None] = _nothing

    def failed(self, *facts: Any, now: float, **named: Any) -> Any:
        """Take in that an attempt failed; see `RunFlow.failed`."""
        verdict = super().failed(*facts, now=now, **named)
        self.look(now)
        return verdict

    def _take_or_raise(self, now: float) -> float:
        opens = super()._take_or_raise(now)
        if opens > now:
            self.look(now)
        return opens


class States:
    """Tells of a run's states: at once when it is held up, about a second later that it is so no more.

    Args:
        flow: The run's.
        rows: Returns how many rows have their outcome.
        teller: Tells hooks of every change, if there are any.
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
        """Begin to tell."""
        self._group = group
        self._change("running")
        self._flow.look = self._look

    def end(self) -> None:
        """Look no more: no row is under way."""
        self._flow.look = _nothing
        self._over.set()

    def close(self, state: BulkState, failure: Exception | None) -> None:
        """Tell how the run ended; only the first call counts."""
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
        """Look until the run is held up no more."""
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
    """Look at nothing."""


def _why(failure: Exception | None) -> str | None:
    """Say why a run is over; of an error of the rows' own code only the kind, for its text may show a row."""
    if isinstance(failure, OutreachError):
        return brief(failure)
    return None if failure is None else type(failure).__name__
