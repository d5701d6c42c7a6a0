"""Code shared by the two ways of sending over httpx and httpx2: request bodies, and reading a response."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal

import anyio

from outreach_async.errors import TransportError
from outreach_async.transport.answers import Intake, accepted, fields_of
from outreach_async.transport.leftovers import Link
from outreach_async.transport.wire import Progress, Response

Family = Literal["httpx", "httpx2"]

FAMILIES: Final[dict[str, Family]] = {"httpx": "httpx", "httpx2": "httpx2"}

_LEFTOVERS: Final = 16_384  # more pieces than one read of 64 KiB can hold


class Route:
    """Base class of the two ways of sending.

    Args:
        family: The library.
        most: Most exchanges at once; `None` for no limit.
        limit: Most bytes of a decoded response body.

    Attributes:
        where: The base URL without user and password.
        secrets: Secrets of the base URL and of the proxy or client, which must not be shown.
    """

    def __init__(self, family: Family, most: int | None, limit: int) -> None:
        self.family: Family = family
        self.most = most
        self.limit = limit
        self.where = ""
        self.secrets: tuple[str, ...] = ()

    @property
    def library(self) -> ModuleType:
        """The library, imported on first use."""
        return import_module(self.family)


class _Body:
    """A request body that records when its bytes are requested. Authentication may request them twice."""

    def __init__(self, content: bytes, progress: Progress) -> None:
        self._content = content
        self._progress = progress

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._progress.sent = True
        return _Pieces(self._content)


class _Pieces(AsyncIterator[bytes]):
    """Yields one piece or none. Not a generator, because trio warns of generators that a broken connection leaves unfinished."""

    def __init__(self, content: bytes) -> None:
        self._left = [content] if content else []

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


class Handshakes:
    """Remembers sockets until their TLS handshake is done: the libraries leak a socket if cancelled during the handshake."""

    def __init__(self) -> None:
        self._sockets: list[Any] = []

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        """Handle an event of the library's `trace` extension."""
        if event.endswith("connect_tcp.complete"):
            self._sockets.append(info["return_value"])
        elif event.endswith("start_tls.complete"):
            self._sockets.clear()

    async def aclose(self) -> None:
        """Close the sockets that are still remembered."""
        for stream in self._sockets:
            with anyio.CancelScope(shield=True):
                await stream.aclose()


@cache
def body_class(library: ModuleType) -> Any:
    """Return the class of request bodies for a library, which accepts only subclasses of its own base class."""
    return type("Body", (_Body, library.AsyncByteStream), {})


async def read(answer: Any, limit: int, link: Link | None) -> tuple[Response, bool]:
    """Read a response of the library to its end and close it.

    Args:
        answer: The library's response.
        limit: Most bytes of the decoded body.
        link: The connection; `None` without one.

    Returns:
        The response, and whether its connection can be used again as far as can be seen.

    Raises:
        TransportError: The status is invalid, the body is too large or not in its stated encoding, or the response may belong to
            another request.
    """
    status = accepted(answer.status_code)
    headers = fields_of(answer.headers.raw)
    decoded = answer.is_stream_consumed  # a mock's response, or one read by an event hook, is already in memory
    intake = Intake(headers, limit, decoded=decoded)
    # Not `aiter_raw`, which returns the connection to the pool before it can be checked.
    pieces = answer.aiter_bytes() if decoded else aiter(answer.stream)
    kept = True
    try:
        async for piece in pieces:
            intake.feed(piece)
        if link is not None and not decoded:
            kept = link.settle(answer.stream, closing="close" in headers.get("connection", "").lower())
    except TransportError:
        await answer.aclose()
        await _run_out(pieces)
        raise
    await answer.aclose()
    return Response(status, headers, intake.whole()), kept


async def _run_out(pieces: AsyncIterator[bytes]) -> None:
    """Run the library's nested generators to their end on the closed connection: trio warns of each unfinished one."""
    with suppress(Exception):
        for _ in range(_LEFTOVERS):
            await anext(pieces)
