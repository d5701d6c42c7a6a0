"""World files: read and write everything a fake stores, as JSON.

A file is one JSON object. Values equal to their default can be omitted, which makes it easy to write a file by hand:

    {"version": 1,
     "now": "2026-01-01T00:00:00Z",
     "workspaces": [{"id": "space_1", "custom_fields": {"custom_1": "Plan"},
                     "mailboxes": [{"email": "ada@north.example", "spf": false}],
                     "campaigns": [{"id": "camp_1", "name": "Spring", "status": "live", "steps": ["A|B"]}],
                     "contacts": [{"email": "bo@acme.example", "fields": {"city": "Lyon"}, "campaigns": ["camp_1"]}]}],
     "owner_keys": {"key_1": ["space_1"]}}

`dump_world` writes every value: loading a dumped file reproduces the world, byte for byte. Counts in campaigns and mailboxes are
the seeded ones. Once anything has been sent, the member `simulation` holds the changes since then and the pending events.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from outreach_async.fake.arguments import check_known, require_count, require_string
from outreach_async.fake.builder import Seeder
from outreach_async.fake.clock import parse_time
from outreach_async.fake.records import Campaign, Contact, Enrolment, Mailbox, Share, Workspace
from outreach_async.fake.seed_campaigns import CampaignSeed
from outreach_async.fake.seeds import ContactSeed
from outreach_async.fake.simulation.chance import DAY, DUE, KIND_NAMES, FutureEvent, ResponsePlan
from outreach_async.fake.simulation.state import (
    COUNT_NAMES,
    ENDED,
    FORTNIGHT,
    MONTH,
    QUARTER,
    CampaignFlow,
    MailboxStats,
    PendingJoin,
    Simulation,
)
from outreach_async.fake.world import World

_EVENT_TYPES: Final = (int, int, str, str, int, str, int, str, int, int)

# Dumping.


def dump_simulation(state: Simulation, day: int) -> dict[str, Any]:
    """Return the simulation's state, equal for equal states; empty if nothing has happened yet.

    Times are in Unix microseconds:

      {"wake": 1767312000000000,                                 when to serve the queues again, Unix microseconds, or null
       "campaigns": {"camp_1": {"since": …, "begun": true,       differences from the seeded campaign
                                "counts": [[[sent, opened, clicked, replied, unsubscribed], …], …],
                                "left": […], "bounces": 0, "interested": 0, "last": null, "joined": […], "queue": […],
                                "progress": {"contact_1": 2, "contact_2": null}, "rounds": {}}},
       "mailboxes": {"mailbox_1": {"day": 20454, "sent": [[20454, 3]], "opened": […], "bounced": […],
                                   "life": 3, "opens": 1, "clicks": 0, "last": 1767225600.0}},
       "events": [[at, kind, campaign, contact, step, token, stop, mailbox, template, day], …],
       "scripts": [[token, campaign, step, [[kind, microseconds], …]], …]}

    Args:
        state: The state.
        day: Today, in days since 1970.
    """
    flows = {id_: _dump_flow(flow) for id_, flow in sorted(state.flows.items()) if flow.started or flow.rounds}
    ledgers = {id_: _dump_stats(ledger, day) for id_, ledger in sorted(state.stats.items()) if ledger.total_sent}
    scripts = [[*key, plan] for key, plan in sorted(state.scripts.items())]
    if not (flows or scripts):
        return {}
    return {"wake": state.wake, "campaigns": flows, "mailboxes": ledgers, "events": sorted(state.heap), "scripts": scripts}


def _dump_flow(flow: CampaignFlow) -> dict[str, Any]:
    return {
        "since": flow.seeded_at,
        "begun": flow.started,
        "counts": flow.counts,
        "left": flow.left_to_send,
        "bounces": flow.bounces,
        "interested": flow.interested,
        "last": flow.last_activity,
        "joined": flow.pending_joins,
        "queue": list(flow.queue),
        "progress": {who: None if step == ENDED else step for who, step in sorted(flow.progress.items())},
        "rounds": dict(sorted(flow.rounds.items())),
    }


def _dump_stats(ledger: MailboxStats, day: int) -> dict[str, Any]:
    # A ledger's day depends on when it was last read. Roll a copy to today, so that equal states give equal documents.
    ledger = ledger.copy()
    ledger.advance_to(day)
    return {
        "day": ledger.day,
        "sent": _dump_days(ledger.sent, ledger.day),
        "opened": _dump_days(ledger.opened, ledger.day),
        "bounced": _dump_days(ledger.bounced, ledger.day),
        "life": ledger.total_sent,
        "opens": ledger.total_opens,
        "clicks": ledger.total_clicks,
        "last": ledger.last_activity,
    }


def _dump_days(ring: Sequence[int], latest: int) -> list[tuple[int, int]]:
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
    for id_, item in _require_type(document["campaigns"], dict).items():
        state.flows[id_] = _load_flow(item, _look_up(id_, campaigns), campaigns, mailboxes)
    for id_, item in _require_type(document["mailboxes"], dict).items():
        state.stats[id_] = _load_stats(item, _look_up(id_, mailboxes))
    state.heap = sorted(_load_event(item, campaigns, mailboxes) for item in _require_type(document["events"], list))
    for token, campaign, step, plan in _require_type(document["scripts"], list):
        state.scripts[_require_type(token, str), _require_type(campaign, str), require_count("step", step)] = _load_plan(plan)
    state.wake = None if document["wake"] is None else require_count("wake", document["wake"])


def _load_flow(
    item: Any, campaign: Campaign, campaigns: Mapping[str, Campaign], mailboxes: Mapping[str, Mailbox]
) -> CampaignFlow:
    counts = [[[require_count("counts", n) for n in part] for part in step] for step in item["counts"]]
    lefts = [require_count("left", left) for left in item["left"]]
    shape = [[len(COUNT_NAMES)] * len(step.templates) for step in campaign.steps]
    if [[len(part) for part in step] for step in counts] != shape or len(lefts) != len(shape):
        raise ValueError(f"{campaign.id}: counts and left do not match its steps and templates")
    return CampaignFlow(
        require_count("since", item["since"]),
        counts,
        lefts,
        require_count("bounces", item["bounces"]),
        require_count("interested", item["interested"]),
        _load_time(item["last"]),
        _require_type(item["begun"], bool),
        [_load_join(joined) for joined in item["joined"]],
        deque(_load_event(event, campaigns, mailboxes) for event in item["queue"]),
        {
            who: ENDED if step is None else require_count("progress", step)
            for who, step in _require_type(item["progress"], dict).items()
        },
        {who: require_count("rounds", number) for who, number in _require_type(item["rounds"], dict).items()},
    )


def _load_join(item: Any) -> PendingJoin:
    who, token, at = item
    return _require_type(who, str), _require_type(token, str), require_count("joined", at)


def _load_stats(item: Any, mailbox: Mailbox) -> MailboxStats:
    ledger = MailboxStats.from_mailbox(mailbox)
    day = require_count("day", item["day"])
    ledger.advance_to(day)
    ledger.sent, ledger.opened, ledger.bounced = (
        _load_ring(item[name], length, day) for name, length in (("sent", QUARTER), ("opened", FORTNIGHT), ("bounced", MONTH))
    )
    ledger.sent_90days, ledger.opened_14days, ledger.bounced_30days = sum(ledger.sent), sum(ledger.opened), sum(ledger.bounced)
    ledger.sent_14days, ledger.sent_30days = (
        sum(ledger.sent[(day - back) % QUARTER] for back in range(length)) for length in (FORTNIGHT, MONTH)
    )
    ledger.total_sent, ledger.total_opens, ledger.total_clicks = (
        require_count(name, item[name]) for name in ("life", "opens", "clicks")
    )
    ledger.last_activity = _load_time(item["last"])
    return ledger


def _load_ring(days: Iterable[Any], length: int, latest: int) -> list[int]:
    ring = [0] * length
    for day, count in days:
        if not latest - length < require_count("day", day) <= latest:
            raise ValueError(f"day {day}: expected one of the {length} days up to {latest}")
        ring[day % length] = require_count("count", count)
    return ring


def _load_event(item: Any, campaigns: Mapping[str, Campaign], mailboxes: Mapping[str, Mailbox]) -> FutureEvent:
    if len(item) != len(_EVENT_TYPES):
        raise ValueError(f"expected an event of {len(_EVENT_TYPES)} parts, got {len(item)}")
    event = FutureEvent(*(_require_type(part, kind) for part, kind in zip(item, _EVENT_TYPES, strict=True)))
    steps = _look_up(event.campaign, campaigns).steps
    mailbox = mailboxes.get(event.mailbox)
    fits = 0 <= event.kind < len(KIND_NAMES) and 0 <= event.step < event.end_step <= len(steps)
    if not fits or not 0 <= event.template < len(steps[event.step].templates):
        raise ValueError(f"{event}: the campaign has no such step or template")
    if mailbox is None and (event.mailbox or event.kind != DUE):
        raise ValueError(f"{event}: there is no such mailbox")
    return event


def _load_plan(item: Any) -> ResponsePlan:
    plan = tuple((require_count("kind", kind), require_count("microseconds", delay)) for kind, delay in item)
    for kind, _ in plan:
        if not DUE < kind < len(KIND_NAMES):
            raise ValueError(f"kind {kind}: expected a kind from {DUE + 1} to {len(KIND_NAMES) - 1}")
    return plan


def _look_up(id_: str, table: Mapping[str, Any]) -> Any:
    if id_ not in table:
        raise ValueError(f"there is no {id_!r} in this world")
    return table[id_]


def _load_time(value: Any) -> float | None:
    return None if value is None else float(value)


def _require_type(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected the type {kind.__name__}, got {type(value).__name__}")
    return value


VERSION: Final = 1
"""Version of the file format."""

_WORLD_MEMBERS: Final = ("version", "now", "workspaces", "owner_keys", "made_up", "simulation")
_WORKSPACE_MEMBERS: Final = (
    "id",
    "custom_fields",
    "extra_fields",
    "campaign_headers",
    "mailbox_headers",
    "mailboxes",
    "campaigns",
    "contacts",
)
_CAMPAIGN_MEMBERS: Final = tuple(field.name for field in attrs.fields(CampaignSeed) if field.name != "workspace")
_CONTACT_MEMBERS: Final = ("id", "email", "owner", "created", "fields", "campaigns")


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


def dump_world(world: World, now: str) -> str:
    """Return a world as a world file; equal worlds give equal strings.

    Args:
        world: The world.
        now: The current time as an ISO 8601 string.
    """
    document = {
        "version": VERSION,
        "now": now,
        "workspaces": [_workspace_document(world, workspace) for workspace in world.workspaces.values()],
        "owner_keys": {key: sorted(spaces) for key, spaces in world.owner_keys.items()},
        "made_up": dict(sorted(world.counters.items())),
    }
    written = json.dumps(document, ensure_ascii=False, indent=1)
    moving = dump_simulation(world.simulation, parse_time(now) // DAY)
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
    values = {name: [value.part, value.whole] if isinstance(value, Share) else value for name, value in mailbox.values.items()}
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
    with _name_place("$"):
        document = _check_object(
            json.loads(source, parse_constant=_refuse_constant) if isinstance(source, str) else source, _WORLD_MEMBERS, "a world"
        )
        if document.get("version", VERSION) != VERSION:
            raise ValueError(f"version: expected {VERSION}, got {document['version']!r}; use a release that reads this version")
    if "now" in document:
        with _name_place("$.now"):
            parse_time(document["now"])
    return document


def load_world(document: Mapping[str, Any], seeder: Seeder) -> None:
    """Fill an empty world.

    Raises:
        WorldError: The document is invalid. Discard the world, which is only partly filled.
    """
    for path, item in _iterate_items(document, "workspaces", "$"):
        _load_workspace(item, path, seeder)
    with _name_place("$.owner_keys"):
        for key, workspaces in _check_object(document.get("owner_keys", {})).items():
            seeder.add_owner_key(_check_strings(workspaces), key)
    with _name_place("$.made_up"):
        counters = _check_object(document.get("made_up", {}))
        seeder.world.counters |= {prefix: require_count(prefix, count) for prefix, count in counters.items()}
    if "simulation" in document:
        with _name_place("$.simulation"):
            world = seeder.world
            load_simulation(_check_object(document["simulation"]), world.simulation, world.campaigns, world.mailboxes)


def _load_workspace(item: Any, path: str, seeder: Seeder) -> None:
    with _name_place(path):
        item = _check_object(item, _WORKSPACE_MEMBERS, "a workspace")
        id_ = seeder.add_workspace(
            item.get("id"),
            item.get("custom_fields", {}),
            _check_object(item.get("extra_fields", {})),
            _check_strings(item.get("campaign_headers")),
            _check_strings(item.get("mailbox_headers")),
        )
    for name, load_item in _LOADERS.items():
        for place, value in _iterate_items(item, name, path):
            with _name_place(place):
                load_item(id_, value, seeder)


def _load_mailbox(workspace: str, item: Any, seeder: Seeder) -> None:
    seeder.add_mailboxes(workspace, [_check_object(item)], trouble=0.0)


def _load_campaign(workspace: str, item: Any, seeder: Seeder) -> None:
    given = _check_object(item, _CAMPAIGN_MEMBERS, "a campaign")
    seeder.add_campaign(CampaignSeed(workspace=workspace, **given))


def _load_contact(workspace: str, item: Any, seeder: Seeder) -> None:
    given = _check_object(item, _CONTACT_MEMBERS, "a contact")
    enrolments = tuple(_parse_enrolment(place, seeder.now) for place in given.get("campaigns", ()))
    fields = _check_object(given.get("fields", {}))
    for code, value in fields.items():
        if not isinstance(value, str | None):
            raise TypeError(f"{code}: expected a string or null")
    seed = ContactSeed(given.get("email"), fields, enrolments, given.get("owner", ""), given.get("id"), given.get("created"))
    seeder.store_contacts(workspace, [seed])


def _parse_enrolment(place: Any, now: float) -> Enrolment:
    given = _check_object({"id": place} if isinstance(place, str) else place, ("id", "at"), "a place in a campaign")
    return Enrolment(require_string("id", given["id"]), float(given.get("at", now)))


_LOADERS: Final[Mapping[str, Callable[[str, Any, Seeder], None]]] = {
    "mailboxes": _load_mailbox,
    "campaigns": _load_campaign,
    "contacts": _load_contact,
}
"""Loaders in the order required: campaigns refer to mailboxes, contacts refer to campaigns."""


@contextmanager
def _name_place(path: str) -> Iterator[None]:
    """Raise errors of the block as `WorldError`, with the place in the file."""
    try:
        yield
    except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise WorldError(f"{path}: {reason}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _iterate_items(document: Mapping[str, Any], name: str, path: str) -> Iterator[tuple[str, Any]]:
    items = document.get(name, [])
    with _name_place(f"{path}.{name}"):
        if not isinstance(items, Sequence) or isinstance(items, str):
            raise TypeError(f"expected a list, got {type(items).__name__}")
    for place, item in enumerate(items):
        yield f"{path}.{name}[{place}]", item


def _check_object(value: Any, known: Iterable[str] | None = None, what: str = "") -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"expected an object, got {type(value).__name__}")
    for name in value if known is not None else ():
        check_known(name, known or (), what)
    return value


def _check_strings(value: Any) -> Any:
    if value is not None and (not isinstance(value, Sequence) or isinstance(value, str)):
        raise TypeError(f"expected a list of strings, got {type(value).__name__}")
    return value
