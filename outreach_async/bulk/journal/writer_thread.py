"""Run the journal's writer in a thread, so that it does not block the event loop."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, ParamSpec, TypeVar

import anyio
from anyio import to_thread

P = ParamSpec("P")
T = TypeVar("T")


class WriterThread:
    """Runs the calls of a journal's writer in a thread, one at a time.

    When `run` returns or raises, its call has ended or will never start.

    Args:
        inline: Whether to run the calls on the event loop's own thread. A virtual clock requires this, because it does
            not wait for threads.
    """

    def __init__(self, *, inline: bool) -> None:
        self._inline = inline
        self._lock = anyio.Lock(fast_acquire=True)
        self._limiter = anyio.CapacityLimiter(1)

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call and return its result. A cancellation takes effect after the call has ended."""
        running, abandoned = Lock(), False

        def job() -> T | None:
            with running:  # held while the call runs; a job that starts too late sees `abandoned` and does nothing
                return None if abandoned else call(*args, **kwargs)

        # A commit cannot be undone, so a cancelled caller still has to learn whether it happened.
        with anyio.CancelScope(shield=True):
            async with self._lock:
                try:
                    result: T = await self._execute(job)
                except BaseException:
                    # A shield does not stop asyncio's own Task.cancel, which leaves the thread running. The caller must know the
                    # result of the call, so wait for it here, even though this blocks the event loop for one commit.
                    with running:
                        abandoned = True
                    raise
        return result

    async def _execute(self, job: Callable[[], Any]) -> Any:
        return job() if self._inline else await to_thread.run_sync(job, limiter=self._limiter)
