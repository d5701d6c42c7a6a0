"""Serve the fake over HTTP/1.1 on a real socket. Unlike other servers, this server reproduces wire faults byte by byte.

The server uses plain sockets, because an anyio stream closes gracefully and so cannot reset a connection. It uses anyio only to
wait for the sockets.
"""

from __future__ import annotations

import errno
import http.client
import logging
import re
import socket
import struct
import traceback
from collections.abc import AsyncIterator, Generator, Iterable
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from typing import Any

import anyio
import anyio.abc
import anyio.lowlevel
import attrs
import h11

from outreach_async.fake._cross_origin import CrossOriginService
from outreach_async.fake._damage import SERVER_STEPS, ConnectionEnd, ServerStep, announce_end
from outreach_async.fake._messages import BODILESS, MAX_REQUEST_BYTES, decode_body, frame, refuse
from outreach_async.fake.faults import Exchange, Service, SlicedService, exchange_in_slices
from outreach_async.transport._wire import Request, Response

MAX_HEAD_BYTES = 64 * 1024  # of the request line and header fields; a longer head gets 431
LINGER_SECONDS = 1.0  # for the client to close the connection; closing a socket with unread data would send RST, not FIN

_READ_SIZE = 16 * 1024  # h11 copies all unread bytes for each chunk of a body and each pipelined request

_log = logging.getLogger(__name__)


class RawConnection:
    """Reads and writes the bytes of one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    async def read(self) -> bytes:
        """Wait for bytes and return them; return no bytes if the client has closed the connection."""
        while True:
            await anyio.wait_readable(self._socket)
            with suppress(BlockingIOError):  # a spurious wake-up
                return self._socket.recv(_READ_SIZE)

    async def write(self, data: bytes) -> None:
        """Send all bytes, and wait whenever the socket's send buffer is full."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def drain(self) -> None:
        """Read and discard bytes until the client has closed the connection."""
        while await self.read():
            pass

    async def close_gracefully(self) -> None:
        """Close the connection gracefully (FIN)."""
        # Close only the writing half: closing the socket with unread bytes in the receive buffer makes the kernel send RST, and
        # the client could lose a response that it has not read yet.
        self._socket.shutdown(socket.SHUT_WR)
        with anyio.move_on_after(LINGER_SECONDS):
            await self.drain()

    def reset(self) -> None:
        """Configure the socket so that closing it resets the connection: the kernel sends RST instead of FIN."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def handle_connection(connection: socket.socket, service: Service | SlicedService, turns: anyio.Lock) -> None:
    """Handle the requests of a connection one at a time. When either side has closed the connection, close the socket."""
    conversation = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
    with connection, suppress(OSError):  # the client reset the connection
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while await _handle_request(RawConnection(connection), conversation, service, turns):
            conversation.start_next_cycle()
            await anyio.lowlevel.checkpoint()  # pipelined requests must not keep those of other connections waiting


async def _handle_request(
    line: RawConnection, conversation: h11.Connection, service: Service | SlicedService, turns: anyio.Lock
) -> bool:
    """Handle one request. Return whether another request may follow on the same connection."""
    try:
        request = await _read_request(line, conversation)
    except h11.RemoteProtocolError as error:
        # Close the connection, because the start of the next request is unknown.
        refusal = refuse(error.error_status_hint, connection="close")
        await line.write(b"".join(_serialize_response(conversation, refusal, "")))
        await line.close_gracefully()
        return False
    if request is None:
        return False
    exchange, head, body = await _execute(conversation, service, request, turns)
    fault = exchange.fault
    if fault is not None and request.method == "HEAD" and fault.kind not in {"latency", "slow_drip"}:
        head = announce_end(head)  # without a body, the response is complete, whatever the fault does to it
    end = await _perform_steps(line, (head + body,) if fault is None else SERVER_STEPS[fault.kind](fault, head, body))
    if end is None and conversation.our_state is h11.DONE and conversation.their_state is h11.DONE:
        return True
    if end is ConnectionEnd.RESET:
        line.reset()
    elif end is not ConnectionEnd.HANG:
        await line.close_gracefully()
    return False


async def _read_request(line: RawConnection, conversation: h11.Connection) -> Request | None:
    """Read one whole request; return `None` if the client has closed the connection."""
    head = await _read_event(line, conversation)
    if not isinstance(head, h11.Request):
        return None
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:  # h11 has put the names into lower case
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    if int(headers.get("content-length", 0)) > MAX_REQUEST_BYTES:
        raise h11.RemoteProtocolError("the body is too large", error_status_hint=413)
    body = bytearray()
    while isinstance(event := await _read_event(line, conversation), h11.Data):
        body += event.data
        if len(body) > MAX_REQUEST_BYTES:
            raise h11.RemoteProtocolError("the body is too large", error_status_hint=413)
    # RFC 9112, section 3.2.2: a server must also accept a target in absolute form.
    target = head.target.decode("ascii")
    path = re.sub(r"^https?://[^/?]*", "", target, flags=re.IGNORECASE)
    if path != target and not path.startswith("/"):
        path = f"/{path}"
    return Request(head.method.decode("ascii"), path, headers, bytes(body))


async def _read_event(line: RawConnection, conversation: h11.Connection) -> object:
    while (event := conversation.next_event()) is h11.NEED_DATA:
        if conversation.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason="Continue")
            await line.write(conversation.send(go_on) or b"")
        conversation.receive_data(await line.read())
    return event


async def _execute(
    conversation: h11.Connection, service: Service | SlicedService, request: Request, turns: anyio.Lock
) -> tuple[Exchange, bytes, bytes]:
    """Execute a request. Return the exchange, and the response's head and body, which are empty if there is no response."""
    exchange = Exchange(None, None)
    try:
        decoded = decode_body(request)
        if isinstance(decoded, Response):
            return exchange, *_serialize_response(conversation, decoded, request.method)
        exchange = await _take_turns(exchange_in_slices(service, decoded), turns)
        if exchange.response is None:
            return exchange, b"", b""
        return exchange, *_serialize_response(conversation, exchange.response, request.method)
    except Exception as error:  # noqa: BLE001 - the failure of one request, logged here, must not end other connections
        # Log the traceback without the message, which may contain data that the client sent.
        _log.error("the service raised %s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
        return attrs.evolve(exchange, fault=None), *_serialize_response(conversation, refuse(500), request.method)


async def _take_turns(slices: Generator[None, None, Exchange], turns: anyio.Lock) -> Exchange:
    """Run the slices of a request, with requests of other connections between them."""
    with closing(slices):
        try:
            next(slices)
            while True:
                async with turns:  # at most one slice in each round of the event loop, however many requests have slices
                    next(slices)
        except StopIteration as end:
            exchange: Exchange = end.value
            return exchange


def _serialize_response(conversation: h11.Connection, response: Response, method: str) -> tuple[bytes, bytes]:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in frame(response).items()]
    reason = http.client.responses.get(response.status, "")
    head = conversation.send(h11.Response(status_code=response.status, headers=headers, reason=reason))
    body = conversation.send(h11.Data(data=b"" if response.status in BODILESS or method == "HEAD" else response.body))
    conversation.send(h11.EndOfMessage())
    return head or b"", body or b""


