"""The journal's writer, off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, ParamSpec, TypeVar

import anyio
from anyio import to_thread

P = ParamSpec("P")
T = TypeVar("T")


class Scribe:
    """Runs the journal's calls one at a time, each in a thread. When `do` returns or raises, the call is over or never happens.

    Args:
        inline: Run them on the event loop itself: a virtual clock would jump ahead while a thread works.
    """

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        self._turn = anyio.Lock(fast_acquire=True)
        self._threads = anyio.CapacityLimiter(1)

    async def do(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call, and return what it returns. A cancellation goes through after that."""
        running, abandoned = Lock(), False

        def job() -> T | None:
            with running:
                return None if abandoned else call(*args, **kwargs)

        with anyio.CancelScope(shield=True):
            async with self._turn:
                try:
                    result: T = await self._hand_over(job)
                except BaseException:
                    # A shield does not stop asyncio's own Task.cancel, which leaves the thread at work. The caller must know what
                    # came of the call, so this waits for it, even at the price of blocking the event loop for one commit.
                    with running:
                        abandoned = True
                    raise
        return result

    async def _hand_over(self, job: Callable[[], Any]) -> Any:
        return job() if self._inline else await to_thread.run_sync(job, limiter=self._threads)
