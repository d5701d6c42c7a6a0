"""The control plane's actions, one function each, from the request body to the response body."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
import msgspec

from outreach_async.fake.control import schemas
from outreach_async.fake.control.schemas import (
    FaultBody,
    KnobError,
    Knobs,
    NewBehaviour,
    Problem,
    behaviour_to_json,
    build_fault,
    build_preset,
    knob_values_to_json,
    set_knobs,
)
from outreach_async.fake.errors import mask_keys
from outreach_async.fake.fault_plan import Fault
from outreach_async.fake.request_log import CAPACITY, Recorded
from outreach_async.fake.service import FakeService
from outreach_async.fake.world_file import WorldError

_MAX_ADVANCE: Final = timedelta(days=3_660)
"""Longest advance per request. The server computes everything that happens meanwhile, and other requests wait for it."""

_MAX_TIME: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()
"""Latest time. Estimates look decades ahead, and Python's calendar ends with the year 9999."""

_UNCHANGED: Final = "nothing was changed; correct the request and send it again"


class Checkpoint:
    """The state that `reset` restores.

    Args:
        service: The fake, whose current state it is.
    """

    def __init__(self, service: FakeService) -> None:
        self._service = service
        self.save()

    def save(self) -> None:
        """Replace it with the current state."""
        self._snapshot, self._behaviour = self._service.snapshot(), self._service.behaviour

    def restore(self) -> None:
        """Restore the stored data, the time and the behaviour, remove pending faults, and empty the request log."""
        self._service.reset()
        self._service.restore(self._snapshot)
        self._service.behaviour = self._behaviour


@attrs.frozen
class ActionContext:
    """The context of an action.

    Attributes:
        service: The fake.
        checkpoint: The state that `reset` restores.
        base_url: Base URL of the fake.
    """

    service: FakeService
    checkpoint: Checkpoint
    base_url: str


def state(control: ActionContext, _: Any = None) -> schemas.ServerState:
    """Return the state of the server."""
    service = control.service
    return schemas.ServerState(
        seed=service.seed,
        now=_format_time(service.now),
        requests=len(service.requests),
        unfired=len(service.faults.unfired),
        openapi=f"{control.base_url}/_fake/openapi.json",
        control=f"{control.base_url}/_fake/control.json",
    )


def reset(control: ActionContext, _: schemas.EmptyBody) -> schemas.ServerState:
    """Restore the initial state, or the last checkpoint."""
    control.checkpoint.restore()
    return state(control)


def checkpoint(control: ActionContext, _: schemas.EmptyBody) -> schemas.ServerState:
    """Make `reset` restore the current state."""
    control.checkpoint.save()
    return state(control)


def get_world(control: ActionContext, _: schemas.EmptyBody) -> bytes:
    """Return everything stored as a world file."""
    return control.service.dump().encode()


def put_world(control: ActionContext, said: dict[str, Any]) -> schemas.ServerState:
    """Replace everything stored with a world file."""
    try:
        control.service.load(said)
    except WorldError as error:
        place, _, reason = str(error).partition(": ")
        raise Problem(400, reason, place.removeprefix("$").lstrip(".") or None, _UNCHANGED) from None
    return state(control)


def add_workspace(control: ActionContext, said: schemas.WorkspaceBody) -> schemas.CreatedIds:
    """Add a workspace."""
    with _report_errors(said):
        return schemas.CreatedIds(ids=[control.service.add_workspace(**_to_dict(said))])


def add_owner_key(control: ActionContext, said: schemas.OwnerKeyBody) -> schemas.CreatedIds:
    """Add an owner key."""
    with _report_errors(said):
        return schemas.CreatedIds(ids=[control.service.add_owner_key(*said.workspaces, key=said.key)])


