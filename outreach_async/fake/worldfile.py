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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from outreach_async.fake.campaign_seeds import CampaignSeed
from outreach_async.fake.clock import parse_time
from outreach_async.fake.contact_seeds import ContactSeed
from outreach_async.fake.given import check_known, text, whole
from outreach_async.fake.records import Campaign, Contact, Enrolment, Mailbox, Share, Workspace
from outreach_async.fake.seeding import Seeder
from outreach_async.fake.simulation.events import DAY
from outreach_async.fake.simulation.file import load_simulation, simulation_document
from outreach_async.fake.world import World

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
