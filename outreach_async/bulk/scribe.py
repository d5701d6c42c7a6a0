"""The journal's writer, off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ParamSpec, TypeVar

import anyio
from anyio import to_thread

P = ParamSpec("P")
T = TypeVar("T")


class Scribe:
    """Runs the journal's calls one at a time, each in a thread; it ends before a cancellation goes through.

    Args:
        inline: Run them on the event loop itself: a virtual clock would jump ahead while a thread works.
    """

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        self._turn = anyio.Lock(fast_acquire=True)
        self._threads = anyio.CapacityLimiter(1)

    async def do(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call, and return what it returns."""
        async with self._turn:
            result: T = await self._hand_over(partial(call, *args, **kwargs))
            return result

    async def _hand_over(self, job: Callable[[], Any]) -> Any:
        return job() if self._inline else await to_thread.run_sync(job, limiter=self._threads)
