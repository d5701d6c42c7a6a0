"""Bytes after a response: the connection is not reused, and the response is ambiguous unless it was the first on it."""

from __future__ import annotations

import threading
from typing import Any, Final

import aiohttp
import anyio.lowlevel
import anyio.to_thread
import httpx
import httpx2
import pytest
from support.certificates import certificates
from support.listener import PATIENCE, Listener, Peer, send_while_idle, wait_readable
from support.transports import ALL, EVERY_LOOP, GET, OWN, POST, Make, connected, over

from outreach_async import AiohttpTransport, HttpxTransport, Progress, Request, Transport
from outreach_async.errors import TransportError

CLIENTS: Final = ("httpx_client", "httpx2_client")
everywhere = over(*ALL, loops=EVERY_LOOP)
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
by_post_and_get = pytest.mark.parametrize("request_", [POST, GET], ids=["POST", "GET"])


def numbered(number: int, field: str = "x-test: 1") -> bytes:
    return f"HTTP/1.1 200 OK\r\n{field}\r\ncontent-length: 1\r\n\r\n{number}".encode()


class Scripted:
    """A listener's behaviour. It answers the n-th request with the n-th byte string, and later requests with their number."""

    def __init__(self, *sent: bytes) -> None:
        self._sent = list(sent)
        self._count = 0

    def __call__(self, peer: Peer) -> None:
        while True:
            peer.request()
            self._count += 1
            peer.send(self._sent.pop(0) if self._sent else numbered(self._count))


class Closing(Scripted):
    """Like `Scripted`, but each connection ends after its second response."""

    def __call__(self, peer: Peer) -> None:
        for number in (1, 2):
            peer.request()
            peer.send(self._sent.pop(0) if self._sent else numbered(number))


async def bodies(transport: Transport, count: int, request: Request = POST) -> list[bytes | None]:
    """Send `count` requests in sequence; return the bodies of their responses, `None` for ambiguous ones."""
    received: list[bytes | None] = []
    for _ in range(count):
        try:
            received.append((await transport.send(request, Progress())).body)
        except TransportError as error:
            assert error.maybe_sent  # noqa: PT017 - there may be none
            assert "may belong to an earlier request" in str(error)  # noqa: PT017 - there may be none
            received.append(None)
    return received


@everywhere
@by_post_and_get
@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param([numbered(1) * 2], [b"1", b"2", b"3"], id="first, twice"),
        *(
            pytest.param([numbered(1), numbered(1) + numbered(2)[:size]], [b"1", None, b"3"], id=f"second and {size} bytes")
            for size in (None, 1, 12, 30)
        ),
    ],
)
async def test_only_a_later_response_followed_by_bytes_is_ambiguous(
    make: Make, request_: Request, sent: list[bytes], expected: list[bytes | None]
) -> None:
    async with connected(make, Scripted(*sent)) as (transport, listener):
        assert await bodies(transport, 3, request_) == expected
        assert len(listener.peers) == 2


@over(*ALL)
async def test_over_tls_a_later_response_followed_by_another_is_ambiguous(make: Make) -> None:
    keys, script = certificates(), Scripted(numbered(1), numbered(1) + numbered(2))
    async with connected(make, script, server=keys.server, tls=keys.client) as (transport, _):
        assert await bodies(transport, 3) == [b"1", None, b"3"]


@over(*ALL)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_later_response_followed_only_by_the_end_counts(make: Make, tls: bool) -> None:
    keys, script = certificates(), Closing(numbered(1), numbered(2, "connection: close"))
    async with connected(make, script, server=keys.server if tls else None, tls=keys.client) as (transport, _):
        assert await bodies(transport, 3) == [b"1", b"2", b"1"]


@over(*OWN, *CLIENTS, loops=EVERY_LOOP)
@by_post_and_get
async def test_a_connection_that_receives_bytes_while_idle_is_not_reused(make: Make, request_: Request) -> None:
    async with connected(make, Scripted()) as (transport, listener):
        assert await bodies(transport, 2, request_) == [b"1", b"2"]
        send_while_idle(listener.peers[0], numbered(2))
        assert await bodies(transport, 2, request_) == [b"3", b"4"]
        assert len(listener.peers) == 2


@over("aiohttp", loops=EVERY_LOOP)
@by_post_and_get
@pytest.mark.parametrize("size", [None, 12], ids=["whole", "in part"])
async def test_a_connection_whose_idle_bytes_aiohttp_has_read_is_not_reused(
    make: Make, request_: Request, size: int | None
) -> None:
    async with connected(make, Scripted()) as (transport, listener):
        assert await bodies(transport, 1, request_) == [b"1"]
        send_while_idle(listener.peers[0], numbered(1)[:size])
        await turn_the_loop()
        assert await bodies(transport, 2, request_) == [b"2", b"3"]
        assert len(listener.peers) == 2


async def turn_the_loop() -> None:
    """Let the event loop read what has arrived."""
    for _ in range(5):
        await anyio.lowlevel.checkpoint()


@over("aiohttp_session", loops=EVERY_LOOP)
@by_post_and_get
async def test_over_a_session_a_response_that_precedes_its_request_is_not_used(make: Make, request_: Request) -> None:
    async with connected(make, Scripted()) as (transport, listener):
        assert await bodies(transport, 1, request_) == [b"1"]
        send_while_idle(listener.peers[0], numbered(1))
        await turn_the_loop()
        doubtful, fresh = await bodies(transport, 2, request_)
    assert doubtful is None
    assert fresh in {b"2", b"3"}  # depends on whether the ambiguous request was sent


