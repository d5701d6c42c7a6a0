"""Read and write world files, which contain all stored data of a fake as JSON.

A file is one JSON object. Values equal to their default can be omitted, which makes it easy to write a file by hand:

    {"version": 1,
     "now": "2026-01-01T00:00:00Z",
     "workspaces": [{"id": "space_1", "custom_fields": {"custom_1": "Plan"},
                     "mailboxes": [{"email": "ada@north.example", "spf": false}],
                     "campaigns": [{"id": "camp_1", "name": "Spring", "status": "live", "steps": ["A|B"]}],
                     "contacts": [{"email": "bo@acme.example", "fields": {"city": "Lyon"}, "campaigns": ["camp_1"]}]}],
     "owner_keys": {"key_1": ["space_1"]},
     "scripts": [{"contact": "bo@acme.example", "campaign": "camp_1", "replies_after": "2h"}]}

A script has the arguments of `fake.sim.script`. `FakeService.dump` writes every value: loading a dumped file and dumping it again
gives the same bytes. The counts in campaigns and mailboxes are the seeded counts. Once the simulation has run, the key
`simulation` contains the changed counts and the pending events. You can edit a dumped file: a contact that you add to a campaign
gets its first e-mail as if it had joined when the file is loaded.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Final, get_origin

import attrs
import msgspec

from outreach_async.fake._arguments import convert, suggest_similar
from outreach_async.fake._clock import parse_time
from outreach_async.fake._records import Share, Workspace
from outreach_async.fake._simulation import (
    KIND_NAMES,
    SECOND_US,
    SPAN_NAMES,
    CampaignFlow,
    Count,
    EventKind,
    FutureEvent,
    MailboxStats,
    ResponsePlan,
    ScriptKey,
    Simulation,
    World,
    to_microseconds,
)

# The state of the simulation.


class SimulationDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The state of the simulation in a world file. Times are in Unix microseconds."""

    campaigns: dict[str, CampaignFlow]
    mailboxes: dict[str, MailboxStats]
    events: list[FutureEvent]


def dump_simulation(state: Simulation) -> str:
    """Return the simulation's state as JSON; empty if nothing has happened yet."""
    flows = {id_: flow for id_, flow in state.flows.items() if flow.started}
    stats = {id_: ledger for id_, ledger in state.stats.items() if ledger.sent}
    document = msgspec.to_builtins(SimulationDocument(flows, stats, sorted(state.heap)), enc_hook=list)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True) if flows else ""


def _read_collection(kind: Any, value: Any) -> Any:
    if get_origin(kind) is deque:
        return deque(convert("item", value, list[FutureEvent]))
    return Counter(convert("item", value, dict[Count, Count]))


def load_simulation(document: SimulationDocument, world: World, now: int) -> None:
    """Load the state of the simulation from a world file into a world. `now` is in Unix microseconds."""
    state = world.simulation
    known: dict[str, set[str]] = {id_: set() for id_ in document.campaigns}
    for event in (*document.events, *(event for flow in document.campaigns.values() for event in flow.queue)):
        _check_event(event, world)
        known.setdefault(event.campaign, set()).add(event.contact)
    for id_, flow in document.campaigns.items():
        shape = [len(step.templates) for step in _look_up(id_, world.campaigns).steps]
        if [len(step) for step in flow.counts] != shape or len(flow.left_to_send) != len(shape):
            raise ValueError(f"{id_}: expected counts and left_to_send of each step, and counts of each of its templates")
        known[id_].update(flow.progress)
        state.flows[id_] = flow
    for id_ in document.mailboxes:
        _look_up(id_, world.mailboxes)
    state.stats = document.mailboxes
    state.heap = sorted(document.events)
    for token, contact in chain.from_iterable(table.items() for table in world.contacts.values()):
        for place in contact.enrolments:
            flow = state.flows[place.campaign]
            if flow.started and flow.left_to_send and contact.id not in known[place.campaign]:
                # Somebody has added the contact to a file that was dumped. It joins now: no e-mail can be sent in the past.
                flow.join()
                at = max(to_microseconds(place.at), now)
                state.schedule_first(world.campaigns[place.campaign], contact.id, token, at)
    # A queue waits for the next midnight, unless somebody has edited a limit or a status: try to send at once.
    state.schedule_wake(now)


def _check_event(event: FutureEvent, world: World) -> None:
    steps = _look_up(event.campaign, world.campaigns).steps
    if not 0 <= event.kind < len(KIND_NAMES):
        raise ValueError(f"{event}: expected a kind from 0 to {len(KIND_NAMES) - 1}, got {event.kind}; correct the kind")
    fits = 0 <= event.step < event.end_step <= len(steps)
    if not fits or not 0 <= event.template < len(steps[event.step].templates):
        raise ValueError(
            f"{event}: expected step and template to be indexes in the campaign, and end_step from step + 1 to the step count"
        )
    if event.mailbox or event.kind != EventKind.DUE:
        _look_up(event.mailbox, world.mailboxes)


def _look_up(id_: str, table: Mapping[str, Any]) -> Any:
    if id_ not in table:
        raise ValueError(f"the world has no record with the id {id_!r}; correct the id, or add the record to the file")
    return table[id_]


# The stored data.

VERSION: Final = 1  # of the file format

SCRIPT_MEMBERS: Final = ("contact", "step", "campaign", *SPAN_NAMES.values(), "interested")


class EnrolmentDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A campaign of a contact in a world file, and when the contact joined it, in Unix seconds."""

    id: str
    at: float | None = None


class _ContactDocument(msgspec.Struct, forbid_unknown_fields=True):
    email: str
    id: str | None = None
    owner: str = ""
    created: Count | None = None
    fields: dict[str, Any] = {}
    campaigns: list[str | EnrolmentDocument] = []


class WorkspaceDocument(msgspec.Struct, forbid_unknown_fields=True):
    """A workspace in a world file. Mailboxes and campaigns have the arguments of `add_mailbox` and `add_campaign`."""

    id: str | None = None
    custom_fields: dict[str, str] | list[str] = []
    extra_fields: dict[str, str] = {}
    mailboxes: list[dict[str, Any]] = []
    campaigns: list[dict[str, Any]] = []
    contacts: list[_ContactDocument] = []


class WorldDocument(msgspec.Struct, forbid_unknown_fields=True):
    """The object of a world file. Scripts have the arguments of `SimulationControl.script`."""

    version: int = VERSION
    now: str | None = None
    workspaces: list[WorkspaceDocument] = []
    owner_keys: dict[str, list[str]] = {}
    scripts: list[dict[str, Any]] = []
    made_up: dict[str, Count] = {}
    simulation: SimulationDocument | None = None


# The class of an object, by the last key of its path.
_KINDS: Final[Mapping[str, Any]] = {
    "$": WorldDocument,
    "workspaces": WorkspaceDocument,
    "contacts": _ContactDocument,
    "campaigns": EnrolmentDocument,
    "simulation": SimulationDocument,
}


class WorldError(ValueError):
    """Raised when a world file is invalid.

    The message names the path to the invalid value, and the reason.

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
    """Serialize a world as the content of a world file. Equal worlds give equal strings."""
    document = {
        "version": VERSION,
        "now": now,
        "workspaces": [_workspace_document(world, workspace) for workspace in world.workspaces.values()],
        "owner_keys": {key: sorted(spaces) for key, spaces in world.owner_keys.items()},
        "scripts": [_script_document(*item) for item in sorted(world.simulation.scripts.items())],
        "made_up": dict(sorted(world.counters.items())),
    }
    written = json.dumps(document, ensure_ascii=False, indent=1)
    simulation = dump_simulation(world.simulation)
    if simulation:
        # On one line, because there can be thousands of events, which nobody edits by hand.
        written = f'{written.removesuffix("}").rstrip()},\n "simulation": {simulation}\n}}'
    return written + "\n"


def _workspace_document(world: World, workspace: Workspace) -> dict[str, Any]:
    return {
        **attrs.asdict(workspace, recurse=False, filter=lambda attribute, _: attribute.name != "codes"),
        "mailboxes": [
            {**{name: _to_json(value) for name, value in mailbox.values.items()}, "as_of": mailbox.as_of}
            for mailbox in world.mailboxes.values()
            if mailbox.workspace == workspace.id
        ],
        "campaigns": [
            attrs.asdict(campaign, filter=lambda attribute, _: attribute.name != "workspace")
            for campaign in world.campaigns.values()
            if campaign.workspace == workspace.id
        ],
        "contacts": [
            {
                **attrs.asdict(contact, recurse=False, filter=lambda attribute, _: attribute.name != "enrolments"),
                "campaigns": [{"id": enrolment.campaign, "at": enrolment.at} for enrolment in contact.enrolments],
            }
            for contact in world.contacts[workspace.id].values()
        ],
    }


def _to_json(value: Any) -> Any:
    return [value.part, value.whole] if isinstance(value, Share) else value


def _script_document(key: ScriptKey, plan: ResponsePlan) -> dict[str, Any]:
    token, campaign, step = key
    document: dict[str, Any] = {"contact": token}
    if step:
        document["step"] = step + 1
    if campaign:
        document["campaign"] = campaign
    delays = {EventKind.REPLY if kind == EventKind.INTERESTED else kind: delay / SECOND_US for kind, delay in plan}
    document |= {name: delays[kind] for kind, name in SPAN_NAMES.items() if kind in delays}
    return document | ({"interested": True} if EventKind.INTERESTED in dict(plan) else {})


# Reading.


def read_document(source: str | Path | Mapping[str, Any]) -> WorldDocument:
    """Read a world file, and check the types of its values."""
    if isinstance(source, str) and not source.lstrip().startswith("{"):
        source = Path(source)
    with name_place("$"):
        if isinstance(source, Path):
            try:
                source = source.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(f"byte {error.start + 1} is not valid UTF-8; save the file as UTF-8") from error
        parsed = json.loads(source, parse_constant=_refuse_constant) if isinstance(source, str) else source
        if isinstance(parsed, Mapping) and (version := parsed.get("version", VERSION)) != VERSION:
            raise ValueError(f"version: expected {VERSION}, got {version!r}; use a release that reads the file's version")
    try:
        document = convert("$", parsed, WorldDocument, _read_collection)
        if document.now is not None:
            parse_time("$.now", document.now)
    except ValueError as error:
        if (unknown := re.search(r"(\$|\w+)(?:\[\d+\])?: object contains unknown field `(.*)`$", str(error))) is None:
            raise WorldError(str(error)) from error
        known = _KINDS[unknown[1]].__struct_fields__
        remedy = suggest_similar(unknown[2], known) or f"expected one of {', '.join(known)}"
        raise WorldError(f"{error}; {remedy}") from error
    return document


@contextmanager
def name_place(path: str) -> Iterator[None]:
    """Re-raise errors of the `with` block as `WorldError`, with the path of the value in the file."""
    try:
        yield
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WorldError(f"{path}: {error}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON; use a finite number or null")
