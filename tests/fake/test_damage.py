from __future__ import annotations

import gzip
import math
from typing import get_args

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async import Response
from outreach_async.fake import faults as f
from outreach_async.fake._damage import SERVER_STEPS, ConnectionEnd, ServerStep, deliver
from outreach_async.fake.faults import WireFault, WireFaultKind

Broken = str
SIZES = st.integers(0, 40)
BODIES = st.binary(max_size=30)


def read(sequence: list[ServerStep]) -> bytes | Broken:
    """Parse a server's response and its end like a strict client. Return the body, or why there is none."""
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=100 * 1024)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(b"".join(act for act in sequence if isinstance(act, bytes)))
    if ConnectionEnd.HANG in sequence:
        return "hangs"
    if ConnectionEnd.RESET in sequence:
        return "reset"
    client.receive_data(b"")
    return events(client)


def events(client: h11.Connection) -> bytes | Broken:
    body, encoding = b"", b""
    try:
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                encoding = dict(event.headers).get(b"content-encoding", b"")
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return "closed"
        return gzip.decompress(body) if encoding else body
    except (h11.RemoteProtocolError, gzip.BadGzipFile, EOFError) as error:
        return str(error) or type(error).__name__


def head_of(body: bytes) -> bytes:
    return b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)


def wire(fault: f.Fault) -> WireFault:
    assert isinstance(fault, WireFault)
    return fault


FAULTS = st.one_of(
    st.builds(f.latency, st.floats(0, 9)),
    st.builds(f.truncate, SIZES),
    st.builds(f.reset_mid_body, SIZES),
    st.builds(f.wrong_length, st.integers(1, 40)),
    st.builds(f.slow_drip, st.integers(1, 40), st.floats(0, 9)),
    st.sampled_from(
        [
            f.hang(),
            f.reset(),
            f.close(),
            f.malformed("bad_chunk"),
            f.malformed("no_final_chunk"),
            f.malformed("garbage"),
            f.malformed("long_header"),
        ]
    ),
    st.just(f.malformed("wrong_encoding")),
)


def server_steps(fault: f.Fault, body: bytes) -> list[ServerStep]:
    return list(SERVER_STEPS[wire(fault).kind](wire(fault), head_of(body), body))


@given(FAULTS, BODIES)
def test_the_bytes_of_a_fault_are_read_as_the_client_result_predicts(fault: f.Fault, body: bytes) -> None:
    delivery, sequence = deliver(wire(fault), Response(201, {}, body), "POST"), server_steps(fault, body)
    arrives = b"".join(part for _, part in delivery.parts)
    found = read(sequence)
    if body or fault != f.malformed("wrong_encoding"):  # an empty body is empty, compressed or not
        assert isinstance(found, Broken) if delivery.lost else found == arrives
    assert delivery.wait + sum(seconds for seconds, _ in delivery.parts) == (
        math.inf if ConnectionEnd.HANG in sequence else pytest.approx(sum(act for act in sequence if isinstance(act, float)))
    )


@given(SIZES.filter(bool), st.floats(0, 9), st.binary(min_size=1, max_size=30))
def test_a_drip_arrives_in_pieces_with_a_pause_before_each(size: int, every: float, body: bytes) -> None:
    _, *rest = server_steps(f.slow_drip(size, every), body)
    assert rest[::2] == [every] * math.ceil(len(body) / size)
    assert all(isinstance(piece, bytes) and len(piece) == size for piece in rest[1:-1:2])


def test_a_server_has_steps_for_every_kind_of_fault() -> None:
    assert set(SERVER_STEPS) == set(get_args(WireFaultKind))


def test_a_refused_connection_is_a_reset_on_sockets() -> None:
    assert server_steps(f.refuse(), b"") == [ConnectionEnd.RESET]
