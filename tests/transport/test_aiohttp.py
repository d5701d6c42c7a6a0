"""The aiohttp adapter: construction, the requests it sends, sessions and event loops."""

from __future__ import annotations

import asyncio
import gc
import ssl
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from support.listener import OK, Behaviour, Listener, Peer, answer_once, close_after_request, hang, refused_port, serve
from support.transports import GET, POST, over

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport._aiohttp import AiohttpTransport
from outreach_async.transport._wire import Progress, Request

on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)


def run(code: str) -> None:
    subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", code], check=True)


def test_neither_importing_nor_creating_one_imports_aiohttp() -> None:
    run(
        "import sys; from outreach_async.transport._aiohttp import AiohttpTransport; AiohttpTransport('https://api.example');"
        "assert not {'aiohttp', 'yarl', 'httpx'} & set(sys.modules)"
    )


def test_on_trio_it_says_what_to_use_instead() -> None:
    transport = AiohttpTransport(f"http://localhost:{refused_port()}")
    with pytest.raises(InvalidRequest, match="supports only asyncio, got another event loop; on trio, use HttpxTransport"):
        anyio.run(transport.send, POST, Progress(), backend="trio")
    anyio.run(transport.aclose, backend="trio")


@pytest.mark.parametrize("service", [dict, asyncio.Event])
def test_only_a_url_or_a_session_is_accepted(service: Callable[[], Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"^transport: expected a base URL or an aiohttp.ClientSession, got "):
        AiohttpTransport(service())


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_answer": 0}, "max_answer"),
        ({"proxy": "socks5://proxy.example"}, "proxy: expected a URL with a host and one of the schemes http, https;"),
    ],
)
def test_an_invalid_option_is_refused_by_name(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}"):
        AiohttpTransport("https://api.example", **options)


@on_asyncio
@pytest.mark.parametrize(
    "options", [{"proxy": "http://proxy"}, {"trust_env": False}, {"ssl_context": ssl.create_default_context()}]
)
async def test_options_that_belong_to_the_session_are_refused_with_one(options: dict[str, Any]) -> None:
    async with aiohttp.ClientSession("https://api.example") as session:
        with pytest.raises(InvalidRequest, match=f"^{next(iter(options))}: "):
            AiohttpTransport(session, **options)


@on_asyncio
async def test_its_connections_limit_the_requests_in_flight() -> None:
    assert AiohttpTransport("https://api.example").max_in_flight == 64
    assert AiohttpTransport("https://api.example", max_in_flight=8).max_in_flight == 8
    async with aiohttp.ClientSession("https://api.example") as session:
        assert AiohttpTransport(session).max_in_flight is None
        assert AiohttpTransport(session, max_in_flight=8).max_in_flight == 8
        assert repr(AiohttpTransport(session)) == "<AiohttpTransport to https://api.example>"


@on_asyncio
@pytest.mark.parametrize(
    ("url", "shown_url"),
    [
        ("https://user:secret@api.example:8443/v1/", "https://api.example:8443/v1"),
        ("http://API.example", "http://api.example"),
        ("http://[::1]:80/a%2Fb/", "http://[::1]/a%2Fb"),
    ],
)
async def test_its_base_url_and_repr_contain_no_credentials(url: str, shown_url: str) -> None:
    assert AiohttpTransport(url).base_url == shown_url
    async with aiohttp.ClientSession(url) as session:
        assert AiohttpTransport(session).base_url == shown_url


@on_asyncio
@pytest.mark.parametrize("url", [None, "ws://api.example"])
async def test_over_a_session_without_an_http_base_url_its_base_url_is_none(url: str | None) -> None:
    async with aiohttp.ClientSession(url) as session:
        transport = AiohttpTransport(session)
    assert transport.base_url is None
    assert repr(transport) == "<AiohttpTransport to a session>"


@on_asyncio
async def test_it_sends_the_request_and_only_the_headers_http_needs() -> None:
    with Listener(serve()) as listener:
        transport = AiohttpTransport(f"http://localhost:{listener.port}/v1/")
        assert repr(transport) == f"<AiohttpTransport to http://localhost:{listener.port}/v1>"
        await transport.send(POST, Progress())
        await transport.send(GET, Progress())
        await transport.aclose()
        host = f"Host: localhost:{listener.port}"
        post, get = (request.decode() for request in listener.requests)
    assert set(get.splitlines()) == {
        "GET /v1/campaigns?workspace=space_1&page=1 HTTP/1.1",
        host,
        "accept-encoding: gzip, deflate",
        "",
    }
    head, _, body = post.partition("\r\n\r\n")
    assert body.encode() == POST.body
    assert set(head.splitlines()) == {
        "POST /v1/contacts HTTP/1.1",
        host,
        "accept-encoding: gzip, deflate",
        "content-type: application/json",
        f"content-length: {len(POST.body)}",
    }


