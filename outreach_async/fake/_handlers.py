"""Execute the five operations of the service (rule W1). Every error is raised as `Refusal`.

The module contains authentication (rules A2 to A4), pagination (P1 to P11), and the rendering of records as JSON items (W4).
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, Final

import attrs

from outreach_async.fake import _create_contact as create_contact
from outreach_async.fake._arguments import check_id
from outreach_async.fake._clock import DAY, format_age, format_date
from outreach_async.fake._create_contact import find_failures
from outreach_async.fake._error_responses import refusal_error
from outreach_async.fake._request import ParsedRequest, Query, require_parameter
from outreach_async.fake._stored_records import (
    CAMPAIGN_HEADERS,
    MAILBOX_HEADERS,
    STANDARD_FIELDS,
    Campaign,
    Contact,
    Enrolment,
    Mailbox,
    Share,
    Step,
    Workspace,
    custom_number,
)
from outreach_async.fake._world import COUNT_NAMES, NO_STATS, CampaignFlow, Limiter, ListKind, World
from outreach_async.fake.behaviour import Behaviour


def find_workspace(workspace: str, world: World) -> Workspace:
    record = world.workspaces.get(workspace)
    if record is None:
        raise refusal_error(404, "workspace_not_found", "no workspace has this id", "workspace")
    return record


def find_campaign(campaign: str, world: World, field: str, workspace: str | None = None) -> Campaign:
    record = world.campaigns.get(campaign)
    if record is None or workspace not in {None, record.workspace}:
        raise refusal_error(404, "campaign_not_found", "no campaign has this id", field)
    return record


MAX_MAILBOXES: Final = 2000  # as the API documentation states

DEFAULT_DISPLAY: Final = 10  # with `behaviour.bad_number` = `default`

_NUMBER_PATTERN: Final = re.compile(r"[0-9]{1,9}", re.ASCII)  # int() alone would accept " ٣_0 "


def parse_page_query(query: Query, maximum: int | None, behaviour: Behaviour) -> tuple[str, int, int]:
    workspace, display_text, page_text = (require_parameter(query, name) for name in ("workspace", "display", "page"))
    display = _parse_number("display", display_text, 1, DEFAULT_DISPLAY, behaviour)
    page = _parse_number("page", page_text, behaviour.first_page, behaviour.first_page, behaviour)
    check_id(workspace, "space_", "workspace")
    if maximum is not None and display > maximum and behaviour.over_max != "serve":
        if behaviour.over_max == "reject":
            raise refusal_error(400, "display_too_large", f"display must be at most {maximum}", "display", knob="over_max")
        display = maximum
    return workspace, display, page


def _parse_number(name: str, text: str, least: int, default: int, behaviour: Behaviour) -> int:
    if _NUMBER_PATTERN.fullmatch(text) and int(text) >= least:
        return int(text)
    if behaviour.bad_number == "default":
        return default
    message = f"{name} must be an integer of at least {least} with at most 9 digits"
    raise refusal_error(400, "invalid_number", message, name, knob="bad_number")


# Rendering.


@lru_cache(maxsize=16_384)  # a page of mailboxes has thousands of percentages, and the next page repeats most of them
def _round_percent(n: int, of: int, digits: int) -> float:
    # Integer arithmetic: the float 100 * n / of is rarely exact, and would round some halves to the wrong side.
    if of <= 0:
        return 0.0
    scale = 10**digits
    quotient, rest = divmod(100 * scale * n, of)
    if 2 * rest > of or (2 * rest == of and quotient % 2):
        quotient += 1
    return float(quotient / scale)


_DAY_MS: Final = DAY * 1000
_TEMPLATE_FIELDS: Final = ("id", "test_letter", "name", "status", "new_thread", "subject", "body_text")


@attrs.frozen
class ItemRenderer:
    world: World = attrs.field(repr=False)
    now: float
    behaviour: Behaviour

    def percent(self, n: int, of: int, salt: str) -> float:
        value = _round_percent(n, of, self.behaviour.percent_digits)
        numbers, is_whole = self.behaviour.numbers, value.is_integer() and self.behaviour.numbers != "float"
        return int(value) if is_whole and (numbers == "int_when_whole" or zlib.crc32(salt.encode()) & 1) else value

    def render_campaign(self, campaign: Campaign) -> dict[str, Any]:
        flow = self.world.simulation.flows[campaign.id]
        sent, opens, replies = (flow.total(COUNT_NAMES.index(count)) for count in ("sent", "opened_num", "replied_num"))
        return {
            "id": campaign.id,
            "status": campaign.status,
            "name": campaign.name,
            "steps": len(campaign.steps),
            "contacts": campaign.contacts + self.world.enrolled_counts[campaign.id],
            "opens": self.percent(opens, sent, f"{campaign.id}.opens"),
            "initials": flow.sent(0) if campaign.steps else 0,
            "interested": self.percent(flow.interested, sent, f"{campaign.id}.interested"),
            "replies": self.percent(replies, sent, f"{campaign.id}.replies"),
            "bounces": self.percent(flow.bounces, sent, f"{campaign.id}.bounces"),
            "last_activity": format_age(self.world.last_activity("campaign", campaign.id), self.now),
            "opens_num": opens,
            "replies_num": replies,
            "bounces_num": flow.bounces,
            "interested_num": flow.interested,
            **self.render_end(campaign, self.behaviour.list_date),
            "created": campaign.created,
        }

    def render_mailbox(self, mailbox: Mailbox) -> dict[str, Any]:
        ledger = self.world.simulation.stats.get(mailbox.id, NO_STATS)
        item = {**mailbox.values, **ledger.item_values(mailbox, int(self.now // DAY))}
        for name in ("opened_14days", "avg_open_rate", "avg_click_rate"):
            share = item[name]
            if isinstance(share, Share):
                item[name] = self.percent(share.part, share.whole, f"{mailbox.id}.{name}")
        if item["campaigns"] is None:
            item["campaigns"] = self.world.usage[0][mailbox.id]
        for name in ("age", "created"):
            if item[name] is None:
                item[name] = format_age(mailbox.created, self.now)
        if not isinstance(item["last_activity"], str):
            item["last_activity"] = format_age(self.world.last_activity("mailbox", mailbox.id), self.now)
        return item

    def render_end(self, campaign: Campaign, date_format: str) -> dict[str, Any]:
        world, lefts = self.world, self.world.simulation.flows[campaign.id].left_to_send
        days, word = 0, ""
        if not campaign.contacts + world.enrolled_counts[campaign.id]:
            word = "Not started"
        elif not sum(lefts):
            word = "Complete"
        elif not (capacity := world.capacity(campaign)):
            days, word = 9999, "Unknown"
        else:
            first = next(index for index, count in enumerate(lefts) if count)
            waits = sum(step.wait_time for step in campaign.steps[first:])
            days = max(1, math.ceil(sum(lefts) / capacity + Fraction(waits, _DAY_MS)))
        ends = int(self.now) + days * DAY
        date: int | str = ends
        # Without a date, the list has the same word as list-steps, because a timestamp would look like an estimate.
        if word or date_format == "text" or (date_format == "mixed" and not zlib.crc32(campaign.id.encode()) & 1):
            date = word or format_date(ends)
        display = word or f"{days} day{'' if days == 1 else 's'}"
        return {"days_left": days, "days_left_date": date, "days_left_display": display}

    def render_step(self, step: Step, place: int, flow: CampaignFlow) -> dict[str, Any]:
        # `out_of` does not include contacts that left the campaign before this step (rule T4).
        left, sent, templates = flow.left_to_send[place], flow.sent(place), []
        for template, counts in zip(step.templates, flow.counts[place], strict=True):
            item = {name: getattr(template, name) for name in _TEMPLATE_FIELDS} | {"sent": counts[0]}
            for name, n in zip(COUNT_NAMES[1:], counts[1:], strict=True):
                share = name.removesuffix("_num")
                item |= {share: self.percent(n, counts[0], f"{template.id}.{share}"), name: n}
            templates.append(item)
        return {
            "id": step.id,
            "order": place + 1,
            "status": step.status,
            "type": "auto_email",
            "wait_time": step.wait_time,
            "left_to_send": left,
            "already_sent": sent,
            "out_of": left + sent,
            "templates": templates,
        }


# Operations.

HandlerResult = tuple[int, dict[str, Any]]


@attrs.define
class Context:
    world: World = attrs.field(repr=False)
    behaviour: Behaviour
    limiter: Limiter
    seed: int
    now: float


def execute(call: ParsedRequest, context: Context) -> HandlerResult:
    behaviour = context.behaviour
    if call.routing_error is not None:
        raise call.routing_error
    if (auth := behaviour.auth) is not None:
        scheme, _, token = call.request.headers.get(auth.header, "").rpartition(" ")
        known = token in auth.tokens if auth.tokens else token in context.world.owner_keys
        if not known or scheme.lower() != auth.scheme.lower():
            challenge = {"www-authenticate": auth.scheme} if auth.scheme else {}
            message = f"the header {auth.header} must contain a known credential"
            raise refusal_error(401, "unauthorized", message, headers=challenge)
    if behaviour.rate_limit is not None:
        scope = _find_scope(call, behaviour.rate_limit.scope, context.world)
        context.limiter.admit(scope, behaviour.rate_limit, context.now)
    if call.body_error is not None:
        raise call.body_error
    return HANDLERS[call.operation](call, context)


def _find_scope(call: ParsedRequest, scope: str, world: World) -> str:
    """Return the name under which the rate limit counts a request: an owner key, a workspace id, or an empty string."""
    if scope == "all":
        return ""
    if scope == "key" or call.body is not None:
        return str((call.body or {}).get("owner_key" if scope == "key" else "workspace"))
    if len(call.target.segments) == 1:
        return "".join(call.target.query.get("workspace", ()))
    campaign = world.campaigns.get(call.target.id)
    return campaign.workspace if campaign else call.target.id


def _list_page(call: ParsedRequest, context: Context, kind: ListKind) -> HandlerResult:
    behaviour, world = context.behaviour, context.world
    maximum = MAX_MAILBOXES if kind == "mailbox" else behaviour.campaign_max_display
    id_, display, page = parse_page_query(call.target.query, maximum, behaviour)
    find_workspace(id_, world)
    total = len(world.creation_order[id_, kind])
    pages = -(-total // display)
    last = max(pages - 1, 0)  # the first page exists even for an empty list
    index = page - behaviour.first_page
    if index > last and behaviour.past_end == "error":
        raise refusal_error(
            404, "page_not_found", f"page {page} is past the end; total_pages is {pages}", "page", knob="past_end"
        )
    if index > last and behaviour.past_end == "clamp":
        index = last
    ids = _select_page_ids(context, id_, kind, index * display, display)
    items = ItemRenderer(world, context.now, behaviour)
    if kind == "campaign":
        data = [items.render_campaign(world.campaigns[id_]) for id_ in ids]
    else:
        data = [items.render_mailbox(world.mailboxes[id_]) for id_ in ids]
    return 200, {
        "status": "ok",
        "headers": CAMPAIGN_HEADERS if kind == "campaign" else MAILBOX_HEADERS,
        "data": data,
        "total_found": total,
        "current_page": index + behaviour.first_page,
        "total_pages": pages,
    }


def _select_page_ids(context: Context, workspace: str, kind: ListKind, start: int, count: int) -> list[str]:
    """Return the ids of the items on one page of the list in its current state (rule P11)."""
    order = context.world.creation_order[workspace, kind]
    if context.behaviour.order == "newest":
        stop = max(len(order) - start, 0)
        return [id_ for _, id_ in reversed(order[max(stop - count, 0) : stop])]
    if context.behaviour.order == "last_activity":
        order = sorted(order, key=lambda created: -(context.world.last_activity(kind, created[1]) or 0))
    return [id_ for _, id_ in order[start : start + count]]


def _create_contact(call: ParsedRequest, context: Context) -> HandlerResult:
    body, behaviour, world = call.body or {}, context.behaviour, context.world
    creation = create_contact.parse_creation(body, behaviour)
    is_checked, owner_key = behaviour.owner_key == "check", creation.owner_key
    if is_checked and owner_key not in world.owner_keys:
        raise refusal_error(401, "unknown_owner_key", "owner_key is not a known owner key", "owner_key")
    workspace = find_workspace(creation.workspace, world)
    if is_checked and workspace.id not in world.owner_keys[owner_key]:
        raise refusal_error(403, "workspace_denied", "the user of owner_key has no access to this workspace", "workspace")
    if creation.campaign is not None:
        find_campaign(creation.campaign, world, "upload_options.campaign", workspace.id)
    fields = create_contact.parse_fields(body, workspace, behaviour, call.hints)
    if creation.strict and (failures := find_failures(creation.email, fields, behaviour.strict_fields)):
        message = "; ".join(f"{field} must be {reason}" for field, reason in failures.items())
        raise refusal_error(422, "validation_failed", message, next(iter(failures)))
    return _store_contact(creation, fields, context)


def _store_contact(creation: create_contact.Creation, fields: create_contact.SentFields, context: Context) -> HandlerResult:
    world, behaviour, now = context.world, context.behaviour, context.now
    key = create_contact.email_key(behaviour)(creation.email)
    existing = world.contacts[creation.workspace].get(key)
    if existing is None:
        outcome = create_contact.ADDED
        # A null field is left out (rule C14).
        given = fields if None not in fields.values() else {code: value for code, value in fields.items() if value is not None}
        enrolments = () if creation.campaign is None else (Enrolment(creation.campaign, now),)
        id_ = world.new_id(context.seed, "contact_")
        contact = Contact(id_, creation.email, creation.owner_key, int(now), given, enrolments)
    else:
        outcome = create_contact.DUPLICATE_OUTCOMES[creation.duplicates]
        contact = create_contact.merge_contact(existing, creation, fields, behaviour, now)
    if contact is not existing:
        world.store_contact(creation.workspace, key, contact)
    created = behaviour.created_status
    statuses = created if isinstance(created, Mapping) else {create_contact.ADDED: created}
    status = statuses.get(outcome, 201 if outcome == create_contact.ADDED else 200)
    if outcome == create_contact.DUPLICATE_OUTCOMES["skip"]:
        return status, {"status": outcome, "id": None, "details": create_contact.DUPLICATE_DETAILS}
    return status, {"status": outcome, "id": contact.id, "details": None}


def _list_steps(call: ParsedRequest, context: Context) -> HandlerResult:
    check_id(call.target.id, "camp_", "campaign_id")
    campaign = find_campaign(call.target.id, context.world, "campaign_id")
    items, flow = ItemRenderer(context.world, context.now, context.behaviour), context.world.simulation.flows[campaign.id]
    data = [items.render_step(step, place, flow) for place, step in enumerate(campaign.steps)]
    return 200, {"status": "ok", **items.render_end(campaign, "text"), "data": data}


def _list_fields(call: ParsedRequest, context: Context) -> HandlerResult:
    check_id(call.target.id, "space_", "workspace_id")
    workspace = find_workspace(call.target.id, context.world)
    by_number = dict(sorted(workspace.custom_fields.items(), key=lambda field: custom_number(field[0])))
    labels = {"email": "Email", **STANDARD_FIELDS, **workspace.extra_fields, **by_number}  # in this order (rule F2)
    data = [
        {"label": label, "code": code, "searchable": list(dict.fromkeys([name, code.lower(), name.replace(" ", "")]))}
        for code, label in labels.items()
        for name in [label.lower()]
    ]
    return 200, {"status": "ok", "data": data}


HANDLERS: Final[Mapping[str, Callable[[ParsedRequest, Context], HandlerResult]]] = {
    "list_campaigns": partial(_list_page, kind="campaign"),
    "list_mailboxes": partial(_list_page, kind="mailbox"),
    "create_contact": _create_contact,
    "list_steps": _list_steps,
    "list_fields": _list_fields,
}
