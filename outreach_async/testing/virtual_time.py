"""Virtual time for asyncio and trio: an hour of waiting takes milliseconds, and the order of events does not change.

Use it only for code that runs entirely in the event loop, such as a client on `FakeTransport`. Time jumps as soon as every task
waits. It does not wait for a socket or a thread, so a timeout may expire although their result is on its way.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio

from outreach_async.fake.clock import parse_time

DEFAULT_START: Final = "2026-01-01T00:00:00Z"
"""The start of virtual time, the same as the default of a fake."""

_REPLACED_OPTIONS: Final = frozenset({"loop_factory", "use_uvloop", "clock"})
"""Options of anyio's backends that set the clock of an event loop."""


class _JumpSelector(selectors.DefaultSelector):
    """A selector that advances the clock of the event loop instead of blocking."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Without a timer there is no time to jump to: block, because only a signal or another thread can wake the loop.
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop whose clock starts at zero and jumps to the next timer.

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
        """Return the seconds since the event loop was made."""
        return self._jump_selector.now


class VirtualTime:
    """A clock driven by an event loop. Pass it to `FakeService(clock=...)`, and its options to `anyio.run`.

    The client's waiting then agrees with the times that the service sends: rate limits, `Retry-After`, relative times. Several
    runs may follow each other; each resumes where the last one ended.

    Args:
        start: ISO 8601 string; UTC if it has no time zone.

    Raises:
        ValueError: `start` is not a valid ISO 8601 time.

    Example:
        ```python
        time = VirtualTime("2026-05-01T12:00:00Z")
        anyio.run(anyio.sleep, 3600, backend_options=time.options("asyncio"))
        print(time.elapsed, time)  # -> 3600.0 <VirtualTime: 3600 s after its start>
        ```
    """

    def __init__(self, start: str = DEFAULT_START) -> None:
        self._start_time = parse_time(start) / 1_000_000
        self._elapsed_before = 0.0
        self._read_loop_time: Callable[[], float] = float  # returns zero until an event loop drives the clock

    def __repr__(self) -> str:
        return f"<VirtualTime: {self.elapsed:g} s after its start>"

    @property
    def elapsed(self) -> float:
        """Seconds of virtual time since the start."""
        return self._elapsed_before + self._read_loop_time()

    def __call__(self) -> float:
        """Return the current time in Unix seconds.

        Raises:
            RuntimeError: Called in an event loop that this clock does not drive, which waits in real time or has a clock of its
                own.
        """
        try:
            running = anyio.current_time()
        except RuntimeError:  # no event loop is running, as between an async fixture and its test
            pass
        else:
            if running != self._read_loop_time():
                raise RuntimeError(
                    "virtual time: read in an event loop that it does not drive; start the loop with options() of this "
                    "VirtualTime. Under pytest, check for an async fixture of a wider scope, or `anyio_backend` in a "
                    "parametrize mark"
                )
        return self._start_time + self.elapsed

    def options(self, backend: str, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return `backend_options` that run an event loop in this time.

        Args:
            backend: `asyncio` or `trio`.
            others: Further options; those that set the event loop or its clock are replaced.

        Example:
            ```python
            time = VirtualTime()
            anyio.run(anyio.sleep, 90, backend="trio", backend_options=time.options("trio"))
            print(time.elapsed)  # -> 90.0
            ```
        """
        kept = {name: value for name, value in (others or {}).items() if name not in _REPLACED_OPTIONS}
        if backend == "trio":
            import trio.testing

            clock = trio.testing.MockClock(autojump_threshold=0)
            self._attach(clock.current_time)
            return {**kept, "clock": clock}
        return {**kept, "loop_factory": self._create_asyncio_loop}

    def backend(self, given: str | tuple[str, Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
        """Return the value of an `anyio_backend` fixture, changed to run in this time.

        Example:
            ```python
            name, options = VirtualTime().backend(("asyncio", {"debug": True}))
            print(name, sorted(options))  # -> asyncio ['debug', 'loop_factory']
            ```
        """
        name, others = (given, {}) if isinstance(given, str) else given
        return name, self.options(name, others)

    def _create_asyncio_loop(self) -> VirtualTimeLoop:
        loop = VirtualTimeLoop()
        self._attach(loop.time)
        return loop

    def _attach(self, read_time: Callable[[], float]) -> None:
        # The right side is evaluated first: `elapsed` still reads the clock of the last run, so the times of all runs add up.
        self._elapsed_before, self._read_loop_time = self.elapsed, read_time
