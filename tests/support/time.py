"""Clocks for tests: virtual time as a mark, because fixtures do not combine with Hypothesis; and a real clock that can jump."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
import trio.lowlevel
from support.transports import Loops
from trio.testing import MockClock

from outreach_async.testing import VirtualTime, VirtualTimeLoop

virtual_time = pytest.mark.parametrize(
    "anyio_backend", [pytest.param(VirtualTime().backend(name), id=name) for name in ("asyncio", "trio")]
)
"""Marks a test, or a module's tests, to run on both event loops in virtual time."""


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is the real one, which `jump` moves forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


MOVABLE: Final[Loops] = {
    "asyncio": ("asyncio", {"loop_factory": MovableLoop}),
    "trio": ("trio", {"clock": MockClock(rate=1.0)}),
}
"""Both event loops in real time that `jump` moves forward: sockets have the time they take, and no test waits for a timeout."""


def jump(seconds: float) -> None:
    """Move the clock of the running event loop forward, as if nothing had run meanwhile: what is due by then is late."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # trio has one
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(seconds)
    else:
        if isinstance(loop, VirtualTimeLoop):
            loop._jump_selector.now += seconds
        else:
            assert isinstance(loop, MovableLoop)
            loop.ahead += seconds
