"""From the synchronous command to the event loop and back, with clean interruptions."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable
from types import FrameType

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
    ended = False
    before = signal.getsignal(signal.SIGTERM)

    def on_term(number: int, frame: FrameType | None) -> None:
        nonlocal ended
        ended = True
        on_interrupt = signal.getsignal(signal.SIGINT)  # the event loop's own, which cancels the main task
        if callable(on_interrupt):
            on_interrupt(number, frame)
        else:
            raise KeyboardInterrupt  # Ctrl-C is ignored, as in a script's background job; SIGTERM is not

    signal.signal(signal.SIGTERM, on_term)
    try:
        return anyio.run(main) or OK
    except KeyboardInterrupt:
        if not ended:
            raise
        return terminated
    finally:
        signal.signal(signal.SIGTERM, before)
