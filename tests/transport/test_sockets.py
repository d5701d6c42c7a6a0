"""The socket transport: its arguments, the bytes it sends, and its connections."""

from __future__ import annotations

import asyncio
import http.client
import socket
import sys
import threading
from types import ModuleType
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from support.certificates import certificates
from support.listener import OK, PATIENCE, Listener, Peer, answer_once, ignore_greeting, in_order, serve
from support.transports import EVERY_LOOP, GET, POST, SOCKETS, Make, connected, fail, over

from outreach_async import Progress, Request, SocketTransport
from outreach_async.errors import TransportError

everywhere = over(*SOCKETS, loops=EVERY_LOOP)
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://api.example", "api.example"),
        ("http://API.example:80", "api.example"),
        ("https://api.example:443", "api.example"),
        ("https://api.example:80", "api.example:80"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("http://bücher.example", "xn--bcher-kva.example"),
    ],
)
def test_the_host_field_names_the_origin(url: str, host: str) -> None:
    assert SocketTransport(url)._encode(GET).split(b"\r\n")[1] == f"host: {host}".encode()


@everywhere
async def test_the_response_to_head_has_no_body(make: Make) -> None:
    async with connected(make, serve(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")) as (transport, listener):
        for _ in range(2):
            response = await transport.send(Request("HEAD", "/"), Progress())
            assert (response.headers["content-length"], response.body) == ("5", b"")
    assert len(listener.peers) == 1


@everywhere
async def test_a_body_may_end_with_the_connection(make: Make) -> None:
    async with connected(make, answer_once(b"HTTP/1.1 200 OK\r\n\r\nhello")) as (transport, listener):
        for _ in range(2):
            assert (await transport.send(POST, Progress())).body == b"hello"
    assert len(listener.peers) == 2


# Connections.


@everywhere
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_server_that_speaks_first_gets_no_request(make: Make, tls: bool) -> None:
    with Listener(in_order(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Peer.outlast)) as listener:
        transport = make(f"http{'s' * tls}://localhost:{listener.port}", tls=certificates().client)
        progress = Progress()
        try:
            await transport.send(POST, progress)
        except TransportError as error:
            assert error.maybe_sent is (progress.sent is not False)  # noqa: PT017 - the bytes may come too late
        await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)


@everywhere
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_compressed_body_may_not_end_early_with_the_connection(make: Make, tls: bool) -> None:
    cut = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb"
    with Listener(answer_once(cut), tls=certificates().server if tls else None) as listener:
        error, _ = await fail(make(listener.url, tls=certificates().client), POST)
    assert "is truncated" in str(error)
    assert error.maybe_sent


@everywhere
async def test_a_response_before_the_whole_request_was_read_counts(make: Make) -> None:
    early = in_order(Peer.read, b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", Peer.outlast)
    async with connected(make, early) as (transport, _):
        assert (await transport.send(Request("POST", "/", {}, bytes(3_000_000)), Progress())).status == 413


@everywhere
@pytest.mark.parametrize("earlier", [0, 1])
async def test_a_copy_in_a_tls_record_of_its_own_is_no_later_response(make: Make, earlier: int) -> None:
    may_send, has_sent = threading.Event(), threading.Event()

    def copy_the_last(peer: Peer) -> None:
        for _ in range(earlier):
            peer.request()
            peer.send(OK)
        peer.request()
        assert may_send.wait(PATIENCE)
        peer._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # sends two segments without delay
        for _ in range(2):
            peer.send(OK.replace(b"ok", b"no"))
        has_sent.set()
        peer.outlast()

    with Listener(copy_the_last, serve(), tls=certificates().server) as listener:
        transport = make(listener.url, tls=certificates().client)
        bodies: list[bytes] = []

        async def send() -> None:
            try:
                bodies.append((await transport.send(POST, Progress())).body)
            except TransportError as error:
                assert "may belong to an earlier request" in str(error)  # noqa: PT017 - only a later response is in doubt
                bodies.append(b"in doubt")

        for _ in range(earlier):
            await send()
            await anyio.to_thread.run_sync(listener.wait_asked)
        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await anyio.to_thread.run_sync(listener.wait_asked)
            may_send.set()
            assert has_sent.wait(PATIENCE)  # blocks the event loop, so that it reads both records at once
        await send()
        await transport.aclose()
    assert (bodies, len(listener.peers)) == ([b"ok", b"in doubt", b"ok"] if earlier else [b"no", b"ok"], 2)


@everywhere
async def test_closing_while_connecting_is_an_error_with_nothing_sent(make: Make) -> None:
    with Listener(ignore_greeting) as listener:
        transport = make(f"https://localhost:{listener.port}", tls=certificates().client)
        progress = Progress()
        errors: list[TransportError] = []

        async def send() -> None:
            with pytest.raises(TransportError, match="was closed while the request was in flight") as caught:
                await transport.send(POST, progress)
            errors.append(caught.value)

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await anyio.to_thread.run_sync(listener.wait_asked)
            await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)
    assert (progress.sent, errors[0].maybe_sent) == (False, False)


@on_asyncio
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_closing_that_is_cancelled_is_no_error_in_the_event_loop(tls: bool) -> None:
    loop = asyncio.get_running_loop()
    errors: list[dict[str, Any]] = []
    keys = certificates()
    with Listener(serve(), tls=keys.server if tls else None) as listener:
        transport = SocketTransport(listener.url, ssl_context=keys.client)
        await transport.send(POST, Progress())
        loop.set_exception_handler(lambda _, context: errors.append(context))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)
        await anyio.lowlevel.checkpoint()
    assert errors == []


async def test_a_request_warns_while_a_cassette_of_vcrpy_cannot_see_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def send() -> None:
        async with connected(SocketTransport, serve()) as (transport, _):
            assert (await transport.send(GET, Progress())).status == 200

    await send()
    monkeypatch.setitem(sys.modules, "vcr", ModuleType("vcr"))
    await send()  # vcrpy is imported, but no cassette is active
    active = type("VCRHTTPConnection", (http.client.HTTPConnection,), {"__module__": "vcr.patch"})
    monkeypatch.setattr(http.client, "HTTPConnection", active)  # as vcrpy itself does while a cassette is active
    with pytest.warns(RuntimeWarning, match=r"^a cassette of vcrpy is active, .* are sent; use HttpxTransport$"):
        await send()
