"""A transport that calls the fake directly, without a socket, a server or an HTTP library."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.fake.damage import Reading, reading
from outreach_async.fake.exchange import Service
from outreach_async.transport.wire import Progress, Request, Response


class FakeTransport:
    """Sends requests to a fake service in the same process.

    A wire fault has the same effect as through a real backend over a socket: the same error, the same `maybe_sent`, or the same
    damaged response. Delays of faults use the event loop's clock.

    Args:
        service: A `FakeService`, or any object with `exchange`.

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
        """Execute the request and return the response, as far as a fault leaves one.

        Raises:
            TransportError: A fault lost the response.
            InvalidRequest: The transport is closed.
        """
        sent_before = progress.sent is True  # a transport that wraps this one may have sent it before
        progress.sent = sent_before
        # The only checkpoint comes before the service acts, and afterwards nothing awaits unless a fault delays the response. A
        # caller cancelled here therefore knows that nothing was done.
        await anyio.lowlevel.checkpoint()
        if self._closed:
            raise InvalidRequest("the FakeTransport is closed; create a new one")
        progress.sent = True
        exchange = self.service.exchange(request)
        try:
            if exchange.fault is None and exchange.response is not None:
                return exchange.response
            read = reading(exchange.fault, exchange.response)
            # Set before the wait, not after it: a caller that times out or is cancelled meanwhile reads it.
            progress.sent = sent_before or read.sent
            return await arrive(read, maybe_sent=progress.sent)
        finally:
            exchange.ended()

    async def aclose(self) -> None:
        """Close the transport; later requests are refused. The service is not affected."""
        self._closed = True


async def arrive(read: Reading, *, maybe_sent: bool) -> Response:
    """Wait as long as the fault demands, and return the response.

    Raises:
        TransportError: No response arrives. Its `maybe_sent` is the argument.
    """
    if read.wait:
        await anyio.sleep(read.wait)
    if read.response is None:
        raise TransportError(read.reason, maybe_sent=maybe_sent)
    return read.response
