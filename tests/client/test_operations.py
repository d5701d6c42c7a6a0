"""The five operations as values: the bytes they send and how they read responses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.tables import check_rows
from support.wire import build_model, exactly, unhurried, wire

from outreach_async._service.contacts import CreateContactResponse, CreatedContact, NewContact
from outreach_async._service.operations import (
    AttemptInfo,
    ContactRequests,
    CopyDetector,
    Operation,
    RequestDefaults,
    list_campaigns,
    list_fields,
    list_mailboxes,
    list_steps,
    raw_request,
)
from outreach_async._service.retry import Idempotency
from outreach_async._vocabulary import DUPLICATE_OUTCOMES, STANDARD_FIELDS, UNSET, Outcome
from outreach_async.errors import InvalidRequest, UnexpectedResponse
from outreach_async.models import Page
from outreach_async.transport._secret import reveal
from outreach_async.transport._wire import Request, Response

DIALECT = RequestDefaults.from_headers({"authorization": "Bearer abcdef123456", "x-team": "red"})
READ = {
    "accept": "application/json",
    "accept-encoding": "gzip, deflate",
    "user-agent": RequestDefaults.from_headers({}).read_headers["user-agent"],
    "authorization": "Bearer abcdef123456",
    "x-team": "red",
}
WRITE = {"content-type": "application/json", **READ}
FIRST, LATER = AttemptInfo(1, maybe_applied=False), AttemptInfo(3, maybe_applied=True)
ODD = "camp_é ü/%2F?#"

READS: dict[str, tuple[Callable[[], Operation[Any]], str, str]] = {
    "list_campaigns": (
        lambda: list_campaigns("space_1", 50, DIALECT, keep=False)(2),
        "/campaigns?workspace=space_1&page=2&display=50",
        "Page[Campaign]",
    ),
    "list_mailboxes": (
        lambda: list_mailboxes("space_1", 2000, DIALECT, keep=False)(0),
        "/mailboxes?workspace=space_1&page=0&display=2000",
        "Page[Mailbox]",
    ),
    "list_steps": (lambda: list_steps("camp_1", DIALECT), "/campaigns/camp_1/steps", "CampaignSteps"),
    "list_fields": (lambda: list_fields("space_1", DIALECT), "/workspaces/space_1/all-fields", "WorkspaceFields"),
}


def creation(key: Any = "key_1", workspace: Any = "space_1", **options: Any) -> ContactRequests:
    settings = {"duplicates": "skip", "strict_validation": True, "campaign": None, "copy_detector": CopyDetector(), **options}
    return ContactRequests.from_options(key, workspace, DIALECT, **settings)


def answer(**members: Any) -> Response:
    body = {"status": "added", "id": "contact_1", "details": None, **members}
    return Response(201, {"x-request-id": "req_1"}, json.dumps(body).encode())


def create(response: Response, trail: AttemptInfo = FIRST) -> CreatedContact:
    return creation().build(NewContact("a@b.example")).parse(response, trail)


# What is sent


@pytest.mark.parametrize("name", READS)
def test_a_read_is_a_get_without_a_body_that_is_safe_to_retry(name: str) -> None:
    make, target, _ = READS[name]
    operation = make()
    assert operation.request == Request("GET", target, READ)
    assert (operation.name, operation.idempotency, operation.any_status) == (name, Idempotency.SAFE, False)
    assert {reveal(secret) for secret in operation.secrets} == {"Bearer abcdef123456", "Bearer", "abcdef123456"}


ids = st.text(min_size=1)


@given(ids)
@example(ODD.removeprefix("camp_"))
@example("../..")
def test_any_id_in_a_path_is_one_segment_that_decodes_to_the_id(rest: str) -> None:
    steps = list_steps(f"camp_{rest}", DIALECT).request.target
    fields = list_fields(f"space_{rest}", DIALECT).request.target
    for target, expected_id in ((steps, f"camp_{rest}"), (fields, f"space_{rest}")):
        assert target.isascii()
        assert urlsplit(target).path == target
        assert len(target.split("/")) == 4
        assert unquote(target.split("/")[2]) == expected_id


@given(ids, st.integers(0, 2**40), st.integers(1, 2000), st.booleans())
@example(ODD, 1, 1, False)
def test_any_id_in_a_query_is_one_value_that_decodes_to_the_id(rest: str, page: int, display: int, keep: bool) -> None:
    for make in (list_campaigns, list_mailboxes):
        target = make(f"space_{rest}", display, DIALECT, keep=keep)(page).request.target
        assert target.isascii()
        assert "+" not in target
        query = parse_qsl(urlsplit(target).query, keep_blank_values=True, strict_parsing=True)
        assert query == [("workspace", f"space_{rest}"), ("page", str(page)), ("display", str(display))]


def test_only_mailboxes_have_a_maximum_page_size() -> None:
    assert list_campaigns("space_1", 1_000_000, DIALECT, keep=False)(1).request.target.endswith("&display=1000000")
    assert list_mailboxes("space_1", 2000, DIALECT, keep=False)(1).request.target.endswith("&display=2000")


WRONG_READS: list[tuple[Callable[[], object], str]] = [
    (lambda: list_campaigns("camp_1", 1, DIALECT, keep=False)(1), "workspace: .*campaign id.*OUTREACH_WORKSPACE"),
    (lambda: list_campaigns(None, 1, DIALECT, keep=False)(1), "workspace: .*got None; .* or set OUTREACH_WORKSPACE"),
    (lambda: list_campaigns("space_1", 0, DIALECT, keep=False)(1), "display: expected at least 1"),
    (lambda: list_mailboxes("space_1", 2001, DIALECT, keep=False)(1), "display: expected at most 2000, got 2001"),
    (lambda: list_mailboxes("", 1, DIALECT, keep=False)(1), "workspace: .*blank"),
    (lambda: list_steps("space_1", DIALECT), r"campaign: .*workspace id.*from the campaign list"),
    (lambda: list_fields("mailbox_1", DIALECT), "workspace: .*mailbox id.*OUTREACH_WORKSPACE"),
    (lambda: creation(key=None), "owner_key: .*got None; pass an owner key or set OUTREACH_OWNER_KEY"),
    (lambda: creation(workspace=None), "workspace: .*got None; pass a workspace id or set OUTREACH_WORKSPACE"),
    (lambda: creation(duplicates="merge"), "duplicates: .*got 'merge'"),
    (lambda: creation(strict_validation=1), "strict_validation: expected bool, got int"),
    (lambda: creation(campaign="space_1"), "campaign: .*workspace id"),
    (lambda: creation().build(NewContact("")), "email: .*blank"),
    (lambda: creation().build(NewContact("a@b.example", custom={"plan": "x"})), r"custom\['plan'\]"),
]


@pytest.mark.parametrize(("make", "message"), WRONG_READS)
def test_invalid_arguments_are_refused_before_anything_is_sent(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        make()


@pytest.mark.parametrize("duplicates", ["skip", "overwrite", "update_missing_fields"])
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("campaign", [None, "camp_1", ODD])
def test_a_creation_sends_the_documented_body(duplicates: str, strict: bool, campaign: str | None) -> None:
    kind = creation(duplicates=duplicates, strict_validation=strict, campaign=campaign)
    operation = kind.build(NewContact("a@b.example", first_name="Zoë", custom={"custom_1": "x"}))
    assert (operation.request.method, operation.request.target, operation.request.headers) == ("POST", "/contacts", WRITE)
    assert json.loads(operation.request.body) == {
        "owner_key": "key_1",
        "workspace": "space_1",
        "upload_options": {"duplicates": duplicates, "strict_validation": strict, "campaign": campaign},
        "email": "a@b.example",
        "first_name": "Zoë",
        "custom_1": "x",
    }
    assert (operation.name, operation.idempotency, operation.any_status) == ("create_contact", Idempotency.IDEMPOTENT, False)
    assert {reveal(secret) for secret in operation.secrets} == {"key_1", "Bearer abcdef123456", "Bearer", "abcdef123456"}
    assert kind.duplicates == duplicates


@given(
    st.text(min_size=1).filter(str.strip),
    st.dictionaries(st.sampled_from(STANDARD_FIELDS), st.just(UNSET) | st.none() | st.text()),
    st.dictionaries(st.integers(1).map("custom_{}".format), st.none() | st.text(), max_size=3),
    st.dictionaries(st.sampled_from(["linkedin", "twitter"]), st.none() | st.text()),
)
def test_a_creation_sends_what_was_set_and_null_only_where_passed(
    email: str, fields: dict[str, Any], custom: dict[str, Any], extra: dict[str, Any]
) -> None:
    body = creation().build(NewContact(email, **fields, custom=custom, extra=extra)).request.body
    members = json.loads(body)
    sent = {name: members[name] for name in members.keys() - {"owner_key", "workspace", "upload_options"}}
    assert sent == {"email": email, **{name: value for name, value in fields.items() if value is not UNSET}, **custom, **extra}


@given(st.text(min_size=1), st.text(min_size=1))
def test_any_key_and_workspace_are_sent_unchanged(key: str, workspace: str) -> None:
    body = json.loads(creation(key=f"key_{key}", workspace=f"space_{workspace}").build(NewContact("a@b.example")).request.body)
    assert (body["owner_key"], body["workspace"]) == (f"key_{key}", f"space_{workspace}")


class Guarded(str):
    """A string subclass from a secret store: its repr is masked."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


