"""A typed loop written by hand: the least that an application does for each row, without retries, limits, deadlines or checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast

import msgspec

from benchmarks.measuring import Whole
from benchmarks.workload import OPTIONS, OWNER_KEY, WORKSPACE, rows

_FIELDS: Final = "host: x\r\ncontent-type: application/json\r\naccept: application/json\r\ncontent-length: %d"
_HEAD: Final = f"POST /contacts HTTP/1.1\r\n{_FIELDS}\r\n\r\n".encode()


class _Answer(msgspec.Struct):
    """The response to a creation."""

    status: str
    id: str | None
    details: str | None


class _Connection(asyncio.Protocol):
    """One connection, with one exchange at a time. A response must arrive in one piece."""

    answer: asyncio.Future[bytes]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's class is not a subclass
        if hasattr(transport, "max_size"):
            transport.max_size = 65_536  # as in `raw`

    def data_received(self, data: bytes) -> None:
        self.answer.set_result(data[data.index(b"\r\n\r\n") + 4 :])


@asynccontextmanager
async def bulk(url: str, concurrency: int) -> AsyncIterator[Whole]:
    """Create contacts from a fixed number of tasks, each with its own connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    loop = asyncio.get_running_loop()
    connections = [(await loop.create_connection(_Connection, host, int(port)))[1] for _ in range(concurrency)]
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(_Answer).decode
    prefix = encode({"owner_key": OWNER_KEY, "workspace": WORKSPACE, "upload_options": OPTIONS})[:-1] + b","

    async def whole(count: int) -> int:
        left, added = rows(count), 0

        async def work(connection: _Connection) -> None:
            nonlocal added
            for row in left:
                body = prefix + encode(row)[1:]
                connection.answer = loop.create_future()
                connection.transport.write(_HEAD % len(body) + body)
                status = decode(await connection.answer).status
                added += status == "added"

        await asyncio.gather(*map(work, connections))
        return added

    yield whole
    for connection in connections:
        connection.transport.close()
