"""The connections and connection pools of the socket transport. Importing this module imports asyncio and h11.

On asyncio, `ProtocolPool` uses an asyncio protocol for each connection, and creates no scope, task or event per request. On trio,
`StreamPool` uses an anyio byte stream for each connection. Both pools send a whole request, with its body, in one call, and set
`Progress.sent` immediately before it. If a request fails while `Progress.sent` is false, no byte of the request was sent.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from functools import partial
from itertools import chain, zip_longest
from types import coroutine
from typing import Any, Final, TypeVar, cast

import anyio
import attrs
from anyio.abc import ByteStream, SocketAttribute
from anyio.lowlevel import current_token
from anyio.streams.tls import TLSAttribute

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport._leftovers import SocketProbe, build_unexpected_bytes_error, peek_decrypted
from outreach_async.transport._lifecycle import KEEPALIVE_EXPIRY, ConnectionPool
from outreach_async.transport._sending import build_transport_error
from outreach_async.transport._socket_reader import HeadParser, ResponseReader
from outreach_async.transport._wire import Progress, Response

A = TypeVar("A")
C = TypeVar("C")

CONNECTION_ATTEMPT_DELAY: Final = 0.25
"""Seconds after which the next address is tried while earlier attempts continue; the recommendation of RFC 8305."""

_NO_TIMEOUT: Final = 86_400.0
"""Timeout of a TLS handshake, one day in seconds. asyncio requires a timeout, but the client enforces its own timeouts."""

_PIECE: Final = 65_536
_BUFFER_SIZE: Final = 262_144
"""Size of a pool's receive buffer, in bytes. Without this buffer, asyncio would allocate a buffer of this size for each read.
The allocation can take as long as all other work for a request."""
_CLOSED: Final = "the transport was closed while the request was in flight"
_LOST: Final = "the server closed the connection"


@attrs.frozen
class Origin:
    host: str
    port: int
    context: ssl.SSLContext | None


def interleave_families(found: Iterable[tuple[Any, ...]]) -> list[str]:
    """Return the addresses from results of `getaddrinfo`, alternating between IPv6 and IPv4 (RFC 8305, section 4)."""
    families: dict[Any, list[str]] = {}
    for family, *_, address in found:
        families.setdefault(family, []).append(address[0])
    return [address for address in chain.from_iterable(zip_longest(*families.values())) if address is not None]


async def connect_first(addresses: Sequence[A], connect: Callable[[A], Awaitable[C]], close: Callable[[C], object]) -> C:
    """Try to connect to several addresses, and return the first connection (RFC 8305, "Happy Eyeballs")."""
    # An attempt starts when the previous attempt has failed or has lasted `CONNECTION_ATTEMPT_DELAY` seconds. The first attempt
    # that succeeds ends all others. asyncio's own implementation leaves a socket open if it is cancelled at the wrong moment, and
    # uvloop has none.
    made: list[C] = []
    errors: list[OSError] = []

    async def attempt(address: A, ended: anyio.Event) -> None:
        try:
            made.append(await connect(address))
            group.cancel_scope.cancel()
        except OSError as error:
            errors.append(error)
        finally:
            ended.set()

    try:
        async with anyio.create_task_group() as group:
            for address in addresses:
                ended = anyio.Event()
                group.start_soon(attempt, address, ended)
                with anyio.move_on_after(CONNECTION_ATTEMPT_DELAY):
                    await ended.wait()
    except BaseException:
        for connection in made:
            close(connection)
        raise
    for connection in made[1:]:
        close(connection)
    if made:
        return made[0]
    raise errors[0] if len(errors) == 1 else OSError("; ".join(map(str, errors)))


class ProtocolConnection(asyncio.BufferedProtocol):
    """A connection on asyncio or uvloop, for one exchange at a time."""

    # The event loop calls methods of this class when bytes arrive and when the server closes the connection. An idle connection
    # is then closed at once. A blocked event loop calls these methods late, so `is_silent` checks the socket itself.

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit: int,
        parse: HeadParser,
        connections: set[ProtocolConnection],
        buffer: memoryview,
    ) -> None:
        self._loop = loop
        self._limit = limit
        self._parse = parse
        self._connections = connections
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._is_encrypted = False
        self._reader: ResponseReader | None = None  # of the running exchange
        self._waiter: asyncio.Future[Response] = loop.create_future()
        self._has_unexpected_bytes = False
        self._is_open = False
        self._exchanges = 0
        self.idle_since = 0.0
        self.is_reusable = False
        self.lost: asyncio.Future[None] = loop.create_future()

    async def start_tls(self, context: ssl.SSLContext, host: str) -> None:
        """Encrypt the connection, and verify that the server is `host`."""
        transport = self.require_open()
        self._is_encrypted = True
        self._transport = await self._loop.start_tls(
            transport, self, context, server_hostname=host, ssl_handshake_timeout=_NO_TIMEOUT
        )

    def require_open(self) -> asyncio.Transport:
        if not self._is_open or self._transport is None or self._transport.is_closing():
            raise ConnectionResetError(_LOST)
        return self._transport

    def start(self, message: bytes, method: str, progress: Progress) -> asyncio.Future[Response]:
        """Send a request on the open connection. Return a future, whose result the caller must pass to `finish`."""
        transport = self._transport
        assert transport is not None, "the connection is not open yet"  # noqa: S101 - for the type checker
        progress.sent = True  # before any change, because it may raise an error
        self._exchanges += 1
        self.is_reusable = False
        self._reader = self._last_reader = ResponseReader(method, self._limit, self._parse)
        waiter = self._waiter = self._loop.create_future()
        transport.write(message)
        return waiter

    def finish(self, response: Response) -> Response:
        """Set `is_reusable` after a response, and return the response."""
        reader = self._last_reader
        has_leftovers = reader.has_leftovers or self._has_unexpected_bytes
        # The first response is never suspect. The descriptor of a closed connection may already belong to another connection.
        # Closing a TLS connection sends bytes too.
        if not has_leftovers and self._exchanges > 1 and self._is_open and (reader.keeps_alive or not self._is_encrypted):
            has_leftovers = self._probe.is_open_and_readable() and bool(self._probe.peek())
        if not has_leftovers:
            # Bytes of the request that are still to be sent would precede the next request, and the server may never read them.
            self.is_reusable = reader.keeps_alive and self._is_open and not self._tcp.get_write_buffer_size()
        elif self._exchanges > 1:
            raise build_unexpected_bytes_error()
        return response

    def is_silent(self) -> bool:
        return self.is_reusable and not self._probe.is_open_and_readable()

    def abort(self, error: Exception | None = None) -> None:
        """Close the connection at once. A running exchange raises `error`."""
        self.is_reusable = self._is_open = False
        if error is not None:
            self._fail(error)
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        if self._reader is not None and not self._waiter.done():  # it is done if the exchange was cancelled
            self._waiter.set_exception(error)
        self._reader = None

    def _end(self) -> None:
        """End the running exchange, because the connection has ended."""
        # The exchange succeeds if the end of the connection completes the response body.
        self.is_reusable = self._is_open = False
        if self._reader is None:
            return
        try:
            response = self._reader.finish()
        except TransportError as error:
            self._fail(error)
            return
        if response is None:
            self._fail(ConnectionResetError(_LOST))
        else:
            self._succeed(response)

    def _succeed(self, response: Response) -> None:
        self._reader = None
        if not self._waiter.done():
            self._waiter.set_result(response)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._tcp = cast("asyncio.Transport", transport)  # with TLS, the transport is replaced
        connection = transport.get_extra_info("socket")
        self._is_open = connection is not None  # on uvloop, a connection that was reset as soon as it was made has no socket
        if connection is not None:
            self._probe = SocketProbe(connection)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the signature of asyncio
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass received bytes to the running exchange. If no exchange is running, close the connection."""
        if self._reader is None:
            self._has_unexpected_bytes = True
            self.abort()
            return
        try:
            response = self._reader.feed(bytes(self._buffer[:nbytes]))
        except TransportError as error:
            self._fail(error)
        else:
            if response is not None:
                self._succeed(response)

    def eof_received(self) -> None:
        self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is None:
            self._end()
        else:
            self.abort(exc)
        self._connections.discard(self)
        self.lost.set_result(None)


