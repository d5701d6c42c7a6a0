"""From the synchronous command to the event loop and back, with clean interruptions."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable

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
    return anyio.run(_watched, main, terminated)


async def _watched(main: Callable[[], Awaitable[int | None]], terminated: int) -> int:
    code, failure = terminated, None
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_at, signals, group.cancel_scope)
            try:
                code = await main() or OK
            except Exception as error:  # noqa: BLE001 - raised below, outside the group, which would wrap it
                failure = error
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return code


async def _cancel_at(signals: AsyncIterator[signal.Signals], scope: anyio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()
