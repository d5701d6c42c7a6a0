"""Run an async command. The first Ctrl-C waits for requests in flight, the second cancels them, and the third exits at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.abc import TaskGroup, TaskStatus

from outreach_async.cli.exits import INTERRUPTED, OK
from outreach_async.cli.output import Screen

DRAIN_TIMEOUT: Final = 30.0
"""Time to wait for requests in flight after the first Ctrl-C, in seconds."""
PAUSED_DRAIN_TIMEOUT: Final = 1.0
"""Time to wait after Ctrl-C in a paused run, in seconds. It is short, because requests rarely succeed during a pause."""


class InterruptHandler:
    """Handles Ctrl-C: the first one drains the run, the second one cancels it, and the third one exits the process.

    Args:
        screen: Screen to print messages on.
        group: Task group for tasks that run beside the block of `handle_interrupts`.
        leave: Exits the process with the given exit code.

    Attributes:
        group: Task group for tasks that run beside the block of `handle_interrupts`.
        scope: Cancel scope of this block. It is cancelled by the second Ctrl-C, or at the end of the wait after the first Ctrl-C.
        drain: Function that the first Ctrl-C calls. It stops the run from starting further rows, and returns the time to
            wait, in seconds.
        count: Number of times that Ctrl-C was pressed.
    """

    def __init__(self, screen: Screen, group: TaskGroup, leave: Callable[[int], object] = os._exit) -> None:
        self.scope = anyio.CancelScope()
        self.drain: Callable[[], float] = lambda: DRAIN_TIMEOUT
        self.count = 0
        self._screen = screen
        self.group = group
        self._exit = leave

    def handle(self) -> None:
        """Handle one Ctrl-C."""
        self.count += 1
        if self.count == 1:
            seconds = self.drain()
            self._screen.warn(f"waiting up to {seconds:.0f} s for requests in flight; press Ctrl-C again to cancel them")
            # The handler must not wait itself, because it would block the next Ctrl-C.
            self.group.start_soon(self._cancel_after, seconds)
        elif self.count == 2:  # noqa: PLR2004 - the second
            self.scope.cancel()
        else:  # the cancelled run has not ended: do not wait for it
            self._exit(INTERRUPTED)

    async def _cancel_after(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        self.scope.cancel()


@asynccontextmanager
async def handle_interrupts(screen: Screen) -> AsyncIterator[InterruptHandler]:
    """Handle every Ctrl-C within the block. On Windows, which does not support this, Ctrl-C raises `KeyboardInterrupt`.

    Errors of the block are raised unchanged, not in an exception group.
    """
    failure: Exception | None = None
    async with anyio.create_task_group() as group:
        interrupts = InterruptHandler(screen, group)
        await group.start(_receive_signals, interrupts)  # returns once the handler is in place
        try:
            with interrupts.scope:
                yield interrupts
        except Exception as error:  # noqa: BLE001 - raised below, because the group would wrap it
            failure = error
        # The signal receiver and the tasks of the block, such as the progress display, run until they are cancelled.
        group.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _receive_signals(interrupts: InterruptHandler, *, task_status: TaskStatus[None]) -> None:
    try:
        receiver = anyio.open_signal_receiver(signal.SIGINT)
    except NotImplementedError:  # pragma: no cover - Windows
        task_status.started()
        return
    with receiver as signals:
        task_status.started()
        async for _ in signals:
            interrupts.handle()


def run_async(main: Callable[[], Awaitable[int | None]], *, terminated: int = INTERRUPTED) -> int:
    """Run a command on an event loop and return its exit code.

    Ctrl-C and SIGTERM cancel the command, so that it can still clean up and print its progress.

    Args:
        main: The command. A result of `None` means success.
        terminated: Exit code after SIGTERM.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    return anyio.run(_run_cancellable, main, terminated)


async def _run_cancellable(main: Callable[[], Awaitable[int | None]], terminated: int) -> int:
    with anyio.CancelScope() as scope:
        # By default, SIGTERM ends the process at once, and leaves the journal and the rejects file incomplete.
        with suppress(NotImplementedError):  # Windows has no signal handlers on event loops
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, scope.cancel)
        return await main() or OK
    return terminated