def test_string_subclasses_are_sent_as_their_characters() -> None:
    body = json.loads(
        creation(key=Guarded("key_1")).build(NewContact(Guarded("a@b.example"), city=Guarded("Paris"))).request.body
    )
    assert (body["owner_key"], body["email"], body["city"]) == ("key_1", "a@b.example", "Paris")


def test_no_repr_shows_a_key_or_a_header() -> None:
    kind = creation(key="key_secret")
    operation = kind.build(NewContact("a@b.example"))
    for value in (kind, operation, operation.request, DIALECT, *(make() for make, _, _ in READS.values())):
        assert "key_secret" not in repr(value)
        assert "abcdef123456" not in repr(value)


# Headers


def test_every_request_has_accept_and_content_type() -> None:
    plain = RequestDefaults.from_headers({})
    assert plain.read_headers == {name: READ[name] for name in ("accept", "accept-encoding", "user-agent")}
    assert plain.write_headers == {**plain.read_headers, "content-type": "application/json"}
    assert plain.secrets == ()


def test_a_header_of_the_caller_overrides_the_librarys() -> None:
    own = RequestDefaults.from_headers({"user-agent": "mine", "content-type": "application/json; charset=utf-8"})
    assert (own.read_headers["user-agent"], own.write_headers["content-type"]) == ("mine", "application/json; charset=utf-8")


