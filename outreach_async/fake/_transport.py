"""`FakeTransport`, which calls the fake without a socket."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import attrs

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.fake._damage import deliver
from outreach_async.fake._messages import without_body
from outreach_async.fake.faults import Service
from outreach_async.transport._wire import Progress, Request, Response


class FakeTransport:
    """Sends requests to a fake service in the same process.

    A wire fault has the same effect as with an HTTP library over a socket:
    the same damaged response, or the same error with the same
    `maybe_sent`. Delays of faults use the event loop's clock.

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
        response, fault = exchange.response or Response(200), exchange.fault  # without a response, a fault decides
        if fault is None:
            return without_body(response) if request.method == "HEAD" else response
        delivery = deliver(fault, response, request.method)
        # Set before the wait: a caller that times out or is cancelled during the wait reads `progress.sent`.
        progress.sent = sent_before or fault.kind != "refuse"
        if wait := delivery.wait + sum(seconds for seconds, _ in delivery.parts):
            await anyio.sleep(wait)
        if delivery.response is None or delivery.lost:
            raise TransportError(delivery.lost, maybe_sent=progress.sent)
        return attrs.evolve(delivery.response, body=b"".join(part for _, part in delivery.parts))

    async def aclose(self) -> None:
        """Close only the transport: later requests raise `InvalidRequest`."""
        self._closed = True
