"""The adapter for httpx and httpx2: what it is made from, what it adds, what it never does."""

from __future__ import annotations

import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import httpx2
import pytest
import trustme
from support_listener import OK, Listener, Peer, answer_once, refused_port, serve
from support_transports import Make, over

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport.httpx import HttpxTransport
from outreach_async.transport.wire import Progress, Request, Transport

POST = Request("POST", "/contacts", {"content-type": "application/json"}, b'{"owner_key": "key_secret"}')
GET = Request("GET", "/campaigns?page=1")
NOWHERE = "http://service.example"
BOTH = ("httpx", "httpx2")
LIBRARIES: dict[str, Any] = {"httpx": httpx, "httpx2": httpx2}
both_libraries = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)


def over_mock(library: Any, handler: Callable[[Any], Any], **options: Any) -> HttpxTransport:
    """Make a transport over a client whose requests a function answers."""
    return HttpxTransport(library.AsyncClient(base_url=NOWHERE, transport=library.MockTransport(handler), **options))


async def fail(transport: Transport, request: Request) -> TransportError:
    with pytest.raises(TransportError) as caught:
        await transport.send(request, Progress())
    await transport.aclose()
    return caught.value


# What it is made from.


def run(code: str) -> None:
    subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", code], check=True)


def test_neither_importing_nor_making_one_imports_a_library() -> None:
    run(
        "import sys; from outreach_async.transport.httpx import HttpxTransport; HttpxTransport('https://api.example');"
        "HttpxTransport('https://api.example', family='httpx2'); assert not {'httpx', 'httpx2', 'httpcore'} & set(sys.modules)"
    )


@pytest.mark.parametrize(("family", "other"), [("httpx", "httpx2"), ("httpx2", "httpx")])
def test_the_other_library_is_never_imported(family: str, other: str) -> None:
    run(
        f"import anyio, sys; from outreach_async.transport.httpx import HttpxTransport\n"
        f"from outreach_async.transport.wire import Progress, Request\n"
        f"transport = HttpxTransport('http://localhost:{refused_port()}', family='{family}')\n"
        f"try: anyio.run(transport.send, Request('GET', '/'), Progress())\n"
        f"except Exception as error: assert not error.maybe_sent\n"
        f"assert '{family}' in sys.modules and '{other}' not in sys.modules"
    )


@both_libraries
def test_the_library_is_told_by_the_clients_class(library: Any) -> None:
    class Mine(library.AsyncClient):  # type: ignore[misc]  # either library's
        pass

    transport = HttpxTransport(Mine(base_url="https://user:secret@api.example/v1"))
    assert repr(transport) == f"<HttpxTransport to https://api.example by {library.__name__}>"
    assert transport.max_in_flight is None


@pytest.mark.parametrize(
    ("service", "family", "wanted"),
    [
        (httpx.AsyncClient, "httpx2", "httpx2.AsyncClient, got AsyncClient"),
        (httpx2.AsyncClient, "httpx", "httpx.AsyncClient, got AsyncClient"),
        (httpx.Client, None, "httpx.AsyncClient, got Client"),
        (dict, None, "httpx.AsyncClient, got dict"),
    ],
)
def test_anything_else_than_a_url_or_an_async_client_is_refused(service: Callable[[], Any], family: Any, wanted: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^transport: expected a base URL or an {wanted}$"):
        HttpxTransport(service(), family=family)


@both_libraries
@pytest.mark.parametrize("base_url", ["", "/v1", "https://api.example/?page=1"])
def test_a_client_without_a_base_url_of_use_is_refused(library: Any, base_url: str) -> None:
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
def test_an_option_that_can_never_be_right_is_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}"):
        HttpxTransport("https://api.example", **options)


@pytest.mark.parametrize(
    "options", [{"proxy": "http://proxy"}, {"trust_env": False}, {"ssl_context": ssl.create_default_context()}]
)
def test_what_is_for_the_client_to_say_is_refused_beside_it(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=f"^{next(iter(options))}: "):
        HttpxTransport(httpx.AsyncClient(base_url=NOWHERE), **options)


def test_its_lanes_bound_what_is_in_flight() -> None:
    assert HttpxTransport("https://api.example").max_in_flight == 64
    assert HttpxTransport("https://api.example", max_in_flight=8).max_in_flight == 8
    assert HttpxTransport(httpx.AsyncClient(base_url=NOWHERE), max_in_flight=8).max_in_flight == 8


