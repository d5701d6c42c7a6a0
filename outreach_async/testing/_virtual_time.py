"""Virtual time for asyncio and trio. Time jumps to the next timer as soon as all tasks are waiting."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import anyio

from outreach_async.fake._clock import parse_time

if TYPE_CHECKING:
    from trio.abc import Clock

DEFAULT_START: Final = "2026-01-01T00:00:00Z"

# Options of anyio's backends that set the event loop or its clock.
_REPLACED_OPTIONS: Final = frozenset({"loop_factory", "use_uvloop", "clock"})


class _JumpSelector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # If no timer is set, block: only a signal or another thread can wake the event loop.
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop whose clock starts at zero and jumps to the next timer instead of waiting for it.

    Example:
        ```python
        loop = VirtualTimeLoop()
        loop.run_until_complete(asyncio.sleep(3600))
        print(loop.time())  # -> 3600.0
        loop.close()
        ```
    """

    def __init__(self) -> None:
        self._jump_selector = _JumpSelector()
        super().__init__(self._jump_selector)

    def time(self) -> float:
        """Return the virtual time since the event loop was created, in seconds."""
        return self._jump_selector.now


def _create_trio_clock() -> Clock:
    from trio.testing import MockClock

    clock = MockClock(autojump_threshold=0)
    to_sleep_time = clock.deadline_to_sleep_time

    def jump_or_block(deadline: float) -> float:
        # If no timer is set, block: only a signal or another thread can wake the event loop. Trio would poll for them.
        clock.autojump_threshold = math.inf if deadline == math.inf else 0.0
        return to_sleep_time(deadline)

    clock.deadline_to_sleep_time = jump_or_block  # type: ignore[method-assign] # the class cannot be subclassed
    return clock


class VirtualTime:
    """A clock driven by an event loop. Pass the clock to `FakeService(clock=...)`, and its `options()` to `anyio.run`.

    The `FakeService` then uses this clock for rate limits, `Retry-After` and relative times. The clock advances when the client
    waits. It can be used for several calls of `anyio.run`, one after another: each starts when the last one ended.

    Args:
        start: Start time as an ISO 8601 string, by default in UTC.

    Example:
        ```python
        time = VirtualTime("2026-05-01T12:00:00Z")
        anyio.run(anyio.sleep, 3600, backend_options=time.options("asyncio"))
        print(time.elapsed, time)  # -> 3600.0 <VirtualTime: 3600 s after its start>
        ```
    """

    def __init__(self, start: str = DEFAULT_START) -> None:
        self._start_time = parse_time("start", start) / 1_000_000
        self._elapsed_before = 0.0
        self._read_loop_time: Callable[[], float] = float  # returns zero until an event loop drives the clock

    def __repr__(self) -> str:
        return f"<VirtualTime: {self.elapsed:g} s after its start>"

    @property
    def elapsed(self) -> float:
        """Virtual time since the start, in seconds."""
        return self._elapsed_before + self._read_loop_time()

    def __call__(self) -> float:
        try:
            running = anyio.current_time()
        except RuntimeError:  # no event loop is running, for example between an async fixture and its test
            pass
        else:
            if running != self._read_loop_time():
                raise RuntimeError(
                    "virtual time: expected the event loop that drives this clock, got another event loop; pass its options() to "
                    "anyio.run. Under pytest, check for an async fixture with a wider scope, or a parametrized `anyio_backend`"
                )
        return self._start_time + self.elapsed

    def options(self, backend: str, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the `backend_options` with which `anyio.run` uses this virtual time, and `others`, on `asyncio` or `trio`.

        Example:
            ```python
            time = VirtualTime()
            anyio.run(anyio.sleep, 90, backend="trio", backend_options=time.options("trio"))
            print(time.elapsed)  # -> 90.0
            ```
        """
        kept = {name: value for name, value in (others or {}).items() if name not in _REPLACED_OPTIONS}
        if backend == "trio":
            clock = _create_trio_clock()
            self._attach(clock.current_time)
            return {**kept, "clock": clock}

        def create_loop() -> VirtualTimeLoop:
            loop = VirtualTimeLoop()
            self._attach(loop.time)
            return loop

        return {**kept, "loop_factory": create_loop}

    def _attach(self, read_time: Callable[[], float]) -> None:
        # The right side is evaluated first: `elapsed` still reads the clock of the previous run, so the times of all runs add up.
        self._elapsed_before, self._read_loop_time = self.elapsed, read_time
