from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.fake import SPACE, START, create, document, page, refusing, steps
from support.simulation import DAY, HOUR_MS, NOTHING, SILENT, boxes_of, flow, listed, quiet_world, watched

from outreach_async.fake import Behaviour, FakeService, WorldError
from outreach_async.fake._simulation import SimulationEngine

Rows = list[dict[str, str | None]]
ADA, BO, CY = ("ada@acme.example", "bo@acme.example", "cy@acme.example")
THREE: Rows = [{"email": email} for email in (ADA, BO, CY)]


def world_of_three(**campaign: Any) -> FakeService:
    fake = quiet_world(**campaign)
    fake.add_contacts(SPACE, THREE, campaign="camp_1")
    return fake


def log_entries(log: list[Any], kind: str = "sent") -> list[tuple[float, str, int]]:
    return [((entry.at - START) / 3600, entry.contact, entry.step) for entry in log if entry.kind == kind]


# Time and the queue.


def test_nothing_is_sent_before_the_first_advance_even_by_zero() -> None:
    fake = world_of_three()
    assert flow(fake) == [(3, 0, 3)]
    fake.advance()
    once = fake.dump()
    fake.advance(seconds=0)

    assert flow(fake) == [(0, 3, 3)]
    assert fake.dump() == once


def test_emails_over_the_daily_limit_are_sent_at_the_next_midnights_in_utc() -> None:
    fake = quiet_world(7, limit=3, clock="2026-01-01T15:00:00+01:00")
    log = watched(fake)
    fake.advance(days=9)
    assert Counter(time for time, _, _ in log_entries(log)) == {14.0: 3, 24.0: 3, 48.0: 1}
    assert [contact for _, contact, _ in log_entries(log)] == sorted(contact["id"] for contact in fake.contacts(SPACE))


@pytest.mark.parametrize("size", [1, 3, 100_000])
def test_the_size_of_slices_decides_nothing(size: int) -> None:
    whole, sliced = (quiet_world(7, limit=3, steps=["A|B", "A"], rates={}) for _ in range(2))
    for fake in (whole, sliced):
        boxes = [box["id"] for box in boxes_of(fake)]
        fake.add_campaign(SPACE, id="camp_2", status="live", mailboxes=boxes, steps=["A"], contacts=20)
        fake.add_contacts(SPACE, THREE, campaign="camp_2")
    whole.advance(days=60)
    slices = list(SimulationEngine(sliced._world, sliced.seed, slice_size=size).run(round((START + 60 * DAY) * 1_000_000)))
    sliced.advance(days=60)
    assert sliced.dump() == whole.dump()
    assert (len(slices) > 20) == (size < 100)


def test_t12_waits_in_milliseconds_start_at_enrolment_or_the_previous_email() -> None:
    waits = [{"wait_time": 2 * HOUR_MS}, {"wait_time": HOUR_MS + 1}, {"wait_time": 0}]
    fake = quiet_world(steps=waits)
    log = watched(fake)
    fake.advance(hours=1)
    (contact,) = fake.add_contacts(SPACE, 1, campaign="camp_1")
    fake.advance(days=1)

    first = START + 3 * 3600
    assert [(entry.at, entry.step) for entry in log] == [(first, 1), (first + 3600.001, 2), (first + 3600.001, 3)]
    assert {entry.contact for entry in log} == {contact}


def test_b5_campaigns_that_wait_for_the_same_midnight_alternate() -> None:
    fake = quiet_world(9, limit=4)
    boxes = [box["id"] for box in boxes_of(fake)]
    fake.add_campaign(SPACE, id="camp_2", status="live", mailboxes=boxes, steps=["A"], contacts=2, rates=SILENT)
    log = watched(fake)
    fake.advance(days=2)

    assert [entry.campaign for entry in log[4:]] == ["camp_1", "camp_2", "camp_1", "camp_2", *["camp_1"] * 3]
    assert [box["sent_30days"] for box in boxes_of(fake)] == [11]


@pytest.mark.parametrize("status", ["draft", "paused", "archived"])
def test_only_a_live_campaign_sends_and_it_resumes_where_it_stopped(status: str) -> None:
    fake = quiet_world(3, steps=["A", {"wait_time": HOUR_MS}])
    log = watched(fake)
    fake.advance(minutes=30)
    fake.set_campaign("camp_1", status=status)
    fake.add_contacts(SPACE, 2, campaign="camp_1")
    fake.advance(days=2)
    assert flow(fake) == [(2, 3, 5), (5, 0, 5)]
    fake.set_campaign("camp_1", status="live")
    assert flow(fake) == [(2, 3, 5), (5, 0, 5)]
    fake.advance(hours=2)

    assert flow(fake) == [(0, 5, 5), (0, 5, 5)]
    assert [time for time, _, _ in log_entries(log)] == [0.0] * 3 + [48.5] * 5 + [49.5] * 2


