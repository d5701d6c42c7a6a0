"""The in-memory service: the methods that add and change its data, and the execution of requests."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn, Unpack

import attrs

from outreach_async._types import require_types, type_name
from outreach_async.errors import InvalidRequest
from outreach_async.fake._arguments import (
    MOST_ADDED,
    check_known,
    require_count,
    require_field,
    require_mapping,
    require_string,
    shown,
)
from outreach_async.fake._clock import DAY, Clock
from outreach_async.fake._handlers import Context, Limiter, email_key, execute
from outreach_async.fake._messages import RENDERERS, ParsedRequest, Refusal, encode, format_http_date, parse_request, without_body
from outreach_async.fake._records import (
    CUSTOM_CODE,
    MAILBOX_ARGUMENTS,
    RESERVED_MEMBERS,
    STANDARD_FIELDS,
    CampaignBuilder,
    CampaignFields,
    Contact,
    Enrolment,
    Rates,
    Workspace,
    generate_mailbox,
    generate_people,
    update_mailbox,
)
from outreach_async.fake._simulation import (
    ListKind,
    ResponsePlan,
    SimulationControl,
    SimulationEngine,
    World,
    to_microseconds,
)
from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.faults import Exchange, Faults, execute_with_faults, run_to_end
from outreach_async.fake.request_log import Recorded, RequestLog, append_to
from outreach_async.fake.world_file import (
    SCRIPT_MEMBERS,
    EnrolmentDocument,
    WorkspaceDocument,
    WorldDocument,
    dump_world,
    load_simulation,
    name_place,
    read_document,
)
from outreach_async.transport._wire import Request, Response

_JSON_HEADERS: Final = {"content-type": "application/json"}
# HTTP libraries refuse long header fields. The request log contains every hint in full.
_MAX_HINT_LENGTH: Final = 2000


def _identifying_fields(now: float, number: int) -> dict[str, str]:
    return {"date": format_http_date(int(now)), "x-request-id": f"req_{number:016x}"}


def _identify(exchange: Exchange, now: float, number: int) -> Exchange:
    """Add what every response has (rule W11) to one that a fault has created."""
    response = exchange.response
    if response is None or "x-request-id" in response.headers:
        return exchange
    return attrs.evolve(
        exchange, response=attrs.evolve(response, headers={**_identifying_fields(now, number), **response.headers})
    )


def respond(call: ParsedRequest, context: Context, number: int) -> Response:
    """Execute a request and return the response; a refused request gets an error response (rules W11, E2 and E3)."""
    fields = _identifying_fields(context.now, number)
    call.request_id = fields["x-request-id"]
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
    return Response(status, {**_JSON_HEADERS, **headers, **fields}, body)


@attrs.frozen(repr=False)
class Snapshot:
    """The state of a fake at one moment, from `FakeService.snapshot`.

    `restore` accepts it any number of times.

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


