"""How the five operations read responses."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.tables import check_rows

from outreach_async import Outcome, Response
from outreach_async._core.arguments import to_contact
from outreach_async._core.operations import (
    AttemptInfo,
    ContactRequests,
    CopyDetector,
    Operation,
    RequestDefaults,
    encode_cells,
    encode_plain,
    list_fields,
)
from outreach_async._wire_words import DUPLICATE_OUTCOMES
from outreach_async.converters import OutreachConverter
from outreach_async.errors import InvalidRequest, UnexpectedResponse
from outreach_async.models import CreateContactResponse, CreatedContact, NewContact

DEFAULTS = RequestDefaults.from_headers({}, OutreachConverter)
FIRST, LATER = AttemptInfo(1, maybe_applied=False), AttemptInfo(3, maybe_applied=True)


def creation(key: Any = "key_1", workspace: Any = "space_1", **options: Any) -> ContactRequests:
    settings = {"duplicates": "skip", "strict_validation": True, "campaign": None, "copy_detector": CopyDetector(), **options}
    return ContactRequests.from_options(key, workspace, DEFAULTS, **settings)


def answer(**members: Any) -> Response:
    body = {"status": "added", "id": "contact_1", "details": None, **members}
    return Response(201, {"x-request-id": "req_1"}, json.dumps(body).encode())


def create(response: Response, trail: AttemptInfo = FIRST) -> CreatedContact:
    return creation().build(NewContact("a@b.example")).parse(response, trail)


@pytest.mark.parametrize("status", ["OK", "Ok", " ok", "ok ", "okay", "not ok", ""])
def test_only_the_exact_status_ok_is_a_success(status: str) -> None:
    body = json.dumps({"status": status, "data": []}).encode()
    with pytest.raises(UnexpectedResponse, match=f"with status '{status}' instead of 'ok'$"):
        list_fields("space_1", DEFAULTS).parse(Response(200, {}, body), FIRST)


@pytest.mark.parametrize(
    ("status", "id_"),
    [
        *[("added", "contact_1"), ("added", None), ("skipped", None)],
        *((other, "contact_1") for other in ["overwriten", "updated_missing_fields", "merged"]),
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
        requests.row_operation.parse(answer(status=status, id=contact_id), FIRST)
    assert not requests.build(NewContact("c@b.example")).parse(answer(id="contact_1"), FIRST).certain
    row, info = requests.row_operation.parse(answer(id="contact_1"), FIRST)
    assert (row.id, info.possible) == ("contact_1", frozenset({Outcome.ADDED, Outcome.NOT_APPLIED, Outcome.SKIPPED}))


@pytest.mark.parametrize("status", ["added", "skipped", "merged", "added\x00", ""])
@pytest.mark.parametrize("id_", ["contact_1", None, "contact_key_1", "contact_\u200b1", "contact_a2V5XzE=", "other"])
@pytest.mark.parametrize("more", [{}, {"new": 1}, {"details": 3}, {"details": "\ud800"}])
def test_the_response_to_a_row_is_read_as_that_to_a_call(status: str, id_: str | None, more: dict[str, Any]) -> None:
    def read(operation: Operation[Any]) -> tuple[Any, ...]:
        try:
            found = operation.parse(answer(status=status, id=id_, **more), FIRST)
        except UnexpectedResponse as error:
            return str(error), error.maybe_sent
        if isinstance(found, CreatedContact):
            return found.status, found.id, found.possible
        made, info = found
        return made.status, made.id, info.possible or frozenset({made.status})

    assert read(creation().row_operation) == read(creation().build(NewContact("a@b.example")))


ROWS: Final = st.dictionaries(
    st.sampled_from(["email", "city", "first_name", "address_1", "custom_1", "custom_20", "custom_x", "town", "campaign", 3]),
    st.none() | st.text() | st.sampled_from([" ", b"x", 3, "\ud800", Outcome.ADDED]),
)


@given(ROWS | ROWS.map(lambda row: {**row, "email": "a@b.example"}))
@example({"custom_2": "x", "custom_1": "y", "zip": "1", "email": "a@b.example", "city": "Orl\u00e9ans"})
def test_the_fast_way_to_encode_a_row_gives_the_same_bytes(row: dict[Any, Any]) -> None:
    requests = creation()
    if fields := encode_plain(row):
        assert requests.build_request(fields) == requests.build_row(to_contact(row))
    elif "campaign" not in row and all(type(value) is str for value in row.values()):
        with pytest.raises(InvalidRequest):
            requests.build_row(to_contact(row))


def test_rows_with_a_blank_cell_or_no_email_are_not_encoded_in_the_fast_way() -> None:
    codes = ("email", "city")
    assert encode_cells(codes, ("a@b.example", "")) == b'"email":"a@b.example"}'
    assert encode_cells(codes, ("a@b.example", " ")) == encode_cells(codes, ("", "Bonn")) == b""


def test_a_client_remembers_at_least_the_last_4096_ids() -> None:
    copies: list[str] = []
    ids = CopyDetector(lambda: copies.append("copy"))

    def is_copy(number: int) -> bool:
        return ids.is_copy(CreateContactResponse(status=Outcome.ADDED, id=f"contact_{number}", details=None))

    assert not any(map(is_copy, range(2 * 4096 + 1)))
    assert copies == []
    assert is_copy(4096)
    assert copies == ["copy"]
    assert not is_copy(0)


def test_an_id_with_the_key_leaves_the_stated_outcome_possible() -> None:
    contact = create(answer(status="overwriten", id="contact_key_1"))
    assert (contact.status, contact.id) == ("overwriten", None)
    assert contact.possible == {"overwriten", "added", "skipped", "not_applied"}


def test_the_key_in_an_unknown_status_with_a_contact_id_is_masked() -> None:
    with pytest.raises(UnexpectedResponse, match=r"with unknown status '\*\*\*'") as caught:
        create(answer(status="key_1", id="contact_1"))
    assert "key_1" not in repr(caught.value)


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
