"""The server of the benchmarks: it sends prepared responses, in its own process and on its own core.

The benchmarks start it. Its first line on stdout is the port.
"""

from __future__ import annotations

import asyncio
import sys
import time
from functools import cache
from importlib.util import find_spec
from typing import Final, cast

from benchmarks.machine import pin_server
from benchmarks.workload import ANSWER_FIELDS, CREATED, Pages, numbered

_FIELDS: Final = "".join(f"{name}: {value}\r\n" for name, value in ANSWER_FIELDS.items())


def _whole(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\n{_FIELDS}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


_POSTED: Final = _whole("201 Created", CREATED)


@cache
def _pages(items: int, pages: int) -> Pages:
    return Pages(items, pages)


@cache  # rendered once, while warming up
def _page(workspace: str, page: int) -> tuple[bytes, float]:
    items, pages, delay_ms = map(int, workspace.removeprefix("space_").split("x"))
    return _whole("200 OK", _pages(items, pages).body(page)), delay_ms / 1000


@cache
def _asked(head: bytes) -> tuple[str, int]:
    query = dict(pair.split("=") for pair in head.split(b" ", 2)[1].decode().partition("?")[2].split("&"))
    return query["workspace"], int(query["page"])


class Service(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self) -> None:
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport for responses."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class is not a subclass

    def data_received(self, data: bytes) -> None:
        """Respond to every complete request."""
        self._unread += data
        while (end := self._unread.find(b"\r\n\r\n") + 4) > 3:
            end += _length(self._unread[:end])
            if len(self._unread) < end:
                return
            request, self._unread = self._unread[:end], self._unread[end:]
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        if request.startswith(b"POST"):
            self._transport.write(numbered(_POSTED))
        elif request.startswith(b"GET /cpu"):
            self._transport.write(_whole("200 OK", b"%.6f" % time.process_time()))
        else:
            answer, delay = _page(*_asked(request[: request.index(b"\r\n")]))
            if delay:
                asyncio.get_running_loop().call_later(delay, self._transport.write, answer)
            else:
                self._transport.write(answer)


@cache  # the requests of a client have identical heads
def _length(head: bytes) -> int:
    """Return the length of the body that follows a head."""
    if not head.startswith(b"POST"):
        return 0
    at = head.lower().index(b"content-length:") + 15
    return int(head[at : head.index(b"\r\n", at)])


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(Service, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    """Serve until terminated, on uvloop if it is installed."""
    pin_server()
    factory = None
    if find_spec("uvloop"):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_serve())


if __name__ == "__main__":
    main()