# Reading responses


@pytest.mark.thorough
@unhurried
@given(st.sampled_from(sorted(READS)).flatmap(lambda name: st.tuples(st.just(name), wire(READS[name][2]))))
def test_a_response_to_a_read_becomes_its_model_if_its_status_is_ok(drawn: tuple[str, Any]) -> None:
    name, value = drawn
    make, _, table = READS[name]
    value = {**value, "status": "ok"}
    model = make().parse(Response(200, {}, json.dumps(value).encode()), FIRST)
    assert exactly(model) == exactly(build_model(table, value))


@pytest.mark.thorough
@unhurried
@given(st.sampled_from(sorted(READS)).flatmap(lambda name: st.tuples(st.just(name), wire(READS[name][2]))), st.text())
def test_a_response_to_a_read_whose_status_is_not_ok_is_an_error(drawn: tuple[str, Any], status: str) -> None:
    name, value = drawn
    response = Response(200, {"x-request-id": "req_1"}, json.dumps({**value, "status": f"no {status}"}).encode())
    with pytest.raises(UnexpectedResponse) as caught:
        READS[name][0]().parse(response, FIRST)
    assert str(caught.value) == f"{name}: the service answered 200 with status {f'no {status}'!r} instead of 'ok'"
    assert (caught.value.operation, caught.value.request_id, caught.value.well_formed) == (name, "req_1", True)