async def _perform_steps(line: RawConnection, steps: Iterable[ServerStep]) -> ConnectionEnd | None:
    """Send the bytes and wait for the delays in `steps`. Return how the connection ends; `None` if it stays open."""
    # For `ConnectionEnd.HANG`, wait until the client has closed the connection.
    for step in steps:
        if isinstance(step, ConnectionEnd):
            if step is ConnectionEnd.HANG:
                await line.drain()
            return step
        await (line.write(step) if isinstance(step, bytes) else anyio.sleep(step))
    return None


@asynccontextmanager
async def serve(
    service: Service | SlicedService, host: str = "127.0.0.1", port: int = 0, *, origins: Iterable[str] = ()
) -> AsyncIterator[str]:
    """Serve a service on a socket while the `async with` block runs. `localhost` means 127.0.0.1 and, if there is IPv6, ::1.

    Web pages of `origins` may send requests to it (CORS); `*` allows all pages.
    """
    served = CrossOriginService(service, frozenset(origins)) if origins else service
    # An exception raised in the block is re-raised unchanged, not wrapped in an exception group.
    failure: BaseException | None = None
    try:
        family, _, _, _, address = (await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    except UnicodeError:  # the rules of internationalised names; the resolver is not asked
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
    with ExitStack() as stack:
        listeners = _listen_on_loopback(port) if host == "localhost" else [_listen(family, address)]
        for listener in listeners:
            stack.enter_context(listener)
        async with anyio.create_task_group() as group:
            turns = anyio.Lock()
            for listener in listeners:
                group.start_soon(_accept_connections, listener, group, served, turns)
            try:
                yield _build_url(listeners[0])
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001 - raised below, outside the task group, which would wrap it
                failure = error
            # Cancel open connections: a connection that hangs, such as with the fault `hang`, would otherwise never end.
            group.cancel_scope.cancel()
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # its traceback refers to this frame: the reference cycle would delay garbage collection


def _listen(family: int, address: Any) -> socket.socket:
    listener = socket.create_server(address, family=family, backlog=1024)
    listener.setblocking(False)
    return listener


def _listen_on_loopback(port: int, ipv6: str = "::1") -> list[socket.socket]:
    """Listen on the same port of 127.0.0.1 and ::1: clients differ in which of them `localhost` means."""
    first = _listen(socket.AF_INET, ("127.0.0.1", port))
    try:
        return [first, _listen(socket.AF_INET6, (ipv6, first.getsockname()[1]))]
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            first.close()
            raise
        return [first]  # no IPv6


def _build_url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _accept_connections(
    listener: socket.socket, group: anyio.abc.TaskGroup, service: Service | SlicedService, turns: anyio.Lock
) -> None:
    while True:
        await anyio.wait_readable(listener)
        try:
            while True:  # all that are waiting: one in each round of the event loop would wait for the requests of all others
                connection, _ = listener.accept()
                group.start_soon(handle_connection, connection, service, turns)
        except BlockingIOError:
            pass
        except OSError:
            # Either the client has closed the connection, or no file descriptor is free. In the second case the listener stays
            # readable: without a pause, this loop would spin and block the connections that could free a descriptor.
            await anyio.sleep(0.05)
