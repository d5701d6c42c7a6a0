"""A raw TCP listener on loopback that records every byte and misbehaves on demand.

The listener runs in its own threads, independent of any event loop. A behaviour is a function that handles a `Peer`: one accepted
connection. A `Listener` uses its behaviours in order, one per connection, and the last one for all further connections.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PATIENCE: Final = 60.0
"""Timeout of every wait in this module, in seconds."""

OK: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Gone(Exception):
    """The peer has disconnected."""


class Peer:
    """One accepted connection."""

    def __init__(self, connection: socket.socket, listener: Listener) -> None:
        self.received = b""
        self.address: object = connection.getpeername()
        self._connection = connection
        self._listener = listener
        self._taken = 0

    def start_tls(self, context: ssl.SSLContext) -> None:
        self._connection = context.wrap_socket(self._connection, server_side=True)

    def close(self) -> None:
        self._connection.close()

    def interrupt(self) -> None:
        """Shut the connection down, which wakes the thread that reads or writes."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def read(self) -> None:
        """Wait for data and add it to `received`."""
        try:
            piece = self._connection.recv(65536)
        except OSError:
            piece = b""
        if not piece:
            raise Gone
        self.received += piece

    def request(self) -> bytes:
        """Return the next complete request."""
        while (request := self._whole()) is None:
            self.read()
        self._taken += len(request)
        self.note(request)
        return request

    def connect(self) -> None:
        """Receive the CONNECT request to a proxy, without recording it as a request to the service."""
        while b"\r\n\r\n" not in self.received:
            self.read()
        self._taken = len(self.received)

    def note(self, request: bytes) -> None:
        """Record a complete request, and wake `Listener.wait_asked`."""
        self._listener.note(request)

    def stick(self) -> None:
        """Wake `Listener.wait_stuck`: from now on, only a timeout can end the exchange."""
        self._listener.stuck.set()

    def seen(self, request: bytes) -> int:
        """Return how often this request has arrived so far, on all connections."""
        return self._listener.requests.count(request)

    def _whole(self) -> bytes | None:
        rest = self.received[self._taken :]
        head, gap, _ = rest.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        size = len(head) + 4 + (int(length[1]) if length else 0)
        return rest[:size] if gap and len(rest) >= size else None

    def send(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError:
            raise Gone from None

    def outlast(self) -> None:
        """Send nothing more and wait until the peer disconnects."""
        self.stick()
        while True:
            self.read()

    def drip(self, data: bytes) -> None:
        """Send the data repeatedly, byte by byte with pauses, until the peer disconnects."""
        while True:
            for byte in data:
                self.send(bytes([byte]))
                self.stick()
                if select.select([self._connection], [], [], 0.002)[0]:
                    self.read()

    def reset(self) -> None:
        """Reset the connection (RST)."""
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._connection.close()


Behaviour = Callable[[Peer], object]


class Listener:
    """A context manager that accepts connections on a port of `localhost`."""

    def __init__(self, *behaviours: Behaviour, tls: ssl.SSLContext | None = None, listening: bool = True) -> None:
        self.peers: list[Peer] = []
        self.requests: list[bytes] = []
        self.stuck = threading.Event()
        self._asked = threading.Semaphore(0)
        self._behaviours = list(behaviours)
        self._tls = tls
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._at_once = listening
        self.listening = False
        self._threads: list[threading.Thread] = []
        self._open: set[Peer] = set()
        self._changed = threading.Condition()

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://localhost:{self.port}"

    @property
    def received(self) -> bytes:
        """All bytes received, on all connections."""
        return b"".join(peer.received for peer in self.peers)

    @property
    def connections(self) -> int:
        """Number of connections that the listener has not closed."""
        return len(self._open)

    def note(self, request: bytes) -> None:
        self.requests.append(request)
        self._asked.release()

    def wait_asked(self) -> None:
        """Wait for another complete request."""
        assert self._asked.acquire(timeout=PATIENCE), "no request arrived"

    def wait_stuck(self) -> None:
        """Wait until only a timeout can end an exchange."""
        assert self.stuck.wait(PATIENCE), "no exchange reached the point where only a timeout ends it"

    def wait_idle(self, most: int = 0) -> None:
        """Wait until at most `most` connections are open on the side of the listener."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._open) <= most, PATIENCE), (
                f"more than {most} connections were left open"
            )

    def listen(self) -> None:
        """Accept connections from now on."""
        self._socket.listen(256)
        self.listening = True
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        self._threads.append(thread)

    def __enter__(self) -> Self:
        if self._at_once:
            self.listen()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):  # it may never have listened
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for peer in tuple(self._open):
            peer.interrupt()
        for thread in self._threads:
            thread.join(PATIENCE)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            peer = Peer(connection, self)
            behave = self._behaviours.pop(0) if len(self._behaviours) > 1 else self._behaviours[0]
            thread = threading.Thread(target=self._run, args=(peer, behave), daemon=True)
            self.peers.append(peer)
            self._open.add(peer)
            thread.start()
            self._threads.append(thread)

    def _run(self, peer: Peer, behave: Behaviour) -> None:
        try:
            if self._tls is not None:
                peer.start_tls(self._tls)
            behave(peer)
        except (Gone, OSError):
            pass
        finally:
            peer.close()
            with self._changed:
                self._open.discard(peer)
                self._changed.notify_all()


def refused_port() -> int:
    """Return a port that refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def serve(answer: bytes = OK) -> Behaviour:
    """Return a behaviour that sends `answer` to every request."""

    def behave(peer: Peer) -> None:
        while True:
            peer.request()
            peer.send(answer)

    return behave


def in_order(*steps: Behaviour | bytes) -> Behaviour:
    """Return a behaviour that takes these steps, where bytes are sent, and then closes the connection (FIN)."""

    def behave(peer: Peer) -> None:
        for step in steps:
            if isinstance(step, bytes):
                peer.send(step)
            else:
                step(peer)

    return behave


def over_tls(context: ssl.SSLContext, behave: Behaviour) -> Behaviour:
    return in_order(lambda peer: peer.start_tls(context), behave)


def tunnel(behave: Behaviour) -> Behaviour:
    """Return a behaviour that accepts a CONNECT request like a proxy, then continues with `behave` like the service."""
    return in_order(Peer.connect, b"HTTP/1.1 200 Connected\r\n\r\n", behave)


def answer_once(answer: bytes) -> Behaviour:
    """Return a behaviour that sends `answer` to one request and closes the connection (FIN)."""
    return in_order(Peer.request, answer)


def hang(peer: Peer) -> None:
    """Read requests and never respond."""
    while True:
        peer.request()
        peer.stick()


ignore_greeting: Final = in_order(Peer.read, lambda peer: peer.note(b""), Peer.outlast)
"""Reads a TLS greeting and never responds."""


def hang_after(answer: bytes) -> Behaviour:
    """Return a behaviour that sends part of a response to one request, then nothing more."""
    return in_order(Peer.request, answer, Peer.outlast)


def drip(head: bytes, data: bytes) -> Behaviour:
    """Return a behaviour that sends an endless response to one request, byte by byte."""
    return in_order(Peer.request, head, lambda peer: peer.drip(data))


def send_while_idle(peer: Peer, data: bytes) -> None:
    """Send data to a client in this process and wait until it is readable. The client must not run meanwhile."""
    with suppress(Gone):
        peer.send(data)
    wait_readable(peer)


def wait_readable(peer: Peer) -> None:
    """Wait until the socket of a client in this process is readable; return at once if that socket is closed."""
    for path in Path("/dev/fd").iterdir():
        with suppress(OSError):
            found = socket.socket(fileno=int(path.name))
            try:
                if found.getsockname() == peer.address:
                    assert select.select([found], [], [], PATIENCE)[0], "no data arrived at the client"
            finally:
                found.detach()