@pytest.mark.parametrize("status", ["OK", "Ok", " ok", "ok ", "okay", "not ok", ""])
def test_only_the_exact_status_ok_is_a_success(status: str) -> None:
    body = json.dumps({"status": status, "data": []}).encode()
    with pytest.raises(UnexpectedResponse, match=f"with status '{status}' instead of 'ok'$"):
        list_fields("space_1", DIALECT).parse(Response(200, {}, body), FIRST)


def test_an_undocumented_response_is_unexpected() -> None:
    def check(body: bytes, message: str, well_formed: bool, name: str) -> None:
        with pytest.raises(UnexpectedResponse) as caught:
            READS[name][0]().parse(Response(200, {}, body), FIRST)
        assert message in str(caught.value)
        assert str(caught.value).startswith(f"{name}: the service answered 200 with ")
        assert (caught.value.well_formed, caught.value.body, caught.value.maybe_sent) == (well_formed, body, True)

    check_rows(
        (
            (body, message, well_formed, name)
            for body, message, well_formed in [
                (b"", "expected JSON, got an empty body", False),
                (b"<html>", "expected JSON, got a page of HTML or XML", False),
                (b"[]", "expected object, got list", False),
                (b'{"status": "ok"', "Input data was truncated", False),
                (b'{"status": "ok"}', "$.data: missing key 'data'", True),
                (b'{"status": "ok", "data": null}', "$.data: expected array, got None", True),
                (b'{"status": "error", "error": "no such id"}', "status 'error': no such id", True),
                (b'{"error": {"message": "no such id"}}', "the service answered 200 with an error: no such id", True),
            ]
            for name in READS
        ),
        check,
    )


@pytest.mark.parametrize("make", [list_campaigns, list_mailboxes])
def test_an_undecodable_item_is_an_error_or_kept_as_the_caller_asks(make: Any) -> None:
    page = {"status": "ok", "headers": [], "data": [{"id": "x_1"}], "total_found": 1, "current_page": 1, "total_pages": 1}
    response = Response(200, {}, json.dumps(page).encode())
    with pytest.raises(UnexpectedResponse, match=r"\$\.data\[0\]\.status: missing key 'status'"):
        make("space_1", 5, DIALECT, keep=False)(1).parse(response, FIRST)
    lenient_page: Page[Any] = make("space_1", 5, DIALECT, keep=True)(1).parse(response, FIRST)
    assert (lenient_page.data, [(item.index, item.id) for item in lenient_page.undecodable]) == ([], [(0, "x_1")])
    with pytest.raises(UnexpectedResponse, match="total_found"):
        make("space_1", 5, DIALECT, keep=True)(1).parse(
            Response(200, {}, json.dumps({**page, "total_found": "1"}).encode()), FIRST
        )


@pytest.mark.parametrize(
    ("status", "id_"),
    [
        ("added", "contact_1"),
        ("skipped", None),
        ("overwriten", "contact_1"),
        ("updated_missing_fields", "contact_1"),
        ("merged", "contact_1"),
        ("added", None),
    ],
)
@pytest.mark.parametrize("trail", [FIRST, LATER])
def test_a_response_to_a_creation_becomes_a_contact_with_its_attempt_info(
    status: str, id_: str | None, trail: AttemptInfo
) -> None:
    contact = create(answer(status=status, id=id_, details="why", new=1), trail)
    assert type(contact.status) is Outcome
    assert contact == CreatedContact(
        status=Outcome(status),
        id=id_,
        details="why",
        possible=frozenset({Outcome(status), Outcome.ADDED} if trail.maybe_applied else {Outcome(status)}),
        request_id="req_1",
        attempts=trail.attempts,
    )
    assert contact.extra == {"new": 1}


