"""Ctrl-C while contacts are created: the first lets rows under way finish, the second stops them, the third leaves at once."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from outreach_async.cli.exits import INTERRUPTED
from outreach_async.cli.screen import Screen

PATIENCE: Final = 30.0
"""Seconds that requests under way have to be answered."""
PATIENCE_IN_PAUSE: Final = 1.0
"""The same while a run is paused: what is under way then hardly ever succeeds."""


class Interrupts:
    """Counts them.

    Args:
        screen: Where to say what happens.
        group: Holds what runs beside the block, until its end.
        leave: Ends the process.

    Attributes:
        group: The same.
        scope: What the second one cancels.
        drain: What the first one calls: ends the run and returns the seconds that it may take.
        count: How many there were.
    """

    def __init__(self, screen: Screen, group: TaskGroup, leave: Callable[[int], object] = os._exit) -> None:
        self.scope = anyio.CancelScope()
        self.drain: Callable[[], float] = lambda: PATIENCE
        self.count = 0
        self._screen = screen
        self.group = group
        self._leave = leave

    def take(self) -> None:
        """Take the next one."""
        self.count += 1
        if self.count == 1:
            seconds = self.drain()
            self._screen.warn(f"finishing the rows under way, for {seconds:.0f} s at most; Ctrl-C again stops them")
            self.group.start_soon(self._give_up, seconds)
        elif self.count == 2:  # noqa: PLR2004 - the second
            self.scope.cancel()
        else:
            self._leave(INTERRUPTED)

    async def _give_up(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        self.scope.cancel()


@asynccontextmanager
async def interruptible(screen: Screen) -> AsyncIterator[Interrupts]:
    """Take every Ctrl-C within the block; where signals cannot be taken, on Windows, each is a KeyboardInterrupt as ever.

    What the block raises passes through as it is, not in a group.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        interrupts = Interrupts(screen, group)
        await group.start(_receive, interrupts)
        try:
            with interrupts.scope:
                yield interrupts
        except Exception as error:  # noqa: BLE001 - raised below
            failure = error
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _receive(interrupts: Interrupts, *, task_status: TaskStatus[None]) -> None:
    try:
        receiver = anyio.open_signal_receiver(signal.SIGINT)
    except NotImplementedError:  # pragma: no cover - Windows
        task_status.started()
        return
    with receiver as signals:
        task_status.started()
        async for _ in signals:
            interrupts.take()
