"""The whole service in memory, for tests, demos and `serve`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from outreach_async.fake.answers import answer, recorded
from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.calls import read_call
from outreach_async.fake.clock import Clock
from outreach_async.fake.contacts import email_key
from outreach_async.fake.exchange import Exchange, nothing
from outreach_async.fake.faults import Faults
from outreach_async.fake.filling import Fillable
from outreach_async.fake.handlers import Context
from outreach_async.fake.journal import Journal
from outreach_async.fake.limiter import Limiter
from outreach_async.fake.records import Contact
from outreach_async.fake.seeding import Seeder
from outreach_async.fake.simulation.control import Control
from outreach_async.fake.simulation.engine import Engine
from outreach_async.fake.world import World
from outreach_async.fake.worldfile import dump, load, read_document
from outreach_async.transport.wire import Request, Response

if TYPE_CHECKING:
    from outreach_async.fake.asgi import Application


@attrs.frozen(repr=False)
class Snapshot:
    """A fake's state at one moment; made by `FakeService.snapshot`, used by `restore`, any number of times.

    Example:
        ```python
        before = fake.snapshot()
        fake.add_contacts("space_1", 5)
        fake.restore(before)
        print(len(fake.contacts("space_1")))  # -> 1
        ```
    """

    _world: World
    _offset: int


class FakeService(Fillable):
    """The outreach service in memory: every rule that the interface states, and a reading of every one that it leaves open.

    It is synchronous, does no I/O and belongs to no event loop: threads and tasks may use one at the same time, and what they ask
    is carried out one request after the other. Whatever is not given is made up from the seed, so the same calls give the same
    bytes.

    Args:
        seed: What is made up is drawn from it.
        behaviour: The readings in force where the interface is silent.
        clock: ISO 8601 text, where time stands until `advance`; or a callable that returns Unix seconds: whatever is due by then
            happens before each request.

    Attributes:
        seed: The same.
        behaviour: The same; may be exchanged between requests.
        faults: What goes wrong on purpose.
        requests: The journal of what was asked.
        sim: What becomes of the e-mails that are sent while time passes, and how to settle it.

    Raises:
        ValueError: The clock's text is no time.

    Example:
        ```python
        fake = FakeService(seed=3)
        space = fake.add_workspace(custom_fields=["Plan"])
        client = OutreachClient(transport=FakeTransport(fake), workspace=space, owner_key=fake.add_owner_key(space))
        print((await client.contacts.create(NewContact("ann@company.example"))).status)  # -> added
        ```
    """

    def __init__(
        self,
        seed: int = 0,
        behaviour: Behaviour | None = None,
        clock: str | Callable[[], float] = "2026-01-01T00:00:00Z",
    ) -> None:
        self.seed = seed
        self.behaviour = Behaviour.documented() if behaviour is None else behaviour
        self.faults = Faults(seed)
        self.requests = Journal()
        self._clock = Clock(clock)
        self._world = World()
        self._limiter = Limiter()
        # Creating is a look, then an act; threads must not come between.
        self._lock = threading.RLock()
        self.sim = Control(self._seeding)

    def __repr__(self) -> str:
        world = self._world
        contacts = sum(map(len, world.contacts.values()))
        return (
            f"<FakeService seed={self.seed}: {len(world.workspaces)} workspaces, {len(world.mailboxes)} mailboxes, "
            f"{len(world.campaigns)} campaigns, {contacts} contacts>"
        )

    # Answering.

    def handle(self, request: Request) -> Response:
        """Carry a request out and answer it.

        Raises:
            RuntimeError: A fault on the wire kept the answer back: a plain call has no wire.

        Example:
            ```python
            print(fake.handle(Request("GET", "/workspaces/space_1/all-fields")).status)  # -> 200
            ```
        """
        exchange = self.exchange(request)
        exchange.ended()
        if exchange.response is None:
            raise RuntimeError(f"the fault {exchange.fault} left no answer: use FakeTransport or the server to meet it")
        return exchange.response

    def exchange(self, request: Request) -> Exchange:
        """Carry a request out, with the fault that waits for it.

        Returns:
            The answer and what happens to it on the wire.
        """
        with self._lock:
            if self._clock.runs:
                self._catch_up()
            call, number, now = read_call(request), len(self.requests), self.now
            exchange = self.faults.around(call.operation, request, lambda: answer(call, self._context(now), number))
            self.requests.add(recorded(call, exchange, number, now))
            return exchange if call.ended is nothing else attrs.evolve(exchange, ended=call.ended)

    def _context(self, now: float) -> Context:
        return Context(self._world, self.behaviour, self._limiter, self.seed, now)

    @contextmanager
    def _seeding(self) -> Iterator[Seeder]:
        with self._caught_up(), self._seeder(self._world).all_or_nothing() as seeder:
            yield seeder

    def _seeder(self, world: World) -> Seeder:
        return Seeder(world, self.seed, self.now, email_key(self.behaviour))

    # Looking.

    def contacts(self, workspace: str) -> list[dict[str, Any]]:
        """Get the stored contacts of a workspace, in the order they were stored.

        Returns:
            `id`, `email`, `fields` by code, `campaigns` (ids), `owner` (the key) and `created` (Unix seconds) of each.

        Raises:
            ValueError: There is no such workspace.

        Example:
            ```python
            print([(contact["email"], contact["fields"]) for contact in fake.contacts("space_1")])
            # -> [('bo@acme.example', {'city': 'Lyon'})]
            ```
        """
        with self._lock:
            self._seeder(self._world).check_workspace(workspace)
            return [_plain(contact) for contact in self._world.contacts[workspace].values()]

    def contact(self, workspace: str, email: str) -> dict[str, Any] | None:
        """Get the contact that an e-mail finds, in the form of `contacts`; `None` if there is none.

        Raises:
            ValueError: There is no such workspace.

        Example:
            ```python
            print(fake.contact("space_1", "BO@acme.example")["id"])  # -> contact_1
            ```
        """
        with self._lock:
            seeder = self._seeder(self._world)
            seeder.check_workspace(workspace)
            contact = self._world.contacts[workspace].get(seeder.key(email.strip()))
            return None if contact is None else _plain(contact)

    # Time.

    @property
    def now(self) -> float:
        """Unix seconds of the fake's clock."""
        return self._clock.now

    def advance(self, **step: float) -> None:
        """Move time on, and let everything happen that is to happen up to then: e-mails, opens, replies, ...

        What is due now, such as the first e-mail to a contact that has just joined a live campaign, waits for the next `advance`,
        be it of nothing.

        Args:
            step: What `datetime.timedelta` takes: `days`, `hours`, `minutes`, `seconds`, ...

        Raises:
            ValueError: The step is negative.

        Example:
            ```python
            fake.add_contacts("space_1", [{"email": "ann@company.example"}], campaign="camp_1")
            fake.advance(days=3)
            print((await client.campaigns.steps("camp_1")).data[0].already_sent)  # -> 41
            ```
        """
        with self._lock:
            self._clock.advance(timedelta(**step))
            self._catch_up()

    def _catch_up(self) -> None:
        world = self._world
        engine = Engine(world.simulation, world.campaigns, world.mailboxes, self.seed, tuple(self.sim.listeners))
        engine.run(self._clock.micros)

    @contextmanager
    def _caught_up(self) -> Iterator[None]:
        """Keep others out. By a clock that runs, what is due has happened by now."""
        with self._lock:
            if self._clock.runs:
                self._catch_up()
            yield

    # State.

    def snapshot(self) -> Snapshot:
        """Keep the state: all that is stored, what is under way, and the time. Faults and the journal are no part of it.

        Example:
            ```python
            before = fake.snapshot()
            ```
        """
        with self._lock:
            return Snapshot(self._world.copy(), self._clock.offset)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a kept state, of this fake or of one with the same clock.

        Example:
            ```python
            before = fake.snapshot()
            fake.advance(days=30)
            fake.restore(before)
            print(fake.now)  # -> 1767225600.0
            ```
        """
        with self._lock:
            self._world = snapshot._world.copy()  # noqa: SLF001 - a snapshot is closed to all but its maker
            self._clock.offset = snapshot._offset  # noqa: SLF001 - the same

    def reset(self) -> None:
        """Become as new: nothing stored, no fault waiting, an empty journal, and time where it began.

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
        """Replace what is stored by a world file's content, and set the time if it says one; a bad file changes nothing.

        Args:
            source: JSON text, the path of a file, or the document itself; `outreach_async.fake.worldfile` shows its form.

        Raises:
            WorldError: The file makes no world; the message says where and why.
            OSError: It cannot be read.

        Example:
            ```python
            fake.load({"version": 1, "workspaces": [{"id": "space_2", "contacts": [{"email": "ann@company.example"}]}]})
            print(fake)  # -> <FakeService seed=0: 1 workspaces, 0 mailboxes, 0 campaigns, 1 contacts>
            ```
        """
        document = read_document(source)
        with self._lock:
            offset = self._clock.offset
            try:
                self._load(document)
            except ValueError:
                self._clock.offset = offset
                raise

    def _load(self, document: Mapping[str, Any]) -> None:
        world = World()
        if "now" in document:
            self._clock.move_to(document["now"])
        load(document, self._seeder(world))
        self._world = world

    def dump(self) -> str:
        """Write all that is stored, what is under way, and the time, as a world file; the same text for the same state.

        Example:
            ```python
            other = FakeService()
            other.load(fake.dump())
            print(other.dump() == fake.dump())  # -> True
            ```
        """
        with self._caught_up():
            return dump(self._world, self._clock.text)

    def asgi(self, *, control: bool = False) -> Application:
        """Make an ASGI application that answers as this fake does, to be mounted or served elsewhere.

        Args:
            control: Whether it has the control plane too, under `/_fake/`; see `outreach_async.fake.control`.

        Example:
            ```python
            app = fake.asgi(control=True)  # uvicorn, hypercorn or a Mount of Starlette take it
            ```
        """
        from outreach_async.fake.asgi import asgi_app
        from outreach_async.fake.control import Controlled

        return asgi_app(Controlled(self) if control else self)


def _plain(contact: Contact) -> dict[str, Any]:
    return {
        "id": contact.id,
        "email": contact.email,
        "fields": dict(contact.fields),
        "campaigns": contact.campaigns,
        "owner": contact.owner,
        "created": contact.created,
    }
