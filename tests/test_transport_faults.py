"""Trouble on real sockets: each is a TransportError, and `maybe_sent` never says less than what the listener has read."""

from __future__ import annotations

import gzip
import random
import ssl
from functools import cache

import anyio
import anyio.to_thread
import attrs
import pytest
import trustme
from support_listener import (
    OK,
    Behaviour,
    Listener,
    Peer,
    answer_once,
    close_after_request,
    drip,
    flood,
    hang,
    hang_after,
    refused_port,
    reset_after_request,
    reset_at_once,
    serve,
)
from support_transports import OWN, Make, over

from outreach_async.errors import TransportError
from outreach_async.transport.wire import Progress, Request, Response, Transport

POST = Request("POST", "/contacts", {"content-type": "application/json"}, b'{"owner_key": "key_secret", "email": "a@b.co"}')
GET = Request("GET", "/campaigns?workspace=space_1&page=1&display=5")
ALL = ("httpx", "httpx2", "aiohttp", "httpx_client", "httpx2_client", "aiohttp_session")

CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ENCODED = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 9\r\n\r\n"
LONG = b"HTTP/1.1 200 OK\r\nx-long: " + b"l" * 300_000


def mid_body_reset(peer: Peer) -> None:
    peer.request()
    peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal")
    peer.reset()


FAULTS: dict[str, Behaviour] = {
    "reset before reading": reset_at_once,
    "reset after the request": reset_after_request,
    "closed before the answer": close_after_request,
    "closed within the head": answer_once(b"HTTP/1.1 200 OK\r\ncontent-le"),
    "closed within the body": answer_once(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal"),
    "reset within the body": mid_body_reset,
    "not HTTP": answer_once(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "a chunk without a size": answer_once(CHUNKED + b"2\r\nok\r\nno size\r\n"),
    "no last chunk": answer_once(CHUNKED + b"2\r\nok\r\n"),
    "another encoding than stated": hang_after(ENCODED + b"plain ok!"),
    "an encoding that ends early": hang_after(ENCODED + gzip.compress(b"ok", mtime=0)[:9]),
    "an encoding not asked for": hang_after(ENCODED.replace(b"gzip", b"br") + b"plain ok!"),
    "a header too long": hang_after(LONG),
    "a stated length too large": hang_after(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999\r\n\r\nxxx"),
    "a body without end": flood(CHUNKED, b"400\r\n" + b"x" * 1024 + b"\r\n"),
}


async def fail(transport: Transport, request: Request) -> tuple[TransportError, Progress]:
    progress = Progress()
    with anyio.fail_after(10), pytest.raises(TransportError) as caught:
        await transport.send(request, progress)
    return caught.value, progress


async def break_off(make: Make, fault: str, request: Request) -> None:
    with Listener(FAULTS[fault]) as listener:
        transport = make(listener.url, max_answer=100_000)
        error, progress = await fail(transport, request)
        await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)
        assert error.maybe_sent is (progress.sent is not False)
        assert error.maybe_sent or not listener.received
        assert len(listener.peers) == 1
        assert "\n" not in str(error)
        assert "key_secret" not in repr(error)


@over(*ALL)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_broken_exchange_is_a_transport_error_that_never_denies_what_arrived(make: Make, fault: str) -> None:
    await break_off(make, fault, POST)


@over(*OWN)
@pytest.mark.parametrize("fault", FAULTS)
async def test_so_it_is_without_a_body(make: Make, fault: str) -> None:
    await break_off(make, fault, GET)


@over(*ALL)
@pytest.mark.parametrize("request_", [pytest.param(POST, id="POST"), pytest.param(GET, id="GET")])
async def test_a_refused_connection_is_certainly_not_sent(make: Make, request_: Request) -> None:
    transport = make(f"http://localhost:{refused_port()}")
    error, progress = await fail(transport, request_)
    await transport.aclose()
    assert error.maybe_sent is False
    assert progress.sent is False
    assert str(error).startswith("no connection to ")


@over(*ALL)
async def test_an_unknown_host_is_certainly_not_sent(make: Make) -> None:
    transport = make("http://nowhere.invalid")
    error, progress = await fail(transport, POST)
    await transport.aclose()
    assert (error.maybe_sent, progress.sent) == (False, False)


@attrs.frozen
class Certificates:
    """What both sides of a TLS connection need."""

    server: ssl.SSLContext
    stranger: ssl.SSLContext
    client: ssl.SSLContext


@cache
def certificates() -> Certificates:
    authority = trustme.CA()
    server, stranger = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in range(2))
    authority.issue_cert("localhost").configure_cert(server)
    authority.issue_cert("stranger.example").configure_cert(stranger)
    client = ssl.create_default_context()
    authority.configure_trust(client)
    return Certificates(server, stranger, client)


@over(*ALL)
async def test_tls_with_a_trusted_certificate_works(make: Make) -> None:
    with Listener(serve(), tls=certificates().server) as listener:
        transport = make(listener.url, tls=certificates().client)
        response = await transport.send(POST, Progress())
        await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)
    assert response == Response(200, {"content-length": "2"}, b"ok")


