"""Virtual time for tests that build what they wait for themselves: a mark, since a fixture has no place beside hypothesis."""

from __future__ import annotations

import asyncio

import pytest
import trio.lowlevel
from trio.testing import MockClock

from outreach_async.testing import VirtualTime, VirtualTimeLoop

virtual_time = pytest.mark.parametrize(
    "anyio_backend", [pytest.param(VirtualTime().backend(name), id=name) for name in ("asyncio", "trio")]
)
"""Marks a test, or a module's tests, to run on both event loops in virtual time."""


def stall(seconds: float) -> None:
    """Let virtual time pass while no task runs, as on a busy machine: what is due meanwhile is late."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # it is trio's
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, MockClock)
        clock.jump(seconds)
    else:
        assert isinstance(loop, VirtualTimeLoop)
        loop._jump.now += seconds
