"""Sending over an aiohttp session. Importing this module imports aiohttp."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

import aiohttp
import attrs
import yarl
from aiohttp.abc import AbstractStreamWriter

from outreach_async.errors import InvalidRequest, OutreachError, forget_frames
from outreach_async.transport.aiohttp_leftovers import Connector, refuse_unasked, settle, watch
from outreach_async.transport.answers import Intake, accepted, fields_of
from outreach_async.transport.evidence import closed, fields, lost, one_line, origin_form, release, said
from outreach_async.transport.origin import BAD_HOST, BaseUrl
from outreach_async.transport.task_scope import TaskScope
from outreach_async.transport.turns import Turns
from outreach_async.transport.uvloop_sockets import Sockets
from outreach_async.transport.wire import Progress, Request, Response

_CONTENT_TYPE = ("Content-Type",)
_AUTOMATIC = ("Content-Type", "Accept", "Accept-Encoding", "User-Agent")
_SWITCHED: Final = 101
_URLS: Final = 256
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, ceil_threshold=math.inf)
_UNSENT = (aiohttp.ClientConnectorError, aiohttp.ClientHttpProxyError, aiohttp.ConnectionTimeoutError)
_BROKEN = (aiohttp.ClientError, OSError, RuntimeError, ValueError)


@attrs.frozen
class Place:
    """Where a session's requests go.

    Attributes:
        prefix: What stands before every target; `.` leaves it to the session's own base URL.
        fields: Header fields of every request.
        own: The session is ours, so nothing stands between it and the socket.
        shown: The place as errors name it.
    """

    prefix: str
    fields: Mapping[str, str] = attrs.field(repr=False)
    own: bool
    shown: str


def place(base: BaseUrl | None) -> Place:
    """Tell where requests go: to a base URL, or to that of the session.

    Raises:
        InvalidRequest: The URL's host is no name.
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
    """One session's exchanges, in the event loop that it belongs to.

    Args:
        session: The session.
        place: Where to send.
        most: Exchanges at once; `None` for no bound of ours.
        limit: Bytes of an answer's decoded body at most.
        middlewares: What to run around every request.
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
        self._url = lru_cache(_URLS)(self._join)  # parsing is dear, and all creates share one target

    async def send(self, request: Request, progress: Progress) -> Response:
        """Send when there is room, and read the answer.

        Raises:
            TransportError: No whole answer arrived.
            InvalidRequest: The request cannot be sent.
        """
        try:
            return await self._turns.take(partial(self._exchange, request, progress), progress)
        except OutreachError:
            raise
        except _Ended as ended:
            failure, cause = self._explain(ended.error, progress)
        except _BROKEN as error:
            failure, cause = self._explain(error, progress)
        # Outside of the handlers, where an error that shows a secret would stay as the context.
        if cause is not None:
            forget_frames(cause)  # whose locals are the library's, header fields among them
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
            progress.sent = True
            if answer.status == _SWITCHED:
                answer.close()
                raise lost(f"no answer from {self._place.shown}: it switched to another protocol, unasked", progress)
            accepted(answer.status)
            if not self._place.own:  # our own session has no jar
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
        """Take an answer's cookies out of the jar that has just stored them."""
        if set_here := {(morsel.key, morsel.value) for morsel in answer.cookies.values()}:
            self._session.cookie_jar.clear(lambda morsel: (morsel.key, morsel.value) in set_here)

    def _explain(self, error: Exception, progress: Progress) -> tuple[OutreachError, Exception | None]:
        if isinstance(error, aiohttp.InvalidURL | aiohttp.NonHttpUrlClientError) and progress.sent is not True:
            return InvalidRequest("base_url: the session has none to use; give one to ClientSession"), None
        if isinstance(error, ValueError) and not isinstance(error, aiohttp.ClientError) and progress.sent is not True:
            # Its text shows what is wrong, which may be a field of the session's own, with a secret in it.
            return InvalidRequest(
                "the request is no valid HTTP: its method, its target, or a field of the session's own; mend that"
            ), None
        if isinstance(error, _UNSENT) and progress.sent is None:
            progress.sent = False
        what = "no connection to" if progress.sent is False else "no answer from"
        if isinstance(error, aiohttp.ClientResponseError):  # its repr shows the request's header fields
            return lost(f"{what} {self._place.shown}: {error.status} {one_line(error.message)}", progress), None
        cause = _bare(error)
        return lost(f"{what} {self._place.shown}: {said(cause)}", progress), cause

    async def aclose(self) -> None:
        """End what is under way and close the session."""
        await self._turns.aclose()
        await self._session.close()


def open_session(context: ssl.SSLContext | None, proxy: str | None) -> aiohttp.ClientSession:
    """Make a session that does nothing of its own accord; `Turns` bounds its connections."""
    return aiohttp.ClientSession(
        connector=Connector(limit=0, ssl=context or True, socket_factory=_socket_factory()),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=_AUTOMATIC,
        proxy=None if proxy is None else _in_utf8(yarl.URL(proxy)),
    )


def _socket_factory() -> Sockets | None:
    """Return what makes a session's sockets, where that cannot be left to aiohttp."""
    return Sockets() if type(asyncio.get_running_loop()).__module__ == "uvloop" else None


def _in_utf8(proxy: yarl.URL) -> yarl.URL:
    """Return the URL so that aiohttp, which sends a proxy's credentials in Latin-1, sends them in UTF-8 as httpx does."""
    if proxy.user is None:
        return proxy
    user, password = (text.encode().decode("latin-1") for text in (proxy.user, proxy.password or ""))
    return proxy.with_user(user).with_password(password)


def _bare(error: Exception) -> Exception:
    """Return what a connector's error wraps: its own repr shows the proxy's password."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return error.certificate_error
    return error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error


class _Body(aiohttp.Payload):
    """A request's body that notes when its bytes are asked for; aiohttp sends them together with the head.

    `BytesPayload` would do, but warns of every large body. With `look`, it makes sure first that nothing waits on the connection,
    which the connector of a session of ours has done.
    """

    def __init__(self, content: bytes, progress: Progress, *, look: bool) -> None:
        super().__init__(content)
        self._look = look
        self._content = content
        self._progress = progress

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write the bytes."""
        del content_length  # it is this body's own size
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
        """Return the body as text, for middlewares that look at it."""
        return self._content.decode(encoding, errors)


class _Ended(Exception):
    """An exchange that ended without an answer, in a class that aiohttp does not take for a reason to send a GET again."""

    def __init__(self, error: aiohttp.ClientError) -> None:
        super().__init__()
        self.error = error


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    watch(request)
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _Ended(error) from None
