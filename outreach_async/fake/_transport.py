"""`FakeTransport` and the ASGI application, which call the fake without a socket, and the effects of wire faults.

`SERVER_STEPS` defines the steps with which a server sends each faulty response over a socket. `CLIENT_RESULTS` defines what a
client gets without a socket: a response, which may be damaged, or the reason why no response arrives. The results match those
measured with real HTTP libraries, so a test has the same result with `FakeTransport` as over a socket.
"""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any
from urllib.parse import quote, unquote

import anyio
import anyio.lowlevel
import attrs

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.fake._fault_plan import Exchange, Service, WireFault, WireFaultKind
from outreach_async.fake.faults import error_response
from outreach_async.transport._wire import Progress, Request, Response


class ConnectionEnd(enum.Enum):
    CLOSE = "close"
    RESET = "reset"
    HANG = "hang"  # send nothing more, and wait until the client closes the connection


# Bytes to send, seconds to wait, or, as the last step, the end of the connection.
ServerStep = bytes | float | ConnectionEnd

LONG_HEADER_BYTES = 256 * 1024  # httpx accepts at most 100 KiB, aiohttp 8 KiB

# Random-looking bytes, the same in every run. Line breaks are removed, because they would end the status line early.
_GARBAGE = hashlib.blake2b(b"not a status line").digest().replace(b"\n", b"").replace(b"\r", b"") + b"\r\n\r\n"


def plan_server_steps(fault: WireFault | None, head: bytes, body: bytes) -> Iterable[ServerStep]:
    return (head + body,) if fault is None else SERVER_STEPS[fault.kind](fault, head, body)


def _drip_steps(fault: WireFault, head: bytes, body: bytes) -> Iterator[ServerStep]:
    yield head
    for start in range(0, len(body), fault.size):
        yield fault.seconds
        yield body[start : start + fault.size]


def _cut_body(fault: WireFault, head: bytes, body: bytes) -> bytes:
    # The body may be shorter than the cut. The content-length is then increased, so that the body is still incomplete.
    sent = body[: fault.size]
    return _with_length(head, max(len(body), len(sent) + 1)) + sent


def _encode_chunked(head: bytes, body: bytes, end: bytes) -> bytes:
    return _with_field(head, b"transfer-encoding: chunked") + b"%x\r\n%b\r\n" % (len(body) or 1, body or b" ") + end


def _with_length(head: bytes, length: int) -> bytes:
    return _with_field(head, b"content-length: %d" % length)


def _with_field(head: bytes, field: bytes) -> bytes:
    lines = [line for line in head.split(b"\r\n") if line and not line.lower().startswith(b"content-length:")]
    return b"\r\n".join([*lines, field, b"", b""])


SERVER_STEPS: Mapping[WireFaultKind, Callable[[WireFault, bytes, bytes], Iterable[ServerStep]]] = {
    "latency": lambda fault, head, body: (fault.seconds, head + body),
    "slow_drip": _drip_steps,
    "hang": lambda *_: (ConnectionEnd.HANG,),
    "refuse": lambda *_: (ConnectionEnd.RESET,),
    "reset": lambda *_: (ConnectionEnd.RESET,),
    "close": lambda *_: (ConnectionEnd.CLOSE,),
    "truncate": lambda fault, head, body: (_cut_body(fault, head, body), ConnectionEnd.CLOSE),
    "reset_mid_body": lambda fault, head, body: (_cut_body(fault, head, body), ConnectionEnd.RESET),
    "bad_chunk": lambda _, head, body: (_encode_chunked(head, body, b"no size\r\n"), ConnectionEnd.CLOSE),
    "no_final_chunk": lambda _, head, body: (_encode_chunked(head, body, b""), ConnectionEnd.CLOSE),
    "garbage": lambda *_: (_GARBAGE, ConnectionEnd.CLOSE),
    "long_header": lambda *_: (b"HTTP/1.1 200 OK\r\nx-long: " + b"l" * LONG_HEADER_BYTES, ConnectionEnd.CLOSE),
    "wrong_encoding": lambda _, head, body: (head[:-2] + b"content-encoding: gzip\r\n\r\n" + body, ConnectionEnd.CLOSE),
    "wrong_length": lambda fault, head, body: (_with_length(head, max(0, len(body) - fault.size)) + body, ConnectionEnd.CLOSE),
}


