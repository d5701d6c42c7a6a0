"""The plan of a workspace: ranges that hold, what limits campaigns, what-ifs, and how earlier plans have held."""

from __future__ import annotations

import re
from datetime import date
from operator import le
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit import mailbox
from support.audit_reports import finding, make_report
from support.campaigns import DAY, campaign, case, judged, step, template
from support.cli import Shell
from support.examples import scaled
from support.fake import SPACE
from support.plans import OTHER_RULES, RULES, Drawn, draw_world, read
from support.simulation import NOTHING, SILENT, boxes_of, quiet_world

from outreach_async import InvalidRequest
from outreach_async.audit.history import History, Readings
from outreach_async.audit.history._tables import record_campaign, record_mailboxes
from outreach_async.audit.plan import WorkspacePlan, build_plan, describe_held, describe_unused, range_of_estimate
from outreach_async.audit.reports import write
from outreach_async.audit.reports.brief import build_brief
from outreach_async.fake import FakeService

MONDAY = 1_772_409_600.0
"""2026-03-02 00:00 UTC."""


# The ranges, on worlds that the figures of the simulation did not come from.


def part_inside(worlds: list[Drawn]) -> float:
    found = [inside for world in worlds for inside, *_ in judge(world)]
    return sum(found) / len(found)


def judge(world: Drawn) -> list[tuple[bool, float, float]]:
    """Return of each campaign that ends whether the end is in its range, the width over the remaining time, and the error."""
    found = []
    for each in world.plan().campaigns:
        if (end := world.ends.get(each.id)) is not None:
            first, last, likely = map(world.day, (each.first, each.last, each.likely))
            found.append((first <= end <= last, (last - first) / max(0.5, end), abs(likely - end)))
    return found


