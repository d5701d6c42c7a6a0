"""The adapter for httpx and httpx2: construction, the requests it sends, and event loops."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import httpx
import httpx2
import pytest
from support.listener import OK, Listener, Peer, refused_port, serve
from support.transports import GET, NOWHERE, POST, Make, over

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport._httpx import HttpxTransport
from outreach_async.transport._wire import Progress, Request

BOTH = ("httpx", "httpx2")
LIBRARIES: dict[str, Any] = {"httpx": httpx, "httpx2": httpx2}
both_libraries = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)


# Construction.


def run(code: str) -> None:
    subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", code], check=True)


def test_neither_importing_nor_creating_one_imports_a_library() -> None:
    run(
        "import sys; from outreach_async.transport._httpx import HttpxTransport; HttpxTransport('https://api.example');"
        "HttpxTransport('https://api.example', family='httpx2'); assert not {'httpx', 'httpx2', 'httpcore'} & set(sys.modules)"
    )


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "other"), [("httpx", "httpx2"), ("httpx2", "httpx")])
def test_the_other_library_is_never_imported(family: str, other: str) -> None:
    run(
        f"import anyio, sys; from outreach_async.transport._httpx import HttpxTransport\n"
        f"from outreach_async.transport._wire import Progress, Request\n"
        f"transport = HttpxTransport('http://localhost:{refused_port()}', family='{family}')\n"
        f"try: anyio.run(transport.send, Request('GET', '/'), Progress())\n"
        f"except Exception as error: assert not error.maybe_sent\n"
        f"assert '{family}' in sys.modules and '{other}' not in sys.modules"
    )


@both_libraries
def test_the_library_is_recognised_by_the_class_of_the_client(library: Any) -> None:
    class Mine(library.AsyncClient):  # type: ignore[misc]  # either library's
        pass

    transport = HttpxTransport(Mine(base_url="https://user:secret@api.example/v1"))
    assert repr(transport) == f"<HttpxTransport to https://api.example/v1 by {library.__name__}>"
    assert transport.max_in_flight is None


@both_libraries
@pytest.mark.parametrize(
    ("url", "shown_url"),
    [
        ("https://user:secret@api.example:8443/v1/", "https://api.example:8443/v1"),
        ("http://API.example", "http://api.example"),
        ("http://[::1]:80/a%2Fb", "http://[::1]/a%2Fb"),
    ],
)
def test_its_base_url_and_repr_contain_no_credentials(library: Any, url: str, shown_url: str) -> None:
    assert HttpxTransport(url, family=library.__name__).base_url == shown_url
    assert HttpxTransport(library.AsyncClient(base_url=url)).base_url == shown_url


@pytest.mark.parametrize(
    ("service", "family", "message"),
    [
        (httpx.AsyncClient, "httpx2", "httpx2.AsyncClient, got AsyncClient"),
        (httpx2.AsyncClient, "httpx", "httpx.AsyncClient, got AsyncClient"),
        (httpx.Client, None, "httpx.AsyncClient, got Client"),
        (dict, None, "httpx.AsyncClient, got dict"),
    ],
)
def test_only_a_url_or_an_async_client_is_accepted(service: Callable[[], Any], family: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^transport: expected a base URL or an {message}; pass one of them$"):
        HttpxTransport(service(), family=family)


@both_libraries
@pytest.mark.parametrize("base_url", ["", "/v1", "https://api.example/?page=1"])
def test_a_client_without_a_usable_base_url_is_refused(library: Any, base_url: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^base_url: "):
        HttpxTransport(library.AsyncClient(base_url=base_url))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"family": "requests"}, "family"),
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_answer": 0}, "max_answer"),
        ({"proxy": "ftp://proxy.example"}, "proxy"),
        ({"proxy": "socks5://proxy.example"}, r"socksio is not installed; run: pip install 'httpx\[socks\]'"),
    ],
)
def test_an_invalid_option_is_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}"):
        HttpxTransport("https://api.example", **options)


@pytest.mark.parametrize(
    "options", [{"proxy": "http://proxy"}, {"trust_env": False}, {"ssl_context": ssl.create_default_context()}]
)
def test_options_that_belong_to_the_client_are_refused_with_one(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=f"^{next(iter(options))}: "):
        HttpxTransport(httpx.AsyncClient(base_url=NOWHERE), **options)


def test_its_connections_limit_the_requests_in_flight() -> None:
    assert HttpxTransport("https://api.example").max_in_flight == 64
    assert HttpxTransport("https://api.example", max_in_flight=8).max_in_flight == 8
    assert HttpxTransport(httpx.AsyncClient(base_url=NOWHERE), max_in_flight=8).max_in_flight == 8


# What it sends.


@over(*BOTH)
async def test_it_sends_the_request_and_only_the_headers_http_needs(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(f"http://localhost:{listener.port}/v1/")
        await transport.send(POST, Progress())
        await transport.send(GET, Progress())
        await transport.aclose()
        post, get = (request.decode() for request in listener.requests)
    assert sorted(get.splitlines()) == sorted(
        [
            "GET /v1/campaigns?workspace=space_1&page=1 HTTP/1.1",
            f"host: localhost:{listener_port(get)}",
            "accept-encoding: gzip, deflate",
            "",
        ]
    )
    head, _, body = post.partition("\r\n\r\n")
    assert body.encode() == POST.body
    assert set(head.splitlines()) == {
        "POST /v1/contacts HTTP/1.1",
        f"host: localhost:{listener_port(get)}",
        "accept-encoding: gzip, deflate",
        "content-type: application/json",
        f"content-length: {len(POST.body)}",
    }


def listener_port(request: str) -> str:
    return request.partition("localhost:")[2].partition("\r")[0]


@over(*BOTH, "httpx_client", "httpx2_client")
async def test_path_and_credentials_of_the_url_apply_to_every_request(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(f"http://user:pass%40word@localhost:{listener.port}/v1/")
        await transport.send(GET, Progress())
        await transport.aclose()
        assert listener.requests[0].startswith(b"GET /v1/campaigns?workspace=space_1&page=1 HTTP/1.1\r\n")
        assert b"authorization: basic dxnlcjpwyxnzqhdvcmq=\r\n" in listener.requests[0].lower()
        assert "word" not in repr(transport)


@over(*BOTH)
async def test_the_authorization_of_a_request_takes_precedence(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(f"http://user:password@localhost:{listener.port}")
        await transport.send(Request("GET", "/", {"authorization": "Bearer abc"}), Progress())
        await transport.aclose()
        assert listener.requests[0].count(b"authorization") == 1
        assert b"authorization: Bearer abc\r\n" in listener.requests[0]


@over(*BOTH, "httpx_client", "httpx2_client", "aiohttp", "aiohttp_session")
async def test_repeated_response_headers_are_joined_under_lower_case_names(make: Make) -> None:
    with Listener(serve(b"HTTP/1.1 200 OK\r\nX-Seen: 1\r\nx-seen: 2\r\nX-SEEN: 3\r\nContent-Length: 0\r\n\r\n")) as listener:
        transport = make(listener.url)
        response = await transport.send(GET, Progress())
        await transport.aclose()
    assert response.headers == {"x-seen": "1, 2, 3", "content-length": "0"}


@over(*BOTH, "httpx_client", "httpx2_client")
async def test_an_invalid_request_is_refused_and_the_transport_stays_usable(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(listener.url)
        for request in (Request("NOT A METHOD", "/"), Request("GET", "/", {"x-key": "secret\r\n"}), Request("GET", "/\x00")):
            with pytest.raises(InvalidRequest) as caught:
                await transport.send(request, Progress())
            assert caught.value.__cause__ is caught.value.__context__ is None
        assert (await transport.send(GET, Progress())).status == 200
        await transport.aclose()
        assert len(listener.requests) == 1


@over(*BOTH)
async def test_an_invalid_host_name_is_refused(make: Make) -> None:
    with pytest.raises(InvalidRequest, match=r"^base_url: expected a valid host name"):
        await make(f"http://{'ü' * 70}.example").send(GET, Progress())


# Event loops.


@pytest.mark.parametrize("family", BOTH)
def test_a_transport_works_in_another_event_loop(family: Any) -> None:
    closing = OK.replace(b"content", b"connection: close\r\ncontent", 1)
    with Listener(serve(closing)) as listener:
        transport = HttpxTransport(listener.url, family=family, max_in_flight=1)

        async def send() -> int:
            return (await transport.send(POST, Progress())).status

        async def close() -> None:
            await transport.aclose()

        assert [anyio.run(send), anyio.run(send), anyio.run(send, backend="trio")] == [200] * 3
        anyio.run(close)
        with pytest.raises(InvalidRequest, match=r"^the HttpxTransport is closed"):
            anyio.run(send)


@over(*BOTH)
async def test_a_connection_whose_response_was_refused_is_not_reused(make: Make) -> None:
    with Listener(too_much, serve()) as listener:
        transport = make(listener.url, max_answer=100, max_in_flight=1)
        with pytest.raises(TransportError, match="max_answer=100"):
            await transport.send(GET, Progress())
        assert (await transport.send(GET, Progress())).body == b"ok"
        await transport.aclose()
        assert [len(peer.received) > 0 for peer in listener.peers] == [True, True]


def too_much(peer: Peer) -> None:
    peer.request()
    peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 200 + b"0\r\n\r\n")
    peer.outlast()
