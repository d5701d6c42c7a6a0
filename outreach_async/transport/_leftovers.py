"""Detect unexpected bytes after a response. Undetected bytes would be taken for the response to the next request.

For example, a server or proxy that sends a response twice leaves unexpected bytes. The response before these bytes cannot be
trusted either: it may be a copy of an earlier response, and the bytes may be the real response. The first response on a
connection is an exception, because there is no earlier response.
"""

from __future__ import annotations

import select
import socket
import ssl
from typing import Any

from outreach_async.errors import TransportError


class SocketProbe:
    """Checks a socket for unread bytes, without consuming them."""

    def __init__(self, connection: Any) -> None:
        self._socket = connection
        # Windows has no `poll`, but its `select` accepts descriptors of any number.
        self._poll = select.poll() if hasattr(select, "poll") else None
        if self._poll is not None and connection.fileno() >= 0:
            self._poll.register(connection.fileno(), select.POLLIN)

    def is_readable(self) -> bool:
        """Return whether a read would return at once: there are bytes, the stream has ended, or the socket is closed."""
        descriptor = self._socket.fileno()
        if descriptor < 0:
            return True
        if self._poll is None:  # pragma: no cover - on Windows
            return bool(select.select([descriptor], [], [], 0)[0])
        return bool(self._poll.poll(0))

    def is_open_and_readable(self) -> bool:
        """Return the same as `is_readable` in half the time. The socket must be open."""
        return bool(self._poll.poll(0)) if self._poll is not None else self.is_readable()

    def peek(self) -> bytes | None:
        """Return the first unread byte without consuming it; `b""` at the end of the stream, `None` if no byte has arrived."""
        if not self.is_readable():
            return None
        try:
            waiting = socket.socket(fileno=self._socket.fileno())
        except (OSError, ValueError):  # the socket is closed
            return b""
        try:
            return waiting.recv(1, socket.MSG_PEEK)
        except OSError:  # the connection was reset
            return b""
        finally:
            waiting.detach()


def build_unexpected_bytes_error() -> TransportError:
    return TransportError(
        "the response may belong to an earlier request: its connection received unexpected bytes", maybe_sent=True
    )


class ConnectionMonitor:
    """Checks a connection of httpx or httpx2 for unexpected bytes."""

    def __init__(self, network: Any) -> None:
        self.network = network
        connection = network.get_extra_info("socket")
        self._probe = None if connection is None else SocketProbe(connection)  # a mock has no socket
        tls = network.get_extra_info("ssl_object")
        self._tls = tls if isinstance(tls, ssl.SSLObject) else None

    def is_silent(self) -> bool:
        return self._probe is None or not self._probe.is_readable()

    def check_leftovers(self, stream: Any, *, closing: bool) -> bool:
        """Look for bytes after a response that was read to its end. If there are any, the HTTP library closes its connection."""
        state = http11_state(stream)
        if state is None:
            return False
        request_count, machine = state
        is_first = request_count == 1
        leftover = machine.trailing_data[0] or (None if self._tls is None else peek_decrypted(self._tls))
        if leftover is None and self._has_buffered_bytes():
            leftover = b"?"
        if leftover is None and not is_first and self._probe is not None and not (closing and self._tls):
            leftover = self._probe.peek()  # closing a TLS connection sends bytes too
        if leftover is None:
            return True
        machine.send_failed()  # in this state the library closes the connection instead of keeping it
        if leftover and not is_first:
            raise build_unexpected_bytes_error()
        return False

    def _has_buffered_bytes(self) -> bool:
        """Return whether anyio has buffered bytes. On asyncio, anyio may read more bytes at once than httpcore asked for."""
        stream = getattr(self.network, "_stream", None)
        while (inner := getattr(stream, "transport_stream", None)) is not None:
            stream = inner
        return bool(getattr(getattr(stream, "_protocol", None), "read_queue", None))


def peek_decrypted(tls: ssl.SSLObject) -> bytes | None:
    """Read a byte that TLS has already received; `b""` if the connection has ended or is broken, `None` if there is no byte."""
    try:
        return tls.read(1)
    except ssl.SSLWantReadError:
        return None
    except OSError:  # any other ssl.SSLError: the connection is broken
        return b""


def http11_state(stream: Any) -> tuple[int, Any] | None:
    """Return the number of requests sent on a connection, and its h11 connection, which stores the bytes after a response."""
    # httpx, httpx2 and httpcore have no public attributes for these values.
    for _ in range(8):  # more than the five streams that a library and its client nest today
        if (connection := getattr(stream, "_connection", None)) is not None:
            count, machine = getattr(connection, "_request_count", None), getattr(connection, "_h11_state", None)
            return None if count is None or machine is None else (count, machine)
        stream = getattr(stream, "_stream", None) or getattr(stream, "_httpcore_stream", None)
    return None