@over("aiohttp_session", loops=EVERY_LOOP)
async def test_over_a_session_no_body_is_sent_if_bytes_are_waiting(make: Make) -> None:
    async with connected(make, Scripted()) as (transport, listener):
        assert await bodies(transport, 1) == [b"1"]
        send_while_idle(listener.peers[0], numbered(1))
        with pytest.raises(TransportError, match="may belong to an earlier request"):
            await transport.send(POST, Progress())
        assert await bodies(transport, 1) == [b"2"]
        assert len(listener.requests) == 2


@over("aiohttp", "aiohttp_session")
async def test_bytes_aiohttp_has_not_read_make_a_later_response_ambiguous(make: Make) -> None:
    with Listener(Scripted()) as listener:

        async def copy_the_second(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
            response = await handler(request)
            if len(listener.requests) == 2:
                send_while_idle(listener.peers[0], numbered(2))
            return response

        transport = make(listener.url, middlewares=[copy_the_second])
        assert await bodies(transport, 3) == [b"1", None, b"3"]
        await transport.aclose()
        assert len(listener.peers) == 2


@on_asyncio
async def test_bytes_for_the_next_request_make_no_response_ambiguous() -> None:
    answer_third, received = threading.Event(), []

    def hold_the_third(peer: Peer) -> None:
        for number in (1, 2, 3):
            peer.request()
            assert number < 3 or answer_third.wait(PATIENCE)
            peer.send(numbered(number))
        peer.outlast()

    with Listener(hold_the_third) as listener:
        async with anyio.create_task_group() as group:

            async def send() -> None:
                received.extend(await bodies(transport, 1))

            async def overtake(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
                response = await handler(request)
                await anyio.to_thread.run_sync(listener.wait_asked)
                if len(listener.requests) == 2:
                    group.start_soon(send)
                    await anyio.to_thread.run_sync(listener.wait_asked)
                    listener.note(b"")  # for the third request's own `wait_asked` here
                    answer_third.set()
                    wait_readable(listener.peers[0])
                return response

            transport = AiohttpTransport(listener.url, middlewares=[overtake])
            assert await bodies(transport, 2) == [b"1", b"2"]
        await transport.aclose()
        assert received == [b"3"]
        assert len(listener.peers) == 1


class OwnResponse(aiohttp.ClientResponse):
    pass


@on_asyncio
async def test_the_response_class_of_a_session_is_kept() -> None:
    seen: list[aiohttp.ClientResponse] = []

    async def note(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        seen.append(await handler(request))
        return seen[-1]

    with Listener(Scripted()) as listener:
        session = aiohttp.ClientSession(f"{listener.url}/", response_class=OwnResponse)
        transport = AiohttpTransport(session, middlewares=[note])
        assert await bodies(transport, 2) == [b"1", b"2"]
        await transport.aclose()
    assert [isinstance(response, OwnResponse) for response in seen] == [True, True]


@on_asyncio
async def test_a_response_a_middleware_got_elsewhere_counts() -> None:
    with Listener(Scripted()) as listener:
        async with aiohttp.ClientSession() as other:

            async def elsewhere(_: aiohttp.ClientRequest, handler: object) -> aiohttp.ClientResponse:
                del handler
                return await other.get(listener.url)

            transport = AiohttpTransport("http://service.example", middlewares=[elsewhere])
            assert await bodies(transport, 2) == [b"1", b"2"]
            await transport.aclose()


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
async def test_a_client_without_keepalive_uses_each_connection_once(library: Any) -> None:
    async def read(response: Any) -> None:
        await response.aread()

    with Listener(Scripted(*(numbered(number) * 2 for number in (1, 2, 3)))) as listener:
        once = library.Limits(max_keepalive_connections=0)
        client = library.AsyncClient(base_url=listener.url, verify=False, limits=once, event_hooks={"response": [read]})
        transport = HttpxTransport(client)
        assert await bodies(transport, 3) == [b"1", b"2", b"3"]
        await transport.aclose()


@on_asyncio
async def test_a_session_without_keepalive_uses_each_connection_once() -> None:
    with Listener(Scripted()) as listener:
        session = aiohttp.ClientSession(f"{listener.url}/", connector=aiohttp.TCPConnector(force_close=True))
        transport = AiohttpTransport(session)
        assert await bodies(transport, 3) == [b"1", b"2", b"3"]
        await transport.aclose()
        assert len(listener.peers) == 3


@on_asyncio
async def test_a_connection_lost_during_a_trace_is_a_lost_response() -> None:
    with Listener(lambda peer: peer.note(b"")) as listener:  # closes the connection at once

        async def wait(*_: object) -> None:
            await anyio.to_thread.run_sync(listener.wait_asked)
            await anyio.to_thread.run_sync(listener.wait_idle)
            await turn_the_loop()

        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(wait)
        transport = AiohttpTransport(aiohttp.ClientSession(f"{listener.url}/", trace_configs=[trace]))
        for request in (POST, GET):
            with pytest.raises(TransportError, match="no response from"):
                await transport.send(request, Progress())
        await transport.aclose()


@over(*ALL)
@pytest.mark.parametrize("status", ["000", "099"])
async def test_a_status_below_100_is_not_a_response(make: Make, status: str) -> None:
    async with connected(make, Scripted(numbered(1).replace(b"200", status.encode()))) as (transport, _):
        with pytest.raises(TransportError) as caught:
            await transport.send(POST, Progress())
        assert caught.value.maybe_sent
        assert await bodies(transport, 1) == [b"2"]
