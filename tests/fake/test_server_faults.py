from __future__ import annotations

import http.client
from collections.abc import Callable

import aiohttp
import anyio
import anyio.to_thread
import pytest
from support.echo_service import CREATE, TinyService, answer_on_the_wire
from support.raw_http import CLOSED, RESET, connect_to, encode_request, exchange_bytes, read_to_end

from outreach_async.fake import faults as f
from outreach_async.fake.server import serve

POST = encode_request("POST", "/contacts", CREATE.body)
LAST = "connection: close"

WHOLE = answer_on_the_wire(CREATE)
HEAD, BODY = WHOLE.split(b"\r\n\r\n")
CHUNKED = HEAD.replace(b"content-length: %d" % len(BODY), b"transfer-encoding: chunked") + b"\r\n\r\n%x\r\n%b\r\n" % (
    len(BODY),
    BODY,
)

GZIP = HEAD + b"\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n"

Bytes = Callable[[bytes], bool]
FAULTS: list[tuple[f.Fault, str, Bytes]] = [
    (f.refuse(), RESET, lambda got: got == b""),
    (f.reset(), RESET, lambda got: got == b""),
    (f.close(), CLOSED, lambda got: got == b""),
    (f.truncate(20), CLOSED, lambda got: got.endswith(b"\r\n\r\n" + BODY[:20]) and b"length: %d" % len(BODY) in got),
    (f.truncate(9999), CLOSED, lambda got: got.endswith(BODY) and b"length: %d" % (len(BODY) + 1) in got),
    (f.reset_mid_body(20), RESET, lambda got: got.endswith(b"\r\n\r\n" + BODY[:20])),
    (f.malformed("bad_chunk"), CLOSED, lambda got: got == CHUNKED + b"no size\r\n"),
    (f.malformed("no_final_chunk"), CLOSED, lambda got: got == CHUNKED),
    (f.malformed("garbage"), CLOSED, lambda got: got != b"" and b"HTTP" not in got),
    (f.malformed("long_header"), CLOSED, lambda got: len(got) > 256 * 1024),
    (f.malformed("wrong_encoding"), CLOSED, lambda got: got == GZIP + BODY),
    (f.wrong_length(5), CLOSED, lambda got: got.endswith(BODY) and b"length: %d\r\n" % (len(BODY) - 5) in got),
    (f.commit_then(f.reset()), RESET, lambda got: got == b""),
]


@pytest.mark.parametrize(("fault", "end", "bytes_are_right"), FAULTS, ids=[fault.label for fault, _, _ in FAULTS])
async def test_a_fault_is_injected_byte_by_byte_and_ends_the_connection(fault: f.Fault, end: str, bytes_are_right: Bytes) -> None:
    service = TinyService()
    service.faults.script("create_contact", fault)
    async with serve(service) as url:
        got, ended = await exchange_bytes(url, POST)
    assert bytes_are_right(got)
    assert ended == end
    assert len(service.requests) == fault.commits


class PooledClient:
    """A client that uses its connection again after every whole response, unless the response announces its end."""

    def __init__(self, url: str) -> None:
        self.connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)

    def send(self, method: str, target: str) -> int | None:
        """Send a request, and return the status of the response; `None` if the response is incomplete or not valid HTTP."""
        try:
            self.connection.request(method, target)
            response = self.connection.getresponse()
            response.read()
        except (http.client.HTTPException, OSError):
            self.connection.close()
            return None
        return response.status


@pytest.mark.parametrize(
    ("fault", "rule", "ends", "attempts"),
    [(f.reset(), False, 201, 2), (f.reset(), True, "ClientOSError", 2), (f.truncate(5), False, "ClientPayloadError", 1)],
    ids=["one reset", "every reset", "truncated"],
)
def test_a_client_that_retries_by_itself_does_so_as_documented(
    fault: f.Fault, rule: bool, ends: int | str, attempts: int
) -> None:
    asked: list[None] = []
    service = TinyService(lambda: asked.append(None))
    inject = service.faults.add if rule else lambda fault: service.faults.script("list_campaigns", fault)
    inject(fault)

    async def read() -> int | str:
        async with serve(service) as url, aiohttp.ClientSession() as session:
            try:
                async with session.get(f"{url}/campaigns") as response:
                    await response.read()
                    return response.status
            except aiohttp.ClientError as error:
                return type(error).__name__

    assert (anyio.run(read), len(asked)) == (ends, attempts)


OTHERS = [f.ok, f.latency(0.001), f.slow_drip(bytes=40, every=0.001), f.status(503), f.drift("a", 1)]


@pytest.mark.parametrize("fault", [*(fault for fault, _, _ in FAULTS), *OTHERS], ids=lambda fault: fault.label)
@pytest.mark.parametrize("method", ["POST", "HEAD"])
async def test_the_next_request_of_a_pooled_client_is_answered(fault: f.Fault, method: str) -> None:
    service = TinyService()
    async with serve(service) as url:
        client = PooledClient(url)
        for _ in range(2):  # the second time on a connection that has served before
            service.faults.script("create_contact", fault)
            await anyio.to_thread.run_sync(client.send, method, "/contacts")
            assert await anyio.to_thread.run_sync(client.send, "GET", "/next") == 201
        client.connection.close()
    assert [request.target for request in service.requests if request.target == "/next"] == ["/next"] * 2


@pytest.mark.parametrize(
    ("fault", "least"), [(f.latency(0.01), 0.01), (f.slow_drip(bytes=40, every=0.005), 0.005), (f.status(503), 0), (f.ok, 0)]
)
async def test_a_delayed_or_replaced_response_leaves_the_connection_usable(fault: f.Fault, least: float) -> None:
    service = TinyService()
    service.faults.script("create_contact", fault)
    async with serve(service) as url:
        began = anyio.current_time()
        got, _ = await exchange_bytes(url, POST + encode_request("POST", "/contacts", CREATE.body, LAST))
        assert anyio.current_time() - began >= least
    assert got.count(b"HTTP/1.1 ") == 2
    assert got.endswith(answer_on_the_wire(CREATE, "Connection: close"))


async def test_a_hang_sends_nothing_until_the_client_disconnects() -> None:
    service = TinyService()
    service.faults.script("create_contact", f.hang())
    async with serve(service) as url, connect_to(url) as stream:
        await stream.send(POST + POST)
        with anyio.move_on_after(0.02) as waiting:
            await stream.receive()
        await stream.send_eof()
        assert (await read_to_end(stream), waiting.cancelled_caught, service.requests) == ((b"", CLOSED), True, [])


async def test_a_client_that_disconnects_during_a_delay_does_no_harm() -> None:
    service = TinyService()
    service.faults.script("create_contact", f.slow_drip(every=0.001))
    async with serve(service) as url:
        async with connect_to(url) as stream:
            await stream.send(POST)
            await stream.receive()
        assert (await exchange_bytes(url, encode_request("GET", "/", b"", LAST)))[1] == CLOSED
