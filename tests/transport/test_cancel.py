"""Cancellation and closing: errors are correct, no connection is left open, and the transport stays usable."""

from __future__ import annotations

import anyio
import anyio.to_thread
import pytest
from support.certificates import certificates
from support.examples import scaled
from support.listener import OK, Behaviour, Listener, answer_once, drip, hang, hang_after, ignore_greeting, over_tls, serve
from support.stress import bursts, points, storm
from support.transports import ALL, EVERY_LOOP, GET, MAKERS, OWN, POST, Make, connected, over

from outreach_async import Progress, Request

HANGS: dict[str, Behaviour] = {
    "before the answer": hang,
    "within the body": hang_after(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal"),
    "dripping": drip(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", b"drop"),
}


@over(*ALL, loops=EVERY_LOOP)
@pytest.mark.parametrize("where", HANGS)
async def test_a_cancelled_exchange_keeps_its_progress_and_no_connection(make: Make, where: str) -> None:
    async with connected(make, HANGS[where], serve()) as (transport, listener):
        progress = Progress()
        async with anyio.create_task_group() as group:
            group.start_soon(transport.send, POST, progress)
            await anyio.to_thread.run_sync(listener.wait_asked)
            group.cancel_scope.cancel()
        assert progress.sent is True
        await anyio.to_thread.run_sync(listener.wait_idle)
        assert (await transport.send(POST, Progress())).status == 200


@over(*ALL)
@pytest.mark.parametrize("request_", [pytest.param(POST, id="POST"), pytest.param(GET, id="GET")])
async def test_a_request_waiting_for_a_connection_is_certainly_not_sent(make: Make, request_: Request) -> None:
    async with connected(make, hang, max_in_flight=1) as (transport, listener):
        waiting = Progress()
        async with anyio.create_task_group() as group:
            group.start_soon(transport.send, POST, Progress())
            await anyio.to_thread.run_sync(listener.wait_asked)
            group.start_soon(transport.send, request_, waiting)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        assert waiting.sent is False
        assert len(listener.requests) == 1


@over(*OWN, "httpx_client", "httpx2_client", loops=EVERY_LOOP)
async def test_a_request_cancelled_while_connecting_is_certainly_not_sent(make: Make) -> None:
    with Listener(ignore_greeting) as listener:
        transport = make(f"https://localhost:{listener.port}", tls=certificates().client)
        progress = Progress()
        async with anyio.create_task_group() as group:
            group.start_soon(transport.send, POST, progress)
            await anyio.to_thread.run_sync(listener.wait_asked)
            group.cancel_scope.cancel()
        # A client of the user cannot prove it.
        assert progress.sent is (False if make in [MAKERS[name] for name in OWN] else None)
        await anyio.to_thread.run_sync(listener.wait_idle)  # before `aclose`: the handshake's socket is closed at once
        await transport.aclose()


@over("httpx", "httpx2")
async def test_a_request_cancelled_while_reconnecting_leaves_no_connection(make: Make) -> None:
    with Listener(over_tls(certificates().server, answer_once(OK)), ignore_greeting) as listener:
        transport = make(f"https://localhost:{listener.port}", tls=certificates().client, max_in_flight=1)
        await transport.send(POST, Progress())
        await anyio.to_thread.run_sync(listener.wait_asked)
        await anyio.to_thread.run_sync(listener.wait_idle)
        async with anyio.create_task_group() as group:
            group.start_soon(transport.send, POST, Progress())
            await anyio.to_thread.run_sync(listener.wait_asked)
            group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(listener.wait_idle)
        await transport.aclose()


@over(*ALL)
@pytest.mark.parametrize("where", ["before the answer", "within the body"])
async def test_closing_ends_requests_in_flight(make: Make, where: str) -> None:
    with Listener(HANGS[where]) as listener:
        transport = make(listener.url, max_in_flight=2)
        outcomes: list[Exception] = []

        async def send() -> None:
            try:
                await transport.send(POST, Progress())
            except Exception as error:  # noqa: BLE001 - whatever comes is compared below
                outcomes.append(error)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(send)
                await anyio.to_thread.run_sync(listener.wait_asked)
                await anyio.to_thread.run_sync(listener.wait_asked)
                await transport.aclose()
                await anyio.to_thread.run_sync(listener.wait_idle)
        assert sorted((type(error).__name__, error.maybe_sent) for error in outcomes) == [  # type: ignore[attr-defined]
            ("InvalidRequest", False),
            ("TransportError", True),
            ("TransportError", True),
        ]
        assert len(listener.requests) == 2


@over(*OWN)
@pytest.mark.parametrize("tls", [False, True], ids=["TCP", "TLS"])
async def test_bursts_of_cancellations_leave_the_pool_usable_and_no_connection(make: Make, tls: bool) -> None:
    tally = await bursts(make, count=scaled(90), seed=5, tls=tls)
    assert tally.denied, "nothing was put to the test"
    assert tally.faults == {}


@pytest.mark.nightly
@over(*ALL)
async def test_random_faults_and_cancellations_never_deny_a_delivered_request(make: Make) -> None:
    tally = await storm(make, calls=scaled(480), seed=7)
    assert tally.denied, "nothing was put to the test"
    assert tally.faults == {}


@pytest.mark.nightly
@over(*OWN)
async def test_after_a_cancellation_at_any_point_labels_are_true_and_slots_free(make: Make) -> None:
    tally = await points(make, count=60, seed=3)
    assert tally.calls, "nothing was put to the test"
    assert tally.faults == {}
