"""The effects of wire faults: what a server sends, and what a client then gets.

`SERVER_STEPS` defines the steps with which a server sends each faulty response over a socket, and `deliver` what a client gets
without one. They match what was measured with real HTTP libraries: `FakeTransport` gives a test the same result as a socket.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from outreach_async.fake.faults import WireFault, WireFaultKind
from outreach_async.transport._wire import Response


class ConnectionEnd(enum.Enum):
    CLOSE = "close"
    RESET = "reset"
    HANG = "hang"  # send nothing more, and wait until the client closes the connection


# Bytes to send, seconds to wait, or, as the last step, the end of the connection.
ServerStep = bytes | float | ConnectionEnd

LONG_HEADER_BYTES = 256 * 1024  # httpx accepts at most 100 KiB, aiohttp 8 KiB

# Random-looking bytes, the same in every run. Line breaks are removed, because they would end the status line early.
_GARBAGE = hashlib.blake2b(b"not a status line").digest().replace(b"\n", b"").replace(b"\r", b"") + b"\r\n\r\n"


def _drip_steps(fault: WireFault, head: bytes, body: bytes) -> Iterator[ServerStep]:
    yield head
    for piece in _cut_pieces(fault, body):
        yield fault.seconds
        yield piece


def _cut_pieces(fault: WireFault, body: bytes) -> Iterator[bytes]:
    return (body[start : start + fault.size] for start in range(0, len(body), fault.size))


def _cut_body(fault: WireFault, head: bytes, body: bytes) -> bytes:
    # The body may be shorter than the cut. The content-length is then increased, so that the body is still incomplete.
    sent = body[: fault.size]
    return _with_field(head, b"content-length: %d" % max(len(body), len(sent) + 1)) + sent


def _encode_chunked(head: bytes, body: bytes, end: bytes) -> bytes:
    return _with_field(head, b"transfer-encoding: chunked") + b"%x\r\n%b\r\n" % (len(body) or 1, body or b" ") + end


def _with_field(head: bytes, field: bytes) -> bytes:
    lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"content-length:")]
    return b"\r\n".join([*lines, field, b"", b""])


def announce_end(head: bytes, *fields: bytes) -> bytes:
    # To a client, the response is complete. Without the announcement, its pool would send the next request on this connection.
    return b"\r\n".join([head[:-4], *fields, b"connection: close", b"", b""])


SERVER_STEPS: Mapping[WireFaultKind, Callable[[WireFault, bytes, bytes], Iterable[ServerStep]]] = {
    "latency": lambda fault, head, body: (fault.seconds, head + body),
    "slow_drip": _drip_steps,
    "hang": lambda *_: (ConnectionEnd.HANG,),
    "refuse": lambda *_: (ConnectionEnd.RESET,),
    "reset": lambda *_: (ConnectionEnd.RESET,),
    "close": lambda *_: (ConnectionEnd.CLOSE,),
    "truncate": lambda fault, head, body: (_cut_body(fault, head, body), ConnectionEnd.CLOSE),
    "reset_mid_body": lambda fault, head, body: (_cut_body(fault, head, body), ConnectionEnd.RESET),
    "bad_chunk": lambda _, head, body: (_encode_chunked(head, body, b"no size\r\n"), ConnectionEnd.CLOSE),
    "no_final_chunk": lambda _, head, body: (_encode_chunked(head, body, b""), ConnectionEnd.CLOSE),
    "garbage": lambda *_: (_GARBAGE, ConnectionEnd.CLOSE),
    "long_header": lambda *_: (b"HTTP/1.1 200 OK\r\nx-long: " + b"l" * LONG_HEADER_BYTES, ConnectionEnd.CLOSE),
    "wrong_encoding": lambda _, head, body: (announce_end(head, b"content-encoding: gzip") + body, ConnectionEnd.CLOSE),
    "wrong_length": lambda fault, head, body: (
        announce_end(_with_field(head, b"content-length: %d" % max(0, len(body) - fault.size))) + body,
        ConnectionEnd.CLOSE,
    ),
}


# Why a client gets no response.
LOST_RESPONSES: Mapping[WireFaultKind, str] = {
    "hang": "no response",
    "refuse": "connection refused",
    "reset": "connection reset before a response was received",
    "close": "connection closed before a response was received",
    "truncate": "connection closed in the middle of the response body",
    "reset_mid_body": "connection reset in the middle of the response body",
    "bad_chunk": "the response is not valid HTTP: a chunk without a size",
    "no_final_chunk": "connection closed before the last chunk of the response",
    "garbage": "the response is not valid HTTP: no status line",
    "long_header": "the response is not valid HTTP: a header field is too long",
    "wrong_encoding": "the response body does not match its content-encoding",
}


# What a client gets of a body whose rest is lost, after a complete head.
_ARRIVED: Final[Mapping[WireFaultKind, Callable[[WireFault, bytes], bytes]]] = {
    "truncate": lambda fault, body: body[: fault.size],
    "reset_mid_body": lambda fault, body: body[: fault.size],
    "bad_chunk": lambda _, body: body,
    "no_final_chunk": lambda _, body: body,
    "wrong_encoding": lambda *_: b"",
}


@attrs.frozen
class Delivery:
    """What a client gets that reads a response in parts: waits in seconds, the parts of the body, and why the rest is lost."""

    response: Response | None  # none if the head is lost, too
    wait: float = 0.0  # before the head
    parts: Sequence[tuple[float, bytes]] = ()  # each after its own wait
    lost: str = ""


def deliver(fault: WireFault | None, response: Response, method: str) -> Delivery:
    """Return what arrives of a response, which may be damaged. A fault cannot damage the body that HEAD does not get."""
    if fault is None:
        delivery = Delivery(response, parts=[(0.0, response.body)])
    elif fault.kind in LOST_RESPONSES and fault.kind not in _ARRIVED:
        return Delivery(None, fault.seconds, lost=LOST_RESPONSES[fault.kind])
    elif fault.kind == "slow_drip":
        delivery = Delivery(response, parts=[(fault.seconds, piece) for piece in _cut_pieces(fault, response.body)])
    elif fault.kind in _ARRIVED:
        delivery = Delivery(response, 0.0, [(0.0, _ARRIVED[fault.kind](fault, response.body))], LOST_RESPONSES[fault.kind])
    else:
        missing = fault.size if fault.kind == "wrong_length" else 0
        response = attrs.evolve(response, body=response.body[: max(0, len(response.body) - missing)])
        delivery = Delivery(response, fault.seconds, [(0.0, response.body)])
    return attrs.evolve(delivery, parts=(), lost="") if method == "HEAD" else delivery
