"""The five operations (rule W1): from a request that was read to a status and a document. Refusals are raised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from outreach_async.fake.access import authorized_workspace, check_header, find_campaign, find_workspace
from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.calls import Call
from outreach_async.fake.contacts import ADDED, DUPLICATE, OUTCOMES, added, email_key, merged
from outreach_async.fake.creation import Creation, Fields, read_creation, read_fields
from outreach_async.fake.fields import field_items
from outreach_async.fake.ids import check_id
from outreach_async.fake.items import Items
from outreach_async.fake.limiter import Limiter
from outreach_async.fake.paging import MAX_MAILBOXES, Window, read_page_query, window
from outreach_async.fake.validation import validate
from outreach_async.fake.world import ListKind, World

Answer = tuple[int, dict[str, Any]]
"""Status and document."""


@attrs.frozen
class Service:
    """What the operations work with.

    Attributes:
        world: What is stored.
        behaviour: The readings in force.
        limiter: Counts requests.
        seed: What ids are made from.
        now: Unix seconds.
    """

    world: World
    behaviour: Behaviour
    limiter: Limiter
    seed: int
    now: float


def carry_out(call: Call, service: Service) -> Answer:
    """Do what a request asks for.

    Returns:
        The answer's status and document.

    Raises:
        Refused: It cannot be done; nothing is changed (rule C23).
    """
    behaviour = service.behaviour
    if call.misdirected is not None:
        raise call.misdirected
    if behaviour.auth is not None:
        check_header(call.request.headers, behaviour.auth, service.world)
    if behaviour.rate_limit is not None:
        service.limiter.admit(_SCOPES[behaviour.rate_limit.scope](call, service.world), behaviour.rate_limit, service.now)
    if call.malformed is not None:
        raise call.malformed
    return HANDLERS[call.operation](call, service)


def _workspace_of(call: Call, world: World) -> str:
    """Find the workspace that a request names, or whose campaign it names."""
    if call.body is not None:
        return str(call.body.get("workspace"))
    if len(call.target.segments) == 1:
        return "".join(call.target.query.get("workspace", ()))
    campaign = world.campaigns.get(call.target.id)
    return campaign.workspace if campaign else call.target.id


_SCOPES: Final[Mapping[str, Callable[[Call, World], str]]] = {
    "key": lambda call, _: str(call.members.get("owner_key")),
    "workspace": _workspace_of,
    "all": lambda *_: "",
}


def _list_campaigns(call: Call, service: Service) -> Answer:
    return _list(call, service, "campaign", service.behaviour.campaign_max_display)


def _list_mailboxes(call: Call, service: Service) -> Answer:
    return _list(call, service, "mailbox", MAX_MAILBOXES)


def _list(call: Call, service: Service, kind: ListKind, maximum: int | None) -> Answer:
    query = read_page_query(call.target.query, maximum, service.behaviour)
    workspace = find_workspace(query.workspace, service.world)
    total = len(service.world.orders[workspace.id, kind])
    cut = window(total, query, service.behaviour)
    items = Items.of(service.world, service.now, service.behaviour)
    return 200, {
        "status": "ok",
        "headers": workspace.campaign_headers if kind == "campaign" else workspace.mailbox_headers,
        "data": [items.listed(kind, id_) for id_ in _cut_out(service, workspace.id, kind, cut)],
        "total_found": total,
        "current_page": cut.current_page,
        "total_pages": cut.total_pages,
    }


def _cut_out(service: Service, workspace: str, kind: ListKind, cut: Window) -> list[str]:
    """Cut a page out of a list; each page as things stand at its own instant (rule P11)."""
    order = service.world.orders[workspace, kind]
    if service.behaviour.order == "newest":
        return [id_ for _, id_ in reversed(order[len(order) - cut.stop : len(order) - cut.start])]
    if service.behaviour.order == "last_activity":
        order = sorted(order, key=lambda created: -service.world.last_activity(kind, created[1]))
    return [id_ for _, id_ in order[cut.start : cut.stop]]


def _create_contact(call: Call, service: Service) -> Answer:
    body, behaviour, world = call.members, service.behaviour, service.world
    creation = read_creation(body, behaviour)
    workspace = authorized_workspace(creation.owner_key, creation.workspace, world, behaviour)
    if creation.campaign is not None:
        find_campaign(creation.campaign, world, "upload_options.campaign", workspace.id)
    fields = read_fields(body, workspace, behaviour, call.hints)
    if creation.strict:
        validate(creation.email, fields, behaviour.strict_fields)
    return _store(creation, fields, service)


def _store(creation: Creation, fields: Fields, service: Service) -> Answer:
    world, behaviour = service.world, service.behaviour
    key = email_key(behaviour)(creation.email)
    existing = world.contacts[creation.workspace].get(key)
    if existing is None:
        outcome, contact = ADDED, added(creation, fields, world.new_id(service.seed, "contact_"), service.now)
    else:
        outcome, contact = OUTCOMES[creation.duplicates], merged(existing, creation, fields, behaviour, service.now)
    if contact is not existing:
        world.put_contact(creation.workspace, key, contact)
    skipped = outcome == OUTCOMES["skip"]
    answer = {"status": outcome, "id": None if skipped else contact.id, "details": DUPLICATE if skipped else None}
    return _status(outcome, behaviour.created_status), answer


def _status(outcome: str, created_status: int | Mapping[str, int]) -> int:
    if isinstance(created_status, int):
        return created_status if outcome == ADDED else 200
    return created_status.get(outcome, 200)


def _list_steps(call: Call, service: Service) -> Answer:
    check_id(call.target.id, "camp_", "campaign_id")
    campaign = find_campaign(call.target.id, service.world, "campaign_id")
    return 200, {"status": "ok", **Items.of(service.world, service.now, service.behaviour).steps(campaign)}


def _list_fields(call: Call, service: Service) -> Answer:
    check_id(call.target.id, "space_", "workspace_id")
    workspace = find_workspace(call.target.id, service.world)
    return 200, {"status": "ok", "data": field_items(workspace.extra_fields, workspace.custom_fields)}


HANDLERS: Final[Mapping[str, Callable[[Call, Service], Answer]]] = {
    "list_campaigns": _list_campaigns,
    "list_mailboxes": _list_mailboxes,
    "create_contact": _create_contact,
    "list_steps": _list_steps,
    "list_fields": _list_fields,
}
