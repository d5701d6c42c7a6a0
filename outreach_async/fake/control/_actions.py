"""The operations of the control plane: functions that take a parsed request body and return a response body."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
from msgspec import UNSET, Struct
from msgspec.structs import asdict

from outreach_async.fake._error_responses import mask_document, mask_keys
from outreach_async.fake._fake_service import FakeService
from outreach_async.fake._fault_plan import Fault
from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.control import _schemas as schemas
from outreach_async.fake.control._schemas import UNCHANGED, Problem
from outreach_async.fake.request_log import CAPACITY, Recorded
from outreach_async.fake.world_file import WorldError
from outreach_async.transport._wire import Request

_MAX_ADVANCE: Final = timedelta(days=3_660)
"""Maximum duration by which one request can advance the time. Other requests wait while the server simulates this period."""

_MAX_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()
"""Latest time of the fake in Unix seconds. Estimated dates can be decades later, but `datetime` supports no year after 9999."""


class Checkpoint:
    """A saved state of a fake, which `reset` restores."""

    def __init__(self, service: FakeService) -> None:
        self._service = service
        self.save()

    def save(self) -> None:
        self._snapshot, self._behaviour = self._service.snapshot(), self._service.behaviour

    def restore(self) -> None:
        self._service.reset()  # also removes the faults and empties the request log
        self._service.restore(self._snapshot)
        self._service.behaviour = self._behaviour


@attrs.frozen
class ActionContext:
    """The server's state, which every operation can use. `base_url` is that of the fake."""

    service: FakeService
    checkpoint: Checkpoint
    base_url: str


def state(context: ActionContext, _: Any = None) -> schemas.ServerState:
    """Return the fake's seed and time, counts of requests and faults, and URLs of OpenAPI documents."""
    service = context.service
    return schemas.ServerState(
        seed=service.seed,
        now=_format_time(service.now),
        requests=len(service.requests),
        unfired=len(service.faults.unfired),
        openapi=f"{context.base_url}/_fake/openapi.json",
        control=f"{context.base_url}/_fake/control.json",
    )


def reset(context: ActionContext, _: schemas.EmptyBody) -> schemas.ServerState:
    """Restore the state of the last checkpoint, or of the server's start if there was no checkpoint."""
    context.checkpoint.restore()
    return state(context)


def checkpoint(context: ActionContext, _: schemas.EmptyBody) -> schemas.ServerState:
    """Save the current state, so that later resets restore it."""
    context.checkpoint.save()
    return state(context)


def get_world(context: ActionContext, _: schemas.EmptyBody) -> bytes:
    """Return all stored data as a world file."""
    return context.service.dump().encode()


def put_world(context: ActionContext, body: dict[str, Any]) -> schemas.ServerState:
    """Replace all stored data with the content of a world file."""
    try:
        context.service.load(body)
    except WorldError as error:
        place, _, reason = str(error).partition(": ")
        raise Problem(400, reason, place.removeprefix("$").lstrip(".") or None, UNCHANGED) from None
    return state(context)


def change_mailbox(context: ActionContext, body: schemas.MailboxChange) -> schemas.CreatedIds:
    """Change fields of a mailbox."""
    context.service.set_mailbox(body.id, **body.fields)
    return schemas.CreatedIds(ids=[body.id])


def change_campaign(context: ActionContext, body: schemas.CampaignChange) -> schemas.CreatedIds:
    """Change a campaign's status, mailboxes or rates."""
    changes = asdict(body)
    context.service.set_campaign(changes.pop("id"), **changes)
    return schemas.CreatedIds(ids=[body.id])


def settle_answers(context: ActionContext, body: schemas.ScriptedActionsBody) -> schemas.ServerState:
    """Script the reactions of a contact to an e-mail that has not been sent yet."""
    context.service.sim.script(**asdict(body))
    return state(context)


def list_requests(context: ActionContext, body: schemas.RequestsQuery) -> schemas.LoggedRequests:
    """List the last entries of the request log."""
    log = context.service.requests
    entries = [entry for entry in log.recent(CAPACITY) if body.operation in {UNSET, entry.operation}]
    return schemas.LoggedRequests(
        total=len(log),
        counts=dict(log.counts),
        statuses={"unanswered" if status is None else str(status): count for status, count in log.statuses.items()},
        requests=[_log_entry_body(entry) for entry in entries[-body.last :]],
    )


def clear_requests(context: ActionContext, _: schemas.EmptyBody) -> schemas.ServerState:
    """Empty the request log."""
    context.service.requests.clear()
    return state(context)


