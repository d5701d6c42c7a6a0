"""Idle connections of every event loop are closed by time, although no further request is sent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
from support.listener import Listener, serve
from support.transports import LOOPS, MAKERS, OWN, POST, runs_on

from outreach_async.transport._wire import Progress

pytestmark = pytest.mark.nightly


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # aiohttp's sessions are left open on purpose
@pytest.mark.parametrize("name", OWN)
def test_idle_connections_of_several_loops_are_closed_while_the_loops_run(name: str) -> None:
    loops = [loop for loop in ("asyncio", "trio", "asyncio") if runs_on(name, loop)]
    with Listener(serve()) as listener, ThreadPoolExecutor(len(loops)) as threads:
        transport = MAKERS[name](listener.url)

        async def send_and_wait() -> None:
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(transport.send, POST, Progress())
            await anyio.to_thread.run_sync(listener.wait_idle)

        def run(loop: str) -> None:
            backend, options = LOOPS[loop]
            anyio.run(send_and_wait, backend=backend, backend_options=options)

        list(threads.map(run, loops))
        assert len(listener.peers) >= len(loops)