def test_the_texts_of_a_created_contact_have_no_invisible_characters() -> None:
    body = answer(id="contact_\x1b[2J1\u202e", details="dup\x07licate\u2066\nof").body
    contact = create(Response(200, {"x-request-id": "req\x1b]0;x\x07_1\u200f"}, body))
    assert (contact.id, contact.details, contact.request_id) == ("contact_[2J1", "duplicate of", "req]0;x_1")
    assert contact.certain


def test_a_key_split_by_invisible_characters_is_masked_in_a_contact() -> None:
    split = "\u200b".join("key_1")
    contact = create(Response(200, {"x-request-id": split}, answer(id=f"contact_{split}", details=split).body))
    assert (contact.id, contact.details, contact.request_id) == (None, "***", "***")
    assert not contact.certain


@pytest.mark.parametrize("status", ["added\x00", "\u202eadded"])
def test_an_outcome_with_invisible_characters_is_unexpected(status: str) -> None:
    with pytest.raises(UnexpectedResponse) as caught:
        create(answer(status=status))
    assert str(caught.value) == f"create_contact: the service answered 201 with unknown status {status!r}"


@pytest.mark.parametrize("policy", ["skip", "overwrite"])
def test_added_with_the_id_of_an_earlier_response_is_uncertain(policy: str) -> None:
    copy_detector = CopyDetector()

    def create_in(policy: str, **members: Any) -> CreatedContact:
        operation = creation(duplicates=policy, copy_detector=copy_detector).build(NewContact("a@b.example"))
        return operation.parse(answer(**members), FIRST)

    assert create_in(policy, status="overwriten", id="contact_1").certain
    assert create_in(policy, status="overwriten", id="contact_1").certain
    again = create_in(policy, status="added", id="contact_1")
    assert (again.status, again.id) == ("added", None)
    assert again.possible == {"added", "not_applied", DUPLICATE_OUTCOMES[policy]}
    assert create_in(policy, status="added", id="contact_2").certain
    assert create_in(policy, status="added", id=None).certain
    assert create_in(policy, status="added", id=None).certain


def test_the_id_of_a_row_is_remembered_for_later_calls() -> None:
    requests = creation()
    for status, contact_id in (("skipped", None), ("added", "contact_1")):
        requests.build_row(NewContact("a@b.example")).parse(answer(status=status, id=contact_id), FIRST)
    assert not requests.build(NewContact("c@b.example")).parse(answer(id="contact_1"), FIRST).certain


def test_a_client_remembers_the_last_4096_ids() -> None:
    copies: list[str] = []
    ids = CopyDetector(lambda: copies.append("copy"))

    def is_copy(number: int) -> bool:
        return ids.is_copy(CreateContactResponse(status=Outcome.ADDED, id=f"contact_{number}", details=None))

    assert not any(map(is_copy, range(4097)))
    assert copies == []
    assert is_copy(1)
    assert copies == ["copy"]
    assert not is_copy(0)


def test_an_id_with_the_key_leaves_the_stated_outcome_possible() -> None:
    contact = create(answer(status="overwriten", id="contact_key_1"))
    assert (contact.status, contact.id) == ("overwriten", None)
    assert contact.possible == {"overwriten", "added", "skipped", "not_applied"}


def test_a_response_without_a_request_id_gives_a_contact_without_one() -> None:
    body = b'{"status": "skipped", "id": null, "details": "duplicate"}'
    assert create(Response(200, {}, body)).request_id is None


