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
    made,
    plain,
    preset,
    readings,
    turned,
)
from outreach_async.fake.errors import masked
from outreach_async.fake.fault_plan import Fault
from outreach_async.fake.request_log import CAPACITY, Recorded
from outreach_async.fake.service import FakeService
from outreach_async.fake.world_file import WorldError

_FARTHEST: Final = timedelta(days=3_660)
"""Longest advance per request. The server computes everything that happens meanwhile, and other requests wait for it."""

_END: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()
"""Latest time. Estimates look decades ahead, and Python's calendar ends with the year 9999."""

_UNCHANGED: Final = "nothing was changed; correct the request and send it again"


class Start:
    """The state that `reset` restores.

    Args:
        service: The fake, whose current state it is.
    """

    def __init__(self, service: FakeService) -> None:
        self._service = service
        self.keep()

    def keep(self) -> None:
        """Replace it with the current state."""
        self._state, self._behaviour = self._service.snapshot(), self._service.behaviour

    def go_back(self) -> None:
        """Restore the stored data, the time and the behaviour, remove pending faults, and empty the request log."""
        self._service.reset()
        self._service.restore(self._state)
        self._service.behaviour = self._behaviour


@attrs.frozen
class Control:
    """The context of an action.

    Attributes:
        service: The fake.
        start: The state that `reset` restores.
        base_url: Base URL of the fake.
    """

    service: FakeService
    start: Start
    base_url: str


def state(control: Control, _: Any = None) -> schemas.State:
    """Return the state of the server."""
    service = control.service
    return schemas.State(
        seed=service.seed,
        now=_text(service.now),
        requests=len(service.requests),
        unfired=len(service.faults.unfired),
        openapi=f"{control.base_url}/_fake/openapi.json",
        control=f"{control.base_url}/_fake/control.json",
    )


def reset(control: Control, _: schemas.Nothing) -> schemas.State:
    """Restore the initial state, or the last checkpoint."""
    control.start.go_back()
    return state(control)


def checkpoint(control: Control, _: schemas.Nothing) -> schemas.State:
    """Make `reset` restore the current state."""
    control.start.keep()
    return state(control)


def get_world(control: Control, _: schemas.Nothing) -> bytes:
    """Return everything stored as a world file."""
    return control.service.dump().encode()


def put_world(control: Control, said: dict[str, Any]) -> schemas.State:
    """Replace everything stored with a world file."""
    try:
        control.service.load(said)
    except WorldError as error:
        place, _, reason = str(error).partition(": ")
        raise Problem(400, reason, place.removeprefix("$").lstrip(".") or None, _UNCHANGED) from None
    return state(control)


def add_workspace(control: Control, said: schemas.Workspace) -> schemas.Made:
    """Add a workspace."""
    with _refusing(said):
        return schemas.Made(ids=[control.service.add_workspace(**_members(said))])


def add_owner_key(control: Control, said: schemas.OwnerKey) -> schemas.Made:
    """Add an owner key."""
    with _refusing(said):
        return schemas.Made(ids=[control.service.add_owner_key(*said.workspaces, key=said.key)])


def add_mailboxes(control: Control, said: schemas.Mailboxes) -> schemas.Made:
    """Add mailboxes."""
    if taken := {"workspace", "count", "trouble"} & said.fields.keys():
        raise Problem(400, f"a mailbox has no {min(taken)!r}", f"fields.{min(taken)}", "pass it beside fields")
    with _refusing(said):
        ids = control.service.add_mailboxes(said.workspace, said.count, trouble=said.trouble, **said.fields)
        return schemas.Made(ids=ids)


def add_campaign(control: Control, said: schemas.Campaign) -> schemas.Made:
    """Add a campaign."""
    with _refusing(said):
        return schemas.Made(ids=[control.service.add_campaign(**_members(said))])


def change_mailbox(control: Control, said: schemas.MailboxChange) -> schemas.Made:
    """Change fields of a mailbox."""
    if "mailbox" in said.fields:
        raise Problem(400, "a mailbox has no 'mailbox'", "fields.mailbox", "pass the mailbox's id beside fields, as id")
    with _refusing(said):
        control.service.set_mailbox(said.id, **said.fields)
    return schemas.Made(ids=[said.id])


def change_campaign(control: Control, said: schemas.CampaignChange) -> schemas.Made:
    """Change a campaign's status, mailboxes or rates."""
    changes = {name: value for name, value in _members(said).items() if name != "id"}
    with _refusing(said):
        control.service.set_campaign(said.id, **changes)
    return schemas.Made(ids=[said.id])


def settle_answers(control: Control, said: schemas.Answers) -> schemas.State:
    """Script what a contact does with an e-mail."""
    with _refusing(said):
        control.service.sim.script(**_members(said))
    return state(control)


def add_contacts(control: Control, said: schemas.NewContacts) -> schemas.Made:
    """Store contacts."""
    with _refusing(said):
        return schemas.Made(ids=control.service.add_contacts(**_members(said)))


def list_contacts(control: Control, said: schemas.WhichContacts) -> schemas.Contacts:
    """List stored contacts."""
    with _refusing(said):
        if said.email is msgspec.UNSET:
            return schemas.Contacts(contacts=control.service.contacts(said.workspace))
        found = control.service.contact(said.workspace, said.email)
    return schemas.Contacts(contacts=[] if found is None else [found])