@on_asyncio
async def test_credentials_of_the_url_are_sent_unless_a_request_has_its_own() -> None:
    with Listener(serve()) as listener:
        transport = AiohttpTransport(f"http://user:pass%40word@localhost:{listener.port}")
        await transport.send(GET, Progress())
        await transport.send(Request("GET", "/", {"authorization": "Bearer abc"}), Progress())
        await transport.aclose()
        assert b"authorization: Basic dXNlcjpwYXNzQHdvcmQ=\r\n" in listener.requests[0]
        assert b"authorization: Bearer abc\r\n" in listener.requests[1]
        assert b"Basic" not in listener.requests[1]
        assert "word" not in repr(transport)


@over("aiohttp", "aiohttp_session")
async def test_an_invalid_request_is_refused_and_the_transport_stays_usable(make: Any) -> None:
    with Listener(serve()) as listener:
        transport = make(listener.url)
        for request in (Request("NOT A METHOD", "/"), Request("GET", "/", {"x-key": "secret\r\n"})):
            with pytest.raises(InvalidRequest) as caught:
                await transport.send(request, Progress())
            assert caught.value.__cause__ is caught.value.__context__ is None
        assert (await transport.send(GET, Progress())).status == 200
        await transport.aclose()
        assert len(listener.requests) == 1


@on_asyncio
async def test_an_invalid_host_name_is_refused() -> None:
    transport = AiohttpTransport(f"http://{'ü' * 70}.example")
    with pytest.raises(InvalidRequest, match=r"^base_url: expected a valid host name"):
        await transport.send(GET, Progress())


@on_asyncio
async def test_a_response_that_is_not_http_shows_nothing_of_the_request() -> None:
    with Listener(answer_once(b"SSH-2.0-OpenSSH_9.6\r\n")) as listener:
        transport = AiohttpTransport(listener.url)
        with pytest.raises(TransportError, match=r"no response from .*: 400 ") as caught:
            await transport.send(Request("POST", "/", {"authorization": "Bearer secret"}, b"secret"), Progress())
        await transport.aclose()
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "secret" not in str(caught.value)


# Over a session.


@on_asyncio
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


@on_asyncio
async def test_a_session_keeps_no_cookie_of_a_response_and_all_of_its_own() -> None:
    with Listener(serve(OK.replace(b"content", b"set-cookie: theirs=2\r\ncontent", 1))) as listener:
        session = aiohttp.ClientSession(listener.url, cookies={"own": "1"})
        transport = AiohttpTransport(session)
        await transport.send(GET, Progress())
        assert {morsel.key for morsel in session.cookie_jar} == {"own"}
        await transport.aclose()


@on_asyncio
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


@on_asyncio
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


@on_asyncio
async def test_digest_authentication_by_middleware_sends_the_body_twice() -> None:
    challenge = b'HTTP/1.1 401 Who\r\nwww-authenticate: Digest realm="r", nonce="n", qop="auth-int"\r\ncontent-length: 0\r\n\r\n'
    with Listener(answer_each(challenge, OK)) as listener:
        transport = AiohttpTransport(listener.url, middlewares=[aiohttp.DigestAuthMiddleware("user", "password")])
        response = await transport.send(POST, Progress())
        await transport.aclose()
        assert response.status == 200
        assert [request.partition(b"\r\n\r\n")[2] for request in listener.requests] == [POST.body, POST.body]
        assert b"Authorization: Digest" in listener.requests[1]


def answer_each(*answers: bytes) -> Behaviour:
    def behave(peer: Peer) -> None:
        for answer in answers:
            peer.request()
            peer.send(answer)
        peer.outlast()

    return behave


@on_asyncio
async def test_a_get_is_not_sent_again_on_a_new_connection() -> None:
    with Listener(close_after_request) as listener:
        for service in (listener.url, aiohttp.ClientSession(listener.url)):
            transport = AiohttpTransport(service)
            with pytest.raises(TransportError, match="ServerDisconnectedError") as caught:
                await transport.send(GET, Progress())
            await transport.aclose()
            assert caught.value.maybe_sent
        assert len(listener.requests) == 2


