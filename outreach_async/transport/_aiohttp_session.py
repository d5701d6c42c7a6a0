"""Send requests over an aiohttp session, and detect unexpected bytes after responses. Importing this module imports aiohttp."""

from __future__ import annotations

import asyncio
import math
import os
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import cache, lru_cache, partial
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

import aiohttp
import attrs
import yarl
from aiohttp.abc import AbstractStreamWriter
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.transport import _sending as sending
from outreach_async.transport._leftovers import SocketProbe, build_unexpected_bytes_error
from outreach_async.transport._lifecycle import InFlight
from outreach_async.transport._response_reader import BodyReader, decode_headers, require_final_status
from outreach_async.transport._urls import INVALID_HOST_MESSAGE, BaseUrl
from outreach_async.transport._wire import Progress, Request, Response

_AUTOMATIC_HEADERS = ("Content-Type", "Accept", "Accept-Encoding", "User-Agent")
_SWITCHING_PROTOCOLS: Final = 101
# aiohttp's own timeouts are disabled. Only the client sets timeouts, which arrive here as cancellations.
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, ceil_threshold=math.inf)
_UNSENT_ERRORS = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
_CONNECTION_ERRORS = (aiohttp.ClientError, OSError, RuntimeError, ValueError)

_READ_SIZE: Final = 65_536
"""Maximum number of bytes to read at once. asyncio allocates a buffer of this size for each read. Allocating asyncio's default of
256 KiB may require a system call each time, which takes tens of microseconds."""


def encode_prefix(base: BaseUrl | None) -> str:
    """Return what precedes each target. Without a base URL, that is a dot, and aiohttp adds the session's own base URL."""
    try:
        return "." if base is None else f"{yarl.URL(str(base)).origin()}{base.path}"
    except ValueError:
        raise InvalidRequest(INVALID_HOST_MESSAGE) from None


class SessionSender(InFlight):
    """Sends requests over an aiohttp session, in the session's event loop. Without a base URL, the session is the user's."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        base: BaseUrl | None,
        prefix: str,
        max_in_flight: int | None,
        max_answer: int,
        *,
        middlewares: Sequence[aiohttp.ClientMiddlewareType],
    ) -> None:
        make_scope: Any = TaskScope
        super().__init__(max_in_flight, make_scope)
        self._session = session
        self._base = base
        self._prefix = prefix
        self._max_answer = max_answer
        self._headers = {} if base is None else base.headers
        self._options: dict[str, Any] = {
            "skip_auto_headers": ("Content-Type",) if base is None else None,
            "allow_redirects": False,
            "auto_decompress": False,
            "timeout": _NO_TIMEOUT,
            "middlewares": (_send_once, *middlewares),
        }
        self._cached_url = lru_cache(256)(self._join_url)  # parsing is slow, and all create requests share one target

    def send(self, request: Request, progress: Progress) -> Coroutine[Any, Any, Response]:
        return self.run(partial(self._exchange, request, progress), progress)

    async def _exchange(self, request: Request, progress: Progress) -> Response:
        is_own_session = self._base is not None
        if self._session.closed:
            raise sending.build_closed_error(self._session)
        headers = sending.merge_headers(request, self._headers)
        url = self._cached_url(request.target)
        body = _Body(request.body, progress, check_leftovers=not is_own_session) if request.body else None
        sending.mark_handed_over(progress, request, proof=is_own_session)
        async with self._session.request(request.method, url, data=body, headers=headers, **self._options) as answer:
            progress.sent = True  # a response proves that the request was sent, with or without a body
            if answer.status == _SWITCHING_PROTOCOLS:
                answer.close()
                text = f"no response from {self._base or 'the session'}: the server switched to another protocol"
                raise sending.build_transport_error(text, progress)
            require_final_status(answer.status)
            headers = decode_headers(answer.raw_headers)
            stored = set() if is_own_session else {(morsel.key, morsel.value) for morsel in answer.cookies.values()}
            if stored:  # in the user's jar; a session made by the transport stores no cookies
                self._session.cookie_jar.clear(lambda morsel: (morsel.key, morsel.value) in stored)
            reader = BodyReader(headers, self._max_answer)
            while not answer.content.at_eof():
                reader.feed(await answer.content.readany())
            response = Response(answer.status, headers, reader.finish())
            if isinstance(answer, _TrackedResponse):  # otherwise a middleware made the response
                answer.check_leftovers()
            return response

    def _join_url(self, target: str) -> yarl.URL:
        return yarl.URL(f"{self._prefix}{sending.require_origin_form(target)}", encoded=True)

    def drop_idle(self) -> None:
        """Use no idle connection again, unless the session is the user's. aiohttp does not tell which connections are its own."""
        for usage in list(_USAGE_BY_PROTOCOL.values()):
            usage.is_dropped |= usage.started == usage.ended

    async def aclose(self) -> None:
        await super().aclose()
        await self._session.close()


