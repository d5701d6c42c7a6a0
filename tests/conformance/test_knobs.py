"""Calibration measures every knob that is visible from outside."""

from __future__ import annotations

import re
from contextlib import aclosing

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.calibration import (
    DRAFT,
    KEY,
    MANY,
    NEVER,
    READER,
    SPACE,
    WRITER,
    calibrated,
    find_misses,
    indistinguishable_values,
    service,
    single_readings,
    world,
)
from support.examples import scaled

from outreach_async import HttpxTransport
from outreach_async.conformance import Access, Calibration, calibrate, check
from outreach_async.fake import Behaviour, FakeTransport, HeaderAuth
from outreach_async.fake.behaviour import KNOB_NAMES, KNOB_VALUES
from outreach_async.fake.server import serve
from outreach_async.testing import pairwise

SINGLE = list(single_readings())
BY_ROWS = {"over_max", "campaign_max_display"}


@pytest.mark.covers
@pytest.mark.thorough
@pytest.mark.parametrize(("knob", "behaviour"), SINGLE, ids=[f"{knob}-{place}" for place, (knob, _) in enumerate(SINGLE)])
def test_every_value_of_every_knob_is_measured_where_it_shows(knob: str, behaviour: Behaviour) -> None:
    boxes = MANY if knob in BY_ROWS else 30
    campaigns = 120 if knob in BY_ROWS else 20
    found = calibrated(behaviour, snapshot=world(boxes, campaigns))
    assert find_misses(behaviour, found, boxes, campaigns) == {}
    if knob not in NEVER and len(indistinguishable_values(behaviour, knob, boxes, campaigns)) == 1:
        assert found.observed[knob] == getattr(behaviour, knob)


@pytest.mark.thorough
@pytest.mark.parametrize("place", range(len(pairwise())))
def test_any_two_values_together_are_measured_and_every_documented_rule_holds(place: int) -> None:
    behaviour = pairwise()[place]

    async def measure_in_memory() -> Calibration:
        assert await check(FakeTransport(service(behaviour)), attrs.evolve(WRITER, nonce="other")) == []
        return await calibrate(FakeTransport(service(behaviour)), WRITER)

    async def measure_over_a_socket() -> Calibration:
        async with serve(service(behaviour)) as url, aclosing(HttpxTransport(url)) as transport:
            assert await check(transport, attrs.evolve(WRITER, nonce="other")) == []
        async with serve(service(behaviour)) as url, aclosing(HttpxTransport(url)) as transport:
            return await calibrate(transport, WRITER)

    assert find_misses(behaviour, anyio.run(measure_over_a_socket if place % 2 else measure_in_memory)) == {}


@settings(max_examples=scaled(10))
@given(
    st.builds(Behaviour, **{knob: st.sampled_from(readings) for knob, readings in KNOB_VALUES.items()}),
    st.sampled_from([None, HeaderAuth(), HeaderAuth("x-token", "")]),
)
def test_any_combination_of_values_is_measured_and_breaks_no_rule(behaviour: Behaviour, auth: HeaderAuth | None) -> None:
    behaviour = attrs.evolve(behaviour, auth=auth)
    access = attrs.evolve(WRITER, headers={auth.header: f"{auth.scheme} {KEY}".lstrip()} if auth else {})
    assert find_misses(behaviour, calibrated(behaviour, access)) == {}
    assert anyio.run(check, FakeTransport(service(behaviour)), access) == []


async def test_calibration_is_a_call_of_the_library() -> None:
    fake = service(Behaviour(past_end="clamp", created_status=200, auth=HeaderAuth("x-token", "")))
    access = Access(SPACE, KEY, writes=True, campaign=DRAFT, headers={"X-Token": KEY})
    found = await calibrate(FakeTransport(fake), access)
    assert found.behaviour == attrs.evolve(fake.behaviour, auth=HeaderAuth("x-token", ""))
    assert found.observed["past_end"] == "clamp"
    assert found.undecided["unknown_body"] == ("ignore", "store")
    assert set(found.reasons) == set(KNOB_NAMES)
    assert set(found.unseen) == NEVER
    assert KEY not in found.to_toml()


async def test_without_writes_nothing_is_created_and_the_reasons_say_so() -> None:
    fake = service()
    before = fake.dump()
    found = await calibrate(FakeTransport(fake), Access(SPACE))
    assert fake.dump() == before
    assert {recorded.method for recorded in fake.requests} == {"GET"}
    assert found.reasons["email_key"] == "creating contacts was not allowed"
    assert found.behaviour == Behaviour()


def test_at_most_the_announced_contacts_are_requested_and_at_unused_addresses() -> None:
    for behaviour in (Behaviour(), Behaviour.lenient(), Behaviour(email_key="exact", strict_fields=frozenset({"zip"}))):
        fake = service(behaviour)
        anyio.run(calibrate, FakeTransport(fake), WRITER)
        emails = [contact["email"] for contact in fake.contacts(SPACE)]
        assert 0 < len(emails) <= 64
        assert all(email.lower().endswith("@conformance.example") for email in emails)


def test_in_a_small_workspace_the_reasons_say_what_is_missing() -> None:
    fake = service()
    fake.reset()
    fake.add_workspace(SPACE)
    found = calibrated(Behaviour(over_max="clamp"), READER, fake.snapshot())
    assert found.undecided == {"over_max": ("clamp", "serve"), "campaign_max_display": (None, 2000, 100)}
    assert found.reasons["order"] == "too few rows to decide"
    assert found.reasons["numbers"] == "no percentage that is a whole number was read"
    assert found.reasons["list_date"] == "no campaign with a date was read"
    assert "too few to decide" in found.reasons["percent_digits"]
    assert found.observed["past_end"] == "empty"


def test_a_missing_credential_is_recognised_by_the_challenge() -> None:
    found = calibrated(Behaviour(auth=HeaderAuth()), READER)
    assert (found.observed, found.undecided) == ({"error_renderer": "nested", "auth": HeaderAuth()}, {})
    assert "missing" in calibrated(Behaviour(auth=HeaderAuth("x-token", "")), READER).reasons["auth"]


def test_a_refused_key_leaves_the_knobs_of_creations_unobserved() -> None:
    reasons = calibrated(access=attrs.evolve(WRITER, owner_key="key_of_somebody_else")).reasons
    assert reasons["created_status"] == reasons["reenrol"] == "a plain create request was refused with 401"


@pytest.mark.parametrize(
    ("campaign", "why"),
    [
        (None, "no campaign was given"),
        ("camp_unheard_of", "not found"),
        ("camp_done", "not a draft"),
        ("camp_bare", "no steps"),
        ("camp_live", "not a draft"),
    ],
)
def test_contacts_join_only_a_draft_campaign_of_the_workspace(campaign: str | None, why: str) -> None:
    fake = service()
    fake.add_campaign(SPACE, id="camp_bare")
    fake.add_campaign(SPACE, id="camp_live", status="live", steps=["A"])
    found = calibrated(access=attrs.evolve(WRITER, campaign=campaign), snapshot=fake.snapshot())
    assert {"skip_enrols", "reenrol"} <= {*found.unseen}
    assert re.search(why, found.reasons["skip_enrols"]), found.reasons["skip_enrols"]
