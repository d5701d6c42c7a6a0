"""The seam: one exchange of bytes with the service, and who carries it.

Everything above this module (retries, limits, clocks, models) is the library's; everything below it is one small adapter a
library. A transport therefore knows nothing of operations, and the client nothing of sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import attrs


@attrs.frozen(repr=False)
class Request:
    """One HTTP request, whole and ready to send.

    Attributes:
        method: The HTTP method, upper case.
        target: The request target of RFC 9112: percent-encoded path and query in one, starting with `/`. A path in the base
            URL prefixes it. It is sent byte for byte: `%2F` in an id never becomes a slash.
        headers: Header fields by lower-case name.
        body: The whole body, UTF-8 JSON; empty for none.

    Example:
        ```python
        request = Request("GET", "/workspaces/space_1/all-fields")
        print(fake.handle(request).status)  # -> 200
        ```
    """

    method: str
    target: str
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)  # rich shows the fields of a class whose repr hides them
    body: bytes = attrs.field(default=b"", repr=False)

    def __repr__(self) -> str:
        """Show what is asked, never a header's value or the body: both carry secrets."""
        return f"<Request {self.method} {self.target} ({len(self.body)} bytes)>"


@attrs.frozen(repr=False)
class Response:
    """One HTTP answer, read to its end.

    Attributes:
        status: The HTTP status code.
        headers: Header fields by lower-case name; repeated fields are joined by `, `.
        body: The whole body with its content encoding undone.

    Example:
        ```python
        response = fake.handle(Request("GET", "/workspaces/space_1/all-fields"))
        print(response.status, response.body[:14])  # -> 200 b'{"status":"ok"'
        ```
    """

    status: int
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    body: bytes = attrs.field(default=b"", repr=False)

    def __repr__(self) -> str:
        """Show the status and the size: a body may echo what was sent."""
        return f"<Response {self.status} ({len(self.body)} bytes)>"


class Progress:
    """What a transport knows of a request's fate; it survives the transport's cancellation.

    Attributes:
        sent: `None`, at the start: cannot tell (counts as maybe). `False`: no byte of the request has left. `True`: a byte may
            have left.

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
    """Carries one request at a time to the service; called by many tasks at once.

    A transport repeats nothing, follows no redirect, keeps no cookie, has no timeout of its own (the client's clock reaches it
    as a cancellation) and refuses an answer that grows too large while it reads. It may have three attributes: `max_in_flight:
    int` bounds the client's limiter; `secrets: tuple[str, ...]` are texts of its own, such as a proxy's password, that the client
    masks in errors; and `base_url: str` is what stands before every target, for hooks. A transport that wraps another should pass
    them on.

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
        """Send the request and read the whole answer, whatever its status.

        Raises:
            TransportError: No whole answer arrived; its `maybe_sent` agrees with `progress`.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection. Closing twice is allowed."""
        ...