@over(*OWN)
@pytest.mark.parametrize("fault", ["an untrusted authority", "another host's certificate", "no TLS at all", "a reset handshake"])
async def test_a_failed_tls_handshake_is_certainly_not_sent(make: Make, fault: str) -> None:
    tls = {"another host's certificate": certificates().stranger, "an untrusted authority": certificates().server}.get(fault)
    behaviour = reset_at_once if fault == "a reset handshake" else answer_once(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with Listener(say_400 if fault == "no TLS at all" else behaviour, tls=tls) as listener:
        trusted = ssl.create_default_context() if fault == "an untrusted authority" else certificates().client
        transport = make(f"https://localhost:{listener.port}", tls=trusted)
        error, progress = await fail(transport, POST)
        await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)
        assert (error.maybe_sent, progress.sent) == (False, False)
        assert not listener.requests


def say_400(peer: Peer) -> None:
    """Answer a TLS greeting as a plain HTTP server does."""
    peer.read()
    peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


@over(*ALL)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_its_target_gets_nothing(make: Make, status: int) -> None:
    with Listener(serve()) as other, Listener(serve(redirect(status, other.url))) as listener:
        transport = make(listener.url)
        response = await transport.send(POST, Progress())
        await transport.aclose()
        assert (response.status, response.headers["location"]) == (status, f"{other.url}/new")
        assert (len(listener.requests), other.peers) == (1, [])


def redirect(status: int, to: str) -> bytes:
    return f"HTTP/1.1 {status} Elsewhere\r\nlocation: {to}/new\r\ncontent-length: 0\r\n\r\n".encode()


@over(*ALL)
async def test_a_cookie_is_never_sent_back(make: Make) -> None:
    with Listener(serve(OK.replace(b"content", b"set-cookie: a=b; Path=/\r\ncontent", 1))) as listener:
        transport = make(listener.url)
        for _ in range(2):
            response = await transport.send(POST, Progress())
            assert response.headers["set-cookie"] == "a=b; Path=/"
        await transport.aclose()
        assert len(listener.requests) == 2
        assert b"cookie" not in b"".join(listener.requests).lower()


@over(*ALL)
async def test_a_failed_get_is_not_sent_again(make: Make) -> None:
    with Listener(serve_then_close, serve()) as listener:
        transport = make(listener.url)
        await transport.send(GET, Progress())
        error, _ = await fail(transport, GET)
        await transport.aclose()
        assert error.maybe_sent
        assert len(listener.requests) == 2


def serve_then_close(peer: Peer) -> None:
    """Answer one request, and close the connection upon the next."""
    peer.request()
    peer.send(OK)
    peer.request()


@over(*ALL)
async def test_a_connection_that_ended_while_idle_is_replaced(make: Make) -> None:
    with Listener(answer_once(OK), serve()) as listener:
        transport = make(listener.url)
        await transport.send(POST, Progress())
        await anyio.to_thread.run_sync(listener.wait_idle)
        response = await transport.send(POST, Progress())
        await transport.aclose()
        assert (response.status, len(listener.peers)) == (200, 2)


@over(*ALL)
async def test_a_connection_is_used_again(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(listener.url)
        for _ in range(5):
            await transport.send(POST, Progress())
        await transport.aclose()
        assert (len(listener.requests), len(listener.peers)) == (5, 1)


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
