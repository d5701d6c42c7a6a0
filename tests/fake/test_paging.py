from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.fake import OTHER, SPACE, START, document, get, page, refusal, small_world
from support.tables import check_rows

from outreach_async.fake import Behaviour, FakeService
from outreach_async.fake._stored_records import CAMPAIGN_HEADERS, MAILBOX_HEADERS

LISTS = ["/campaigns", "/mailboxes"]
BAD_NUMBERS = ["-1", "+1", "1.0", "1e1", " 1", "1 ", "٣", "1_0", "0x1", "one", "1234567890", "1,000", "None"]


def filled(count: int, **readings: Any) -> FakeService:
    """Return a fake with this many mailboxes and campaigns, listed in order of creation."""
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
def test_p1_a_page_has_its_number_its_items_and_the_totals(path: str) -> None:
    answered = document(page(filled(5), path, display=2, page=2))

    assert list(answered) == ["status", "headers", "data", "total_found", "current_page", "total_pages"]
    assert (numbers(answered), answered["total_found"], answered["current_page"], answered["total_pages"]) == ([2, 3], 5, 2, 3)


def test_p5_leading_zeros_are_accepted() -> None:
    assert document(page(filled(3), "/campaigns", display="002", page="000000002"))["current_page"] == 2


@pytest.mark.parametrize("path", LISTS)
def test_p2_and_p6_a_display_above_the_maximum_is_400(path: str) -> None:
    fake = small_world(campaign_max_display=2000)

    assert page(fake, path, display=2000).status == 200
    assert refusal(page(fake, path, display=2001), 400, "display_too_large")["field"] == "display"


@pytest.mark.thorough
@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize(("over_max", "served", "pages"), [("clamp", 2000, 2), ("serve", 2003, 1)])
def test_p6_a_display_above_the_maximum_may_be_clamped_or_served(path: str, over_max: Any, served: int, pages: int) -> None:
    fake = FakeService(behaviour=Behaviour(over_max=over_max, campaign_max_display=2000))
    fake.add_workspace(SPACE)
    fake.add_mailboxes(SPACE, 2003)
    for _ in range(2003):
        fake.add_campaign(SPACE)
    answered = document(page(fake, path, display=999_999_999))

    assert (len(answered["data"]), answered["total_pages"], answered["total_found"]) == (served, pages, 2003)


def test_p7_campaigns_have_no_maximum_by_default() -> None:
    assert len(document(page(filled(3), "/campaigns", display=999_999_999))["data"]) == 3


def test_p7_a_maximum_for_campaigns_does_not_affect_mailboxes() -> None:
    fake = filled(0, campaign_max_display=100)

    refusal(page(fake, "/campaigns", display=101), 400, "display_too_large")
    assert page(fake, "/mailboxes", display=101).status == 200


def test_p8_a_page_past_the_end_is_empty_with_its_own_number() -> None:
    answered = document(page(filled(5), "/mailboxes", display=2, page=9))

    assert (answered["data"], answered["current_page"], answered["total_pages"], answered["total_found"]) == ([], 9, 3, 5)


@pytest.mark.parametrize("first_page", [0, 1])
def test_p8_a_page_past_the_end_may_be_the_last_one(first_page: Any) -> None:
    answered = document(page(filled(5, past_end="clamp", first_page=first_page), "/mailboxes", display=2, page=9))

    assert (numbers(answered), answered["current_page"]) == ([4], 2 + first_page)


def test_p8_a_page_past_the_end_may_be_404() -> None:
    fake = filled(5, past_end="error")

    assert refusal(page(fake, "/mailboxes", display=2, page=4), 404, "page_not_found")["field"] == "page"
    assert page(fake, "/mailboxes", display=2, page=3).status == 200


@pytest.mark.parametrize("past_end", ["empty", "clamp", "error"])
@pytest.mark.parametrize("first_page", [0, 1])
def test_p9_an_empty_list_has_a_first_page_and_zero_pages(past_end: Any, first_page: Any) -> None:
    answered = document(page(filled(0, past_end=past_end, first_page=first_page), "/campaigns", page=first_page))

    assert (answered["data"], answered["current_page"], answered["total_pages"], answered["total_found"]) == (
        [],
        first_page,
        0,
        0,
    )


def test_p3_pages_may_be_numbered_from_zero() -> None:
    fake = filled(5, first_page=0)

    assert [numbers(document(page(fake, "/campaigns", display=2, page=n))) for n in range(4)] == [[0, 1], [2, 3], [4], []]
    assert [document(page(fake, "/campaigns", display=2, page=n))["current_page"] for n in range(3)] == [0, 1, 2]