@coroutine
def _yield() -> Generator[None, None, None]:
    """Let the event loop run other tasks, as `asyncio.sleep(0)` does, but faster."""
    yield


class ProtocolPool:
    """A bounded pool of connections in one event loop of asyncio or uvloop. The most recently used connection is reused first."""

    def __init__(self, origin: Origin, limit: int, max_answer: int, parse: HeadParser) -> None:
        self._origin = origin
        self._max_answer = max_answer
        self._parse = parse
        self._clock = time.monotonic
        self._loop = asyncio.get_running_loop()
        self._backend = current_token().backend_class  # the functions of anyio would look it up for every request
        self._limit = limit
        self._slots = anyio.Semaphore(limit, fast_acquire=True)  # otherwise, `acquire` always yields
        self._idle: deque[ProtocolConnection] = deque()
        self._connections: set[ProtocolConnection] = set()
        self._connecting: set[anyio.CancelScope] = set()
        self._buffer = memoryview(bytearray(_BUFFER_SIZE))
        self._closed = False
        self._all_ended = asyncio.Event()

    async def send(self, message: bytes, method: str, progress: Progress) -> Response:
        slots = self._slots
        if slots.value > 0:  # the shortcut saves a coroutine and a second cancellation check
            slots.acquire_nowait()
        else:
            await slots.acquire()
        try:
            # Without a checkpoint, nothing before the write would notice a cancellation. If other exchanges are running, the
            # tasks of all responses that have arrived also reach this point. Their requests are then written in a row, which
            # wakes the server once. Waking the server for each request can take as long as writing the requests.
            await (_yield() if slots.value < self._limit - 1 else self._backend.checkpoint_if_cancelled())
            if self._closed:
                raise InvalidRequest("the transport was closed before the request was sent; make a new transport")
            connection = self._take_idle() or await self._connect(progress)
            try:
                return connection.finish(await connection.start(message, method, progress))
            finally:
                # Also after a cancellation: the rest of the response would arrive later and be read as the next response.
                if connection.is_reusable:
                    connection.idle_since = self._clock()
                    self._idle.append(connection)
                else:
                    connection.abort()
        finally:
            slots.release()
            if self._closed and slots.value == self._limit:
                self._all_ended.set()

    def _take_idle(self) -> ProtocolConnection | None:
        """Close the connections that were idle for too long. Remove and return the most recent one that is left, or `None`."""
        horizon = self._clock() - KEEPALIVE_EXPIRY
        while self._idle and self._idle[0].idle_since < horizon:
            self._idle.popleft().abort()
        while self._idle:
            # The server is least likely to have closed the most recently used connection. Under a lower load, the other
            # connections expire.
            connection = self._idle.pop()
            if connection.is_silent():
                return connection
            connection.abort()
        return None

    def drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    async def _connect(self, progress: Progress) -> ProtocolConnection:
        with anyio.CancelScope() as scope:
            self._connecting.add(scope)
            try:
                connection = await self._open()
            finally:
                self._connecting.discard(scope)
            if not self._closed:
                return connection
            connection.abort()  # it was open before the cancellation arrived
        raise build_transport_error(_CLOSED, progress)  # reached only if `aclose` cancelled the scope

    async def _open(self) -> ProtocolConnection:
        found = await self._loop.getaddrinfo(self._origin.host, self._origin.port, type=socket.SOCK_STREAM)
        return await self._prepare(await connect_first(interleave_families(found), self._open_to, ProtocolConnection.abort))

    async def _prepare(self, connection: ProtocolConnection) -> ProtocolConnection:
        """Encrypt a new connection if necessary, and add it to the pool."""
        try:
            if self._origin.context is not None:
                await connection.start_tls(self._origin.context, self._origin.host)
            connection.require_open()
        except BaseException:
            connection.abort()
            raise
        # Not earlier: after a failed handshake, asyncio never calls `connection_lost`, and `aclose` would wait for it forever.
        self._connections.add(connection)
        return connection

    async def _open_to(self, address: str) -> ProtocolConnection:
        connection = ProtocolConnection(self._loop, self._max_answer, self._parse, self._connections, self._buffer)
        try:
            await self._loop.create_connection(lambda: connection, address, self._origin.port)
        except BaseException:
            connection.abort()  # a cancellation may arrive after the connection was made
            raise
        return connection

    async def aclose(self) -> None:
        self._closed = True  # before anything is cancelled, because each release lets a waiting exchange start
        for scope in self._connecting:
            scope.cancel()
        for connection in tuple(self._connections):
            connection.abort(TransportError(_CLOSED, maybe_sent=True))
        if self._slots.value < self._limit:
            await self._all_ended.wait()
        if self._connections:
            # If this method awaited a future itself, a cancellation would cancel the future, and the event loop could not set it.
            await asyncio.wait([connection.lost for connection in self._connections])


