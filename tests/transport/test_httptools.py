"""The transport for httptools: its arguments, the bytes it sends, and its connections."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from support.certificates import certificates
from support.listener import OK, PATIENCE, Listener, Peer, answer_once, hang, serve
from support.transports import EVERY_LOOP, GET, POST, Make, fail, over

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport._httptools import HttptoolsTransport
from outreach_async.transport._httptools_pool import ProtocolPool, StreamPool
from outreach_async.transport._lifecycle import KEEPALIVE_EXPIRY
from outreach_async.transport._wire import Progress, Request, Transport

everywhere = over("httptools", loops=EVERY_LOOP)
on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)


# Arguments.


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_in_flight": 0}, "max_in_flight: expected a whole number"),
        ({"max_answer": 0}, "max_answer: expected a whole number"),
        ({"ssl_context": True}, "ssl_context: expected an ssl.SSLContext"),
        (
            {"proxy": "http://user:secret@proxy.example"},
            "proxy: expected None, got a proxy, which httptools does not support; use HttpxTransport",
        ),
    ],
)
def test_an_invalid_option_is_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}") as caught:
        HttptoolsTransport("https://api.example", **options)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY", "all_proxy"])
def test_a_proxy_of_the_environment_is_refused_with_a_remedy(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "http://user:secret@proxy.example")
    with pytest.raises(
        InvalidRequest, match=r"^HTTP_PROXY, HTTPS_PROXY or ALL_PROXY: .*; use HttpxTransport .*NO_PROXY$"
    ) as caught:
        HttptoolsTransport("https://api.example")
    assert "secret" not in str(caught.value)
    HttptoolsTransport("https://api.example", trust_env=False)
    monkeypatch.setenv("no_proxy", "api.example")
    HttptoolsTransport("https://api.example")


@pytest.mark.parametrize("service", [None, b"https://api.example", object()])
def test_only_a_url_is_accepted(service: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^base_url: expected a base URL such as .*, got "):
        HttptoolsTransport(service)


def test_a_host_that_dns_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^base_url: expected a valid host name"):
        HttptoolsTransport(f"http://{'ü' * 70}.example")


def test_its_base_url_and_repr_contain_no_credentials() -> None:
    transport = HttptoolsTransport("https://user:secret@api.example:8443/v1/", max_in_flight=8)
    assert (transport.base_url, transport.max_in_flight) == ("https://api.example:8443/v1", 8)
    assert repr(transport) == "<HttptoolsTransport to https://api.example:8443/v1>"
    assert transport.secrets == ("secret", "dXNlcjpzZWNyZXQ=")
    assert HttptoolsTransport("https://api.example").max_in_flight == 64


# The bytes of requests.


@everywhere
async def test_it_sends_the_request_and_only_the_headers_http_needs(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(f"http://localhost:{listener.port}/v1/")
        for request in (POST, GET, Request("POST", "/empty")):
            await transport.send(request, Progress())
        await transport.aclose()
        host = b"host: localhost:%d\r\n" % listener.port
    head = b"content-type: application/json\r\naccept-encoding: gzip, deflate\r\ncontent-length: %d\r\n\r\n" % len(POST.body)
    assert listener.requests == [
        b"POST /v1/contacts HTTP/1.1\r\n" + host + head + POST.body,
        b"GET /v1/campaigns?workspace=space_1&page=1 HTTP/1.1\r\n" + host + b"accept-encoding: gzip, deflate\r\n\r\n",
        b"POST /v1/empty HTTP/1.1\r\n" + host + b"accept-encoding: gzip, deflate\r\ncontent-length: 0\r\n\r\n",
    ]


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
    assert HttptoolsTransport(url)._encode(GET).split(b"\r\n")[1] == f"host: {host}".encode()


@everywhere
async def test_credentials_of_the_url_are_sent_unless_a_request_has_its_own(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(f"http://user:pass%40word@localhost:{listener.port}")
        await transport.send(GET, Progress())
        await transport.send(Request("GET", "/", {"authorization": "Bearer abc"}), Progress())
        await transport.aclose()
    assert b"authorization: Basic dXNlcjpwYXNzQHdvcmQ=\r\n" in listener.requests[0]
    assert b"authorization: Bearer abc\r\n" in listener.requests[1]
    assert b"Basic" not in listener.requests[1]


@everywhere
async def test_an_invalid_request_is_refused_before_connecting(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(listener.url)
        for request in (
            Request("NOT A METHOD", "/"),
            Request("GET", "/ HTTP/1.1\r\nx: y"),
            Request("GET", "/", {"x-key": "secret\r\n"}),
            Request("POST", "/", {"content-length": "3"}, b"abc"),
        ):
            progress = Progress()
            with pytest.raises(InvalidRequest) as caught:
                await transport.send(request, progress)
            assert "secret" not in str(caught.value)
            assert progress.sent is False
        assert listener.peers == []
        assert (await transport.send(GET, Progress())).status == 200
        await transport.aclose()


@everywhere
async def test_the_response_to_head_has_no_body(make: Make) -> None:
    with Listener(serve(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n")) as listener:
        transport = make(listener.url)
        for _ in range(2):
            response = await transport.send(Request("HEAD", "/"), Progress())
            assert (response.headers["content-length"], response.body) == ("5", b"")
        await transport.aclose()
    assert len(listener.peers) == 1


# Connections.


@everywhere
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_server_that_speaks_first_gets_no_request(make: Make, tls: bool) -> None:
    def speak_first(peer: Peer) -> None:
        peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        peer.outlast()

    with Listener(speak_first) as listener:
        transport = make(f"http{'s' * tls}://localhost:{listener.port}", tls=certificates().client)
        progress = Progress()
        try:
            await transport.send(POST, progress)
        except TransportError as error:
            assert error.maybe_sent is (progress.sent is not False)  # noqa: PT017 - the bytes may come too late
        await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)


@everywhere
async def test_a_copy_in_a_tls_record_of_its_own_makes_a_later_response_ambiguous(make: Make) -> None:
    go, sent = threading.Event(), threading.Event()

    def copy_the_second(peer: Peer) -> None:
        peer.request()
        peer.send(OK)
        peer.request()
        assert go.wait(PATIENCE)
        peer._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # sends two segments without delay
        peer.send(OK)
        peer.send(OK)
        sent.set()
        peer.outlast()

    with Listener(copy_the_second, tls=certificates().server) as listener:
        transport = make(listener.url, tls=certificates().client)
        await transport.send(POST, Progress())
        async with anyio.create_task_group() as group:
            group.start_soon(is_ambiguous, transport)
            await anyio.to_thread.run_sync(listener.wait_asked)
            await anyio.to_thread.run_sync(listener.wait_asked)
            go.set()
            assert sent.wait(PATIENCE)  # blocks the event loop until both have arrived
        await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)


async def is_ambiguous(transport: Transport) -> None:
    with pytest.raises(TransportError, match="may belong to an earlier request"):
        await transport.send(POST, Progress())


@everywhere
async def test_a_closed_transport_says_so(make: Make) -> None:
    transport = make("http://localhost:1")
    await transport.aclose()
    assert repr(transport) == "<HttptoolsTransport to http://localhost:1, closed>"
    with pytest.raises(InvalidRequest, match=r"^the HttptoolsTransport is closed; make a new HttptoolsTransport$"):
        await transport.send(POST, Progress())
    await transport.aclose()


@everywhere
async def test_a_body_may_end_with_the_connection(make: Make) -> None:
    with Listener(answer_once(b"HTTP/1.1 200 OK\r\n\r\nhello")) as listener:
        transport = make(listener.url)
        for _ in range(2):
            assert (await transport.send(POST, Progress())).body == b"hello"
        await transport.aclose()
    assert len(listener.peers) == 2


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
    def refuse_early(peer: Peer) -> None:
        peer.read()
        peer.send(b"HTTP/1.1 413 Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
        while True:
            peer.read()

    with Listener(refuse_early) as listener:
        transport = make(listener.url)
        assert (await transport.send(Request("POST", "/", {}, bytes(3_000_000)), Progress())).status == 413
        await transport.aclose()


@everywhere
async def test_a_second_response_in_a_tls_record_of_its_own_is_not_the_next(make: Make) -> None:
    may_send, has_sent = threading.Event(), threading.Event()

    def answer_twice(peer: Peer) -> None:
        peer.request()
        assert may_send.wait(PATIENCE)
        for _ in range(2):
            peer.send(OK.replace(b"ok", b"no"))
        has_sent.set()
        while True:
            peer.read()

    with Listener(answer_twice, serve(), tls=certificates().server) as listener:
        transport = make(listener.url, tls=certificates().client)
        bodies: list[bytes] = []

        async def send() -> None:
            bodies.append((await transport.send(POST, Progress())).body)

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            await anyio.to_thread.run_sync(listener.wait_asked)
            may_send.set()
            assert has_sent.wait(PATIENCE)  # blocks the event loop, so that it reads both records at once
        with anyio.move_on_after(PATIENCE):
            await send()
        await transport.aclose()
    assert (bodies, len(listener.peers)) == ([b"no", b"ok"], 2)


@everywhere
async def test_an_idle_connection_is_closed_after_its_limit(make: Make) -> None:
    with Listener(serve()) as listener:
        transport: Any = make(listener.url)
        now = 1000.0
        pool = transport._senders.get()
        for timed in (pool, getattr(pool, "_pool", pool)):
            timed._clock = lambda: now
        await transport.send(POST, Progress())
        now += KEEPALIVE_EXPIRY
        await transport.send(POST, Progress())
        now += KEEPALIVE_EXPIRY + 0.001
        await transport.send(POST, Progress())
        await transport.aclose()
    assert len(listener.peers) == 2


@everywhere
async def test_requests_beyond_the_connections_wait_for_their_turn(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(listener.url, max_in_flight=2)
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(transport.send, Request("GET", f"/{number}"), Progress())
        await transport.aclose()
    assert len(listener.peers) <= 2
    assert len(listener.requests) == 20


@everywhere
async def test_a_cancelled_scope_sends_nothing(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(listener.url)
        await transport.send(POST, Progress())  # opens a connection that the next request could use at once
        progress = Progress()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.send(POST, progress)
        assert scope.cancelled_caught
        assert progress.sent is False
        await transport.aclose()
    assert len(listener.requests) == 1


@everywhere
async def test_closing_while_connecting_is_an_error_with_nothing_sent(make: Make) -> None:
    def mute(peer: Peer) -> None:
        peer.read()
        peer.note(b"")
        peer.outlast()

    with Listener(mute) as listener:
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
async def test_closing_waits_for_exchanges_and_connections() -> None:
    with Listener(hang) as listener:
        transport = HttptoolsTransport(listener.url)
        async with anyio.create_task_group() as group:
            sending = asyncio.create_task(transport.send(POST, Progress()))
            await anyio.to_thread.run_sync(listener.wait_asked)
            pool: Any = transport._senders.get()
            await transport.aclose()
            assert (pool._running, pool._connections) == (0, set())
            with pytest.raises(TransportError, match="was closed while"):
                await sending
            group.cancel_scope.cancel()
        await transport.aclose()


@on_asyncio
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_closing_that_is_cancelled_is_no_error_in_the_event_loop(tls: bool) -> None:
    loop = asyncio.get_running_loop()
    errors: list[dict[str, Any]] = []
    keys = certificates()
    with Listener(serve(), tls=keys.server if tls else None) as listener:
        transport = HttptoolsTransport(listener.url, ssl_context=keys.client)
        await transport.send(POST, Progress())
        loop.set_exception_handler(lambda _, context: errors.append(context))
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)
        await anyio.lowlevel.checkpoint()
    assert errors == []


def test_a_transport_works_in_another_event_loop() -> None:
    with Listener(serve(OK.replace(b"content", b"connection: close\r\ncontent", 1))) as listener:
        transport = HttptoolsTransport(listener.url)

        async def send() -> int:
            status = (await transport.send(POST, Progress())).status
            await anyio.lowlevel.checkpoint()  # lets the event loop close the connection
            return status

        for backend, options in (EVERY_LOOP["asyncio"], EVERY_LOOP["trio"], EVERY_LOOP["asyncio"]):
            assert anyio.run(send, backend=backend, backend_options=options) == 200
        anyio.run(transport.aclose)


def test_the_pool_is_that_of_the_running_event_loop() -> None:
    kinds: list[type] = []
    transport = HttptoolsTransport("http://localhost:1")

    async def look() -> None:
        kinds.append(type(transport._get_pool()))

    anyio.run(look, backend="trio")
    anyio.run(look)
    assert kinds == [StreamPool, ProtocolPool]


@everywhere
async def test_a_host_with_several_addresses_is_reached_at_the_one_that_listens(make: Make) -> None:
    with Listener(serve()) as listener:  # localhost often resolves to ::1 as well, where nobody listens
        transport = make(f"http://localhost:{listener.port}")
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