@attrs.frozen
class ClientResult:
    wait: float = 0.0
    response: Response | None = None
    reason: str = ""
    sent: bool = True


def compute_client_result(fault: WireFault | None, response: Response | None) -> ClientResult:
    if fault is None:
        return ClientResult(response=response)
    return CLIENT_RESULTS[fault.kind](fault, response or Response(200))


def _lost_result(reason: str, *, sent: bool = True, wait: float = 0.0) -> Callable[[WireFault, Response], ClientResult]:
    return lambda *_: ClientResult(reason=reason, sent=sent, wait=wait)


CLIENT_RESULTS: Mapping[WireFaultKind, Callable[[WireFault, Response], ClientResult]] = {
    "latency": lambda fault, response: ClientResult(fault.seconds, response),
    "slow_drip": lambda fault, response: ClientResult(fault.seconds * math.ceil(len(response.body) / fault.size), response),
    "hang": _lost_result("no response", wait=math.inf),
    "refuse": _lost_result("connection refused", sent=False),
    "reset": _lost_result("connection reset before a response was received"),
    "close": _lost_result("connection closed before a response was received"),
    "truncate": _lost_result("connection closed in the middle of the response body"),
    "reset_mid_body": _lost_result("connection reset in the middle of the response body"),
    "bad_chunk": _lost_result("the response is not valid HTTP: a chunk without a size"),
    "no_final_chunk": _lost_result("connection closed before the last chunk of the response"),
    "garbage": _lost_result("the response is not valid HTTP: no status line"),
    "long_header": _lost_result("the response is not valid HTTP: a header field is too long"),
    "wrong_encoding": _lost_result("the response body does not match its content-encoding"),
    "wrong_length": lambda fault, response: ClientResult(
        response=attrs.evolve(response, body=response.body[: max(0, len(response.body) - fault.size)])
    ),
}


class FakeTransport:
    """Sends requests to a fake service in the same process.

    A wire fault has the same effect as with an HTTP library over a socket: the same damaged response, or the same error with the
    same `maybe_sent`. Delays of faults use the event loop's clock.

    Args:
        service: A `FakeService`, or any object with an `exchange` method.

    Attributes:
        service: The service.

    Example:
        ```python
        async with OutreachClient(transport=FakeTransport(fake), workspace="space_1") as client:
            print(len(await client.workspaces.fields()), fake.requests.counts)  # -> 37 Counter({'list_fields': 1})
        ```
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self._closed = False

    def __repr__(self) -> str:
        return f"<FakeTransport to {type(self.service).__name__}{', closed' if self._closed else ''}>"

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Execute the request and return the response.

        Raises:
            TransportError: A fault prevents a complete response.
            InvalidRequest: The transport is closed.
        """
        sent_before = progress.sent is True  # a transport that wraps this one may have sent the request before
        progress.sent = sent_before
        # The only checkpoint is before the service executes the request; after it, nothing awaits unless a fault delays the
        # response. If the caller is cancelled here, the request was therefore certainly not executed.
        await anyio.lowlevel.checkpoint()
        if self._closed:
            raise InvalidRequest("the FakeTransport is closed; create a new one")
        progress.sent = True
        exchange = self.service.exchange(request)
        if exchange.fault is None and exchange.response is not None:
            return exchange.response
        read = compute_client_result(exchange.fault, exchange.response)
        # Set before the wait: a caller that times out or is cancelled during the wait reads `progress.sent`.
        progress.sent = sent_before or read.sent
        return await await_result(read, maybe_sent=progress.sent)

    async def aclose(self) -> None:
        """Close the transport: later requests raise `InvalidRequest`. The service is not affected."""
        self._closed = True


async def await_result(read: ClientResult, *, maybe_sent: bool) -> Response:
    if read.wait:
        await anyio.sleep(read.wait)
    if read.response is None:
        raise TransportError(read.reason, maybe_sent=maybe_sent)
    return read.response


# The ASGI application.

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
