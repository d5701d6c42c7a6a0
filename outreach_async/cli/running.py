"""Run an async command on an event loop, with clean interruption."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from outreach_async.cli.exits import INTERRUPTED, OK


def run_async(main: Callable[[], Awaitable[int | None]], *, terminated: int = INTERRUPTED) -> int:
    """Run a command on an event loop and return its exit code.

    Ctrl-C and SIGTERM cancel the command, so that it can still clean up and print its progress.

    Args:
        main: The command. A result of `None` is success.
        terminated: Exit code after SIGTERM.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    return anyio.run(_cancellable, main, terminated)


async def _cancellable(main: Callable[[], Awaitable[int | None]], terminated: int) -> int:
    with anyio.CancelScope() as scope:
        # By default SIGTERM ends the process at once: the journal and the rejects file would not be completed.
        with suppress(NotImplementedError):  # Windows has no signal handlers on event loops
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, scope.cancel)
        return await main() or OK
    return terminated
