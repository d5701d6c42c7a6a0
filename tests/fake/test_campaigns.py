from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.fake import SPACE, START, create, page, refusing, small_world, steps
from support.simulation import flow, listed

from outreach_async.fake import Behaviour, FakeService

DAY_MS = 86_400_000

ANSWERED = {"sent": 9, "opened_num": 6, "clicked_num": 2, "replied_num": 3, "unsubscribed_num": 1}


def world(**readings: Any) -> FakeService:
    fake = FakeService(behaviour=Behaviour(**readings))
    fake.add_workspace(SPACE, custom_fields=["Plan"])
    fake.add_owner_key(SPACE, key="key_1")
    return fake


@pytest.mark.parametrize("templates", [[], (), "", " ", None, 3, {}, {"test_letter": "A"}])
def test_a_step_with_an_empty_list_of_templates_is_refused(templates: Any) -> None:
    message = (
        f"steps[1].templates: expected one or more templates, got {templates!r}; "
        "pass letters such as A|B or a list of templates, or omit the key for a step with one template"
    )
    fake = world()
    with refusing(fake, (TypeError, ValueError), f"^{re.escape(message)}$"):
        fake.add_campaign(SPACE, steps=["A", {"templates": templates}])


def test_t6_only_the_first_template_of_a_thread_has_a_subject() -> None:
    fake = world()
    follow_ups = ["A", {"new_thread": True}, {"new_thread": True, "subject": "Again", "body_text": None}, "PER"]
    camp = fake.add_campaign(SPACE, steps=["A|PER", {"templates": follow_ups}])
    first, second = steps(fake, camp)["data"]

    assert [(entry["test_letter"], entry["new_thread"], entry["subject"]) for entry in first["templates"]] == [
        ("A", True, "A question, {{first_name}}"),
        ("PER", None, None),
    ]
    assert [(entry["test_letter"], entry["new_thread"], entry["subject"]) for entry in second["templates"]] == [
        ("A", False, None),
        ("B", True, "A question, {{first_name}}"),
        ("C", True, "Again"),
        ("PER", None, None),
    ]
    assert second["templates"][2]["body_text"] is None


def test_t7_letters_are_in_order_and_emails_are_distributed_in_turn() -> None:
    fake = world()
    camp = fake.add_campaign(SPACE, steps=[{"templates": "A|B|C|PER", "sent": 10}])
    templates = steps(fake, camp)["data"][0]["templates"]
    assert [(template["test_letter"], template["sent"]) for template in templates] == [("A", 3), ("B", 3), ("C", 2), ("PER", 2)]
    assert [template["id"].rpartition("_")[0] for template in templates] == ["temp", "temp", "temp", "personalized_step"]


def test_t8_percentages_are_counts_over_sent_with_two_decimals() -> None:
    fake = world()
    camp = fake.add_campaign(SPACE, steps=[{"templates": [ANSWERED]}], bounces_num=2, interested_num=1)
    (template,) = steps(fake, camp)["data"][0]["templates"]
    shown = listed(fake, camp)

    assert [template[name] for name in ("opened", "clicked", "replied", "unsubscribed")] == [66.67, 22.22, 33.33, 11.11]
    assert [shown[name] for name in ("opens", "replies", "bounces", "interested")] == [66.67, 33.33, 22.22, 11.11]
    assert [shown[name] for name in ("opens_num", "replies_num", "bounces_num", "interested_num", "initials")] == [6, 3, 2, 1, 9]


@given(st.integers(0, 10**6), st.integers(1, 10**6), st.sampled_from([0, 1, 2]))
@example(1, 200, 0)
@example(3, 200, 0)
@example(3, 2000, 1)
def test_t8_percentages_are_rounded_half_to_even(n: int, of: int, digits: Literal[0, 1, 2]) -> None:
    fake = world(numbers="float", percent_digits=digits)
    camp = fake.add_campaign(SPACE, steps=[{"templates": [{"sent": of, "opened_num": min(n, of)}]}])
    shown = steps(fake, camp)["data"][0]["templates"][0]["opened"]
    assert Fraction(str(shown)) == round(Fraction(100 * min(n, of), of), digits)


