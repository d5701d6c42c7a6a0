from __future__ import annotations

import errno
import gzip
import json
import logging
import re
import socket
import struct
from collections.abc import Generator
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.echo_service import CREATE, BrokenService, TinyService, answer_on_the_wire, answer_to
from support.examples import scaled
from support.raw_http import CLOSED, connect_to, encode_request, exchange_bytes, read_to_end, read_until

from outreach_async import Request, Response
from outreach_async.fake import faults as f
from outreach_async.fake._messages import MAX_REQUEST_BYTES
from outreach_async.fake.faults import execute_with_faults
from outreach_async.fake.server import MAX_HEAD_BYTES, RawConnection, _accept_connections, _build_url, _listen_on_loopback, serve

POST = encode_request("POST", "/contacts", CREATE.body)
LAST = "connection: close"


class Answering(TinyService):
    """Gives every request the same response."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response

    def exchange(self, request: Request, /) -> f.Exchange:
        return execute_with_faults(self.faults, "unknown", request, lambda: self.response)


@pytest.mark.parametrize("host", ["é..x", "٣"])
async def test_a_host_that_is_no_name_is_refused_as_an_unknown_one(host: str) -> None:
    with pytest.raises(OSError, match="Name or service not known"):
        async with serve(TinyService(), host):
            raise AssertionError


async def test_a_response_equals_the_one_in_memory_with_its_length() -> None:
    service = TinyService()
    async with serve(service) as url:
        got, end = await exchange_bytes(url, encode_request("POST", "/contacts", CREATE.body, "X-Test: é", "x-test: 2", LAST))
    assert (got, end) == (answer_on_the_wire(service.requests[0], "Connection: close"), CLOSED)
    request = service.requests[0]
    assert (request.method, request.target, request.body, request.headers["x-test"]) == (
        "POST",
        "/contacts",
        CREATE.body,
        "Ã©, 2",
    )


@pytest.mark.parametrize(
    ("sent", "arrives"),
    [
        ("/campaigns/camp_%C3%A9%2F%3F/steps?a%26b=%2f&c=", "/campaigns/camp_%C3%A9%2F%3F/steps?a%26b=%2f&c="),
        ("/a/../b/%2e%2e//c?", "/a/../b/%2e%2e//c?"),
        ("http://fake:80/contacts?a=b", "/contacts?a=b"),
        ("HTTPS://fake?a=b", "/?a=b"),
        ("http://fake", "/"),
        ("*", "*"),
    ],
)
async def test_the_target_arrives_byte_for_byte_without_an_origin(sent: str, arrives: str) -> None:
    service = TinyService()
    async with serve(service) as url:
        await exchange_bytes(url, encode_request("GET", sent, b"", LAST))
    assert [request.target for request in service.requests] == [arrives]


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serve(TinyService()) as url:
        got, end = await exchange_bytes(
            url, encode_request("GET", "/1") + encode_request("GET", "/2") + encode_request("GET", "/3", b"", LAST)
        )
    expected = [
        answer_on_the_wire(Request("GET", "/1")),
        answer_on_the_wire(Request("GET", "/2")),
        answer_on_the_wire(Request("GET", "/3"), "Connection: close"),
    ]
    assert (got, end) == (b"".join(expected), CLOSED)


async def test_an_http_1_0_client_gets_a_response_and_the_connection_is_closed() -> None:
    async with serve(TinyService()) as url:
        got, end = await exchange_bytes(url, b"GET /1 HTTP/1.0\r\n\r\n")
    assert (got.endswith(answer_to(Request("GET", "/1"))), end) == (True, CLOSED)


async def test_head_gets_no_body() -> None:
    async with serve(TinyService()) as url:
        got, _ = await exchange_bytes(url, encode_request("HEAD", "/1", b"", LAST))
    assert got == answer_on_the_wire(Request("HEAD", "/1"), "Connection: close").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"


async def test_a_bodyless_response_keeps_the_connection_open() -> None:
    async with serve(Answering(Response(204, {}, b"never sent"))) as url:
        got, _ = await exchange_bytes(url, POST + encode_request("POST", "/contacts", b"", LAST))
    assert got == b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


async def test_the_server_sets_the_length() -> None:
    async with serve(Answering(Response(599, {"content-length": "99", "transfer-encoding": "chunked"}, b"abc"))) as url:
        got, _ = await exchange_bytes(url, encode_request("GET", "/", b"", LAST))
    assert got == b"HTTP/1.1 599 \r\ncontent-length: 3\r\nConnection: close\r\n\r\nabc"


async def test_a_chunked_body_is_read_completely() -> None:
    service = TinyService()
    head = b"POST /contacts HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    async with serve(service) as url:
        await exchange_bytes(url, head + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n")
    assert service.requests[0].body == b"abc"


async def test_a_client_that_expects_continue_receives_it() -> None:
    service = TinyService()
    head, body = POST[: -len(CREATE.body)], CREATE.body
    async with serve(service) as url, connect_to(url) as stream:
        await stream.send(head[:-2] + b"expect: 100-continue\r\nconnection: close\r\n\r\n")
        assert await read_until(stream, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await stream.send(body)
        got, _ = await read_to_end(stream)
    assert got == answer_on_the_wire(CREATE, "Connection: close")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: ten\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nno size\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx-long: " + b"l" * MAX_HEAD_BYTES, 431),
        (encode_request("POST", "/").replace(b"length: 0", b"length: %d" % (MAX_REQUEST_BYTES + 1)), 413),
        (encode_request("POST", "/").replace(b"length: 0", b"length: %d\r\nexpect: 100-continue" % (MAX_REQUEST_BYTES + 1)), 413),
    ],
)
async def test_an_invalid_request_is_refused_and_the_connection_closed(sent: bytes, status: int) -> None:
    service = TinyService()
    async with serve(service) as url:
        got, end = await exchange_bytes(url, sent)
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nconnection: close" in head.lower()
    assert re.search(rb"\r\ndate: .*GMT\r\nx-request-id: server_\w+\r\n", head)
    assert json.loads(body)["status"] == "error"
    assert (end, service.requests) == (CLOSED, [])


async def test_a_chunked_body_over_the_limit_is_refused_and_not_kept() -> None:
    service = TinyService()
    chunk = b"100000\r\n" + bytes(2**20) + b"\r\n"
    async with serve(service) as url, connect_to(url) as stream:
        await stream.send(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(MAX_REQUEST_BYTES // 2**20):
            await stream.send(chunk)
        await stream.send(b"1\r\nx\r\n")
        got, _ = await read_to_end(stream)
    assert (got[:12], service.requests) == (b"HTTP/1.1 413", [])


async def test_a_client_that_keeps_sending_still_gets_the_refusal() -> None:
    head = encode_request("POST", "/").replace(b"length: 0", b"length: %d" % (MAX_REQUEST_BYTES + 1))
    async with serve(TinyService()) as url, connect_to(url) as stream:
        await stream.send(head + bytes(2**18))
        got = await stream.receive()
        await stream.send(bytes(2**18))
        rest, end = await read_to_end(stream)
    assert ((got + rest)[:12], end) == (b"HTTP/1.1 413", CLOSED)


@settings(max_examples=scaled(40), deadline=None)
@given(st.binary(max_size=60), st.sampled_from([b"", POST, POST[:20], b"GET / HTTP/1.1\r\n", b"0\r\n\r\n"]))
def test_no_bytes_can_stop_the_server(noise: bytes, start: bytes) -> None:
    async def disturb() -> bytes:
        async with serve(TinyService()) as url:
            async with connect_to(url) as stream:
                await stream.send(start + noise)
                await stream.send_eof()
                assert (await read_to_end(stream))[1] == CLOSED
            return (await exchange_bytes(url, encode_request("GET", "/", b"", LAST)))[0]

    assert anyio.run(disturb).startswith(b"HTTP/1.1 201 ")


async def test_a_client_that_resets_the_connection_does_no_harm() -> None:
    service = TinyService()
    async with serve(service) as url:
        async with connect_to(url) as stream:
            await stream.send(POST[:30])
            raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)  # noqa: S610 - not Django's
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        assert (await exchange_bytes(url, encode_request("GET", "/", b"", LAST)))[1] == CLOSED
    assert len(service.requests) == 1


async def test_a_service_that_raises_is_a_500_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    async with serve(BrokenService()) as url:
        with caplog.at_level(logging.ERROR, "outreach_async"):
            got, _ = await exchange_bytes(url, POST + encode_request("POST", "/contacts", b"key_secret", LAST))
    assert got.count(b"HTTP/1.1 500 Internal Server Error") == 2
    assert "the service raised KeyError" in caplog.text
    assert "in exchange" in caplog.text
    assert b"key_secret" not in got
    assert "key_secret" not in caplog.text


@pytest.mark.parametrize(
    "response",
    [Response(100), Response(200, {"x-a": "b\r\nc: d"}), Response(200, {"x-a": "ł"})],
    ids=["status", "field", "letter"],
)
async def test_a_response_that_cannot_be_sent_becomes_a_500(response: Response, caplog: pytest.LogCaptureFixture) -> None:
    async with serve(Answering(response)) as url:
        got, _ = await exchange_bytes(url, encode_request("GET", "/", b"", LAST))
    assert got.startswith(b"HTTP/1.1 500 ")
    assert "the service raised" in caplog.text


async def test_leaving_the_block_closes_the_listener_and_every_connection() -> None:
    async with serve(TinyService()) as url:
        stream = await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2]))
        await stream.send(POST)
        await stream.receive()
    async with stream:
        assert (await read_to_end(stream))[0] == b""
    with pytest.raises(OSError, match="connection"):
        await exchange_bytes(url, POST)


@pytest.mark.parametrize("error", [ValueError("as it is"), pytest.skip.Exception("as it is"), KeyboardInterrupt("as it is")])
async def test_an_error_of_the_block_is_raised_unchanged(error: BaseException) -> None:
    async def block() -> None:
        async with serve(TinyService()):
            raise error

    with pytest.raises(type(error), match="as it is") as raised:
        await block()
    assert raised.value is error


async def test_a_cancellation_ends_the_block_and_the_server() -> None:
    with anyio.CancelScope() as scope:
        async with serve(TinyService()) as url:
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    with pytest.raises(OSError, match="connection"):
        await exchange_bytes(url, POST)


class Listener(socket.socket):
    """A listener at a fictitious address whose first calls of `accept` fail."""

    errors: list[OSError]

    def getsockname(self) -> Any:
        return ("::1", 80, 0, 0)

    def accept(self) -> tuple[socket.socket, Any]:
        if self.errors:
            raise self.errors.pop(0)
        return super().accept()


def test_an_ipv6_address_is_in_brackets() -> None:
    with Listener() as listener:
        assert _build_url(listener) == "http://[::1]:80"


async def test_a_connection_that_cannot_be_accepted_yet_is_accepted_later() -> None:
    with Listener() as listener:
        listener.errors = [BlockingIOError(), OSError(errno.EMFILE, "Too many open files")]
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        address = socket.socket.getsockname(listener)
        async with anyio.create_task_group() as group:
            group.start_soon(_accept_connections, listener, group, TinyService(), anyio.Lock())
            got, _ = await exchange_bytes(f"http://127.0.0.1:{address[1]}", encode_request("GET", "/", b"", LAST))
            group.cancel_scope.cancel()
    assert (got[:12], listener.errors) == (b"HTTP/1.1 201", [])


class Woken(socket.socket):
    """A socket with one spurious wakeup."""

    early = True

    def recv(self, *arguments: int) -> bytes:
        if self.early:
            self.early = False
            raise BlockingIOError
        return super().recv(*arguments)


async def test_a_connection_with_a_spurious_wakeup_keeps_waiting() -> None:
    near, far = socket.socketpair()
    with far, Woken(fileno=near.detach()) as woken:
        far.send(b"abc")
        assert await RawConnection(woken).read() == b"abc"


async def test_what_the_peer_does_not_read_at_once_is_written_later() -> None:
    near, far = socket.socketpair()
    sent, received = bytes(range(256)) * 2**14, bytearray()
    with near, far:
        near.setblocking(False)
        async with anyio.create_task_group() as group:
            group.start_soon(RawConnection(near).write, sent)
            while len(received) < len(sent):
                await anyio.wait_readable(far)
                received += far.recv(2**16)
    assert received == sent


CREATED = gzip.compress(CREATE.body)


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip", "identity"])
async def test_a_compressed_body_is_read(coding: str) -> None:
    service = TinyService()
    body = CREATE.body if coding == "identity" else CREATED
    async with serve(service) as url:
        got, _ = await exchange_bytes(url, encode_request("POST", "/contacts", body, f"content-encoding: {coding}", LAST))
    assert got.startswith(b"HTTP/1.1 201 ")
    assert [request.body for request in service.requests] == [CREATE.body]


@pytest.mark.parametrize(
    ("coding", "body", "status"),
    [
        ("br", CREATED, 415),
        ("gzip, gzip", CREATED, 415),
        ("gzip", CREATE.body, 400),
        ("gzip", CREATED[:-9], 400),
        ("gzip", gzip.compress(bytes(MAX_REQUEST_BYTES + 1)), 413),
    ],
    ids=["br", "twice", "plain", "cut", "bomb"],
)
async def test_a_body_that_cannot_be_decompressed_is_refused(coding: str, body: bytes, status: int) -> None:
    service = TinyService()
    async with serve(service) as url:
        refused = encode_request("POST", "/contacts", body, f"content-encoding: {coding}")
        got, _ = await exchange_bytes(url, refused + encode_request("GET", "/next", b"", LAST))
    assert got.startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\ndate: " in got
    assert (b"accept-encoding: gzip" in got) == (status == 415)
    assert [request.target for request in service.requests] == ["/next"]  # on the same connection


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


async def test_localhost_is_served_on_both_stacks() -> None:
    async with serve(TinyService(), "localhost") as url:
        port = int(url.rpartition(":")[2])
        for address in ("127.0.0.1", *(["::1"] if has_ipv6() else [])):
            async with await anyio.connect_tcp(address, port) as stream:
                await stream.send(encode_request("GET", "/", b"", LAST))
                assert (await stream.receive()).startswith(b"HTTP/1.1 201 ")


def test_localhost_is_served_on_a_machine_without_ipv6() -> None:
    (listener,) = _listen_on_loopback(0, "2001:db8::1")
    listener.close()


@pytest.mark.skipif(not has_ipv6(), reason="needs IPv6 on loopback")
def test_localhost_with_a_port_that_another_program_has_on_one_stack_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with socket.create_server(("::1", port), family=socket.AF_INET6), pytest.raises(OSError, match="in use"):
        _listen_on_loopback(port)


class Slicing(TinyService):
    """Executes `/long` in slices, until `/short` has been executed as often as `shorts`."""

    def __init__(self, shorts: int) -> None:
        super().__init__()
        self.shorts, self.ended = shorts, False

    def exchange_in_slices(self, request: Request, /) -> Generator[None, None, f.Exchange]:
        try:
            while request.target == "/long" and [each.target for each in self.requests].count("/short") < self.shorts:
                yield
        finally:
            self.ended = True
        return self.exchange(request)


async def test_other_requests_are_answered_between_the_slices_of_a_long_one() -> None:
    service = Slicing(shorts=3)
    async with serve(service) as url, connect_to(url) as first, connect_to(url) as second:
        await first.send(encode_request("GET", "/long") * 2)
        await second.send(encode_request("GET", "/long"))
        for _ in range(3):
            assert (await exchange_bytes(url, encode_request("GET", "/short", b"", LAST)))[0].startswith(b"HTTP/1.1 201 ")
        for stream in (first, second):
            assert (await stream.receive()).startswith(b"HTTP/1.1 201 ")
    assert [request.target for request in service.requests] == ["/short"] * 3 + ["/long"] * 3


async def test_leaving_the_block_ends_a_request_between_its_slices() -> None:
    service = Slicing(shorts=1)
    async with serve(service) as url:
        stream = await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2]))
        await stream.send(encode_request("GET", "/long"))
        await exchange_bytes(url, encode_request("GET", "/", b"", LAST))
    await stream.aclose()
    assert service.ended
    assert "/long" not in [request.target for request in service.requests]


async def test_pipelined_requests_do_not_delay_those_of_other_connections() -> None:
    service = TinyService()
    async with serve(service) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address) as first, socket.create_connection(address) as second:
            first.sendall(encode_request("GET", "/first", b"") * 200)
            second.sendall(encode_request("GET", "/second", b""))
            await anyio.wait_readable(second)
    targets = [request.target for request in service.requests]
    assert targets.index("/second") < 20