def list_requests(control: Control, said: schemas.WhichRequests) -> schemas.Requests:
    """List the last entries of the request log."""
    journal = control.service.requests
    wanted = [entry for entry in journal.recent(CAPACITY) if said.operation in {msgspec.UNSET, entry.operation}]
    return schemas.Requests(
        total=len(journal),
        counts=dict(journal.counts),
        statuses={"unanswered" if status is None else str(status): count for status, count in journal.statuses.items()},
        requests=[_asked(entry) for entry in wanted[-said.last :]],
    )


def clear_requests(control: Control, _: schemas.Nothing) -> schemas.State:
    """Empty the request log."""
    control.service.requests.clear()
    return state(control)


def script_faults(control: Control, said: schemas.Script) -> schemas.Waiting:
    """Script faults for the next requests of an operation."""
    faults = [_fault(f"faults[{place}]", fault) for place, fault in enumerate(said.faults)]
    control.service.faults.script(said.operation, *faults)
    return list_faults(control)


def add_fault(control: Control, said: schemas.Rule) -> schemas.Waiting:
    """Add a fault that strikes by a rule."""
    match = None if said.containing is None else _containing(said.containing)
    control.service.faults.add(_fault("fault", said.fault), operation=said.operation, match=match, times=said.times, p=said.p)
    return list_faults(control)


def list_faults(control: Control, _: Any = None) -> schemas.Waiting:
    """List the faults that have not struck yet."""
    return schemas.Waiting(unfired=control.service.faults.unfired)


def clear_faults(control: Control, _: schemas.Nothing) -> schemas.Waiting:
    """Remove every fault."""
    control.service.faults.clear()
    return list_faults(control)


def get_behaviour(control: Control, _: Any = None) -> schemas.Readings:
    """Return the value of every knob."""
    return schemas.Readings(behaviour=plain(control.service.behaviour), readings=readings())


def put_behaviour(control: Control, said: NewBehaviour) -> schemas.Readings:
    """Start from a preset, and set some knobs."""
    return _turn(control, preset(said), said)


def patch_behaviour(control: Control, said: Knobs) -> schemas.Readings:
    """Set some knobs."""
    return _turn(control, control.service.behaviour, said)


def get_time(control: Control, _: Any = None) -> schemas.Time:
    """Return the time."""
    return schemas.Time(now=_text(control.service.now), unix=control.service.now)


def advance(control: Control, said: schemas.Period) -> schemas.Time:
    """Advance the time."""
    try:
        step = timedelta(**_members(said))
    except OverflowError:
        step = timedelta.max
    if step > _FARTHEST:
        raise Problem(400, f"expected at most {_FARTHEST.days} days per request", None, "advance in several requests")
    if control.service.now + step.total_seconds() > _END:
        raise Problem(400, "the time cannot reach the year 9000", None, "reset, or load a world with an earlier now")
    control.service.advance(seconds=step.total_seconds())
    return get_time(control)


@contextmanager
def _refusing(said: msgspec.Struct) -> Iterator[None]:
    """Turn an error of the fake into a problem."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise Problem(400, str(error), _at_fault(_members(said), str(error)), _UNCHANGED) from None


def _at_fault(members: dict[str, Any], message: str) -> str | None:
    """Return the member that an error is about: the one that it quotes, or the one whose name it begins with."""
    begun = re.match(r"(\w+)(?=[=:\s])", message)
    return (_quoted(members, message) or "").lstrip(".") or (begun[1] if begun and begun[1] in members else None)


def _quoted(value: Any, message: str) -> str | None:
    """Return the path to a string, or to a member's name, that a message quotes. Names on the first level are our own."""
    if isinstance(value, str):
        return "" if repr(value) in message else None
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        place = f".{name}" if isinstance(name, str) else f"[{name}]"
        if isinstance(name, str) and repr(name) in message:
            return place
        if (rest := _quoted(item, message)) is not None:
            return f"{place}{rest}"
    return None


def _turn(control: Control, behaviour: Any, said: Knobs) -> schemas.Readings:
    try:
        control.service.behaviour = turned(behaviour, said)
    except KnobError as error:
        raise Problem(400, str(error), error.knob, _UNCHANGED) from None
    return get_behaviour(control)


def _fault(field: str, said: FaultBody) -> Fault:
    try:
        return made(said)
    except ValueError as error:
        raise Problem(400, f"{field}: {error}", field, _UNCHANGED) from None


def _containing(text: str) -> Any:
    wanted = text.encode()
    return lambda request: wanted in request.target.encode() or wanted in request.body


def _asked(entry: Recorded) -> schemas.Asked:
    return schemas.Asked(
        number=entry.number,
        operation=entry.operation,  # type: ignore[arg-type]  # one of the six
        method=entry.method,
        target=masked(entry.target),
        json=_without_keys(entry.json),
        status=entry.status,
        hints=[*map(masked, entry.hints)],
        served=entry.served,
        request_id=entry.request_id,
        at=entry.at,
        fault=entry.fault,
    )


def _without_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {masked(name): "***" if name == "owner_key" else _without_keys(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_keys(item) for item in value]
    return masked(value) if isinstance(value, str) else value


def _members(said: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(said)


def _text(unix: float) -> str:
    return datetime.fromtimestamp(unix, UTC).isoformat().replace("+00:00", "Z")
