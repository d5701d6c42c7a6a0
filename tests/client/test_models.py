"""The models and the enumerations."""

from __future__ import annotations

import copy
import json
import pickle
import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, get_origin

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import check_rows
from support.wire import ENUMS, KINDS, TABLES, build_model, exactly, names, unhurried, wire

from outreach_async import UNSET, Outcome
from outreach_async.guides import concepts
from outreach_async.models import (
    LOCAL_FIELDS,
    RESERVED_FIELDS,
    STANDARD_FIELDS,
    Campaign,
    CampaignStatus,
    CampaignSteps,
    CreatedContact,
    Mailbox,
    MailboxStatus,
    MailboxType,
    NewContact,
    Page,
    StepStatus,
    StepType,
    TemplateStatus,
    Undecodable,
)

ANSWERS: dict[str, Any] = {name: get_origin(kind) or kind for name, kind in KINDS.items()}
MODELS = [*dict.fromkeys(ANSWERS.values()), NewContact, CreatedContact, Undecodable]
OPEN_ENUMS = [*dict.fromkeys(ENUMS.values())]

texts = st.text(max_size=8)
unset_or_text = st.just(UNSET) | st.none() | texts
some_fields = st.dictionaries(st.sampled_from(STANDARD_FIELDS), unset_or_text)
codes = st.dictionaries(st.integers(1, 99).map("custom_{}".format), texts | st.none(), max_size=3)
others = st.dictionaries(st.sampled_from(["linkedin", "twitter", "x"]), texts | st.none(), max_size=3)
built = st.builds(
    lambda email, fields, **more: NewContact(email, **fields, **more), texts, some_fields, custom=codes, extra=others
)


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_model_has_exactly_the_documented_fields_in_order(name: str) -> None:
    fields = [field.alias for field in attrs.fields(ANSWERS[name]) if field.name not in LOCAL_FIELDS]
    assert fields == list(TABLES[name])


def test_a_new_contact_has_the_35_optional_fields_of_the_interface() -> None:
    assert len(set(STANDARD_FIELDS)) == 35  # the tests of the fake compare them with its own list
    assert [field.alias for field in attrs.fields(NewContact)] == ["email", *STANDARD_FIELDS, "custom", "extra"]
    assert {"owner_key", "workspace", "email", "upload_options", *STANDARD_FIELDS} == RESERVED_FIELDS


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_is_frozen_and_slotted(kind: Any) -> None:
    fields = {field.name: field.name for field in attrs.fields(kind) if field.default is attrs.NOTHING}
    model = kind(**fields)
    assert not hasattr(model, "__dict__")
    for name in (*(field.name for field in attrs.fields(kind)), "not_a_field"):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            setattr(model, name, 1)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        del model.extra
    assert [field.name for field in attrs.fields(kind) if not field.kw_only] == (["email"] if kind is NewContact else [])


@pytest.mark.thorough
@unhurried
@given(names.flatmap(lambda name: st.tuples(st.just(name), wire(name))))
def test_a_model_survives_pickling_and_copying_with_its_unknown_fields(answer: tuple[str, Any]) -> None:
    model = build_model(*answer)
    for copied in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model)):  # noqa: S301 - our own bytes
        assert copied == model
        assert exactly(copied) == exactly(model)


def test_a_model_as_json_has_its_nested_models_and_unknown_fields() -> None:
    possible = frozenset({Outcome.SKIPPED, Outcome.ADDED})
    created = CreatedContact(status=Outcome.ADDED, id="contact_1", details="Zoë", possible=possible, extra={"new": 1})
    expected: dict[str, Any] = {"status": "added", "id": "contact_1", "details": "Zoë", "possible": ["added", "skipped"]}
    expected |= {"attempts": 1, "request_id": None, "new": 1}
    assert created.to_dict() == expected
    assert json.loads(created.to_json()) == expected
    assert '"Zoë"' in created.to_json()
    page = Page[CreatedContact](status="ok", headers=[], data=[created], total_found=1, current_page=1, total_pages=1)
    assert json.loads(page.to_json(indent=2))["data"] == [expected]


@unhurried
@given(wire("Mailbox", unknown=False), wire("Template", unknown=False))
def test_unknown_fields_are_not_part_of_equality_hash_and_repr(mailbox: Any, template: Any) -> None:
    for name, value in (("Mailbox", mailbox), ("Template", template)):
        plain, more = build_model(name, value), build_model(name, {**value, "new": [1]})
        assert more.extra == {"new": [1]}
        assert plain == more
        assert hash(plain) == hash(more)
        assert repr(plain) == repr(more)


def test_undecodable_items_are_not_part_of_the_equality_of_a_page() -> None:
    page = Page[Campaign](status="ok", headers=[], data=[], total_found=0, current_page=1, total_pages=0)
    assert attrs.evolve(page, undecodable=[Undecodable(index=0, id=None, error="x")]) == page
    assert attrs.evolve(page, total_found=1) != page


