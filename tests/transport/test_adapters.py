"""What every transport of an HTTP library does alike: its arguments, the bytes it sends, clients of the user, and event loops."""

from __future__ import annotations

import gc
import ssl
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final

import aiohttp
import anyio
import anyio.lowlevel
import httpx
import httpx2
import pytest
import trio
from support.listener import OK, Listener, hang_after, refused_port, serve
from support.transports import (
    ALL,
    CLIENTS,
    GET,
    LOOPS,
    MAKERS,
    NOWHERE,
    OWN,
    POST,
    SOCKETS,
    Make,
    connected,
    over,
    own_client,
    pairs,
)

from outreach_async import AiohttpTransport, HttpxTransport, InvalidRequest, Progress, Request, SocketTransport, TransportError
from outreach_async._plumbing import create_transport

CLOSING: Final = OK.replace(b"content", b"connection: close\r\ncontent", 1)

over_clients = pytest.mark.parametrize(
    ("name", "anyio_backend"),
    [pytest.param(name, LOOPS[loop], id=f"{name}-{loop}") for name, loop in pairs(*CLIENTS)],
    indirect=["anyio_backend"],
)


# Arguments.


def run(code: str) -> None:
    subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", code], check=True)


def test_neither_importing_nor_creating_one_imports_a_library() -> None:
    run(
        "import sys; from outreach_async import AiohttpTransport, SocketTransport, HttpxTransport; url = 'https://api.example';"
        "AiohttpTransport(url), SocketTransport(url), HttpxTransport(url), HttpxTransport(url, family='httpx2');"
        "assert not {'aiohttp', 'yarl', 'httptools', 'h11', 'httpx', 'httpx2', 'httpcore'} & set(sys.modules)"
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "other"), [("httpx", "httpx2"), ("httpx2", "httpx")])
def test_the_other_library_is_never_imported(family: str, other: str) -> None:
    run(
        f"import anyio, sys; from outreach_async import HttpxTransport, Progress, Request\n"
        f"transport = HttpxTransport('http://localhost:{refused_port()}', family='{family}')\n"
        f"try: anyio.run(transport.send, Request('GET', '/'), Progress())\n"
        f"except Exception as error: assert not error.maybe_sent\n"
        f"assert '{family}' in sys.modules and '{other}' not in sys.modules"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: HttpxTransport(httpx.AsyncClient(), family="httpx2"), "an httpx2.AsyncClient, got AsyncClient; pass one"),
        (lambda: HttpxTransport(httpx2.AsyncClient(), family="httpx"), "an httpx.AsyncClient, got AsyncClient; pass one"),
        (lambda: HttpxTransport(httpx.Client()), "an httpx.AsyncClient, got Client; pass one"),  # type: ignore[arg-type]
        (lambda: AiohttpTransport({}), "an aiohttp.ClientSession, got dict; pass one"),  # type: ignore[arg-type]
    ],
)
def test_only_a_url_or_a_client_of_the_library_is_accepted(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^transport: expected a base URL or {message} of them$"):
        make()


@pytest.mark.parametrize("middlewares", [5, "text", ["text"], print])
def test_middlewares_that_would_fail_with_the_first_request_are_refused(middlewares: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^middlewares: expected a list of functions, got"):
        AiohttpTransport("https://api.example", middlewares=middlewares)


@pytest.mark.parametrize("service", [None, b"https://api.example"])
def test_the_socket_transport_accepts_only_a_url(service: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"^base_url: expected a base URL such as .*, got "):
        SocketTransport(service)


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (OWN, {"max_in_flight": 0}, "max_in_flight: expected a whole number"),
        (OWN, {"max_answer": 0}, "max_answer: expected a whole number"),
        (OWN, {"trust_env": "no"}, "trust_env: expected True or False, got str; pass one of them"),
        (OWN, {"tls": True}, r"ssl_context: expected an ssl.SSLContext, got bool; make one with ssl.create_default_context\("),
        (["httpx", "httpx2"], {"proxy": "ftp://user:secret@proxy"}, "proxy: .* schemes http, https, socks5, socks5h;"),
        (["httpx"], {"proxy": "socks5://proxy.example"}, r"socksio is not installed; run: pip install 'httpx\[socks\]'"),
        (["aiohttp"], {"proxy": "socks5://user:secret@proxy"}, "proxy: expected a URL .* schemes http, https;"),
        (["httpx", "aiohttp"], {"proxy": object()}, "proxy: expected a URL as a string, got object; pass a URL such as "),
        (SOCKETS, {"proxy": "socks5://user:secret@proxy"}, "proxy: expected None, .* not support; use HttpxTransport"),
    ],
)
def test_an_invalid_option_is_refused_by_name(names: tuple[str, ...], options: dict[str, Any], message: str) -> None:
    for name in names:
        with pytest.raises(InvalidRequest, match=f"^{message}") as caught:
            MAKERS[name]("https://api.example", **options)
        assert "secret" not in str(caught.value)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^family: expected one of httpx, httpx2, got 'requests'"):
        HttpxTransport("https://api.example", family="requests")  # type: ignore[arg-type]


