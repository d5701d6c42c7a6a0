"""The fake service as an ASGI 3 application, to be mounted in another one or served by any ASGI server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote, unquote

from outreach_async.errors import TransportError
from outreach_async.fake.damage import reading
from outreach_async.fake.exchange import Exchange, Service
from outreach_async.fake.faults import error_response
from outreach_async.fake.transport import arrive
from outreach_async.transport.wire import Request, Response

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_BOUND = 16 * 1024 * 1024
"""Bytes of a request's body that are kept before it is refused unread; far above what the service itself takes."""


@runtime_checkable
class Located(Protocol):
    """A service that says in its answers where it is, which only whoever carries them knows."""

    def exchange_at(self, request: Request, base_url: str, /) -> Exchange:
        """Carry the request out; the service is reached at the base URL."""
        ...


class BodyTooLarge(Exception):
    """A request's body exceeds `BODY_BOUND`."""


def asgi_app(service: Service) -> Application:
    """Make an ASGI application of a service; its answers are those in memory: status, header fields and body.

    It may be mounted under any prefix. An ASGI server cannot be told to damage what it sends: where a fault on the wire loses the
    answer, the application raises `ConnectionError`. `server.serve` has the faults byte by byte.

    Args:
        service: A `FakeService`, one with its control plane (`control.Controlled`), or whatever else answers `exchange`.

    Returns:
        An application for the scopes `http` and `lifespan`; it raises ValueError at any other.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            await _answer(service, scope, receive, send)
        else:
            raise ValueError(f"the service speaks HTTP only, not {scope['type']}: route no other requests here")

    return app


def joined(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Map header fields by lower-case name, repeated ones joined."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def _live(receive: Receive, send: Send) -> None:
    # There is nothing to start or to stop.
    while (event := (await receive())["type"]) != "lifespan.shutdown":
        await send({"type": f"{event}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


async def _answer(service: Service, scope: Scope, receive: Receive, send: Send) -> None:
    try:
        body = await _body(receive)
    except BodyTooLarge:
        await _send(send, error_response(413))
        return
    if body is None:
        return
    exchange = _asked(service, scope, Request(scope["method"], target(scope), joined(scope["headers"]), body))
    try:
        await _send(send, await arrive(reading(exchange.fault, exchange.response), maybe_sent=True))
    except TransportError as error:
        raise ConnectionError(f"a fault on the wire: {error}") from None
    finally:
        exchange.ended()


def _asked(service: Service, scope: Scope, request: Request) -> Exchange:
    if not isinstance(service, Located):
        return service.exchange(request)
    root = quote(scope.get("root_path", "").rstrip("/"))
    return service.exchange_at(request, f"{scope.get('scheme', 'http')}://{request.headers.get('host', '')}{root}")


async def _body(receive: Receive) -> bytes | None:
    """Read the whole body; `None` if the client has left."""
    body = bytearray()
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if len(body) > BODY_BOUND:
            raise BodyTooLarge
        if not message.get("more_body", False):
            return bytes(body)
    return None


async def _send(send: Send, response: Response) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.items()]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def target(scope: Scope) -> str:
    """Rebuild the request's target, byte for byte, without the prefix under which the application is mounted."""
    # Decoded, a slash in an id would look like one in the path. Not every server gives the raw path.
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = _unmounted(raw.partition(b"?")[0].decode("latin-1"), scope.get("root_path", ""))
    query = scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _unmounted(path: str, root_path: str) -> str:
    # Compared segment by segment, since a prefix may be percent-encoded in more ways than one. Some servers leave it out of the
    # raw path.
    root = root_path.rstrip("/").split("/")
    segments = path.split("/")
    if [unquote(segment) for segment in segments[: len(root)]] != root:
        return path
    return "/" + "/".join(segments[len(root) :])
