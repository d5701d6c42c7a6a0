"""Detect unexpected bytes after a response on aiohttp's connections.

aiohttp itself closes a connection only if it has read another complete response head when the response ends. It keeps the
connection if only part of a head has arrived, or if the bytes arrive later.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import aiohttp
import attrs
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from outreach_async.transport.leftovers import SocketProbe, build_unexpected_bytes_error


@attrs.define
class _ConnectionUsage:
    """The use of a connection so far.

    Attributes:
        started: Number of exchanges whose request was sent.
        ended: Number of exchanges that have released the connection.
        has_leftovers: Whether unexpected bytes arrived on the connection.
        probe: Checks the connection's socket for unread bytes.
    """

    probe: SocketProbe
    started: int = 0
    ended: int = 0
    has_leftovers: bool = False

    def end(self) -> None:
        """Count one more exchange that has released the connection."""
        self.ended += 1


_READ_SIZE: Final = 65_536
"""Maximum number of bytes to read at once. asyncio allocates as many whenever something arrives. For its default, 256 KiB, malloc
may ask the operating system for memory each time, which takes up to 50 us."""

_USAGE_BY_PROTOCOL: Final[WeakKeyDictionary[Any, _ConnectionUsage]] = WeakKeyDictionary()
"""The usage of each connection, by aiohttp's protocol object; each connection has its own protocol object."""


class Connector(aiohttp.TCPConnector):
    """A connector that reuses an idle connection only if nothing has arrived on it."""

    async def connect(self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> Connection:
        """Return a connection that is new, or that has received no bytes since its last response."""
        while True:
            connection = await super().connect(req, traces, timeout)
            if _is_silent(connection.protocol):
                return connection
            connection.close()


def _is_silent(protocol: Any) -> bool:
    usage = _USAGE_BY_PROTOCOL.get(protocol)
    if usage is None or protocol.transport is None:
        return True  # the connection is new, or aiohttp notices by itself that it is closed
    return not (protocol.should_close or _has_partial_head(protocol) or usage.probe.is_readable())


def reject_unexpected_bytes(protocol: Any) -> None:
    """Check that a connection has no unread bytes before a request body is sent on it.

    Raises:
        TransportError: There are unread bytes, and the connection has carried a response before. Only the connector of a user's
            session reuses a connection with unread bytes.
    """
    usage = _USAGE_BY_PROTOCOL.get(protocol)
    if usage is not None and usage.ended and (len(protocol) > 0 or usage.probe.peek()):
        usage.has_leftovers = True
        raise build_unexpected_bytes_error()


def _has_partial_head(protocol: Any) -> bool:
    """Return whether part of another response head was read; also true if aiohttp's parser, a private attribute, is missing.

    At the end of its input, the parser returns an incomplete message, if there is one. It cannot be used afterwards, but an idle
    connection does not need it, because each request creates a new parser.
    """
    parser = getattr(protocol, "_parser", None)
    return parser is None or bool(getattr(parser, "_tail", b"")) or parser.feed_eof() is not None


def track_connection(request: aiohttp.ClientRequest) -> None:
    """Replace the response class of a request with a subclass whose responses keep a reference to their connection."""
    kind: Any = request.response_class
    request.response_class = _make_tracked_class(kind)


@cache
def _make_tracked_class(kind: Any) -> Any:
    return type("Watched", (_TrackedResponse, kind), {})


class _TrackedResponse(aiohttp.ClientResponse):
    """A response that keeps its connection. aiohttp's own response drops the connection when the last byte is read."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Store the connection, and read the response head."""
        protocol: Any = connection.protocol
        usage = _USAGE_BY_PROTOCOL.get(protocol)
        if usage is None:
            if protocol.transport is None:  # the connection was lost while a trace of the session was awaited
                raise aiohttp.ServerDisconnectedError
            usage = _USAGE_BY_PROTOCOL[protocol] = _ConnectionUsage(SocketProbe(protocol.transport.get_extra_info("socket")))
            if hasattr(protocol.transport, "max_size"):  # neither uvloop nor TLS has this undocumented attribute
                protocol.transport.max_size = _READ_SIZE
        usage.started += 1
        self.tracked_connection = protocol, usage, usage.started
        connection.add_callback(usage.end)
        if usage.ended and len(protocol) > 0:  # bytes arrived before the request was sent
            raise build_unexpected_bytes_error()
        try:
            return await super().start(connection)
        except aiohttp.ClientError:
            if not usage.has_leftovers:
                raise
        # Raised outside of the handler, because aiohttp's error from sending a body may show a proxy's password.
        raise build_unexpected_bytes_error()


def check_leftovers(answer: aiohttp.ClientResponse) -> None:
    """Look for bytes after a complete response. If there are any, close the connection.

    Raises:
        TransportError: Bytes were found, and the response is not the first on its connection.
    """
    if not isinstance(answer, _TrackedResponse):  # a middleware made the response
        return
    protocol, usage, number = answer.tracked_connection
    if usage.started == number and _has_unexpected_bytes(protocol, usage):  # otherwise the bytes belong to the next exchange
        usage.has_leftovers = True
        protocol.close()
    if usage.has_leftovers and number > 1:
        raise build_unexpected_bytes_error()


def _has_unexpected_bytes(protocol: Any, usage: _ConnectionUsage) -> bool:
    if protocol.transport is None or len(protocol) > 0:  # aiohttp itself closes the connection in this case
        return len(protocol) > 0
    return _has_partial_head(protocol) or (usage.started > 1 and bool(usage.probe.peek()))
