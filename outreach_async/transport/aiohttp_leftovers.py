"""Detects bytes behind a response on aiohttp's connections.

aiohttp itself closes a connection if it has read another whole head when the response ends. It keeps one on which only a part of
a head has arrived, or on which bytes arrive later.
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
        started: Exchanges whose request was sent.
        ended: Exchanges that let go of the connection.
        spoilt: Bytes arrived on it that no request asked for.
        probe: Tells what waits on its socket.
    """

    probe: Probe
    started: int = 0
    ended: int = 0
    spoilt: bool = False

    def end(self) -> None:
        """Count an exchange that lets go of the connection."""
        self.ended += 1


_USAGE: Final[WeakKeyDictionary[Any, _Usage]] = WeakKeyDictionary()
"""By aiohttp's protocol, of which each connection has one."""


class Connector(aiohttp.TCPConnector):
    """Gives out an idle connection only if nothing has arrived on it."""

    async def connect(self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> Connection:
        """Return a connection that is new, or has been silent since its last response."""
        while True:
            connection = await super().connect(req, traces, timeout)
            if _silent(connection.protocol):
                return connection
            connection.close()


def _silent(protocol: Any) -> bool:
    usage = _USAGE.get(protocol)
    if usage is None or protocol.transport is None:
        return True  # nothing was asked on it yet, or aiohttp finds that it is closed
    return not (protocol.should_close or _begun(protocol) or usage.probe.readable())


def refuse_unasked(protocol: Any) -> None:
    """Make sure that no bytes wait on a connection on which a request's body is about to be sent.

    Raises:
        TransportError: They do, and it has carried a response before: a session of the user's gave it out.
    """
    usage = _USAGE.get(protocol)
    if usage is not None and usage.ended and (len(protocol) > 0 or usage.probe.peek()):
        usage.spoilt = True
        raise in_doubt()


def _begun(protocol: Any) -> bool:
    """Tell whether a part of another response's head was read. aiohttp has no public name for its parser; without one, assume so.

    The end of the stream makes the parser give away what it has begun. It is of no use to an idle connection: each request brings
    its own parser.
    """
    parser = getattr(protocol, "_parser", None)
    return parser is None or bool(getattr(parser, "_tail", b"")) or parser.feed_eof() is not None


def watch(request: aiohttp.ClientRequest) -> None:
    """Have the request's response remember its connection. A session's own class of responses stays beneath."""
    kind: Any = request.response_class
    request.response_class = _watched(kind)


@cache
def _watched(kind: Any) -> Any:
    return type("Watched", (_Watched, kind), {})


class _Watched(aiohttp.ClientResponse):
    """A response that remembers its connection, which it lets go of as soon as its last byte is read."""

    remembered: tuple[Any, _Usage, int]

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Read the head."""
        protocol: Any = connection.protocol
        usage = _USAGE.get(protocol)
        if usage is None:
            if protocol.transport is None:  # it was lost while a trace of the session's waited
                raise aiohttp.ServerDisconnectedError
            usage = _USAGE[protocol] = _Usage(Probe(protocol.transport.get_extra_info("socket")))
        usage.started += 1
        self.remembered = protocol, usage, usage.started
        connection.add_callback(usage.end)
        if usage.ended and len(protocol) > 0:  # it came before the request was sent
            raise in_doubt()
        try:
            return await super().start(connection)
        except aiohttp.ClientError:
            if not usage.spoilt:
                raise
        # Outside of the handler: what aiohttp makes of an error in sending a body may show a proxy's password.
        raise in_doubt()


def settle(answer: aiohttp.ClientResponse) -> None:
    """Look behind a response that was read to its end, and close its connection if anything is there.

    Raises:
        TransportError: Bytes were found, and the response is not the connection's first.
    """
    if not isinstance(answer, _Watched):  # a middleware answered
        return
    protocol, usage, number = answer.remembered
    if usage.started == number and _followed(protocol, usage):  # else what is there is the next exchange's
        usage.spoilt = True
        protocol.close()
    if usage.spoilt and number > 1:
        raise in_doubt()


def _followed(protocol: Any, usage: _Usage) -> bool:
    if protocol.transport is None or len(protocol) > 0:  # aiohttp closes what it sees by itself
        return len(protocol) > 0
    return _begun(protocol) or (usage.started > 1 and bool(usage.probe.peek()))