def judge_estimates(world: Drawn) -> list[bool]:
    """Return of each campaign that ends whether the end is in the range of the service's estimate."""
    found = []
    for id_, end in world.ends.items():
        days = world.readings.days_left[SPACE, id_]
        first, last = (at // DAY - world.at // DAY for at in range_of_estimate(world.at, world.at + days * DAY))
        found.append(end is not None and first <= end <= last)
    return found


def require_bounds(worlds: list[Drawn]) -> None:
    ordinary = [world for world in worlds if world.rule in {"default", "rates"}]
    assert part_inside(ordinary) >= 0.95
    for layout in {world.layout for world in ordinary}:
        assert part_inside([world for world in ordinary if world.layout == layout]) >= 0.9
    for rule in (*OTHER_RULES, "weekends"):
        assert part_inside([world for world in worlds if world.rule == rule]) >= 0.85
    judged_ends = [each for world in worlds for each in judge(world)]
    widths = sorted(width for _, width, _ in judged_ends)
    assert median(widths) <= 1.1
    assert widths[len(widths) * 4 // 5] <= 2.2
    assert median(error for _, _, error in judged_ends) <= 1
    estimated = [is_near for world in ordinary for is_near in judge_estimates(world)]
    assert sum(estimated) >= 0.9 * len(estimated)
    for world in worlds:
        dated = {each.id for each in world.plan().campaigns if each.first}
        assert dated == {id_ for id_, end in world.ends.items() if end is not None}
    plans = [(world.sent, world.plan()) for world in ordinary]
    errors = [max(plan.unused[0] - (plan.capacity - sent), plan.capacity - sent - plan.unused[1]) for sent, plan in plans]
    assert sum(error <= 0.02 * plan.capacity for error, (_, plan) in zip(errors, plans, strict=True)) >= 0.95 * len(plans)


@pytest.mark.nightly
def test_the_ranges_keep_their_bounds_on_many_worlds() -> None:
    require_bounds([draw_world(90_000 + seed, RULES[seed % len(RULES)]) for seed in range(400)])


def test_the_ranges_keep_their_bounds_on_a_few_worlds() -> None:
    worlds = [draw_world(seed, "default", most=2) for seed in (4, 22, 42, 49)]  # the quickest
    assert part_inside(worlds) == 1
    assert median(width for world in worlds for _, width, _ in judge(world)) <= 1.1


@pytest.mark.thorough
def test_the_ranges_keep_their_bounds_on_some_worlds() -> None:
    require_bounds([draw_world(50_000 + seed, RULES[seed % len(RULES)]) for seed in range(100)])


# What a plan says, on what an audit may read.


def situation(boxes: list[dict[str, Any]], *campaigns: dict[str, Any]) -> Readings:
    """Return readings of mailboxes, and of campaigns with `lefts` of steps, `waits` in days, and other fields."""
    readings = Readings()
    record_mailboxes(
        readings, SPACE, [mailbox(**{"id": f"mailbox_{place}", "sent_today": 0, **box}) for place, box in enumerate(boxes)]
    )
    for place, chosen in enumerate(campaigns):
        about = dict(chosen)
        lefts, waits, status = about.pop("lefts"), about.pop("waits", None), about.pop("step_status", "live")
        silent = template(sent=0, replied_num=0, unsubscribed_num=0)
        models = [
            step(
                silent,
                id=f"step_{place}_{at}",
                order=at + 1,
                status=status,
                left_to_send=left,
                already_sent=0,
                wait_time=days * DAY * 1000,
            )
            for at, (left, days) in enumerate(zip(lefts, waits or [0] * len(lefts), strict=True))
        ]
        model = campaign(
            **{"id": f"camp_{place}", "name": f"C{place}", "bounces_num": 0, "contacts": 99, "days_left": 0, **about}
        )
        row = judged(case(model, models, fields_read=False, now=MONDAY)).rows[0]
        record_campaign(readings, row, model, models)
    return readings


def plan_of(boxes: list[dict[str, Any]], *campaigns: dict[str, Any], **options: Any) -> WorkspacePlan:
    return build_plan(situation(boxes, *campaigns), SPACE, at=MONDAY, **options)


ONE = [{"daily_limit": 10, "campaigns": 1}]


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ({"status": "paused"}, "the campaign is paused"),
        ({"status": "ar\x1bchived"}, "the campaign is ar?chived"),
        ({"step_status": "paused"}, "step 1 is not live"),
        ({"days_left": 9999}, "no active mailbox sends for it"),
        ({"lefts": [9000]}, "it has more than 400 days to go"),
        ({"status": "draft"}, None),
        ({"lefts": [0]}, None),
        ({"lefts": []}, None),
        ({}, ""),
    ],
)
def test_a_campaign_that_never_ends_says_why(about: dict[str, Any], reason: str | None) -> None:
    found = plan_of(ONE, {"lefts": [5], **about}).campaigns
    assert [each.reason for each in found] == ([] if reason is None else [reason])
    assert all(each.ends.startswith("never: ") is bool(reason) for each in found)


@pytest.mark.parametrize("box", [{"status": "error"}, {"daily_limit": 0}, {"campaigns": 0}])
def test_without_an_active_mailbox_no_campaign_ends_unless_one_is_added(box: dict[str, Any]) -> None:
    boxes = [{**ONE[0], **box}, {"daily_limit": 10, "campaigns": 0}]
    assert [each.reason for each in plan_of(boxes, {"lefts": [5]}).campaigns] == ["no active mailbox sends for it"]
    assert plan_of(boxes, {"lefts": [5]}, add_mailboxes=1).campaigns[0].first == "2026-03-02"
    assert plan_of(ONE, {"lefts": [5]}, pause=["mailbox_0"]).campaigns[0].reason == "no active mailbox sends for it"


@pytest.mark.parametrize(
    ("lefts", "limit"),
    [([90, 90], "daily limits"), ([30, 30], "daily limits and waits"), ([3, 3], "waits between steps")],
)
def test_a_plan_says_what_limits_a_campaign(lefts: list[int], limit: str) -> None:
    assert plan_of(ONE, {"lefts": lefts, "waits": [0, 5]}).campaigns[0].limit == limit