def test_the_repr_of_an_undecodable_item_does_not_show_its_members() -> None:
    item = Undecodable(index=3, id="mailbox_1", error="$.data[3].spf: expected bool, got str", fields={"email": "a@b.example"})
    assert repr(item) == "Undecodable(index=3, id='mailbox_1', error='$.data[3].spf: expected bool, got str')"


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (CampaignStatus, "draft live paused"),
        (MailboxStatus, "active"),
        (MailboxType, "Google SMTP_&_IMAP"),
        (StepStatus, "live"),
        (StepType, "auto_email"),
        (TemplateStatus, "live"),
        (Outcome, "added skipped overwriten updated_missing_fields rejected not_applied unknown unchanged excluded"),
    ],
)
def test_an_enumeration_has_the_words_of_the_interface(kind: type[StrEnum], words: str) -> None:
    assert [member.value for member in kind] == [word.replace("_&_", " & ") for word in words.split()]


def test_the_guide_of_words_explains_every_outcome_of_a_row() -> None:
    assert [outcome for outcome in Outcome if not re.search(rf"(?m)`{outcome}`|^    {outcome} ", concepts.__doc__ or "")] == []


@given(st.sampled_from(OPEN_ENUMS), st.text() | st.sampled_from(["live", "added", "Google"]))
def test_any_string_is_a_member_that_equals_and_hashes_like_the_string(kind: type[StrEnum], text: str) -> None:
    member = kind(text)
    assert type(member) is kind
    assert member == text
    assert hash(member) == hash(text)
    assert {text: 1}[member] == 1
    assert (str(member), f"{member}", member.value, member.upper()) == (text, text, text, text.upper())


@given(st.sampled_from(OPEN_ENUMS), st.text())
def test_an_unknown_member_survives_pickling_and_copying(kind: type[StrEnum], text: str) -> None:
    member = kind(text)
    for copied in (pickle.loads(pickle.dumps(member)), copy.copy(member), copy.deepcopy(member), kind(member)):  # noqa: S301 - our own bytes
        assert (type(copied), copied, copied.value) == (kind, member, text)
    assert repr(member).endswith(f": {text!r}>")


def test_a_member_must_be_a_string() -> None:
    def check(kind: type[StrEnum], value: Any) -> None:
        with pytest.raises(ValueError, match="is not a valid"):
            kind(value)

    rows: list[tuple[Any, Any]] = [(kind, value) for kind in OPEN_ENUMS for value in [None, 1, True, b"live", ["live"]]]
    check_rows(rows, check)


@given(texts, some_fields, codes, others)
def test_a_new_contact_has_what_was_set_and_none_only_where_passed(
    email: str, fields: dict[str, Any], custom: dict[str, Any], extra: dict[str, Any]
) -> None:
    contact = NewContact(email, **fields, custom=custom, extra=extra)
    standard = {name: value for name, value in fields.items() if value is not UNSET}
    assert contact.standard() == standard
    assert contact.to_dict() == json.loads(contact.to_json()) == {"email": email, **standard, **custom, **extra}


@given(built)
def test_the_repr_of_a_new_contact_shows_what_was_set_and_can_be_evaluated(contact: NewContact) -> None:
    assert eval(repr(contact)) == contact  # noqa: S307 - the text is our own repr
    assert "UNSET" not in repr(contact.standard())


@given(built)
def test_a_new_contact_survives_pickling_and_copying(contact: NewContact) -> None:
    for copied in (pickle.loads(pickle.dumps(contact)), copy.copy(contact), copy.deepcopy(contact)):  # noqa: S301 - our own bytes
        assert copied == contact
        assert copied.to_dict() == contact.to_dict()
        assert hash(copied) == hash(attrs.evolve(contact, custom={}, extra={})) == hash(contact)


def test_a_new_contact_copies_the_mappings_it_is_given() -> None:
    row = {"custom_1": "x"}
    contact = NewContact("a@b.example", custom=row, extra=row)
    row["custom_1"] = "y"
    assert contact.custom == contact.extra == {"custom_1": "x"}


def model_with(kind: Any, **values: object) -> Any:
    fields = {field.name: field.name for field in attrs.fields(kind) if field.default is attrs.NOTHING}
    return kind(**fields | values)


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_unix_time_is_also_available_as_a_datetime(moment: datetime) -> None:
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(seconds=1)
    campaign = model_with(Campaign, created=seconds, days_left_date=seconds)
    steps, mailbox = model_with(CampaignSteps, days_left_date=seconds), model_with(Mailbox, created_at=seconds)
    times = campaign.created_datetime, campaign.days_left_datetime, steps.days_left_datetime, mailbox.created_datetime
    assert {time.tzinfo for time in times} == {UTC}
    assert all(abs(time - moment) < timedelta(milliseconds=1) for time in times)


@pytest.mark.parametrize("text", ["Complete", "1700000000", "2026-05-04", ""])
def test_an_end_given_as_a_string_has_no_datetime(text: str) -> None:
    assert model_with(Campaign, days_left_date=text).days_left_datetime is None
    assert model_with(CampaignSteps, days_left_date=text).days_left_datetime is None


@pytest.mark.parametrize("seconds", [1e300, -1e300, 10**30, 1e12, -1e12, float("nan")])
def test_a_time_that_no_datetime_can_represent_is_named(seconds: float) -> None:
    mailbox: Mailbox = model_with(Mailbox, created_at=seconds)
    with pytest.raises(
        ValueError, match=f"^created_at: expected a Unix time in .*, got {re.escape(str(seconds))}; use the number in created_at"
    ):
        _ = mailbox.created_datetime
