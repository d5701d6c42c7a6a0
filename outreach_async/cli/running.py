"""From the synchronous command to the event loop and back, with clean interruptions."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from outreach_async.cli.exits import INTERRUPTED, OK


def run_async(main: Callable[[], Awaitable[int | None]], *, terminated: int = INTERRUPTED) -> int:
    """Run a command on an event loop and return its exit code.

    Ctrl-C and SIGTERM cancel it, so that it can still clean up and say how far it came.

    Args:
        main: The command; `None` from it is success.
        terminated: Exit code after SIGTERM.

    Raises:
        KeyboardInterrupt: After Ctrl-C.
    """
    return anyio.run(_cancellable, main, terminated)


async def _cancellable(main: Callable[[], Awaitable[int | None]], terminated: int) -> int:
    with anyio.CancelScope() as scope:
        with suppress(NotImplementedError):  # Windows has no such handlers, and ends the process itself
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, scope.cancel)
        return await main() or OK
    return terminated
