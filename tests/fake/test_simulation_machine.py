"""Campaigns that share mailboxes, changed at random, compared with an independent evaluation of the log."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import ceil
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from support.examples import scaled
from support.fake import KEY, SPACE, creation, document, page, post, steps
from support.simulation import DAY, HOUR_MS, NOTHING, SILENT, boxes_of, flow, listed, quiet_world, watched

from outreach_async.fake import Activity, FakeService

CAMPAIGNS = ["camp_1", "camp_2", "camp_3"]
BUSY = {"open": 0.7, "click": 0.3, "reply": 0.25, "bounce": 0.1, "unsubscribe": 0.1, "interested": 0.5}
HOURS = st.sampled_from([0, 1, 5, 24, 30, 72]) | st.integers(0, 24 * 12)
NUMBERS = ("opened", "clicked", "replied", "unsubscribed")
ENDS = {"replied", "interested", "unsubscribed", "bounced"}


def day_of(at: float) -> int:
    return int(at // DAY)


def percent(n: int, of: int) -> Fraction:
    return round(Fraction(100 * n, of), 2) if of else Fraction(0)


def same_number(shown: float, exact: Fraction) -> bool:
    return Fraction(str(shown)) == exact


@attrs.define
class Reader:
    """Compares the responses of the fake with the log."""

    fake: FakeService
    log: list[Activity]
    seeded: dict[str, Any]
    start: int
    limits: dict[tuple[str, int], int] = attrs.Factory(dict)

    @classmethod
    def of(cls, fake: FakeService) -> Reader:
        campaigns = document(page(fake, "/campaigns", display=100))["data"]
        seeded = {camp["id"]: {"listed": camp, "steps": steps(fake, camp["id"])["data"]} for camp in campaigns}
        return cls(fake, watched(fake), seeded | {box["id"]: box for box in boxes_of(fake)}, day_of(fake.now))

    def of_kind(self, kind: str) -> list[Activity]:
        return [entry for entry in self.log if entry.kind == kind or (kind == "replied" and entry.kind == "interested")]

    def allow(self, first: int, last: int) -> None:
        """Record the current daily limits as allowed on these days."""
        for box in boxes_of(self.fake):
            for day in range(first, last + 1):
                self.limits[box["id"], day] = max(self.limits.get((box["id"], day), 0), box["daily_limit"])

    # Checks of the responses.

    def check(self) -> None:
        self.check_order_of_the_log()
        for item in document(page(self.fake, "/campaigns", display=100))["data"]:
            self.check_campaign(item, steps(self.fake, item["id"]))
        for box in boxes_of(self.fake):
            self.check_mailbox(box)
        self.check_lives()

    def check_order_of_the_log(self) -> None:
        times = [entry.at for entry in self.log]
        assert times == sorted(times)
        ended: set[tuple[str, str]] = set()
        seen: set[tuple[str, str, int, str]] = set()
        for entry in self.log:
            email = (entry.campaign, entry.contact, entry.step)
            kind = "replied" if entry.kind == "interested" else entry.kind
            assert (*email, kind) not in seen
            if kind == "sent":
                assert email[:2] not in ended
            else:
                assert (*email, "sent") in seen
            if kind in {"clicked", "replied", "unsubscribed"}:
                assert (*email, "opened") in seen
            assert (*email, "bounced") not in seen
            if entry.kind in ENDS:
                assert email[:2] not in ended
                ended.add(email[:2])
            seen.add((*email, kind))

    def check_campaign(self, item: Any, answered: Any) -> None:
        data, seeded = answered["data"], self.seeded[item["id"]]
        templates = [template for step in data for template in step["templates"]]
        sent = sum(template["sent"] for template in templates)
        for step, was in zip(data, seeded["steps"], strict=True):
            self.check_step(item, step, was)
        for name in ("out_of", "already_sent"):
            assert [step[name] for step in data] == sorted((step[name] for step in data), reverse=True)
        assert item["steps"] == len(data)
        assert item["opens_num"] == sum(template["opened_num"] for template in templates)
        assert item["replies_num"] == sum(template["replied_num"] for template in templates)
        for name, kind in (("interested_num", "interested"), ("bounces_num", "bounced")):
            assert item[name] - seeded["listed"][name] == sum(e.campaign == item["id"] for e in self.log if e.kind == kind)
        assert item["interested_num"] <= item["replies_num"]
        assert item["bounces_num"] + item["opens_num"] <= sent
        assert item["initials"] == (data[0]["already_sent"] if data else 0)
        for name in ("opens", "replies", "bounces", "interested"):
            assert same_number(item[name], percent(item[f"{name}_num"], sent))
        nothing_left = all(step["left_to_send"] == 0 for step in data)
        complete = nothing_left and item["contacts"] > 0
        assert (item["days_left"] == 0) == nothing_left
        assert (item["days_left_date"] == "Complete") == (answered["days_left_date"] == "Complete") == complete
        if answered["days_left_date"] in {"Complete", "Not started", "Unknown"}:
            assert item["days_left_date"] == answered["days_left_date"]
        assert (item["days_left"], item["days_left_display"]) == (answered["days_left"], answered["days_left_display"])

    def check_step(self, item: Any, step: Any, was: Any) -> None:
        left, sent = step["left_to_send"], step["already_sent"]
        own = [entry for entry in self.log if entry.campaign == item["id"]]
        furthest = {entry.contact: entry.step for entry in own if entry.kind == "sent"}
        got = [entry for entry in own if entry.kind == "sent" and entry.step == step["order"]]
        gone = [entry for entry in own if entry.kind in ENDS and furthest[entry.contact] < step["order"]]
        joined = item["contacts"] - self.seeded[item["id"]]["listed"]["contacts"]
        assert 0 <= left == was["left_to_send"] + joined - len(got) - len(gone)
        assert left + sent == step["out_of"] <= item["contacts"]
        assert sent == sum(template["sent"] for template in step["templates"])
        letters = [template["sent"] for template in step["templates"] if template["test_letter"] != "PER"]
        assert not letters or max(letters) - min(letters) <= 1
        for template, before in zip(step["templates"], was["templates"], strict=True):
            counts = Counter("replied" if e.kind == "interested" else e.kind for e in self.log if e.template == template["id"])
            assert template["sent"] - before["sent"] == counts["sent"]
            for name in NUMBERS:
                assert template[f"{name}_num"] - before[f"{name}_num"] == counts[name]
                assert same_number(template[name], percent(template[f"{name}_num"], template["sent"]))
            assert template["opened_num"] <= template["sent"]
            assert max(template[f"{name}_num"] for name in NUMBERS[1:]) <= template["opened_num"]

    def check_mailbox(self, box: Any) -> None:
        today, was = day_of(self.fake.now), self.seeded[box["id"]]
        passed = today - self.start
        sends = {(e.campaign, e.contact, e.step): day_of(e.at) for e in self.log if e.kind == "sent" and e.mailbox == box["id"]}
        days = Counter(sends.values())

        def of_emails_of(kind: str, length: int) -> int:
            emails = [(e.campaign, e.contact, e.step) for e in self.log if e.kind == kind and e.mailbox == box["id"]]
            return sum(today - sends[email] < length for email in emails)

        def sent_in(length: int) -> int:
            return sum(count for day, count in days.items() if today - day < length)

        first, month, quarter = was["sent_today"], was["sent_30days"], was["sent_90days"]
        old_month, old_quarter = (
            ceil(Fraction(old * max(0, length - passed), length)) for old, length in ((month, 30), (quarter, 90))
        )
        assert box["sent_today"] == sent_in(1) + first * (passed == 0)
        assert box["sent_30days"] == sent_in(30) + old_month
        assert box["sent_90days"] == sent_in(90) + old_quarter
        old_bounced = was["bounced_30days"] * max(0, 30 - passed) // 30
        assert box["bounced_30days"] == of_emails_of("bounced", 30) + old_bounced
        if month == 0:
            assert same_number(box["opened_14days"], percent(of_emails_of("opened", 14), sent_in(14)))
            everything = len(sends)
            assert same_number(box["avg_open_rate"], percent(of_emails_of("opened", 10**6), everything))
            assert same_number(box["avg_click_rate"], percent(of_emails_of("clicked", 10**6), everything))
        assert 0 <= box["opened_14days"] <= 100
        assert 0 <= box["sent_today"] <= box["sent_30days"] <= box["sent_90days"]
        assert box["bounced_30days"] <= box["sent_30days"]
        for day, count in days.items():
            assert count + first * (day == self.start) <= self.limits[box["id"], day]

    def check_lives(self) -> None:
        """Check that the lifetime totals of all mailboxes equal those of the log; they do not depend on time windows."""
        ledgers = self.fake._world.simulation.stats.values()
        kinds = Counter(entry.kind for entry in self.log)
        lives = [(ledger.sent.total(), ledger.opened.total(), ledger.clicks) for ledger in ledgers]
        assert [sum(column) for column in zip(*lives, strict=True)] in ([], [kinds["sent"], kinds["opened"], kinds["clicked"]])


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


LONG = pytest.param(40, 18, 20, 20, marks=pytest.mark.nightly)


@pytest.mark.parametrize(("examples", "steps", "sent", "most"), [(5, 8, 8, 0), LONG])
def test_invariants_1_to_8_and_10_to_14_hold(examples: int, steps: int, sent: int, most: int) -> None:
    Mailing.totals.clear()
    run_state_machine_as_test(
        Mailing, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True)
    )

    totals = Mailing.totals
    assert totals["runs that sent"] >= 0.9 * totals["runs"] >= 0.75 * examples
    assert totals["sent"] > sent * totals["runs"]
    assert min(totals[kind] for kind in ("opened", "clicked", "replied", "interested", "unsubscribed", "bounced")) > most


STEPS = st.lists(
    st.fixed_dictionaries({"sent": st.integers(0, 30), "templates": st.sampled_from(["A", "A|B", "A|B|PER"])}), max_size=4
)


@settings(max_examples=scaled(60), deadline=None)
@given(STEPS, st.integers(0, 30), st.integers(0, 5))
def test_t10_and_t4_counts_agree_in_every_seeded_campaign(arguments: list[dict[str, Any]], waiting: int, joining: int) -> None:
    fake = quiet_world(steps=[])
    arguments.sort(key=lambda step: -step["sent"])
    first = arguments[0]["sent"] + waiting if arguments else None
    camp = fake.add_campaign(SPACE, steps=arguments, contacts=first, rates=BUSY)
    reader = Reader.of(fake)
    fake.add_contacts(SPACE, joining, campaign=camp)
    reader.check()


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
