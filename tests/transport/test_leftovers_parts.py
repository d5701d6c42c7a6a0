"""Places where bytes after a response can be buffered: h11, TLS, anyio and the kernel."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Final

import h11
import httpcore
import httpcore2
import httpx
import httpx2
import pytest
import respx
from support.certificates import certificates
from support.listener import Listener, Peer, in_order
from support.transports import LOOPS, NOWHERE

from outreach_async import HttpxTransport, Progress, Request
from outreach_async.errors import TransportError
from outreach_async.transport._httpx_pool import HttpxPool, _HttpxConnection, warn_of_unknown_state
from outreach_async.transport._leftovers import ConnectionMonitor, SocketProbe, http11_state

RESPONSE: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


# In the kernel.


def test_a_closed_socket_has_no_bytes_and_does_not_block() -> None:
    near, far = socket.socketpair()
    before = SocketProbe(near)
    near.close()
    far.close()
    for probe in (before, SocketProbe(near)):
        assert probe.is_readable()
        assert probe.peek() == b""


def test_a_reset_connection_has_no_bytes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as near:
        far, _ = listener.accept()
        probe = SocketProbe(near)
        assert probe.peek() is None
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing resets the connection
        far.close()
        assert probe.is_readable()
        assert probe.peek() == b""


# In h11.


class Wrapped:
    @property
    def _stream(self) -> Wrapped:
        return Wrapped()


@pytest.mark.parametrize(
    "stream",
    [
        httpx.ByteStream(b"mock"),
        httpx2.ByteStream(b"mock"),
        Wrapped(),
        SimpleNamespace(_connection=SimpleNamespace(_request_count=1)),
        SimpleNamespace(_connection=SimpleNamespace(_h11_state=h11.Connection(h11.CLIENT))),
    ],
    ids=["httpx mock", "httpx2 mock", "unknown wrapper", "no h11", "no count"],
)
def test_a_stream_without_known_attributes_has_no_state(stream: object) -> None:
    assert http11_state(stream) is None


# In a connection.


class Machine:
    def __init__(self, trailing: bytes = b"") -> None:
        self.trailing_data = (trailing, False)
        self.failed = False

    def send_failed(self) -> None:
        self.failed = True


class Network:
    def __init__(self, **parts: object) -> None:
        self._parts = parts

    def get_extra_info(self, info: str) -> object:
        return self._parts.get(info)


def beneath(machine: Machine, count: int) -> object:
    return SimpleNamespace(_connection=SimpleNamespace(_request_count=count, _h11_state=machine))


# In TLS.


class Tls:
    """Both sides of TLS in memory, after the handshake."""

    def __init__(self) -> None:
        keys, self.to_client, to_server = certificates(), ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = keys.server.wrap_bio(to_server, self.to_client, server_side=True)
        self.client = keys.client.wrap_bio(self.to_client, to_server, server_hostname="localhost")
        for side in (self.client, self.server, self.client, self.server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue

    def link(self, **parts: object) -> ConnectionMonitor:
        return ConnectionMonitor(Network(ssl_object=self.client, **parts))


@pytest.mark.parametrize("how", ["closed", "broken"])
def test_a_connection_whose_tls_has_ended_is_closed_without_an_error(how: str) -> None:
    tls = Tls()
    if how == "closed":
        with pytest.raises(ssl.SSLWantReadError):
            tls.server.unwrap()
    else:
        tls.to_client.write(b"no record of TLS")
    machine = Machine()
    assert not tls.link().check_leftovers(beneath(machine, 2), closing=False)
    assert machine.failed


# In anyio.


@pytest.mark.parametrize("anyio_backend", [LOOPS["asyncio"]], indirect=True, ids=["asyncio"])
@pytest.mark.parametrize("backend", [httpcore.AnyIOBackend, httpcore2.AnyIOBackend], ids=["httpcore", "httpcore2"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_bytes_buffered_by_anyio_make_a_later_response_ambiguous(backend: Any, tls: bool) -> None:
    with Listener(in_order(b"abcdef", Peer.outlast)) as listener:
        network = await backend().connect_tcp("127.0.0.1", listener.port)
        assert await network.read(3) == b"abc"
        seen = SimpleNamespace(_stream=SimpleNamespace(transport_stream=network._stream), get_extra_info=lambda _: None)
        link = ConnectionMonitor(seen if tls else network)
        with pytest.raises(TransportError):
            link.check_leftovers(beneath(Machine(), 2), closing=False)
        assert await network.read(3) == b"def"
        assert link.check_leftovers(beneath(Machine(), 2), closing=False)
        await network.aclose()


# Unknown streams.


class Foreign(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"ok"


async def test_a_connection_of_unknown_state_is_used_once_with_one_warning() -> None:
    def respond(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, stream=Foreign(), extensions={"network_stream": Network()})

    warn_of_unknown_state.cache_clear()
    with respx.mock(base_url=NOWHERE) as router:
        router.get("/").mock(side_effect=respond)
        transport = HttpxTransport(NOWHERE)
        with pytest.warns(RuntimeWarning, match="^the installed httpx or httpcore is too new to check its connections, so each"):
            assert (await transport.send(Request("GET", "/"), Progress())).body == b"ok"
        assert (await transport.send(Request("GET", "/"), Progress())).body == b"ok"  # a second warning would be an error
    pool = transport._senders.get()
    assert isinstance(pool, HttpxPool)
    ((_, lane),) = pool._idle
    assert not lane.is_reusable()
    await transport.aclose()


def test_a_reconnection_by_the_library_is_noticed() -> None:
    lane, first, second = _HttpxConnection(None), Network(), Network()
    links = [
        lane.mark_open(SimpleNamespace(extensions={"network_stream": network}, stream=beneath(Machine(), 1)))
        for network in (first, first, second)
    ]
    assert [link and link.network for link in links] == [first, first, second]
    assert links[0] is links[1]
