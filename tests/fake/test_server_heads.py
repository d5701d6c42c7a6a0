"""Request heads that the served fake refuses: too slow, with an ambiguous length, or with bare line feeds."""

from __future__ import annotations

from collections.abc import Iterable

import anyio
import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.echo_service import TinyService
from support.raw_http import CLOSED, exchange_bytes
from support.time import virtual_time

from outreach_async.fake.server import BODY_TIMEOUT, HEAD_TIMEOUT, MAX_HEAD_BYTES, RawConnection, _read_request, serve
from outreach_async.transport._wire import Request

CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
WHOLE = CHUNKED + b"3\r\na\nb\r\n5;x=y\r\n\r\n\n\r\n\r\n0\r\nx-last: 1\r\n\r\n"
READ = Request("POST", "/", {"host": "a", "transfer-encoding": "chunked"}, b"a\nb\r\n\n\r\n")

TWICE = [
    b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: Chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
]
BARE = [
    b"GET / HTTP/1.1\nhost: a\n\n",
    b"GET / HTTP/1.1\nhost: a\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\nx-y: z\r\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\n\r\n",
    b"GET / HTTP/1.1\r\nhost: a\r\n\n",
    b"\nGET / HTTP/1.1\r\nhost: a\r\n\r\n",
    CHUNKED + b"3\nabc\n0\n\n",
    CHUNKED + b"3\r\nabc\n0\r\n\r\n",
    CHUNKED + b"0\nx-last: 1\r\n\r\n",
    CHUNKED + b"0\r\nx-last: 1\n\r\n",
    CHUNKED + b"0\r\nx-last: 1\r\n\n",
    CHUNKED + b"0\r\n\n",
]
UNFINISHED = [b"GET / HTTP/1.1\n", b"GET / HTTP/1.1\r\nhost: a\n", CHUNKED + b"3\n", CHUNKED + b"0\r\nx-last: 1\n"]


class Pieces(RawConnection):
    """A connection on which each of these pieces arrives after `seconds`, and then nothing more."""

    def __init__(self, pieces: Iterable[bytes], seconds: float = 0.0) -> None:
        self._pieces = iter(pieces)
        self._seconds = seconds

    async def read(self) -> bytes:
        await anyio.sleep(self._seconds)
        for piece in self._pieces:
            return piece
        await anyio.sleep(86_400)
        raise AssertionError("it waits for more")

    async def write(self, data: bytes) -> None:
        raise AssertionError(data)


async def parse_pieces(*pieces: bytes, seconds: float = 0.0) -> Request | None:
    """Parse these pieces as one request."""
    conversation = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    return await _read_request(Pieces(pieces, seconds), conversation)


def split_bytes(data: bytes, places: Iterable[int]) -> list[bytes]:
    ends = sorted({*places, len(data)} - {0})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("sent", [*TWICE, *BARE, *UNFINISHED])
async def test_an_ambiguous_length_or_a_bare_line_feed_is_refused(sent: bytes) -> None:
    service = TinyService()
    async with serve(service) as url:
        got, end = await exchange_bytes(url, sent)
    assert (got[:13], end, service.requests) == (b"HTTP/1.1 400 ", CLOSED, [])
    assert b"\r\nconnection: close" in got.lower()


@virtual_time
@pytest.mark.parametrize("sent", BARE)
async def test_a_bare_line_feed_is_found_however_the_request_is_split(sent: bytes) -> None:
    for place in range(1, len(sent)):
        with pytest.raises(h11.RemoteProtocolError):
            await parse_pieces(*split_bytes(sent, [place]))


@virtual_time
@given(places=st.lists(st.integers(1, len(WHOLE) - 1)))
async def test_line_feeds_in_a_body_are_accepted_however_it_is_split(places: list[int]) -> None:
    assert await parse_pieces(*split_bytes(WHOLE, places)) == READ


@virtual_time
async def test_line_feeds_after_a_head_belong_to_its_body() -> None:
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n"
    for place in range(1, len(head) + 4):
        request = await parse_pieces(*split_bytes(head + b"\n\n\na", [place]))
        assert request is not None
        assert request.body == b"\n\n\na"


@virtual_time
async def test_a_head_that_arrives_byte_by_byte_times_out() -> None:
    began = anyio.current_time()
    assert await parse_pieces(*split_bytes(WHOLE, range(30)), seconds=1.0) is None
    assert anyio.current_time() - began == pytest.approx(1 + HEAD_TIMEOUT)


@virtual_time
async def test_a_head_that_stops_arriving_times_out() -> None:
    began = anyio.current_time()
    assert await parse_pieces(b"GET / HTTP/1.1\r\n") is None
    assert anyio.current_time() - began == pytest.approx(10)
    assert HEAD_TIMEOUT == 10


@virtual_time
async def test_a_connection_may_be_idle_without_a_limit() -> None:
    began = anyio.current_time()
    assert await parse_pieces(WHOLE, seconds=3600.0) == READ
    assert anyio.current_time() - began == pytest.approx(3600)


@virtual_time
async def test_a_body_may_be_slow() -> None:
    began = anyio.current_time()
    assert await parse_pieces(CHUNKED, WHOLE[len(CHUNKED) :][:4], WHOLE[len(CHUNKED) + 4 :], seconds=29.0) == READ
    assert anyio.current_time() - began == pytest.approx(3 * 29)


@virtual_time
@pytest.mark.parametrize("pieces", [[b"a"], [b"a"] * 99], ids=["stops", "arrives byte by byte"])
async def test_a_body_that_is_incomplete_after_a_minute_times_out(pieces: list[bytes]) -> None:
    began = anyio.current_time()
    assert await parse_pieces(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n", *pieces, seconds=1.0) is None
    assert anyio.current_time() - began == pytest.approx(1 + BODY_TIMEOUT)


@virtual_time
async def test_the_rest_of_a_pipelined_head_has_the_same_timeout() -> None:
    conversation = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    line = Pieces([b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\nGET /2 HT"])
    assert await _read_request(line, conversation) == Request("GET", "/1", {"host": "a"})
    conversation.send(h11.Response(status_code=204, headers=[]))
    conversation.send(h11.EndOfMessage())
    conversation.start_next_cycle()
    began = anyio.current_time()
    assert await _read_request(line, conversation) is None
    assert anyio.current_time() - began == pytest.approx(HEAD_TIMEOUT)
