"""Send over an aiohttp session. Importing this module imports aiohttp.

The socket object does not notice, and closes the descriptor again when it is collected. By then the descriptor may belong to
another connection or a file (https://github.com/MagicStack/uvloop/pull/646).
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

from outreach_async.errors import InvalidRequest, OutreachError, forget_frames
from outreach_async.transport.aiohttp_leftovers import Connector, refuse_unasked, settle, watch
from outreach_async.transport.lifecycle import Turns
from outreach_async.transport.response_reader import Intake, accepted, fields_of
from outreach_async.transport.sending import closed, fields, lost, one_line, origin_form, release, said
from outreach_async.transport.urls import BAD_HOST, BaseUrl
from outreach_async.transport.wire import Progress, Request, Response


class TaskScope:
    """A minimal cancel scope for `Turns`. It costs a third of anyio's, and every request uses one.

    Like `asyncio.timeout`, it cancels the task, and takes the cancellation back on exit.
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
        # A count above the initial one means that somebody else cancelled the task as well; that cancellation must propagate.
        return self._task.uncancel() <= self._before and kind is asyncio.CancelledError


class Sockets:
    """Makes aiohttp's sockets, and detaches those whose descriptor was closed by uvloop."""

    def __init__(self) -> None:
        self._made: list[tuple[socket.socket, int]] = []

    def __call__(self, address: tuple[Any, ...]) -> socket.socket:
        """Make a socket for an address as returned by `getaddrinfo`."""
        self._sweep()
        made = socket.socket(*address[:3])
        self._made.append((made, os.fstat(made.fileno()).st_ino))
        return made

    def _sweep(self) -> None:
        """Detach closed sockets. If a descriptor now refers to another file, the socket was closed as well."""
        kept = []
        for made, inode in self._made:
            if made.fileno() >= 0 and _inode(made.fileno()) == inode:
                kept.append((made, inode))
            else:
                made.detach()
        self._made = kept

    def __del__(self) -> None:
        """Detach closed sockets before they are collected."""
        self._sweep()


def _inode(descriptor: int) -> int | None:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None


_CONTENT_TYPE = ("Content-Type",)
_AUTOMATIC = ("Content-Type", "Accept", "Accept-Encoding", "User-Agent")
_SWITCHED: Final = 101
_URLS: Final = 256
# No timers of aiohttp: the client alone decides about time, and its timeout arrives as a cancellation.
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, ceil_threshold=math.inf)
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
_BROKEN = (aiohttp.ClientError, OSError, RuntimeError, ValueError)


@attrs.frozen
class Place:
    """The destination of a session's requests.

    Attributes:
        prefix: The URL prepended to every target; `.` uses the session's own base URL.
        fields: Header fields of every request.
        own: Whether the transport made the session, so that no code of the user's runs between it and the socket.
        shown: The destination as errors show it.
    """

    prefix: str
    fields: Mapping[str, str] = attrs.field(repr=False)
    own: bool
    shown: str


def place(base: BaseUrl | None) -> Place:
    """Return the destination for a base URL; for `None`, that of the session.

    Raises:
        InvalidRequest: The host of the URL is not a valid name.
    """
    if base is None:
        return Place(".", {}, own=False, shown="the session's base_url")
    try:
        origin = yarl.URL(str(base)).origin()
    except ValueError:
        raise InvalidRequest(BAD_HOST) from None
    fields = {} if base.authorization is None else {"authorization": base.authorization}
    return Place(f"{origin}{base.path}", fields, own=True, shown=str(base))


