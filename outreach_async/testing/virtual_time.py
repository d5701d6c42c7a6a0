"""Virtual time on both event loops: an hour of waiting takes milliseconds, and the order of events stays as it was.

Only for what happens in the event loop itself, such as a client on `FakeTransport`. Time jumps as soon as every task waits; a
socket or a thread that would answer later is not waited for: with either, a timeout may strike though the answer is on its way.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio

from outreach_async.fake.clock import parse_time

START: Final = "2026-01-01T00:00:00Z"
"""Where virtual time begins, as that of a fake does."""

_REPLACED: Final = frozenset({"loop_factory", "use_uvloop", "clock"})
"""Options of anyio's backends that say which clock an event loop has."""


class _Jump(selectors.DefaultSelector):
    """A selector that moves the loop's clock instead of blocking."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Without a timer there is nowhere to jump to: only a signal or another thread can go on from here.
        ready = super().select(None if timeout is None else 0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop of asyncio whose clock begins at zero, and jumps to the next timer.

    Example:
        ```python
        loop = VirtualTimeLoop()
        loop.run_until_complete(asyncio.sleep(3600))
        print(loop.time())  # -> 3600.0
        loop.close()
        ```
    """

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jump.now


class VirtualTime:
    """A clock that an event loop drives: hand it to `FakeService(clock=...)`, and its options to `anyio.run`.

    What a client waits for then agrees with what the service says: rate limits, `Retry-After`, relative texts. Several runs may
    follow each other; each goes on where the last one ended.

    Args:
        start: ISO 8601 text, UTC if it names no zone.

    Raises:
        ValueError: The text is no time.

    Example:
        ```python
        time = VirtualTime("2026-05-01T12:00:00Z")
        anyio.run(anyio.sleep, 3600, backend_options=time.options("asyncio"))
        print(time.elapsed, time)  # -> 3600.0 <VirtualTime: 3600 s after its start>
        ```
    """

    def __init__(self, start: str = START) -> None:
        self._start = parse_time(start) / 1_000_000
        self._before = 0.0
        self._reading: Callable[[], float] = float  # zero, until an event loop drives it

    def __repr__(self) -> str:
        return f"<VirtualTime: {self.elapsed:g} s after its start>"

    @property
    def elapsed(self) -> float:
        """Seconds that have passed in event loops since the start."""
        return self._before + self._reading()

    def __call__(self) -> float:
        """Unix seconds.

        Raises:
            RuntimeError: It is read in an event loop that it does not follow, which waits for real or in a time of its own.
        """
        try:
            running = anyio.current_time()
        except RuntimeError:  # there is none, or it is at rest, as between an async fixture and its test
            pass
        else:
            if running != self._reading():
                raise RuntimeError(
                    "virtual time is read in an event loop that does not run in it: start that loop with options() of this "
                    "VirtualTime; under pytest, an async fixture of a wider scope, or `anyio_backend` in a parametrize mark, "
                    "chose another loop"
                )
        return self._start + self.elapsed

    def options(self, backend: str, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Make `backend_options` for a run of an event loop in this time.

        Args:
            backend: `asyncio` or `trio`.
            others: Further options; those that choose a loop or a clock are replaced.

        Example:
            ```python
            time = VirtualTime()
            anyio.run(anyio.sleep, 90, backend="trio", backend_options=time.options("trio"))
            print(time.elapsed)  # -> 90.0
            ```
        """
        kept = {name: value for name, value in (others or {}).items() if name not in _REPLACED}
        if backend == "trio":
            return {**kept, "clock": self._trio_clock()}
        return {**kept, "loop_factory": self._asyncio_loop}

    def backend(self, given: str | tuple[str, Mapping[str, Any]]) -> tuple[str, dict[str, Any]]:
        """Make the value of an `anyio_backend` fixture run in this time.

        Example:
            ```python
            name, options = VirtualTime().backend(("asyncio", {"debug": True}))
            print(name, sorted(options))  # -> asyncio ['debug', 'loop_factory']
            ```
        """
        name, others = (given, {}) if isinstance(given, str) else given
        return name, self.options(name, others)

    def _asyncio_loop(self) -> VirtualTimeLoop:
        loop = VirtualTimeLoop()
        self._follow(loop.time)
        return loop

    def _trio_clock(self) -> Any:
        import trio.testing

        clock = trio.testing.MockClock(autojump_threshold=0)
        self._follow(clock.current_time)
        return clock

    def _follow(self, reading: Callable[[], float]) -> None:
        self._before, self._reading = self.elapsed, reading
