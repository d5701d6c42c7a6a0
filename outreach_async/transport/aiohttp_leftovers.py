"""Detect unexpected bytes after a response on aiohttp's connections.

aiohttp itself closes a connection if it has read another complete head when the response ends. It keeps a connection if only part
of a head has arrived, or if bytes arrive later.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary

import aiohttp
import attrs
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from outreach_async.transport.leftovers import Probe, in_doubt


@attrs.define
class _Usage:
    """How a connection was used.

    Attributes:
        started: Number of exchanges whose request was sent.
        ended: Number of exchanges that have released the connection.
        spoilt: Whether unexpected bytes arrived on it.
        probe: Checks its socket for waiting bytes.
    """

    probe: Probe
    started: int = 0
    ended: int = 0
    spoilt: bool = False

    def end(self) -> None:
        """Count an exchange that releases the connection."""
        self.ended += 1


_USAGE: Final[WeakKeyDictionary[Any, _Usage]] = WeakKeyDictionary()
"""Keyed by aiohttp's protocol object; each connection has its own."""


class Connector(aiohttp.TCPConnector):
    """A connector that reuses an idle connection only if nothing has arrived on it."""

    async def connect(self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> Connection:
        """Return a connection that is new, or silent since its last response."""
        while True:
            connection = await super().connect(req, traces, timeout)
            if _silent(connection.protocol):
                return connection
            connection.close()


def _silent(protocol: Any) -> bool:
    usage = _USAGE.get(protocol)
    if usage is None or protocol.transport is None:
        return True  # it was not used yet, or aiohttp notices by itself that it is closed
    return not (protocol.should_close or _begun(protocol) or usage.probe.readable())


def refuse_unasked(protocol: Any) -> None:
    """Check that no bytes wait on a connection that is about to carry a request body.

    Raises:
        TransportError: Bytes wait, and the connection has carried a response before. The connector of a user's session reused it.
    """
    usage = _USAGE.get(protocol)
    if usage is not None and usage.ended and (len(protocol) > 0 or usage.probe.peek()):
        usage.spoilt = True
        raise in_doubt()


def _begun(protocol: Any) -> bool:
    """Return whether part of another response head was read. If aiohttp's parser, which is private, is missing, assume it was.

    Feeding the end of the stream makes the parser return what it has begun. An idle connection does not need the parser any more:
    each request brings its own.
    """
    parser = getattr(protocol, "_parser", None)
    return parser is None or bool(getattr(parser, "_tail", b"")) or parser.feed_eof() is not None


def watch(request: aiohttp.ClientRequest) -> None:
    """Make the response of a request remember its connection. The response class of the session stays a base class."""
    kind: Any = request.response_class
    request.response_class = _watched(kind)


@cache
def _watched(kind: Any) -> Any:
    return type("Watched", (_Watched, kind), {})


class _Watched(aiohttp.ClientResponse):
    """A response that remembers its connection, which it releases as soon as its last byte is read."""

    remembered: tuple[Any, _Usage, int]

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Read the response head."""
        protocol: Any = connection.protocol
        usage = _USAGE.get(protocol)
        if usage is None:
            if protocol.transport is None:  # the connection was lost while a trace of the session was awaited
                raise aiohttp.ServerDisconnectedError
            usage = _USAGE[protocol] = _Usage(Probe(protocol.transport.get_extra_info("socket")))
        usage.started += 1
        self.remembered = protocol, usage, usage.started
        connection.add_callback(usage.end)
        if usage.ended and len(protocol) > 0:  # bytes arrived before the request was sent
            raise in_doubt()
        try:
            return await super().start(connection)
        except aiohttp.ClientError:
            if not usage.spoilt:
                raise
        # Raised outside of the handler: aiohttp's error in sending a body may show a proxy's password.
        raise in_doubt()


def settle(answer: aiohttp.ClientResponse) -> None:
    """Look for bytes after a response that was read to its end, and close its connection if there are any.

    Raises:
        TransportError: Bytes were found, and the response is not the first on its connection.
    """
    if not isinstance(answer, _Watched):  # a middleware made the response
        return
    protocol, usage, number = answer.remembered
    if usage.started == number and _followed(protocol, usage):  # otherwise the bytes belong to the next exchange
        usage.spoilt = True
        protocol.close()
    if usage.spoilt and number > 1:
        raise in_doubt()


def _followed(protocol: Any, usage: _Usage) -> bool:
    if protocol.transport is None or len(protocol) > 0:  # aiohttp itself closes the connection in this case
        return len(protocol) > 0
    return _begun(protocol) or (usage.started > 1 and bool(usage.probe.peek()))
