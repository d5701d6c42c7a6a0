"""Raw HTTP over a real socket, for tests of the exact bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
import anyio.abc

CLOSED, RESET = "closed", "reset"


@asynccontextmanager
async def connect_to(url: str) -> AsyncIterator[anyio.abc.SocketStream]:
    """Connect to the host and port of a URL."""
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    async with await anyio.connect_tcp(parts.hostname, parts.port) as stream:
        yield stream


async def read_to_end(stream: anyio.abc.SocketStream) -> tuple[bytes, str]:
    """Read until the peer ends the connection. Return the bytes, and how the connection ended."""
    received = b""
    with anyio.fail_after(60):
        try:
            while True:
                received += await stream.receive()
        except anyio.EndOfStream:
            return received, CLOSED
        except anyio.BrokenResourceError:
            return received, RESET


async def read_until(stream: anyio.abc.SocketStream, end: bytes) -> bytes:
    """Read until the received bytes end with `end`, and return them."""
    received = b""
    with anyio.fail_after(60):
        while not received.endswith(end):
            received += await stream.receive()
    return received


async def exchange_bytes(url: str, data: bytes) -> tuple[bytes, str]:
    """Send bytes on a new connection. Return the response, and how the connection ended."""
    async with connect_to(url) as stream:
        await stream.send(data)
        return await read_to_end(stream)


def encode_request(method: str, target: str, body: bytes = b"", *fields: str) -> bytes:
    """Return the bytes of a request, including `content-length`."""
    lines = [f"{method} {target} HTTP/1.1", "host: fake", f"content-length: {len(body)}", *fields]
    return "\r\n".join([*lines, "", ""]).encode() + body
