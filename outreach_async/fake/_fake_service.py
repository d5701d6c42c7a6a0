"""The in-memory service: its state, and the execution of requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.fake._builder import WorldBuilder
from outreach_async.fake._clock import format_http_date
from outreach_async.fake._handlers import Context, Limiter, email_key, execute
from outreach_async.fake._messages import RENDERERS, ParsedRequest, Refusal, encode, parse_request
from outreach_async.fake._simulation import World
from outreach_async.fake._stored_records import Contact
from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.faults import Exchange, Faults, execute_with_faults
from outreach_async.fake.request_log import Recorded, RequestLog, append_to
from outreach_async.fake.world_file import dump_world, load_world, read_document
from outreach_async.transport._wire import Request, Response

_JSON_HEADERS: Final = {"content-type": "application/json"}
# HTTP libraries refuse long header fields. The request log contains every hint in full.
_MAX_HINT_LENGTH: Final = 2000


def respond(call: ParsedRequest, context: Context, number: int) -> Response:
    """Execute a request and return the response; a refused request gets an error response (rules W11, E2 and E3)."""
    call.request_id = f"req_{number:016x}"
    fields = {"date": format_http_date(int(context.now)), "x-request-id": call.request_id}
    headers: Mapping[str, str] = {}
    try:
        status, document = execute(call, context)
        body = encode(document).encode(errors="backslashreplace")  # a seeded lone surrogate becomes its JSON escape
    except Refusal as refusal:
        call.hints += (*refusal.hints, *([f"decided by Behaviour.{refusal.knob}"] if refusal.knob else []))
        fields |= refusal.headers
        renderer = context.behaviour.error_renderer
        status, headers, body = (RENDERERS[renderer] if isinstance(renderer, str) else renderer)(refusal)
    if call.hints:
        fields["x-fake-hint"] = "; ".join(call.hints)[:_MAX_HINT_LENGTH]
    return Response(status, {**_JSON_HEADERS, **headers, **fields}, b"" if call.request.method == "HEAD" else body)


@attrs.frozen(repr=False)
class Snapshot:
    """The state of a fake at one moment, from `FakeService.snapshot`. `restore` accepts it any number of times.

    Example:
        ```python
        before = fake.snapshot()
        fake.advance(days=30)
        fake.restore(before)
        print(fake.now)  # -> 1767225600.0
        ```
    """

    _world: World
    _offset: int


class FakeService(WorldBuilder):
    """An in-memory implementation of the outreach service.

    It is synchronous, does no I/O, and is safe to share between threads and tasks: requests run one at a time.

    Args:
        seed: Seed for generated data: the same calls produce the same bytes.
        behaviour: How the fake interprets rules that the service's API documentation leaves open.
        clock: The start time as an ISO 8601 string: the time stands still until `advance` is called. Or a callable that returns
            Unix seconds: each request first runs the simulated events that are due, such as e-mails and replies.

    Attributes:
        seed: The seed.
        behaviour: The behaviour; it can be replaced between requests.
        faults: The faults to inject.
        requests: The log of requests.
        sim: Watches the events of the simulation, and scripts the reactions of recipients.

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

    def __init__(
        self, seed: int = 0, behaviour: Behaviour | None = None, clock: str | Callable[[], float] = "2026-01-01T00:00:00Z"
    ) -> None:
        super().__init__(seed, behaviour, clock)
        self.faults = Faults(seed)
        self.requests = RequestLog()
        self._limiter = Limiter()

    def __repr__(self) -> str:
        world = self._world
        return (
            f"<FakeService seed={self.seed}: {len(world.workspaces)} workspaces, {len(world.mailboxes)} mailboxes, "
            f"{len(world.campaigns)} campaigns, {sum(map(len, world.contacts.values()))} contacts>"
        )

    def __reduce_ex__(self, _protocol: object, /) -> NoReturn:
        """Say why the fake cannot be pickled: other processes would change worlds of their own."""
        remedy = "pass its dump() to load() of another fake, or serve it on a port"
        raise InvalidRequest(f"pickle: expected data that can be copied, got a FakeService; {remedy}")

    # Requests.

    def handle(self, request: Request) -> Response:
        """Execute a request and return the response.

        Raises:
            RuntimeError: A wire fault prevents a response. A direct call has no connection on which to reproduce the fault.

        Example:
            ```python
            print(fake.handle(Request("GET", "/workspaces/space_1/all-fields")).status)  # -> 200
            ```
        """
        exchange = self.exchange(request)
        if exchange.response is None:
            raise RuntimeError(f"{exchange.struck} prevents a response; use FakeTransport or a server to reproduce the fault")
        return exchange.response

    def exchange(self, request: Request) -> Exchange:
        """Execute a request. Return the response, and the wire fault that the transport or server must reproduce."""
        # The lock is held throughout, so that the due events, the fault, the request's number and its log entry belong together
        # even if several threads call the fake. Delays of faults come later: the sender of the response waits, without the lock.
        with self._locked_and_current():
            call, number, now = parse_request(request), len(self.requests), self.now
            context = Context(self._world, self.behaviour, self._limiter, self.seed, now)
            exchange = execute_with_faults(self.faults, call.operation, request, lambda: respond(call, context, number))
            # Every request is logged, whether the service executed it or a fault replaced the execution.
            entry = Recorded(
                number=number,
                operation=call.operation,
                method=request.method,
                target=request.target,
                headers=request.headers,
                json=call.body,
                status=None if exchange.response is None else exchange.response.status,
                hints=tuple(call.hints),
                served=call.request_id is not None,
                request_id=call.request_id,
                at=now,
                fault=None if exchange.struck == "ok" else exchange.struck,
            )
            append_to(self.requests, entry)
            return exchange

    # Stored contacts.

    def contacts(self, workspace: str) -> list[dict[str, Any]]:
        """Return the stored contacts of a workspace, in the order they were stored.

        Each is a dict with `id`, `email`, `fields` by code, `campaigns` (ids), `owner` (the key) and `created` (Unix seconds).

        Raises:
            ValueError: The workspace does not exist.

        Example:
            ```python
            print([contact["fields"] for contact in fake.contacts("space_1")])  # -> [{'city': 'Lyon'}]
            ```
        """
        with self._lock:
            self._find_workspace(workspace)
            return [_contact_document(contact) for contact in self._world.contacts[workspace].values()]

    def contact(self, workspace: str, email: str) -> dict[str, Any] | None:
        """Return the contact with the given e-mail, in the format of `contacts`; `None` if there is none.

        Raises:
            ValueError: The workspace does not exist.

        Example:
            ```python
            print(fake.contact("space_1", "BO@acme.example")["id"])  # -> contact_1
            ```
        """
        with self._lock:
            self._find_workspace(workspace)
            contact = self._world.contacts[workspace].get(email_key(self.behaviour)(email.strip()))
            return None if contact is None else _contact_document(contact)

    # Time.

    def advance(self, **step: float) -> None:
        """Advance the time, and run every event that is due by the new time: e-mails, opens, replies, ...

        Args:
            step: The duration, as arguments of `datetime.timedelta`: `days`, `hours`, `minutes`, `seconds`, ...

        Raises:
            ValueError: The duration is negative.

        Example:
            ```python
            fake.advance(days=3)
            print((await client.campaigns.steps("camp_1")).data[0].already_sent)  # -> 40
            ```
        """
        with self._lock:
            self._clock.advance(timedelta(**step))
            self._run_due_events()

    # State.

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the stored data, pending events and the time, without the faults and the request log.

        Example:
            ```python
            before = fake.snapshot()
            ```
        """
        with self._lock:
            return Snapshot(self._world.copy(), self._clock.offset)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot of this fake, or of another fake with the same clock.

        Example:
            ```python
            fake.restore(fake.snapshot())
            ```
        """
        with self._lock:
            # Copy again: later changes must not affect the snapshot, which can be restored more than once.
            self._world = snapshot._world.copy()  # noqa: SLF001 - only `FakeService` reads the members of a snapshot
            self._clock.offset = snapshot._offset  # noqa: SLF001 - as above

    def reset(self) -> None:
        """Reset the fake to its initial state: no stored data, no faults, an empty request log, and the initial time.

        Example:
            ```python
            fake.reset()
            print(fake)  # -> <FakeService seed=0: 0 workspaces, 0 mailboxes, 0 campaigns, 0 contacts>
            ```
        """
        with self._lock:
            self._world = World()
            self._clock.offset = 0
            self._limiter = Limiter()
            self.faults.clear()
            self.requests.clear()
            self.sim.listeners.clear()

    def load(self, source: str | Path | Mapping[str, Any]) -> None:
        """Replace the stored data, and the time if the file has one, with a world file. An invalid file changes nothing.

        Args:
            source: A JSON string, the path of a file, or the parsed document; `outreach_async.fake.world_file` shows the format.

        Raises:
            WorldError: The file is invalid.
            OSError: The file cannot be read.

        Example:
            ```python
            fake.load({"version": 1, "workspaces": [{"id": "space_2", "contacts": [{"email": "ann@company.example"}]}]})
            print(fake)  # -> <FakeService seed=0: 1 workspaces, 0 mailboxes, 0 campaigns, 1 contacts>
            ```
        """
        document = read_document(source)
        with self._lock:
            loaded = WorldBuilder(self.seed, self.behaviour, document.now or self._clock.iso)
            self._world = load_world(document, loaded)
            if document.now is not None:
                self._clock.set_time(document.now)

    def dump(self) -> str:
        """Return the stored data, pending events and the time as a world file; equal states give equal strings.

        Example:
            ```python
            other = FakeService()
            other.load(fake.dump())
            print(other.dump() == fake.dump())  # -> True
            ```
        """
        with self._locked_and_current():
            return dump_world(self._world, self._clock.iso)


def copy_service(original: FakeService, state: Snapshot, behaviour: Behaviour, seed: int | None) -> FakeService:
    fake = FakeService(original.seed if seed is None else seed, behaviour)
    fake._clock = copy(original._clock)  # noqa: SLF001 - the class of this module
    fake.restore(state)
    return fake


def _contact_document(contact: Contact) -> dict[str, Any]:
    return {
        "id": contact.id,
        "email": contact.email,
        "fields": dict(contact.fields),
        "campaigns": contact.campaigns,
        "owner": contact.owner,
        "created": contact.created,
    }