def script_faults(context: ActionContext, body: schemas.FaultScriptBody) -> schemas.UnfiredFaults:
    """Script faults for the next requests of an operation."""
    faults = [_build_fault(f"faults[{place}]", fault) for place, fault in enumerate(body.faults)]
    context.service.faults.script(body.operation, *faults)
    return list_faults(context)


def add_fault(context: ActionContext, body: schemas.FaultRuleBody) -> schemas.UnfiredFaults:
    """Add a rule that injects a fault into matching requests."""
    text = (body.containing or "").encode()  # every request contains the empty string

    def contains(request: Request) -> bool:
        return text in request.target.encode() or text in request.body

    fault = _build_fault("fault", body.fault)
    context.service.faults.add(fault, operation=body.operation, match=contains, times=body.times, p=body.p)
    return list_faults(context)


def list_faults(context: ActionContext, _: Any = None) -> schemas.UnfiredFaults:
    """List the faults that have not fired yet."""
    return schemas.UnfiredFaults(unfired=context.service.faults.unfired)


def clear_faults(context: ActionContext, _: schemas.EmptyBody) -> schemas.UnfiredFaults:
    """Remove all faults, both scripted faults and rules."""
    context.service.faults.clear()
    return list_faults(context)


def get_behaviour(context: ActionContext, _: Any = None) -> schemas.BehaviourState:
    """Return the value of every knob of the behaviour."""
    return schemas.describe_behaviour(context.service.behaviour)


def put_behaviour(context: ActionContext, body: schemas.NewBehaviour) -> schemas.BehaviourState:
    """Reset every knob of the behaviour to its value in a preset, and then set the given knobs."""
    preset: Behaviour = getattr(Behaviour, body.preset)()  # type: ignore[attr-defined]  # its members are created at run time
    context.service.behaviour = schemas.set_knobs(preset, body)
    return get_behaviour(context)


def patch_behaviour(context: ActionContext, body: schemas.Knobs) -> schemas.BehaviourState:
    """Set the given knobs of the behaviour, and keep the values of all other knobs."""
    context.service.behaviour = schemas.set_knobs(context.service.behaviour, body)
    return get_behaviour(context)


def get_time(context: ActionContext, _: Any = None) -> schemas.ClockState:
    """Return the current time of the fake."""
    return schemas.ClockState(now=_format_time(context.service.now), unix=context.service.now)


def advance(context: ActionContext, body: schemas.AdvanceBody) -> schemas.ClockState:
    """Advance the fake's time, and run every event that is due by the new time."""
    try:
        step = timedelta(**asdict(body))
    except OverflowError:
        step = timedelta.max
    if step > _MAX_ADVANCE:
        message = f"duration: expected at most {_MAX_ADVANCE.days} days per request, got more"
        raise Problem(400, message, None, "advance in several requests")
    if context.service.now + step.total_seconds() > _MAX_TIME:
        message = "time: expected a time before the year 9000, got a later time"
        raise Problem(400, message, None, "advance by a shorter duration, or reset the fake")
    context.service.advance(seconds=step.total_seconds())
    return get_time(context)


def find_member_at_fault(body: Struct, message: str) -> str | None:
    """Return the path of the first key or value that a message quotes, or else the key at its start, as in `time: expected`."""
    members = asdict(body)
    first = re.match(r"(\w+)(?=[=:\s])", message)
    return (_find_quoted(members, message) or "").lstrip(".") or (first[1] if first and first[1] in members else None)


def _find_quoted(value: Any, message: str) -> str | None:
    """Return the path of the first key or string in `value` that `message` quotes."""
    if isinstance(value, str):
        return "" if repr(value) in message else None
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        place = f".{name}" if isinstance(name, str) else f"[{name}]"
        if isinstance(name, str) and repr(name) in message:
            return place
        if (rest := _find_quoted(item, message)) is not None:
            return f"{place}{rest}"
    return None


def _build_fault(field: str, body: schemas.FaultBody) -> Fault:
    try:
        return schemas.build_fault(body)
    except ValueError as error:
        raise Problem(400, f"{field}: {error}", field, UNCHANGED) from None


def _log_entry_body(entry: Recorded) -> schemas.LoggedRequest:
    members = attrs.asdict(entry, recurse=False, filter=lambda attribute, _: attribute.name != "headers")
    masked = {"target": mask_keys(entry.target), "json": mask_document(entry.json), "hints": [*map(mask_keys, entry.hints)]}
    return schemas.LoggedRequest(**members | masked)


def _format_time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat().replace("+00:00", "Z")
