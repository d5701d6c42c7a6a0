"""The clock of a run's attempts: one timer for all workers, for one an attempt would cost a tenth of what a row costs."""

from __future__ import annotations

import math

import anyio


class Watch:
    """Cancels the scope of every worker whose attempt has taken too long.

    Attributes:
        wakes: The instant at which it looks again, unless it is woken.
    """

    def __init__(self) -> None:
        self.wakes = math.inf
        self._guards: list[Guard] = []
        self._sooner = anyio.Event()
        self._over = False

    def guard(self) -> Guard:
        """Return what stands for a worker's cancel scopes, one after the other."""
        self._guards.append(guard := Guard(self))
        return guard

    def wake(self) -> None:
        """Look again at once: an attempt ends sooner than all those seen before."""
        self._sooner.set()

    def end(self) -> None:
        """Watch no longer: there is no worker left."""
        self._over = True
        self.wake()

    async def run(self) -> None:
        """Watch to the end."""
        while not self._over:
            now = anyio.current_time()
            for guard in self._guards:
                guard.expire(now)
            self.wakes = min((guard.deadline for guard in self._guards), default=math.inf)
            self._sooner = anyio.Event()
            with anyio.CancelScope(deadline=self.wakes):
                await self._sooner.wait()


class Guard:
    """Stands in for the cancel scope that a worker is in: its deadline is only noted down.

    Attributes:
        scope: The scope.
    """

    scope: anyio.CancelScope
    _deadline = math.inf

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    @property
    def deadline(self) -> float:
        """The instant at which the scope is cancelled."""
        return self._deadline

    @deadline.setter
    def deadline(self, value: float) -> None:
        self._deadline = value
        if value < self._watch.wakes:
            self._watch.wake()

    def expire(self, now: float) -> None:
        """Cancel the scope if its time is over."""
        if self._deadline <= now:
            self._deadline = math.inf  # said once
            self.scope.cancel()
