"""Send over an aiohttp session. Importing this module imports aiohttp.

On uvloop, sockets need care. If connecting fails, uvloop closes the descriptor of the socket that was passed to it. The socket
object does not notice this, and closes the descriptor again when the object is garbage-collected. By then, the descriptor may
belong to another connection or to a file
(https://github.com/MagicStack/uvloop/pull/646).
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import ssl
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import attrs
import yarl
from aiohttp.abc import AbstractStreamWriter

from outreach_async.errors import InvalidRequest, OutreachError, drop_tracebacks
from outreach_async.transport import sending
from outreach_async.transport.aiohttp_leftovers import Connector, check_leftovers, reject_unexpected_bytes, track_connection
from outreach_async.transport.lifecycle import InFlight
from outreach_async.transport.response_reader import BodyReader, decode_headers, require_final_status
from outreach_async.transport.urls import INVALID_HOST_MESSAGE, BaseUrl
from outreach_async.transport.wire import Progress, Request, Response


class TaskScope:
    """A minimal cancel scope for `InFlight`. Every request uses one, and it takes a third of the time of anyio's cancel scope.

    Like `asyncio.timeout`, the scope cancels the task, and calls the task's `uncancel` on exit.
    """

    __slots__ = ("_before", "_called", "_task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "an exchange runs in a task"  # noqa: S101 - for the type checker: anyio runs in tasks only
        self._task = task
        self._before = task.cancelling()
        self._called = False

    def __enter__(self) -> Self:
        return self

    def cancel(self) -> None:
        """Cancel the task."""
        self._called = True
        self._task.cancel()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if not self._called:
            return False
        # If the count is above its initial value, other code cancelled the task as well. That cancellation must propagate.
        return self._task.uncancel() <= self._before and kind is asyncio.CancelledError


class SocketFactory:
    """Makes sockets for aiohttp, and detaches sockets whose descriptor uvloop has closed."""

    def __init__(self) -> None:
        self._sockets: list[tuple[socket.socket, int]] = []

    def __call__(self, address: tuple[Any, ...]) -> socket.socket:
        """Make a socket for an address as returned by `getaddrinfo`."""
        self._detach_closed()
        new = socket.socket(*address[:3])
        self._sockets.append((new, os.fstat(new.fileno()).st_ino))
        return new

    def _detach_closed(self) -> None:
        """Detach closed sockets. A socket also counts as closed if its descriptor now refers to another file."""
        still_open = []
        for sock, inode in self._sockets:
            if sock.fileno() >= 0 and _inode(sock.fileno()) == inode:
                still_open.append((sock, inode))
            else:
                sock.detach()
        self._sockets = still_open

    def __del__(self) -> None:
        """Detach closed sockets before they are garbage-collected."""
        self._detach_closed()


def _inode(descriptor: int) -> int | None:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None


_AUTOMATIC_HEADERS = ("Content-Type", "Accept", "Accept-Encoding", "User-Agent")
_SWITCHING_PROTOCOLS: Final = 101
# aiohttp's own timeouts are disabled. Only the client sets timeouts, which arrive here as cancellations.
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, ceil_threshold=math.inf)
_UNSENT_ERRORS = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
_CONNECTION_ERRORS = (aiohttp.ClientError, OSError, RuntimeError, ValueError)


@attrs.frozen
class Destination:
    """The destination of a session's requests.

    Attributes:
        prefix: The URL prepended to every target; `.` uses the session's own base URL.
        headers: Header fields of every request.
        is_own_session: Whether the transport made the session. No user code except middlewares then runs between the transport
            and the socket.
        display_name: The destination as shown in errors.
    """

    prefix: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    is_own_session: bool
    display_name: str


def resolve_destination(base: BaseUrl | None) -> Destination:
    """Return the destination for a base URL; with `None`, the destination is the session's own base URL.

    Raises:
        InvalidRequest: The host of the URL is not a valid name.
    """
    if base is None:
        return Destination(".", {}, is_own_session=False, display_name="the session's base_url")
    try:
        origin = yarl.URL(str(base)).origin()
    except ValueError:
        raise InvalidRequest(INVALID_HOST_MESSAGE) from None
    fields = {} if base.authorization is None else {"authorization": base.authorization}
    return Destination(f"{origin}{base.path}", fields, is_own_session=True, display_name=str(base))


@attrs.define(eq=False, repr=False, slots=False)
class SessionSender:
    """Sends the requests of one session, in its event loop.

    Args:
        session: The session.
        destination: The destination of the requests.
        max_in_flight: Maximum number of exchanges at once; `None` for no limit beyond the session's own.
        max_answer: Maximum size of a decoded response body, in bytes.
        middlewares: aiohttp client middlewares to run around every request.
    """

    _session: aiohttp.ClientSession
    _destination: Destination
    _max_in_flight: int | None
    _max_answer: int
    _middlewares: Sequence[aiohttp.ClientMiddlewareType]

    def __attrs_post_init__(self) -> None:
        """Create the objects that all exchanges share."""
        self._middlewares = (_send_once, *self._middlewares)
        self._in_flight = InFlight(self._max_in_flight, TaskScope)
        self._cached_url = lru_cache(256)(self._join_url)  # parsing is slow, and all create requests share one target

    async def send(self, request: Request, progress: Progress) -> Response:
        """Wait for a free slot, send a request, and return the response.

        Raises:
            TransportError: No complete response arrived.
            InvalidRequest: The request is invalid.
        """
        try:
            return await self._in_flight.run(partial(self._exchange, request, progress), progress)
        except OutreachError:
            raise
        except _ExchangeFailed as failed:
            failure, cause = self._translate_error(failed.error, progress)
        except _CONNECTION_ERRORS as error:
            failure, cause = self._translate_error(error, progress)
        # Raised outside of the handlers, which would set `__context__` to an error that may show a secret.
        if cause is not None:
            drop_tracebacks(cause)  # the library's frames have header fields among their locals
        raise failure from cause

    async def _exchange(self, request: Request, progress: Progress) -> Response:
        if self._session.closed:
            raise sending.build_closed_error(self._session)
        headers = sending.merge_headers(request, self._destination.headers)
        sending.mark_handed_over(progress, request, proof=self._destination.is_own_session)
        async with self._session.request(
            request.method,
            self._cached_url(request.target),
            data=_Body(request.body, progress, check_leftovers=not self._destination.is_own_session) if request.body else None,
            headers=headers,
            skip_auto_headers=None if self._destination.is_own_session else ("Content-Type",),
            allow_redirects=False,
            auto_decompress=False,
            timeout=_NO_TIMEOUT,
            middlewares=self._middlewares,
        ) as answer:
            progress.sent = True  # a response proves that the request was sent, with or without a body
            if answer.status == _SWITCHING_PROTOCOLS:
                answer.close()
                text = f"no response from {self._destination.display_name}: it switched to a protocol that was not requested"
                raise sending.build_transport_error(text, progress)
            require_final_status(answer.status)
            if not self._destination.is_own_session:  # a session made by the transport stores no cookies
                self._remove_cookies(answer)
            response = await self._read_response(answer)
            check_leftovers(answer)
            return response

    def _join_url(self, target: str) -> yarl.URL:
        return yarl.URL(f"{self._destination.prefix}{sending.require_origin_form(target)}", encoded=True)

    async def _read_response(self, answer: aiohttp.ClientResponse) -> Response:
        headers = decode_headers(answer.raw_headers)
        reader = BodyReader(headers, self._max_answer)
        while not answer.content.at_eof():
            reader.feed(await answer.content.readany())
        return Response(answer.status, headers, reader.finish())

    def _remove_cookies(self, answer: aiohttp.ClientResponse) -> None:
        """Remove the cookies of a response from the jar that has just stored them."""
        if stored := {(morsel.key, morsel.value) for morsel in answer.cookies.values()}:
            self._session.cookie_jar.clear(lambda morsel: (morsel.key, morsel.value) in stored)

    def _translate_error(self, error: Exception, progress: Progress) -> tuple[OutreachError, Exception | None]:
        if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError) and progress.sent is not True:
            text = "base_url: expected a session with a base URL of http or https; pass one to aiohttp.ClientSession"
            return InvalidRequest(text), None
        if isinstance(error, ValueError) and not isinstance(error, aiohttp.ClientError) and progress.sent is not True:
            # The error quotes the invalid value, which may be a header of the session with a secret in it.
            text = "the request is not valid HTTP; correct its method, its target or the session's own headers"
            return InvalidRequest(text), None
        if isinstance(error, _UNSENT_ERRORS) and progress.sent is None:  # raised while connecting, before anything is written
            progress.sent = False
        text = f"{'no connection to' if progress.sent is False else 'no response from'} {self._destination.display_name}"
        if isinstance(error, aiohttp.ClientResponseError):  # its repr shows the header fields of the request
            return sending.build_transport_error(f"{text}: {error.status} {sending.to_one_line(error.message)}", progress), None
        cause = _unwrap_error(error)
        return sending.build_transport_error(f"{text}: {sending.describe_cause(cause)}", progress), cause

    async def aclose(self) -> None:
        """Cancel every exchange and close the session."""
        await self._in_flight.aclose()
        await self._session.close()


def open_session(context: ssl.SSLContext | None, proxy: str | None) -> aiohttp.ClientSession:
    """Open a session that stores no cookies and adds no optional header fields. `InFlight` limits its connections."""
    # On uvloop, aiohttp's own socket factory is unsafe.
    socket_factory = SocketFactory() if type(asyncio.get_running_loop()).__module__ == "uvloop" else None
    return aiohttp.ClientSession(
        connector=Connector(limit=0, ssl=context or True, socket_factory=socket_factory),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_AUTOMATIC_HEADERS,
        proxy=None if proxy is None else _encode_credentials(yarl.URL(proxy)),
    )


def _encode_credentials(proxy: yarl.URL) -> yarl.URL:
    """Re-encode the credentials of a proxy URL, to make aiohttp send them in UTF-8, as httpx does, instead of in Latin-1."""
    if proxy.user is None:
        return proxy
    user, password = (text.encode().decode("latin-1") for text in (proxy.user, proxy.password or ""))
    return proxy.with_user(user).with_password(password)


def _unwrap_error(error: Exception) -> Exception:
    """Return the error that a connector's error wraps, because the connector's error shows the proxy's password in its repr."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    return error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error


