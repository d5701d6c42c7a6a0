from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake import FIELDS, KEY, MISSING, OTHER, SPACE, create, creation, get, page, post, refusal, small_world

from outreach_async import Response
from outreach_async.fake import FakeService, HeaderAuth, RateLimit


def test_a2_a_user_may_have_access_to_several_workspaces() -> None:
    fake = small_world()
    fake.add_owner_key(OTHER, key=KEY)
    assert create(fake, workspace=OTHER)["status"] == create(fake, workspace=SPACE)["status"] == "added"


@pytest.mark.parametrize(("key", "prefix_only"), [("key_2", 201), ("key_9", 201), ("x", 400), (1, 400), (None, 400)])
def test_a2_key_checks_may_be_relaxed(key: Any, prefix_only: int) -> None:
    assert post(small_world(owner_key="prefix_only"), creation(owner_key=key)).status == prefix_only
    assert post(small_world(owner_key="off"), creation(owner_key=key)).status == 201


@pytest.mark.parametrize("reading", ["check", "prefix_only", "off"])
def test_an_owner_key_and_a_known_workspace_are_required_whatever_is_checked(reading: Any) -> None:
    fake = small_world(owner_key=reading)
    assert refusal(post(fake, creation(owner_key=MISSING)), 400, "missing_field")["field"] == "owner_key"
    refusal(post(fake, creation(workspace="space_9")), 404, "workspace_not_found")


@pytest.mark.parametrize(
    ("auth", "good", "bad"),
    [
        (HeaderAuth(), f"Bearer {KEY}", ["", KEY, "Bearer ", "Bearer key_9", f"Basic {KEY}"]),
        (HeaderAuth("x-api-key", ""), KEY, ["", "key_9", f"Bearer {KEY}"]),
        (HeaderAuth("x-api-key", "Token", frozenset({"t0ken"})), "token t0ken", ["t0ken", f"Token {KEY}"]),
    ],
)
def test_a3_a_header_may_be_required(auth: HeaderAuth, good: str, bad: list[str]) -> None:
    fake = small_world(auth=auth)

    assert get(fake, FIELDS, {auth.header: good}).status == 200
    assert post(fake, creation(), {auth.header: good}).status == 201
    for value in bad:
        response = get(fake, FIELDS, {auth.header: value})
        refusal(response, 401, "unauthorized")
        assert response.headers.get("www-authenticate", "") == auth.scheme
    refusal(get(fake, FIELDS), 401, "unauthorized")


ORDERED: list[tuple[dict[str, Any], int, str]] = [
    ({"owner_key": MISSING}, 400, "missing_field"),
    ({"workspace": MISSING}, 400, "missing_field"),
    ({"email": MISSING}, 400, "missing_field"),
    ({"upload_options": MISSING}, 400, "missing_field"),
    ({"email": 1}, 400, "invalid_type"),
    ({"strict_validation": 1}, 400, "invalid_type"),
    ({"owner_key": "x"}, 400, "invalid_owner_key"),
    ({"workspace": "x"}, 400, "invalid_id"),
    ({"campaign": "x"}, 400, "invalid_id"),
    ({"owner_key": "key_9"}, 401, "unknown_owner_key"),
    ({"workspace": "space_9"}, 404, "workspace_not_found"),
    ({"owner_key": "key_2"}, 403, "workspace_denied"),
    ({"campaign": "camp_9"}, 404, "campaign_not_found"),
    ({"custom_9": "x"}, 400, "unknown_custom_field"),
    ({"country": "Nowhere", "strict_validation": True}, 422, "validation_failed"),
]


@pytest.mark.parametrize("first", range(len(ORDERED)))
def test_a4_the_first_of_several_errors_is_returned(first: int) -> None:
    wrong: dict[str, Any] = {}
    for mistake, _, _ in reversed(ORDERED[first:]):
        wrong |= mistake
    # If two mistakes concern the same member, only the earlier one is made.
    _, status, code = ORDERED[first]

    refusal(post(small_world(), creation(**wrong)), status, code)


def test_a4_strict_validation_lists_every_failure() -> None:
    error = refusal(
        post(small_world(), creation("nobody", country="Nowhere", zip="?", strict_validation=True)), 422, "validation_failed"
    )

    assert [text.split()[0] for text in error["message"].split("; ")] == ["email", "country", "zip"]
    assert error["field"] == "email"
    assert "Nowhere" not in error["message"]


CALLS: dict[str, tuple[Callable[[FakeService], Response], str | None, str]] = {
    "fields": (lambda fake: get(fake, FIELDS), None, SPACE),
    "a page": (lambda fake: page(fake, "/campaigns"), None, SPACE),
    "steps": (lambda fake: get(fake, "/campaigns/camp_1/steps"), None, SPACE),
    "a page of another workspace": (lambda fake: page(fake, "/mailboxes", workspace=OTHER), None, OTHER),
    "steps of another workspace": (lambda fake: get(fake, "/campaigns/camp_3/steps"), None, OTHER),
    "steps of no workspace": (lambda fake: get(fake, "/campaigns/camp_9/steps"), None, "camp_9"),
    "a creation": (lambda fake: post(fake, creation()), KEY, SPACE),
    "a creation by another user": (lambda fake: post(fake, creation(owner_key="key_3")), "key_3", SPACE),
}
"""Requests that a limit counts, each with the owner key and the workspace."""


@pytest.mark.parametrize("scope", ["key", "workspace", "all"])
@given(st.lists(st.tuples(st.sampled_from(sorted(CALLS)), st.sampled_from([0, 0, 0, 14, 0.5, 60])), max_size=20))
def test_e4_requests_over_the_limit_of_their_scope_are_429_until_it_ends(scope: Any, calls: Any) -> None:
    fake, counts = small_world(rate_limit=RateLimit(2, per=60, scope=scope)), Counter[Any]()
    fake.add_owner_key(SPACE, key="key_3")
    for name, seconds in calls:
        fake.advance(seconds=seconds)
        call, key, workspace = CALLS[name]
        group = fake.now // 60, {"key": key, "workspace": workspace, "all": None}[scope]
        before = fake.dump()
        response = call(fake)
        counts[group] += 1
        assert (response.status == 429) == (counts[group] > 2)
        if response.status == 429:
            refusal(response, 429, "rate_limited")
            assert response.headers["retry-after"] == str(max(1, math.ceil(60 - fake.now % 60)))
            assert fake.dump() == before
    assert get(fake, "/nothing").status == 404  # what is no operation is not counted


@pytest.mark.parametrize(("form", "value"), [("seconds", "60"), ("date", "Thu, 01 Jan 2026 00:01:00 GMT")])
def test_e4_retry_after_is_in_seconds_or_a_date_and_reset_clears_the_counters(form: Any, value: str) -> None:
    fake = small_world(rate_limit=RateLimit(1, per=60, retry_after=form))
    assert [get(fake, FIELDS).headers.get("retry-after") for _ in range(2)] == [None, value]
    fake.reset()
    assert get(fake, FIELDS).status == 404
