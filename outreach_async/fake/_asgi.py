"""The fake service as an ASGI 3 application. Mount it in another application, or serve it with any ASGI server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import quote, unquote

from outreach_async.errors import TransportError
from outreach_async.fake._fault_plan import Exchange, Service
from outreach_async.fake._transport import await_result, compute_client_result
from outreach_async.fake.faults import error_response
from outreach_async.transport._wire import Request, Response

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# A larger body gets 413. The limit of `FakeService` is far lower (rule W8).
MAX_REQUEST_BYTES = 16 * 1024 * 1024


class BodyTooLarge(Exception):
    pass


def asgi_app(service: Service) -> Application:
    # The application can be mounted under any prefix. ASGI has no way to send a damaged response: if a wire fault prevents a
    # complete response, the application raises `ConnectionError`. `server.serve` reproduces faults byte by byte.

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            # The application needs no startup or shutdown, but servers wait for these acknowledgements.
            while (event := (await receive())["type"]) != "lifespan.shutdown":
                await send({"type": f"{event}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
        elif scope["type"] == "http":
            await _handle_http(service, scope, receive, send)
        else:
            raise ValueError(f"scope: expected http or lifespan, got {scope['type']}; route other scopes elsewhere")

    return app


def join_headers(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return header fields by lower-case name; the values of repeated fields are joined with commas."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


async def _handle_http(service: Service, scope: Scope, receive: Receive, send: Send) -> None:
    try:
        body = await _read_body(receive)
    except BodyTooLarge:
        await _send_response(send, error_response(413))
        return
    if body is None:
        return
    exchange = _execute(service, scope, Request(scope["method"], rebuild_target(scope), join_headers(scope["headers"]), body))
    try:
        await _send_response(send, await await_result(compute_client_result(exchange.fault, exchange.response), maybe_sent=True))
    except TransportError as error:
        raise ConnectionError(f"injected wire fault: {error}") from None


def _execute(service: Service, scope: Scope, request: Request) -> Exchange:
    # The documents of the control plane contain the base URL of the application, which only the ASGI scope reveals.
    exchange_at: Callable[[Request, str], Exchange] | None = getattr(service, "exchange_at", None)
    if exchange_at is None:
        return service.exchange(request)
    root = quote(scope.get("root_path", "").rstrip("/"))
    return exchange_at(request, f"{scope.get('scheme', 'http')}://{request.headers.get('host', '')}{root}")


async def _read_body(receive: Receive) -> bytes | None:
    """Return the whole request body; `None` if the client disconnects before the end of the body."""
    body = bytearray()
    while (message := await receive())["type"] == "http.request":
        body += message.get("body", b"")
        if len(body) > MAX_REQUEST_BYTES:
            raise BodyTooLarge
        if not message.get("more_body", False):
            return bytes(body)
    return None


async def _send_response(send: Send, response: Response) -> None:
    # An ASGI server adds a `Date` of its own, and a response must not have two.
    fields = ((name, value) for name, value in response.headers.items() if name != "date")
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def rebuild_target(scope: Scope) -> str:
    """Return the request target (path and query) as sent, without the prefix under which the application is mounted."""
    # The raw path distinguishes `%2F` from a slash between segments. Not every server provides the raw path.
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    path = _strip_root_path(raw.partition(b"?")[0].decode("latin-1"), scope.get("root_path", ""))
    query = scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _strip_root_path(path: str, root_path: str) -> str:
    # Decoded segments are compared, because a prefix can be percent-encoded in several ways. Some servers already remove the
    # prefix from the raw path: such a path is returned unchanged.
    root = root_path.rstrip("/").split("/")
    segments = path.split("/")
    if [unquote(segment) for segment in segments[: len(root)]] != root:
        return path
    return "/" + "/".join(segments[len(root) :])