@pytest.mark.parametrize(("order", "expected"), [("oldest", [0, 1, 2]), ("newest", [2, 1, 0])])
@pytest.mark.parametrize("path", LISTS)
def test_p10_lists_are_in_order_of_creation(order: Any, expected: list[int], path: str) -> None:
    fake = filled(3, order=order)

    assert numbers(document(page(fake, path))) == expected
    assert [numbers(document(page(fake, path, display=1, page=n))) for n in (1, 2, 3)] == [[n] for n in expected]


def test_p10_earlier_creation_times_come_first_whenever_they_were_added() -> None:
    fake = FakeService()
    fake.add_workspace(SPACE)
    for number, created in enumerate([300, 100, 200, 100]):
        fake.add_campaign(SPACE, id=f"camp_{number}", created=created)
        fake.add_mailbox(SPACE, id=f"mailbox_{number}", created_at=created)

    assert [numbers(document(page(fake, path))) for path in LISTS] == [[1, 3, 2, 0]] * 2


def test_p10_generated_items_are_in_the_order_of_the_calls() -> None:
    fake = FakeService()
    fake.add_workspace(SPACE)
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
    fake = FakeService(behaviour=Behaviour(order="last_activity"))
    fake.add_workspace(SPACE)
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

    assert document(page(fake, "/campaigns"))["headers"] == list(CAMPAIGN_HEADERS)
    assert document(page(fake, "/mailboxes"))["headers"] == list(MAILBOX_HEADERS)
    assert (len(CAMPAIGN_HEADERS), len(MAILBOX_HEADERS)) == (10, 19)


def test_p14_saved_headers_belong_to_a_workspace_and_filter_nothing() -> None:
    fake = small_world()
    fake.add_workspace("space_5", campaign_headers=["name", "no such column"], mailbox_headers=[])
    fake.add_campaign("space_5")
    answered = document(page(fake, "/campaigns", workspace="space_5"))

    assert answered["headers"] == ["name", "no such column"]
    assert set(answered["data"][0]) == set(document(page(fake, "/campaigns"))["data"][0])
    assert document(page(fake, "/mailboxes", workspace="space_5"))["headers"] == []


def test_lists_contain_only_the_items_of_their_workspace() -> None:
    fake = small_world()

    assert [camp["id"] for camp in document(page(fake, "/campaigns", workspace=OTHER))["data"]] == ["camp_3"]
    assert document(page(fake, "/mailboxes", workspace=OTHER))["total_found"] == 0


READINGS = st.builds(
    Behaviour,
    first_page=st.sampled_from([0, 1]),
    past_end=st.sampled_from(["empty", "clamp", "error"]),
    over_max=st.sampled_from(["reject", "clamp", "serve"]),
    campaign_max_display=st.sampled_from([None, 4, 7]),
    order=st.sampled_from(["oldest", "newest"]),
)


@settings(max_examples=scaled(150), deadline=None)
@given(READINGS, st.integers(0, 23), st.integers(1, 30), st.integers(0, 30))
def test_a_page_equals_a_naive_implementation_of_its_rules(behaviour: Behaviour, total: int, display: int, number: int) -> None:
    fake = filled(0)
    fake.behaviour = behaviour
    for place in range(total):
        fake.add_campaign(SPACE, id=f"camp_{place:04}")
    maximum = behaviour.campaign_max_display or 10**9
    response = page(fake, "/campaigns", display=display, page=number)
    if number < behaviour.first_page:
        refusal(response, 400, "invalid_number")
        return
    if display > maximum and behaviour.over_max == "reject":
        refusal(response, 400, "display_too_large")
        return
    size = min(display, maximum) if behaviour.over_max == "clamp" else display
    everything = list(range(total))[:: 1 if behaviour.order == "oldest" else -1]
    pages = [everything[start : start + size] for start in range(0, total, size)]
    index = number - behaviour.first_page
    if index and index >= len(pages) and behaviour.past_end == "error":
        refusal(response, 404, "page_not_found")
        return
    if index >= len(pages) and behaviour.past_end == "clamp":
        index = max(len(pages) - 1, 0)
    answered = document(response)

    assert numbers(answered) == (pages[index] if index < len(pages) else [])
    assert answered["current_page"] == index + behaviour.first_page
    assert answered["total_pages"] == len(pages) == math.ceil(total / size)
    assert answered["total_found"] == total


@settings(max_examples=scaled(40), deadline=None)
@given(READINGS, st.integers(0, 23), st.sampled_from(LISTS))
def test_the_pages_of_every_display_join_to_the_whole_list(behaviour: Behaviour, total: int, path: str) -> None:
    fake = filled(total)
    fake.behaviour = behaviour
    whole = list(range(total))[:: 1 if behaviour.order == "oldest" else -1]
    maximum = min(behaviour.campaign_max_display or 25, 25)
    for display in range(1, maximum + 1):
        count = document(page(fake, path, display=display, page=behaviour.first_page))["total_pages"]
        walked = [document(page(fake, path, display=display, page=behaviour.first_page + n)) for n in range(count)]

        assert [number for answered in walked for number in numbers(answered)] == whole