@pytest.mark.parametrize(("numbers", "expected"), [("int_when_whole", {int}), ("float", {float}), ("mixed", {int, float})])
def test_w9_whole_percentages_are_integers_floats_or_either(numbers: Any, expected: set[type]) -> None:
    fake = world(numbers=numbers)
    camp = fake.add_campaign(SPACE, steps=[{"templates": [{"sent": 4, "opened_num": 2, "clicked_num": 1}] * 12}])
    templates = steps(fake, camp)["data"][0]["templates"]
    found = [template[name] for template in templates for name in ("opened", "clicked", "replied")]

    assert (set(found), {type(number) for number in found}) == ({50, 25, 0}, expected)
    assert page(fake, "/campaigns").body == page(fake, "/campaigns").body


def test_t3_and_t4_contacts_that_left_early_get_no_later_step() -> None:
    fake = world()
    arguments = [{"sent": 10, "opened_num": 6, "replied_num": 3, "unsubscribed_num": 1}, {"sent": 3}]
    camp = fake.add_campaign(SPACE, contacts=14, bounces_num=1, steps=[{"templates": [counts]} for counts in arguments])
    # Four contacts wait for step 1. Of the ten that got it, five left, three got step 2, and two wait for step 2.
    assert flow(fake, camp) == [(4, 10, 14), (6, 3, 9)]


def test_t1_and_t3_left_to_send_and_the_wait_in_milliseconds_may_be_set() -> None:
    fake = world()
    later = [{"left_to_send": 1, "wait_time": 5}, {"left_to_send": 1}]
    camp = fake.add_campaign(SPACE, steps=[{"left_to_send": 2, "templates": [{"sent": 3}]}, *later])

    assert flow(fake, camp) == [(2, 3, 5), (1, 0, 1), (1, 0, 1)]
    assert listed(fake, camp)["contacts"] == 5
    assert [step["wait_time"] for step in steps(fake, camp)["data"]] == [0, 5, 3 * DAY_MS]


def test_t5_enrolling_adds_one_to_contacts_and_to_left_to_send_of_every_step() -> None:
    fake = world()
    camp = fake.add_campaign(SPACE, contacts=10, steps=[{"templates": [{"sent": 4}]}, "A"])
    before, shown = flow(fake, camp), listed(fake, camp)
    create(fake, "a@b.co", campaign=camp)
    create(fake, "c@b.co", campaign=camp)

    assert flow(fake, camp) == [(left + 2, sent, whole + 2) for left, sent, whole in before]
    assert listed(fake, camp) == shown | {"contacts": shown["contacts"] + 2}


DISAGREEING: list[dict[str, Any]] = [
    {"steps": [{"templates": [{"sent": 1, "opened_num": 2}]}]},
    {"steps": [{"templates": [{"sent": 5, "opened_num": 2, "replied_num": 3}]}]},
    {"steps": [{"templates": [{"sent": -1}]}]},
    {"steps": [{"templates": [{"sent": 5}]}], "contacts": 4},
    {"steps": [{"templates": [{"sent": 5}]}], "contacts": 6, "bounces_num": 6},
    {"steps": [{"templates": [{"sent": 5}]}, {"templates": [{"sent": 6}]}]},
    {"steps": [{"left_to_send": 5}, {"left_to_send": 6}]},
    {"steps": [{"left_to_send": 5}], "contacts": 4},
    {"steps": [{"wait_time": 3650 * DAY_MS + 1}]},
    {"steps": [{"sent": 5, "templates": [{"sent": 5}]}]},
    {"interested_num": 1},
    {"interested_num": -1},
    {"bounces_num": 1},
    {"contacts": -1},
    {"steps": ["A", {"templates": [{"subject": "x"}]}]},
    {"steps": [{"templates": [{"test_letter": "PER", "subject": "x"}]}]},
    {"steps": [{"templates": [{"test_letter": "PER", "new_thread": False}]}]},
    {"name": " "},
    {"mailboxes": ["mailbox_9"]},
    {"id": "space_9"},
    {"id": "camp_"},
]


