from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake import SPACE, creation, document, get, page, post, refusal, small_world, steps
from support.tables import check_rows
from support.wire import TABLES, TAKES

from outreach_async import Request
from outreach_async.fake import Behaviour, FakeService, Refusal

TARGETS = {
    "list_campaigns": f"/campaigns?workspace={SPACE}&display=5&page=1",
    "list_mailboxes": f"/mailboxes?workspace={SPACE}&display=5&page=1",
    "list_steps": "/campaigns/camp_1/steps",
    "list_fields": f"/workspaces/{SPACE}/all-fields",
}


def send(fake: FakeService, method: str, target: str, body: bytes = b"") -> Any:
    return fake.handle(Request(method, target, {}, body))


def check_table(kind: str, value: Any) -> None:
    """Check that a value has exactly the fields of its table, in order, each with its type."""
    if kind.startswith("["):
        assert type(value) is list
        for item in value:
            check_table(kind[1:-1], item)
    elif kind in TABLES:
        assert list(value) == list(TABLES[kind])
        for field, inner in TABLES[kind].items():
            check_table(inner, value[field])
    else:
        assert type(value) in TAKES[kind][1]


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        *(("list_campaigns", "Page[Campaign]"), ("list_mailboxes", "Page[Mailbox]")),
        *(("list_steps", "CampaignSteps"), ("list_fields", "WorkspaceFields")),
    ],
)
def test_w2_and_w4_a_list_says_ok_and_has_every_field_in_order_with_its_type(operation: str, kind: str) -> None:
    answered = document(get(small_world(), TARGETS[operation]))
    assert answered["status"] == "ok"
    assert answered["data"]
    check_table(kind, answered)


def ids(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["id"]] if "id" in value else []
        return own + [found for item in value.values() for found in ids(item)]
    return [found for item in value for found in ids(item)] if isinstance(value, list) else []


def test_w3_and_w5_generated_ids_are_a_prefix_and_16_unique_hex_digits() -> None:
    fake = FakeService()
    space = fake.add_workspace()
    key = fake.add_owner_key(space)
    fake.add_mailboxes(space, 50)
    camp = fake.add_campaign(space, steps=["A|B|PER"] * 3)
    contacts = fake.add_contacts(space, 50)
    found = ids([document(page(fake, "/mailboxes", workspace=space, display=50)), steps(fake, camp)])
    found += [space, key, camp, *contacts]

    assert len(set(found)) == len(found) == 50 + 4 * 3 + 3 + 50
    prefixes = "space|key|mailbox|camp|step|temp|personalized_step|contact"
    assert all(re.fullmatch(rf"(?:{prefixes})_[0-9a-f]{{16}}", id_) for id_ in found)
    assert {id_.rsplit("_", 1)[0] for id_ in found} == set(prefixes.split("|"))


def test_w5_a_generated_id_is_never_one_already_used() -> None:
    first = FakeService().add_workspace()
    fake = FakeService()
    fake.add_workspace(first)
    assert fake.add_workspace() != first


@pytest.mark.parametrize(
    ("path", "status", "code", "field"),
    [
        *((path, 404, "not_found", None) for path in ("/", "", "//campaigns", "/nothing", "/campaigns/camp_1", "/contacts//")),
        ("/campaigns/camp_1/steps/x", 404, "not_found", None),
        ("/campaigns/camp_9/steps", 404, "campaign_not_found", "campaign_id"),
        ("/workspaces/space_9/all-fields", 404, "workspace_not_found", "workspace"),
        ("/workspaces/camp_1/all-fields", 400, "invalid_id", "workspace_id"),
        ("/campaigns/camp_%ff/steps", 400, "invalid_target", None),
        ("/campaigns?workspace=%ff", 400, "invalid_target", None),
    ],
)
def test_w6_an_unknown_or_malformed_target_is_refused(path: str, status: int, code: str, field: str | None) -> None:
    assert refusal(get(small_world(), path), status, code)["field"] == field


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/campaigns", "GET, HEAD"), ("GET", "/contacts", "POST"), ("PUT", "/contacts", "POST")],
)
def test_w6_another_method_is_405_with_the_allowed_ones(method: str, path: str, allowed: str) -> None:
    response = send(small_world(), method, path)
    refusal(response, 405, "method_not_allowed")
    assert response.headers["allow"] == allowed


