"""Trouble on real sockets: each is a TransportError, and `maybe_sent` never says less than what the listener has read."""

from __future__ import annotations

import gzip
import ssl

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
    close_after_request,
    flood,
    hang_after,
    refused_port,
    reset_after_request,
    reset_at_once,
    serve,
)
from support_transports import ALL, GET, OWN, POST, Make, fail, over

from outreach_async.transport.wire import Progress, Request, Response

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