class FakeService:
    """An in-memory implementation of the outreach service.

    It is synchronous, does no I/O, and is safe to share between threads
    and tasks: requests run one at a time.

    Args:
        seed: Seed for generated data: equal calls produce equal bytes.
        behaviour: How the fake interprets rules that the service's API
            documentation leaves open.
        clock: The start time as an ISO 8601 string: the time stands still
            until `advance` is called. Or a callable that returns Unix
            seconds: each request first runs the simulated events that are
            due, such as e-mails and replies.

    Attributes:
        seed: The seed.
        behaviour: The behaviour; it can be replaced between requests.
        faults: The faults to inject.
        requests: The log of requests.
        sim: Watches the events of the simulation, and scripts the
            reactions of recipients.

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
        require_types(FakeService, locals())
        self.seed = seed
        self.behaviour = Behaviour() if behaviour is None else behaviour
        self.faults = Faults(seed)
        self.requests = RequestLog()
        self.sim = SimulationControl(self._store_script)
        self._limiter = Limiter()
        self._clock = Clock(clock)
        self._world = World()
        # Storing a contact is a look-up followed by a write; no other thread may run between the two. The lock is re-entrant,
        # because functions that callers pass in, such as listeners or `match`, run with the lock held and may call the fake.
        self._lock = threading.RLock()
        self._new_ids: list[str] = []

    def __repr__(self) -> str:
        world = self._world
        return (
            f"<FakeService seed={self.seed}: {len(world.workspaces)} workspaces, {len(world.mailboxes)} mailboxes, "
            f"{len(world.campaigns)} campaigns, {sum(map(len, world.contacts.values()))} contacts>"
        )

    def __reduce_ex__(self, _protocol: object, /) -> NoReturn:
        """Refuse to pickle: other processes would change worlds of their own."""
        remedy = "pass its dump() to load() of another fake, or serve it on a port"
        raise InvalidRequest(f"pickle: expected data that can be copied, got a FakeService; {remedy}")

    # The stored data. A call that fails changes nothing.

    def add_workspace(
        self,
        id: str | None = None,  # noqa: A002 - named as on the wire
        *,
        custom_fields: Iterable[str] | Mapping[str, str] = (),
        extra_fields: Mapping[str, str] | None = None,
    ) -> str:
        """Add an empty workspace, and return its id.

        Args:
            id: The workspace's id; generated if not given.
            custom_fields: Labels of custom fields by code, or a list of
                labels, which get the codes `custom_1`, `custom_2`, ...
            extra_fields: Labels of fields that are neither standard nor
                custom, by code.

        Raises:
            ValueError: The id is malformed or already in use, or a code is
                malformed.

        Example:
            ```python
            print(fake.add_workspace("space_2", custom_fields=["Plan", "Size"]))  # -> space_2
            ```
        """
        require_types(FakeService.add_workspace, {"id": id})
        with self._transaction() as world:
            custom, extra = _check_labels(custom_fields), require_mapping("extra_fields", extra_fields or {})
            taken = {*STANDARD_FIELDS, *RESERVED_MEMBERS}
            if reserved := [code for code in extra if code in taken or str(code).startswith("custom_")]:
                raise ValueError(f"extra_fields: these codes are reserved: {', '.join(reserved)}; use other codes")
            workspace = Workspace(
                self._reserve_id("space_", id),
                custom,
                {require_string("code", code): require_string("label", label) for code, label in extra.items()},
            )
            world.workspaces[workspace.id], world.contacts[workspace.id] = workspace, {}
            world.creation_order |= {(workspace.id, "campaign"): [], (workspace.id, "mailbox"): []}
            return workspace.id

    def add_owner_key(self, *workspaces: str, key: str | None = None) -> str:
        """Add an owner key, or extend the access of one; return the key.

        A key that is not given is generated.

        Raises:
            ValueError: A workspace does not exist, or the key is
                malformed.

        Example:
            ```python
            fake.add_workspace("space_2")
            print(fake.add_owner_key("space_1", "space_2", key="key_2"))  # -> key_2
            ```
        """
        require_types(FakeService.add_owner_key, locals())
        with self._transaction() as world:
            for workspace in workspaces:
                self._find_workspace(workspace)
            if key is not None and not key.startswith("key_"):  # `key` may be a secret
                raise ValueError("key: expected a string that starts with key_; pass no key to generate one")
            if key is None or key not in world.owner_keys:
                key = self._reserve_id("key_", key)
            world.owner_keys[key] = world.owner_keys.get(key, frozenset()) | frozenset(workspaces)
            return key

    def add_mailbox(self, workspace: str, *, trouble: float = 0.0, **fields: Any) -> str:
        """Add one mailbox as `add_mailboxes` does, and return its id.

        Example:
            ```python
            fake.add_mailbox("space_1", email="cy@north.example", dkim=False, bounced_30days=40)
            print([mailbox.email async for mailbox in client.mailboxes.list() if not mailbox.dkim])  # -> ['cy@north.example']
            ```
        """
        return self.add_mailboxes(workspace, 1, trouble=trouble, **fields)[0]

    def add_mailboxes(self, workspace: str, count: int, *, trouble: float = 0.0, **fields: Any) -> list[str]:
        """Generate mailboxes with consistent statistics; return their ids.

        Args:
            workspace: The workspace's id.
            count: Number of mailboxes.
            trouble: Probability that a mailbox has a problem, from 0 to 1.
            fields: Values for any field of a mailbox, used unchanged, even
                if invalid; and `domain`, that of the addresses. A rate can
                be two integers, `[part, whole]`; `last_activity` can be
                Unix seconds. `as_of` is the time of the statistics in Unix
                seconds, by default now; the counts of the last 30 and 90
                days decrease after it.

        Raises:
            TypeError: The name of a field is unknown, or a value cannot be
                written as JSON.
            ValueError: The workspace does not exist, or a number is not
                finite.

        Example:
            ```python
            ids = fake.add_mailboxes("space_1", 50, trouble=0.2, domain="south.example")
            print(len(ids))  # -> 50
            ```
        """
        require_types(FakeService.add_mailboxes, {"workspace": workspace, "trouble": trouble})
        require_count("count", count, most=MOST_ADDED)
        with self._transaction() as world:
            self._find_workspace(workspace)
            age = self._random_for(workspace).uniform(45 * DAY, 600 * DAY)  # old enough that the warm-up is over
            start, number = self._creation_time(workspace, "mailbox", self.now - age), len(world.mailboxes)
            mailboxes, now = [], self.now
            for place in range(count):
                id_, at = self._reserve_id("mailbox_", fields.get("id")), min(start + 60 * place, int(now))
                random = self._random_for(id_)
                mailboxes.append(
                    generate_mailbox(id_, workspace, number + place, at, fields, trouble=trouble, random=random, now=now)
                )
            for mailbox in mailboxes:
                world.mailboxes[mailbox.id] = mailbox
                bisect.insort(world.creation_order[workspace, "mailbox"], (mailbox.created, mailbox.id))
            return [mailbox.id for mailbox in mailboxes]

    def add_campaign(self, workspace: str, **fields: Unpack[CampaignFields]) -> str:
        """Add a campaign, and return its id.

        Counts and percentages in responses are computed from the counts of
        its templates.

        Args:
            workspace: The workspace's id.
            id: The campaign's id; generated if not given.
            name: The campaign's name; `Campaign` if not given.
            status: `draft` (the default), `live`, `paused`, or any other
                status, to test how a client handles it.
            mailboxes: Ids of the mailboxes that send for the campaign.
            steps: The steps in order. A step is a string of template
                letters, such as `A|B|PER`, or a mapping with any of `id`,
                `status`, `wait_time` (milliseconds), `left_to_send`,
                `templates` and `sent`. `templates`, by default `A`, is a
                string of letters, or a non-empty list of letters and
                mappings with fields of a template or its own `rates`.
                `sent` is the number of e-mails to distribute over the
                templates; their opens and replies are generated.
            contacts: Number of contacts besides those added later; by
                default those that step 1 was or will be sent to.
            bounces_num: Number of bounced e-mails; by default generated
                for steps with `sent`, and 0 otherwise.
            interested_num: Number of interested replies; the same default.
            created: Creation time in Unix seconds; now if not given.
            last_activity: Unix seconds, `None` for never, or `auto` (the
                default): a recent time if any e-mail was sent.
            rates: Shares from 0 to 1 by reaction: `open` (by default 0.5),
                `click` (0.05), `reply` (0.06) and `unsubscribe` (0.01) of
                the delivered e-mails, `bounce` (0.006) of those sent, and
                `interested` (0.3) of the replies.

        Raises:
            TypeError: The name of a field is unknown, or a value has the
                wrong type.
            ValueError: The workspace or a mailbox does not exist, an id is
                malformed or in use, or the counts are inconsistent.

        Example:
            ```python
            camp = fake.add_campaign("space_1", name="Autumn", status="live", mailboxes=["mailbox_1"], steps=["A|B", "A"])
            print(len((await client.campaigns.steps(camp)).data))  # -> 2
            ```
        """
        require_types(FakeService.add_campaign, {"workspace": workspace})
        with self._transaction() as world:
            check_known(fields, CampaignFields.__annotations__, "a campaign")
            self._find_workspace(workspace)
            boxes = self._check_mailboxes(workspace, fields.get("mailboxes", ()))
            id_, created = self._reserve_id("camp_", fields.get("id")), fields.get("created")
            if created is None:
                created = self._creation_time(workspace, "campaign", self.now)
            rates = Rates().with_changes(fields.get("rates") or {})
            builder = CampaignBuilder(self._random_for(id_), self._reserve_id, self.now, rates)
            world.add_campaign(builder.build(id_, workspace, boxes, created, fields), self.now)
            return id_

    def _check_mailboxes(self, workspace: str, mailboxes: Iterable[str]) -> tuple[str, ...]:
        boxes, known = tuple(dict.fromkeys(mailboxes)), self._world.mailboxes
        for box in boxes:
            if box not in known or known[box].workspace != workspace:
                raise ValueError(f"the workspace {workspace} has no mailbox {shown(box)}; add the mailbox first")
        return boxes

    def add_contacts(
        self,
        workspace: str,
        rows: int | Iterable[Mapping[str, str | None]],
        *,
        campaign: str | None = None,
        owner_key: str | None = None,
    ) -> list[str]:
        """Store contacts without a request to the fake, and return their ids.

        Args:
            workspace: The workspace's id.
            rows: Number of contacts to generate; or mappings with `email`,
                optionally `id`, and fields by code.
            campaign: Id of a campaign that the contacts join.
            owner_key: By default, the workspace's first key.

        Raises:
            TypeError: A row has an unknown key, or a value has the wrong
                type.
            ValueError: The workspace or campaign does not exist, or an
                e-mail is blank or already exists.

        Example:
            ```python
            fake.add_contacts("space_1", [{"email": "ann@company.example", "city": "Lyon"}], campaign="camp_1")
            print(len(fake.add_contacts("space_1", 100)))  # -> 100
            ```
        """
        require_types(FakeService.add_contacts, {"workspace": workspace, "campaign": campaign, "owner_key": owner_key})
        if not isinstance(rows, Iterable | int):
            raise TypeError(f"rows: expected a number or mappings, got {type_name(rows)}; pass 10, or a list of mappings")
        with self._transaction() as world:
            codes, now = self._find_workspace(workspace).codes, self.now
            if owner_key is None:
                owner_key = next((key for key, spaces in world.owner_keys.items() if workspace in spaces), "")
            if isinstance(rows, int):
                rows = generate_people(require_count("rows", rows, most=MOST_ADDED), len(world.contacts[workspace]))
            places = () if campaign is None else (Enrolment(campaign, now),)
            contacts = []
            for row in rows:
                fields = {}
                for code, value in require_mapping("rows", row).items():
                    if code not in {"id", "email"} and value is not None:
                        check_known([code], codes, "a contact")
                        fields[codes[code]] = require_field(code, value)
                contacts.append(
                    Contact(row.get("id") or "", require_string("email", row.get("email")), owner_key, int(now), fields, places)
                )
            return self._store_contacts(workspace, contacts)

    def _store_contacts(self, workspace: str, contacts: Iterable[Contact]) -> list[str]:
        """Store contacts and return their ids; a contact without an id gets one. If any is invalid, none is stored."""
        world, stored, key_of = self._world, dict[str, Contact](), email_key(self.behaviour)
        for contact in contacts:
            email = require_string("email", contact.email.strip())
            key = key_of(email)
            if key in stored or key in world.contacts[workspace]:
                raise ValueError(
                    f"email: expected an address that no other contact of the workspace has, got {email}; use another address"
                )
            for campaign in contact.campaigns:
                if campaign not in world.campaigns or world.campaigns[campaign].workspace != workspace:
                    raise ValueError(f"the workspace {workspace} has no campaign {shown(campaign)}; add the campaign first")
            stored[key] = attrs.evolve(contact, id=self._reserve_id("contact_", contact.id or None), email=email)
        for key, contact in stored.items():
            world.store_contact(workspace, key, contact)
        return [contact.id for contact in stored.values()]

    # Changing.

    def set_campaign(
        self,
        campaign: str,
        *,
        status: str | None = None,
        mailboxes: Iterable[str] | None = None,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """Change a campaign, from the next `advance` on.

        Omitted values stay unchanged.

        Args:
            campaign: The campaign's id.
            status: `live` sends; any other status holds back e-mails, but
                recipients react to those already sent.
            mailboxes: As in `add_campaign`.
            rates: As in `add_campaign`, for e-mails sent from now on. A
                template with its own rates keeps them.

        Raises:
            TypeError: The name of a rate is unknown, or a value has the
                wrong type.
            ValueError: The campaign or a mailbox does not exist, or a rate
                is not from 0 to 1.

        Example:
            ```python
            fake.set_campaign("camp_1", status="paused", rates={"bounce": 0})
            print((await client.campaigns.list()).data[0].status)  # -> paused
            ```
        """
        require_types(FakeService.set_campaign, {"campaign": campaign, "mailboxes": mailboxes})
        with self._transaction() as world:
            old = world.campaigns.get(campaign)
            if old is None:
                raise ValueError(f"there is no campaign {shown(campaign)}; add the campaign first")
            boxes = old.mailboxes if mailboxes is None else self._check_mailboxes(old.workspace, mailboxes)
            status, changes = old.status if status is None else status, old.rates.with_changes(rates or {})
            world.set_campaign(attrs.evolve(old, status=status, mailboxes=boxes, rates=changes), self.now)

    def set_mailbox(self, mailbox: str, /, **fields: Any) -> None:
        """Change fields of a mailbox.

        All can change but its id, its creation time, its last activity and
        its counts. Only an `active` mailbox sends, up to `daily_limit`
        e-mails per UTC day.

        Raises:
            TypeError: The name of a field is unknown, the field cannot be
                changed, or its value cannot be written as JSON.
            ValueError: The mailbox does not exist, or a number is not
                finite.

        Example:
            ```python
            fake.set_mailbox("mailbox_1", daily_limit=20, blacklists=2)
            print((await client.mailboxes.list()).data[0].blacklists)  # -> 2
            ```
        """
        with self._transaction() as world:
            if mailbox not in world.mailboxes:
                raise ValueError(f"there is no mailbox {shown(mailbox)}; add the mailbox first")
            world.mailboxes[mailbox] = update_mailbox(world.mailboxes[mailbox], fields)
            world.simulation.apply_change(to_microseconds(self.now))

    # Requests.

    def handle(self, request: Request) -> Response:
        """Execute a request and return the response.

        Raises:
            RuntimeError: A wire fault prevents a response. A direct call
                has no connection on which to reproduce the fault.

        Example:
            ```python
            print(fake.handle(Request("GET", "/workspaces/space_1/all-fields")).status)  # -> 200
            ```
        """
        exchange = self.exchange(request)
        if exchange.response is None:
            raise RuntimeError(f"{exchange.struck} prevents a response; use FakeTransport or a server to reproduce the fault")
        return without_body(exchange.response) if request.method == "HEAD" else exchange.response

    def exchange(self, request: Request) -> Exchange:
        """Execute a request; return its response and a wire fault to apply.

        The response to HEAD has the body of GET: who sends it leaves out
        the body, and keeps its length.
        """
        # The lock is held throughout, so that the due events, the fault, the request's number and its log entry belong together
        # even if several threads call the fake. Delays of faults come later: the sender of the response waits, without the lock.
        with self._locked_and_current():
            call, number, now = parse_request(request), len(self.requests), self.now
            context = Context(self._world, self.behaviour, self._limiter, self.seed, now)
            exchange = execute_with_faults(self.faults, call.operation, request, lambda: respond(call, context, number))
            exchange = _identify(exchange, now, number)
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
        """Return the contacts of a workspace, in the order they were stored.

        Each is a dict with `id`, `email`, `fields` by code, `campaigns`
        (ids), `owner` (the key) and `created` (Unix seconds).

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
        """Return the contact with an e-mail, as `contacts` does, or `None`.

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

    @property
    def now(self) -> float:
        """The fake's time in Unix seconds."""
        return self._clock.now

    def advance(self, **step: float) -> None:
        """Advance the time, and run all that is due: e-mails, opens, replies.

        Args:
            step: The duration, as arguments of `datetime.timedelta`:
                `days`, `hours`, `minutes`, `seconds`, ...

        Raises:
            InvalidRequest: The step is no duration.
            ValueError: The duration is negative.

        Example:
            ```python
            fake.advance(days=3)
            print((await client.campaigns.steps("camp_1")).data[0].already_sent)  # -> 40
            ```
        """
        try:
            duration = timedelta(**step)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidRequest(
                f"step: expected arguments of timedelta, got others ({error}); pass, for example, days=3"
            ) from None
        with self._lock:
            self._clock.advance(duration)
            run_to_end(self._run_due_events())

    # State.

    def snapshot(self) -> Snapshot:
        """Return a snapshot of stored data, pending events and the time.

        The faults and the request log are not in it.

        Example:
            ```python
            before = fake.snapshot()
            ```
        """
        with self._lock:
            return Snapshot(self._world.copy(), self._clock.offset)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore a snapshot of this fake, or of another with the same clock.

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
        """Reset the fake: no data, no faults, an empty log, the initial time.

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
        """Replace the stored data, and the time, with those of a world file.

        A file without a time leaves it. An invalid file changes nothing.

        Args:
            source: A JSON string, the path of a file, or the parsed
                document; `outreach_async.fake.world_file` shows the
                format.

        Raises:
            WorldError: The file is invalid.
            OSError: The file cannot be read.

        Example:
            ```python
            fake.load({"version": 1, "workspaces": [{"id": "space_2", "contacts": [{"email": "ann@company.example"}]}]})
            print(fake)  # -> <FakeService seed=0: 1 workspaces, 0 mailboxes, 0 campaigns, 1 contacts>
            ```
        """
        run_to_end(load_in_slices(self, source))

    def dump(self) -> str:
        """Return stored data, pending events and the time as a world file.

        Equal states give equal strings.

        Example:
            ```python
            other = FakeService()
            other.load(fake.dump())
            print(other.dump() == fake.dump())  # -> True
            ```
        """
        with self._locked_and_current():
            return dump_world(self._world, self._clock.iso)

    # Transactions.

    def _run_due_events(self) -> Generator[None, None, None]:
        return SimulationEngine(self._world, self.seed, tuple(self.sim.listeners)).run(self._clock.microseconds)

    @contextmanager
    def _locked_and_current(self) -> Iterator[None]:
        """Hold the lock during the block. If a callable provides the time, run the events that are due first."""
        with self._lock:
            if self._clock.is_running:
                run_to_end(self._run_due_events())
            yield

    @contextmanager
    def _transaction(self) -> Iterator[World]:
        """Lock the stored data during the block. A block that raises an exception changes nothing."""
        with self._locked_and_current():
            world = self._world
            counters, self._new_ids = dict(world.counters), []
            try:
                yield world
            except BaseException:
                # Only ids need to be released, because all checks run before the first record is stored.
                world.ids.difference_update(self._new_ids)
                world.counters = counters
                raise

    def _reserve_id(self, prefix: str, id_: str | None) -> str:
        world = self._world
        if id_ is None:
            id_ = world.new_id(self.seed, prefix)
        elif not require_string("id", id_).startswith(prefix) or id_ == prefix:
            raise ValueError(f"id: expected a string that starts with {prefix}, got {shown(id_)}")
        elif not id_.isprintable() or " " in id_:  # `id_` may be a key
            raise ValueError(f"id: expected a string that starts with {prefix}, without whitespace and invisible characters")
        elif id_ in world.ids:
            raise ValueError(f"id: {shown(id_)} is already in use; pass another id, or omit id to generate an id")
        world.ids.add(id_)
        self._new_ids.append(id_)
        return id_

    def _find_workspace(self, workspace: str) -> Workspace:
        if workspace not in self._world.workspaces:
            raise ValueError(f"there is no workspace {shown(workspace)}; add the workspace first")
        return self._world.workspaces[workspace]

    def _random_for(self, name: str) -> Random:
        # Each record has its own generator, so that the order and number of other records do not change its values.
        return Random(f"{self.seed}|{name}")  # noqa: S311 - generated test data needs no cryptographic randomness

    def _store_script(self, contact: str, campaign: str | None, step: int, plan: ResponsePlan) -> None:
        with self._transaction() as world:
            if campaign is not None and campaign not in world.campaigns:
                raise ValueError(f"there is no campaign {shown(campaign)}; add the campaign first")
            if "@" in require_string("contact", contact) or not contact.startswith("contact_"):
                keys = [email_key(self.behaviour)(contact.strip())]
            else:
                tables = world.contacts.values()
                keys = [key for table in tables for key, stored in table.items() if stored.id == contact]
            if not keys:
                raise ValueError(f"there is no contact {shown(contact)}; add the contact first, or pass its e-mail address")
            world.simulation.scripts[keys[0], campaign or "", step] = plan

    def _creation_time(self, workspace: str, kind: ListKind, preferred: float) -> int:
        """Return the later of `preferred` and the newest item's creation time, so that creation times never decrease."""
        order = self._world.creation_order[workspace, kind]
        return int(max(preferred, order[-1][0] if order else 0))


