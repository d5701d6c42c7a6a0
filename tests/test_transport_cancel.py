"""Cancellation and closing: no lie about what was sent, no connection left, and the transport goes on."""

from __future__ import annotations

import random

import anyio
import anyio.to_thread
import pytest
from support_certificates import certificates
from support_listener import (
    OK,
    Behaviour,
    Listener,
    Peer,
    answer_once,
    drip,
    hang,
    hang_after,
    serve,
)
from support_transports import ALL, GET, OWN, POST, Make, over

from outreach_async.errors import TransportError
from outreach_async.transport.wire import Progress, Request, Transport

HANGS: dict[str, Behaviour] = {
    "before the answer": hang,
    "within the body": hang_after(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal"),
    "dripping": drip(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n", b"drop"),
}


@over(*ALL)
@pytest.mark.parametrize("where", HANGS)
async def test_a_cancelled_exchange_leaves_its_evidence_and_no_connection(make: Make, where: str) -> None:
    with Listener(HANGS[where], serve()) as listener:
        transport = make(listener.url)
        progress = Progress()
        async with anyio.create_task_group() as group:
            group.start_soon(transport.send, POST, progress)
            await anyio.to_thread.run_sync(listener.wait_asked)
            group.cancel_scope.cancel()
        assert progress.sent is True
        await anyio.to_thread.run_sync(listener.wait_idle)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()


@over(*ALL)
@pytest.mark.parametrize("request_", [pytest.param(POST, id="POST"), pytest.param(GET, id="GET")])
async def test_what_waits_for_its_turn_is_certainly_not_sent(make: Make, request_: Request) -> None:
    with Listener(hang) as listener:
        transport = make(listener.url, max_in_flight=1)
        waiting = Progress()
        async with anyio.create_task_group() as group:
            group.start_soon(transport.send, POST, Progress())
            await anyio.to_thread.run_sync(listener.wait_asked)
            group.start_soon(transport.send, request_, waiting)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        await transport.aclose()
        assert waiting.sent is False
        assert len(listener.requests) == 1


@over(*OWN)
async def test_what_is_cancelled_while_it_connects_is_certainly_not_sent(make: Make) -> None:
    with Listener(mute) as listener:
        transport = make(f"https://localhost:{listener.port}", tls=certificates().client)
        progress = Progress()
        async with anyio.create_task_group() as group:
            group.start_soon(transport.send, POST, progress)
            await anyio.to_thread.run_sync(listener.wait_asked)
            group.cancel_scope.cancel()
        assert progress.sent is False
        await anyio.to_thread.run_sync(listener.wait_idle)  # before it is closed: the handshake's socket is closed at once
        await transport.aclose()


@over("httpx", "httpx2")
async def test_what_is_cancelled_while_its_lane_connects_again_leaves_no_connection(make: Make) -> None:
    def once_over_tls(peer: Peer) -> None:
        peer.start_tls(certificates().server)
        answer_once(OK)(peer)

    with Listener(once_over_tls, mute) as listener:
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


def mute(peer: Peer) -> None:
    """Read a TLS greeting and never answer."""
    peer.read()
    peer.note(b"")
    peer.outlast()


@over(*ALL)
@pytest.mark.parametrize("where", ["before the answer", "within the body"])
async def test_closing_ends_what_is_under_way(make: Make, where: str) -> None:
    with Listener(HANGS[where]) as listener:
        transport = make(listener.url, max_in_flight=2)
        outcomes: list[Exception] = []

        async def send() -> None:
            try:
                await transport.send(POST, Progress())
            except Exception as error:  # noqa: BLE001 - whatever comes is compared below
                outcomes.append(error)

        with anyio.fail_after(10):
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


async def cancel_soon(transport: Transport, delay: float) -> None:
    with anyio.move_on_after(delay):
        await transport.send(POST, Progress())


@over(*OWN)
@pytest.mark.parametrize("tls", [False, True], ids=["TCP", "TLS"])
@pytest.mark.parametrize("scope", ["one scope for all", "a scope for each"])
async def test_bursts_of_cancellations_leave_every_lane_usable_and_no_connection(make: Make, tls: bool, scope: str) -> None:
    chance = random.Random(5)  # noqa: S311 - delays, not secrets
    keys = certificates()
    with Listener(serve(), tls=keys.server if tls else None) as listener:
        transport = make(listener.url, tls=keys.client, max_in_flight=4)
        for _ in range(8):
            delays = [chance.uniform(0, 0.008) for _ in range(12)]
            with anyio.move_on_after(0.006 if scope == "one scope for all" else 10):
                async with anyio.create_task_group() as group:
                    for delay in delays:
                        group.start_soon(cancel_soon, transport, delay if scope == "a scope for each" else 10)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as group:
                for _ in range(12):
                    group.start_soon(transport.send, POST, Progress())
            for _ in range(8):
                await transport.send(POST, Progress())
        await anyio.to_thread.run_sync(listener.wait_idle, 4)
        await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)


class Trouble:
    """A listener's behaviour at random; what one thread does depends on its own seed only."""

    def __init__(self, seed: int) -> None:
        self._seeds = random.Random(seed)  # noqa: S311 - faults, not secrets

    def __call__(self, peer: Peer) -> None:
        chance = random.Random(self._seeds.random())  # noqa: S311 - the same
        if chance.random() < 0.1:
            return peer.reset()
        while True:
            peer.request()
            match chance.randrange(10):
                case 0:
                    return peer.reset()
                case 1:
                    return None
                case 2:
                    peer.outlast()
                case 3:
                    peer.send(OK[:-1])
                    peer.read()
                case _:
                    peer.send(OK)


@over(*OWN)
async def test_under_random_faults_and_cancellations_no_delivered_request_is_denied(make: Make) -> None:
    chance = random.Random(11)  # noqa: S311 - delays, not secrets
    denied: list[bytes] = []
    with Listener(Trouble(7)) as listener:
        transport = make(listener.url, max_in_flight=4)

        async def work(worker: int) -> None:
            for number in range(20):
                body = b"<%d-%d>" % (worker, number)
                progress = Progress()
                with anyio.move_on_after(chance.uniform(0, 0.008) if chance.random() < 0.35 else 0.05):
                    try:
                        await transport.send(Request("POST", "/contacts", body=body), progress)
                    except TransportError as error:
                        assert error.maybe_sent is (progress.sent is not False)  # noqa: PT017 - beside what is cancelled
                if progress.sent is False:
                    denied.append(body)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for worker in range(8):
                    group.start_soon(work, worker)
        await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)
        assert denied, "nothing was put to the test"
        assert [body for body in denied if body in listener.received] == []
        assert len(listener.requests) == len(set(listener.requests)), "a request was delivered twice"
