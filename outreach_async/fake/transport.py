"""The transport that ends in the fake itself: no socket, no server, no HTTP library."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.fake.damage import Reading, reading
from outreach_async.fake.exchange import Service
from outreach_async.transport.wire import Progress, Request, Response


class FakeTransport:
    """Carries requests to a fake service in this very process.

    A fault on the wire shows as it does through a real backend over a socket: the same error, the same `maybe_sent`, or the same
    damaged answer. Waiting, where a fault makes it wait, is on the event loop's clock.

    Args:
        service: A `FakeService`, or whatever else answers `exchange`.

    Attributes:
        service: The same.

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
        """Let the service carry the request out, and bring its answer or what a fault makes of it.

        Raises:
            TransportError: A fault lost the answer.
            InvalidRequest: The transport is closed.
        """
        sent_before = progress.sent is True  # a wrapper may have sent it once already
        progress.sent = sent_before
        # The one checkpoint stands before the act. After it nothing awaits unless a fault says so: who is cancelled here knows
        # that nothing was done.
        await anyio.lowlevel.checkpoint()
        if self._closed:
            raise InvalidRequest("the FakeTransport is closed; make a new one")
        progress.sent = True
        exchange = self.service.exchange(request)
        try:
            if exchange.fault is None and exchange.response is not None:
                return exchange.response
            read = reading(exchange.fault, exchange.response)
            progress.sent = sent_before or read.sent
            return await arrive(read, maybe_sent=progress.sent)
        finally:
            exchange.ended()

    async def aclose(self) -> None:
        """Refuse every later request. The service stays as it is."""
        self._closed = True


async def arrive(read: Reading, *, maybe_sent: bool) -> Response:
    """Wait for an answer as long as it takes, and give it.

    Raises:
        TransportError: None arrives; it says `maybe_sent` as given.
    """
    if read.wait:
        await anyio.sleep(read.wait)
    if read.response is None:
        raise TransportError(read.reason, maybe_sent=maybe_sent)
    return read.response
