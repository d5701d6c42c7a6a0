from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from support.fake import OTHER, SPACE, START, document, get, page, refusal, small_world
from support.tables import check_rows

from outreach_async.fake import Behaviour, FakeService

LISTS = ["/campaigns", "/mailboxes"]
BAD_NUMBERS = ["-1", "+1", "1.0", "1e1", " 1", "1 ", "٣", "1_0", "0x1", "one", "1234567890", "1,000", "None"]


def filled(count: int, **readings: Any) -> FakeService:
    fake = FakeService(behaviour=Behaviour(**readings))
    fake.add_workspace(SPACE)
    for number in range(count):
        fake.add_mailbox(SPACE, id=f"mailbox_{number:04}")
        fake.add_campaign(SPACE, id=f"camp_{number:04}")
    return fake


def numbers(answered: Any) -> list[int]:
    return [int(item["id"].rpartition("_")[2]) for item in answered["data"]]


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("name", ["workspace", "display", "page"])
@pytest.mark.parametrize("value", [None, ""])
def test_p4_a_missing_or_empty_parameter_is_400_with_its_name(path: str, name: str, value: str | None) -> None:
    query: dict[str, Any] = {"workspace": SPACE, "display": 1, "page": 1, name: value}
    response = get(small_world(), path, **{key: item for key, item in query.items() if item is not None})
    assert refusal(response, 400, "missing_parameter")["field"] == name


def test_p5_an_invalid_number_is_400_with_its_name() -> None:
    fake = small_world()

    def check(number: str, name: str, path: str) -> None:
        assert refusal(page(fake, path, **{name: number}), 400, "invalid_number")["field"] == name

    check_rows(((number, name, path) for number in [*BAD_NUMBERS, "0"] for name in ["display", "page"] for path in LISTS), check)


@pytest.mark.parametrize("number", [*BAD_NUMBERS, "0"])
def test_p5_an_invalid_number_may_be_treated_as_missing(number: str) -> None:
    fake = filled(25, bad_number="default")
    assert numbers(document(page(fake, "/campaigns", display=number))) == list(range(10))
    assert document(page(fake, "/campaigns", page=number))["current_page"] == 1


@pytest.mark.parametrize("path", LISTS)
def test_p2_and_p6_a_display_above_the_maximum_is_400(path: str) -> None:
    fake = small_world(campaign_max_display=2000)
    assert page(fake, path, display=2000).status == 200
    assert refusal(page(fake, path, display=2001), 400, "display_too_large")["field"] == "display"


def test_p13_lists_of_an_unknown_workspace_may_be_empty() -> None:
    fake = small_world(unknown_workspace="empty")
    for path in LISTS:
        listed = document(page(fake, path, workspace="space_9"))
        assert (listed["data"], listed["total_found"], listed["total_pages"]) == ([], 0, 0)
    response = get(fake, "/workspaces/space_9/all-fields")
    assert document(response) == {"status": "ok", "data": []}
    assert response.headers["x-fake-hint"] == "no workspace has this id"


def test_p7_a_maximum_for_campaigns_does_not_affect_mailboxes() -> None:
    fake = filled(0, campaign_max_display=100)
    refusal(page(fake, "/campaigns", display=101), 400, "display_too_large")
    assert page(fake, "/mailboxes", display=101).status == 200


def test_p10_earlier_creation_times_come_first_whenever_they_were_added() -> None:
    fake = filled(0)
    for number, created in enumerate([300, 100, 200, 100]):
        fake.add_campaign(SPACE, id=f"camp_{number}", created=created)
        fake.add_mailbox(SPACE, id=f"mailbox_{number}", created_at=created)
    assert [numbers(document(page(fake, path))) for path in LISTS] == [[1, 3, 2, 0]] * 2


def test_p10_generated_items_are_in_the_order_of_the_calls() -> None:
    fake = filled(0)
    boxes = [*fake.add_mailboxes(SPACE, 40), fake.add_mailbox(SPACE), *fake.add_mailboxes(SPACE, 40)]
    camps = [fake.add_campaign(SPACE, steps=[{"sent": 10}] if n % 2 else []) for n in range(20)]
    listed = document(page(fake, "/mailboxes", display=100))["data"]

    assert [box["id"] for box in listed] == boxes
    assert [camp["id"] for camp in document(page(fake, "/campaigns", display=100))["data"]] == camps
    created = [box["created_at"] for box in listed]
    assert created == sorted(created)
    assert max(created) <= START


@pytest.mark.parametrize("path", LISTS)
def test_p10_lists_may_be_ordered_by_latest_activity(path: str) -> None:
    fake = filled(0, order="last_activity")
    for number, activity in enumerate([100, None, 300, 200, 100]):
        fake.add_campaign(SPACE, id=f"camp_{number}", last_activity=activity)
        fake.add_mailbox(SPACE, id=f"mailbox_{number}", last_activity=activity)

    assert numbers(document(page(fake, path))) == [2, 3, 0, 4, 1]
    assert numbers(document(page(fake, path, display=2, page=2))) == [0, 4]