def add_mailboxes(control: ActionContext, said: schemas.MailboxesBody) -> schemas.CreatedIds:
    """Add mailboxes."""
    if taken := {"workspace", "count", "trouble"} & said.fields.keys():
        raise Problem(400, f"a mailbox has no {min(taken)!r}", f"fields.{min(taken)}", "pass it beside fields")
    with _report_errors(said):
        ids = control.service.add_mailboxes(said.workspace, said.count, trouble=said.trouble, **said.fields)
        return schemas.CreatedIds(ids=ids)


def add_campaign(control: ActionContext, said: schemas.CampaignBody) -> schemas.CreatedIds:
    """Add a campaign."""
    with _report_errors(said):
        return schemas.CreatedIds(ids=[control.service.add_campaign(**_to_dict(said))])


def change_mailbox(control: ActionContext, said: schemas.MailboxChange) -> schemas.CreatedIds:
    """Change fields of a mailbox."""
    if "mailbox" in said.fields:
        raise Problem(400, "a mailbox has no 'mailbox'", "fields.mailbox", "pass the mailbox's id beside fields, as id")
    with _report_errors(said):
        control.service.set_mailbox(said.id, **said.fields)
    return schemas.CreatedIds(ids=[said.id])


def change_campaign(control: ActionContext, said: schemas.CampaignChange) -> schemas.CreatedIds:
    """Change a campaign's status, mailboxes or rates."""
    changes = {name: value for name, value in _to_dict(said).items() if name != "id"}
    with _report_errors(said):
        control.service.set_campaign(said.id, **changes)
    return schemas.CreatedIds(ids=[said.id])


def settle_answers(control: ActionContext, said: schemas.ScriptedActionsBody) -> schemas.ServerState:
    """Script what a contact does with an e-mail."""
    with _report_errors(said):
        control.service.sim.script(**_to_dict(said))
    return state(control)


def add_contacts(control: ActionContext, said: schemas.ContactsBody) -> schemas.CreatedIds:
    """Store contacts."""
    with _report_errors(said):
        return schemas.CreatedIds(ids=control.service.add_contacts(**_to_dict(said)))


def list_contacts(control: ActionContext, said: schemas.ContactsQuery) -> schemas.StoredContacts:
    """List stored contacts."""
    with _report_errors(said):
        if said.email is msgspec.UNSET:
            return schemas.StoredContacts(contacts=control.service.contacts(said.workspace))
        found = control.service.contact(said.workspace, said.email)
    return schemas.StoredContacts(contacts=[] if found is None else [found])


def list_requests(control: ActionContext, said: schemas.RequestsQuery) -> schemas.LoggedRequests:
    """List the last entries of the request log."""
    journal = control.service.requests
    wanted = [entry for entry in journal.recent(CAPACITY) if said.operation in {msgspec.UNSET, entry.operation}]
    return schemas.LoggedRequests(
        total=len(journal),
        counts=dict(journal.counts),
        statuses={"unanswered" if status is None else str(status): count for status, count in journal.statuses.items()},
        requests=[_log_entry_body(entry) for entry in wanted[-said.last :]],
    )


def clear_requests(control: ActionContext, _: schemas.EmptyBody) -> schemas.ServerState:
    """Empty the request log."""
    control.service.requests.clear()
    return state(control)


def script_faults(control: ActionContext, said: schemas.FaultScriptBody) -> schemas.UnfiredFaults:
    """Script faults for the next requests of an operation."""
    faults = [_build_fault(f"faults[{place}]", fault) for place, fault in enumerate(said.faults)]
    control.service.faults.script(said.operation, *faults)
    return list_faults(control)


def add_fault(control: ActionContext, said: schemas.FaultRuleBody) -> schemas.UnfiredFaults:
    """Add a fault that strikes by a rule."""
    match = None if said.containing is None else _match_containing(said.containing)
    control.service.faults.add(
        _build_fault("fault", said.fault), operation=said.operation, match=match, times=said.times, p=said.p
    )
    return list_faults(control)


def list_faults(control: ActionContext, _: Any = None) -> schemas.UnfiredFaults:
    """List the faults that have not struck yet."""
    return schemas.UnfiredFaults(unfired=control.service.faults.unfired)