# What it sends.


@over(*BOTH)
async def test_it_sends_the_request_and_what_http_needs_and_no_more(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(f"http://localhost:{listener.port}/v1/")
        await transport.send(POST, Progress())
        await transport.send(GET, Progress())
        await transport.aclose()
        post, get = (request.decode() for request in listener.requests)
    assert sorted(get.splitlines()) == sorted(
        ["GET /v1/campaigns?page=1 HTTP/1.1", f"host: localhost:{listener_port(get)}", "accept-encoding: gzip, deflate", ""]
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
async def test_user_and_password_of_the_url_become_authorization_unless_the_request_has_its_own(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(f"http://user:pass%40word@localhost:{listener.port}")
        await transport.send(GET, Progress())
        await transport.aclose()
        assert b"authorization: basic dxnlcjpwyxnzqhdvcmq=\r\n" in listener.requests[0].lower()
        assert "word" not in repr(transport)


@over(*BOTH)
async def test_a_requests_own_authorization_wins(make: Make) -> None:
    with Listener(serve()) as listener:
        transport = make(f"http://user:password@localhost:{listener.port}")
        await transport.send(Request("GET", "/", {"authorization": "Bearer abc"}), Progress())
        await transport.aclose()
        assert listener.requests[0].count(b"authorization") == 1
        assert b"authorization: Bearer abc\r\n" in listener.requests[0]


@over(*BOTH, "httpx_client", "httpx2_client", "aiohttp", "aiohttp_session")
async def test_repeated_fields_of_an_answer_are_joined_by_lower_case_name(make: Make) -> None:
    with Listener(serve(b"HTTP/1.1 200 OK\r\nX-Seen: 1\r\nx-seen: 2\r\nX-SEEN: 3\r\nContent-Length: 0\r\n\r\n")) as listener:
        transport = make(listener.url)
        response = await transport.send(GET, Progress())
        await transport.aclose()
    assert response.headers == {"x-seen": "1, 2, 3", "content-length": "0"}


@over(*BOTH, "httpx_client", "httpx2_client")
async def test_a_request_that_is_no_http_is_refused_and_the_transport_goes_on(make: Make) -> None:
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
async def test_a_host_that_the_dns_cannot_know_is_refused(make: Make) -> None:
    with pytest.raises(InvalidRequest, match=r"^base_url: its host"):
        await make(f"http://{'ü' * 70}.example").send(GET, Progress())


# Certificates and proxies.


@cache
def authority() -> trustme.CA:
    return trustme.CA()


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority().issue_cert("localhost").configure_cert(context)
    return context


@over(*BOTH)
async def test_the_environments_certificates_are_trusted(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = tmp_path / "authority.pem"
    authority().cert_pem.write_to_path(str(pem))
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    with Listener(serve(), tls=server_context()) as listener:
        trusting, distrusting = make(listener.url), make(listener.url, trust_env=False)
        assert (await trusting.send(POST, Progress())).status == 200
        await trusting.aclose()
        error = await fail(distrusting, POST)
        assert error.maybe_sent is False
        assert "CERTIFICATE_VERIFY_FAILED" in str(error)


@over(*BOTH)
async def test_certificates_that_cannot_be_read_are_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(
        InvalidRequest, match=r"^ssl_context: what SSL_CERT_FILE or SSL_CERT_DIR names cannot be read: FileNotFound"
    ):
        await make("https://localhost").send(POST, Progress())


@over(*BOTH, "aiohttp")
@pytest.mark.parametrize("source", ["the environment", "an option"])
async def test_a_proxy_gets_the_request_and_its_password_shows_nowhere(
    make: Make, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Listener(serve()) as proxy:
        url = f"http://user:secret@localhost:{proxy.port}"
        if source == "the environment":
            monkeypatch.setenv("http_proxy", url)
            transport = make(NOWHERE)
        else:
            transport = make(NOWHERE, proxy=url)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
        assert proxy.requests[0].startswith(b"POST http://service.example/contacts HTTP/1.1\r\n")
        assert b"proxy-authorization: basic dxnlcjpzzwnyzxq=\r\n" in proxy.requests[0].lower()
        assert "secret" not in repr(transport)


@over(*BOTH, "aiohttp")
async def test_no_proxy_and_distrust_keep_the_environments_proxy_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://localhost:{refused_port()}")
    with Listener(serve()) as listener:
        transport = make(listener.url, trust_env=False)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
        monkeypatch.setenv("no_proxy", "localhost")
        transport = make(listener.url)
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()


@over(*BOTH, "aiohttp")
@pytest.mark.parametrize(
    "refusal",
    [
        b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n",
        b"",
        b"HTTP/1.1 200 Connected\r\n\r\nno TLS at all, whatever you say",
    ],
    ids=["refused", "closed", "connected to something else"],
)
async def test_what_a_proxy_does_not_let_through_is_certainly_not_sent(make: Make, refusal: bytes) -> None:
    with Listener(answer_once(refusal)) as proxy:
        transport = make("https://service.example", proxy=f"http://user:secret@localhost:{proxy.port}")
        error = await fail(transport, POST)
        assert error.maybe_sent is False
        assert proxy.requests[0].startswith(b"CONNECT service.example:443 ")
        assert "secret" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


@over(*BOTH, "aiohttp")
async def test_a_proxy_that_cannot_be_reached_is_certainly_not_sent_to(make: Make) -> None:
    transport = make(NOWHERE, proxy=f"http://user:secret@localhost:{refused_port()}")
    error = await fail(transport, GET)
    assert error.maybe_sent is False
    assert "secret" not in f"{error!r} {error.__cause__!r} {error.__context__!r}"


@over(*BOTH)
async def test_a_proxy_behind_tls_is_verified_like_the_service(make: Make) -> None:
    trusting = ssl.create_default_context()
    authority().configure_trust(trusting)
    with Listener(serve(), tls=server_context()) as proxy:
        transport = make(NOWHERE, tls=trusting, proxy=f"https://localhost:{proxy.port}")
        assert (await transport.send(POST, Progress())).status == 200
        await transport.aclose()
        assert proxy.requests[0].startswith(b"POST http://service.example/contacts ")


# Over a client.


@both_libraries
async def test_a_clients_own_settings_are_sent_along(library: Any) -> None:
    seen: list[Any] = []

    def handler(request: Any) -> Any:
        seen.append(request)
        return library.Response(200)

    transport = over_mock(
        library,
        handler,
        headers={"x-tenant": "t1"},
        auth=("user", "password"),
        params={"tenant": "t 1"},
        cookies={"own": "cookie"},
    )
    await transport.send(POST, Progress())
    await transport.aclose()
    assert seen[0].headers["x-tenant"] == "t1"
    assert seen[0].headers["authorization"].startswith("Basic ")
    assert seen[0].headers["cookie"] == "own=cookie"
    assert seen[0].url.raw_path in {b"/contacts?tenant=t+1", b"/contacts?tenant=t%201"}
    assert seen[0].content == POST.body


@both_libraries
async def test_digest_authentication_sends_the_body_twice_whole(library: Any) -> None:
    seen: list[bytes] = []

    async def challenge(request: Any) -> Any:
        seen.append(await request.aread())
        if "authorization" in request.headers:
            return library.Response(201)
        return library.Response(401, headers={"www-authenticate": 'Digest realm="r", nonce="n", qop="auth"', "set-cookie": "a=b"})

    transport = over_mock(library, challenge, auth=library.DigestAuth("user", "password"))
    response = await transport.send(POST, Progress())
    await transport.aclose()
    assert (response.status, seen) == (201, [POST.body, POST.body])


@both_libraries
async def test_an_answer_that_a_hook_has_read_is_read_again(library: Any) -> None:
    async def hook(response: Any) -> None:
        await response.aread()

    transport = over_mock(library, lambda _: library.Response(200, content=drops()), event_hooks={"response": [hook]})
    assert (await transport.send(GET, Progress())).body == b"droplets"
    await transport.aclose()


async def drops() -> AsyncIterator[bytes]:
    yield b"drop"
    yield b"lets"


@both_libraries
async def test_an_endless_answer_of_a_mock_is_refused(library: Any) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000

    client = library.AsyncClient(
        base_url=NOWHERE, transport=library.MockTransport(lambda _: library.Response(200, content=endless()))
    )
    error = await fail(HttpxTransport(client, max_answer=10_000), GET)
    assert "more than max_answer=10000 bytes" in str(error)


@both_libraries
async def test_a_clients_timeouts_and_redirects_are_switched_off(library: Any) -> None:
    seen: list[Any] = []

    def handler(request: Any) -> Any:
        seen.append(request)
        return library.Response(307, headers={"location": "/elsewhere"})

    transport = over_mock(library, handler, timeout=1.0, follow_redirects=True)
    assert (await transport.send(POST, Progress())).status == 307
    await transport.aclose()
    assert [request.extensions["timeout"] for request in seen] == [dict.fromkeys(("connect", "read", "write", "pool"))]


@both_libraries
async def test_a_client_keeps_no_cookie_of_an_answer_and_all_of_its_own(library: Any) -> None:
    client = library.AsyncClient(
        base_url=NOWHERE,
        cookies={"own": "1"},
        transport=library.MockTransport(lambda _: library.Response(200, headers={"set-cookie": "theirs=2"})),
    )
    transport = HttpxTransport(client)
    await transport.send(GET, Progress())
    assert {cookie.name for cookie in client.cookies.jar} == {"own"}
    await transport.aclose()


@both_libraries
async def test_a_client_is_closed_along_with_its_transport(library: Any) -> None:
    unused, used = (
        library.AsyncClient(base_url=NOWHERE, transport=library.MockTransport(lambda _: library.Response(200))) for _ in "12"
    )
    await HttpxTransport(unused).aclose()
    transport = HttpxTransport(used)
    await transport.send(GET, Progress())
    await transport.aclose()
    assert unused.is_closed
    assert used.is_closed


@both_libraries
async def test_a_client_that_its_owner_has_closed_is_named(library: Any) -> None:
    client = library.AsyncClient(base_url=NOWHERE)
    await client.aclose()
    with pytest.raises(InvalidRequest, match=r"^the AsyncClient is closed"):
        await HttpxTransport(client).send(GET, Progress())


@both_libraries
async def test_a_clients_own_field_that_is_no_http_is_refused_and_never_shown(library: Any) -> None:
    with Listener(serve()) as listener:
        transport = HttpxTransport(library.AsyncClient(base_url=listener.url, headers={"x-key": "secret\r\n"}))
        with pytest.raises(InvalidRequest, match="a field of the client's own") as caught:
            await transport.send(POST, Progress())
        await transport.aclose()
    assert caught.value.__cause__ is caught.value.__context__ is None


@both_libraries
@pytest.mark.parametrize(
    ("name", "reads", "maybe_sent"),
    [
        ("ConnectError", False, False),
        ("ConnectTimeout", False, False),
        ("PoolTimeout", False, False),
        ("ProxyError", False, False),
        ("UnsupportedProtocol", False, False),
        ("ConnectError", True, True),
        ("ReadTimeout", False, True),
        ("ReadTimeout", True, True),
        ("RemoteProtocolError", False, True),
        ("LocalProtocolError", True, True),
    ],
)
async def test_of_a_foreign_transport_only_the_connect_family_is_believed(
    library: Any,
    name: str,
    reads: bool,
    maybe_sent: bool,
) -> None:
    class Foreign(library.AsyncBaseTransport):  # type: ignore[misc]  # either library's
        async def handle_async_request(self, request: Any) -> Any:
            if reads:
                await request.aread()
            raise getattr(library, name)("a\nreason")

    error = await fail(HttpxTransport(library.AsyncClient(base_url=NOWHERE, transport=Foreign())), POST)
    assert error.maybe_sent is maybe_sent
    assert str(error).endswith(f"{NOWHERE}: {name}: a reason")
    assert type(error.__cause__) is getattr(library, name)


@both_libraries
@pytest.mark.parametrize("kind", [RuntimeError, OSError, anyio.ClosedResourceError])
async def test_an_application_that_breaks_before_it_reads_may_have_acted(library: Any, kind: type[Exception]) -> None:
    async def app(*_: object) -> None:
        raise kind

    error = await fail(HttpxTransport(library.AsyncClient(base_url=NOWHERE, transport=library.ASGITransport(app))), POST)
    assert error.maybe_sent is True


@both_libraries
async def test_what_is_none_of_the_librarys_errors_passes_as_it_is(library: Any) -> None:
    def handler(_: object) -> Any:
        raise KeyError("a mistake of the test's")

    with pytest.raises(KeyError):
        await over_mock(library, handler).send(POST, Progress())


# Event loops.


@pytest.mark.parametrize("family", BOTH)
def test_a_transport_goes_on_in_another_event_loop(family: Any) -> None:
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
async def test_a_lane_whose_answer_was_refused_is_not_used_again(make: Make) -> None:
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