def test_a_campaign_whose_only_mailbox_may_pause_has_no_last_day() -> None:
    two = [*ONE, *ONE]
    found, _ = plan_of(two, *[{"lefts": [50], "days_left": 5}] * 2, pause=["mailbox_0"]).campaigns
    assert (found.first is not None, found.last, found.likely, found.ends) == (True, None, None, f"{found.first} or later")


@pytest.mark.parametrize(
    "about",
    [
        {"lefts": [10**15], "days_left": 1},
        {"lefts": [5, 5], "waits": [0, 10**6]},
        {"lefts": [9, 2, 7], "days_left": 0.5},
        {"id": "camp_x", "lefts": [1]},
    ],
)
def test_no_figure_of_the_service_stops_a_plan(about: dict[str, Any]) -> None:
    twice = [about] * (2 if "id" in about else 1)
    readings = situation([{"daily_limit": 10**15, "campaigns": 10**15}, *ONE], *twice)
    past = [(MONDAY - 7 * DAY, readings)] if "id" in about else []
    plan = build_plan(readings, SPACE, at=MONDAY, past=past)
    assert len(plan.campaigns) == len(twice)


@pytest.mark.parametrize(("days", "weekdays"), [("fri", {4}), ("sat-mon", {5, 6, 0}), ("Tue, thu", {1, 3})])
def test_no_campaign_ends_later_than_a_stated_day_of_sending(days: str, weekdays: set[int]) -> None:
    plan = plan_of(ONE, *({"lefts": [left]} for left in (5, 15, 25)), days=days)
    lasts = [date.fromisoformat(each.last) for each in plan.campaigns if each.last]
    assert len(lasts) == 3
    assert {each.weekday() for each in lasts} <= weekdays
    assert f"sending on {days}, no" in plan.assumptions


def test_a_workspace_without_campaigns_leaves_all_limits_unused() -> None:
    boxes = [{"daily_limit": 10, "campaigns": 0}, {"daily_limit": 0, "campaigns": 0}]
    plan = plan_of(boxes)
    assert build_plan(situation(boxes), f" {SPACE}\n", at=MONDAY) == plan
    assert (plan.campaigns, plan.capacity, plan.unused) == ([], 70, (70, 70))
    assert describe_unused([plan, plan]) == "Next week, 140 of 140 e-mails of the daily limits stay unused."
    assert describe_held([plan]) == ""


# What-ifs.

BOXES = st.lists(
    st.fixed_dictionaries({"daily_limit": st.integers(0, 60), "campaigns": st.integers(0, 4), "sent_today": st.integers(0, 60)}),
    min_size=1,
    max_size=4,
)
CAMPAIGNS = st.lists(
    st.fixed_dictionaries(
        {
            "lefts": st.lists(st.integers(0, 400), min_size=3, max_size=3).map(sorted),
            "waits": st.just([0, 2, 3]),
            "days_left": st.integers(0, 60),
            "bounces_num": st.integers(0, 99),
            "status": st.sampled_from(["live", "live", "live", "paused"]),
        }
    ),
    min_size=1,
    max_size=3,
)


def days_of(plan: WorkspacePlan) -> dict[str, tuple[str, str, str]]:
    """Return the dates of each campaign; a date that is not known comes after all others."""
    return {each.id: (each.first or "9", each.likely or "9", each.last or "9") for each in plan.campaigns}