def test_a_step_or_template_that_is_not_live_is_not_sent() -> None:
    two = [{"status": "error"}, "B", "C"]
    fake = world_of_three(steps=[{"templates": two}, {"status": "stopped", "wait_time": 0}])
    fake.advance(days=5)
    assert flow(fake) == [(0, 3, 3), (3, 0, 3)]
    assert [template["sent"] for template in steps(fake, "camp_1")["data"][0]["templates"]] == [0, 2, 1]


def test_a_campaign_without_steps_accepts_contacts_and_sends_nothing() -> None:
    fake = world_of_three(steps=[])
    fake.advance(days=5)
    assert (listed(fake)["contacts"], boxes_of(fake)[0]["sent_90days"]) == (3, 0)


# Mailboxes.


def test_each_contact_gets_all_emails_from_one_mailbox() -> None:
    fake = quiet_world(12, boxes=3, limit=20, steps=["A", {"wait_time": 26 * HOUR_MS}])
    fake.set_mailbox(boxes_of(fake)[1]["id"], daily_limit=22)
    log = watched(fake)
    fake.advance(hours=1)
    fake.set_mailbox(boxes_of(fake)[2]["id"], daily_limit=100)
    fake.advance(days=4)
    boxes: dict[str, set[str]] = {}
    for entry in log:
        boxes.setdefault(entry.contact, set()).add(entry.mailbox)

    assert {len(found) for found in boxes.values()} == {1}
    assert [box["sent_30days"] for box in boxes_of(fake)] == [8, 10, 6]


def test_a_full_mailbox_is_replaced_for_one_email_only() -> None:
    fake = world_of_three(boxes=2, limit=3, steps=["A", {"wait_time": 24 * HOUR_MS}, {"wait_time": 24 * HOUR_MS}])
    log = watched(fake)
    fake.advance(hours=1)
    own = boxes_of(fake)[0]["id"]
    fake.set_mailbox(own, daily_limit=1)
    fake.advance(days=1)
    fake.set_mailbox(own, daily_limit=3)
    fake.advance(days=1)
    ada, bo, cy = (contact["id"] for contact in fake.contacts(SPACE))

    # Two of the three started with the first mailbox; the next day it had capacity for one of them.
    assert [entry.mailbox == own for entry in log if entry.contact == ada] == [True, True, True]
    assert [entry.mailbox == own for entry in log if entry.contact == bo] == [False, False, False]
    assert [entry.mailbox == own for entry in log if entry.contact == cy] == [True, False, True]


def test_a_mailbox_sends_only_when_active_and_a_higher_limit_applies_at_once() -> None:
    fake = quiet_world(6, limit=2)
    (box,) = boxes_of(fake)
    fake.set_mailbox(box["id"], status="error")
    fake.advance(hours=1)
    assert (flow(fake), listed(fake)["days_left_display"]) == ([(6, 0, 6)], "Unknown")
    fake.set_mailbox(box["id"], status="active")
    fake.advance(hours=1)
    assert flow(fake) == [(4, 2, 6)]
    fake.set_mailbox(box["id"], daily_limit=5)
    fake.advance(hours=1)
    assert flow(fake) == [(1, 5, 6)]
    fake.set_mailbox(box["id"], daily_limit=1)
    fake.advance(hours=1)

    assert boxes_of(fake)[0]["sent_today"] == 5
    assert flow(fake) == [(1, 5, 6)]


def test_emails_seeded_as_sent_today_count_towards_the_daily_limit() -> None:
    fake = quiet_world(5, mailboxes=[], limit=3)
    box = fake.add_mailbox(SPACE, **{**NOTHING, "daily_limit": 3, "sent_today": 2, "sent_30days": 2, "sent_90days": 2})
    fake.set_campaign("camp_1", mailboxes=[box])
    fake.advance()
    assert flow(fake) == [(4, 1, 5)]
    fake.advance(days=1)

    assert flow(fake) == [(1, 4, 5)]
    assert [boxes_of(fake)[1][name] for name in ("sent_today", "sent_30days", "campaigns")] == [3, 6, 1]


def test_new_mailboxes_of_a_campaign_take_over() -> None:
    fake = quiet_world(2, boxes=2, steps=["A", {"wait_time": HOUR_MS}])
    first, second = (box["id"] for box in boxes_of(fake))
    fake.set_campaign("camp_1", mailboxes=[first])
    log = watched(fake)
    fake.advance()
    fake.set_campaign("camp_1", mailboxes=[second])
    fake.advance(hours=1)

    assert [entry.mailbox for entry in log] == [first, first, second, second]
    assert [box["campaigns"] for box in boxes_of(fake)] == [0, 1]


# The windows.


