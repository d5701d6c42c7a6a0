"""Define the transport protocol, and the requests and responses that transports exchange.

The client handles operations, retries, limits and timeouts. A transport only sends and receives bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, runtime_checkable

import attrs

PROXY_AUTHENTICATION_REQUIRED: Final = 407
METHOD: Final = re.compile(r"[A-Z]+(?:-[A-Z]+)*")
HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADER_VALUE: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
"""Pattern of header values that all HTTP libraries send unchanged."""
PATH_CHARACTERS: Final = r"A-Za-z0-9\-._~!$&'()*+,;=:@/%"
"""Characters of a path that all HTTP libraries send unchanged, in the syntax of a character class of a regular expression."""
_DOT_SEGMENT: Final = re.compile(r"(?:\A|/)(?:\.|%2e){1,2}(?:/|\Z)", re.IGNORECASE)


def has_dot_segments(target: str) -> bool:
    """Return whether the path of a request target has a `.` or `..` segment, which HTTP libraries remove."""
    return _DOT_SEGMENT.search(target.partition("?")[0]) is not None


@attrs.frozen(repr=False)
class Request:
    """One complete HTTP request.

    Attributes:
        method: The HTTP method, upper case.
        target: The request target of RFC 9112: percent-encoded path and
            query, starting with `/`. The transport prepends the path of
            the base URL, if any, and sends the target byte for byte: `%2F`
            in an id never becomes a slash.
        headers: Header fields by lower-case name.
        body: The complete body, UTF-8 JSON; empty if there is none.

    Example:
        ```python
        request = Request("GET", "/workspaces/space_1/all-fields")
        print(fake.handle(request).status)  # -> 200
        ```
    """

    method: str
    target: str
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)  # the library rich shows fields that `__repr__` omits
    body: bytes = attrs.field(default=b"", repr=False)

    def __repr__(self) -> str:
        """Show method, target and size; headers and body may have secrets."""
        return f"<Request {self.method} {self.target} ({len(self.body)} bytes)>"


@attrs.frozen(repr=False)
class Response:
    """One HTTP response, read to its end.

    Attributes:
        status: The HTTP status code.
        headers: Header fields by lower-case name; repeated fields are
            joined with `, `.
        body: The complete body, decompressed.

    Example:
        ```python
        response = fake.handle(Request("GET", "/workspaces/space_1/all-fields"))
        print(response.status, response.body[:14])  # -> 200 b'{"status":"ok"'
        ```
    """

    status: int
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    body: bytes = attrs.field(default=b"", repr=False)

    @property
    def request_id(self) -> str | None:
        """The response's `x-request-id`; `None` without one."""
        return self.headers.get("x-request-id")

    def json(self) -> Any:
        """Return the body as a JSON value.

        Raises:
            ValueError: The body is not JSON.

        Example:
            ```python
            print(Response(200, body=b'{"status": "ok"}').json()["status"])  # -> ok
            ```
        """
        import json  # a slow import, which requests and responses do not need

        return json.loads(self.body)

    def __repr__(self) -> str:
        """Show the status and the size; the body may repeat secrets."""
        return f"<Response {self.status} ({len(self.body)} bytes)>"


class Progress:
    """Records whether a request was sent.

    The record remains readable after `Transport.send` was cancelled.

    Attributes:
        sent: `False`: no byte was sent. `True`: a byte may have been sent.
            `None` (initially): unknown, and counts as maybe sent.

    Example:
        ```python
        progress = Progress()
        await FakeTransport(fake).send(Request("GET", "/workspaces/space_1/all-fields"), progress)
        print(progress.sent)  # -> True
        ```
    """

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent: bool | None = None


@runtime_checkable
class Transport(Protocol):
    """Sends requests to the service.

    Many tasks may use a transport at the same time. A transport never
    retries, follows no redirects, stores no cookies and has no timeout of
    its own: the client cancels `send`. A transport can have these
    attributes. `Middleware`, the base class of transports that wrap
    another, forwards them.

    - `max_in_flight: int` limits the client's concurrency.
    - `secrets: tuple[str, ...]` contains strings to mask in errors, such
      as a proxy password.
    - `drop_idle()` closes idle connections. The client calls it when a
      response turns out to be a copy of an earlier one.
    - `base_url: str` is the URL that the transport prepends to every
      target. Hooks receive it, and journals record it.
    - `proxy: str | None` is the address of the proxy between the client
      and the service, without user. Errors name it.

    Example:
        ```python
        class Canned:
            async def send(self, request: Request, progress: Progress, /) -> Response:
                return Response(200, body=b'{"status": "ok", "data": []}')

            async def aclose(self) -> None: ...


        async with OutreachClient(transport=Canned(), workspace="space_1") as client:
            print(await client.workspaces.fields())  # -> []
        ```
    """

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Send a request and read its complete response, whatever its status.

        Raises:
            TransportError: No complete response arrived. The error's
                `maybe_sent` follows from `progress`.
        """

    async def aclose(self) -> None:
        """Close every connection. You may call this more than once."""


_OPTIONAL: Final[Mapping[str, Any]] = {"max_in_flight": None, "secrets": (), "base_url": None, "proxy": None, "drop_idle": bool}
"""What a transport can have besides `send` and `aclose`, and what stands for it in one that has it not."""


class Middleware:
    """Base class of middleware: a transport that passes requests to another.

    Override `send`, and await `super().send(...)` in it. `aclose` and
    every optional attribute of `Transport` are those of `inner`, unless
    you assign or define your own: without the `secrets` of `inner`, errors
    could show a password.

    Args:
        inner: The transport to pass the requests to.

    Attributes:
        inner: The transport that was passed.
        max_in_flight, secrets, base_url, proxy: Those of `inner`, or
            `None`, and no secrets, if it has none.

    Example:
        ```python
        class Tagged(Middleware):
            async def send(self, request: Request, progress: Progress, /) -> Response:
                headers = {**request.headers, "x-run": "7"}
                tagged = Request(request.method, request.target, headers, request.body)
                return await super().send(tagged, progress)


        transport = Tagged(HttpxTransport("https://api.example"))
        print(transport, transport.max_in_flight)  # -> <Tagged over <HttpxTransport to https://api.example by httpx>> 64
        ```
    """

    max_in_flight: int | None
    secrets: tuple[str, ...]
    base_url: str | None
    proxy: str | None
    drop_idle: Callable[[], object]

    def __init__(self, inner: Transport, /) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:  # only for what neither the class nor the instance has
        if name not in _OPTIONAL:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return getattr(self.inner, name, _OPTIONAL[name])

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Pass the request to `inner`, and return its response."""
        return await self.inner.send(request, progress)

    async def aclose(self) -> None:
        """Close `inner`."""
        await self.inner.aclose()

    def __repr__(self) -> str:
        """Show the class and `inner`."""
        return f"<{type(self).__name__} over {self.inner!r}>"
