"""What httpx and httpx2 share: a body that tells when it leaves, and the reading of an answer."""

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
    """Where the two ways of sending are alike.

    Args:
        family: The library.
        most: Exchanges at once; `None` for no bound of ours.
        limit: Bytes of an answer's decoded body at most.

    Attributes:
        where: The base URL without user and password.
        secrets: What of it, and of what it goes through, must show nowhere.
    """

    def __init__(self, family: Family, most: int | None, limit: int) -> None:
        self.family: Family = family
        self.most = most
        self.limit = limit
        self.where = ""
        self.secrets: tuple[str, ...] = ()

    @property
    def library(self) -> ModuleType:
        """The library, imported when first asked for."""
        return import_module(self.family)


class _Body:
    """A request's body that notes when its bytes are asked for; authentication may ask twice."""

    def __init__(self, content: bytes, progress: Progress) -> None:
        self._content = content
        self._progress = progress

    def __aiter__(self) -> AsyncIterator[bytes]:
        self._progress.sent = True
        return _Pieces(self._content)


class _Pieces(AsyncIterator[bytes]):
    """One piece, or none. Not a generator: trio warns of those that a broken connection leaves unfinished."""

    def __init__(self, content: bytes) -> None:
        self._left = [content] if content else []

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


class Handshakes:
    """Remembers sockets until TLS is spoken on them: cancelled within the handshake, the libraries forget theirs."""

    def __init__(self) -> None:
        self._sockets: list[Any] = []

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        """Take in what the library tells by its `trace` extension."""
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
    """Return the class of request bodies for a library, which takes those of its own base class only."""
    return type("Body", (_Body, library.AsyncByteStream), {})


async def read(answer: Any, limit: int, link: Link | None) -> tuple[Response, bool]:
    """Read an answer of the library to its end, and close it.

    Args:
        answer: The library's response.
        limit: Bytes of the decoded body at most.
        link: The connection; `None` without one.

    Returns:
        The response, and whether its connection may be used again as far as can be seen.

    Raises:
        TransportError: The status is invalid, the body is too large or not in its stated encoding, or the response may belong to
            another request.
    """
    status = accepted(answer.status_code)
    headers = fields_of(answer.headers.raw)
    decoded = answer.is_stream_consumed  # a mock's answer, or one that a hook has read, is here already
    intake = Intake(headers, limit, decoded=decoded)
    # Not `aiter_raw`, which gives the connection back before anyone can look at it.
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
    """Let the library's nested generators end on the closed connection: trio warns of each that is left unfinished."""
    with suppress(Exception):
        for _ in range(_LEFTOVERS):
            await anext(pieces)
