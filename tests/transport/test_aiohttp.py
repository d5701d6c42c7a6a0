"""The aiohttp adapter: construction, the requests it sends, and sessions."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from support.listener import OK, Listener, Peer, answer_once, hang, in_order, serve
from support.transports import GET, LOOPS, POST, connected

from outreach_async import AiohttpTransport, Progress, Request
from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport._aiohttp_session import SocketFactory


@pytest.fixture(params=[LOOPS["asyncio"]], ids=["asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("url", [None, "ws://api.example"])
async def test_over_a_session_without_an_http_base_url_its_base_url_is_none(url: str | None) -> None:
    async with aiohttp.ClientSession(url) as session:
        transport = AiohttpTransport(session)
    assert transport.base_url is None
    assert repr(transport) == "<AiohttpTransport to a session>"


async def test_a_response_that_is_not_http_shows_nothing_of_the_request() -> None:
    async with connected(AiohttpTransport, answer_once(b"SSH-2.0-OpenSSH_9.6\r\n")) as (transport, _):
        with pytest.raises(TransportError, match=r"no response from .*: 400 ") as caught:
            await transport.send(Request("POST", "/", {"authorization": "Bearer secret"}, b"secret"), Progress())
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "secret" not in str(caught.value)


# Over a session.


async def test_settings_of_a_session_are_used_except_its_timeout() -> None:
    with Listener(serve()) as listener:
        session = aiohttp.ClientSession(
            f"http://localhost:{listener.port}/v1/",
            headers={"x-tenant": "t1"},
            cookies={"own": "1"},
            timeout=aiohttp.ClientTimeout(1e-6),
        )
        transport = AiohttpTransport(session)
        await transport.send(POST, Progress())
        await transport.aclose()
        assert listener.requests[0].startswith(b"POST /v1/contacts HTTP/1.1\r\n")
        assert b"x-tenant: t1\r\n" in listener.requests[0]
        assert b"Cookie: own=1\r\n" in listener.requests[0]


async def test_middlewares_run_for_every_request_and_may_read_its_body() -> None:
    async def sign(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        if isinstance(request.body, aiohttp.Payload):
            assert (await request.body.as_bytes()).decode() == request.body.decode()
            request.headers["x-signed"] = str(len(await request.body.as_bytes()))
        return await handler(request)

    with Listener(serve()) as listener:
        for service in (listener.url, aiohttp.ClientSession(listener.url)):
            transport = AiohttpTransport(service, middlewares=[sign])
            await transport.send(POST, Progress())
            await transport.send(GET, Progress())
            await transport.aclose()
        signed = b"x-signed: %d\r\n" % len(POST.body)
        assert [signed in request for request in listener.requests] == [True, False] * 2


async def test_at_most_64_kib_are_read_at_once() -> None:
    sizes: list[int] = []

    async def look(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        answer = await handler(request)
        tracked: Any = answer
        sizes.append(tracked.tracked_connection[0].transport.max_size)
        return answer

    with Listener(serve()) as listener:
        for service in (listener.url, aiohttp.ClientSession(listener.url)):
            transport = AiohttpTransport(service, middlewares=[look])
            await transport.send(POST, Progress())
            await transport.aclose()
    assert sizes == [65_536] * 2


async def test_digest_authentication_by_middleware_sends_the_body_twice() -> None:
    challenge = b'HTTP/1.1 401 Who\r\nwww-authenticate: Digest realm="r", nonce="n", qop="auth-int"\r\ncontent-length: 0\r\n\r\n'
    with Listener(in_order(Peer.request, challenge, Peer.request, OK, Peer.outlast)) as listener:
        transport = AiohttpTransport(listener.url, middlewares=[aiohttp.DigestAuthMiddleware("user", "password")])
        response = await transport.send(POST, Progress())
        await transport.aclose()
        assert response.status == 200
        assert [request.partition(b"\r\n\r\n")[2] for request in listener.requests] == [POST.body, POST.body]
        assert b"Authorization: Digest" in listener.requests[1]


@pytest.mark.parametrize("base_url", [None, "unix://socket/"])
async def test_a_session_without_a_usable_base_url_is_refused_at_first_use(base_url: str | None) -> None:
    progress = Progress()
    transport = AiohttpTransport(aiohttp.ClientSession(base_url))
    with pytest.raises(InvalidRequest, match=r"^base_url: expected a session with an http or https base URL"):
        await transport.send(GET, progress)
    await transport.aclose()


@pytest.mark.parametrize(("error", "raised"), [(KeyError, KeyError), (ValueError, TransportError)])
async def test_an_error_of_a_middleware_is_raised_unchanged_or_a_lost_response(
    error: type[Exception], raised: type[Exception]
) -> None:
    async def slip(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        (await handler(request)).close()
        raise error("a mistake of the test's")

    async with connected(AiohttpTransport, serve(), middlewares=[slip]) as (transport, _):
        with pytest.raises(raised) as caught:
            await transport.send(POST, Progress())
    assert getattr(caught.value, "maybe_sent", True)


async def test_an_outer_cancellation_propagates_while_the_transport_closes() -> None:
    with Listener(hang) as listener:
        transport = AiohttpTransport(listener.url)
        async with anyio.create_task_group() as group:
            sending = asyncio.create_task(transport.send(POST, Progress()))
            await anyio.to_thread.run_sync(listener.wait_asked)
            group.start_soon(transport.aclose)
            await anyio.lowlevel.checkpoint()
            sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert sending.cancelling() == 1


# Sockets whose descriptor uvloop has closed.

on_posix = pytest.mark.skipif(sys.platform == "win32", reason="a socket is no file there, and there is no uvloop")
ADDRESS = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80))


@on_posix
def test_a_socket_closed_by_descriptor_is_released_when_the_next_is_created() -> None:
    sockets = SocketFactory()
    first = sockets(ADDRESS)
    os.close(first.fileno())
    with sockets(ADDRESS) as second:
        assert (first.fileno(), second.fileno() >= 0) == (-1, True)


@on_posix
def test_a_reused_descriptor_is_not_closed() -> None:
    sockets = SocketFactory()
    first = sockets(ADDRESS)
    descriptor = first.fileno()
    with open(os.devnull, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        os.dup2(file.fileno(), descriptor)
    del sockets
    gc.collect()
    assert first.fileno() == -1
    os.close(descriptor)  # raises if it is no longer open


@on_posix
def test_a_socket_in_use_is_not_touched() -> None:
    sockets = SocketFactory()
    with sockets(ADDRESS) as first, sockets(ADDRESS) as second:
        sockets._detach_closed()
        assert min(first.fileno(), second.fileno()) >= 0
    sockets._detach_closed()
    assert sockets._sockets == []
