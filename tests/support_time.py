"""Virtual time on both event loops: an hour of waiting takes milliseconds. For transports in memory only."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

import pytest
import trio.testing


class _Jump(selectors.DefaultSelector):  # type: ignore[misc,valid-type]  # DefaultSelector is chosen at run time
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


def _asyncio() -> Any:
    return ("asyncio", {"loop_factory": VirtualTimeLoop})


def _trio() -> Any:
    return ("trio", {"clock": trio.testing.MockClock(autojump_threshold=0)})


virtual_time = pytest.mark.parametrize("anyio_backend", [pytest.param(_asyncio(), id="asyncio"), pytest.param(_trio(), id="trio")])