def rate(fake: FakeService, name: str = "opened_14days") -> Any:
    return boxes_of(fake)[0][name]


@pytest.mark.parametrize(
    ("days", "shown"),
    [(0, [3, 3, 3]), (1, [0, 3, 3]), (29, [0, 3, 3]), (30, [0, 0, 3]), (89, [0, 0, 3]), (90, [0, 0, 0]), (999, [0, 0, 0])],
)
def test_b2_windows_are_calendar_days_including_today(days: int, shown: list[int]) -> None:
    fake = world_of_three(clock="2026-01-01T23:59:59Z")
    fake.advance()
    fake.advance(days=days)
    assert [rate(fake, name) for name in ("sent_today", "sent_30days", "sent_90days")] == shown


HISTORY: dict[str, Any] = {
    "sent_today": 10,
    "sent_30days": 300,
    "sent_90days": 900,
    "bounced_30days": 30,
    "opened_14days": (70, 140),
}


@pytest.mark.parametrize(
    ("days", "shown"),
    [
        (0, [10, 300, 900, 30, 50]),
        (1, [0, 290, 890, 29, 50]),
        (13, [0, 170, 770, 17, 50]),
        (14, [0, 160, 760, 16, 0]),
        (29, [0, 10, 610, 1, 0]),
        (30, [0, 0, 600, 0, 0]),
        (60, [0, 0, 300, 0, 0]),
        (89, [0, 0, 10, 0, 0]),
        (90, [0, 0, 0, 0, 0]),
    ],
)
def test_seeded_counts_leave_the_windows_day_by_day_also_of_an_earlier_day(days: int, shown: list[int]) -> None:
    fake = quiet_world()
    about = {**HISTORY, "avg_open_rate": (1, 4), "created_at": START - 90 * DAY}
    boxes = [fake.add_mailbox(SPACE, **about)]
    fake.advance(days=days)
    boxes.append(fake.add_mailbox(SPACE, **about, as_of=START))

    for item in (item for item in boxes_of(fake) if item["id"] in boxes):
        assert [item[name] for name in (*HISTORY, "avg_open_rate")] == [*shown, 25]


@pytest.mark.parametrize(
    ("days", "shown"),
    [
        (4, [300, 300, 30, 50]),  # the last e-mails of the mailbox's first day leave 14 days, 30 and 90 days after it
        (10, [300, 300, 30, 50]),
        (11, [285, 300, 28, 50]),
        (13, [255, 300, 25, 50]),
        (29, [15, 300, 1, 0]),
        (70, [0, 300, 0, 0]),
        (71, [0, 285, 0, 0]),
        (89, [0, 15, 0, 0]),
        (90, [0, 0, 0, 0]),
    ],
)
def test_seeded_counts_of_a_young_mailbox_leave_the_windows_by_its_age(days: int, shown: list[int]) -> None:
    fake = quiet_world(mailboxes=[])
    about = {**HISTORY, "sent_90days": 300, "created_at": START - 20 * DAY + 60}
    fake.add_mailbox(SPACE, **about)
    fake.advance(days=days)
    item = boxes_of(fake)[-1]
    assert [item[name] for name in ("sent_30days", "sent_90days", "bounced_30days", "opened_14days")] == shown


def test_a_seeded_percentage_is_weighted_by_the_seeded_counts() -> None:
    fake = quiet_world(10, mailboxes=[])
    bare = {
        "sent_today": 0,
        "sent_30days": 30,
        "sent_90days": 90,
        "opened_14days": 33.3,
        "avg_open_rate": 50,
        "avg_click_rate": 0,
    }
    box = fake.add_mailbox(SPACE, **bare)
    fake.set_campaign("camp_1", mailboxes=[box])
    assert [boxes_of(fake)[1][name] for name in bare] == list(bare.values())
    fake.advance()

    # 5 of 14, 45 of 90 and none of 90 before; ten more e-mails, not opened.
    assert [boxes_of(fake)[1][name] for name in bare] == [10, 40, 100, 20.83, 45, 0]


def test_the_bounce_and_open_rates_of_a_seeded_mailbox_do_not_rise_with_time() -> None:
    fake = quiet_world()
    fake.add_mailbox(SPACE, **NOTHING | {"sent_30days": 700, "bounced_30days": 3, "opened_14days": (33, 330)})
    for _ in range(29):
        fake.advance(days=1)
        item = boxes_of(fake)[1]
        assert item["bounced_30days"] / item["sent_30days"] <= 3 / 700
        assert item["opened_14days"] <= 10


DAMAGE: dict[str, Any] = {
    "sent_today": -1,
    "sent_30days": None,
    "sent_90days": 1.5,
    "bounced_30days": "3",
    "opened_14days": 101,
    "avg_open_rate": (3, 2),
    "avg_click_rate": True,
}