class StreamConnection:
    """A connection over an anyio byte stream. The first exchange opens the connection."""

    def __init__(self, origin: Origin, limit: int, parse: HeadParser) -> None:
        self._origin = origin
        self._limit = limit
        self._parse = parse
        self._stream: ByteStream | None = None
        self._is_reusable = False
        self._exchanges = 0

    def is_reusable(self) -> bool:
        # If the socket of an idle connection is readable, the server has closed the connection or has sent unexpected bytes. Such
        # a connection cannot be reused.
        return self._is_reusable and not self._probe.is_readable()

    async def exchange(self, message: bytes, method: str, progress: Progress) -> Response:
        """Send a request and return the response; see `ProtocolPool.send`."""
        if self._stream is None:
            self._stream = await self._open()
        progress.sent = True  # before any change, because it may raise an error
        self._exchanges += 1
        self._is_reusable = False
        reader = ResponseReader(method, self._limit, self._parse)
        await self._stream.send(message)
        response = None
        while response is None:
            try:
                data = await self._stream.receive(_PIECE)
            except anyio.EndOfStream:
                response = reader.finish()
                if response is None:
                    raise ConnectionResetError(_LOST) from None
            else:
                response = reader.feed(data)
        unread = self._peek(reader)  # also after the first response: TLS may have read bytes that the socket no longer shows
        if reader.has_leftovers or unread:
            if self._exchanges > 1:
                raise build_unexpected_bytes_error()
        else:
            self._is_reusable = reader.keeps_alive and unread is None
        if not self._is_reusable:
            await self.aclose()  # the pool would do this only before another request
        return response

    async def _open(self) -> ByteStream:
        origin = self._origin
        stream: ByteStream
        self._tls = None
        if origin.context is None:
            stream = await anyio.connect_tcp(origin.host, origin.port)
        else:
            stream = await anyio.connect_tcp(
                origin.host, origin.port, ssl_context=origin.context, tls_hostname=origin.host, tls_standard_compatible=False
            )
            self._tls = stream.extra(TLSAttribute.ssl_object)  # noqa: S610 - not Django's
        self._probe = SocketProbe(stream.extra(SocketAttribute.raw_socket))  # noqa: S610 - not Django's
        return stream

    def _peek(self, reader: ResponseReader) -> bytes | None:
        """Return a byte that arrived after the response; `b""` at the end of the stream, `None` if no byte arrived."""
        if self._tls is not None and (byte := peek_decrypted(self._tls)) is not None:
            return byte
        return self._probe.peek() if reader.keeps_alive or self._tls is None else None  # closing a TLS connection sends bytes too

    async def aclose(self) -> None:
        if self._stream is not None:
            await anyio.aclose_forcefully(self._stream)


class StreamPool(ConnectionPool):
    """A bounded pool of connections over anyio byte streams, in one event loop."""

    def __init__(self, origin: Origin, limit: int, max_answer: int, parse: HeadParser) -> None:
        super().__init__(limit, partial(StreamConnection, origin, max_answer, parse))

    def send(self, message: bytes, method: str, progress: Progress) -> Coroutine[Any, Any, Response]:
        """Send a request and return the response; see `ProtocolPool.send`."""
        return self.run_on_connection(lambda connection: connection.exchange(message, method, progress), progress)


def open_pool(origin: Origin, limit: int, max_answer: int, parse: HeadParser) -> ProtocolPool | StreamPool:
    # Not `asyncio.get_running_loop`, which also succeeds if trio runs as a guest of asyncio.
    is_asyncio = isinstance(current_token().native_token, asyncio.AbstractEventLoop)
    return (ProtocolPool if is_asyncio else StreamPool)(origin, limit, max_answer, parse)