@pytest.mark.thorough
@settings(max_examples=scaled(60), deadline=None)
@given(BOXES, CAMPAIGNS, st.integers(1, 5), st.integers(1, 3000), st.sampled_from([None, "mon-fri"]))
def test_no_what_if_moves_an_end_the_wrong_way(
    boxes: list[dict[str, Any]], campaigns: list[dict[str, Any]], more: int, contacts: int, days: str | None
) -> None:
    readings = situation(boxes, *campaigns)

    def found(**options: Any) -> dict[str, tuple[str, str, str]]:
        return days_of(build_plan(readings, SPACE, at=MONDAY, days=days, **options))

    base = found()
    chosen = [id_ for id_, ends in base.items() if ends[0] != "9"][:1]
    earlier = [found(add_mailboxes=count) for count in (more, more + 1)]
    later = [found(contacts=dict.fromkeys(chosen, count)) for count in (contacts, 2 * contacts)]

    for before, after in (
        *((before, base) for before in earlier),
        (earlier[1], earlier[0]),
        (found(pause=chosen), {id_: ends for id_, ends in base.items() if id_ not in chosen}),
        *((base, after) for after in later),
        (later[0], later[1]),
        (base, found(pause=["mailbox_0"])),
    ):
        assert all(all(map(le, before[id_], ends)) for id_, ends in after.items())


def test_a_what_if_is_among_the_assumptions() -> None:
    boxes, both = [*ONE, {"daily_limit": 30, "campaigns": 1}], {"camp_0": 1, "camp_1": 2000}
    plan = plan_of(boxes, {"lefts": [5]}, {"lefts": [0]}, add_mailboxes=2, pause=["mailbox_1"], contacts=both)
    told = "no other changes; what if: 2 more mailboxes of 20 a day for every live campaign, mailbox_1 paused, "
    assert f"{told}1 more contact in camp_0, 2,000 more contacts in camp_1." in plan.assumptions
    assert [each.id for each in plan.campaigns] == ["camp_0", "camp_1"]
    assert plan.capacity == 7 * (10 + 2 * 20)
    paused, faster = plan_of(ONE, *[{"lefts": [50]}] * 2, pause=["camp_0"]).campaigns
    _, slower = plan_of(ONE, *[{"lefts": [50]}] * 2).campaigns
    assert paused.ends == "never: this plan pauses it"
    assert (faster.last or "9") < (slower.last or "9")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"days": "mo-fr"}, "days: expected days such as mon-fri or mon,wed,fri, got 'mo-fr'; "),
        ({"days": "mon-"}, "days: expected days such as "),
        ({"days": ""}, "days: expected days such as "),
        ({"add_mailboxes": -1}, "add_mailboxes: expected at least 0, got -1; "),
        ({"pause": ["camp_9"]}, "pause: expected the id of a mailbox, or of a campaign that is no draft, got 'camp_9'; "),
        ({"pause": ["camp_3"]}, "pause: expected the id of a mailbox, "),  # its steps are not known
        ({"contacts": {"camp_0": 0}}, "contacts: expected at least 1, got 0; "),
        ({"contacts": {"camp_9": 1}}, "contacts: expected a campaign that sends, got 'camp_9': it is none of "),
        ({"contacts": {"camp_1": 1}}, "contacts: expected a campaign that sends, got 'camp_1': the campaign is paused; "),
        ({"contacts": {"camp_2": 1}}, "contacts: expected a campaign that sends, got 'camp_2': it is none of "),
    ],
)
def test_an_argument_that_fits_nothing_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        plan_of(
            ONE, {"lefts": [5]}, {"lefts": [5], "status": "paused"}, {"lefts": [5], "status": "draft"}, {"lefts": []}, **options
        )


# The plan of the week before.


def running_world() -> tuple[FakeService, list[str], list[str]]:
    """Return a fake with five campaigns that end in two days, and their mailboxes."""
    fake = quiet_world(boxes=0, steps=[])
    boxes = [fake.add_mailbox(SPACE, daily_limit=10, **NOTHING) for _ in range(5)]
    live: dict[str, Any] = {"status": "live", "steps": ["A"], "contacts": 15, "rates": SILENT}
    return fake, [fake.add_campaign(SPACE, name=f"C{at}", mailboxes=[box], **live) for at, box in enumerate(boxes)], boxes