def test_impossible_seeded_values_are_kept() -> None:
    fake = quiet_world(5, mailboxes=[])
    box = fake.add_mailbox(SPACE, **DAMAGE, last_activity="?")
    fake.set_campaign("camp_1", mailboxes=[box])
    fake.advance(days=3)

    assert flow(fake) == [(0, 5, 5)]
    assert {name: boxes_of(fake)[1][name] for name in DAMAGE} == DAMAGE | {"avg_open_rate": 150}
    assert boxes_of(fake)[1]["last_activity"] == "?"


def test_t18_last_activity_is_when_anything_last_happened() -> None:
    fake = world_of_three(last_activity=START - 5 * DAY)
    fake.sim.script(ADA, opens_after="2h")
    assert (listed(fake)["last_activity"], rate(fake, "last_activity")) == ("5 days ago", "Never")
    fake.advance(hours=5)
    assert listed(fake)["last_activity"] == rate(fake, "last_activity") == "3 hours ago"


def test_p10_lists_by_last_activity_follow_the_simulation() -> None:
    fake = quiet_world(3, boxes=3)
    fake.behaviour = Behaviour(order="last_activity")
    boxes = [box["id"] for box in boxes_of(fake)]
    fake.add_campaign(SPACE, id="camp_2", last_activity=START + 10)
    fake.set_campaign("camp_1", mailboxes=boxes[2:])
    fake.advance(minutes=1)

    assert [item["id"] for item in document(page(fake, "/campaigns"))["data"]] == ["camp_2", "camp_1"]
    assert [box["id"] for box in boxes_of(fake)] == [boxes[2], *boxes[:2]]
    fake.add_contacts(SPACE, 1, campaign="camp_1")
    fake.advance()
    assert [item["id"] for item in document(page(fake, "/campaigns"))["data"]] == ["camp_1", "camp_2"]


# Templates and responses of contacts.


@pytest.mark.thorough
def test_t7_letters_alternate_and_a_random_share_is_personalised() -> None:
    fake = quiet_world(3000, limit=10**6, steps=["A|B|PER|C", "PER", {"templates": ["A", {"test_letter": "PER"}, "PER"]}])
    fake.advance(days=10)
    first, second, third = ([t["sent"] for t in step["templates"]] for step in steps(fake, "camp_1")["data"])

    assert max(first[0], first[1], first[3]) - min(first[0], first[1], first[3]) <= 1
    assert 690 < first[2] < 810
    assert second == [3000]
    assert 1900 < third[1] + third[2] < 2100
    assert abs(third[1] - third[2]) <= 1


def test_t7_letters_continue_from_the_seeded_counts() -> None:
    fake = quiet_world(2, steps=[{"templates": "A|B|C", "sent": 4}])
    fake.advance()
    assert [template["sent"] for template in steps(fake, "camp_1")["data"][0]["templates"]] == [2, 2, 2]


@pytest.mark.thorough
def test_contacts_respond_at_the_documented_rates_by_default() -> None:
    fake = quiet_world(6000, limit=10**6, steps=["A"], rates=None)
    fake.advance(days=9)
    (template,), item = steps(fake, "camp_1")["data"][0]["templates"], listed(fake)

    assert template["sent"] == 6000
    assert 48 < template["opened"] < 51
    assert 4.4 < template["clicked"] < 5.6
    assert 5.2 < template["replied"] < 6.6
    assert 0.6 < template["unsubscribed"] < 1.4
    assert 0.3 < item["bounces"] < 0.9
    assert 0.2 < item["interested_num"] / item["replies_num"] < 0.4


@pytest.mark.parametrize(
    ("rates", "counts"),
    [
        ({"reply": 1, "bounce": 0}, (40, 40, 0)),
        ({"unsubscribe": 1, "bounce": 0, "reply": 0}, (40, 0, 40)),
        ({"bounce": 1}, (0, 0, 0)),
        ({"open": 1, "bounce": 0, "reply": 0, "unsubscribe": 0}, (40, 0, 0)),
    ],
)
def test_a_reply_or_unsubscription_implies_an_open(rates: dict[str, float], counts: tuple[int, ...]) -> None:
    fake = quiet_world(40, rates=rates)
    fake.advance(days=9)
    ((template,),) = (step["templates"] for step in steps(fake, "camp_1")["data"])
    assert (template["opened_num"], template["replied_num"], template["unsubscribed_num"]) == counts
    assert listed(fake)["bounces_num"] == (40 if rates["bounce"] else 0)


def test_templates_may_have_their_own_rates_and_rates_may_change() -> None:
    fake = quiet_world(20, steps=[{"templates": ["A", {"rates": {"open": 1}}]}])
    fake.advance(days=5)
    assert [template["opened_num"] for template in steps(fake, "camp_1")["data"][0]["templates"]] == [0, 10]
    fake.set_campaign("camp_1", rates={"open": 1.0})
    fake.add_contacts(SPACE, 20, campaign="camp_1")
    fake.advance(days=5)

    assert [template["opened_num"] for template in steps(fake, "camp_1")["data"][0]["templates"]] == [10, 20]