@over_clients
@pytest.mark.parametrize(
    "options", [{"proxy": "http://proxy"}, {"trust_env": False}, {"ssl_context": ssl.create_default_context()}], ids=list
)
async def test_options_that_belong_to_a_client_are_refused_with_one(name: str, options: dict[str, Any]) -> None:
    client, adapt = own_client(name, NOWHERE)
    with pytest.raises(InvalidRequest, match=f"^{next(iter(options))}: not allowed together with a "):
        adapt(client, **options)
    await adapt(client).aclose()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, SocketTransport),
        ({"http_proxy": "http://proxy.example"}, SocketTransport),  # of the other scheme
        ({"https_proxy": "http://user:secret@proxy.example"}, HttpxTransport),
        ({"ALL_PROXY": "proxy.example:3128"}, HttpxTransport),
        ({"HTTPS_PROXY": "http://proxy.example", "NO_PROXY": "other.example, api.example"}, SocketTransport),
    ],
)
def test_the_automatic_backend_is_httpx_only_for_a_proxy(
    variables: dict[str, str], expected: type[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    transport = create_transport("https://api.example", "auto", 8)
    assert (type(transport), transport.max_in_flight) == (expected, 8)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("variable", "scheme"), [("https_proxy", "http"), ("HTTPS_PROXY", "http"), ("all_proxy", "socks5h")])
def test_the_socket_transport_refuses_a_proxy_of_the_environment(
    variable: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"{scheme}://user:secret@proxy.example")
    with pytest.raises(InvalidRequest, match=r"^HTTP_PROXY, HTTPS_PROXY or ALL_PROXY: .*; use HttpxTr.*NO_PROXY$") as caught:
        SocketTransport("https://api.example")
    assert "secret" not in str(caught.value)
    SocketTransport("https://api.example", trust_env=False)
    monkeypatch.setenv("no_proxy", "api.example")
    SocketTransport("https://api.example")


@over(*ALL)
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:secret@api.example:8443/v1", "https://api.example:8443/v1"),
        ("http://API.example/", "http://api.example"),
        ("https://user@api.example:443/v1/", "https://api.example/v1"),
        ("http://api.example:8080/~c", "http://api.example:8080/~c"),
        ("http://[::1]:80/a%2Fb", "http://[::1]/a%2Fb"),
    ],
)
async def test_its_base_url_and_repr_contain_no_credentials(make: Make, url: str, shown: str) -> None:
    transport: Any = make(url)
    assert transport.base_url == shown
    assert repr(transport).partition(" by ")[0].rstrip(">") == f"<{type(transport).__name__} to {shown}"
    assert ("secret" in transport.secrets) == ("secret" in url)
    await transport.aclose()
    assert repr(transport).endswith(", closed>")
    with pytest.raises(InvalidRequest, match=f"^the {type(transport).__name__} is closed; make a new "):
        await transport.send(POST, Progress())


@over(*ALL)
async def test_its_connections_limit_the_requests_in_flight(make: Make) -> None:
    default, limited = make(NOWHERE), make(NOWHERE, max_in_flight=8)
    assert (default.max_in_flight, limited.max_in_flight) == (64 if make in [MAKERS[name] for name in OWN] else None, 8)  # type: ignore[attr-defined]
    await default.aclose()
    await limited.aclose()


# The bytes of requests.


