"""Clocks for tests: virtual time, as a mark because fixtures do not combine with Hypothesis, and a real clock that can jump."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest
import trio.lowlevel
from hypothesis import HealthCheck
from support.transports import Loops
from trio.testing import MockClock

from outreach_async.testing import VirtualTime, VirtualTimeLoop

virtual_time = pytest.mark.parametrize(
    "anyio_backend",
    [pytest.param(lambda name=name: (name, VirtualTime().options(name)), id=name) for name in ("asyncio", "trio")],
    indirect=True,
)
"""Marks a test, or a module's tests, to run on both event loops in virtual time."""

ALLOW_LOOP_FIXTURE: Final = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
"""Suppressed health checks of a property test with the argument `anyio_backend`, which is the same in all examples."""


class MovableLoop(asyncio.SelectorEventLoop):
    """An event loop in real time, whose clock `jump` can move forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


MOVABLE: Final[Loops] = {"asyncio": ("asyncio", {"loop_factory": MovableLoop}), "trio": ("trio", {"clock": MockClock(rate=1.0)})}
"""Both event loops in real time, whose clocks `jump` can move forward, so that tests use sockets but never wait for timeouts."""


def jump(seconds: float) -> None:
    """Move the clock of the running event loop forward, as if the loop had been blocked: timers due by then fire late."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # the loop is trio's
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(seconds)
    else:
        if isinstance(loop, VirtualTimeLoop):
            loop._jump_selector.now += seconds
        else:
            assert isinstance(loop, MovableLoop)
            loop.ahead += seconds
