"""What the control plane does, one function each: what was said goes in, what is answered comes out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import attrs
import msgspec

from outreach_async.fake.control import bodies
from outreach_async.fake.control.fault_bodies import FaultBody, made
from outreach_async.fake.control.knob_bodies import KnobError, Knobs, NewBehaviour, plain, preset, readings, turned
from outreach_async.fake.control.reading import Problem
from outreach_async.fake.exchange import Fault
from outreach_async.fake.journal import CAPACITY, Recorded
from outreach_async.fake.refusals import masked
from outreach_async.fake.service import FakeService
from outreach_async.fake.worldfile import WorldError

_FARTHEST: Final = timedelta(days=3_660)
"""How far one request may move time on: whatever happens on the way is acted out while everybody waits."""

_END: Final = datetime(9000, 1, 1, tzinfo=UTC).timestamp()
"""Estimates look decades ahead, and a calendar ends with the year 9999."""

_UNCHANGED: Final = "nothing was changed: correct it and send it again"


class Start:
    """What `reset` goes back to.

    Args:
        service: The fake, whose state at this moment it is.
    """

    def __init__(self, service: FakeService) -> None:
        self._service = service
        self.keep()

    def keep(self) -> None:
        """Let it be the state at this moment."""
        self._state, self._behaviour = self._service.snapshot(), self._service.behaviour

    def go_back(self) -> None:
        """Restore it: what is stored, the time and the behaviour, with no fault waiting and an empty journal."""
        self._service.reset()
        self._service.restore(self._state)
        self._service.behaviour = self._behaviour


@attrs.frozen
class Control:
    """What an act works with.

    Attributes:
        service: The fake.
        start: What `reset` goes back to.
        base_url: Where the fake is served.
    """

    service: FakeService
    start: Start
    base_url: str


def state(control: Control, _: Any = None) -> bodies.State:
    """Say what is being served."""
    service = control.service
    return bodies.State(
        seed=service.seed,
        now=_text(service.now),
        requests=len(service.requests),
        unfired=len(service.faults.unfired),
        openapi=f"{control.base_url}/_fake/openapi.json",
        control=f"{control.base_url}/_fake/control.json",
    )


def reset(control: Control, _: bodies.Nothing) -> bodies.State:
    """Go back to the start."""
    control.start.go_back()
    return state(control)


def checkpoint(control: Control, _: bodies.Nothing) -> bodies.State:
    """Let `reset` go back to what is now."""
    control.start.keep()
    return state(control)


def get_world(control: Control, _: bodies.Nothing) -> bytes:
    """Write all that is stored."""
    return control.service.dump().encode()


def put_world(control: Control, said: dict[str, Any]) -> bodies.State:
    """Replace all that is stored."""
    try:
        control.service.load(said)
    except WorldError as error:
        place, _, reason = str(error).partition(": ")
        raise Problem(400, reason, place.removeprefix("$").lstrip(".") or None, _UNCHANGED) from None
    return state(control)


def add_workspace(control: Control, said: bodies.Workspace) -> bodies.Made:
    """Add a workspace."""
    with _refusing(said):
        return bodies.Made(ids=[control.service.add_workspace(**_members(said))])


def add_owner_key(control: Control, said: bodies.OwnerKey) -> bodies.Made:
    """Add an owner key."""
    with _refusing(said):
        return bodies.Made(ids=[control.service.add_owner_key(*said.workspaces, key=said.key)])


def add_mailboxes(control: Control, said: bodies.Mailboxes) -> bodies.Made:
    """Add mailboxes."""
    if taken := {"workspace", "count", "trouble"} & said.fields.keys():
        raise Problem(400, f"a mailbox has no {min(taken)!r}", f"fields.{min(taken)}", "say it beside fields")
    with _refusing(said):
        ids = control.service.add_mailboxes(said.workspace, said.count, trouble=said.trouble, **said.fields)
        return bodies.Made(ids=ids)


def add_campaign(control: Control, said: bodies.Campaign) -> bodies.Made:
    """Add a campaign."""
    with _refusing(said):
        return bodies.Made(ids=[control.service.add_campaign(**_members(said))])


def change_mailbox(control: Control, said: bodies.MailboxChange) -> bodies.Made:
    """Change fields of a mailbox."""
    if "mailbox" in said.fields:
        raise Problem(400, "a mailbox has no 'mailbox'", "fields.mailbox", "say which one beside fields, as id")
    with _refusing(said):
        control.service.set_mailbox(said.id, **said.fields)
    return bodies.Made(ids=[said.id])


def change_campaign(control: Control, said: bodies.CampaignChange) -> bodies.Made:
    """Change a campaign's status, mailboxes or rates."""
    changes = {name: value for name, value in _members(said).items() if name != "id"}
    with _refusing(said):
        control.service.set_campaign(said.id, **changes)
    return bodies.Made(ids=[said.id])


