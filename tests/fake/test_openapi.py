"""The OpenAPI document and the fake agree."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.fake import JSON, MISSING, OTHER, SPACE, creation, small_world
from support.openapi import DOCUMENT, OPERATIONS, check_response, resolve_reference
from support.tables import check_rows

from outreach_async import Request, Response
from outreach_async.fake import FakeService, HeaderAuth, RateLimit

BODY = Draft202012Validator({"components": DOCUMENT["components"], "$ref": "#/components/schemas/CreateContact"})


def accepts(body: Any) -> bool:
    """Return whether the document accepts the body of a creation, the only place where unknown members are allowed."""
    return BODY.is_valid(body)


def world(**readings: Any) -> FakeService:
    fake = small_world(**readings)
    fake.add_mailboxes(SPACE, 30, trouble=0.5)
    fake.add_campaign(
        SPACE,
        id="camp_done",
        name="Done",
        status="live",
        steps=[{"templates": "A|B|PER", "sent": 20}, {"templates": "A", "sent": 20}],
    )
    return fake


def call(fake: FakeService, method: str, target: str, body: Any = None) -> Response:
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return fake.handle(Request(method, target, JSON if raw else {}, raw))


@pytest.mark.parametrize("readings", [{}, {"numbers": "mixed", "list_date": "mixed"}, {"order": "newest", "percent_digits": 0}])
def test_every_list_conforms_to_the_document(readings: dict[str, Any]) -> None:
    fake = world(**readings)
    for workspace, page in ((SPACE, 2), (OTHER, 1), (SPACE, 99)):
        for operation, path in (("list_campaigns", "/campaigns"), ("list_mailboxes", "/mailboxes")):
            check_response(operation, call(fake, "GET", f"{path}?workspace={workspace}&display=2&page={page}"))
        fake.advance(days=2)
    assert check_response("list_mailboxes", call(fake, "GET", f"/mailboxes?workspace={SPACE}&display=7&page=2"))["data"]
    for campaign in ("camp_1", "camp_2", "camp_3", "camp_done"):
        check_response("list_steps", call(fake, "GET", f"/campaigns/{campaign}/steps"))
    assert check_response("list_fields", call(fake, "GET", f"/workspaces/{SPACE}/all-fields"))["data"]


@pytest.mark.parametrize("status", [200, 201])
def test_every_outcome_conforms_to_the_document(status: int) -> None:
    fake = world(created_status=status)
    found = [check_response("create_contact", call(fake, "POST", "/contacts", creation()))]
    for policy in ("skip", "overwrite", "update_missing_fields"):
        body = creation(duplicates=policy, first_name="Ada", custom_1="x", nickname=None)
        found.append(check_response("create_contact", call(fake, "POST", "/contacts", body)))
    assert [answer["status"] for answer in found] == ["added", "skipped", "overwriten", "updated_missing_fields"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (creation(email=MISSING), 400),
        (creation(owner_key="key_nobody"), 401),
        (creation(workspace=OTHER), 403),
        (creation(workspace="space_none"), 404),
        (creation(campaign="camp_none"), 404),
        (creation("enrolled@acme.example", duplicates="overwrite", campaign="camp_1"), 409),
        (creation(first_name="x" * 1024 * 1024), 413),
        (creation("no address", strict_validation=True, work_phone="1"), 422),
    ],
    ids=["json", "member", "key", "access", "workspace", "campaign", "enrolled", "size", "strict"],
)
def test_every_refusal_of_a_creation_conforms_to_the_document(body: Any, status: int) -> None:
    fake = world(reenrol="error")
    call(fake, "POST", "/contacts", creation("enrolled@acme.example", campaign="camp_1"))
    answer = call(fake, "POST", "/contacts", body)
    assert answer.status == status
    check_response("create_contact", answer)


TARGETS = {
    "list_campaigns": f"/campaigns?workspace={SPACE}&page=1&display=5",
    "list_mailboxes": f"/mailboxes?workspace={SPACE}&page=1&display=5",
    "list_steps": "/campaigns/camp_1/steps",
    "list_fields": f"/workspaces/{SPACE}/all-fields",
    "create_contact": "/contacts",
}


@pytest.mark.parametrize("operation", TARGETS)
@pytest.mark.parametrize(
    ("readings", "status"),
    [({"auth": HeaderAuth()}, 401), ({"rate_limit": RateLimit(0)}, 429), ({"rate_limit": RateLimit(0, retry_after="date")}, 429)],
    ids=["auth", "seconds", "date"],
)
def test_refusals_added_by_a_knob_conform_to_the_document(operation: str, readings: dict[str, Any], status: int) -> None:
    method, _, _ = OPERATIONS[operation]
    answer = call(world(**readings), method, TARGETS[operation], creation() if method == "POST" else None)
    assert answer.status == status
    check_response(operation, answer)


WORLD = world()
TEXTS = ["", " ", "a@b.co", "key_1", "key_", "space_1", "space_", "camp_1", "camp_", "skip", "x"]
VALUES = [MISSING, None, True, 0, 1.5, [], {}, *TEXTS]
MEMBERS = ["email", "owner_key", "workspace", "upload_options", "city", "custom_1", "custom_9", "custom_", "custom_01", "more"]
OPTIONS = ["duplicates", "strict_validation", "campaign"]


def agrees(body: dict[str, Any]) -> None:
    answer = call(WORLD, "POST", "/contacts", body)
    value = check_response("create_contact", answer)
    if not accepts(body):
        assert answer.status >= 400, value  # the service may refuse it for another fault first
    elif answer.status == 400:
        assert value["error"]["code"] == "unknown_custom_field"  # a document cannot know what a workspace contains


@pytest.mark.parametrize("name", MEMBERS + OPTIONS)
def test_a_creation_with_one_invalid_member_is_400_exactly_where_documented(name: str) -> None:
    for value in VALUES:
        agrees(creation(**{name: value}))


@given(st.dictionaries(st.sampled_from(MEMBERS + OPTIONS), st.sampled_from(VALUES) | st.text(max_size=3), max_size=4))
def test_a_creation_is_400_exactly_where_documented(members: dict[str, Any]) -> None:
    agrees(creation(**members))


IDS = ["space_1", "space_", "space_none", "camp_1", "camp_", "camp_none", "x", " ", "camp_/é"]
NUMBERS = ["1", "2000", "2001", "0", "-1", "1.5", "1e3", "999999999", "1000000000", "", "٣", "01"]
PARAMETERS = [("workspace", id_) for id_ in IDS] + [(name, number) for name in ("page", "display") for number in NUMBERS]


def conforms(schema: dict[str, Any], text: str) -> bool:
    number = text.isascii() and text.isdigit()
    return Draft202012Validator(schema).is_valid(int(text) if schema["type"] == "integer" and number else text)


def test_a_query_is_400_exactly_where_documented() -> None:
    def check(name: str, text: str, operation: str) -> None:
        query = {"workspace": SPACE, "page": "1", "display": "5", name: text}
        parameters = {
            documented["name"]: documented for documented in map(resolve_reference, OPERATIONS[operation][2]["parameters"])
        }
        answer = call(WORLD, "GET", f"{OPERATIONS[operation][1]}?{urlencode(query)}")
        check_response(operation, answer)
        assert (answer.status != 400) == conforms(parameters[name]["schema"], text)

    check_rows(
        ((name, text, operation) for name, text in PARAMETERS for operation in ["list_campaigns", "list_mailboxes"]), check
    )


@pytest.mark.parametrize("operation", ["list_steps", "list_fields"])
@pytest.mark.parametrize("segment", IDS)
def test_an_id_in_a_path_is_400_exactly_where_documented(operation: str, segment: str) -> None:
    _, path, documented = OPERATIONS[operation]
    (parameter,) = map(resolve_reference, documented["parameters"])
    answer = call(WORLD, "GET", path.replace(f"{{{parameter['name']}}}", quote(segment, safe="")))
    check_response(operation, answer)
    assert (answer.status != 400) == conforms(parameter["schema"], segment)