@on_asyncio
@pytest.mark.parametrize("base_url", [None, "unix://socket/"])
async def test_a_session_without_a_usable_base_url_is_refused_at_first_use(base_url: str | None) -> None:
    progress = Progress()
    transport = AiohttpTransport(aiohttp.ClientSession(base_url))
    with pytest.raises(InvalidRequest, match=r"^base_url: expected a session with an http or https base URL"):
        await transport.send(GET, progress)
    await transport.aclose()


@on_asyncio
async def test_an_invalid_header_of_a_session_is_refused_and_never_shown() -> None:
    with Listener(serve()) as listener:
        transport = AiohttpTransport(aiohttp.ClientSession(listener.url, headers={"x-key": "secret\r\nx: y"}))
        with pytest.raises(InvalidRequest, match="the session's own headers") as caught:
            await transport.send(POST, Progress())
        await transport.aclose()
    assert caught.value.__cause__ is caught.value.__context__ is None


@on_asyncio
async def test_a_session_is_closed_with_its_transport() -> None:
    session = aiohttp.ClientSession("http://service.example")
    transport = AiohttpTransport(session)
    await transport.aclose()
    await transport.aclose()
    assert session.closed


@on_asyncio
async def test_a_forked_child_leaves_the_session_of_its_parent_open() -> None:
    async with aiohttp.ClientSession("http://service.example") as session:
        transport = AiohttpTransport(session)
        transport._senders.discard_after_fork()
        await transport.aclose()
        assert not session.closed


@on_asyncio
async def test_a_session_closed_by_its_owner_is_reported() -> None:
    session = aiohttp.ClientSession("http://service.example")
    await session.close()
    with pytest.raises(InvalidRequest, match=r"^the ClientSession is closed"):
        await AiohttpTransport(session).send(GET, Progress())


@on_asyncio
async def test_an_error_of_a_middleware_is_raised_unchanged() -> None:
    async def slip(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        await handler(request)
        raise KeyError("a mistake of the test's")

    with Listener(serve()) as listener:
        transport = AiohttpTransport(listener.url, middlewares=[slip])
        with pytest.raises(KeyError):
            await transport.send(POST, Progress())
        await transport.aclose()


@on_asyncio
async def test_a_value_error_after_sending_is_a_lost_response() -> None:
    async def slip(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
        (await handler(request)).close()
        raise ValueError("a mistake of the test's")

    with Listener(serve()) as listener:
        transport = AiohttpTransport(listener.url, middlewares=[slip])
        with pytest.raises(TransportError) as caught:
            await transport.send(POST, Progress())
        await transport.aclose()
    assert caught.value.maybe_sent


@on_asyncio
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


# Event loops.


def test_a_transport_from_a_url_works_in_another_event_loop() -> None:
    with Listener(serve(OK.replace(b"content", b"connection: close\r\ncontent", 1))) as listener:
        transport = AiohttpTransport(listener.url)

        async def send() -> int:
            return (await transport.send(POST, Progress())).status

        async def send_and_close() -> int:
            status = await send()
            await transport.aclose()
            return status

        def go_on() -> int:
            status = asyncio.run(send_and_close())
            gc.collect()
            return status

        assert asyncio.run(send()) == 200
        with pytest.warns(ResourceWarning, match="Unclosed client session"):  # the first event loop's was never closed
            assert go_on() == 200


def test_a_session_of_another_event_loop_is_refused() -> None:
    with Listener(serve()) as listener:
        transports: list[AiohttpTransport] = []

        async def make() -> None:
            session = aiohttp.ClientSession(listener.url)
            transports.append(AiohttpTransport(session))
            await transports[0].send(POST, Progress())
            await session.close()

        asyncio.run(make())
        with pytest.raises(InvalidRequest, match="another event loop"):
            asyncio.run(transports[0].send(POST, Progress()))
        assert len(listener.requests) == 1


def test_an_unused_session_of_another_event_loop_is_refused() -> None:
    async def make() -> AiohttpTransport:
        async with aiohttp.ClientSession("http://service.example") as session:
            return AiohttpTransport(session)

    transport = asyncio.run(make())
    with pytest.raises(InvalidRequest, match="another event loop"):
        asyncio.run(transport.send(POST, Progress()))
