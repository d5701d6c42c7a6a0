"""The whole service in memory, for tests, demos and `serve`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import attrs

from outreach_async.fake.answers import answer, recorded
from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.calls import read_call
from outreach_async.fake.campaign_seeds import CampaignSeed, StepSeed
from outreach_async.fake.clock import Clock
from outreach_async.fake.contacts import email_key
from outreach_async.fake.exchange import Exchange
from outreach_async.fake.faults import Faults
from outreach_async.fake.handlers import Context
from outreach_async.fake.journal import Journal
from outreach_async.fake.limiter import Limiter
from outreach_async.fake.records import Contact
from outreach_async.fake.seeding import Seeder
from outreach_async.fake.world import World
from outreach_async.fake.worldfile import dump, load, read_document
from outreach_async.transport.wire import Request, Response

if TYPE_CHECKING:
    from outreach_async.fake.asgi import Application


@attrs.frozen(repr=False)
class Snapshot:
    """A fake's state at one moment; made by `FakeService.snapshot`, used by `restore`, any number of times."""

    _world: World
    _offset: int


class FakeService:
    """The outreach service in memory: every rule that the interface states, and a reading of every one that it leaves open.

    It is synchronous, does no I/O and belongs to no event loop: threads and tasks may use one at the same time, and what they ask
    is carried out one request after the other. Whatever is not given is made up from the seed, so the same calls give the same
    bytes.

    Args:
        seed: What is made up is drawn from it.
        behaviour: The readings in force where the interface is silent.
        clock: ISO 8601 text, where time stands until `advance`; or a callable that returns Unix seconds.

    Attributes:
        seed: The same.
        behaviour: The same; may be exchanged between requests.
        faults: What goes wrong on purpose.
        requests: The journal of what was asked.

    Raises:
        ValueError: The clock's text is no time.
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
        """
        exchange = self.exchange(request)
        if exchange.response is None:
            raise RuntimeError(f"the fault {exchange.fault} left no answer: use FakeTransport or the server to meet it")
        return exchange.response

    def exchange(self, request: Request) -> Exchange:
        """Carry a request out, with the fault that waits for it.

        Returns:
            The answer and what happens to it on the wire.
        """
        with self._lock:
            call = read_call(request)
            number = len(self.requests)
            exchange = self.faults.around(call.operation, request, lambda: answer(call, self._context(), number))
            self.requests.add(recorded(call, exchange, number, self.now))
            return exchange

    def _context(self) -> Context:
        return Context(self._world, self.behaviour, self._limiter, self.seed, self.now)

    # Filling.

    def add_workspace(
        self,
        id: str | None = None,  # noqa: A002 - named as on the wire
        *,
        custom_fields: Iterable[str] | Mapping[str, str] = (),
        extra_fields: Mapping[str, str] | None = None,
        campaign_headers: Iterable[str] | None = None,
        mailbox_headers: Iterable[str] | None = None,
    ) -> str:
        """Add an empty workspace.

        Args:
            id: Its id; made up if not given.
            custom_fields: Labels of custom fields, which become `custom_1`, `custom_2`, ...; or labels by code.
            extra_fields: Labels by code of further standard fields, as all-fields may reveal them.
            campaign_headers: Columns of the campaign list, as the user's settings hold them.
            mailbox_headers: Columns of the mailbox list.

        Returns:
            Its id.

        Raises:
            ValueError: The id is taken or malformed, or a code is malformed.
        """
        with self._seeding() as seeder:
            return seeder.workspace(id, custom_fields, extra_fields or {}, campaign_headers, mailbox_headers)

    def add_owner_key(self, *workspaces: str, key: str | None = None) -> str:
        """Add the API key of a user, or give the user of a known key access to more workspaces.

        Args:
            workspaces: Ids of the user's workspaces.
            key: The key; made up if not given.

        Returns:
            The key.

        Raises:
            ValueError: There is no such workspace, or the key is malformed.
        """
        with self._seeding() as seeder:
            return seeder.owner_key(workspaces, key)

    def add_mailbox(self, workspace: str, *, trouble: float = 0.0, **fields: Any) -> str:
        """Add a mailbox; see `add_mailboxes`.

        Returns:
            Its id.
        """
        with self._seeding() as seeder:
            return seeder.mailboxes(workspace, [fields], trouble)[0]

    def add_mailboxes(self, workspace: str, count: int, *, trouble: float = 0.0, **fields: Any) -> list[str]:
        """Add mailboxes with made-up figures that agree with each other; all of them healthy.

        Args:
            workspace: Id of their workspace.
            count: How many.
            trouble: How probable it is that something is wrong with one, from 0 to 1.
            fields: Values for any field of a mailbox, taken as they are, damaged or not. `domain` gives their e-mails' domain;
                a rate may be a pair, the part and the whole; `last_activity` may be Unix seconds.

        Returns:
            Their ids.

        Raises:
            TypeError: A mailbox has no such field, or a value is not for JSON.
            ValueError: There is no such workspace.
        """
        with self._seeding() as seeder:
            return seeder.mailboxes(workspace, [fields] * count, trouble)

    def add_campaign(
        self,
        workspace: str,
        *,
        id: str | None = None,  # noqa: A002 - named as on the wire
        name: str = "Campaign",
        status: str = "draft",
        mailboxes: Iterable[str] = (),
        steps: Iterable[StepSeed] = (),
        contacts: int | None = None,
        bounces_num: int | None = None,
        interested_num: int | None = None,
        created: int | None = None,
        last_activity: float | Literal["auto"] | None = "auto",
    ) -> str:
        """Add a campaign. Every count and percentage of its answers follows from its templates.

        Args:
            workspace: Id of its workspace.
            id: Its id; made up if not given.
            name: Its name.
            status: `draft`, `live`, `paused`, or another that a client is to meet.
            mailboxes: Ids of the mailboxes that it sends through.
            steps: Its steps in order. A step is a text of template letters, such as `A|B|PER`, or a mapping with any of `id`,
                `status`, `wait_time` (milliseconds), `left_to_send`, `templates` (letters, or a list of letters and mappings with
                the fields of a template) and `sent`: e-mails to share out over its templates, with made-up opens and replies.
            contacts: Contacts that are in it but not stored one by one; those of step 1 if not given.
            bounces_num: E-mails bounced; made up for steps with `sent`, else 0.
            interested_num: Replies that show interest; likewise.
            created: Unix seconds; now if not given.
            last_activity: Unix seconds, `None` for never, or `auto`: lately if anything was sent.

        Returns:
            Its id.

        Raises:
            TypeError: A step or template has no such field, or a value is of the wrong kind.
            ValueError: There is no such workspace or mailbox, the id is taken or malformed, or the counts do not agree.
        """
        seed = CampaignSeed(
            workspace=workspace,
            id=id,
            name=name,
            status=status,
            mailboxes=mailboxes,
            steps=steps,
            contacts=contacts,
            bounces_num=bounces_num,
            interested_num=interested_num,
            created=created,
            last_activity=last_activity,
        )
        with self._seeding() as seeder:
            return seeder.campaign(seed)

    def add_contacts(
        self,
        workspace: str,
        rows: int | Iterable[Mapping[str, str | None]],
        *,
        campaign: str | None = None,
        owner_key: str | None = None,
    ) -> list[str]:
        """Store contacts, as if they had always been there: no request is made of it.

        Args:
            workspace: Id of their workspace.
            rows: How many to make up; or mappings with `email`, perhaps `id`, and fields by code.
            campaign: Id of a campaign that they join.
            owner_key: The key they were created with; if not given, the first of the workspace.

        Returns:
            Their ids.

        Raises:
            TypeError: A contact has no such field, or a value is no text.
            ValueError: There is no such workspace or campaign, or an e-mail is blank or exists.
        """
        with self._seeding() as seeder:
            return seeder.contacts(workspace, rows, campaign, owner_key)

    @contextmanager
    def _seeding(self) -> Iterator[Seeder]:
        with self._lock, self._seeder(self._world).all_or_nothing() as seeder:
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
        """
        with self._lock:
            self._seeder(self._world).check_workspace(workspace)
            return [_plain(contact) for contact in self._world.contacts[workspace].values()]

    def contact(self, workspace: str, email: str) -> dict[str, Any] | None:
        """Get the contact that an e-mail finds, in the form of `contacts`; `None` if there is none.

        Raises:
            ValueError: There is no such workspace.
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
        """Move time on; relative texts and estimated dates follow. Nothing is sent meanwhile.

        Args:
            step: What `datetime.timedelta` takes: `days`, `hours`, `minutes`, `seconds`, ...

        Raises:
            ValueError: The step is negative.
        """
        with self._lock:
            # Whatever is to happen in the meantime is to happen here, between the two instants.
            self._clock.advance(timedelta(**step))

    # State.

    def snapshot(self) -> Snapshot:
        """Keep the state: all that is stored, and the time. Faults and the journal are no part of it."""
        with self._lock:
            return Snapshot(self._world.copy(), self._clock.offset)

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a kept state, of this fake or of one with the same clock."""
        with self._lock:
            self._world = snapshot._world.copy()  # noqa: SLF001 - a snapshot is closed to all but its maker
            self._clock.offset = snapshot._offset  # noqa: SLF001 - the same

    def reset(self) -> None:
        """Become as new: nothing stored, no fault waiting, an empty journal, and time where it began."""
        with self._lock:
            self._world = World()
            self._clock.offset = 0
            self._limiter = Limiter()
            self.faults.clear()
            self.requests.clear()

    def load(self, source: str | Path | Mapping[str, Any]) -> None:
        """Replace what is stored by a world file's content, and set the time if it says one; a bad file changes nothing.

        Args:
            source: JSON text, the path of a file, or the document itself; `outreach_async.fake.worldfile` shows its form.

        Raises:
            WorldError: The file makes no world; the message says where and why.
            OSError: It cannot be read.
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
        """Write all that is stored, and the time, as a world file; the same text for the same state."""
        with self._lock:
            return dump(self._world, self._clock.text)

    def asgi(self) -> Application:
        """Make an ASGI application that answers as this fake does, to be mounted or served elsewhere."""
        from outreach_async.fake.asgi import asgi_app

        return asgi_app(self)


def _plain(contact: Contact) -> dict[str, Any]:
    return {
        "id": contact.id,
        "email": contact.email,
        "fields": dict(contact.fields),
        "campaigns": contact.campaigns,
        "owner": contact.owner,
        "created": contact.created,
    }