def test_the_plan_of_last_week_is_scored_by_what_followed(tmp_path: Path) -> None:
    fake, camps, boxes = running_world()
    history = History(tmp_path / "history.db")
    read(fake, history=history)
    fake.set_campaign(camps[3], status="paused")  # the plan was not about this, and not about more contacts
    fake.add_contacts(SPACE, 1, campaign=camps[4])
    for box in boxes[1:3]:
        fake.set_mailbox(box, daily_limit=1)
    fake.advance(days=3)
    read(fake, history=history, workspace="space_2")
    fake.advance(hours=1)
    middle, then = read(fake, history=history), fake.now
    fake.advance(days=4)
    now = read(fake)
    past = history.readings(fake.now - 8 * DAY)
    plan, recent = build_plan(now, SPACE, at=fake.now, past=past), build_plan(middle, SPACE, at=then, past=past[:1])

    assert (plan.held, plan.decided, recent.held, recent.decided) == (1, 3, 0, 0)
    assert describe_held([plan, plan]) == "The plan of last week held for 2 of 6 campaigns; likely days are left out."
    shown = {each.id: each for each in plan.campaigns}
    assert {(shown[id_].first is None, shown[id_].likely) for id_ in camps[1:3]} == {(False, None)}
    assert all(each.likely for each in recent.campaigns if each.id in camps[1:3])


def test_a_plan_of_an_incomplete_reading_is_not_scored(tmp_path: Path) -> None:
    fake, _, boxes = running_world()
    history = History(tmp_path / "history.db")
    fake.set_mailbox(boxes[0], daily_limit="damaged")
    read(fake, history=history)
    fake.set_mailbox(boxes[0], daily_limit=10)
    fake.advance(days=7)
    assert build_plan(read(fake), SPACE, at=fake.now, past=history.readings(0)).decided == 0


def test_a_campaign_that_ends_after_its_range_has_not_held(tmp_path: Path) -> None:
    fake, _, boxes = running_world()
    history = History(tmp_path / "history.db")
    read(fake, history=history)
    fake.set_mailbox(boxes[0], daily_limit=0)
    fake.advance(days=8)
    read(fake, history=history)
    fake.set_mailbox(boxes[0], daily_limit=20)
    fake.advance(days=1)
    plan = build_plan(read(fake), SPACE, at=fake.now, past=history.readings(0))

    assert (plan.held, plan.decided) == (4, 5)


# The command, and the brief.


@pytest.fixture
def planned(service: FakeService, server_options: tuple[str, ...]) -> tuple[str, ...]:
    """Serve a workspace with a live and a paused campaign, and return the options that connect to it."""
    fields: dict[str, Any] = {"mailboxes": [box["id"] for box in boxes_of(service)], "steps": ["A"]}
    service.add_campaign(SPACE, id="camp_2", name="Autumn", status="live", contacts=500, **fields)
    service.add_campaign(SPACE, id="camp_3", name="Old", status="paused", contacts=9, **fields)
    service.add_workspace("space_2")
    return server_options