def load_in_slices(fake: FakeService, source: str | Path | Mapping[str, Any]) -> Generator[None, None, None]:
    """Load a world as `FakeService.load` does, and yield after each slice of the work. The data change at the end, at once."""
    document = read_document(source)
    loaded = FakeService(fake.seed, fake.behaviour, document.now or fake._clock.iso)  # noqa: SLF001 - the class of this module
    world = yield from _load_world(document, loaded)
    with fake._lock:  # noqa: SLF001 - as above
        fake._world = world  # noqa: SLF001 - as above
        if document.now is not None:
            fake._clock.set_time(document.now)  # noqa: SLF001 - as above


def find_examples(fake: FakeService) -> dict[str, str]:
    """Return the ids of a workspace, its campaign and its owner key, by the examples of the document that they replace."""
    world = fake._world  # noqa: SLF001 - the class of this module
    space = next(iter(world.workspaces), None)
    campaigns = (campaign.id for campaign in world.campaigns.values() if campaign.workspace == space)
    keys = (key for key, spaces in world.owner_keys.items() if space in spaces)
    found = {"space_1": space, "camp_1": next(campaigns, None), "key_1": next(keys, None)}
    return {example: id_ for example, id_ in found.items() if id_ is not None}


def advance_in_slices(fake: FakeService, step: timedelta) -> Generator[None, None, None]:
    """Advance the time as `FakeService.advance` does, and yield after each slice of the work. Other threads wait meanwhile."""
    with fake._lock:  # noqa: SLF001 - the class of this module
        fake._clock.advance(step)  # noqa: SLF001 - as above
        yield from fake._run_due_events()  # noqa: SLF001 - as above


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