@pytest.mark.parametrize("arguments", DISAGREEING, ids=str)
def test_inconsistent_counts_are_refused_and_change_nothing(arguments: dict[str, Any]) -> None:
    fake = small_world()
    with refusing(fake, ValueError, r"."):
        fake.add_campaign(SPACE, **{"id": "camp_5"} | arguments)
    assert fake.add_campaign(SPACE, id="camp_5") == "camp_5"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": [{"wait": 5}]}, r"a step has no field 'wait'; did you mean wait_time\?"),
        ({"steps": [{"templates": [{"open_num": 5}]}]}, r"a template has no field 'open_num'; did you mean opened_num\?"),
        ({"steps": [{"zzz": 5}]}, "a step has no field 'zzz'; expected one of id, status"),
        ({"steps": [{"wait_time": "3d"}]}, "wait_time: expected an integer, got str"),
        ({"steps": [{"sent": 1.5}]}, "sent: expected an integer, got float"),
        ({"contacts": True}, "contacts: expected an integer, got bool"),
        ({"name": None}, "name: expected a string, got NoneType"),
        ({"interested_num": "1"}, "interested_num: expected an integer, got str"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        small_world().add_campaign(SPACE, **arguments)


def test_a_campaign_uses_mailboxes_of_its_own_workspace() -> None:
    fake = small_world()
    with pytest.raises(ValueError, match="has no mailbox"):
        fake.add_campaign(SPACE, mailboxes=[fake.add_mailbox("space_2")])


def ending(fake: FakeService, camp: str) -> tuple[Any, Any, Any]:
    shown, answered = listed(fake, camp), steps(fake, camp)
    assert (shown["days_left"], shown["days_left_display"]) == (answered["days_left"], answered["days_left_display"])
    return answered["days_left"], answered["days_left_date"], answered["days_left_display"]


ESTIMATES: list[tuple[int, dict[str, Any], tuple[int, str, str]]] = [
    # 30 e-mails at 20 per day, then the longer of a little over two days of waiting and of 30 more e-mails.
    (2, {"contacts": 30, "steps": ["A", {"wait_time": 2 * DAY_MS + 1}]}, (4, "Jan 5, 2026", "4 days")),
    (2, {"contacts": 90, "steps": ["A", {"wait_time": 2 * DAY_MS + 1}]}, (9, "Jan 10, 2026", "9 days")),
    # The wait of the first step starts at enrolment. It does not count if nobody waits for the step.
    (1, {"contacts": 10, "steps": [{"wait_time": 3 * DAY_MS}, {"wait_time": DAY_MS}]}, (5, "Jan 6, 2026", "5 days")),
    (
        1,
        {"steps": [{"wait_time": 9 * DAY_MS, "sent": 10}, {"left_to_send": 10, "wait_time": 2 * DAY_MS}]},
        (2, "Jan 3, 2026", "2 days"),
    ),
    (9, {"contacts": 1, "steps": ["A"]}, (1, "Jan 2, 2026", "1 day")),
    (1, {"steps": [{"templates": [{"sent": 3}]}]}, (0, "Complete", "Complete")),
]


@pytest.mark.parametrize(("boxes", "fields", "end"), ESTIMATES)
def test_t12_to_t14_days_are_each_steps_wait_or_sending_if_longer(boxes: int, fields: Any, end: tuple[Any, ...]) -> None:
    fake = world()
    mailboxes = fake.add_mailboxes(SPACE, boxes, daily_limit=10)
    assert ending(fake, fake.add_campaign(SPACE, status="live", mailboxes=mailboxes, **fields)) == end


def test_t13_b5_and_t17_live_campaigns_share_a_limit_others_are_estimated() -> None:
    fake = world()
    boxes = fake.add_mailboxes(SPACE, 1, daily_limit=10)
    camps = [
        fake.add_campaign(SPACE, status=status, mailboxes=[*boxes, *boxes], contacts=10, steps=["A"])
        for status in ("live", "live", "paused", "draft")
    ]

    assert [ending(fake, camp)[0] for camp in camps] == [2, 2, 3, 3]


def test_t13_a_finished_campaign_leaves_its_part_of_the_limit_until_it_reopens() -> None:
    fake = world()
    boxes = fake.add_mailboxes(SPACE, 1, daily_limit=10, sent_today=0)
    silent: dict[str, Any] = {"status": "live", "mailboxes": boxes, "rates": {"bounce": 0, "open": 0, "click": 0, "reply": 0}}
    other = fake.add_campaign(SPACE, steps=["A", {"wait_time": DAY_MS}], **silent)
    fake.sim.script("ann@company.example", campaign=other, bounces_after=1)
    fake.add_contacts(SPACE, [{"email": "ann@company.example"}], campaign=other)
    camp = fake.add_campaign(SPACE, contacts=100, steps=["A"], **silent)

    def days_after(hours: int) -> int:
        fake.advance(hours=hours)
        days: int = ending(fake, camp)[0]
        return days

    shown = [days_after(0), days_after(1)]
    fake.add_contacts(SPACE, [{"email": "bob@company.example"}], campaign=other)
    shown += [days_after(0), days_after(99)]

    assert shown == [19, 10, 19, 6]  # a bounce ended the other campaign, and later its last e-mail


@pytest.mark.parametrize("limits", [[], [0], [-5], ["damaged"]])
def test_t15_without_an_active_mailbox_the_end_is_unknown(limits: list[Any]) -> None:
    fake = world()
    boxes = [fake.add_mailbox(SPACE, daily_limit=limit) for limit in limits]
    camp = fake.add_campaign(SPACE, status="live", mailboxes=boxes, contacts=5, steps=["A"])
    assert ending(fake, camp) == (9999, "Unknown", "Unknown")


@pytest.mark.parametrize(("list_date", "kinds"), [("timestamp", {int}), ("text", {str}), ("mixed", {int, str})])
def test_t16_dates_in_the_list_are_unix_seconds_strings_or_either(list_date: Any, kinds: set[type]) -> None:
    fake = world(list_date=list_date)
    boxes = fake.add_mailboxes(SPACE, 1)
    camps = [fake.add_campaign(SPACE, mailboxes=boxes, contacts=100, steps=["A"]) for _ in range(12)]
    dates = [listed(fake, camp)["days_left_date"] for camp in camps]

    assert set(dates) <= {START + 3 * 86400, "Jan 4, 2026"}
    assert {type(date) for date in dates} == kinds


@pytest.mark.parametrize("list_date", ["timestamp", "text", "mixed"])
@pytest.mark.parametrize(
    ("contacts", "sent", "word"),
    [(5, 0, "Unknown"), (0, 0, "Not started"), (3, 3, "Complete")],
    ids=["no mailbox", "none", "all"],
)
def test_t14_and_t16_the_list_has_the_word_of_the_steps_where_there_is_no_date(
    contacts: int, sent: int, word: str, list_date: Any
) -> None:
    fake = world(list_date=list_date)
    camps = [fake.add_campaign(SPACE, contacts=contacts, steps=[{"templates": [{"sent": sent}]}]) for _ in range(6)]
    assert {listed(fake, camp)["days_left_date"] for camp in camps} == {word}
    assert {steps(fake, camp)["days_left_date"] for camp in camps} == {word}


DAY = 86_400


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (-5, "just now"),
        (59.9, "just now"),
        (60, "1 minute ago"),
        (59 * 60, "59 minutes ago"),
        (3600, "1 hour ago"),
        (DAY - 1, "23 hours ago"),
        (DAY, "1 day ago"),
        (29 * DAY, "29 days ago"),
        (30 * DAY, "1 month ago"),
        (364 * DAY, "11 months ago"),
        (365 * DAY, "1 year ago"),
        (900 * DAY, "2 years ago"),
    ],
)
def test_t18_times_are_given_in_their_largest_whole_unit(passed: float, words: str) -> None:
    fake = world()
    camp = fake.add_campaign(SPACE, last_activity=START - passed)
    assert listed(fake, camp)["last_activity"] == words


def test_t18_seeded_emails_were_sent_recently_by_default() -> None:
    fake = world()
    camps = [fake.add_campaign(SPACE, created=0, steps=[{"sent": 5}], last_activity=activity) for activity in ("auto", None, 0)]
    assert re.fullmatch(r"just now|\d+ (minute|hour)s? ago", listed(fake, camps[0])["last_activity"])
    assert [listed(fake, camp)["last_activity"] for camp in camps[1:]] == ["Never", "56 years ago"]


def test_t19_an_unobserved_status_can_be_seeded() -> None:
    fake = world()
    camp = fake.add_campaign(
        SPACE, status="archived", steps=[{"status": "stopped", "templates": [{"status": "error", "test_letter": "Z"}]}]
    )
    (step,) = steps(fake, camp)["data"]

    assert (listed(fake, camp)["status"], step["status"], step["templates"][0]["status"]) == ("archived", "stopped", "error")