class Wire:
    """Sends the requests of one session, in its event loop.

    Args:
        session: The session.
        place: The destination.
        most: Most exchanges at once; `None` for no limit beyond the session's own.
        limit: Most bytes of a decoded response body.
        middlewares: Middlewares to run around every request.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        place: Place,
        most: int | None,
        limit: int,
        middlewares: Sequence[aiohttp.ClientMiddlewareType],
    ) -> None:
        self._session = session
        self._place = place
        self._limit = limit
        self._middlewares = (_once, *middlewares)
        self._turns = Turns(most, TaskScope)
        self._url = lru_cache(_URLS)(self._join)  # parsing is slow, and all contact creations share one target

    async def send(self, request: Request, progress: Progress) -> Response:
        """Wait for a free slot, send, and read the response.

        Raises:
            TransportError: No complete response arrived.
            InvalidRequest: The request is invalid.
        """
        try:
            return await self._turns.take(partial(self._exchange, request, progress), progress)
        except OutreachError:
            raise
        except _Ended as ended:
            failure, cause = self._explain(ended.error, progress)
        except _BROKEN as error:
            failure, cause = self._explain(error, progress)
        # Raised outside of the handlers, which would set `__context__` to an error that may show a secret.
        if cause is not None:
            forget_frames(cause)  # the library's frames have header fields among their locals
        raise failure from cause

    async def _exchange(self, request: Request, progress: Progress) -> Response:
        if self._session.closed:
            raise closed(self._session)
        headers = fields(request, self._place.fields)
        release(progress, request, proof=self._place.own)
        async with self._session.request(
            request.method,
            self._url(request.target),
            data=_Body(request.body, progress, look=not self._place.own) if request.body else None,
            headers=headers,
            skip_auto_headers=None if self._place.own else _CONTENT_TYPE,
            allow_redirects=False,
            auto_decompress=False,
            timeout=_NO_TIMEOUT,
            middlewares=self._middlewares,
        ) as answer:
            progress.sent = True  # a response proves it, also for a request without a body
            if answer.status == _SWITCHED:
                answer.close()
                raise lost(f"no response from {self._place.shown}: it switched to another protocol, unrequested", progress)
            accepted(answer.status)
            if not self._place.own:  # a session of our own has no cookie jar
                self._forget_cookies(answer)
            response = await self._read(answer)
            settle(answer)
            return response

    def _join(self, target: str) -> yarl.URL:
        return yarl.URL(f"{self._place.prefix}{origin_form(target)}", encoded=True)

    async def _read(self, answer: aiohttp.ClientResponse) -> Response:
        headers = fields_of(answer.raw_headers)
        intake = Intake(headers, self._limit)
        while not answer.content.at_eof():
            intake.feed(await answer.content.readany())
        return Response(answer.status, headers, intake.whole())

    def _forget_cookies(self, answer: aiohttp.ClientResponse) -> None:
        """Remove the cookies of a response from the jar that has just stored them."""
        if set_here := {(morsel.key, morsel.value) for morsel in answer.cookies.values()}:
            self._session.cookie_jar.clear(lambda morsel: (morsel.key, morsel.value) in set_here)

    def _explain(self, error: Exception, progress: Progress) -> tuple[OutreachError, Exception | None]:
        if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError) and progress.sent is not True:
            return InvalidRequest("base_url: expected a session with a base URL; pass one to ClientSession"), None
        if isinstance(error, ValueError) and not isinstance(error, aiohttp.ClientError) and progress.sent is not True:
            # The error quotes the invalid value, which may be a header of the session with a secret in it.
            return InvalidRequest(
                "the request is not valid HTTP; correct its method, its target or the session's own headers"
            ), None
        if isinstance(error, _UNSENT) and progress.sent is None:  # raised while connecting, before anything is written
            progress.sent = False
        what = "no connection to" if progress.sent is False else "no response from"
        if isinstance(error, aiohttp.ClientResponseError):  # its repr shows the header fields of the request
            return lost(f"{what} {self._place.shown}: {error.status} {one_line(error.message)}", progress), None
        cause = _bare(error)
        return lost(f"{what} {self._place.shown}: {said(cause)}", progress), cause

    async def aclose(self) -> None:
        """Cancel every exchange and close the session."""
        await self._turns.aclose()
        await self._session.close()


def open_session(context: ssl.SSLContext | None, proxy: str | None) -> aiohttp.ClientSession:
    """Open a session without any automatic behaviour. `Turns` limits its connections."""
    return aiohttp.ClientSession(
        connector=Connector(limit=0, ssl=context or True, socket_factory=_socket_factory()),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_AUTOMATIC,
        proxy=None if proxy is None else _in_utf8(yarl.URL(proxy)),
    )


def _socket_factory() -> Sockets | None:
    """Return a socket factory on uvloop, where aiohttp's own is unsafe; otherwise `None`."""
    return Sockets() if type(asyncio.get_running_loop()).__module__ == "uvloop" else None


def _in_utf8(proxy: yarl.URL) -> yarl.URL:
    """Re-encode a proxy URL. aiohttp sends its credentials in Latin-1; this makes it send UTF-8, as httpx does."""
    if proxy.user is None:
        return proxy
    user, password = (text.encode().decode("latin-1") for text in (proxy.user, proxy.password or ""))
    return proxy.with_user(user).with_password(password)


def _bare(error: Exception) -> Exception:
    """Return the error wrapped by a connector's error, whose own repr shows the proxy's password."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    return error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error


class _Body(aiohttp.Payload):
    """A request body that records when its bytes are requested. aiohttp sends them together with the head.

    aiohttp's `BytesPayload` would warn of every large body. With `look`, the body first checks that no bytes wait on the
    connection. For a session of our own, the connector has already checked that.
    """

    def __init__(self, content: bytes, progress: Progress, *, look: bool) -> None:
        super().__init__(content)
        self._look = look
        self._content = content
        self._progress = progress

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write the bytes."""
        del content_length  # always the size of this body
        await self.write(writer)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the bytes."""
        if self._look:
            refuse_unasked(getattr(writer, "protocol", None))
        self._progress.sent = True
        await writer.write(self._content)

    async def as_bytes(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """Return the bytes, for middlewares that sign them."""
        del encoding, errors
        return self._content

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as a string, for middlewares that inspect it."""
        return self._content.decode(encoding, errors)


class _Ended(Exception):
    """An exchange that ended without a response. Not an aiohttp error, because aiohttp would send a GET again."""

    def __init__(self, error: aiohttp.ClientError) -> None:
        super().__init__()
        self.error = error


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    watch(request)
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:  # nothing was sent; aiohttp does not retry it
        raise
    # aiohttp would send a GET again after the following ones, unknown to the retry policy and to `Progress`.
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Ended(error) from None