def test_p11_an_insertion_between_pages_shifts_only_newest_first_lists() -> None:
    seen = {}
    for order in ("oldest", "newest"):
        fake = filled(4, order=order)
        first = numbers(document(page(fake, "/campaigns", display=2)))
        fake.add_campaign(SPACE, id="camp_9999")
        seen[order] = first + numbers(document(page(fake, "/campaigns", display=2, page=2)))

    assert seen == {"oldest": [0, 1, 2, 3], "newest": [3, 2, 2, 1]}


@pytest.mark.parametrize("name", ["workspace", "display", "page"])
def test_p12_a_repeated_parameter_is_400_even_with_equal_values(name: str) -> None:
    value = {"workspace": SPACE, "display": 10, "page": 1}[name]
    response = get(small_world(), f"/campaigns?workspace={SPACE}&display=10&page=1&{name}={value}")
    assert refusal(response, 400, "repeated_parameter")["field"] == name


def test_p12_an_unknown_parameter_is_ignored_with_a_hint() -> None:
    fake = small_world()
    response = page(fake, "/campaigns", perpage=5)
    assert response.body == page(fake, "/campaigns").body
    assert response.headers["x-fake-hint"] == "unknown parameter perpage ignored"


@pytest.mark.parametrize("path", LISTS)
def test_p13_an_unknown_workspace_is_404(path: str) -> None:
    assert refusal(page(small_world(), path, workspace="space_9"), 404, "workspace_not_found")["field"] == "workspace"


@pytest.mark.parametrize(
    ("id_", "hint"), [("camp_1", "a campaign's id"), ("key_1", "an owner key"), ("space_", None), ("x", None)]
)
def test_p13_an_id_without_its_prefix_is_400_with_a_hint_about_its_kind(id_: str, hint: str | None) -> None:
    response = page(small_world(), "/mailboxes", workspace=id_)
    refusal(response, 400, "invalid_id")
    assert response.headers.get("x-fake-hint") == (hint and f"this looks like {hint}")


def test_p14_headers_are_the_columns_of_the_interface() -> None:
    fake = small_world()
    for path, count, outside in (("/campaigns", 10, {"id"}), ("/mailboxes", 19, {"id"})):
        listed = document(page(fake, path))
        assert len(listed["headers"]) == count
        assert set(listed["headers"]) <= listed["data"][0].keys() - outside


def test_lists_contain_only_the_items_of_their_workspace() -> None:
    fake = small_world()
    assert [camp["id"] for camp in document(page(fake, "/campaigns", workspace=OTHER))["data"]] == ["camp_3"]
    assert document(page(fake, "/mailboxes", workspace=OTHER))["total_found"] == 0


KNOBS: dict[str, tuple[Any, ...]] = {
    "first_page": (0, 1),
    "past_end": ("empty", "clamp", "error"),
    "over_max": ("reject", "clamp", "serve"),
    "campaign_max_display": (None, 2),
    "order": ("oldest", "newest"),
}
READINGS = [Behaviour(**dict(zip(KNOBS, values, strict=True))) for values in itertools.product(*KNOBS.values())]


@pytest.mark.parametrize("total", [0, 3])
def test_p1_to_p10_a_page_equals_a_naive_implementation_of_its_rules(total: int) -> None:
    fake = filled(total)

    def check(behaviour: Behaviour, display: str, number: int) -> None:
        fake.behaviour = behaviour
        response = page(fake, "/campaigns", display=display, page=f"0{number}")
        size, maximum = int(display), behaviour.campaign_max_display or math.inf
        if number < behaviour.first_page:
            refusal(response, 400, "invalid_number")
            return
        if size > maximum and behaviour.over_max == "reject":
            assert refusal(response, 400, "display_too_large")["field"] == "display"
            return
        size = int(min(size, maximum)) if behaviour.over_max == "clamp" else size
        everything = list(range(total))[:: 1 if behaviour.order == "oldest" else -1]
        pages = [everything[start : start + size] for start in range(0, total, size)]
        index = number - behaviour.first_page
        if index and index >= len(pages) and behaviour.past_end == "error":
            assert refusal(response, 404, "page_not_found")["field"] == "page"
            return
        if index >= len(pages) and behaviour.past_end == "clamp":
            index = max(len(pages) - 1, 0)
        answered = document(response)
        assert list(answered) == ["status", "headers", "data", "total_found", "current_page", "total_pages"]
        assert numbers(answered) == (pages[index] if index < len(pages) else [])
        assert answered["current_page"] == index + behaviour.first_page
        assert (answered["total_found"], answered["total_pages"]) == (total, len(pages))

    check_rows(itertools.product(READINGS, ["1", "002", "999999999"], range(5)), check)