@pytest.mark.parametrize(
    ("rates", "error", "message"),
    [
        ({"opens": 0.5}, TypeError, r"rates has no field 'opens'; did you mean open\?"),
        ({"open": "half"}, TypeError, "rates: expected a number for open, got str"),
        ({"open": True}, TypeError, "rates: expected a number for open, got bool"),
        ({"open": 1.5}, ValueError, r"rates: expected a number from 0 to 1 for open, got 1.5"),
        (0.5, TypeError, "rates: expected a mapping, got float"),
    ],
)
def test_invalid_rates_are_refused(rates: Any, error: type[Exception], message: str) -> None:
    fake = quiet_world()
    before = fake.dump()
    calls: list[Callable[[], Any]] = [
        lambda: fake.set_campaign("camp_1", rates=rates),
        lambda: fake.add_campaign(SPACE, rates=rates),
        lambda: fake.add_campaign(SPACE, steps=[{"templates": [{"rates": rates}]}]),
    ]

    for call in calls:
        with pytest.raises(error, match=message):
            call()
    assert fake.dump() == before


# Scripts.


def test_a_script_sets_when_a_contact_opens_and_replies() -> None:
    fake = world_of_three(steps=["A", {"wait_time": 48 * HOUR_MS}], rates=None)
    fake.sim.script(ADA, step=1, opens_after="2h", replies_after="1d", interested=True)
    for email in (BO, CY):
        fake.sim.script(email)
        fake.sim.script(email, 2, opens_after=timedelta(hours=1), clicks_after=7200)
    log = watched(fake)
    fake.advance(hours=1.999)
    assert listed(fake)["opens_num"] == 0
    fake.advance(days=5)
    ada, bo, cy = (contact["id"] for contact in fake.contacts(SPACE))

    assert log_entries(log, "opened") == [(2.0, ada, 1), (49.0, bo, 2), (49.0, cy, 2)]
    assert log_entries(log, "interested") == [(24.0, ada, 1)]
    assert log_entries(log, "clicked") == [(50.0, bo, 2), (50.0, cy, 2)]
    assert flow(fake) == [(0, 3, 3), (0, 2, 2)]
    assert [listed(fake)[name] for name in ("replies_num", "interested_num", "bounces_num")] == [1, 1, 0]


@pytest.mark.parametrize(
    ("how", "kind"), [("replies_after", "replied"), ("unsubscribes_after", "unsubscribed"), ("bounces_after", "bounced")]
)
def test_contacts_that_reply_unsubscribe_or_bounce_get_no_more_emails(how: str, kind: str) -> None:
    fake = world_of_three(steps=["A", {"wait_time": 2 * HOUR_MS}, {"wait_time": 2 * HOUR_MS}])
    arguments: dict[str, Any] = {how: "3h"}
    fake.sim.script(ADA, **arguments)
    fake.sim.script(ADA, 2, **arguments)
    log = watched(fake)
    fake.advance(hours=2.5)
    assert flow(fake) == [(0, 3, 3), (0, 3, 3), (3, 0, 3)]
    fake.advance(hours=0.5)
    assert flow(fake) == [(0, 3, 3), (0, 3, 3), (2, 0, 2)]
    fake.advance(days=5)

    # The second e-mail was already sent, and no contact leaves twice.
    assert flow(fake) == [(0, 3, 3), (0, 3, 3), (0, 2, 2)]
    assert [step for _, _, step in log_entries(log, kind)] == [1]
    assert len(log_entries(log, "opened")) == (kind != "bounced") * 2


@pytest.mark.parametrize(
    ("how", "who", "second"), [("replies_after", (ADA, CY), (0, 1, 1)), ("unsubscribes_after", (ADA, BO, CY), (0, 0, 0))]
)
def test_contacts_that_leave_while_waiting_for_capacity_are_skipped(how: str, who: Any, second: tuple[int, int, int]) -> None:
    fake = world_of_three(limit=3, steps=["A", {"wait_time": HOUR_MS}])
    arguments: dict[str, Any] = {how: "2h"}
    for email in who:
        fake.sim.script(email, **arguments)
    fake.advance(days=3)

    assert flow(fake) == [(0, 3, 3), second]
    assert listed(fake)["days_left_date"] == "Complete"