def translate_error(
    error: Exception, progress: Progress, build_failure: Callable[[str, Progress, Exception | None], OutreachError]
) -> OutreachError | Response | None:
    """Return the error to raise instead of an error of aiohttp, or the proxy's 407; `None` for any other error."""
    if isinstance(error, _ExchangeFailed) and isinstance(error.__cause__, aiohttp.ClientError):
        error = error.__cause__
    if not isinstance(error, _CONNECTION_ERRORS):
        return None
    if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError) and progress.sent is not True:
        text = "base_url: expected a session with an http or https base URL; pass base_url to aiohttp.ClientSession"
        return InvalidRequest(text)
    if isinstance(error, ValueError) and not isinstance(error, aiohttp.ClientError) and progress.sent is not True:
        # The error quotes the invalid value, which may be a header of the session with a secret in it.
        text = "the request is not valid HTTP; correct its method, its target or the session's own headers"
        return InvalidRequest(text)
    if isinstance(error, _UNSENT_ERRORS) and progress.sent is None:  # raised while connecting, before anything is written
        progress.sent = False
    if isinstance(error, aiohttp.ClientHttpProxyError) and (
        refusal := sending.refuse_credentials(f"{error.status} {error.message}")
    ):
        return refusal
    if isinstance(error, aiohttp.ClientResponseError):  # its repr shows the header fields of the request
        who = "the proxy answered " if isinstance(error, aiohttp.ClientHttpProxyError) else ""
        return build_failure(f"{who}{error.status} {sending.to_one_line(error.message)}", progress, None)
    # A connector's error shows the proxy's password in its repr, so the error that it wraps becomes the cause.
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return build_failure(sending.describe_cause(error), progress, error)


def open_session(context: ssl.SSLContext | None, proxy: str | None) -> aiohttp.ClientSession:
    """Open a session that stores no cookies and adds no optional header fields. `InFlight` limits the number of connections."""
    address = None if proxy is None else yarl.URL(proxy)
    if address is not None and address.user is not None:
        # aiohttp sends credentials in Latin-1. This re-encoding makes it send them in UTF-8, as httpx does.
        user, password = (text.encode().decode("latin-1") for text in (address.user, address.password or ""))
        address = address.with_user(user).with_password(password)
    # On uvloop, the sockets that aiohttp makes by default are unsafe; see `SocketFactory`.
    socket_factory = SocketFactory() if type(asyncio.get_running_loop()).__module__ == "uvloop" else None
    return aiohttp.ClientSession(
        connector=Connector(limit=0, ssl=context or True, socket_factory=socket_factory),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_AUTOMATIC_HEADERS,
        proxy=address,
    )