def test_w6_head_is_answered_as_get_without_a_body() -> None:
    fake = small_world()
    for target in (f"/campaigns?workspace={SPACE}&page=1&display=1", "/campaigns/camp_1/steps", "/nowhere"):
        read, probed = get(fake, target), send(fake, "HEAD", target)
        assert (probed.status, probed.body) == (read.status, b"")
        assert {**probed.headers, "x-request-id": ""} == {**read.headers, "x-request-id": ""}
    assert [entry.operation for entry in fake.requests[:4]] == ["list_campaigns"] * 2 + ["list_steps"] * 2


def test_w6_one_trailing_slash_is_ignored() -> None:
    fake = small_world()
    assert get(fake, f"/workspaces/{SPACE}/all-fields/").body == get(fake, f"/workspaces/{SPACE}/all-fields").body


def test_w6_a_slash_within_an_id_is_percent_encoded() -> None:
    fake = FakeService()
    odd = "camp_éü/%2F?#"
    fake.add_workspace(SPACE)
    fake.add_campaign(SPACE, id=odd, steps=["A"])

    assert len(steps(fake, odd)["data"]) == 1
    refusal(get(fake, f"/campaigns/{odd.partition('?')[0]}/steps"), 404, "not_found")


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}])
def test_w7_a_body_of_another_content_type_is_accepted_with_a_hint(headers: dict[str, str]) -> None:
    fake = small_world()
    response = post(fake, creation(), headers)
    assert response.status == 201
    assert "content-type" in response.headers["x-fake-hint"]
    assert fake.requests[-1].hints == (response.headers["x-fake-hint"],)


BAD_BODIES = [
    b"",
    b"{",
    b"{} {}",
    b'{"email": "a@b.co", "email": "a@b.co"}',
    b'{"upload_options": {"campaign": null, "campaign": null}}',
    b'{"email": NaN}',
    b'{"email": -Infinity}',
    b'{"email": "\\ud800"}',  # a lone surrogate
    b'{"\\udfff": 1}',
    b'{"email": "\xff"}',
    b'{"email": "\xed\xa0\x80"}',  # an encoded surrogate
    b"\xef\xbb\xbf{}",  # a byte order mark
    b"[" * 100_000,
    b"1" * 10_000,
]


def test_w8_a_body_that_is_not_a_strict_json_object_is_400() -> None:
    fake = small_world()
    check_rows(((body,) for body in BAD_BODIES), lambda body: refusal(post(fake, body), 400, "invalid_json"))
    objects = [(b"[]",), (b"null",), (b'"key_1"',), (b"1",)]
    check_rows(objects, lambda body: refusal(post(fake, body), 400, "body_not_object"))


def test_w8_a_body_over_one_mebibyte_is_413() -> None:
    fake = small_world()
    body = json.dumps(creation(personal_note="")).encode()
    fitting = body.replace(b'"personal_note": ""', b'"personal_note": "%s"' % (b"x" * (2**20 - len(body))))
    assert post(fake, fitting).status == 201
    refusal(post(fake, fitting + b" "), 413, "body_too_large")


def test_w8_escaped_surrogate_pairs_are_one_character() -> None:
    fake = small_world()
    body = json.dumps(creation(first_name="\U0001f600")).encode()
    assert b"\\ud83d\\ude00" in body
    assert post(fake, body).status == 201
    assert fake.contacts(SPACE)[-1]["fields"] == {"first_name": "\U0001f600"}


@given(st.binary(max_size=60))
def test_w8_no_body_makes_the_service_raise(body: bytes) -> None:
    assert post(small_world(), body).status in {400, 413}


@given(st.text(max_size=40), st.sampled_from(["GET", "POST", "HEAD", "DELETE"]))
def test_no_target_makes_the_service_raise(target: str, method: str) -> None:
    assert send(small_world(), method, "/" + target).status < 500


def test_w11_every_response_has_a_content_type_and_a_unique_request_id() -> None:
    fake = small_world()
    answers = [get(fake, target) for target in (*TARGETS.values(), "/nothing", "/campaigns")]
    answers += [post(fake, creation()), post(fake, b"{")]

    assert {answer.headers["content-type"] for answer in answers} == {"application/json"}
    assert len({answer.headers["x-request-id"] for answer in answers}) == len(answers)
    assert [entry.request_id for entry in fake.requests] == [answer.headers["x-request-id"] for answer in answers]


