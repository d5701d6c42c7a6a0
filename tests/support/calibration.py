"""Test data that reveals the behaviour of a service, and the expected results of calibration."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import anyio
import attrs

from outreach_async import Request, Response
from outreach_async.conformance import Access, Calibration, calibrate
from outreach_async.conformance._calibration import Measurement, measure_service
from outreach_async.conformance._probes import Requests, secrets_of
from outreach_async.fake import Behaviour, FakeService, FakeTransport, HeaderAuth, Snapshot
from outreach_async.fake._records import StepSeed
from outreach_async.fake.behaviour import KNOB_VALUES
from outreach_async.fake.faults import Exchange, Service

SPACE: Final = "space_1"
KEY: Final = "key_0123456789abcdef"
DRAFT: Final = "camp_draft"
MANY: Final = 2001

READER: Final = Access(SPACE, nonce="0a1b2c")
WRITER: Final = Access(SPACE, KEY, writes=True, campaign=DRAFT, nonce="0a1b2c")
BEARER: Final = {"authorization": f"Bearer {KEY}"}

NEVER: Final = frozenset({"overwrite_unsent", "overwrite_blank", "rate_limit"})
"""Knobs that calibration cannot measure from outside."""


@cache
def world(boxes: int = 30, campaigns: int = 20) -> Snapshot:
    """Create a workspace with mailboxes, a draft campaign, a paused campaign, and live campaigns that have sent e-mails."""
    fake = FakeService()
    fake.add_workspace(SPACE, custom_fields=["Plan"])
    fake.add_owner_key(SPACE, key=KEY)
    ids = fake.add_mailboxes(SPACE, boxes)
    begin = int(fake.now) - 10_000_000
    fake.add_campaign(SPACE, id="camp_done", status="paused", mailboxes=ids[:2], steps=[{"sent": 30}], contacts=30, created=begin)
    for place in range(campaigns - 2):
        steps: list[StepSeed] = [{"templates": "A|B", "sent": 37 + place % 50}, "A|PER"]
        created = begin + 60 * (place + 1)
        fake.add_campaign(SPACE, status="live", mailboxes=ids[:2], steps=steps, contacts=100, created=created)
    fake.add_campaign(SPACE, id=DRAFT, steps=["A|B"])
    return fake.snapshot()


def service(behaviour: Behaviour | None = None, snapshot: Snapshot | None = None) -> FakeService:
    """Return a fake with this behaviour and the data of a snapshot; `world()` by default."""
    fake = FakeService(behaviour=behaviour)
    fake.restore(snapshot or world())
    return fake


@attrs.frozen
class Answering:
    """A service whose responses a function returns."""

    answer: Callable[[Request], Response]

    def exchange(self, request: Request, /) -> Exchange:
        return Exchange(self.answer(request), None)


def altered(change: Callable[[Request, Response], Response]) -> Answering:
    """Return a fake whose responses are changed."""
    fake = service()
    return Answering(lambda request: change(request, fake.handle(request)))


def document_changed(change: Callable[[Any], object]) -> Callable[[Request, Response], Response]:
    """Return a function that applies `change` to the JSON document of a response."""

    def apply(_: Request, response: Response) -> Response:
        document = json.loads(response.body)
        change(document)
        return attrs.evolve(response, body=json.dumps(document).encode())

    return apply


def connected(access: Access, handle: Callable[[Request], Response]) -> Requests:
    """Return requests that are sent by direct calls of `handle`."""

    async def send(request: Request) -> Response:
        return handle(request)

    return Requests(**attrs.asdict(access, recurse=False), send=send, secrets=secrets_of(access, None))


def measured(fake: Service, access: Access) -> Measurement:
    """Measure the knobs of a service in memory."""
    return anyio.run(measure_service, FakeTransport(fake), access, 0.0)


def writer(behaviour: Behaviour) -> Access:
    """Return a access with all permissions, and with a credential if the behaviour requires one."""
    return WRITER if behaviour.auth is None else attrs.evolve(WRITER, headers=BEARER)


def measure(behaviour: Behaviour | None = None, access: Access | None = None, snapshot: Snapshot | None = None) -> Measurement:
    """Measure the knobs of a fake in memory."""
    behaviour = behaviour or Behaviour()
    return measured(service(behaviour, snapshot), access or writer(behaviour))


def calibrated(behaviour: Behaviour | None = None, access: Access | None = None, snapshot: Snapshot | None = None) -> Calibration:
    """Calibrate a fake in memory."""
    behaviour = behaviour or Behaviour()
    return anyio.run(calibrate, FakeTransport(service(behaviour, snapshot)), access or writer(behaviour))


def possible_values(found: Calibration) -> dict[str, tuple[Any, ...]]:
    """Return the values that each knob may have, as measured."""
    return {knob: (found.observed[knob],) if knob in found.observed else found.undecided.get(knob, ()) for knob in found.reasons}


def single_readings() -> Iterator[tuple[str, Behaviour]]:
    """Yield behaviours that differ from the documented behaviour in one knob, each with the name of the knob."""
    for knob, readings in KNOB_VALUES.items():
        for reading in readings:
            yield knob, Behaviour(**{knob: reading})
    yield "auth", Behaviour(auth=HeaderAuth())
    yield "strict_fields", Behaviour(strict_fields=frozenset({"email", "zip", "city"}))
    yield "created_status", Behaviour(created_status={"added": 200, "skipped": 201})
    yield "campaign_max_display", Behaviour(campaign_max_display=7)


def indistinguishable_values(behaviour: Behaviour, knob: str, boxes: int, campaigns: int) -> tuple[Any, ...]:
    """Return the values of a knob that a client cannot distinguish, including the value of this behaviour."""
    own = getattr(behaviour, knob)
    if knob in NEVER:
        return ()
    if knob in {"unknown_custom", "unknown_body"} and own != "reject":
        return ("ignore", "store")
    if knob == "email_key" and own in {"lower", "gmail"}:
        return ("lower", "gmail")
    most = behaviour.campaign_max_display
    cut = behaviour.over_max == "clamp" and most is not None and most < campaigns
    if knob == "over_max" and own != "reject" and boxes < MANY and not cut:
        return ("clamp", "serve")
    if knob == "campaign_max_display" and behaviour.over_max != "reject" and not cut:
        few = boxes < MANY or behaviour.over_max == "clamp"
        return tuple(maximum for maximum in (None, 2000, 100) if maximum is None or maximum >= campaigns) if few else ()
    return (own,)


def find_misses(behaviour: Behaviour, found: Calibration, boxes: int = 30, campaigns: int = 20) -> dict[str, tuple[Any, ...]]:
    """Return the knobs that were measured wrongly, each with the values that calibration found."""
    return {
        knob: possible
        for knob, possible in possible_values(found).items()
        if possible != indistinguishable_values(behaviour, knob, boxes, campaigns)
    }