class _Body(aiohttp.Payload):
    """A request body that sets `Progress.sent` before it is written. aiohttp sends the request head together with the body."""

    # This class replaces aiohttp's `BytesPayload`, which warns about every large body. With `check_leftovers`, `write` raises an
    # error if the connection has unread bytes. A session made by the transport does not need this check, because its connector
    # has already checked the connection.

    def __init__(self, content: bytes, progress: Progress, *, check_leftovers: bool) -> None:
        super().__init__(content)
        self._check_leftovers = check_leftovers
        self._content = content
        self._progress = progress

    async def write(self, writer: AbstractStreamWriter) -> None:
        protocol: Any = getattr(writer, "protocol", None)
        usage = _USAGE_BY_PROTOCOL.get(protocol) if self._check_leftovers else None
        if usage is not None and usage.ended and (len(protocol) > 0 or usage.probe.peek()):
            usage.has_leftovers = True
            raise build_unexpected_bytes_error()
        self._progress.sent = True
        await writer.write(self._content)

    async def as_bytes(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        del encoding, errors
        return self._content

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._content.decode(encoding, errors)


class _ExchangeFailed(Exception):
    """Raised from an aiohttp error, to prevent aiohttp from silently retrying a GET request."""


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    # The subclass keeps a reference to the connection, for `check_leftovers`.
    kind: Any = request.response_class
    request.response_class = _tracked_class(kind)
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:  # nothing was sent; aiohttp does not retry it
        raise
    # After these errors, aiohttp would send a GET again, which neither the retry policy nor `Progress` would take into account.
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _ExchangeFailed from error


class TaskScope:
    """A minimal cancel scope, three times as fast as anyio's. `InFlight` makes a cancel scope for every request."""

    # Like `asyncio.timeout`, the scope cancels the task, and calls the task's `uncancel` on exit.

    __slots__ = ("_before", "_called", "_task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "no task is running"  # noqa: S101 - for the type checker: anyio runs in tasks only
        self._task = task
        self._before = task.cancelling()
        self._called = False

    def __enter__(self) -> Self:
        return self

    def cancel(self) -> None:
        self._called = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not self._called:
            return False
        # If the count is above its initial value, other code cancelled the task as well. That cancellation must propagate.
        return self._task.uncancel() <= self._before and kind is asyncio.CancelledError


class SocketFactory:
    """Makes sockets for aiohttp on uvloop, and detaches each socket whose descriptor uvloop has closed."""

    # If connecting fails, uvloop closes the descriptor of the socket that aiohttp passed to uvloop. The socket object does not
    # notice this, and would close the descriptor again when the object is garbage-collected. By then, the descriptor may belong
    # to another connection or to a file (https://github.com/MagicStack/uvloop/pull/646).

    def __init__(self) -> None:
        self._sockets: list[tuple[socket.socket, int]] = []

    def __call__(self, address: tuple[Any, ...]) -> socket.socket:
        self._detach_closed()
        new = socket.socket(*address[:3])
        self._sockets.append((new, os.fstat(new.fileno()).st_ino))
        return new

    def _detach_closed(self) -> None:
        still_open = []
        for sock, inode in self._sockets:
            with suppress(OSError):  # its descriptor is closed, or refers to another file by now
                if sock.fileno() >= 0 and os.fstat(sock.fileno()).st_ino == inode:
                    still_open.append((sock, inode))
                    continue
            sock.detach()
        self._sockets = still_open

    def __del__(self) -> None:
        self._detach_closed()


# Unexpected bytes after a response. aiohttp itself closes a connection only if it has read another complete response head when
# the response ends. It keeps the connection if only part of a head has arrived, or if the bytes arrive later.


@attrs.define
class _ConnectionUsage:
    """Counts the exchanges on an aiohttp connection, and records whether unexpected bytes arrived."""

    probe: SocketProbe
    started: int = 0
    ended: int = 0
    has_leftovers: bool = False
    is_dropped: bool = False

    def end(self) -> None:
        self.ended += 1


_USAGE_BY_PROTOCOL: Final[WeakKeyDictionary[Any, _ConnectionUsage]] = WeakKeyDictionary()
"""Usage of each connection, by the connection's protocol object in aiohttp."""


class Connector(aiohttp.TCPConnector):
    """An aiohttp connector that reuses an idle connection only if no bytes have arrived since its last response."""

    async def connect(self, req: aiohttp.ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> Connection:
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol: Any = connection.protocol
            usage = _USAGE_BY_PROTOCOL.get(protocol)
            if usage is None or protocol.transport is None:
                return connection  # it is new, or aiohttp notices by itself that it is closed
            is_worn = usage.is_dropped or protocol.should_close
            if not (is_worn or _has_partial_head(protocol) or usage.probe.is_readable()):
                return connection
            connection.close()


def _has_partial_head(protocol: Any) -> bool:
    """Return whether aiohttp has read part of a further response head after a complete response."""
    # The result is also `True` if aiohttp's private parser is missing. To find an incomplete head, this function signals the end
    # of input to the parser. The parser cannot be used afterwards, but aiohttp makes a new parser for each request.
    parser = getattr(protocol, "_parser", None)
    return parser is None or bool(getattr(parser, "_tail", b"")) or parser.feed_eof() is not None


class _TrackedResponse(aiohttp.ClientResponse):
    """An aiohttp response that keeps a reference to its connection after the last byte is read, unlike aiohttp's own response."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
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
        # Raised outside of the handler, which would set `__context__` to aiohttp's error. That error may show a proxy's password.
        raise build_unexpected_bytes_error()

    def check_leftovers(self) -> None:
        """Look for bytes after the complete response. If there are any, close the connection."""
        protocol, usage, number = self.tracked_connection
        if usage.started == number:  # otherwise the bytes belong to the next exchange
            found = len(protocol) > 0  # aiohttp itself closes the connection in this case
            if protocol.transport is not None and not found:
                found = _has_partial_head(protocol) or (number > 1 and bool(usage.probe.peek()))
            if found:
                usage.has_leftovers = True
                protocol.close()
        if usage.has_leftovers and number > 1:
            raise build_unexpected_bytes_error()


@cache
def _tracked_class(kind: Any) -> Any:
    return type("Watched", (_TrackedResponse, kind), {})
