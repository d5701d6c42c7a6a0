"""The five operations (rule W1): execute a parsed request and return a status and a document. Errors are raised as `Refused`."""

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


@attrs.define
class Context:
    """The state and settings that operations use.

    Attributes:
        world: The stored data.
        behaviour: The behaviour in effect.
        limiter: The counters of rate limit and concurrency.
        seed: Seed for generated ids.
        now: The current time in Unix seconds.
    """

    world: World = attrs.field(repr=False)
    behaviour: Behaviour
    limiter: Limiter
    seed: int
    now: float


def carry_out(call: Call, context: Context) -> Answer:
    """Execute a request.

    Returns:
        Status and document of the response.

    Raises:
        Refused: The service refuses the request; nothing is changed (rule C23).
    """
    behaviour = context.behaviour
    if call.misdirected is not None:
        raise call.misdirected
    if behaviour.auth is not None:
        check_header(call.request.headers, behaviour.auth, context.world)
    if behaviour.max_in_flight is not None:
        call.ended = context.limiter.occupy(behaviour.max_in_flight)
    if behaviour.rate_limit is not None:
        context.limiter.admit(_SCOPES[behaviour.rate_limit.scope](call, context.world), behaviour.rate_limit, context.now)
    if call.malformed is not None:
        raise call.malformed
    return HANDLERS[call.operation](call, context)


def _workspace_of(call: Call, world: World) -> str:
    """Return the workspace that a request names, or the workspace of the campaign it names."""
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


def _list_campaigns(call: Call, context: Context) -> Answer:
    return _list(call, context, "campaign", context.behaviour.campaign_max_display)


def _list_mailboxes(call: Call, context: Context) -> Answer:
    return _list(call, context, "mailbox", MAX_MAILBOXES)


def _list(call: Call, context: Context, kind: ListKind, maximum: int | None) -> Answer:
    query = read_page_query(call.target.query, maximum, context.behaviour)
    workspace = find_workspace(query.workspace, context.world)
    total = len(context.world.orders[workspace.id, kind])
    cut = window(total, query, context.behaviour)
    items = Items.of(context.world, context.now, context.behaviour)
    return 200, {
        "status": "ok",
        "headers": workspace.campaign_headers if kind == "campaign" else workspace.mailbox_headers,
        "data": [items.listed(kind, id_) for id_ in _cut_out(context, workspace.id, kind, cut)],
        "total_found": total,
        "current_page": cut.current_page,
        "total_pages": cut.total_pages,
    }


def _cut_out(context: Context, workspace: str, kind: ListKind, cut: Window) -> list[str]:
    """Return the ids of one page, from the list as it is at this moment (rule P11)."""
    order = context.world.orders[workspace, kind]
    if context.behaviour.order == "newest":
        return [id_ for _, id_ in reversed(order[len(order) - cut.stop : len(order) - cut.start])]
    if context.behaviour.order == "last_activity":
        order = sorted(order, key=lambda created: -context.world.last_activity(kind, created[1]))
    return [id_ for _, id_ in order[cut.start : cut.stop]]


def _create_contact(call: Call, context: Context) -> Answer:
    body, behaviour, world = call.members, context.behaviour, context.world
    creation = read_creation(body, behaviour)
    workspace = authorized_workspace(creation.owner_key, creation.workspace, world, behaviour)
    if creation.campaign is not None:
        find_campaign(creation.campaign, world, "upload_options.campaign", workspace.id)
    fields = read_fields(body, workspace, behaviour, call.hints)
    if creation.strict:
        validate(creation.email, fields, behaviour.strict_fields)
    return _store(creation, fields, context)


def _store(creation: Creation, fields: Fields, context: Context) -> Answer:
    world, behaviour = context.world, context.behaviour
    key = email_key(behaviour)(creation.email)
    existing = world.contacts[creation.workspace].get(key)
    if existing is None:
        outcome, contact = ADDED, added(creation, fields, world.new_id(context.seed, "contact_"), context.now)
    else:
        outcome, contact = OUTCOMES[creation.duplicates], merged(existing, creation, fields, behaviour, context.now)
    if contact is not existing:
        world.put_contact(creation.workspace, key, contact)
    skipped = outcome == OUTCOMES["skip"]
    answer = {"status": outcome, "id": None if skipped else contact.id, "details": DUPLICATE if skipped else None}
    return _status(outcome, behaviour.created_status), answer


def _status(outcome: str, created_status: int | Mapping[str, int]) -> int:
    if isinstance(created_status, int):
        return created_status if outcome == ADDED else 200
    return created_status.get(outcome, 201 if outcome == ADDED else 200)


def _list_steps(call: Call, context: Context) -> Answer:
    check_id(call.target.id, "camp_", "campaign_id")
    campaign = find_campaign(call.target.id, context.world, "campaign_id")
    return 200, {"status": "ok", **Items.of(context.world, context.now, context.behaviour).steps(campaign)}


def _list_fields(call: Call, context: Context) -> Answer:
    check_id(call.target.id, "space_", "workspace_id")
    workspace = find_workspace(call.target.id, context.world)
    return 200, {"status": "ok", "data": field_items(workspace.extra_fields, workspace.custom_fields)}


HANDLERS: Final[Mapping[str, Callable[[Call, Context], Answer]]] = {
    "list_campaigns": _list_campaigns,
    "list_mailboxes": _list_mailboxes,
    "create_contact": _create_contact,
    "list_steps": _list_steps,
    "list_fields": _list_fields,
}
