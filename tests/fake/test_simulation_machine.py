"""Campaigns that share mailboxes, changed at random, compared with an independent evaluation of the log."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support.examples import scaled
from support.fake import KEY, SPACE, creation, page, post, steps
from support.simulation import HOUR_MS, NOTHING, SILENT, Reader, boxes_of, day_of, flow, listed, quiet_world, watched

from outreach_async.fake import FakeService

DAY = 86_400
CAMPAIGNS = ["camp_1", "camp_2", "camp_3"]
BUSY = {"open": 0.7, "click": 0.3, "reply": 0.25, "bounce": 0.1, "unsubscribe": 0.1, "interested": 0.5}
HOURS = st.sampled_from([0, 1, 5, 24, 30, 72]) | st.integers(0, 24 * 12)


def busy_world(seed: int, limits: list[int], history: bool) -> FakeService:
    """Three running campaigns on the same mailboxes."""
    fake = FakeService(seed)
    fake.add_workspace(SPACE)
    fake.add_owner_key(SPACE, key=KEY)
    boxes = [
        fake.add_mailbox(SPACE, daily_limit=limit, **(NOTHING if place or not history else {}))
        for place, limit in enumerate(limits)
    ]
    step_arguments: list[Any] = [
        {"templates": "A|B|PER", "sent": 5},
        {"templates": "A|B", "sent": 2, "wait_time": 30 * HOUR_MS},
        "A",
    ]
    fake.add_campaign(SPACE, id="camp_1", status="live", mailboxes=boxes, steps=step_arguments, contacts=9, rates=BUSY)
    step_arguments = ["A|B|C", {"templates": [{"rates": {"open": 1, "reply": 0}}], "wait_time": 5 * HOUR_MS}]
    fake.add_campaign(SPACE, id="camp_2", status="live", mailboxes=boxes[:2], steps=step_arguments, rates=BUSY)
    fake.add_campaign(SPACE, id="camp_3", status="paused", mailboxes=boxes[1:], steps=["A|B", {"wait_time": 0}], rates=BUSY)
    for place, camp in enumerate(CAMPAIGNS):
        rows: list[dict[str, str | None]] = [{"email": f"{camp}.{number}@acme.example"} for number in range(4 + place)]
        fake.add_contacts(SPACE, rows, campaign=camp)
    return fake


class Mailing(RuleBasedStateMachine):
    """Enrols contacts, advances time, pauses, resumes and changes limits."""

    totals: ClassVar[Counter[str]] = Counter()

    @initialize(seed=st.integers(0, 99), limits=st.lists(st.integers(1, 6), min_size=2, max_size=4), history=st.booleans())
    def start(self, seed: int, limits: list[int], history: bool) -> None:
        self.fake = busy_world(seed, limits, history)
        self.reader = Reader.of(self.fake)
        self.contacts = {camp: listed(self.fake, camp)["contacts"] for camp in CAMPAIGNS}
        self.move(0)

    def move(self, hours: float) -> None:
        before, known = day_of(self.fake.now), len(self.reader.log)
        self.fake.advance(hours=hours)
        self.reader.allow(before, day_of(self.fake.now))
        live = {camp for camp in CAMPAIGNS if listed(self.fake, camp)["status"] == "live"}
        assert {entry.campaign for entry in self.reader.log[known:] if entry.kind == "sent"} <= live
        for camp in live:
            self.nobody_waits_where_there_is_room(camp)

    def nobody_waits_where_there_is_room(self, camp: str) -> None:
        """Check that contacts wait for step 1, which has no wait time, only for lack of capacity."""
        if steps(self.fake, camp)["data"][0]["left_to_send"]:
            ids = self.fake._world.campaigns[camp].mailboxes
            assert all(box["sent_today"] >= box["daily_limit"] for box in boxes_of(self.fake) if box["id"] in ids)

    @rule(hours=HOURS)
    def time_passes(self, hours: int) -> None:
        self.move(hours)

    @rule(camp=st.sampled_from(CAMPAIGNS), count=st.integers(1, 15))
    def many_join(self, camp: str, count: int) -> None:
        self.fake.add_contacts(SPACE, count, campaign=camp)
        self.contacts[camp] += count

    @rule(camp=st.sampled_from(CAMPAIGNS), number=st.integers(0, 30), policy=st.sampled_from(["skip", "overwrite"]))
    def one_is_created_or_created_again(self, camp: str, number: int, policy: str) -> None:
        email = f"{CAMPAIGNS[number % 3]}.{number}@acme.example"
        known = self.fake.contact(SPACE, email)
        post(self.fake, creation(email, campaign=camp, duplicates=policy))
        self.contacts[camp] += known is None or (policy == "overwrite" and camp not in known["campaigns"])

    @rule(camp=st.sampled_from(CAMPAIGNS), status=st.sampled_from(["live", "live", "paused", "draft"]), hours=HOURS)
    def a_campaign_changes_its_status(self, camp: str, status: str, hours: int) -> None:
        self.fake.set_campaign(camp, status=status)
        self.move(hours)

    @rule(place=st.integers(0, 3), limit=st.integers(0, 7), hours=HOURS)
    def a_limit_changes(self, place: int, limit: int, hours: int) -> None:
        boxes = boxes_of(self.fake)
        self.fake.set_mailbox(boxes[place % len(boxes)]["id"], daily_limit=limit)
        self.move(hours)

    @rule(parts=st.lists(st.integers(0, 10**11), min_size=1, max_size=4))
    def time_passes_at_once_or_in_steps(self, parts: list[int]) -> None:
        snapshot, known = self.fake.snapshot(), len(self.reader.log)
        for part in parts:
            self.fake.advance(microseconds=part)
            page(self.fake, "/mailboxes")
        in_steps, entries = self.fake.dump(), self.reader.log[known:]
        self.fake.restore(snapshot)
        del self.reader.log[known:]
        before = day_of(self.fake.now)
        self.fake.advance(microseconds=sum(parts))
        self.fake.advance()
        self.reader.allow(before, day_of(self.fake.now))
        assert self.fake.dump() == in_steps
        assert self.reader.log[known:] == entries

    @rule(hours=HOURS)
    def a_fork_goes_its_own_way(self, hours: int) -> None:
        before = self.fake.dump()
        other = FakeService(self.fake.seed)
        other.load(before)
        assert other.dump() == before
        snapshot, known = self.fake.snapshot(), len(self.reader.log)
        fork = FakeService(self.fake.seed)
        fork.restore(snapshot)
        for each in (self.fake, other, fork):
            each.advance(hours=hours + 1)
        assert self.fake.dump() == other.dump() == fork.dump()
        self.fake.restore(snapshot)
        del self.reader.log[known:]
        assert self.fake.dump() == before
        fork.advance(days=9)
        assert self.fake.dump() == before

    @invariant()
    def the_answers_agree_with_the_log(self) -> None:
        if hasattr(self, "reader"):
            self.reader.check()
            for camp in CAMPAIGNS:
                assert listed(self.fake, camp)["contacts"] == self.contacts[camp]

    def teardown(self) -> None:
        if hasattr(self, "reader"):
            self.totals.update(entry.kind for entry in self.reader.log)
            self.totals["runs"] += 1
            self.totals["runs that sent"] += bool(self.reader.of_kind("sent"))


@pytest.mark.nightly
def test_invariants_1_to_8_and_10_to_14_hold() -> None:
    Mailing.totals.clear()
    run_state_machine_as_test(
        Mailing,
        settings=settings(max_examples=40, stateful_step_count=14, deadline=None, derandomize=True),
    )

    totals = Mailing.totals
    assert totals["runs that sent"] >= 0.9 * totals["runs"] >= 30
    assert totals["sent"] > 20 * totals["runs"]
    assert min(totals[kind] for kind in ("opened", "clicked", "replied", "interested", "unsubscribed", "bounced")) > 20


ALONE = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "count": st.integers(1, 3) | st.integers(1, 60),
        "sent": st.integers(0, 20),
        "hour": st.integers(0, 23),
        "waits": st.lists(st.sampled_from([0, 1, 30, 100, 200]), min_size=1, max_size=3),
        "limits": st.lists(st.integers(1, 9), min_size=1, max_size=3),
        "rates": st.sampled_from([BUSY, SILENT]),
    }
)


@pytest.mark.thorough
@settings(max_examples=scaled(100), deadline=None)
@given(ALONE)
def test_invariant_9_days_left_never_rise_and_are_accurate_to_a_day(alone: dict[str, Any]) -> None:
    fake = FakeService(alone["seed"], clock=f"2026-03-01T{alone['hour']:02}:30:00Z")
    fake.add_workspace(SPACE)
    boxes = [fake.add_mailbox(SPACE, daily_limit=limit) for limit in alone["limits"]]
    step_arguments: list[Any] = [{"templates": "A|B", "wait_time": wait * HOUR_MS} for wait in alone["waits"]]
    step_arguments[0]["sent"] = alone["sent"]
    fake.add_campaign(SPACE, id="camp_1", status="live", mailboxes=boxes, steps=step_arguments, rates=alone["rates"])
    fake.add_contacts(SPACE, alone["count"], campaign="camp_1")
    shown = [listed(fake)["days_left"]]
    while shown[-1]:
        fake.advance(hours=20)
        shown.append(listed(fake)["days_left"])
        assert shown[-1] <= shown[-2]
        assert (len(shown) - 2) * 20 <= (shown[0] + 1) * 24
    assert listed(fake)["days_left_date"] == "Complete"
    assert flow(fake)[0] == (0, alone["count"] + alone["sent"], alone["count"] + alone["sent"])


def outcomes(fake: FakeService, camp: str) -> set[tuple[str, int, str, float]]:
    """Return what happened to the e-mails of a campaign, by address, with the time since each was sent."""
    log = watched(fake)
    fake.advance(days=20)
    emails = {contact["id"]: contact["email"] for contact in fake.contacts(SPACE)}
    sent = {(e.contact, e.step): e.at for e in log if e.kind == "sent" and e.campaign == camp}
    return {(emails[e.contact], e.step, e.kind, round(e.at - sent[e.contact, e.step], 4)) for e in log if e.campaign == camp}


@settings(max_examples=scaled(15), deadline=None)
@given(st.permutations(range(12)), st.integers(1, 30), st.booleans())
def test_responses_do_not_depend_on_order_other_campaigns_or_other_contacts(order: list[int], others: int, first: bool) -> None:
    def world() -> FakeService:
        fake = quiet_world(limit=1000, rates=BUSY, steps=["A", "A"])
        fake.add_campaign(
            SPACE, id="camp_2", status="live", mailboxes=[box["id"] for box in boxes_of(fake)], steps=["A"], rates=BUSY
        )
        return fake

    rows: list[dict[str, str | None]] = [{"email": f"{number}@acme.example"} for number in range(12)]
    plain, other = world(), world()
    plain.add_contacts(SPACE, rows, campaign="camp_1")
    if first:
        other.add_contacts(SPACE, others, campaign="camp_2")
    other.add_contacts(SPACE, [rows[number] for number in order], campaign="camp_1")
    other.add_contacts(SPACE, [{"email": "more@acme.example"}], campaign="camp_1")
    expected, found = outcomes(plain, "camp_1"), outcomes(other, "camp_1")

    assert {entry for entry in found if entry[0] != "more@acme.example"} == expected
    assert {kind for _, _, kind, _ in expected} > {"sent", "opened", "replied"}


def test_with_another_seed_other_contacts_reply() -> None:
    def answers(seed: int) -> set[tuple[str, int, str, float]]:
        fake = FakeService(seed)
        fake.add_workspace(SPACE)
        box = fake.add_mailbox(SPACE, daily_limit=100)
        fake.add_campaign(SPACE, id="camp_1", status="live", mailboxes=[box], steps=["A"], rates=BUSY)
        fake.add_contacts(SPACE, 40, campaign="camp_1")
        return outcomes(fake, "camp_1")

    assert answers(1) == answers(1) != answers(2)


def test_a_running_world_is_json_with_its_simulation_on_one_line() -> None:
    fake = busy_world(1, [3, 5], history=True)
    assert "simulation" not in json.loads(fake.dump())
    fake.advance(days=2)

    assert [line for line in fake.dump().splitlines() if line.startswith(' "simulation": ')]
    assert set(json.loads(fake.dump())["simulation"]) == {"campaigns", "mailboxes", "events"}