def test_a_script_may_be_for_a_campaign_an_id_or_a_future_contact() -> None:
    fake = world_of_three()
    fake.add_campaign(SPACE, id="camp_2", status="live", mailboxes=[boxes_of(fake)[0]["id"]], steps=["A"], rates=SILENT)
    ids = [contact["id"] for contact in fake.contacts(SPACE)]
    fake.sim.script(ids[1], campaign="camp_1", opens_after="1h")
    fake.sim.script(" DEE@acme.example ", opens_after="1h")
    fake.sim.script("dee@acme.example", campaign="camp_2", opens_after="2h")
    log = watched(fake)
    for campaign in ("camp_1", "camp_2"):
        for email in (BO, "Dee@acme.example"):
            create(fake, email, campaign=campaign, duplicates="overwrite")
    fake.advance(days=1)
    dee = fake.contacts(SPACE)[3]["id"]

    assert [(entry.at - START, entry.campaign, entry.contact) for entry in log if entry.kind == "opened"] == [
        (3600, "camp_1", ids[1]),
        (3600, "camp_1", dee),
        (7200, "camp_2", dee),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"interested": True}, "interested: expected replies_after"),
        ({"bounces_after": "1h", "opens_after": "1h"}, "bounces_after: expected no other reaction"),
        ({"replies_after": "1h", "unsubscribes_after": "1h"}, "each ends the campaign for the contact"),
        ({"replies_after": "1h", "opens_after": "2h"}, "opens_after: expected a time no later than any other reaction"),
        ({"step": 0}, "the first step is 1"),
        ({"campaign": "camp_9"}, "there is no campaign 'camp_9'"),
        ({"contact": "contact_9"}, "there is no contact 'contact_9'"),
        ({"contact": " "}, "contact: expected a non-blank string"),
        (
            {"opens_after": "soon"},
            "opens_after: expected a span of time such as 90s, 2h or 1d12h, of at least 0 seconds, got 'soon'",
        ),
    ],
)
def test_an_invalid_script_is_refused(arguments: dict[str, Any], message: str) -> None:
    fake = world_of_three()
    with refusing(fake, ValueError, message):
        fake.sim.script(**{"contact": ADA} | arguments)


@pytest.mark.parametrize(
    ("span", "expected"),
    [("2h", 7200), ("1d12h", 129_600), ("1.5m", 90), ("250ms", 0.25), ("1w", 604_800), (2.5, 2.5), (timedelta(days=1), 86_400)],
)
def test_spans_are_strings_seconds_or_timedeltas(span: Any, expected: float) -> None:
    fake = FakeService()
    fake.sim.script(ADA, opens_after=span)
    assert json.loads(fake.dump())["scripts"] == [{"contact": ADA, "opens_after": expected}]