def test_the_command_prints_a_plan_and_the_ends_without_a_change(shell: Shell, planned: tuple[str, ...]) -> None:
    ended = shell("plan", *planned, "--days", "mon-fri", "--contacts", "+2000", "--add-mailboxes", "1", "--pause", "camp_3")
    title, heads, *rows = [line.split("\t") for line in ended.out.splitlines()]
    assert (ended.code, ended.err, title) == (0, "", ["Plan of space_1"])
    assert heads == ["campaign", "ends", "without", "likely", "limited_by"]
    assert rows[0] == ["Old", *["never: the campaign is paused"] * 2, "-", "-"]
    assert rows[1][0] == "Autumn"
    assert rows[1][1] > rows[1][2] > "2026"
    assert rows[2][0].startswith("Next week, ")
    assert "sending on mon-fri, no other changes; what if: 1 more mailbox of " in rows[3][0]

    code, value = shell.json("plan", *planned, "--contacts", "camp_1=2", "--contacts", "camp_1=3")
    assert (code, [each["name"] for each in value["plans"][0]["campaigns"]]) == (0, ["Old", "Spring", "Autumn"])
    assert [each["name"] for each in value["without"]["campaigns"]] == ["Old", "Autumn"]
    assert "what if: 5 more contacts in camp_1." in value["plans"][0]["assumptions"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--contacts", "many"), "--contacts: expected a number such as +2000 or camp_1=+2000, got 'many'."),
        (("--contacts", "+5", "--workspace", "space_2"), "--contacts: expected one workspace, got 2; name it with --workspace."),
        (("--pause", "camp_9"), "--pause: expected the id of a mailbox, or of a campaign that is no draft, got 'camp_9'; "),
        (("--days", "weekdays"), "--days: expected days such as mon-fri or mon,wed,fri, got 'weekdays'; "),
    ],
)
def test_the_command_refuses_what_fits_nothing(
    shell: Shell, planned: tuple[str, ...], arguments: tuple[str, ...], message: str
) -> None:
    ended = shell("plan", *planned, *arguments)
    assert (ended.code, message in " ".join(ended.err.split())) == (2, True)


def test_the_command_needs_the_campaign_of_new_contacts_if_several_send(
    shell: Shell, service: FakeService, planned: tuple[str, ...]
) -> None:
    service.set_campaign("camp_3", status="live")
    ended = shell("plan", *planned, "--contacts", "+5")
    assert "--contacts: expected a campaign, because 2 send (camp_3, camp_2); pass ID=+5." in " ".join(ended.err.split())
    assert shell("plan", *planned, "--contacts", "camp_3=+5").code == 0


def test_a_workspace_that_cannot_be_read_is_named_and_the_others_are_planned(shell: Shell, planned: tuple[str, ...]) -> None:
    ended = shell("plan", *planned, "--workspace", "space_2", "--workspace", "space_9")
    assert (ended.code, "Plan of space_1" in ended.out, "No campaign has e-mails left to send." in ended.out) == (3, True, True)
    assert "space_9 was not planned: could not be read: " in ended.err


def test_a_brief_says_what_will_happen_those_that_never_end_first() -> None:
    found = plan_of(ONE, {"lefts": [5]}, {"lefts": [5], "status": "paused"})
    report = make_report([finding()])
    one, two = (
        write(build_brief(attrs.evolve(report, workspaces=spaces), None, [found]), "terminal")
        for spaces in ([SPACE], [SPACE, "space_2"])
    )
    never, soon = "C1: never ends, because the campaign is paused", "C0: ends 2026-03-02 to 2026-03-04, limited by waits between"
    for text, place in (one, ""), (two, f" ({SPACE})"):
        assert f"WHAT WILL HAPPEN {never}{place} {soon} steps{place} Next week, " in " ".join(text.split())
    assert "WHAT WILL HAPPEN" not in write(build_brief(report, None, [plan_of(ONE)]), "terminal")


@pytest.mark.thorough
def test_the_next_brief_says_how_the_plan_of_last_week_has_held(
    shell: Shell, service: FakeService, planned: tuple[str, ...], tmp_path: Path
) -> None:
    history = str(tmp_path / "history.db")
    service.set_mailbox(boxes_of(service)[0]["id"], daily_limit=999)
    shell("brief", *planned, "--history", history)
    service.advance(days=7)
    service.add_campaign(SPACE, name="New", status="paused", contacts=9, steps=["A"])
    ended = shell("brief", *planned, "--history", history)
    text = " ".join(ended.out.split("WHAT WILL HAPPEN")[1].split())

    assert text.startswith(
        "New: never ends, because the campaign is paused Old: never ends, because the campaign is paused Next "
    )
    assert "stay unused. The plan of last week held for 1 of 1 campaign. Ends are ranges: " in text
    assert "The plan of last week held for 1 of 1 campaign." in shell("plan", *planned, "--history", history).out