class _Body(aiohttp.Payload):
    """A request body that records when its bytes are requested. aiohttp sends them together with the head.

    aiohttp's `BytesPayload` would warn about every large body. With `check_leftovers`, the body first checks that the connection
    has no unread bytes. For a session made by the transport, the connector has already checked that.
    """

    def __init__(self, content: bytes, progress: Progress, *, check_leftovers: bool) -> None:
        super().__init__(content)
        self._check_leftovers = check_leftovers
        self._content = content
        self._progress = progress

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the bytes."""
        if self._check_leftovers:
            reject_unexpected_bytes(getattr(writer, "protocol", None))
        self._progress.sent = True
        await writer.write(self._content)

    async def as_bytes(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Return the bytes, for middlewares that sign them."""
        del encoding, errors
        return self._content

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as a string, for middlewares that inspect it."""
        return self._content.decode(encoding, errors)


class _ExchangeFailed(Exception):
    """Raised in place of an error of aiohttp after which aiohttp itself would send a GET again."""

    def __init__(self, error: aiohttp.ClientError) -> None:
        super().__init__()
        self.error = error


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    track_connection(request)
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:  # nothing was sent; aiohttp does not retry it
        raise
    # After the following errors, aiohttp would send a GET again, without the knowledge of the retry policy and `Progress`.
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _ExchangeFailed(error) from None