def clear_faults(control: ActionContext, _: schemas.EmptyBody) -> schemas.UnfiredFaults:
    """Remove every fault."""
    control.service.faults.clear()
    return list_faults(control)


def get_behaviour(control: ActionContext, _: Any = None) -> schemas.BehaviourState:
    """Return the value of every knob."""
    return schemas.BehaviourState(behaviour=behaviour_to_json(control.service.behaviour), readings=knob_values_to_json())


def put_behaviour(control: ActionContext, said: NewBehaviour) -> schemas.BehaviourState:
    """Start from a preset, and set some knobs."""
    return _set_behaviour(control, build_preset(said), said)


def patch_behaviour(control: ActionContext, said: Knobs) -> schemas.BehaviourState:
    """Set some knobs."""
    return _set_behaviour(control, control.service.behaviour, said)


def get_time(control: ActionContext, _: Any = None) -> schemas.ClockState:
    """Return the time."""
    return schemas.ClockState(now=_format_time(control.service.now), unix=control.service.now)


def advance(control: ActionContext, said: schemas.AdvanceBody) -> schemas.ClockState:
    """Advance the time."""
    try:
        step = timedelta(**_to_dict(said))
    except OverflowError:
        step = timedelta.max
    if step > _MAX_ADVANCE:
        raise Problem(400, f"expected at most {_MAX_ADVANCE.days} days per request", None, "advance in several requests")
    if control.service.now + step.total_seconds() > _MAX_TIME:
        raise Problem(400, "the time cannot reach the year 9000", None, "reset, or load a world with an earlier now")
    control.service.advance(seconds=step.total_seconds())
    return get_time(control)


@contextmanager
def _report_errors(said: msgspec.Struct) -> Iterator[None]:
    """Turn an error of the fake into a problem."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise Problem(400, str(error), _find_member_at_fault(_to_dict(said), str(error)), _UNCHANGED) from None


def _find_member_at_fault(members: dict[str, Any], message: str) -> str | None:
    """Return the member that an error is about: the one that it quotes, or the one whose name it begins with."""
    begun = re.match(r"(\w+)(?=[=:\s])", message)
    return (_find_quoted(members, message) or "").lstrip(".") or (begun[1] if begun and begun[1] in members else None)


def _find_quoted(value: Any, message: str) -> str | None:
    """Return the path to a string, or to a member's name, that a message quotes. Names on the first level are our own."""
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


def _set_behaviour(control: ActionContext, behaviour: Any, said: Knobs) -> schemas.BehaviourState:
    try:
        control.service.behaviour = set_knobs(behaviour, said)
    except KnobError as error:
        raise Problem(400, str(error), error.knob, _UNCHANGED) from None
    return get_behaviour(control)


def _build_fault(field: str, said: FaultBody) -> Fault:
    try:
        return build_fault(said)
    except ValueError as error:
        raise Problem(400, f"{field}: {error}", field, _UNCHANGED) from None


def _match_containing(text: str) -> Any:
    wanted = text.encode()
    return lambda request: wanted in request.target.encode() or wanted in request.body


def _log_entry_body(entry: Recorded) -> schemas.LoggedRequest:
    return schemas.LoggedRequest(
        number=entry.number,
        operation=entry.operation,  # type: ignore[arg-type]  # one of the six
        method=entry.method,
        target=mask_keys(entry.target),
        json=_mask_document(entry.json),
        status=entry.status,
        hints=[*map(mask_keys, entry.hints)],
        served=entry.served,
        request_id=entry.request_id,
        at=entry.at,
        fault=entry.fault,
    )


def _mask_document(value: Any) -> Any:
    if isinstance(value, dict):
        return {mask_keys(name): "***" if name == "owner_key" else _mask_document(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_mask_document(item) for item in value]
    return mask_keys(value) if isinstance(value, str) else value


def _to_dict(said: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(said)


def _format_time(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat().replace("+00:00", "Z")
