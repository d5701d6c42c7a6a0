"""Virtual time on both event loops: an hour of waiting takes milliseconds. For transports in memory only."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

import pytest
import trio.testing


class _Jump(selectors.DefaultSelector):
    """A selector that moves the loop's clock instead of blocking."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now


def trio_options() -> dict[str, Any]:
    """Return options for one run of trio: a clock serves one run only."""
    return {"clock": trio.testing.MockClock(autojump_threshold=0)}


virtual_time = pytest.mark.parametrize(
    "anyio_backend",
    [
        pytest.param(("asyncio", {"loop_factory": VirtualTimeLoop}), id="asyncio"),
        pytest.param(("trio", trio_options()), id="trio"),
    ],
)
"""Marks a test, or a module's tests, to run on both event loops in virtual time."""