def settle_answers(control: Control, said: bodies.Answers) -> bodies.State:
    """Settle what a contact does with an e-mail."""
    with _refusing(said):
        control.service.sim.script(**_members(said))
    return state(control)


def add_contacts(control: Control, said: bodies.NewContacts) -> bodies.Made:
    """Store contacts."""
    with _refusing(said):
        return bodies.Made(ids=control.service.add_contacts(**_members(said)))


def list_contacts(control: Control, said: bodies.WhichContacts) -> bodies.Contacts:
    """List stored contacts."""
    with _refusing(said):
        if said.email is msgspec.UNSET:
            return bodies.Contacts(contacts=control.service.contacts(said.workspace))
        found = control.service.contact(said.workspace, said.email)
    return bodies.Contacts(contacts=[] if found is None else [found])


def list_requests(control: Control, said: bodies.WhichRequests) -> bodies.Requests:
    """List the journal's last entries."""
    journal = control.service.requests
    wanted = [entry for entry in journal.recent(CAPACITY) if said.operation in {msgspec.UNSET, entry.operation}]
    return bodies.Requests(
        total=len(journal),
        counts=dict(journal.counts),
        statuses={"unanswered" if status is None else str(status): count for status, count in journal.statuses.items()},
        requests=[_asked(entry) for entry in wanted[-said.last :]],
    )


def clear_requests(control: Control, _: bodies.Nothing) -> bodies.State:
    """Empty the journal."""
    control.service.requests.clear()
    return state(control)


def script_faults(control: Control, said: bodies.Script) -> bodies.Waiting:
    """Let an operation's next requests meet faults."""
    faults = [_fault(f"faults[{place}]", fault) for place, fault in enumerate(said.faults)]
    control.service.faults.script(said.operation, *faults)
    return list_faults(control)


def add_fault(control: Control, said: bodies.Rule) -> bodies.Waiting:
    """Let a fault strike by a rule."""
    match = None if said.containing is None else _containing(said.containing)
    control.service.faults.add(_fault("fault", said.fault), operation=said.operation, match=match, times=said.times, p=said.p)
    return list_faults(control)


def list_faults(control: Control, _: Any = None) -> bodies.Waiting:
    """List faults that have not struck."""
    return bodies.Waiting(unfired=control.service.faults.unfired)


def clear_faults(control: Control, _: bodies.Nothing) -> bodies.Waiting:
    """Forget every fault."""
    control.service.faults.clear()
    return list_faults(control)


def get_behaviour(control: Control, _: Any = None) -> bodies.Readings:
    """Say every knob's reading."""
    return bodies.Readings(behaviour=plain(control.service.behaviour), readings=readings())


def put_behaviour(control: Control, said: NewBehaviour) -> bodies.Readings:
    """Take a preset, and turn some knobs of it."""
    return _turn(control, preset(said), said)


def patch_behaviour(control: Control, said: Knobs) -> bodies.Readings:
    """Turn some knobs."""
    return _turn(control, control.service.behaviour, said)


def get_time(control: Control, _: Any = None) -> bodies.Time:
    """Say the time."""
    return bodies.Time(now=_text(control.service.now), unix=control.service.now)


def advance(control: Control, said: bodies.Period) -> bodies.Time:
    """Move time on."""
    try:
        step = timedelta(**_members(said))
    except OverflowError:
        step = timedelta.max
    if step > _FARTHEST:
        raise Problem(400, f"time moves on by {_FARTHEST.days} days at most at once", None, "advance in several requests")
    if control.service.now + step.total_seconds() > _END:
        raise Problem(400, "the year 9000 is the end of time", None, "reset, or load a world with an earlier now")
    control.service.advance(seconds=step.total_seconds())
    return get_time(control)


@contextmanager
def _refusing(said: msgspec.Struct) -> Iterator[None]:
    """Turn what the fake says against a call into a problem."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise Problem(400, str(error), _at_fault(_members(said), str(error)), _UNCHANGED) from None


def _at_fault(members: dict[str, Any], message: str) -> str | None:
    """Find the member that an error is about: the one that it quotes, or whose name it begins with."""
    begun = re.match(r"(\w+)(?=[=:\s])", message)
    return (_quoted(members, message) or "").lstrip(".") or (begun[1] if begun and begun[1] in members else None)


def _quoted(value: Any, message: str) -> str | None:
    """Find the path to a text, or to a member's name, that a message quotes; names on the first level are ours."""
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


def _turn(control: Control, behaviour: Any, said: Knobs) -> bodies.Readings:
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


def _asked(entry: Recorded) -> bodies.Asked:
    return bodies.Asked(
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