def _check_labels(custom_fields: Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    given: object = custom_fields
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        got = "a string" if isinstance(given, str) else type_name(given)
        raise TypeError(f"custom_fields: expected a list of labels or a mapping of codes to labels, got {got}; pass a list")
    if not isinstance(custom_fields, Mapping):
        custom_fields = {f"custom_{number}": label for number, label in enumerate(custom_fields, 1)}
    for code in custom_fields:
        if not CUSTOM_CODE.fullmatch(str(code)):
            raise ValueError(
                f"custom_fields: expected a code such as custom_1, got {shown(code)}; use custom_ and a positive integer"
            )
    return {code: require_string("label", label) for code, label in custom_fields.items()}


_RECORDS_IN_A_SLICE: Final = 50


def _load_world(document: WorldDocument, fake: FakeService) -> Generator[None, None, World]:
    """Load a document into a fake, which must be empty, and return the world."""
    world = fake._world  # noqa: SLF001 - the class of this module
    world.counters |= document.made_up
    for number, item in enumerate(document.workspaces):
        for count, _ in enumerate(_load_workspace(f"$.workspaces[{number}]", item, fake), 1):
            if count % _RECORDS_IN_A_SLICE == 0:
                yield
    with name_place("$.owner_keys"):
        for key, workspaces in document.owner_keys.items():
            fake.add_owner_key(*workspaces, key=key)
    for number, script in enumerate(document.scripts):
        with name_place(f"$.scripts[{number}]"):
            check_known(script, SCRIPT_MEMBERS, "a script")
            fake.sim.script(**{"contact": None, **script})
    if document.simulation is not None:
        with name_place("$.simulation"):
            load_simulation(document.simulation, world, to_microseconds(fake.now))
    return world


def _load_workspace(path: str, item: WorkspaceDocument, fake: FakeService) -> Iterator[None]:
    """Load a workspace, and yield after each record."""
    with name_place(path):
        id_ = fake.add_workspace(item.id, custom_fields=item.custom_fields, extra_fields=item.extra_fields)
    # Load in this order: campaigns refer to mailboxes, and contacts refer to campaigns.
    for number, mailbox in enumerate(item.mailboxes):
        with name_place(f"{path}.mailboxes[{number}]"):
            check_known(mailbox, MAILBOX_ARGUMENTS, "a mailbox")
            fake.add_mailbox(id_, **mailbox)
        yield
    for number, campaign in enumerate(item.campaigns):
        with name_place(f"{path}.campaigns[{number}]"):
            check_known(campaign, CampaignFields.__annotations__, "a campaign")
            fake.add_campaign(id_, **campaign)
        yield
    for number, contact in enumerate(item.contacts):
        with name_place(f"{path}.contacts[{number}]"):
            fields = {code: require_field(code, value) for code, value in contact.fields.items()}
            places = [EnrolmentDocument(place) if isinstance(place, str) else place for place in contact.campaigns]
            enrolments = tuple(Enrolment(place.id, fake.now if place.at is None else place.at) for place in places)
            created = int(fake.now) if contact.created is None else contact.created
            record = Contact(contact.id or "", contact.email, contact.owner, created, fields, enrolments)
            fake._store_contacts(id_, [record])  # noqa: SLF001 - as above
        yield
