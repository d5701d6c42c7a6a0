"""`FakeService`, the in-memory service for tests, demos and `serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outreach_async.fake.in_memory import InMemoryService

if TYPE_CHECKING:
    from outreach_async.fake.asgi import Application


class FakeService(InMemoryService):
    """An in-memory implementation of the outreach service.

    It implements every rule that the interface states, and a configurable interpretation of every rule that the interface leaves
    open. It is synchronous, does no I/O, and is safe to share between threads and tasks: requests run one at a time. Values you
    do not pass are generated from `seed`: the same calls produce the same bytes.

    Args:
        seed: Seed for generated data.
        behaviour: The interpretation of the rules that the interface leaves open.
        clock: The source of the current time: either the start time as an ISO 8601 string, which only `advance` moves, or a
            callable that returns Unix seconds. With a callable, all events that are due run before each request.

    Attributes:
        seed: The seed.
        behaviour: The behaviour; it can be replaced between requests.
        faults: The faults to inject.
        requests: The log of requests.
        sim: The simulation of sent e-mails: watch its events, or script the reactions of recipients.

    Raises:
        ValueError: `clock` is a string but not a valid ISO 8601 time.

    Example:
        ```python
        fake = FakeService(seed=3)
        space = fake.add_workspace(custom_fields=["Plan"])
        client = OutreachClient(transport=FakeTransport(fake), workspace=space, owner_key=fake.add_owner_key(space))
        print((await client.contacts.create(NewContact("ann@company.example"))).status)  # -> added
        ```
    """

    def asgi(self, *, control: bool = False) -> Application:
        """Return an ASGI application for this fake. Mount it in another application, or pass it to an ASGI server.

        Args:
            control: Whether to add the control plane under `/_fake/`; see `outreach_async.fake.control`.

        Example:
            ```python
            app = fake.asgi(control=True)  # for uvicorn, hypercorn or a Mount of Starlette
            ```
        """
        # Imported on first use: both modules need libraries that the service itself does not need.
        from outreach_async.fake.asgi import asgi_app
        from outreach_async.fake.control import ControlPlane

        return asgi_app(ControlPlane(self) if control else self)