@pytest.mark.parametrize("span", ["", "2", "2 h", "-2h", -1, float("nan"), float("inf"), timedelta(seconds=-1), True, []])
def test_an_invalid_span_is_refused(span: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^opens_after: expected a span of time"):
        FakeService().sim.script(ADA, opens_after=span)


# Running clocks and seeded contacts.


def running(count: int = 0) -> tuple[FakeService, list[float]]:
    time = [float(START)]
    return quiet_world(count, clock=lambda: time[0], steps=["A", {"wait_time": HOUR_MS}]), time


def test_with_a_running_clock_each_request_sees_events_due_by_then() -> None:
    fake, time = running(2)
    assert flow(fake) == [(0, 2, 2), (2, 0, 2)]
    time[0] += 3599.999
    assert flow(fake) == [(0, 2, 2), (2, 0, 2)]
    time[0] += 0.001
    assert flow(fake) == [(0, 2, 2), (0, 2, 2)]
    create(fake, ADA, campaign="camp_1")
    fake.advance(hours=1)

    assert flow(fake) == [(0, 3, 3), (0, 3, 3)]


def test_with_a_running_clock_changes_come_after_earlier_events() -> None:
    fake, time = running(1)
    time[0] += 60
    fake.set_campaign("camp_1", status="paused")
    assert flow(fake) == [(0, 1, 1), (1, 0, 1)]
    fake.add_contacts(SPACE, 1, campaign="camp_1")
    time[0] += 7200

    assert flow(fake) == [(1, 1, 2), (2, 0, 2)]


def test_seeded_contacts_that_are_not_stored_proceed_too() -> None:
    arguments: list[Any] = [
        {"left_to_send": 2, "templates": [{"sent": 9}]},
        {"left_to_send": 5, "templates": [{"sent": 3}], "wait_time": 48 * HOUR_MS},
        {"left_to_send": 1},
    ]
    fake = quiet_world(steps=arguments)
    log = watched(fake)
    fake.advance(hours=24)
    halfway = flow(fake)
    fake.advance(days=9)

    # Two start. Three are between steps and have already waited for part of the time. Only one continues to step 3.
    assert halfway[0] == (0, 11, 11)
    assert 0 < halfway[1][0] <= 5
    assert flow(fake) == [(0, 11, 11), (0, 8, 8), (0, 1, 1)]
    assert sorted(step for _, _, step in log_entries(log)) == [1, 1, 2, 2, 2, 2, 2, 3]
    assert all(0 < time <= 48 for time, _, step in log_entries(log) if step == 2)
    assert len({time for time, _, step in log_entries(log) if step == 2}) >= 3


def test_events_due_before_the_world_was_created_happen_at_its_creation() -> None:
    fake = FakeService()
    contact = {"email": ADA, "campaigns": [{"id": "camp_1", "at": START - 9 * DAY}]}
    campaign = {"id": "camp_1", "status": "live", "mailboxes": ["mailbox_1"], "steps": ["A"], "rates": {"open": 0}}
    fake.load(
        {
            "workspaces": [
                {"id": SPACE, "mailboxes": [{"id": "mailbox_1", **NOTHING}], "campaigns": [campaign], "contacts": [contact]}
            ]
        }
    )
    log = watched(fake)
    fake.advance()

    assert [entry.at for entry in log if entry.kind == "sent"] == [START]
    assert rate(fake, "sent_today") == 1


# State.


def test_a_snapshot_shares_unchanged_parts() -> None:
    fake = quiet_world(50, boxes=2)
    fake.advance()
    flows, ledgers = fake._world.simulation.flows, fake._world.simulation.stats
    snapshot = fake.snapshot()._world.simulation

    assert snapshot.flows["camp_1"] is flows["camp_1"]
    assert [snapshot.stats[id_] is ledgers[id_] for id_ in ledgers] == [True, True]
    before = copy.deepcopy(snapshot.flows)
    fake.add_contacts(SPACE, 3, campaign="camp_1")
    fake.advance(days=2)
    assert snapshot.flows["camp_1"] is not flows["camp_1"]
    assert snapshot.flows == before


def bad(change: Callable[[Any], Any]) -> dict[str, Any]:
    fake = quiet_world(5, limit=2, steps=["A|B", "A"], rates={"open": 1})
    fake.sim.script(ADA, opens_after="1h")
    fake.advance(hours=1)
    fake.add_contacts(SPACE, 1, campaign="camp_1")
    document: dict[str, Any] = json.loads(fake.dump())
    change(document["simulation"])
    return document


BAD: list[tuple[Callable[[Any], Any], str]] = [
    (lambda sim: sim.pop("events"), "missing required field `events`"),
    (lambda sim: sim["campaigns"].update(camp_9=sim["campaigns"]["camp_1"]), "the world has no record with the id 'camp_9'"),
    (
        lambda sim: sim["mailboxes"].update(mailbox_9=next(iter(sim["mailboxes"].values()))),
        "the world has no record with the id 'mailbox_9'",
    ),
    (lambda sim: sim["campaigns"]["camp_1"].update(counts=[]), "expected counts and left_to_send of each step"),
    (lambda sim: sim["campaigns"]["camp_1"]["left_to_send"].append(1), "expected counts and left_to_send of each step"),
    (lambda sim: next(iter(sim["mailboxes"].values()))["sent"].update({"1": -1}), "expected `int` >= 0"),
    (lambda sim: sim["events"].append([]), "expected `array` of length 7 to 10, got 0"),
    (lambda sim: sim["events"][0].__setitem__(1, 9), "expected a kind from 0 to 6"),
    (lambda sim: sim["events"][0].__setitem__(4, 7), "expected step and template to be indexes in the campaign"),
    (lambda sim: sim["events"][0].__setitem__(8, 7), "expected step and template to be indexes in the campaign"),
    (lambda sim: sim["events"][0].__setitem__(7, "mailbox_9"), "the world has no record with the id 'mailbox_9'"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_a_simulation_that_does_not_match_its_world_is_refused(change: Callable[[Any], Any], message: str) -> None:
    fake = FakeService()
    fake.load(bad(lambda _: None))
    with refusing(fake, WorldError, rf"\$\.simulation.*{re.escape(message)}"):
        fake.load(bad(change))


def edited(fake: FakeService, change: Callable[[Any], Any]) -> FakeService:
    """Return a fake with the world of another fake, changed in its file as a person would."""
    world = json.loads(fake.dump())
    change(world["workspaces"][0])
    other = FakeService()
    other.load(world)
    return other


def test_scripts_can_be_written_in_a_file_and_survive_it() -> None:
    fake = world_of_three(steps=["A", {"wait_time": 24 * HOUR_MS}])
    fake.sim.script(ADA, opens_after=0.25, replies_after="1h", interested=True)
    fake.sim.script(BO, 2, campaign="camp_1", clicks_after="2h", unsubscribes_after="3h")
    fake.sim.script(CY, bounces_after=0)
    world = json.loads(fake.dump())
    assert world["scripts"] == [
        {"contact": ADA, "opens_after": 0.25, "replies_after": 3600.0, "interested": True},
        {
            "contact": BO,
            "step": 2,
            "campaign": "camp_1",
            "opens_after": 7200.0,
            "clicks_after": 7200.0,
            "unsubscribes_after": 10800.0,
        },
        {"contact": CY, "bounces_after": 0.0},
    ]
    world["scripts"][0] = {"contact": ADA, "replies_after": "1h"}
    other = FakeService()
    other.load(world)
    assert json.loads(other.dump())["scripts"][0] == {"contact": ADA, "opens_after": 3600.0, "replies_after": 3600.0}
    other.advance(days=2)

    assert [listed(other)[name] for name in ("opens_num", "replies_num", "interested_num", "bounces_num")] == [2, 1, 0, 1]
    assert flow(other) == [(0, 3, 3), (0, 1, 1)]


def test_a_contact_added_to_the_file_of_a_started_campaign_joins_it() -> None:
    fake = world_of_three(steps=["A", {"wait_time": HOUR_MS}])
    fake.advance(hours=5)
    new = {"email": "dee@acme.example", "campaigns": [{"id": "camp_1", "at": START}]}
    other = edited(fake, lambda space: space["contacts"].append(new))
    log = watched(other)
    assert flow(other) == [(1, 3, 4), (1, 3, 4)]
    other.advance(days=1)

    dee = other.contacts(SPACE)[3]["id"]
    assert log_entries(log) == [(5.0, dee, 1), (6.0, dee, 2)]
    assert flow(other) == [(0, 4, 4), (0, 4, 4)]


@pytest.mark.parametrize("steps", [["A"], [], [{"status": "stopped"}]])
def test_a_contact_that_a_started_campaign_knows_does_not_join_it_again(steps: list[Any]) -> None:
    fake = world_of_three(limit=1, steps=steps)
    fake.sim.script(ADA, bounces_after=0)
    fake.advance()
    fake.add_contacts(SPACE, 1, campaign="camp_1")
    other = FakeService()
    for hours in (0, 30, 300):
        other.load(fake.dump())
        for each in (fake, other):
            each.advance(hours=hours)
        assert other.dump() == fake.dump()


def test_an_edited_limit_or_status_takes_effect_at_once() -> None:
    fake = world_of_three(limit=1)
    fake.advance()
    assert flow(fake) == [(2, 1, 3)]
    other = edited(fake, lambda space: space["mailboxes"][0].update(daily_limit=2))
    other.advance()
    assert flow(other) == [(1, 2, 3)]
    fake.set_campaign("camp_1", status="paused")
    fake.advance(days=2)
    other = edited(fake, lambda space: space["campaigns"][0].update(status="live"))
    other.advance()
    assert flow(other) == [(1, 2, 3)]


# Invalid changes.


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda fake: fake.set_campaign("camp_9", status="live"), ValueError, "there is no campaign 'camp_9'"),
        (lambda fake: fake.set_campaign("camp_1", status=" "), ValueError, "status: expected a non-blank string"),
        (lambda fake: fake.set_campaign("camp_1", mailboxes=["mailbox_9"]), ValueError, "has no mailbox 'mailbox_9'"),
        (lambda fake: fake.set_mailbox("mailbox_9", daily_limit=1), ValueError, "there is no mailbox 'mailbox_9'"),
        (lambda fake: fake.set_mailbox(boxes_of(fake)[0]["id"], sent_today=1), TypeError, "field 'sent_today' of a mailbox"),
        (lambda fake: fake.set_mailbox(boxes_of(fake)[0]["id"], status={1}), TypeError, "not JSON serializable"),
    ],
)
def test_an_invalid_change_is_refused_and_changes_nothing(
    call: Callable[[FakeService], Any], error: type[Exception], message: str
) -> None:
    fake = world_of_three()
    with refusing(fake, error, message):
        call(fake)


def test_replies_arrive_while_a_campaign_is_paused() -> None:
    fake = world_of_three(steps=["A", "A"])
    fake.sim.script(ADA, opens_after="1h", replies_after="2d")
    fake.advance()
    fake.set_campaign("camp_1", status="paused")
    fake.advance(days=5)
    assert flow(fake) == [(0, 3, 3), (2, 0, 2)]
    fake.set_campaign("camp_1", status="live")
    fake.advance()

    assert flow(fake) == [(0, 3, 3), (0, 2, 2)]
    assert listed(fake)["replies_num"] == 1


def test_responses_to_different_steps_are_independent() -> None:
    fake = quiet_world(300, limit=10**6, steps=["A", "A"], rates=SILENT | {"open": 0.5})
    log = watched(fake)
    fake.advance(days=9)
    opened = {step: {who for _, who, place in log_entries(log, "opened") if place == step} for step in (1, 2)}

    assert 120 < len(opened[1]) < 180
    assert 50 < len(opened[1] & opened[2]) < 100
