"""Calibration measures every knob that is visible from outside."""

from __future__ import annotations

import re

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
    find_misses,
    indistinguishable_values,
    measure,
    run_directly,
    service,
    single_readings,
    world,
)
from support.examples import scaled
from support.fake_transports import LEVELS

from outreach_async.conformance import Access, calibrate
from outreach_async.conformance._calibration import MAX_CONTACTS, Measurement, describe_run, measure_knobs, measure_service
from outreach_async.conformance._interface_rules import RULES, find_breaches
from outreach_async.conformance._write_probes import INVALID_VALUES
from outreach_async.fake import Behaviour, HeaderAuth
from outreach_async.fake.behaviour import KNOB_NAMES, KNOB_VALUES
from outreach_async.testing import pairwise

SINGLE = list(single_readings())
BY_ROWS = {"over_max", "campaign_max_display"}


@pytest.mark.covers
@pytest.mark.thorough
@pytest.mark.parametrize(("knob", "behaviour"), SINGLE, ids=[f"{knob}-{place}" for place, (knob, _) in enumerate(SINGLE)])
def test_every_value_of_every_knob_is_measured_where_it_shows(knob: str, behaviour: Behaviour) -> None:
    boxes = MANY if knob in BY_ROWS else 30
    campaigns = 120 if knob in BY_ROWS else 20
    findings = measure(behaviour, snapshot=world(boxes, campaigns)).findings
    assert find_misses(behaviour, findings, boxes, campaigns) == {}
    if knob not in NEVER and len(indistinguishable_values(behaviour, knob, boxes, campaigns)) == 1:
        assert findings[knob].is_only(getattr(behaviour, knob))


@pytest.mark.thorough
@pytest.mark.parametrize("place", range(len(pairwise())))
def test_any_two_values_together_are_measured_and_every_documented_rule_holds(place: int) -> None:
    behaviour = pairwise()[place]
    connect = LEVELS[place % len(LEVELS)]

    async def measure_there() -> Measurement:
        async with connect(service(behaviour)) as transport:
            return await measure_service(transport, WRITER)

    found = anyio.run(measure_there)
    assert find_misses(behaviour, found.findings) == {}
    assert {rule.id: find_breaches(rule, found) for rule in RULES} == {rule.id: [] for rule in RULES}


@settings(max_examples=scaled(10))
@given(
    st.builds(Behaviour, **{knob: st.sampled_from(readings) for knob, readings in KNOB_VALUES.items()}),
    st.sampled_from([None, HeaderAuth(), HeaderAuth("x-token", "")]),
)
def test_any_combination_of_values_is_measured_and_breaks_no_rule(behaviour: Behaviour, auth: HeaderAuth | None) -> None:
    behaviour = attrs.evolve(behaviour, auth=auth)
    access = attrs.evolve(WRITER, headers={auth.header: f"{auth.scheme} {KEY}".lstrip()} if auth else {})
    found = measure(behaviour, access)
    assert find_misses(behaviour, found.findings) == {}
    assert [str(breach) for rule in RULES for breach in find_breaches(rule, found) or ()] == []


async def test_calibration_is_a_call_of_the_library() -> None:
    fake = service(Behaviour(past_end="clamp", created_status=200, auth=HeaderAuth("x-token", "")))
    async with LEVELS[0](fake) as transport:
        found = await calibrate(transport, Access(SPACE, KEY, writes=True, campaign=DRAFT, headers={"X-Token": KEY}))
    assert found.behaviour == attrs.evolve(fake.behaviour, auth=HeaderAuth("x-token", ""))
    assert found.observed["past_end"] == "clamp"
    assert found.undecided["unknown_body"] == ("ignore", "store")
    assert set(found.reasons) == set(KNOB_NAMES)
    assert set(found.unseen) == NEVER
    assert KEY not in found.to_toml()


async def test_without_writes_nothing_is_created_and_the_reasons_say_so() -> None:
    fake = service()
    before = fake.dump()
    async with LEVELS[0](fake) as transport:
        found = await calibrate(transport, Access(SPACE))
    assert fake.dump() == before
    assert {recorded.method for recorded in fake.requests} == {"GET"}
    assert found.reasons["email_key"] == "creating contacts was not allowed"
    assert found.behaviour == Behaviour()


def test_at_most_the_announced_contacts_are_requested_and_at_unused_addresses() -> None:
    assert len(INVALID_VALUES) + 24 <= MAX_CONTACTS
    for behaviour in (Behaviour(), Behaviour.lenient(), Behaviour(email_key="exact", strict_fields=frozenset({"zip"}))):
        fake = service(behaviour)
        run_directly(measure_knobs(WRITER), fake.handle)
        emails = [contact["email"] for contact in fake.contacts(SPACE)]
        assert 0 < len(emails) <= MAX_CONTACTS
        assert all(email.lower().endswith("@conformance.example") for email in emails)


def test_the_plan_describes_what_will_be_done() -> None:
    assert "It creates no contacts" in describe_run(READER)
    description = describe_run(WRITER)
    assert all(word in description for word in (SPACE, DRAFT, "conformance.example", "permanent", str(MAX_CONTACTS)))
    assert KEY not in description
    assert "None joins a campaign" in describe_run(attrs.evolve(WRITER, campaign=None))


def test_in_a_small_workspace_the_reasons_say_what_is_missing() -> None:
    fake = service()
    fake.reset()
    fake.add_workspace(SPACE)
    found = measure(Behaviour(over_max="clamp"), READER, fake.snapshot()).findings
    assert found["over_max"].possible == ("clamp", "serve")
    assert found["campaign_max_display"].possible == (None, 2000, 100)
    assert found["order"].explanation == "too few rows to decide"
    assert found["numbers"].explanation == "no percentage that is a whole number was read"
    assert found["list_date"].explanation == "no campaign with a date was read"
    assert "too few to decide" in found["percent_digits"].explanation
    assert found["past_end"].possible == ("empty",)


def test_a_list_of_one_campaign_a_page_is_read_at_its_end() -> None:
    campaigns = measure(Behaviour(campaign_max_display=1, over_max="reject"), READER).survey.campaign_pages
    assert (campaigns.pages[-1].index, campaigns.page_after is None) == (19, False)


def test_a_missing_credential_is_recognised_by_the_challenge() -> None:
    found = measure(Behaviour(auth=HeaderAuth()), READER).findings
    assert found["auth"].is_only(HeaderAuth())
    assert found["error_renderer"].is_only("nested")
    assert [knob for knob, finding in found.items() if finding.possible] == ["error_renderer", "auth"]
    assert "missing" in measure(Behaviour(auth=HeaderAuth("x-token", "")), READER).findings["auth"].explanation


def test_a_refused_key_leaves_the_knobs_of_creations_unobserved() -> None:
    found = measure(access=attrs.evolve(WRITER, owner_key="key_of_somebody_else")).findings
    assert found["created_status"].explanation == found["reenrol"].explanation == "a plain create request was refused with 401"


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
    found = measure(access=attrs.evolve(WRITER, campaign=campaign), snapshot=fake.snapshot()).findings
    assert found["skip_enrols"].possible == () == found["reenrol"].possible
    assert re.search(why, found["skip_enrols"].explanation), found["skip_enrols"].explanation
