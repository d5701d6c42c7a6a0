"""Connections of the socket transport: callbacks of the event loop, slots of their pool, and several addresses."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest
from support.listener import Listener, hang, serve
from support.time import virtual_time
from support.transports import POST, connected

from outreach_async import Progress, Response, SocketTransport
from outreach_async.errors import TransportError
from outreach_async.transport._socket_pool import (
    Origin,
    ProtocolConnection,
    ProtocolPool,
    connect_first,
    interleave_families,
)
from outreach_async.transport._socket_reader import parse_by_h11

on_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
RESPONSE: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Wire(asyncio.Transport):
    """A transport of asyncio that is connected to nothing."""

    def __init__(self, connection: socket.socket | None) -> None:
        super().__init__({"socket": connection})
        self.written = b""
        self.unsent = 0
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


class Stage:
    """A connection over a `Wire`. The test supplies the incoming bytes."""

    def __init__(self, *, has_socket: bool = True) -> None:
        self.sockets = socket.socketpair()
        self.wire = Wire(self.sockets[0] if has_socket else None)
        self.connection = ProtocolConnection(asyncio.get_running_loop(), 1_000, parse_by_h11, set(), memoryview(bytearray(1_000)))
        self.connection.connection_made(self.wire)

    async def exchange(self) -> asyncio.Task[Response]:
        async def run() -> Response:
            return self.connection.finish(await self.connection.start(b"request", "POST", Progress()))

        running = asyncio.create_task(run())
        await asyncio.sleep(0)
        return running

    def receive(self, data: bytes) -> None:
        """Pass bytes to the connection, as asyncio does."""
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def close(self) -> None:
        for each in self.sockets:
            each.close()


@on_asyncio
async def test_a_response_before_the_whole_request_was_sent_ends_the_connection() -> None:
    stage = Stage()
    running = await stage.exchange()
    stage.wire.unsent = 1
    stage.receive(RESPONSE)
    assert (await running).body == b"ok"
    assert not stage.connection.is_reusable
    stage.close()


@on_asyncio
async def test_after_the_end_of_a_connection_its_descriptor_is_not_read() -> None:
    stage = Stage()
    running = await stage.exchange()
    stage.receive(RESPONSE)
    await running
    running = await stage.exchange()
    stage.receive(RESPONSE)
    stage.connection.eof_received()
    stage.sockets[1].send(b"of the connection that has the descriptor now")
    assert (await running).body == b"ok"
    assert not stage.connection.is_reusable
    stage.close()


@on_asyncio
async def test_what_arrives_after_a_cancellation_is_ignored() -> None:
    for arrives in (RESPONSE, b"no HTTP", None):
        stage = Stage()
        running = await stage.exchange()
        running.cancel()
        if arrives is None:
            stage.connection.eof_received()
        else:
            stage.receive(arrives)
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not stage.connection.is_reusable
        stage.close()


@on_asyncio
async def test_bytes_between_two_requests_close_the_connection() -> None:
    stage = Stage()
    running = await stage.exchange()
    stage.receive(RESPONSE)
    await running
    stage.receive(RESPONSE)  # a copy
    assert stage.wire.is_closed
    assert not stage.connection.is_reusable
    stage.close()


@on_asyncio
async def test_a_copy_before_the_second_response_is_read_leaves_it_uncertain() -> None:
    stage = Stage()
    running = await stage.exchange()
    stage.receive(RESPONSE)
    await running
    running = await stage.exchange()
    stage.receive(RESPONSE)
    stage.receive(RESPONSE)  # before the task of the second request runs again
    with pytest.raises(TransportError, match="unexpected bytes") as caught:
        await running
    assert caught.value.maybe_sent
    stage.close()


@on_asyncio
async def test_a_connection_reset_as_soon_as_it_was_made_has_no_socket() -> None:
    stage = Stage(has_socket=False)
    with pytest.raises(ConnectionResetError, match="the server closed the connection"):
        stage.connection.require_open()
    stage.close()


@on_asyncio
async def test_a_slot_handed_to_a_cancelled_request_is_free_again() -> None:
    async with connected(SocketTransport, serve(), max_in_flight=1) as (transport, listener):
        slots = transport._senders.get()._slots
        for cancels_first in (True, False):
            slots.acquire_nowait()  # the slot of another exchange
            waiting = asyncio.create_task(transport.send(POST, Progress()))
            await asyncio.sleep(0)
            for step in (waiting.cancel, slots.release) if cancels_first else (slots.release, waiting.cancel):
                step()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert slots.value == 1
        assert (await transport.send(POST, Progress())).status == 200
    assert len(listener.requests) == 1


class LoggedProgress(Progress):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if (name, value) == ("sent", True):
            self.log.append("sent")


@on_asyncio
async def test_requests_of_tasks_that_resume_together_are_sent_in_a_row() -> None:
    log: list[str] = []

    async def work(name: str) -> None:
        await asyncio.sleep(0)
        log.append(name)
        await transport.send(POST, LoggedProgress(log))

    async with connected(SocketTransport, serve(), max_in_flight=3) as (transport, _):
        for names in ("abc", "def"):
            await asyncio.gather(*map(work, names))
    # The first exchange never waits for the others. In the second round, the connections are already open.
    assert log[6:] == ["d", "sent", "e", "f", "sent", "sent"]


class LatePool(ProtocolPool):
    """A pool that is closed just after a connection was made, when its exchange can no longer be cancelled."""

    async def _open(self) -> ProtocolConnection:
        connection = await super()._open()
        with anyio.CancelScope(shield=True):
            self.closing = asyncio.create_task(self.aclose())
            await asyncio.sleep(0)
        return connection


@on_asyncio
async def test_closing_when_a_connection_has_just_been_made_sends_nothing() -> None:
    with Listener(hang) as listener:
        pool = LatePool(Origin("localhost", listener.port, None), 1, 1_000, parse_by_h11)
        progress = Progress()
        progress.sent = False
        with pytest.raises(TransportError, match="was closed while the request was in flight") as caught:
            await pool.send(b"GET / HTTP/1.1\r\n\r\n", "GET", progress)
        await pool.closing
        assert (progress.sent, caught.value.maybe_sent, pool._connections) == (False, False, set())
        await anyio.to_thread.run_sync(listener.wait_idle)
    assert listener.requests == []


# Several addresses.

V4: Final = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
V6: Final = (socket.AF_INET6, socket.SOCK_STREAM, 6, "")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([(*V6, ("6a", 1, 0, 0)), (*V6, ("6b", 1, 0, 0)), (*V4, ("4a", 1)), (*V4, ("4b", 1))], ["6a", "4a", "6b", "4b"]),
        ([(*V4, ("4a", 1)), (*V6, ("6a", 1, 0, 0)), (*V6, ("6b", 1, 0, 0))], ["4a", "6a", "6b"]),
        ([(*V4, ("4a", 1))], ["4a"]),
    ],
)
def test_addresses_alternate_between_families(found: list[tuple[Any, ...]], expected: list[str]) -> None:
    assert interleave_families(found) == expected


class Addresses:
    """Connects to fictitious addresses. Each attempt takes the given seconds, and fails if they are negative."""

    def __init__(self, **delays: float) -> None:
        self.tried: dict[str, float] = {}
        self.ended: list[str] = []
        self._delays = delays

    async def connect(self, address: str) -> str:
        self.tried[address] = round(anyio.current_time() - self.began, 3)
        try:
            await anyio.sleep(abs(self._delays[address]))
        except BaseException:
            self.ended.append(address)
            raise
        if self._delays[address] < 0:
            raise ConnectionRefusedError(f"{address} refused")
        return address

    async def race(self) -> str:
        self.began = anyio.current_time()
        return await connect_first(list(self._delays), self.connect, self.ended.append)


@virtual_time
@pytest.mark.parametrize(
    ("delays", "winner", "tried", "ended"),
    [
        pytest.param({"a": -0.1, "b": 0.1, "c": 0.1}, "b", {"a": 0, "b": 0.1}, 0, id="at once after a failure"),
        pytest.param({"a": 10, "b": 10, "c": 0.1}, "c", {"a": 0, "b": 0.25, "c": 0.5}, 2, id="beside slow ones"),
        pytest.param({"a": 0.3, "b": 0.2}, "a", {"a": 0, "b": 0.25}, 1, id="a slow one may still be the first"),
    ],
)
async def test_the_first_address_that_connects_wins(
    delays: dict[str, float], winner: str, tried: dict[str, float], ended: int
) -> None:
    addresses = Addresses(**delays)
    assert await addresses.race() == winner
    assert (addresses.tried, len(addresses.ended), winner in addresses.ended) == (tried, ended, False)


@virtual_time
async def test_of_two_connections_at_once_one_is_closed() -> None:
    addresses = Addresses(a=1.0, b=0.75)
    assert sorted([await addresses.race(), *addresses.ended]) == ["a", "b"]


@virtual_time
async def test_if_every_address_fails_the_error_names_each() -> None:
    with pytest.raises(OSError, match=r"^a refused; b refused$"):
        await Addresses(a=-0.1, b=-0.4).race()
    with pytest.raises(ConnectionRefusedError, match=r"^a refused$"):
        await Addresses(a=-0.1).race()


@virtual_time
async def test_a_cancelled_race_closes_what_it_made() -> None:
    made: list[str] = []

    async def connect(address: str) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1.0)
        return address

    with anyio.move_on_after(0.5) as scope:
        await connect_first(["a", "b"], connect, made.append)
    assert scope.cancelled_caught
    assert made == ["a", "b"]
