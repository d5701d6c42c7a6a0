"""World files: read and write everything a fake stores, as JSON.

A file is one JSON object. Values equal to their default can be omitted, which makes it easy to write a file by hand:

    {"version": 1,
     "now": "2026-01-01T00:00:00Z",
     "workspaces": [{"id": "space_1", "custom_fields": {"custom_1": "Plan"},
                     "mailboxes": [{"email": "ada@north.example", "spf": false}],
                     "campaigns": [{"id": "camp_1", "name": "Spring", "status": "live", "steps": ["A|B"]}],
                     "contacts": [{"email": "bo@acme.example", "fields": {"city": "Lyon"}, "campaigns": ["camp_1"]}]}],
     "owner_keys": {"key_1": ["space_1"]}}

`dump` writes every value: loading a dumped file reproduces the world, byte for byte. Counts in campaigns and mailboxes are the
seeded ones. Once anything has been sent, the member `simulation` holds the changes since then and the pending events.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from outreach_async.fake.arguments import check_known, text, whole
from outreach_async.fake.builder import Seeder
from outreach_async.fake.clock import parse_time
from outreach_async.fake.records import Campaign, Contact, Enrolment, Mailbox, Share, Workspace
from outreach_async.fake.seed_campaigns import CampaignSeed
from outreach_async.fake.seeds import ContactSeed
from outreach_async.fake.simulation.chance import DAY, DUE, NAMES, Event, Plan
from outreach_async.fake.simulation.state import COUNTS, ENDED, FORTNIGHT, MONTH, QUARTER, Flow, Joined, Ledger, Simulation
from outreach_async.fake.world import World

_EVENT: Final = (int, int, str, str, int, str, int, str, int, int)

# The member `simulation` of a world file, present only if something has happened:
#
#   {"wake": 1767312000000000,                                 when to serve the queues again, Unix microseconds, or null
#    "campaigns": {"camp_1": {"since": …, "begun": true,       differences from the seeded campaign
#                             "counts": [[[sent, opened, clicked, replied, unsubscribed], …], …],
#                             "left": […], "bounces": 0, "interested": 0, "last": null, "joined": […], "queue": […],
#                             "progress": {"contact_1": 2, "contact_2": null}, "rounds": {}}},
#    "mailboxes": {"mailbox_1": {"day": 20454, "sent": [[20454, 3]], "opened": […], "bounced": […],
#                                "life": 3, "opens": 1, "clicks": 0, "last": 1767225600.0}},
#    "events": [[at, kind, campaign, contact, step, token, stop, mailbox, template, day], …],
#    "scripts": [[token, campaign, step, [[kind, microseconds], …]], …]}

# Dumping.


def simulation_document(state: Simulation, day: int) -> dict[str, Any]:
    """Return the simulation's state, equal for equal states; empty if nothing has happened yet.

    Args:
        state: The state.
        day: Today, in days since 1970.
    """
    flows = {id_: _flow_document(flow) for id_, flow in sorted(state.flows.items()) if flow.begun or flow.rounds}
    ledgers = {id_: _ledger_document(ledger, day) for id_, ledger in sorted(state.ledgers.items()) if ledger.life}
    scripts = [[*key, plan] for key, plan in sorted(state.scripts.items())]
    if not (flows or scripts):
        return {}
    return {"wake": state.wake, "campaigns": flows, "mailboxes": ledgers, "events": sorted(state.heap), "scripts": scripts}


def _flow_document(flow: Flow) -> dict[str, Any]:
    return {
        "since": flow.since,
        "begun": flow.begun,
        "counts": flow.counts,
        "left": flow.lefts,
        "bounces": flow.bounces,
        "interested": flow.interested,
        "last": flow.last,
        "joined": flow.joined,
        "queue": list(flow.queue),
        "progress": {who: None if step == ENDED else step for who, step in sorted(flow.progress.items())},
        "rounds": dict(sorted(flow.rounds.items())),
    }


def _ledger_document(ledger: Ledger, day: int) -> dict[str, Any]:
    # A ledger's day depends on when it was last read. Roll a copy to today, so that equal states give equal documents.
    ledger = ledger.copy()
    ledger.roll(day)
    return {
        "day": ledger.day,
        "sent": _days(ledger.sent, ledger.day),
        "opened": _days(ledger.opened, ledger.day),
        "bounced": _days(ledger.bounced, ledger.day),
        "life": ledger.life,
        "opens": ledger.opens,
        "clicks": ledger.clicks,
        "last": ledger.last,
    }


def _days(ring: Sequence[int], latest: int) -> list[tuple[int, int]]:
    days = range(latest - len(ring) + 1, latest + 1)
    return [(day, ring[day % len(ring)]) for day in days if ring[day % len(ring)]]


# Loading.


def load_simulation(
    document: Any, state: Simulation, campaigns: Mapping[str, Campaign], mailboxes: Mapping[str, Mailbox]
) -> None:
    """Load the state of a simulation from a world file.

    Raises:
        KeyError: A member is missing.
        TypeError: A value has the wrong type.
        ValueError: A value refers to something that is not in the world, or does not fit it.
    """
    for id_, item in _typed(document["campaigns"], dict).items():
        state.flows[id_] = _flow(item, _known(id_, campaigns), campaigns, mailboxes)
    for id_, item in _typed(document["mailboxes"], dict).items():
        state.ledgers[id_] = _ledger(item, _known(id_, mailboxes))
    state.heap = sorted(_event(item, campaigns, mailboxes) for item in _typed(document["events"], list))
    for token, campaign, step, plan in _typed(document["scripts"], list):
        state.scripts[_typed(token, str), _typed(campaign, str), whole("step", step)] = _plan(plan)
    state.wake = None if document["wake"] is None else whole("wake", document["wake"])


def _flow(item: Any, campaign: Campaign, campaigns: Mapping[str, Campaign], mailboxes: Mapping[str, Mailbox]) -> Flow:
    counts = [[[whole("counts", n) for n in part] for part in step] for step in item["counts"]]
    lefts = [whole("left", left) for left in item["left"]]
    shape = [[len(COUNTS)] * len(step.templates) for step in campaign.steps]
    if [[len(part) for part in step] for step in counts] != shape or len(lefts) != len(shape):
        raise ValueError(f"{campaign.id}: counts and left do not match its steps and templates")
    return Flow(
        whole("since", item["since"]),
        counts,
        lefts,
        whole("bounces", item["bounces"]),
        whole("interested", item["interested"]),
        _moment(item["last"]),
        _typed(item["begun"], bool),
        [_joined(joined) for joined in item["joined"]],
        deque(_event(event, campaigns, mailboxes) for event in item["queue"]),
        {who: ENDED if step is None else whole("progress", step) for who, step in _typed(item["progress"], dict).items()},
        {who: whole("rounds", number) for who, number in _typed(item["rounds"], dict).items()},
    )


def _joined(item: Any) -> Joined:
    who, token, at = item
    return _typed(who, str), _typed(token, str), whole("joined", at)


def _ledger(item: Any, mailbox: Mailbox) -> Ledger:
    ledger = Ledger.of(mailbox)
    day = whole("day", item["day"])
    ledger.roll(day)
    ledger.sent, ledger.opened, ledger.bounced = (
        _ring(item[name], length, day) for name, length in (("sent", QUARTER), ("opened", FORTNIGHT), ("bounced", MONTH))
    )
    ledger.quarter, ledger.opened_sum, ledger.bounced_sum = sum(ledger.sent), sum(ledger.opened), sum(ledger.bounced)
    ledger.fortnight, ledger.month = (
        sum(ledger.sent[(day - back) % QUARTER] for back in range(length)) for length in (FORTNIGHT, MONTH)
    )
    ledger.life, ledger.opens, ledger.clicks = (whole(name, item[name]) for name in ("life", "opens", "clicks"))
    ledger.last = _moment(item["last"])
    return ledger


def _ring(days: Iterable[Any], length: int, latest: int) -> list[int]:
    ring = [0] * length
    for day, count in days:
        if not latest - length < whole("day", day) <= latest:
            raise ValueError(f"day {day}: expected one of the {length} days up to {latest}")
        ring[day % length] = whole("count", count)
    return ring


def _event(item: Any, campaigns: Mapping[str, Campaign], mailboxes: Mapping[str, Mailbox]) -> Event:
    if len(item) != len(_EVENT):
        raise ValueError(f"expected an event of {len(_EVENT)} parts, got {len(item)}")
    event = Event(*(_typed(part, kind) for part, kind in zip(item, _EVENT, strict=True)))
    steps = _known(event.campaign, campaigns).steps
    mailbox = mailboxes.get(event.mailbox)
    fits = 0 <= event.kind < len(NAMES) and 0 <= event.step < event.stop <= len(steps)
    if not fits or not 0 <= event.template < len(steps[event.step].templates):
        raise ValueError(f"{event}: the campaign has no such step or template")
    if mailbox is None and (event.mailbox or event.kind != DUE):
        raise ValueError(f"{event}: there is no such mailbox")
    return event


def _plan(item: Any) -> Plan:
    plan = tuple((whole("kind", kind), whole("microseconds", delay)) for kind, delay in item)
    for kind, _ in plan:
        if not DUE < kind < len(NAMES):
            raise ValueError(f"kind {kind}: expected a kind from {DUE + 1} to {len(NAMES) - 1}")
    return plan


def _known(id_: str, table: Mapping[str, Any]) -> Any:
    if id_ not in table:
        raise ValueError(f"there is no {id_!r} in this world")
    return table[id_]


def _moment(value: Any) -> float | None:
    return None if value is None else float(value)


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected the type {kind.__name__}, got {type(value).__name__}")
    return value


VERSION: Final = 1
"""Version of the file format."""

_WORLD: Final = ("version", "now", "workspaces", "owner_keys", "made_up", "simulation")
_WORKSPACE: Final = (
    "id",
    "custom_fields",
    "extra_fields",
    "campaign_headers",
    "mailbox_headers",
    "mailboxes",
    "campaigns",
    "contacts",
)
_CAMPAIGN: Final = tuple(field.name for field in attrs.fields(CampaignSeed) if field.name != "workspace")
_CONTACT: Final = ("id", "email", "owner", "created", "fields", "campaigns")


class WorldError(ValueError):
    """A world file is invalid. The message names the place in the file and the reason.

    Example:
        ```python
        try:
            fake.load({"version": 1, "workspaces": [{"id": "camp_1"}]})
        except WorldError as error:
            print(error)  # -> $.workspaces[0]: id: expected a string that starts with space_, got 'camp_1'
        ```
    """


# Writing.


def dump(world: World, now: str) -> str:
    """Return a world as a world file; equal worlds give equal strings.

    Args:
        world: The world.
        now: The current time as an ISO 8601 string.
    """
    document = {
        "version": VERSION,
        "now": now,
        "workspaces": [_workspace_document(world, workspace) for workspace in world.workspaces.values()],
        "owner_keys": {key: sorted(spaces) for key, spaces in world.keys.items()},
        "made_up": dict(sorted(world.counters.items())),
    }
    written = json.dumps(document, ensure_ascii=False, indent=1)
    moving = simulation_document(world.simulation, parse_time(now) // DAY)
    if moving:
        # On one line: there can be thousands of events, and nobody edits them by hand.
        line = json.dumps(moving, ensure_ascii=False, separators=(",", ":"))
        written = f'{written.removesuffix("}").rstrip()},\n "simulation": {line}\n}}'
    return written + "\n"


def _workspace_document(world: World, workspace: Workspace) -> dict[str, Any]:
    return {
        "id": workspace.id,
        "custom_fields": dict(workspace.custom_fields),
        "extra_fields": dict(workspace.extra_fields),
        "campaign_headers": list(workspace.campaign_headers),
        "mailbox_headers": list(workspace.mailbox_headers),
        "mailboxes": [_mailbox_document(box) for box in world.mailboxes.values() if box.workspace == workspace.id],
        "campaigns": [_campaign_document(camp) for camp in world.campaigns.values() if camp.workspace == workspace.id],
        "contacts": [_contact_document(contact) for contact in world.contacts[workspace.id].values()],
    }


def _mailbox_document(mailbox: Mailbox) -> dict[str, Any]:
    values = {name: [value.n, value.of] if isinstance(value, Share) else value for name, value in mailbox.values.items()}
    return {**values, "as_of": mailbox.as_of}


def _campaign_document(campaign: Campaign) -> dict[str, Any]:
    document = attrs.asdict(campaign)
    del document["workspace"]
    return document


def _contact_document(contact: Contact) -> dict[str, Any]:
    return {
        "id": contact.id,
        "email": contact.email,
        "owner": contact.owner,
        "created": contact.created,
        "fields": dict(contact.fields),
        "campaigns": [{"id": enrolment.campaign, "at": enrolment.at} for enrolment in contact.enrolments],
    }


# Reading.


def read_document(source: str | Path | Mapping[str, Any]) -> Mapping[str, Any]:
    """Read a world file and check its top level.

    Args:
        source: A JSON string, the path of a file, or the parsed document. A string that does not start with a brace is a path.

    Raises:
        WorldError: The source is not a JSON object, or has an unknown member.
        OSError: The file cannot be read.
    """
    if isinstance(source, str) and not source.lstrip().startswith("{"):
        source = Path(source)
    if isinstance(source, Path):
        source = source.read_text(encoding="utf-8")
    with _at("$"):
        document = _object(json.loads(source, parse_constant=_refuse) if isinstance(source, str) else source, _WORLD, "a world")
        if document.get("version", VERSION) != VERSION:
            raise ValueError(f"version: expected {VERSION}, got {document['version']!r}; use a release that reads this version")
    if "now" in document:
        with _at("$.now"):
            parse_time(document["now"])
    return document


def load(document: Mapping[str, Any], seeder: Seeder) -> None:
    """Fill an empty world.

    Raises:
        WorldError: The document is invalid. Discard the world, which is only partly filled.
    """
    for path, item in _items(document, "workspaces", "$"):
        _load_workspace(item, path, seeder)
    with _at("$.owner_keys"):
        for key, workspaces in _object(document.get("owner_keys", {})).items():
            seeder.owner_key(_texts(workspaces), key)
    with _at("$.made_up"):
        counters = _object(document.get("made_up", {}))
        seeder.world.counters |= {prefix: whole(prefix, count) for prefix, count in counters.items()}
    if "simulation" in document:
        with _at("$.simulation"):
            world = seeder.world
            load_simulation(_object(document["simulation"]), world.simulation, world.campaigns, world.mailboxes)


def _load_workspace(item: Any, path: str, seeder: Seeder) -> None:
    with _at(path):
        item = _object(item, _WORKSPACE, "a workspace")
        id_ = seeder.workspace(
            item.get("id"),
            item.get("custom_fields", {}),
            _object(item.get("extra_fields", {})),
            _texts(item.get("campaign_headers")),
            _texts(item.get("mailbox_headers")),
        )
    for name, load_item in _LOADERS.items():
        for place, value in _items(item, name, path):
            with _at(place):
                load_item(id_, value, seeder)


def _load_mailbox(workspace: str, item: Any, seeder: Seeder) -> None:
    seeder.mailboxes(workspace, [_object(item)], trouble=0.0)


def _load_campaign(workspace: str, item: Any, seeder: Seeder) -> None:
    given = _object(item, _CAMPAIGN, "a campaign")
    seeder.campaign(CampaignSeed(workspace=workspace, **given))


def _load_contact(workspace: str, item: Any, seeder: Seeder) -> None:
    given = _object(item, _CONTACT, "a contact")
    enrolments = tuple(_enrolment(place, seeder.now) for place in given.get("campaigns", ()))
    fields = _object(given.get("fields", {}))
    for code, value in fields.items():
        if not isinstance(value, str | None):
            raise TypeError(f"{code}: expected a string or null")
    seed = ContactSeed(given.get("email"), fields, enrolments, given.get("owner", ""), given.get("id"), given.get("created"))
    seeder.store(workspace, [seed])


def _enrolment(place: Any, now: float) -> Enrolment:
    given = _object({"id": place} if isinstance(place, str) else place, ("id", "at"), "a place in a campaign")
    return Enrolment(text("id", given["id"]), float(given.get("at", now)))


_LOADERS: Final[Mapping[str, Callable[[str, Any, Seeder], None]]] = {
    "mailboxes": _load_mailbox,
    "campaigns": _load_campaign,
    "contacts": _load_contact,
}
"""Loaders in the order required: campaigns refer to mailboxes, contacts refer to campaigns."""


@contextmanager
def _at(path: str) -> Iterator[None]:
    """Raise errors of the block as `WorldError`, with the place in the file."""
    try:
        yield
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise WorldError(f"{path}: {reason}") from error


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _items(document: Mapping[str, Any], name: str, path: str) -> Iterator[tuple[str, Any]]:
    items = document.get(name, [])
    with _at(f"{path}.{name}"):
        if not isinstance(items, Sequence) or isinstance(items, str):
            raise TypeError(f"expected a list, got {type(items).__name__}")
    for place, item in enumerate(items):
        yield f"{path}.{name}[{place}]", item


def _object(value: Any, known: Iterable[str] | None = None, what: str = "") -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected an object, got {type(value).__name__}")
    for name in value if known is not None else ():
        check_known(name, known or (), what)
    return value


def _texts(value: Any) -> Any:
    if value is not None and (not isinstance(value, Sequence) or isinstance(value, str)):
        raise TypeError(f"expected a list of strings, got {type(value).__name__}")
    return value
