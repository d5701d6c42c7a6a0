"""What each fault on the wire does: the bytes a server sends, and what a client makes of them.

The two tables are two views of one thing, so that a test on the fake's transport means what it would mean over a socket. `BYTES`
turns a correct answer into what is sent instead; `READ` says what comes of it for a client, as measured with real backends: an
answer, perhaps a damaged one, or the reason why there is none. Both are pure.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping

import attrs

from outreach_async.fake.exchange import Kind, WireFault
from outreach_async.transport.wire import Response


class End(enum.Enum):
    """How a conversation ends early."""

    CLOSE = "close"
    """The connection is closed in order (FIN)."""
    RESET = "reset"
    """The connection is torn down (RST)."""
    HANG = "hang"
    """Nothing more is sent until the client leaves."""


Act = bytes | float | End
"""One act of a server: bytes are sent, seconds are waited, an end is the last."""

LONG_HEADER = 256 * 1024
"""Bytes of an over-long header field, which never ends: httpx takes 100 KiB, aiohttp 8 KiB."""

# Random, yet the same in every run; without a line's end, which would make a shorter garbage of it.
_GARBAGE = hashlib.blake2b(b"not a status line").digest().replace(b"\n", b"").replace(b"\r", b"") + b"\r\n\r\n"


def acts(fault: WireFault | None, head: bytes, body: bytes) -> Iterable[Act]:
    """Tell a server what to do for an answer.

    Args:
        fault: What happens on the wire, if anything.
        head: The correct answer's status line and header fields with their closing empty line; empty if there is no answer.
        body: The correct answer's body as sent.

    Returns:
        Acts; the conversation goes on after them unless the last one is an `End`.
    """
    return (head + body,) if fault is None else BYTES[fault.kind](fault, head, body)


def _drip(fault: WireFault, head: bytes, body: bytes) -> Iterator[Act]:
    yield head
    for start in range(0, len(body), fault.size):
        yield fault.seconds
        yield body[start : start + fault.size]


def _cut(fault: WireFault, head: bytes, body: bytes) -> bytes:
    # A cut past the body's end would be none: the stated length then grows instead.
    sent = body[: fault.size]
    return _with_length(head, max(len(body), len(sent) + 1)) + sent


def _chunked(head: bytes, body: bytes, end: bytes) -> bytes:
    return _with_field(head, b"transfer-encoding: chunked") + b"%x\r\n%b\r\n" % (len(body) or 1, body or b" ") + end


def _with_length(head: bytes, length: int) -> bytes:
    return _with_field(head, b"content-length: %d" % length)


def _with_field(head: bytes, field: bytes) -> bytes:
    """Replace the field that says how long the body is."""
    lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"content-length:")]
    return b"\r\n".join([*lines, field, b"", b""])


BYTES: Mapping[Kind, Callable[[WireFault, bytes, bytes], Iterable[Act]]] = {
    "latency": lambda fault, head, body: (fault.seconds, head + body),
    "slow_drip": _drip,
    "hang": lambda *_: (End.HANG,),
    "refuse": lambda *_: (End.RESET,),
    "reset": lambda *_: (End.RESET,),
    "close": lambda *_: (End.CLOSE,),
    "truncate": lambda fault, head, body: (_cut(fault, head, body), End.CLOSE),
    "reset_mid_body": lambda fault, head, body: (_cut(fault, head, body), End.RESET),
    "bad_chunk": lambda _, head, body: (_chunked(head, body, b"no size\r\n"), End.CLOSE),
    "no_final_chunk": lambda _, head, body: (_chunked(head, body, b""), End.CLOSE),
    "garbage": lambda *_: (_GARBAGE, End.CLOSE),
    "long_header": lambda *_: (b"HTTP/1.1 200 OK\r\nx-long: " + b"l" * LONG_HEADER, End.CLOSE),
    "wrong_encoding": lambda _, head, body: (head[:-2] + b"content-encoding: gzip\r\n\r\n" + body, End.CLOSE),
    "wrong_length": lambda fault, head, body: (_with_length(head, max(0, len(body) - fault.size)) + body, End.CLOSE),
}
"""What a server does instead of sending the answer."""


@attrs.frozen
class Reading:
    """What a client makes of an answer.

    Attributes:
        wait: Seconds until it knows; infinite if it never will.
        response: What it reads; `None` if no whole answer arrives.
        reason: Why none does.
        sent: Whether a byte of the request may have left.
    """

    wait: float = 0.0
    response: Response | None = None
    reason: str = ""
    sent: bool = True


def reading(fault: WireFault | None, response: Response | None) -> Reading:
    """Tell what a client makes of an exchange."""
    if fault is None:
        return Reading(response=response)
    return READ[fault.kind](fault, response or Response(200))


def _lost(reason: str, *, sent: bool = True, wait: float = 0.0) -> Callable[[WireFault, Response], Reading]:
    return lambda *_: Reading(reason=reason, sent=sent, wait=wait)


def _dripped(fault: WireFault, response: Response) -> Reading:
    return Reading(fault.seconds * math.ceil(len(response.body) / fault.size), response)


def _shortened(fault: WireFault, response: Response) -> Reading:
    return Reading(response=attrs.evolve(response, body=response.body[: max(0, len(response.body) - fault.size)]))


READ: Mapping[Kind, Callable[[WireFault, Response], Reading]] = {
    "latency": lambda fault, response: Reading(fault.seconds, response),
    "slow_drip": _dripped,
    "hang": _lost("no answer", wait=math.inf),
    "refuse": _lost("connection refused", sent=False),
    "reset": _lost("connection reset before an answer"),
    "close": _lost("connection closed before an answer"),
    "truncate": _lost("connection closed within the answer's body"),
    "reset_mid_body": _lost("connection reset within the answer's body"),
    "bad_chunk": _lost("the answer is not HTTP: a chunk without a size"),
    "no_final_chunk": _lost("connection closed before the answer's last chunk"),
    "garbage": _lost("the answer is not HTTP: no status line"),
    "long_header": _lost("the answer is not HTTP: a header field too long"),
    "wrong_encoding": _lost("the answer's body is not in its stated encoding"),
    "wrong_length": _shortened,
}
"""What a client makes of it."""