@over(*OWN)
async def test_it_sends_the_request_and_only_the_headers_http_needs(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(f"http://localhost:{listener.port}/v1/")
        for request in (POST, GET, Request("POST", "/empty")):
            await transport.send(request, Progress())
        await transport.aclose()
        fields = {f"host: localhost:{listener.port}", "accept-encoding: gzip, deflate"}
    parts = [request.decode().partition("\r\n\r\n") for request in listener.requests]
    assert [body.encode() for _, _, body in parts] == [POST.body, b"", b""]
    assert [head.partition("\r\n")[0] for head, _, _ in parts] == [
        "POST /v1/contacts HTTP/1.1",
        "GET /v1/campaigns?workspace=space_1&page=1 HTTP/1.1",
        "POST /v1/empty HTTP/1.1",
    ]
    assert [sorted(head.lower().split("\r\n")[1:]) for head, _, _ in parts] == [
        sorted({*fields, "content-type: application/json", f"content-length: {len(POST.body)}"}),
        sorted(fields),
        sorted({*fields, "content-length: 0"}),
    ]


@over(*ALL)
async def test_path_and_credentials_of_the_url_apply_to_every_request(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(f"http://user:pass%40word@localhost:{listener.port}/v1")
        await transport.send(GET, Progress())
        if make in [MAKERS[name] for name in OWN]:
            await transport.send(Request("GET", "/", {"authorization": "Bearer abc"}), Progress())
        await transport.aclose()
    first, *others = (request.lower() for request in listener.requests)
    assert first.startswith(b"get /v1/campaigns?workspace=space_1&page=1 http/1.1\r\n")
    assert b"\r\nauthorization: basic dxnlcjpwyxnzqhdvcmq=\r\n" in first
    assert all(b"\r\nauthorization: bearer abc\r\n" in other and b"basic" not in other for other in others)


@over(*ALL)
async def test_an_invalid_request_is_refused_before_connecting_and_never_shown(make: Make) -> None:
    async with connected(make, serve()) as (transport, listener):
        for request in (
            Request("NOT A METHOD", "/"),
            Request("GET", "/ HTTP/1.1\r\nx: y"),
            Request("GET", "/", {"x-key": "secret\r\n"}),
            Request("POST", "/", {"content-length": "3"}, b"abc"),
        ):
            progress = Progress()
            with pytest.raises(InvalidRequest) as caught:
                await transport.send(request, progress)
            assert (progress.sent, caught.value.__cause__, caught.value.__context__) == (False, None, None)
            assert "secret" not in str(caught.value)
        assert listener.peers == []
        assert (await transport.send(GET, Progress())).status == 200


@over(*OWN)
async def test_an_invalid_host_name_is_refused(make: Make) -> None:
    with pytest.raises(InvalidRequest, match=r"^base_url: expected a valid host name"):
        await make(f"http://{'ü' * 70}.example").send(GET, Progress())


@over(*OWN)
async def test_a_cancelled_scope_sends_nothing_on_an_open_connection(make: Make) -> None:
    async with connected(make, serve()) as (transport, listener):
        await transport.send(POST, Progress())
        progress = Progress()
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.send(POST, progress)
        assert (scope.cancelled_caught, progress.sent) == (True, False)
    assert len(listener.requests) == 1


@over(*OWN)
async def test_requests_beyond_the_connections_wait_for_their_turn(make: Make) -> None:
    async with connected(make, serve(), max_in_flight=2) as (transport, listener), anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(transport.send, Request("GET", f"/{number}"), Progress())
    assert (len(listener.requests), len(listener.peers) <= 2) == (20, True)


@over(*OWN)
async def test_a_connection_whose_response_was_refused_is_not_reused(make: Make) -> None:
    too_much = hang_after(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 200)
    async with connected(make, too_much, serve(), max_answer=100, max_in_flight=1) as (transport, listener):
        with pytest.raises(TransportError, match="max_answer=100"):
            await transport.send(GET, Progress())
        assert (await transport.send(GET, Progress())).body == b"ok"
        assert [len(peer.received) > 0 for peer in listener.peers] == [True, True]


# Clients of the user.


@over_clients
async def test_a_client_is_closed_with_its_transport(name: str) -> None:
    with Listener(serve()) as listener:
        for uses in range(2):
            client, adapt = own_client(name, listener.url)
            transport = adapt(client)
            for _ in range(uses):
                await transport.send(GET, Progress())
            await transport.aclose()
            await transport.aclose()
            assert client.closed if name == "aiohttp_session" else client.is_closed


@over_clients
async def test_a_forked_child_leaves_the_client_of_its_parent_open(name: str) -> None:
    client, adapt = own_client(name, NOWHERE)
    transport: Any = adapt(client)
    transport._senders.discard_after_fork()
    await transport.aclose()
    assert not (client.closed if name == "aiohttp_session" else client.is_closed)
    await adapt(client).aclose()


@over_clients
async def test_a_client_closed_by_its_owner_is_reported(name: str) -> None:
    client, adapt = own_client(name, NOWHERE)
    transport = adapt(client)
    await (client.close() if name == "aiohttp_session" else client.aclose())
    with pytest.raises(InvalidRequest, match=rf"^the {type(client).__name__} is closed"):
        await transport.send(GET, Progress())


@over_clients
async def test_an_invalid_header_of_a_client_is_refused_and_never_shown(name: str) -> None:
    with Listener(serve()) as listener:
        client, adapt = own_client(name, listener.url, headers={"x-key": "secret\r\nx: y"})
        with pytest.raises(InvalidRequest, match=r"the (client|session)'s own headers") as caught:
            await adapt(client).send(POST, Progress())
        await adapt(client).aclose()
    assert caught.value.__cause__ is caught.value.__context__ is None


@over_clients
async def test_a_client_keeps_no_cookie_of_a_response_and_all_of_its_own(name: str) -> None:
    with Listener(serve(OK.replace(b"content", b"set-cookie: theirs=2; Path=/\r\ncontent", 1))) as listener:
        client, adapt = own_client(name, listener.url, cookies={"own": "1"})
        transport = adapt(client)
        for _ in range(2):
            await transport.send(GET, Progress())
        await transport.aclose()
    assert [b"own=1" in request and b"theirs" not in request for request in listener.requests] == [True, True]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_used_in_another_event_loop_is_refused_and_closed(name: str) -> None:
    with Listener(serve()) as listener:
        transports: list[Any] = []

        async def make_and_send() -> None:
            client, adapt = own_client(name, listener.url)
            transports.append(adapt(client))
            await transports[0].send(POST, Progress())

        async def fail_and_close() -> None:
            with pytest.raises(InvalidRequest, match=r"another event loop; make a new .* in this event loop"):
                await transports[0].send(POST, Progress())
            await transports.pop().aclose()

        def end() -> None:
            anyio.run(fail_and_close)
            gc.collect()

        anyio.run(make_and_send)
        with pytest.warns(ResourceWarning, match="unclosed"):  # the first event loop's connection was never closed
            end()
        assert len(listener.requests) == 1


# Event loops.


@pytest.mark.parametrize("name", ["httpx", *SOCKETS])
def test_a_run_of_trio_inside_a_loop_of_asyncio_has_its_own_connections(name: str) -> None:
    with Listener(serve(CLOSING)) as listener:
        transport = MAKERS[name](listener.url)

        async def send() -> int:
            status = (await transport.send(POST, Progress())).status
            await anyio.lowlevel.checkpoint()  # lets the event loop close the connection
            return status

        async def run_notebook() -> list[int]:
            return [await send(), trio.run(send), trio.run(send), await send()]

        assert anyio.run(run_notebook) == [200] * 4
        anyio.run(transport.aclose)


def test_on_trio_aiohttp_says_what_to_use_instead() -> None:
    transport = AiohttpTransport(f"http://localhost:{refused_port()}")
    with pytest.raises(InvalidRequest, match="supports only asyncio, got another event loop; on trio, use HttpxTransport"):
        anyio.run(transport.send, POST, Progress(), backend="trio")
    anyio.run(transport.aclose, backend="trio")


def test_an_unused_session_of_another_event_loop_is_refused() -> None:
    async def make() -> AiohttpTransport:
        async with aiohttp.ClientSession("http://service.example") as session:
            return AiohttpTransport(session)

    transport = anyio.run(make)
    with pytest.raises(InvalidRequest, match="another event loop"):
        anyio.run(transport.send, POST, Progress())
