"""Arbitrary bytes over real sockets: all backends agree on a response or a `TransportError`, in bounded memory and time."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.fuzz import bodies, client_of, ending, good_answers, grows_by_at_most, mutated, operations
from support.listener import Behaviour, Listener, Peer, answer_once
from support.transport import Script
from support.transports import ALL, GET, LOOPS, MAKERS, OWN, POST, SOCKETS, Make, pairs
from support.wire import unhurried

from outreach_async import Progress, Response
from outreach_async.errors import TransportError

LIMIT: Final = 500_000
"""Maximum size of a response, in bytes."""
FLOOD: Final = 20_000_000
"""Bytes a hostile service sends unless it is stopped."""

FIRST: Final = b"HTTP/1.1 200 OK\r\n"
CHUNKED: Final = FIRST + b"transfer-encoding: chunked\r\n"


def places(*names: str) -> pytest.MarkDecorator:
    """Run a test with each of these transports on asyncio, and with two of them on trio."""
    chosen = [(name, loop) for name, loop in pairs(*names) if loop == "asyncio" or name in {"httpx", *SOCKETS}]
    cells = [pytest.param(MAKERS[name], LOOPS[loop], id=f"{name}-{loop}") for name, loop in chosen]
    return pytest.mark.parametrize(("make", "anyio_backend"), cells, indirect=["anyio_backend"])


everywhere, on_our_own = places(*ALL), places(*OWN)
"""Transports over a given client or session share their reading code with the package's own."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def flood(head: bytes, data: bytes) -> Behaviour:
    """Read a request, send `head`, and repeat `data` until the client disconnects or `FLOOD` bytes are sent."""

    def behave(peer: Peer) -> None:
        peer.request()
        peer.send(head)
        for _ in range(FLOOD // len(data)):
            peer.send(data)
        peer.outlast()

    return behave


# Any bytes


def raw_answers() -> st.SearchStrategy[bytes]:
    whole = tuple(FIRST + b"content-length: %d\r\n\r\n%b" % (len(body), body) for body in good_answers())
    chunked = tuple(CHUNKED + b"\r\n" + chunk(body) + b"0\r\n\r\n" for body in good_answers())
    zipped = (FIRST + b"content-encoding: gzip\r\nset-cookie: a=b; max-age=x\r\n\r\n" + gzip.compress(b"{}", mtime=0),)
    lines = st.sampled_from(
        [b"HTTP/1.1 ", b"HTTP/1.0 ", b"200", b"\r\n", b"\n", b"\r", b": ", b"content-length", b"\x00", b"101 ", b"204 "]
    )
    return mutated((*whole, *chunked, *zipped)) | st.lists(lines | st.binary(max_size=4), max_size=20).map(b"".join)


@everywhere
@settings(unhurried, max_examples=scaled(8))
@given(st.lists(st.deferred(raw_answers), min_size=1, max_size=3))
async def test_any_bytes_are_a_response_or_an_error_that_never_denies(make: Make, raw: list[bytes]) -> None:
    with Listener(*map(answer_once, raw)) as listener, anyio.fail_after(60):
        transport = make(listener.url, max_answer=LIMIT)
        for request in (POST, GET) * len(raw):
            try:
                answer = await transport.send(request, Progress())
            except TransportError as error:
                assert error.maybe_sent  # noqa: PT017 - there may be none
                assert "key_secret" not in str(error)  # noqa: PT017 - there may be none
            else:
                assert 200 <= answer.status <= 999
                "".join(answer.headers.values()).encode()
        await transport.aclose()


# The same result for every backend


CODINGS: Final[Mapping[str, Callable[[bytes], bytes]]] = {"": bytes, "gzip": gzip.compress, "deflate": zlib.compress}
values = st.binary(max_size=8).map(lambda text: bytes(byte for byte in text if byte > 0x20 and byte != 0x7F))


@st.composite
def framed(draw: st.DrawFn) -> bytes:
    status = draw(st.integers(200, 599).filter(lambda code: code not in {204, 205, 304}))
    coding = draw(st.sampled_from(sorted(CODINGS)))
    body = CODINGS[coding](draw(bodies))
    names = st.sampled_from([b"x-a", b"X-B", b"retry-after", b"x-request-id", b"set-cookie"])
    fields = [b"%b: %b" % pair for pair in draw(st.lists(st.tuples(names, values), max_size=4))]
    fields += [b"content-encoding: %b" % coding.encode()] if coding else []
    framing = draw(st.sampled_from([b"content-length: %d" % len(body), b"transfer-encoding: chunked", b"connection: close"]))
    if framing.startswith(b"transfer"):
        body = b"".join(chunk(body[at : at + 1_000]) for at in range(0, len(body), 1_000)) + b"0\r\n\r\n"
    return b"\r\n".join([b"HTTP/1.1 %d X" % status, *fields, framing, b"", body])


async def carried(make: Make, raw: bytes, operation: str) -> Any:
    with Listener(answer_once(raw)) as listener:
        async with client_of(make(listener.url)) as client:
            return await ending(client, operation)


@pytest.mark.parametrize("anyio_backend", [LOOPS["asyncio"]], ids=["asyncio"], indirect=True)
@settings(unhurried, max_examples=scaled(8))
@given(framed(), operations)
async def test_a_call_ends_alike_over_every_transport(raw: bytes, operation: str) -> None:
    with anyio.fail_after(60):
        answers: list[Response] = []
        with Listener(answer_once(raw)) as listener:
            transport = MAKERS["httpx"](listener.url)
            answers.append(await transport.send(POST, Progress()))
            await transport.aclose()
        async with client_of(Script(answers[0])) as client:
            expected = await ending(client, operation)
        for name in ALL:
            assert await carried(MAKERS[name], raw, operation) == expected


# Excessive responses


ZEROS: Final = gzip.compress(bytes(20_000_000), 1, mtime=0)  # quickly, because every worker does so

FLOODS: Final[dict[str, tuple[bytes, bytes]]] = {
    "a bomb in gzip": (CHUNKED + b"content-encoding: gzip\r\n\r\n", chunk(ZEROS)),
    "a bomb in deflate": (CHUNKED + b"content-encoding: deflate\r\n\r\n", chunk(zlib.compress(bytes(20_000_000), 1))),
    "a bomb in a bomb": (CHUNKED + b"content-encoding: gzip, gzip\r\n\r\n", chunk(gzip.compress(ZEROS, mtime=0))),
    "a bomb in a bomb, said twice": (CHUNKED + b"content-encoding: gzip\r\n" * 2 + b"\r\n", chunk(gzip.compress(ZEROS, mtime=0))),
    "gzip of nothing, again and again": (CHUNKED + b"content-encoding: gzip\r\n\r\n", chunk(gzip.compress(b"", mtime=0) * 3_000)),
    "deflate of nothing, without end": (
        CHUNKED + b"content-encoding: deflate\r\n\r\n" + chunk(b"\x78\x9c"),
        chunk(b"\x00\x00\x00\xff\xff" * 10_000),
    ),
    "a status line without end": (b"HTTP/1.1 200 ", b"x" * 65_536),
    "a header line without end": (FIRST + b"x: ", b"y" * 65_536),
    "a header name without end": (FIRST, b"y" * 65_536),
    "header lines without end": (FIRST, b"x: y\r\n" * 8_000),
    "trailers without end": (CHUNKED + b"\r\n0\r\n", b"x: y\r\n" * 8_000),
    "a body without end": (FIRST + b"\r\n", b"x" * 65_536),
    "a body without end in chunks": (CHUNKED + b"\r\n", chunk(b"x" * 8_192) * 8),
    "two lengths": (FIRST + b"content-length: 5\r\ncontent-length: 6\r\n\r\n", b"x" * 65_536),
    "a length of thousands of digits": (FIRST + b"content-length: " + b"9" * 5_000 + b"\r\n\r\n", b"x" * 65_536),
    "a length and chunks": (CHUNKED + b"content-length: 5\r\n\r\n", chunk(b"x") * 8_000),
    "another protocol": (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", b"x" * 65_536),
    "no HTTP": (b"", b"\x00\xff" * 32_768),
}


@on_our_own
@pytest.mark.parametrize("kind", FLOODS)
async def test_oversized_responses_are_refused_in_bounded_memory(make: Make, kind: str) -> None:
    with Listener(flood(*FLOODS[kind])) as listener, anyio.fail_after(60):
        transport = make(listener.url, max_answer=LIMIT)
        with grows_by_at_most(8), pytest.raises(TransportError) as caught:
            await transport.send(POST, Progress())
        assert caught.value.maybe_sent
        assert len(str(caught.value)) < 400
        await transport.aclose()
        await anyio.to_thread.run_sync(listener.wait_idle)


ENDLESS: Final = {
    "interim answers without end": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100),
    "chunks of a byte": (CHUNKED + b"\r\n", chunk(b"x") * 200),
    "an extension without end": (CHUNKED + b"\r\n5;", b"x" * 65_536),
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "make", "anyio_backend"),
    [
        pytest.param(kind, MAKERS[name], LOOPS[loop], id=f"{kind}-{name}-{loop}")
        for kind, loop in zip(ENDLESS, ("asyncio", "trio", "asyncio"), strict=True)
        for name, loop in (("httpx", loop), ("aiohttp", "asyncio"), *((each, loop) for each in SOCKETS))
    ],
    indirect=["anyio_backend"],
)
async def test_an_endless_response_ends_by_size_or_timeout_in_bounded_memory(make: Make, kind: str) -> None:
    with Listener(flood(*ENDLESS[kind])) as listener, anyio.fail_after(60), grows_by_at_most(12):
        async with client_of(make(listener.url, max_answer=LIMIT), timeout=0.05) as client:
            with pytest.raises(TransportError):
                await client.request("GET", "/")