def test_w11_the_date_follows_the_clock() -> None:
    fake = FakeService(clock="2026-01-31T23:59:59Z")
    fake.advance(seconds=1.5)
    assert get(fake, "/").headers["date"] == "Sun, 01 Feb 2026 00:00:00 GMT"


@pytest.mark.parametrize(
    ("renderer", "status", "content_type", "body"),
    [
        ("nested", 404, "application/json", b'{"status":"error","error":{"code":"workspace_not_found",'),
        ("flat", 404, "application/json", b'{"message":"no workspace has this id"}'),
        ("text", 404, "text/plain; charset=utf-8", b"no workspace has this id"),
        ("html", 404, "text/html; charset=utf-8", b"<html><head><title>404</title></head><body><p>no workspace has this id"),
        ("200_with_error", 200, "application/json", b'{"status":"error","error":{"code":"workspace_not_found",'),
    ],
)
def test_e2_a_named_renderer_sets_the_shape_of_refusals(renderer: Any, status: int, content_type: str, body: bytes) -> None:
    fake = small_world(error_renderer=renderer)
    response = get(fake, "/workspaces/space_9/all-fields")
    assert (response.status, response.headers["content-type"]) == (status, content_type)
    assert response.body.startswith(body)


def test_e2_a_custom_renderer_receives_the_refusal() -> None:
    seen: list[Refusal] = []

    def teapot(refusal: Refusal) -> tuple[int, dict[str, str], bytes]:
        seen.append(refusal)
        return 418, {"x-tea": "yes"}, b"short and stout"

    response = get(small_world(error_renderer=teapot), "/workspaces/space_9/all-fields")

    assert (response.status, response.headers["x-tea"], response.body) == (418, "yes", b"short and stout")
    assert response.headers["content-type"] == "application/json"
    assert [refused.code for refused in seen] == ["workspace_not_found"]


def test_e3_hints_are_in_a_header_and_the_request_log_but_not_the_body() -> None:
    fake = small_world()
    response = get(fake, "/workspaces/camp_1/all-fields")
    assert response.headers["x-fake-hint"] == "this looks like a campaign's id"
    assert fake.requests[-1].hints == ("this looks like a campaign's id",)
    assert b"looks like" not in response.body


def test_e3_a_hint_is_ascii_whatever_name_it_contains() -> None:
    query: dict[str, Any] = {"é\r\nx-evil: 1": "1"}
    response = get(small_world(), "/campaigns/camp_1/steps", **query)
    assert response.headers["x-fake-hint"].isascii()
    assert "\n" not in response.headers["x-fake-hint"]


def test_e3_the_hint_header_stays_short_and_the_request_log_has_every_hint() -> None:
    fake = small_world()
    response = post(fake, creation(**{f"first_name_{number}": "x" for number in range(300)}))

    assert response.status == 201
    assert len(response.headers["x-fake-hint"]) == 2000
    assert len(fake.requests[-1].hints) == 300
    assert sum("did you mean" in hint for hint in fake.requests[-1].hints) == 20


SECRET = "key_5ecret"
SECRETS = [
    creation(owner_key=SECRET),
    creation(owner_key="5ecret"),
    creation(owner_key={"key": SECRET}),
    creation(workspace=SECRET),
    creation(campaign=SECRET),
    creation(**{SECRET: "x"}),
    creation(**{f"custom_{SECRET}": "x"}),
    creation(duplicates=SECRET),
    creation(email=SECRET, strict_validation=True),
]


@pytest.mark.parametrize("body", SECRETS)
@pytest.mark.parametrize("behaviour", [Behaviour(), Behaviour.strict(), Behaviour.lenient()])
def test_no_response_and_no_repr_shows_an_owner_key(body: dict[str, Any], behaviour: Behaviour) -> None:
    fake = small_world(behaviour)
    response = post(fake, body)
    query: dict[str, Any] = {"owner_key": "5ecret", SECRET: SECRET}
    get(fake, f"/campaigns/{SECRET}/steps", **query)

    shown = [response.body, response.headers, list(fake.requests), fake, fake.requests[0].hints, fake.requests[1].hints]
    assert "5ecret" not in repr(shown)
