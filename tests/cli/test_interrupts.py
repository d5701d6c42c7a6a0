"""The effect of the first, second and third Ctrl-C on a run, in virtual time."""

from __future__ import annotations

import anyio
import pytest
from support.time import virtual_time

from outreach_async._cli.output import Screen
from outreach_async._cli.process import DRAIN_TIMEOUT, InterruptHandler, handle_interrupts

pytestmark = virtual_time

SCREEN = Screen(as_json=True, console=None)


async def test_the_first_signal_drains_and_gives_rows_in_flight_30_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    drained: list[float] = []
    began = anyio.current_time()

    def drain() -> float:
        drained.append(anyio.current_time() - began)
        return DRAIN_TIMEOUT

    async with handle_interrupts(SCREEN) as interrupts:
        interrupts.drain = drain
        interrupts.handle()
        await anyio.sleep_forever()
    assert (drained, anyio.current_time() - began, interrupts.count) == ([0.0], 30.0, 1)
    assert "waiting up to 30 s for requests in flight" in capsys.readouterr().err


async def test_the_second_signal_cancels_at_once() -> None:
    began = anyio.current_time()
    async with handle_interrupts(SCREEN) as interrupts:
        interrupts.handle()
        interrupts.handle()
        await anyio.sleep_forever()
    assert anyio.current_time() == began


async def test_the_third_signal_ends_the_process() -> None:
    codes: list[int] = []
    async with anyio.create_task_group() as group:
        interrupts = InterruptHandler(SCREEN, group, leave=codes.append)
        for _ in range(3):
            interrupts.handle()
        group.cancel_scope.cancel()
    assert codes == [130]


async def test_a_block_that_ends_by_itself_returns_at_once_with_its_own_error() -> None:
    async with handle_interrupts(SCREEN) as interrupts:
        interrupts.group.start_soon(anyio.sleep_forever)
    with pytest.raises(LookupError, match="mine"):
        async with handle_interrupts(SCREEN):
            raise LookupError("mine")