def test_an_unknown_outcome_without_a_contact_id_is_unexpected() -> None:
    def check(status: str, id_: str | None, new: dict[str, Any]) -> None:
        with pytest.raises(UnexpectedResponse) as caught:
            create(answer(status=status, id=id_, **new))
        assert str(caught.value) == f"create_contact: the service answered 201 with unknown status {status!r} and no contact id"
        assert (caught.value.status_code, caught.value.request_id, caught.value.well_formed) == (201, "req_1", True)

    check_rows(
        (
            (status, id_, new)
            for status in ["merged", "ok", "", "overwritten", "Added"]
            for id_ in [None, "", "camp_1", "1", " contact_1"]
            for new in [{}, {"new": 1}]
        ),
        check,
    )


@pytest.mark.parametrize(
    ("body", "message", "well_formed"),
    [
        (b"", "expected JSON, got an empty body", False),
        (b'{"status": "added", "id"', "Input data was truncated", False),
        (b'{"status": "added"}', "$.id: missing key 'id'; $.details: missing key 'details'", True),
        (b'{"status": "error", "error": "no such key"}', "status 'error': no such key", True),
        (b'{"status": [], "id": null, "details": null}', "$.status: expected str, got list", True),
        (b'{"status": "added", "id": 5, "details": null}', "$.id: expected str, got int", True),
    ],
)
def test_an_undocumented_response_to_a_creation_is_unexpected(body: bytes, message: str, well_formed: bool) -> None:
    with pytest.raises(UnexpectedResponse) as caught:
        create(Response(200, {}, body))
    assert str(caught.value).startswith("create_contact: the service answered 200 with ")
    assert str(caught.value).endswith(message)
    assert caught.value.well_formed is well_formed


@pytest.mark.parametrize(
    "body",
    [
        b'{"status": "key_1 is wrong"}',
        b'{"status": "key_1", "id": null, "details": null}',
        b'{"status": "no key_1", "id": "contact_1", "details": null}',
        b"key_1",
    ],
)
def test_a_response_that_echoes_the_key_does_not_show_it(body: bytes) -> None:
    with pytest.raises(UnexpectedResponse) as caught:
        create(Response(200, {"x-echo": "key_1"}, body))
    assert "key_1" not in repr((caught.value, vars(caught.value)))


# Raw requests


def test_a_raw_request_is_sent_unchanged_and_any_response_is_returned() -> None:
    operation = raw_request("PATCH", "/campaigns/camp_1?x=%2F", b"{}", {"x-team": "blue", "x-api-key": "hunter2"}, DIALECT)
    assert operation.request == Request(
        "PATCH", "/campaigns/camp_1?x=%2F", {**WRITE, "x-team": "blue", "x-api-key": "hunter2"}, b"{}"
    )
    assert (operation.name, operation.idempotency, operation.any_status) == ("request", Idempotency.UNKNOWN, True)
    assert {reveal(secret) for secret in operation.secrets} == {"Bearer abcdef123456", "Bearer", "abcdef123456", "hunter2"}
    response = Response(503, {}, b"<html>")
    assert operation.parse(response, FIRST) is response


def test_a_raw_request_without_a_body_has_no_content_type() -> None:
    assert raw_request("GET", "/campaigns", b"", {}, DIALECT).request == Request("GET", "/campaigns", READ)


@pytest.mark.parametrize(
    ("method", "target", "body", "message"),
    [
        ("get", "/", b"", "method: "),
        ("GET x", "/", b"", "method: "),
        (None, "/", b"", "method: expected an HTTP method in upper case, got None"),
        ("GET", "campaigns", b"", "target: "),
        ("GET", "/a/../b", b"", "target: "),
        ("GET", "/", "{}", "body: expected bytes, got str"),
        ("GET", "/", {"a": 1}, "body: expected bytes, got dict"),
    ],
)
def test_an_invalid_raw_request_is_refused(method: Any, target: Any, body: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        raw_request(method, target, body, {}, DIALECT)
