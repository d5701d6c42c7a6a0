"""The fake service as an ASGI 3 application. Mount it in another application, or serve it with any ASGI server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote, unquote

from outreach_async.errors import TransportError
from outreach_async.fake.fault_plan import Exchange, Service
from outreach_async.fake.faults import error_response
from outreach_async.fake.transport import arrive, reading
from outreach_async.transport.wire import Request, Response

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_BOUND = 16 * 1024 * 1024
"""Maximum bytes of a request body held in memory; a larger one gets 413. Far above the limit of the service itself."""


@runtime_checkable
class Located(Protocol):
    """A service whose responses contain its own base URL, which only the server or application in front of it knows."""

    def exchange_at(self, request: Request, base_url: str, /) -> Exchange:
        """Execute the request; `base_url` is the URL at which clients reach the service."""
        ...


class BodyTooLarge(Exception):
    """The request body exceeds `BODY_BOUND`."""


def asgi_app(service: Service) -> Application:
    """Return an ASGI application that sends the service's responses: status, header fields and body.

    It can be mounted under any prefix. ASGI has no way to send damaged bytes: if a wire fault loses the response, the application
    raises `ConnectionError`. `server.serve` reproduces faults byte by byte.

    Args:
        service: A `FakeService`, one with its control plane (`control.Controlled`), or any object with `exchange`.

    Returns:
        An application for the scopes `http` and `lifespan`. It raises ValueError for any other scope.
    """

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
        elif scope["type"] == "http":
            await _answer(service, scope, receive, send)
        else:
            raise ValueError(f"scope: expected http or lifespan, got {scope['type']}; route only HTTP requests here")

    return app


def joined(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return header fields by lower-case name; the values of repeated fields are joined with commas."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def _live(receive: Receive, send: Send) -> None:
    # Nothing needs starting or stopping, but servers wait for these acknowledgements.
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
        raise ConnectionError(f"injected wire fault: {error}") from None
    finally:
        # Also if the client disconnects or the task is cancelled: an exchange that nobody waits for must not hold its place.
        exchange.ended()


def _asked(service: Service, scope: Scope, request: Request) -> Exchange:
    if not isinstance(service, Located):
        return service.exchange(request)
    root = quote(scope.get("root_path", "").rstrip("/"))
    return service.exchange_at(request, f"{scope.get('scheme', 'http')}://{request.headers.get('host', '')}{root}")


async def _body(receive: Receive) -> bytes | None:
    """Read the whole body; return `None` if the client has disconnected."""
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
    """Rebuild the request target, byte for byte, without the prefix that the application is mounted under."""
    # The raw path keeps `%2F` apart from a slash between segments. Not every server provides it.
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = _unmounted(raw.partition(b"?")[0].decode("latin-1"), scope.get("root_path", ""))
    query = scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _unmounted(path: str, root_path: str) -> str:
    # Decoded segments are compared, because a prefix can be percent-encoded in several ways. Some servers already remove the
    # prefix from the raw path: such a path is returned unchanged.
    root = root_path.rstrip("/").split("/")
    segments = path.split("/")
    if [unquote(segment) for segment in segments[: len(root)]] != root:
        return path
    return "/" + "/".join(segments[len(root) :])
